"""Who is to receive what, once the rows of a topic that two servers had lie in one stream.

The keeper's rows stay where they are; behind them come the giver's, but for its *twins*: puts that were tried at both,
and are there already. A subscription is to receive what was put to either server after it was made at either, and what
it has not received yet. Rows lie in the order of their append times, so that is a suffix of each server's rows, but for
what was received and for twins: a floor and a few ranges.

Times of the two servers are compared within the bounds of the difference between their clocks; what lies within them is
given, so that nothing is lost.
Source: seed 000, section 4 (which gives up here); docs/decisions/0012.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from cursus.streams.exchange import CursorMove, Place

from .transfer import Bounds, Standing


@dataclass(slots=True)
class Merged:
    """What is known of both servers' rows."""

    keeper_incarnation: bytes
    giver_incarnation: bytes
    head: int = 0
    """The keeper's newest sequence."""
    giver_head: int = 0
    offset_us: Bounds = (0, 0)
    """By how much, at least and at most, the keeper's clock is before the giver's."""
    times_us: list[int] = field(default_factory=list)
    """When the keeper's records were appended, ascending."""
    firsts: list[int] = field(default_factory=list)
    """The first sequence of each of them."""
    sequences: list[int] = field(default_factory=list)
    """What of the giver's rows lies in the stage, ascending."""
    row_times_us: list[int] = field(default_factory=list)
    """When the giver appended each, ascending."""
    twins: dict[int, int] = field(default_factory=dict)
    """The giver's sequences that lie at the keeper's already, and where."""

    def first_since(self, at_us: int) -> int:
        """The keeper's first row that was appended at or after a time of its clock."""
        index = bisect_left(self.times_us, at_us)
        return self.firsts[index] if index < len(self.firsts) else self.head + 1

    def place_of(self, sequence: int) -> Place:
        """Where a row of the giver's lies; `Place()` where it lies nowhere."""
        if sequence in self.twins:
            return Place(self.twins[sequence])
        index = bisect_left(self.sequences, sequence)
        is_there = index < len(self.sequences) and self.sequences[index] == sequence
        return Place(row=index) if is_there else Place()


class Side(NamedTuple):
    """The subscriptions of one server: where each stands, and when those that are gone were removed."""

    standings: Mapping[str, Standing]
    left_us: Mapping[str, int] = {}


def moves(stage: int, name: str, keeper: Side, giver: Side, merged: Merged) -> list[CursorMove]:
    """Where each subscription is to stand: those of the keeper, of the giver, and of both.

    Who left one server after it had subscribed at the other has left both.
    """
    low, high = merged.offset_us
    given = {
        who: standing
        for who, standing in giver.standings.items()
        if keeper.left_us.get(who, 0) <= standing.opened_us + high
    }
    gone = {
        who: giver.left_us[who] + low
        for who, standing in keeper.standings.items()
        if who in giver.left_us and giver.left_us[who] + low > standing.opened_us
    }
    kept = {who: standing for who, standing in keeper.standings.items() if who not in gone}
    found = [_of_keeper(stage, name, who, kept[who], merged) for who in kept if who not in given]
    found += [_of_giver(stage, name, who, given[who], merged) for who in given if who not in kept]
    found += [_of_both(stage, name, who, kept[who], given[who], merged) for who in kept if who in given]
    removed = [CursorMove(stage, who, name, at_us, 1, 0, 1, is_removed=True) for who, at_us in gone.items()]
    return [move for move in found if move is not None] + [move for move in removed if move.subscriber not in given]


def _of_keeper(stage: int, name: str, who: str, kept: Standing, merged: Merged) -> CursorMove | None:
    """Of the giver's rows, those that were put before it subscribed are none of its own."""
    first = bisect_left(merged.row_times_us, kept.opened_us - merged.offset_us[1])
    if not first:
        return None
    origins = tuple((incarnation, following, Place(place)) for incarnation, following, place in kept.origins)
    return CursorMove(
        stage, who, name, kept.opened_us, kept.start, kept.floor, kept.floor + 1, (), ((0, first - 1),), origins
    )


