"""The recent end of each stream in memory: what live flow is fed from, within one bound for the whole node.

Invariants
    (1) A tail holds a gapless run of durable records that ends at its stream's durable head, or nothing.
    (2) All tails together take at most `size_max` bytes, with what holds the records; the oldest records of the node go
        first, whoever reads them.
Source: docs/internals/DESIGN.md, "Flow".
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque

from veredus.journal.exchange import READ_SIZE_MIN, PlacedRecord

HELD_SIZE = 540
"""What holds a record takes beside it, in bytes, as measured (CPython 3.11)."""


class TailBudget:
    """Owns the bound that all tails of a node share."""

    __slots__ = ("_order", "count", "size", "size_max")

    def __init__(self, size_max: int) -> None:
        """Let tails hold `size_max` bytes together."""
        self.size_max = size_max
        self.size = 0
        self.count = 0
        self._order: deque[Tail] = deque()

    def grew(self, tail: Tail, size: int) -> None:
        """A record that takes `size` bytes joined `tail`: let the oldest go while there are too many bytes."""
        self._order.append(tail)
        self.size += size
        self.count += 1
        while self.size > self.size_max:
            self._order.popleft().drop_oldest()
        if len(self._order) > 64 + 2 * self.count:
            self._order = deque(tail for tail in self._order if tail.keeps_turn())


class Tail:
    """Owns the newest durable records of one stream, as far as the budget reaches."""

    __slots__ = ("_budget", "_dropped", "_firsts", "_forgotten_count", "_records")

    def __init__(self, budget: TailBudget) -> None:
        """An empty tail that shares `budget`."""
        self._budget = budget
        self._records: list[PlacedRecord] = []
        self._firsts: list[int] = []
        self._dropped = 0
        self._forgotten_count = 0
        """Turns of this tail in the budget's order that belong to records which are gone already."""

    def add(self, record: PlacedRecord) -> None:
        """Take the record behind the newest one."""
        self._records.append(record)
        self._firsts.append(record.first_sequence)
        self._budget.grew(self, len(record.memory) + HELD_SIZE)

    def keeps_turn(self) -> bool:
        """Whether this tail's next turn belongs to a record that is still here; a turn that does not is given up."""
        if self._forgotten_count:
            self._forgotten_count -= 1
            return False
        return True

    def drop_oldest(self) -> None:
        """Let the record go whose turn it is, unless `forget` was there first."""
        if not self.keeps_turn():
            return
        index = self._dropped
        self._budget.size -= len(self._records[index].memory) + HELD_SIZE
        self._budget.count -= 1
        self._records[index] = _GONE
        self._dropped += 1
        if self._dropped > 64 and self._dropped * 2 > len(self._records):
            del self._records[: self._dropped]
            del self._firsts[: self._dropped]
            self._dropped = 0

    def forget(self) -> None:
        """Break the run: what comes next does not follow what is here (a commit's rows came between)."""
        gone = self._records[self._dropped :]
        self._budget.size -= sum(len(record.memory) + HELD_SIZE for record in gone)
        self._budget.count -= len(gone)
        self._forgotten_count += len(gone)
        self._records.clear()
        self._firsts.clear()
        self._dropped = 0

    def read(self, position: int, size_max: int) -> list[PlacedRecord] | None:
        """The records from the one that holds `position` on, about `size_max` bytes, each counted as `READ_SIZE_MIN` at
        least; None when it is not in memory.
        """
        firsts = self._firsts
        index = bisect_right(firsts, position) - 1
        if index < self._dropped:
            return None
        taken: list[PlacedRecord] = []
        size = 0
        for place in range(index, len(self._records)):
            record = self._records[place]
            taken.append(record)
            size += max(len(record.memory), READ_SIZE_MIN)
            if size >= size_max:
                break
        return taken


_GONE = PlacedRecord(0, 0, 0, memoryview(b""))
