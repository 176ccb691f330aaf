"""Whose check is next: addresses take turns, so that one which asks for much keeps no other waiting.

    asked ──► waits, behind its own address's ── the address's turn ──► being checked ──► answered
                 └── too many wait: the newest of the address with the most ──► told to come again

A check of a token costs some 10 ms of a processor on purpose, a handshake one or more for a private key's operation,
and whoever has a connection may ask for one.

Addresses that were checked not long ago go round. Those that are new have every second turn, the newest first: where
more come than can be checked, the oldest has mostly waited in vain by then, for it is late, or has lost its place. The
newest is there still, so as many are let in as can be checked. What continues a check goes before both: there is never
more of it than was checked before, and what was spent on that is not lost.
Source: round robin by origin, as places are shared out (veredus.node.admission); the newest first under overload, as in
Maurer, "Fail at Scale" (2015).
"""

from __future__ import annotations

from collections import OrderedDict

from .admission import origin_of

KNOWN_MAX = 4_096
"""Of so many addresses it is remembered that they were checked."""


class Lookups:
    """Owns who waits for a check, by address, and who is being checked; by keys of the caller's.

    Invariants
        (1) At most `running_max` are checked at once, and at most `waiting_max` wait.
        (2) Between two checks of one address that is known, each other known address that waits has one.
        (3) Who came first from an address is checked first, but for what continues a check.
        (4) Where both wait, new and known addresses have every second turn.
    """

    __slots__ = (
        "_addresses",
        "_begun",
        "_is_news_turn",
        "_known",
        "_new",
        "_running",
        "_waiting",
        "_waiting_max",
        "running_max",
    )

    def __init__(self, running_max: int, waiting_max: int) -> None:
        """Nobody has asked."""
        self.running_max = running_max
        self._waiting_max = waiting_max
        self._running: set[int] = set()
        self._addresses: dict[int, str] = {}
        """Where each comes from who waits."""
        self._begun: dict[int, None] = {}
        """Who waits to continue a check."""
        self._waiting: dict[str, dict[int, None]] = {}
        """Who waits from known addresses, by address, in the order of the addresses' turns."""
        self._new: dict[str, dict[int, None]] = {}
        """Who waits from new addresses, by address; the last has the first turn."""
        self._known: OrderedDict[str, None] = OrderedDict()
        """Addresses that were checked, the last of them last."""
        self._is_news_turn = True

    def __len__(self) -> int:
        return len(self._addresses)

    def ask(self, key: int, address: str, is_begun: bool = False) -> int | None:
        """Let `key` wait for its check, or for what continues one; the key, perhaps its own, of who has to make room
        for that.
        """
        origin = origin_of(address)
        self._addresses[key] = origin
        if is_begun:
            self._begun[key] = None
        else:
            self._lines_of(origin).setdefault(origin, {})[key] = None
        return None if len(self._addresses) <= self._waiting_max else self._refuse()

    def _lines_of(self, origin: str) -> dict[str, dict[int, None]]:
        is_known = origin in self._waiting or (origin not in self._new and origin in self._known)
        return self._waiting if is_known else self._new

    def _refuse(self) -> int:
        """Who makes room: of addresses that have the most, the one whose turn is the last."""
        by_turn = [(lines[origin], origin) for lines in (self._new, self._waiting) for origin in lines]
        if not by_turn:
            refused = next(reversed(self._begun))
        else:
            most = max(len(keys) for keys, _ in by_turn)
            new_count = len(self._new)
            latest = [*by_turn[:new_count], *reversed(by_turn[new_count:])]
            refused = next(reversed(next(keys for keys, _ in latest if len(keys) == most)))
        self.forget(refused)
        return refused

    def next(self) -> int | None:
        """Who is checked now; None where nobody waits, or enough are being checked."""
        if not self._addresses or len(self._running) >= self.running_max:
            return None
        key = next(iter(self._begun)) if self._begun else self._next_of_addresses()
        self.forget(key)
        self._running.add(key)
        return key

    def _next_of_addresses(self) -> int:
        is_new = bool(self._new) and (self._is_news_turn or not self._waiting)
        self._is_news_turn = not is_new
        lines = self._new if is_new else self._waiting
        origin = next(reversed(lines)) if is_new else next(iter(lines))
        self._known[origin] = None
        self._known.move_to_end(origin)
        if len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)
        # Behind the others: the turn goes round.
        keys = self._waiting[origin] = lines.pop(origin)
        return next(iter(keys))

    def finish(self, key: int) -> None:
        """The check of `key` is over."""
        self._running.discard(key)

    def forget(self, key: int) -> None:
        """`key` waits no more; nothing changes for one that does not wait."""
        origin = self._addresses.pop(key, None)
        if origin is None or key in self._begun:
            self._begun.pop(key, None)
            return
        lines = self._waiting if origin in self._waiting else self._new
        keys = lines[origin]
        del keys[key]
        if not keys:
            del lines[origin]

    def check(self) -> None:
        """Raise `AssertionError` where an invariant does not hold."""
        assert len(self._running) <= self.running_max, "(1)"
        lines = [*self._waiting.values(), *self._new.values()]
        assert len(self._addresses) == sum(map(len, lines)) + len(self._begun) <= self._waiting_max, "(1)"
        assert all(lines)
        assert not self._waiting.keys() & self._new.keys()
