"""How often each of what is unsettled was tried: ascending ranges of sequences that share a count.

Invariants
    (1) The ranges are ascending and disjoint, and their counts are above 0; two that touch have different counts.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import TypeAlias

Tried: TypeAlias = tuple[int, int, int]
"""The first and the last sequence of a range, both inclusive, and how often each of them was tried."""


class Tries:
    """Owns the attempts at the publications of one subscription, those that have ended."""

    __slots__ = ("_counts", "_firsts", "_lasts")

    def __init__(self, known: Iterable[Tried] = ()) -> None:
        """What a fact says, in ascending order."""
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        self._counts: list[int] = []
        for first, last, count in known:
            self._put(first, last, [(first, last, count)])

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

    def add(self, sequence: int) -> None:
        """One more attempt at this has ended."""
        self._put(sequence, sequence, [(sequence, sequence, self.at(sequence) + 1)])

    def drop(self, first: int, last: int) -> None:
        """Nobody asks for these any more."""
        self._put(first, last, [])

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

    def _put(self, first: int, last: int, parts: list[Tried]) -> None:
        """Let `parts` be what is known of `first` to `last`."""
        firsts, lasts, counts = self._firsts, self._lasts, self._counts
        begin, end = bisect_left(lasts, first), bisect_right(firsts, last)
        if begin < end and firsts[begin] < first:
            parts.insert(0, (firsts[begin], first - 1, counts[begin]))
        if begin < end and lasts[end - 1] > last:
            parts.append((last + 1, lasts[end - 1], counts[end - 1]))
        if parts and begin and (lasts[begin - 1] + 1, counts[begin - 1]) == (parts[0][0], parts[0][2]):
            begin -= 1
            parts[0] = (firsts[begin], *parts[0][1:])
        if parts and end < len(firsts) and (firsts[end], counts[end]) == (parts[-1][1] + 1, parts[-1][2]):
            parts[-1] = (parts[-1][0], lasts[end], counts[end])
            end += 1
        firsts[begin:end] = [a for a, _, _ in parts]
        lasts[begin:end] = [b for _, b, _ in parts]
        counts[begin:end] = [count for _, _, count in parts]

    def check(self) -> None:
        """Repeat the invariants."""
        before = (0, 0, 0)
        for first, last, count in self:
            assert before[1] < first <= last, "(1)"
            assert count > 0, "(1)"
            assert before[1] + 1 < first or before[2] != count, "(1)"
            before = first, last, count
