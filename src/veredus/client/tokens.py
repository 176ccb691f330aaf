"""Which resume token of a source the node has, which one it is to have, and who waits for that.

    flush ──want──► wanted ──(taken up to its number, not stored with a publication)──► asked ──► stored

A token goes with the last publication that it speaks of. Where none carries it, or the node had that one already, it
is stored by itself.

Invariants
    (1) One token is asked for at a time, and the newest wanted one next: what nobody waits for takes no room.
    (2) A token that speaks further than one that is wanted is as good.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from veredus.protocols.zeps import messages as m

Tell = Callable[[], None]


class Tokens:
    """Owns what is known of one source's resume tokens; lives in the loop."""

    __slots__ = ("_asked", "_carried", "_count", "_stored", "_waiters", "_wanted")

    def __init__(self) -> None:
        """Of a source that is not attached yet."""
        self._stored = (0, b"")
        """The last number that the node's token speaks of, and the token."""
        self._carried: deque[tuple[int, bytes]] = deque()
        """Those that publications in doubt carry."""
        self._count = 0
        self._wanted: m.StoreToken | None = None
        self._asked: m.StoreToken | None = None
        self._waiters: list[tuple[int, Tell]] = []

    @property
    def is_wanted(self) -> bool:
        """Whether the node is to have a token that it may not have yet."""
        return self._wanted is not None

    @property
    def number(self) -> int:
        """The last number that the node's token speaks of; 0 for no token."""
        return self._stored[0]

    def learn(self, number: int, token: bytes) -> None:
        """The node has this one, and has forgotten what it was asked on links of before."""
        self._stored = (number, token)
        self._asked = None

    def carry(self, number: int, token: bytes) -> None:
        """The publication of this number, which is offered now, carries a token."""
        self._carried.append((number, token))

    def settle(self, last: int, is_duplicate: bool) -> None:
        """Publications up to `last` are taken; from a duplicate the node takes no token."""
        while self._carried and self._carried[0][0] <= last:
            carried = self._carried.popleft()
            if carried[0] == last and not is_duplicate:
                self._stored = carried

    def want(self, number: int, token: bytes) -> None:
        """The node is to have `token`, which speaks up to `number`."""
        self._count += 1
        self._wanted = m.StoreToken(self._count, number, token)

    def to_ask(self, taken_number: int, is_attached: bool) -> m.StoreToken | None:
        """What to ask of the node now; None where there is nothing to ask, or not yet."""
        wanted = self._wanted
        if wanted is None or self._asked is not None or wanted.number > taken_number:
            return None
        if (wanted.number, wanted.token) == self._stored or wanted.number < self._stored[0]:
            self._become_stored(wanted)
        elif is_attached:
            self._asked = wanted
        return self._asked

    def take_answer(self, request: int) -> None:
        """The node has stored what it was asked to."""
        asked = self._asked
        if asked is not None and asked.request == request:
            self._asked = None
            self._stored = max(self._stored, (asked.number, asked.token), key=lambda stored: stored[0])
            self._become_stored(asked)

    def ask_again(self) -> None:
        """What was asked has no answer, and will get none."""
        self._asked = None

    def _become_stored(self, stored: m.StoreToken) -> None:
        if self._wanted is stored:
            self._wanted = None
        self._tell(stored.request)

    def add_waiter(self, tell: Tell) -> None:
        """Call `tell` once the node has the token that is wanted now, or a later one."""
        self._waiters.append((self._count, tell))

    def tell_all(self) -> None:
        """Nothing more will be stored."""
        self._tell(self._count)

    def _tell(self, request: int) -> None:
        waiters, self._waiters = self._waiters, []
        for wanted, tell in waiters:
            if wanted <= request:
                tell()
            else:
                self._waiters.append((wanted, tell))
