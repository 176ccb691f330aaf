"""What is known of the rows that two servers have of one topic, and of those that neither has any more."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from heapq import merge
from itertools import islice
from operator import attrgetter
from typing import NamedTuple

from veredus.streams.exchange import Place
from veredus.streams.facts import Gone
from veredus.streams.lives import Lives
from veredus.streams.ranges import common, joined, without
from veredus.streams.removed import with_more

from .losing import Arrivals, by_another_clock, newly_gone, on_record
from .transfer import APPENDED_US, Attributes, Bounds


class Times:
    """When rows were put: their places ascend, their times do in each of a few runs."""

    def __init__(self) -> None:
        """Of no row yet."""
        self._runs: list[tuple[array[int], array[int]]] = []
        """Where the times rise, and to what."""
        self._last = -1

    def note(self, place: int, time_us: int) -> None:
        """The next row lies here, and was put then."""
        self._last = place
        if not self._runs or time_us < self._runs[-1][1][-1]:
            self._runs.append((array("q"), array("q")))
        places, times_us = self._runs[-1]
        if not times_us or times_us[-1] < time_us:
            places.append(place)
            times_us.append(time_us)

    def before(self, time_us: int) -> tuple[Bounds, ...]:
        """Where the rows lie that were put before a time."""
        found: list[Bounds] = []
        start = self._runs[0][0][0] if self._runs else 0
        following = (*(places[0] for places, _ in self._runs[1:]), self._last + 1)
        for (places, times_us), end in zip(self._runs, following, strict=True) if self._runs else ():
            index = bisect_left(times_us, time_us)
            stop = places[index] if index < len(places) else end
            if start < stop:
                found.append((start, stop - 1))
            start = end
        return tuple(found)


class Run(NamedTuple):
    """Sequences of the giver's that lie one behind the other, the first one at `place`."""

    first: int
    last: int
    place: Place

    def place_of(self, sequence: int) -> Place:
        """Where one of them lies, or would lie."""
        ahead = sequence - self.first
        return Place(row=self.place.row + ahead) if self.place.row >= 0 else Place(self.place.sequence + ahead)


