"""An order in which sequences are pushed that is not their own: legs, one behind the other, each of which ascends.

    weave    (20, 22) (8, 12) (23, 25) (13, 19)        of the sequences 8 to 25
    way      of a cursor that has done with all up to 5:  (6, 7) (20, 22) (8, 12) (23, 25) (13, 19), and 26 ...

A commit may say in which order its rows, and what is there before them, go to the subscribers who ask for that; nobody
else is concerned. Nothing moves in the journal, and a sequence stays what it is.
Source: docs/decisions/0018.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from veredus.delivery.settlement import Range

from .ranges import between, joined


def completed(legs: Iterable[Range], last: int) -> tuple[Range, ...]:
    """The legs, and behind them what they leave out between the least sequence that they name and `last`."""
    named = tuple(legs)
    if not named:
        return ()
    first = min(leg[0] for leg in named)
    return (*named, *between(first, last, joined(named)))


def cut_from(weave: Sequence[Range], sequence: int) -> tuple[Range, ...]:
    """What is left of a weave where nothing lies from `sequence` on."""
    return tuple((first, min(last, sequence - 1)) for first, last in weave if first < sequence)


def way_of(weave: Sequence[Range], floor: int) -> tuple[Range, ...]:
    """The legs of a cursor that has done with all up to `floor`; () where it goes by the sequences alone."""
    if not weave or floor >= max(last for _, last in weave):
        return ()
    first = min(leg[0] for leg in weave)
    before = ((floor + 1, first - 1),) if floor + 1 < first else ()
    return (*before, *((max(a, floor + 1), b) for a, b in weave if b > floor))


def next_of(weave: Sequence[Range], floor: int, settled: Iterable[Range], head: int) -> Range:
    """The first sequence that a cursor is to be pushed, and up to where nothing but what follows it, or is done with,
    lies from there on, however many legs that takes; just behind the head for none.
    """
    done = joined(((0, floor), *settled))
    way = way_of(weave, floor)
    behind = max((last for _, last in way), default=floor) + 1
    found, end = 0, 0
    for first, last in (*way, (behind, head)):
        undone = between(first, last, done)
        if not undone:
            continue
        following = undone[0][0]
        if not found:
            found = following
        elif following <= end or between(end + 1, following - 1, done):
            break
        end = last
    return (found, end) if found else (head + 1, head + 1)
