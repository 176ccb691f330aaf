"""Whose check is next: addresses take turns, so that one which asks for much keeps no other waiting.

    asked ──► waits, behind its own address's ── the address's turn ──► being checked ──► answered
                 └── too many wait: the newest of the address with the most ──► told to come again

A check of a token costs some 10 ms of a processor on purpose, a handshake one or more for a private key's operation,
and whoever has a connection may ask for one.
Source: round robin by origin, as places are shared out (veredus.node.admission).
"""

from __future__ import annotations

from .admission import origin_of


class Lookups:
    """Owns who waits for a check, by address, and who is being checked; by keys of the caller's.

    Invariants
        (1) At most `running_max` are checked at once, and at most `waiting_max` wait.
        (2) Between two checks of one address, each other address that waits has one.
        (3) Who came first from an address is checked first.
    """

    __slots__ = ("_addresses", "_running", "_waiting", "_waiting_max", "running_max")

    def __init__(self, running_max: int, waiting_max: int) -> None:
        """Nobody has asked."""
        self.running_max = running_max
        self._waiting_max = waiting_max
        self._running: set[int] = set()
        self._addresses: dict[int, str] = {}
        """Where each comes from who waits."""
        self._waiting: dict[str, dict[int, None]] = {}
        """Who waits, by address, in the order of the addresses' turns."""

    def __len__(self) -> int:
        return len(self._addresses)

    def ask(self, key: int, address: str) -> int | None:
        """Let `key` wait for its check; the key, perhaps its own, of who has to make room for that."""
        origin = origin_of(address)
        self._addresses[key] = origin
        self._waiting.setdefault(origin, {})[key] = None
        if len(self._addresses) <= self._waiting_max:
            return None
        most = max(map(len, self._waiting.values()))
        # Among equals who came last: the others were there before.
        fullest = next(origin for origin in reversed(self._waiting) if len(self._waiting[origin]) == most)
        refused = next(reversed(self._waiting[fullest]))
        self.forget(refused)
        return refused

    def next(self) -> int | None:
        """Who is checked now; None where nobody waits, or enough are being checked."""
        if not self._waiting or len(self._running) >= self.running_max:
            return None
        origin, keys = next(iter(self._waiting.items()))
        key = next(iter(keys))
        self.forget(key)
        if keys:
            # Behind the others: the turn goes round.
            self._waiting[origin] = self._waiting.pop(origin)
        self._running.add(key)
        return key

    def finish(self, key: int) -> None:
        """The check of `key` is over."""
        self._running.discard(key)

    def forget(self, key: int) -> None:
        """`key` waits no more; nothing changes for one that does not wait."""
        origin = self._addresses.pop(key, None)
        if origin is not None:
            keys = self._waiting[origin]
            del keys[key]
            if not keys:
                del self._waiting[origin]

    def check(self) -> None:
        """Raise `AssertionError` where an invariant does not hold."""
        assert len(self._running) <= self.running_max, "(1)"
        assert len(self._addresses) == sum(map(len, self._waiting.values())) <= self._waiting_max, "(1)"
        assert all(self._waiting.values())