@dataclass(slots=True)
class Merged:
    """What is known of both servers' rows."""

    keeper_lives: Lives
    giver_lives: Lives
    head: int = 0
    """The keeper's newest sequence."""
    giver_head: int = 0
    offset_us: Bounds = (0, 0)
    """By how much, at least and at most, the keeper's clock is before the giver's."""
    times: Times = field(default_factory=Times)
    """When the keeper's rows were put, by its clock."""
    sequences: array[int] = field(default_factory=lambda: array("q"))
    """What of the giver's rows lies in the stage, ascending."""
    row_times: Times = field(default_factory=Times)
    """When each of these was put, by the giver's clock; their places are rows of the stage."""
    twins: dict[int, int] = field(default_factory=dict)
    """The giver's sequences that lie at the keeper's already, and where; ascending."""
    twin_times: Times = field(default_factory=Times)
    """When each of these was put at the giver, by its clock; their places are its sequences."""
    known_to: int = 0
    """Up to there what of the giver's is not here came before, and nothing of it is missing."""
    holes: list[Bounds] = field(default_factory=list)
    """The keeper's sequences that are gone, as far as its rows were noted."""
    arrivals: Arrivals = field(default_factory=Arrivals)
    """When the keeper's rows were appended there, by its clock."""
    row_arrivals: Arrivals = field(default_factory=Arrivals)
    """When the giver's were appended there, by its own; their places are its sequences."""
    keeper_gone: tuple[Gone, ...] = ()
    """What earlier merges into the keeper's stream did not bring."""
    giver_gone: tuple[Gone, ...] = ()
    """And those into the giver's, by its own clock."""
    keeper_merged: tuple[bytes, ...] = ()
    """The lives of what was merged into the keeper's stream before."""
    giver_merged: tuple[bytes, ...] = ()
    """And into the giver's, or removed there: nothing of that is owed to who does not come with the merge."""

    _last: int = 0
    _runs: list[Run] | None = None

    def note_own(self, sequence: int, time_us: int, attributes: Attributes | None) -> None:
        """The keeper's next row, and when it was put."""
        self._note_holes(sequence - 1)
        self._last = sequence
        self.times.note(sequence, time_us)
        if not (attributes and APPENDED_US in attributes):
            self.arrivals.note(sequence, time_us)

    def note_twin(self, sequence: int, place: int, time_us: int) -> None:
        """The giver's next row, put there at this time, lies here already; it may be told once more."""
        if sequence not in self.twins:
            self.twin_times.note(sequence, time_us)
        self.twins[sequence] = place

    def note_arrivals(
        self, sequences: Iterable[int], times_us: Iterable[int], attributes: Iterable[Attributes | None]
    ) -> None:
        """Rows of the giver's, and when they were put: where that was there, all before them was appended no later."""
        for sequence, time_us, known in zip(sequences, times_us, attributes, strict=True):
            if not (known and APPENDED_US in known):
                self.row_arrivals.note(sequence, time_us)

    def end_arrivals(self, own_us: int, givers_us: int) -> None:
        """All is known: when something was appended last at the keeper, and at the giver, 0 for not known."""
        self._note_holes(self.head)
        self._last = max(self._last, self.head)
        self.arrivals.note(self.head, own_us)
        if givers_us:
            self.row_arrivals.note(self.giver_head, givers_us)

    def _note_holes(self, last: int) -> None:
        if last > self._last:
            self.holes.append((self._last + 1, last))

    def put_before(self, time_us: int) -> tuple[Bounds, ...]:
        """The keeper's sequences that were put before a time; of what is gone, as far as that is certain."""
        certain = ((0, self.arrivals.before(time_us)),)
        return joined((*without(self.times.before(time_us), self.holes), *common(self.holes, certain)))

    def gone(self, now_us: int) -> tuple[Gone, ...]:
        """What did not come by then: in this merge, or before at either server; by the keeper's clock."""
        late_us = self.offset_us[1]
        news = newly_gone(self.missing, self.giver_lives, self.row_arrivals, late_us, now_us)
        return on_record((*self.keeper_gone, *by_another_clock(self.giver_gone, late_us), *news), now_us)

    @property
    def lives(self) -> tuple[bytes, ...]:
        """Those of all that was merged into the keeper's stream, in this merge and before at either server."""
        return with_more(self.keeper_merged, (*self.giver_merged, *(life for life, _ in self.giver_lives.known)))

    @property
    def missing(self) -> tuple[Bounds, ...]:
        """The giver's sequences of which nothing came; asked for once all is known."""
        there = ((0, self.known_to), *((run.first, run.last) for run in self.runs))
        return without(((1, self.giver_head),), joined(there))

    @property
    def runs(self) -> list[Run]:
        """The giver's sequences where they lie here one behind the other; asked for once all of them are known."""
        if self._runs is None:
            self._runs = []
            rows = ((sequence, Place(row=row)) for row, sequence in enumerate(self.sequences))
            twins = ((sequence, Place(place)) for sequence, place in self.twins.items())
            for sequence, place in merge(rows, twins):
                if self._runs and self._runs[-1].place_of(sequence) == place:
                    self._runs[-1] = self._runs[-1]._replace(last=sequence)
                else:
                    self._runs.append(Run(sequence, sequence, place))
        return self._runs

    def runs_in(self, first: int, last: int) -> Iterator[Run]:
        """What of these runs is in a range of the giver's sequences."""
        index = bisect_left(self.runs, first, key=attrgetter("last"))
        for run in islice(self.runs, index, None):
            if run.first > last:
                return
            low = max(first, run.first)
            yield Run(low, min(last, run.last), run.place_of(low))
