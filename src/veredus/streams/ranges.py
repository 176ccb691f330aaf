"""Sets of sequences as ranges: ascending, and no two of them overlap, unless something else is said."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from operator import itemgetter

from veredus.delivery.settlement import Range

FEW = 64
"""So many ranges find their places one by one."""


def cursor_of(floor: int, settled: Iterable[Range]) -> tuple[int, tuple[Range, ...]]:
    """The floor, and the ranges above it, of a cursor that has done with all up to `floor` and with `settled`."""
    above = [bounds for bounds in settled if bounds[1] > floor]
    if not above:
        return floor, ()
    ranges = joined(((0, floor), *above))
    return ranges[0][1], ranges[1:]


def raised(floor: int, ranges: tuple[Range, ...]) -> tuple[int, tuple[Range, ...]]:
    """As `cursor_of`, of ranges that ascend, lie above the floor and do not touch: only the first may adjoin it."""
    if ranges and ranges[0][0] == floor + 1:
        return ranges[0][1], ranges[1:]
    return floor, ranges


def joined(ranges: Iterable[Range]) -> tuple[Range, ...]:
    """All that is in any of these ranges, which may lie in any order, as ranges that do not even touch."""
    found: list[Range] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(last, found[-1][1]))
        else:
            found.append((first, last))
    return tuple(found)


def with_more(ranges: tuple[Range, ...], more: Sequence[Range]) -> tuple[Range, ...]:
    """As `joined`, of these, which are joined already, and some more: where those are few, the others are copied and
    not looked at.
    """
    if len(more) > FEW:
        return joined((*ranges, *more))
    found = list(ranges)
    for first, last in more:
        begin = bisect_left(found, first - 1, key=itemgetter(1))
        end = bisect_right(found, last + 1, key=itemgetter(0))
        if begin < end:
            first, last = min(first, found[begin][0]), max(last, found[end - 1][1])
        found[begin:end] = [(first, last)]
    return tuple(found)


def is_in(sequence: int, ranges: Sequence[Range]) -> bool:
    """Whether a sequence is in one of the ranges."""
    index = bisect_right(ranges, sequence, key=itemgetter(0)) - 1
    return index >= 0 and sequence <= ranges[index][1]


def touched(ranges: tuple[Range, ...], by: Sequence[Range]) -> tuple[Range, ...]:
    """Those of the ranges in which something of others lies, which ascend too; where these are many, all of them."""
    if len(by) > FEW:
        return ranges
    found: dict[Range, None] = {}
    for first, last in by:
        begin = bisect_left(ranges, first, key=itemgetter(1))
        end = bisect_right(ranges, last, key=itemgetter(0))
        found.update(dict.fromkeys(ranges[begin:end]))
    return tuple(found)


def between(first: int, last: int, holes: Iterable[Range]) -> list[Range]:
    """What of `first` to `last` lies outside the ascending `holes`."""
    found: list[Range] = []
    for a, b in holes:
        if a > last:
            break
        if a > first:
            found.append((first, a - 1))
        first = max(first, b + 1)
    if first <= last:
        found.append((first, last))
    return found


def common(some: Sequence[Range], others: Sequence[Range]) -> tuple[Range, ...]:
    """What is in both."""
    found: list[Range] = []
    at = by = 0
    while at < len(some) and by < len(others):
        (a, b), (c, d) = some[at], others[by]
        first, last = max(a, c), min(b, d)
        if first <= last:
            found.append((first, last))
        if b < d:
            at += 1
        else:
            by += 1
    return tuple(found)


def without(ranges: Iterable[Range], holes: Sequence[Range]) -> tuple[Range, ...]:
    """What of the ranges is in none of the holes."""
    found: list[Range] = []
    at = 0
    for first, last in ranges:
        while at < len(holes) and holes[at][0] <= last:
            a, b = holes[at]
            if first < a:
                found.append((first, a - 1))
            first = max(first, b + 1)
            if b > last:
                break
            at += 1
        if first <= last:
            found.append((first, last))
    return tuple(found)
