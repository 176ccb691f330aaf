"""Ranges of sequences that a subscriber settles: first and last, both ends included."""

from __future__ import annotations

from typing import TypeAlias

Range: TypeAlias = tuple[int, int]


def joined(ranges: list[Range]) -> list[Range]:
    """The ranges in order, those that touch made one."""
    made: list[Range] = []
    for first, last in sorted(ranges):
        if made and first <= made[-1][1] + 1:
            made[-1] = (made[-1][0], max(made[-1][1], last))
        else:
            made.append((first, last))
    return made


def without(ranges: list[Range], gone: tuple[Range, ...]) -> list[Range]:
    """The ranges, without those of `gone`, which are whole ranges of an earlier state of them."""
    left: list[Range] = []
    for first, last in ranges:
        for a, b in gone:
            if first <= a and b <= last:
                if first < a:
                    left.append((first, a - 1))
                first = b + 1
        if first <= last:
            left.append((first, last))
    return left
