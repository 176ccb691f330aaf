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
