"""How often each of what is unsettled was tried: ascending ranges of sequences that share a count.

Invariants
    (1) The ranges are ascending and disjoint, and their counts are above 0; two that touch have different counts.
    (2) What no fact has said is among what has changed, and a fact that the journal did not take said nothing.
    (3) What was given back ascends.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from veredus.delivery.settlement import Range

from .ranges import common, is_in

_FEW = 16
"""So many ranges are dropped one by one."""
Tried: TypeAlias = tuple[int, int, int]
"""The first and the last sequence of a range, both inclusive, and how often each of them was tried."""
Retold: TypeAlias = tuple[int, int, int, bool]
"""The same, and whether the application gave them back and has not taken them again."""


class Tries:
    """Owns the attempts at the publications of one subscription, those that have ended."""

    __slots__ = ("_changed", "_counts", "_firsts", "_lasts", "returned")

    def __init__(self, known: Iterable[Tried] = (), returned: Iterable[int] = ()) -> None:
        """What a fact says, in ascending order."""
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        self._counts: list[int] = []
        self.returned = sorted(returned)
        """What was given back to be tried again, and was not taken again: no attempt at it is under way."""
        self._changed: dict[int, None] = {}
        for tried in known:
            self.set(*tried)

    def __len__(self) -> int:
        return len(self._firsts)

    def __iter__(self) -> Iterator[Tried]:
        return zip(self._firsts, self._lasts, self._counts, strict=True)

    @property
    def last(self) -> int:
        """The last sequence that was tried; 0 for none."""
        return self._lasts[-1] if self._lasts else 0

    def at(self, sequence: int) -> int:
        """How often this was tried."""
        index = bisect_left(self._lasts, sequence)
        return self._counts[index] if index < len(self._firsts) and self._firsts[index] <= sequence else 0

    @property
    def size(self) -> int:
        """How much is kept at most of the one or the other: ranges, and what was given back."""
        return max(len(self._firsts), len(self.returned))

    @property
    def changed_count(self) -> int:
        """Of how many publications the next fact speaks."""
        return len(self._changed)

    def end(self, sequence: int) -> int:
        """The attempt at this has ended, if that was not said already; how often it was tried."""
        if not self.is_returned(sequence):
            self.set(sequence, sequence, self.at(sequence) + 1)
            insort(self.returned, sequence)
        self._changed[sequence] = None
        return self.at(sequence)

    def begin(self, sequence: int) -> None:
        """Another attempt at this is under way."""
        self._take_back(sequence, sequence)
        self._changed[sequence] = None

    def set(self, first: int, last: int, count: int) -> None:
        """Each of these was tried so often; 0 for never."""
        firsts, lasts, counts = self._firsts, self._lasts, self._counts
        begin, end = bisect_left(lasts, first - 1), bisect_right(firsts, last + 1)
        if first > last:
            return
        parts = [(first, last, count)] if count else []
        if begin < end and firsts[begin] < first:
            parts.insert(0, (firsts[begin], first - 1, counts[begin]))
        if begin < end and lasts[end - 1] > last:
            parts.append((last + 1, lasts[end - 1], counts[end - 1]))
        found: list[Tried] = []
        for a, b, tried in parts:
            if found and found[-1][1:] == (a - 1, tried):
                found[-1] = (found[-1][0], b, tried)
            else:
                found.append((a, b, tried))
        firsts[begin:end] = [a for a, _, _ in found]
        lasts[begin:end] = [b for _, b, _ in found]
        counts[begin:end] = [tried for _, _, tried in found]

    def drop(self, first: int, last: int) -> None:
        """Nobody asks for these any more."""
        self.set(first, last, 0)
        self._take_back(first, last)

    def drop_all(self, ranges: Sequence[Range]) -> None:
        """Nor for these, which ascend and may be many: what is kept is gone through once for all of them."""
        if len(ranges) <= _FEW:
            for bounds in ranges:
                self.drop(*bounds)
            return
        for bounds in common([(first, last) for first, last, _ in self], ranges):
            self.set(*bounds, 0)
        self.returned = [sequence for sequence in self.returned if not is_in(sequence, ranges)]

    def is_returned(self, sequence: int) -> bool:
        """Whether the application gave this back, and has not taken it again."""
        index = bisect_left(self.returned, sequence)
        return index < len(self.returned) and self.returned[index] == sequence

    def _take_back(self, first: int, last: int) -> None:
        del self.returned[bisect_left(self.returned, first) : bisect_right(self.returned, last)]

    # ── facts ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def tell(self, *, is_limited: bool) -> tuple[Retold, ...]:
        """What has changed since this was told last, for a fact; without a limit nobody says what is taken again."""
        changed, self._changed = sorted(self._changed), {}
        found: list[Retold] = []
        for sequence in changed:
            first, count, is_returned = sequence, self.at(sequence), is_limited and self.is_returned(sequence)
            if found and found[-1][1:] == (sequence - 1, count, is_returned):
                first = found.pop()[0]
            if count:
                found.append((first, sequence, count, is_returned))
        return tuple(found)

    def tell_again(self, told: Iterable[Retold]) -> None:
        """The journal did not take this."""
        for first, last, _, _ in told:
            self._changed.update(dict.fromkeys(range(first, last + 1)))

    def take(self, told: Iterable[Retold]) -> None:
        """A fact says this."""
        for first, last, count, is_returned in told:
            self.drop(first, last)
            self.set(first, last, count)
            if is_returned:
                place = bisect_left(self.returned, first)
                self.returned[place:place] = range(first, last + 1)

    # ── ranges ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def within(self, first: int, last: int) -> list[Tried]:
        """What was tried of `first` to `last`."""
        begin, end = bisect_left(self._lasts, first), bisect_right(self._firsts, last)
        return [
            (max(self._firsts[index], first), min(self._lasts[index], last), self._counts[index])
            for index in range(begin, end)
        ]

    def and_one_more(self, first: int, last: int) -> list[Tried]:
        """The attempts at `first` to `last`, as if each was tried once more."""
        counted: list[Tried] = []
        place = first
        for a, b, count in self.within(first, last):
            if a > place:
                counted.append((place, a - 1, 1))
            counted.append((a, b, count + 1))
            place = b + 1
        if place <= last:
            counted.append((place, last, 1))
        return counted

    def check(self) -> None:
        """Repeat the invariants."""
        assert self.returned == sorted(dict.fromkeys(self.returned)), "(3)"
        before = (0, 0, 0)
        for first, last, count in self:
            assert before[1] < first <= last, "(1)"
            assert count > 0, "(1)"
            assert before[1] + 1 < first or before[2] != count, "(1)"
            before = first, last, count
