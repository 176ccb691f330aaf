"""What was gone from a topic at its giver before its keeper could take it: who is owed some of it, and is to be told.

The giver's sequences that neither lie in the stage nor are twins were trimmed there, or damaged. A subscription that
wanted some of them at the giver is told of just these. One of the keeper's, which is owed what was put since it
subscribed, is told unless all of them were appended before: of what is gone nobody knows the time, but append times
never fall, so what lies behind it tells. Who is told too much loses nothing.

What is lost is named in the giver's sequences, by the ids that it had there, over as many merges as it takes. And the
keeper's stream has on record what did not come, so that whoever comes to it by a later merge, from either side, and had
subscribed before, is told as well:

    third ──► second      the subscribers of both are told of what is gone at the third
    second ──► first      those of the first are told of it now, unless they know it, or have received it there
Source: docs/reference/guarantees.md, "Guarantees of the topic service".
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING

from veredus.streams.facts import Gone, Lost, Origin
from veredus.streams.lives import Lives
from veredus.streams.ranges import common, joined, without

from .ids import MessageId, shown_of

if TYPE_CHECKING:
    from .transfer import Bounds

GONE_MAX = 1000
"""Of so many ranges a stream has on record that they are gone; of more, of those that were there last."""


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

    def until(self, place: int) -> int | None:
        """The earliest time of which it is known that this place was appended no later, None where nobody knows."""
        index = bisect_left(self._places, place)
        return self._times[index] if index < len(self._times) else None


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


def newly_gone(
    missing: Sequence[Bounds], lives: Lives, arrivals: Arrivals, late_us: int, now_us: int
) -> Iterator[Gone]:
    """What of a giver's stream did not come. The keeper's clock, now at `now_us`, is `late_us` before its at most."""
    for lost in in_lives(missing, lives):
        until_us = arrivals.until(lost.last)
        yield Gone(lost.incarnation, lost.first, lost.last, now_us if until_us is None else until_us + late_us)


def by_another_clock(gone: Iterable[Gone], late_us: int) -> Iterator[Gone]:
    """What another server has on record, by a clock that is `late_us` before its at most."""
    return (Gone(one.incarnation, one.first, one.last, one.until_us + late_us) for one in gone)


def on_record(gone: Iterable[Gone], now_us: int) -> tuple[Gone, ...]:
    """The ranges once each, by their times, and no more of them than may be; nothing was there later than now."""
    until = {(one.incarnation, one.first, one.last): max(0, min(one.until_us, now_us)) for one in gone}
    found = sorted((Gone(*named, until_us) for named, until_us in until.items()), key=attrgetter("until_us"))
    return tuple(found[-GONE_MAX:])


def owed_since(gone: Sequence[Gone], time_us: int) -> Iterator[Lost]:
    """What of a record may have been appended since a time."""
    for one in gone[bisect_left(gone, time_us, key=attrgetter("until_us")) :]:
        yield Lost(one.incarnation, one.first, one.last)


def known_by(origins: Iterable[Origin]) -> Iterator[Lost]:
    """What of what is gone was received, or is told, by the origins that say so."""
    for one in origins:
        if not one.next_sequence:
            yield from (
                Lost(one.incarnation, first, first + count - 1) for first, place, count in one.runs if not place
            )


def all_of(lost: Iterable[Lost]) -> tuple[Lost, ...]:
    """What was said to be lost once or more often, once, in the order in which its lives came first."""
    by_life: dict[bytes, list[Bounds]] = {}
    for one in lost:
        by_life.setdefault(one.incarnation, []).append((one.first, one.last))
    return tuple(Lost(life, *bounds) for life, ranges in by_life.items() for bounds in joined(ranges))


def named_in(lost: Iterable[Lost], named: MessageId, origins: Iterable[Origin] = ()) -> Lost | None:
    """What an id says to be known of what is lost, None for nothing: under its own name, or under one that it had
    before, when a message was given.
    """
    known = [one for origin in origins if origin.next_sequence == named.first for one in origin.gone_to(named.last)]
    for one in lost:
        own = Lost(one.incarnation, named.first, named.last)
        for said in (own, *known) if shown_of(one.incarnation) == named.incarnation else known:
            first, last = max(one.first, said.first), min(one.last, said.last)
            if said.incarnation == one.incarnation and first <= last:
                return Lost(one.incarnation, first, last)
    return None
