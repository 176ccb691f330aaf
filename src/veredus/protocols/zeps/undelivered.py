"""The memory of what was pushed to clients of version 1 and waits for their credit, over all links of a node.

    pushed ──► waits ── credit, and room on the link ──► delivered
                 └── the sum above `size_max`: let go, who has waited longest first ── credit ──► pushed again

Whoever has credit, and reads, keeps nothing waiting: only those that take nothing are let go.
Source: docs/internals/DESIGN.md, "Bounds".
"""

from __future__ import annotations

from typing import Protocol

from .payloads import Payloads


class Holder(Protocol):
    """For whom something may wait."""

    @property
    def waiting_size(self) -> int:
        """How many bytes of memory wait here for credit."""
        ...

    def let_go(self) -> None:
        """Hold nothing of it any more: it is pushed again when it can be delivered."""
        ...


class Undelivered:
    """Owns the sum of what waits for all."""

    __slots__ = ("_holders", "_size_max", "payloads", "size")

    def __init__(self, size_max: int = 256 << 20) -> None:
        """Nothing waits; of all together `size_max` bytes may."""
        self._size_max = size_max
        self._holders: dict[Holder, int] = {}
        """What waits for each; for whom that has changed last stands last."""
        self.size = 0
        self.payloads = Payloads()
        """What was decompressed for one of them, for all; it counts for each."""

    def count(self, holder: Holder) -> None:
        """What waits for this one may have changed; where it is too much for all, others are let go, and it last."""
        size, known = holder.waiting_size, self._holders.get(holder, 0)
        if size == known:
            return
        self._holders.pop(holder, None)
        self.size += size - known
        if size:
            self._holders[holder] = size
        while self.size > self._size_max:
            first = next(iter(self._holders))
            self.size -= self._holders.pop(first)
            first.let_go()

    def check(self) -> None:
        """Raise `AssertionError` where the sum is not that of what waits, or is too much."""
        assert self.size == sum(holder.waiting_size for holder in self._holders)
        assert self.size <= self._size_max
