"""What was gone from a topic at its giver before its keeper could take it: who is owed some of it, and is to be told.

The giver's sequences that neither lie in the stage nor are twins were trimmed there, or damaged. A subscription that
wanted some of them at the giver is told of just these. One of the keeper's, which is owed what was put since it
subscribed, is told unless all of them were appended before: of what is gone nobody knows the time, but append times
never fall, so what lies behind it tells. Who is told too much loses nothing.

What is lost is named in the giver's sequences, by the ids that it had there, over as many merges as it takes.
Source: docs/reference/guarantees.md, "Guarantees of the topic service".
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from veredus.streams.facts import Lost
from veredus.streams.lives import Lives
from veredus.streams.ranges import common, joined, without

from .ids import MessageId, shown_of

if TYPE_CHECKING:
    from .transfer import Bounds


class Arrivals:
    """Up to where everything was appended at one server before a time."""

    def __init__(self) -> None:
        """Nothing is known."""
        self._places = array("q")
        self._times = array("q")

    def note(self, place: int, time_us: int) -> None:
        """What lies here was appended then at this server, and what lies before it no later; places ascend."""
        if self._places and (place <= self._places[-1] or time_us < self._times[-1]):
            return
        if self._times and time_us == self._times[-1]:
            self._places[-1] = place
        else:
            self._places.append(place)
            self._times.append(time_us)

    def before(self, time_us: int) -> int:
        """The last place up to which all is known to have been appended before a time, 0 for none."""
        index = bisect_left(self._times, time_us)
        return self._places[index - 1] if index else 0


def lost_in(
    missing: Sequence[Bounds], received: Sequence[Bounds], unwanted: Sequence[Bounds], before: Sequence[Bounds]
) -> tuple[Bounds, ...]:
    """What of the giver's `missing` sequences a subscription is to be told of: neither what it has received there, nor
    what it did not want there and was put before it subscribed here.
    """
    return without(without(missing, received), common(unwanted, before))


def in_lives(ranges: Iterable[Bounds], lives: Lives) -> Iterator[Lost]:
    """Ranges of a stream by the lives to which they belong."""
    for first, last in ranges:
        while first <= last:
            end = min(last, lives.last_with(first))
            yield Lost(lives.at(first), first, end)
            first = end + 1


def all_of(lost: Iterable[Lost]) -> tuple[Lost, ...]:
    """What was said to be lost once or more often, once, in the order in which its lives came first."""
    by_life: dict[bytes, list[Bounds]] = {}
    for one in lost:
        by_life.setdefault(one.incarnation, []).append((one.first, one.last))
    return tuple(Lost(life, *bounds) for life, ranges in by_life.items() for bounds in joined(ranges))


def named_in(lost: Iterable[Lost], named: MessageId) -> Lost | None:
    """What an id says to be known of what is lost, None for nothing."""
    for one in lost:
        first, last = max(one.first, named.first), min(one.last, named.last)
        if shown_of(one.incarnation) == named.incarnation and first <= last:
            return Lost(one.incarnation, first, last)
    return None


def left_of_lost(lost: Iterable[Lost], told: Lost) -> list[Lost]:
    """What is still to be told once `told` is."""
    return [
        Lost(one.incarnation, *bounds)
        for one in lost
        for bounds in without(
            ((one.first, one.last),), ((told.first, told.last),) if one.incarnation == told.incarnation else ()
        )
    ]
