"""Whose check is next: addresses take turns, so that one which asks for much keeps no other waiting.

    asked ──► waits, behind its own address's ── the address's turn ──► being checked ──► answered
                 └── too many wait: the newest of the address with the most ──► told to come again

A check of a token costs some 10 ms of a processor on purpose, a handshake one or more for a private key's operation,
and whoever has a connection may ask for one.

There are four lines, which take turns while somebody waits in them:

begun    What continues a check, by address: every second turn. There is never more of it than was checked before, and
         what was spent on that is not to be lost; but it may be saved up, to come all at once.
proven   Addresses from which somebody has proved who he is, not long ago. They go round.
new      Addresses that are new, the newest first. Where more come than can be checked, the oldest has mostly waited in
         vain by then, for it is late, or has lost its place; the newest is there still, so as many are let in as can be
         checked.
seen     Addresses that were checked not long ago, and from which nobody has proved anything. They go round.
Source: round robin by origin, as places are shared out (veredus.node.admission); the newest first under overload, as in
Maurer, "Fail at Scale" (2015).
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TypeAlias

from .admission import origin_of

REMEMBERED_MAX = 4_096
"""So many addresses are remembered that were checked, and so many from which somebody has proved who he is."""
Lines: TypeAlias = OrderedDict[str, dict[int, None]]
"""Keys that wait, by address; the last address has the next turn."""


class Lookups:
    """Owns who waits for a check, by address, and who is being checked; by keys of the caller's.

    Invariants
        (1) At most `running_max` are checked at once, and at most `waiting_max` wait.
        (2) Between two checks of one address in a line that goes round, each other address that waits there has one.
        (3) Who came first from an address is checked first, within a line.
        (4) `begun` has every second turn while somebody waits in it, and each other line every third of the rest.
    """

    __slots__ = (
        "_addresses",
        "_beginning",
        "_begun",
        "_is_begun_turn",
        "_new",
        "_proven",
        "_proven_addresses",
        "_running",
        "_seen",
        "_seen_addresses",
        "_turn",
        "_waiting_max",
        "running_max",
    )

    def __init__(self, running_max: int, waiting_max: int) -> None:
        """Nobody has asked."""
        self.running_max = running_max
        self._waiting_max = waiting_max
        self._running: set[int] = set()
        self._addresses: dict[int, tuple[str, Lines]] = {}
        """Where each comes from who waits, and in which line."""
        self._begun: Lines = OrderedDict()
        self._proven: Lines = OrderedDict()
        self._new: Lines = OrderedDict()
        self._seen: Lines = OrderedDict()
        self._beginning = self._proven, self._new, self._seen
        self._is_begun_turn, self._turn = True, 0
        """Whose turn it is: of `begun`, or else of these."""
        self._proven_addresses: OrderedDict[str, None] = OrderedDict()
        self._seen_addresses: OrderedDict[str, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._addresses)

    def prove(self, address: str) -> None:
        """Somebody at this address has proved who he is."""
        _remember(self._proven_addresses, origin_of(address))

    def ask(self, key: int, address: str, is_begun: bool = False) -> int | None:
        """Let `key` wait for its check, or for what continues one; the key, perhaps its own, of who has to make room
        for that.
        """
        origin = origin_of(address)
        lines = self._begun if is_begun else self._line_of(origin)
        if origin not in lines:
            lines[origin] = {}
            if lines is self._proven or lines is self._seen:
                # Behind the others: it has had a turn before.
                lines.move_to_end(origin, last=False)
        lines[origin][key] = None
        self._addresses[key] = origin, lines
        return None if len(self._addresses) <= self._waiting_max else self._refuse()

    def _line_of(self, origin: str) -> Lines:
        if origin in self._proven_addresses:
            return self._proven
        return self._seen if origin in self._seen_addresses and origin not in self._new else self._new

    def _refuse(self) -> int:
        """Who makes room: of addresses that have the most, the one whose turn is the last."""
        every = self._waiting()
        most = max(map(len, every))
        refused = next(reversed(next(keys for keys in every if len(keys) == most)))
        self.forget(refused)
        return refused

    def _waiting(self) -> list[dict[int, None]]:
        """Who waits, by address and line; whose turn is the last of a line comes first."""
        return [keys for lines in (self._seen, self._new, self._proven, self._begun) for keys in lines.values()]

    def next(self) -> int | None:
        """Who is checked now; None where nobody waits, or enough are being checked."""
        if not self._addresses or len(self._running) >= self.running_max:
            return None
        lines = self._line_of_turn()
        origin = next(reversed(lines))
        keys = lines.pop(origin)
        key = next(iter(keys))
        _remember(self._seen_addresses, origin)
        if lines is self._new:
            lines = self._seen
            for other in keys:
                self._addresses[other] = origin, lines
        # Behind the others: the turn goes round.
        lines[origin] = keys
        lines.move_to_end(origin, last=False)
        self.forget(key)
        self._running.add(key)
        return key

    def _line_of_turn(self) -> Lines:
        """The line of whom is next."""
        is_begun = bool(self._begun) and (self._is_begun_turn or not any(self._beginning))
        self._is_begun_turn = not is_begun
        if is_begun:
            return self._begun
        while not self._beginning[self._turn]:
            self._turn = (self._turn + 1) % len(self._beginning)
        lines = self._beginning[self._turn]
        self._turn = (self._turn + 1) % len(self._beginning)
        return lines

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
        lines = self._waiting()
        assert len(self._addresses) == sum(map(len, lines)) <= self._waiting_max, "(1)"
        assert all(lines)
        assert not self._seen.keys() & self._new.keys()


def _remember(addresses: OrderedDict[str, None], origin: str) -> None:
    addresses[origin] = None
    addresses.move_to_end(origin)
    if len(addresses) > REMEMBERED_MAX:
        addresses.popitem(last=False)
