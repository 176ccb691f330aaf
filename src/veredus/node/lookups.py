"""Whose check is next: addresses take turns, so that one which asks for much keeps no other waiting.

    asked ──► waits, behind its own address's ── the address's turn ──► being checked ──► answered
                 └── too many wait: the newest of the address with the most ──► told to come again

A check of a token costs some 10 ms of a processor on purpose, a handshake one or more for a private key's operation,
and whoever has a connection may ask for one.

Addresses that were checked not long ago go round. Those that are new have a turn for each of theirs, the newest first:
where more come than can be checked, the oldest has mostly waited in vain by then, for it is late, or has lost its
place. The newest is there still, so as many are let in as can be checked. What continues a check has every second turn,
by address too: there is never more of it than was checked before, and what was spent on that is not to be lost; but
it may be saved up, to come all at once.
Source: round robin by origin, as places are shared out (veredus.node.admission); the newest first under overload, as in
Maurer, "Fail at Scale" (2015).
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TypeAlias

from .admission import origin_of

KNOWN_MAX = 4_096
"""Of so many addresses it is remembered that they were checked."""
Lines: TypeAlias = OrderedDict[str, dict[int, None]]
"""Keys that wait, by address; the last address has the next turn."""


class Lookups:
    """Owns who waits for a check, by address, and who is being checked; by keys of the caller's.

    Invariants
        (1) At most `running_max` are checked at once, and at most `waiting_max` wait.
        (2) Between two checks of one address that is known, each other known address that waits has one.
        (3) Who came first from an address is checked first, but for what continues a check.
        (4) Where all wait, what continues a check has every second turn; new and known addresses have a fourth each.
    """

    __slots__ = (
        "_addresses", "_begun", "_is_begun_turn", "_is_new_turn", "_known", "_new", "_running", "_waiting",
        "_waiting_max", "running_max",
    )  # fmt: skip

    def __init__(self, running_max: int, waiting_max: int) -> None:
        """Nobody has asked."""
        self.running_max = running_max
        self._waiting_max = waiting_max
        self._running: set[int] = set()
        self._addresses: dict[int, tuple[str, Lines]] = {}
        """Where each comes from who waits, and among which it does."""
        self._begun: Lines = OrderedDict()
        """Who waits to continue a check."""
        self._new: Lines = OrderedDict()
        self._waiting: Lines = OrderedDict()
        """Who waits from known addresses."""
        self._known: OrderedDict[str, None] = OrderedDict()
        """Addresses that were checked, the last of them last."""
        self._is_begun_turn = self._is_new_turn = True

    def __len__(self) -> int:
        return len(self._addresses)

    def ask(self, key: int, address: str, is_begun: bool = False) -> int | None:
        """Let `key` wait for its check, or for what continues one; the key, perhaps its own, of who has to make room
        for that.
        """
        origin = origin_of(address)
        is_known = origin in self._waiting or (origin not in self._new and origin in self._known)
        lines = self._begun if is_begun else self._waiting if is_known else self._new
        if origin not in lines:
            lines[origin] = {}
            if lines is self._waiting:
                # Behind the others: it has had a turn before.
                lines.move_to_end(origin, last=False)
        lines[origin][key] = None
        self._addresses[key] = origin, lines
        return None if len(self._addresses) <= self._waiting_max else self._refuse()

    def _refuse(self) -> int:
        """Who makes room: of addresses that have the most, the one whose turn is the last."""
        every = [keys for lines in (self._waiting, self._new, self._begun) for keys in lines.values()]
        most = max(map(len, every))
        refused = next(reversed(next(keys for keys in every if len(keys) == most)))
        self.forget(refused)
        return refused

    def next(self) -> int | None:
        """Who is checked now; None where nobody waits, or enough are being checked."""
        if not self._addresses or len(self._running) >= self.running_max:
            return None
        lines = self._lines_of_turn()
        origin = next(reversed(lines))
        keys = lines.pop(origin)
        key = next(iter(keys))
        if lines is not self._begun:
            self._note_known(origin)
            lines = self._waiting
            for other in keys:
                self._addresses[other] = origin, lines
        # Behind the others: the turn goes round.
        lines[origin] = keys
        lines.move_to_end(origin, last=False)
        self.forget(key)
        self._running.add(key)
        return key

    def _lines_of_turn(self) -> Lines:
        """Those of whom one is next; each line's last address is."""
        is_begun = bool(self._begun) and (self._is_begun_turn or not (self._new or self._waiting))
        self._is_begun_turn = not is_begun
        if is_begun:
            return self._begun
        is_new = bool(self._new) and (self._is_new_turn or not self._waiting)
        self._is_new_turn = not is_new
        return self._new if is_new else self._waiting

    def _note_known(self, origin: str) -> None:
        self._known[origin] = None
        self._known.move_to_end(origin)
        if len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)

    def finish(self, key: int) -> None:
        """The check of `key` is over."""
        self._running.discard(key)

    def forget(self, key: int) -> None:
        """`key` waits no more; nothing changes for one that does not wait."""
        found = self._addresses.pop(key, None)
        if found is not None:
            origin, lines = found
            del lines[origin][key]
            if not lines[origin]:
                del lines[origin]

    def check(self) -> None:
        """Raise `AssertionError` where an invariant does not hold."""
        assert len(self._running) <= self.running_max, "(1)"
        lines = [keys for lines in (self._waiting, self._new, self._begun) for keys in lines.values()]
        assert len(self._addresses) == sum(map(len, lines)) <= self._waiting_max, "(1)"
        assert all(lines)
        assert not self._waiting.keys() & self._new.keys()