def _of_giver(stage: int, name: str, who: str, given: Standing, merged: Merged) -> CursorMove:
    """Of the keeper's rows, those that were put since it subscribed are its own too."""
    opened_us = given.opened_us + merged.offset_us[0]
    done = ((0, given.floor), *given.settled)
    floor, settled = _among_keepers(merged.first_since(opened_us), merged, lambda sequence: not _is_in(sequence, done))
    return CursorMove(
        stage, who, name, opened_us, floor + 1, floor, floor + 1, settled, _rows(done, merged), _origins(given, merged)
    )


def _of_both(stage: int, name: str, who: str, kept: Standing, given: Standing, merged: Merged) -> CursorMove:
    """What it received from either it has; it subscribed when it did so first."""
    given_us = given.opened_us + merged.offset_us[0]
    received = tuple((max(a, given.start), b) for a, b in ((0, given.floor), *given.settled) if b >= given.start)

    def is_wanted(sequence: int) -> bool | None:
        return None if sequence < given.start else not _is_in(sequence, received)

    since = min(kept.start, merged.first_since(given_us))
    floor, settled = _among_keepers(since, merged, is_wanted)
    first = bisect_left(merged.row_times_us, kept.opened_us - merged.offset_us[1])
    first = min(first, bisect_left(merged.sequences, given.start))
    rows = (*(((0, first - 1),) if first else ()), *_rows(received, merged))
    # A client may still name the message that it was given last: the cursor may stand before it now.
    own = (merged.keeper_incarnation, kept.floor + 1, Place(kept.floor + 1 if kept.floor < merged.head else 0))
    origins = {own[0]: own, **{origin[0]: origin for origin in _origins(given, merged)}}
    for incarnation, following, place in kept.origins:
        origins.setdefault(incarnation, (incarnation, following, Place(place)))
    opened_us = min(kept.opened_us, given_us)
    return CursorMove(stage, who, name, opened_us, floor + 1, floor, kept.start, settled, rows, tuple(origins.values()))


def _among_keepers(
    since: int, merged: Merged, is_wanted: Callable[[int], bool | None]
) -> tuple[int, tuple[Bounds, ...]]:
    """The floor, and what is settled above it, where the keeper's rows from `since` on are wanted, and twins as the
    giver's sequence is: True, False, or None for as any other row.
    """
    twins = {place: is_wanted(sequence) for sequence, place in merged.twins.items()}
    before = sorted(place for place, wanted in twins.items() if wanted and place < since)
    settled = [(place, place) for place, wanted in twins.items() if wanted is False and place >= since]
    first = at = min([since, *before])
    for place in (*before, since):
        if at < place:
            settled.append((at, place - 1))
        at = place + 1
    return first - 1, tuple(sorted(settled))


def _rows(ranges: Iterable[Bounds], merged: Merged) -> tuple[Bounds, ...]:
    """The rows of the stage that are in these ranges of the giver's sequences."""
    q = merged.sequences
    found = ((bisect_left(q, first), bisect_right(q, last) - 1) for first, last in ranges)
    return tuple((first, last) for first, last in found if first <= last)


def _origins(given: Standing, merged: Merged) -> tuple[tuple[bytes, int, Place], ...]:
    """What the ids mean that the giver gave: all before the next one that it would hand out was received."""
    following = min(
        _next_in(merged.sequences, given, merged.giver_head + 1),
        _next_in(sorted(merged.twins), given, merged.giver_head + 1),
    )
    own = (merged.giver_incarnation, following, merged.place_of(following))
    return (own, *((incarnation, after, merged.place_of(place)) for incarnation, after, place in given.origins))


def _next_in(sequences: Sequence[int], given: Standing, otherwise: int) -> int:
    """The first of these sequences that is unsettled."""
    at = given.floor + 1
    for first, last in (*given.settled, (otherwise, otherwise)):
        index = bisect_left(sequences, at)
        if index < len(sequences) and sequences[index] < first:
            return sequences[index]
        at = max(at, last + 1)
    return otherwise


def _is_in(sequence: int, ranges: Iterable[Bounds]) -> bool:
    return any(first <= sequence <= last for first, last in ranges)
