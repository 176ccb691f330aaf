"""The ledger of one cursor: what was pushed and is not yet settled.

    floor                                position
      |  settled ....  unsettled  ....  settled  .... |  not yet examined
      1 .. floor   [a, b] ... [c, d] ... [e, f]         position ..

Invariants
    (1) Everything up to `floor` is settled or was rejected by the filter; it is never pushed again.
    (2) The unsettled ranges are ascending, disjoint, above `floor` and below `position`; what lies between them is
        settled or rejected.
    (3) `floor` is just below the first unsettled range, or `position - 1` when there is none.
    (4) Beyond `ranges_max` unsettled ranges nothing is cut; `is_full` asks the flow to wait.
    (5) In an ordered ledger a range may cover rejected sequences: settling always reaches down to the floor there.
Source: docs/internals/DESIGN.md, "Cursors".
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

Range = tuple[int, int]
"""The first and the last of a run of sequences, both inclusive."""


class Ledger:
    """Owns one cursor's floor, its position, and the ranges that wait for settlement."""

    __slots__ = ("_firsts", "_lasts", "_pushed_last", "is_ordered", "position", "ranges_max")

    def __init__(self, floor: int, is_ordered: bool = True, ranges_max: int = 65_536) -> None:
        """A ledger whose first `floor` sequences are settled, and that has pushed nothing yet."""
        self.position = floor + 1
        self.is_ordered = is_ordered
        self._pushed_last = floor
        self.ranges_max = ranges_max
        self._firsts: list[int] = []
        self._lasts: list[int] = []

    def copy(self) -> Ledger:
        """Another one, as this is now."""
        copied = Ledger.__new__(Ledger)
        copied.position, copied._pushed_last = self.position, self._pushed_last
        copied.is_ordered, copied.ranges_max = self.is_ordered, self.ranges_max
        copied._firsts, copied._lasts = self._firsts[:], self._lasts[:]
        return copied

    @property
    def floor(self) -> int:
        """The last sequence below which nothing is wanted any more."""
        return self._firsts[0] - 1 if self._firsts else self.position - 1

    @property
    def unsettled(self) -> tuple[Range, ...]:
        """The ranges that wait for settlement."""
        return tuple(zip(self._firsts, self._lasts, strict=True))

    @property
    def unsettled_count(self) -> int:
        """How many ranges wait for settlement."""
        return len(self._firsts)

    @property
    def settled(self) -> tuple[Range, ...]:
        """The ranges above the floor that are settled or rejected, up to the position."""
        starts = [last + 1 for last in self._lasts]
        ends = [first - 1 for first in self._firsts[1:]] + [self.position - 1]
        return tuple((start, end) for start, end in zip(starts, ends, strict=False) if start <= end)

    @property
    def is_full(self) -> bool:
        """Whether pushing must wait until something is settled."""
        return len(self._firsts) >= self.ranges_max

    def push(self, first: int, last: int) -> None:
        """Sequences `first` to `last` (at or above the position) were pushed; what was passed over before them was
        rejected.
        """
        joins = self._lasts and self._lasts[-1] == (self._pushed_last if self.is_ordered else first - 1)
        if joins:
            self._lasts[-1] = last
        else:
            self._firsts.append(first)
            self._lasts.append(last)
        self.position = last + 1
        self._pushed_last = last

    def pass_to(self, position: int) -> None:
        """Everything below `position` was examined."""
        self.position = max(self.position, position)

    def settle(self, first: int, last: int) -> bool:
        """Sequences `first` to `last` are done with; returns whether they are. Cuts ranges where it must.

        A range is not cut in two when that would leave more than `ranges_max` of them: it stays unsettled as it was.
        """
        firsts, lasts = self._firsts, self._lasts
        begin = bisect_left(lasts, first)
        end = begin
        kept: list[Range] = []
        while end < len(firsts) and firsts[end] <= last:
            if firsts[end] < first:
                kept.append((firsts[end], first - 1))
            if lasts[end] > last:
                kept.append((last + 1, lasts[end]))
            end += 1
        if len(kept) > end - begin and len(firsts) >= self.ranges_max:
            return False
        firsts[begin:end] = [a for a, _ in kept]
        lasts[begin:end] = [b for _, b in kept]
        return True

    def is_unsettled(self, sequence: int) -> bool:
        """Whether this waits for settlement."""
        place = bisect_left(self._lasts, sequence)
        return place < len(self._firsts) and self._firsts[place] <= sequence

    def reopen(self, first: int, last: int) -> None:
        """Sequences below the position that counted as done with are unsettled after all."""
        firsts, lasts = self._firsts, self._lasts
        begin = bisect_left(lasts, first)
        end = bisect_right(firsts, last)
        if begin < end:  # an ordered ledger may have covered some of them all the time
            first, last = min(first, firsts[begin]), max(last, lasts[end - 1])
        firsts[begin:end] = [first]
        lasts[begin:end] = [last]

    def check(self) -> None:
        """Repeat the invariants."""
        below = 0
        for first, last in zip(self._firsts, self._lasts, strict=True):
            assert below < first <= last < self.position, "(2)"
            below = last
        assert self.floor < self.position, "(3)"
        assert self._pushed_last < self.position, "nothing was pushed at or above the position"
