"""One table of named timers and one deadline over them.

Source: quinn-proto's timer table, taken as an idea; a spurious wake-up is harmless.
"""

from __future__ import annotations

from collections.abc import Hashable
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Deadlines(Generic[K]):
    """Owns the due times of named timers; the earliest is the engine's deadline.

    Invariants
        (1) A name has at most one due time: setting it again replaces the earlier.
        (2) `due` returns each expired name once, in order of due time, then of setting.
    """

    __slots__ = ("_due_ns", "_heap", "_ties")

    def __init__(self) -> None:
        self._due_ns: dict[K, tuple[int, int]] = {}
        self._heap: list[tuple[int, int, K]] = []
        self._ties = count()

    def set(self, name: K, at_ns: int) -> None:
        """Wake for `name` at `at_ns`, monotonic nanoseconds."""
        tie = next(self._ties)
        self._due_ns[name] = (at_ns, tie)
        heappush(self._heap, (at_ns, tie, name))
        if len(self._heap) > 64 and len(self._heap) > 4 * len(self._due_ns):
            self._heap = [(at, tie, name) for name, (at, tie) in self._due_ns.items()]
            heapify(self._heap)

    def set_earlier(self, name: K, at_ns: int) -> None:
        """Wake for `name` at `at_ns` at the latest."""
        known = self._due_ns.get(name)
        if known is None or at_ns < known[0]:
            self.set(name, at_ns)

    def clear(self, name: K) -> None:
        """Forget the timer, if it is set."""
        self._due_ns.pop(name, None)

    def is_set(self, name: K) -> bool:
        """Whether the timer will fire."""
        return name in self._due_ns

    def next_ns(self) -> int | None:
        """The earliest due time, or None when no timer is set."""
        while self._heap:
            at_ns, tie, name = self._heap[0]
            if self._due_ns.get(name) == (at_ns, tie):
                return at_ns
            heappop(self._heap)
        return None

    def due(self, now_ns: int, count_max: int | None = None) -> list[K]:
        """Take out and return every name whose time has come, or the first `count_max` of them."""
        names: list[K] = []
        while (at_ns := self.next_ns()) is not None and at_ns <= now_ns and len(names) != count_max:
            _, _, name = heappop(self._heap)
            del self._due_ns[name]
            names.append(name)
        return names
