"""One session's way through a stream: from history to the live tail and back, by credit in bytes, unseen by the client.

              credit, and something durable at the position
    WAITING ─────────────────────────────────────────────────► reading, pushing
       ▲   ◄───────────────────────────────────────────────────    │
       │            no credit, congested, or nothing left          │ not in memory
       └──────────────── records read ◄──────────── HISTORICAL ◄───┘

There are no two modes to switch between: a flow is its **position**, the next sequence to examine. It is live when that
is the
durable head + 1; what is at the position comes from memory where the tail still has it, and from the journal where not.

Invariants
    (1) Rows are examined in order and once, each by the filter that counts there; `position` never falls, but from one
        leg of a weave to the next.
    (2) Sending goes on while credit is positive, and overdraws it by at most one frame.
    (3) At most one read is under way.
    (4) A flow holds no records of its own between two events: of rows that it is examining, what terms answered.
    (5) Nothing is examined while another filter, another owner, or a dead letter is on its way to the journal.
Source: seed 004, "Overall Design"; docs/internals/DESIGN.md, "Flow".
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence
from typing import NamedTuple

from veredus.delivery.settlement import Range
from veredus.journal.exchange import READ_SIZE_MIN, PlacedRecord
from veredus.kernel.octets import Octets
from veredus.kernel.turns import QUANTUM_NS
from veredus.matching import Filter

from .audience import Audience
from .examine import Attempt, Examiner, Parcel, Wanted, source_id_of, wanted_by
from .exchange import PUSH_OVERHEAD, Push
from .ranges import between, without
from .stream import Stream
from .subscription import Subscription
from .told import Told

NEVER = (1 << 63) - 1


class Taken(NamedTuple):
    """What one look at the next records gave: a frame, how many of them were examined, and what is to be parked."""

    push: Push | None
    examined_count: int
    parcels: list[Parcel]


class Flow:
    """Owns one session's position, credit and what it was told about sources."""

    __slots__ = (
        "_attempt",
        "_position",
        "_told",
        "among",
        "audience",
        "credit",
        "from_us",
        "indexed",
        "is_congested",
        "is_end_told",
        "is_reading",
        "is_whole",
        "later",
        "legs",
        "octet_ns",
        "payer",
        "progress_told",
        "redelivered_to",
        "session",
        "stream",
        "subscription",
        "terms_counted",
        "until",
        "wanted",
    )

    def __init__(
        self, session: int, stream: Stream, wanted: Wanted, position: int, until: int, credit: int, payer: str = ""
    ) -> None:
        """A flow that begins at `position` and ends before `until` (0 for never); `payer` pays for its filter."""
        self.session = session
        self.payer = payer
        self.octet_ns = 1
        """What it costs to send on a byte that is pushed."""
        self.stream = stream
        self.wanted = wanted
        """What counts at the position."""
        self.later: deque[tuple[int, Wanted]] = deque()
        """What counts behind it, each from its sequence on."""
        self.terms_counted = 0
        """How many terms of its filters its payer was charged with."""
        self._position = position
        self.until = until
        self.credit = credit
        self.among: OrderedDict[Flow, None] | None = None
        """With whom it waits to be reached by a publication, or is due."""
        self.audience: Audience | None = None
        """With whom it waits to be reached by a publication that its filter may want."""
        self.indexed: Filter | None = None
        """Its filter, where the stream's audience knows it."""
        self.subscription: Subscription | None = None
        self.redelivered_to = 0
        self.from_us = 0
        """What was appended before this time is passed over: at its first position there may be such still, and a time
        that is to come has none yet. 0 once something of that time or later is there, since append times never fall."""
        self.is_congested = False
        self.is_reading = False
        self.is_whole = False
        """Whether what it is pushed first of a record is all of it, whatever lies before the position."""
        self.is_end_told = False
        self.progress_told = position
        self.legs: deque[Range] = deque()
        """What is pushed before what comes by its sequence; the position is in the first one."""
        self._told = Told()
        self._attempt: Attempt | None = None

    @property
    def position(self) -> int:
        """The next sequence to examine."""
        return self._position if self.audience is None else self.audience.position

    @property
    def end(self) -> int:
        """The sequence behind the last one that may be examined now."""
        durable = self.legs[0][1] + 1 if self.legs else self.stream.head_durable + 1
        return min(durable, self.until) if self.until else durable

    @property
    def is_live(self) -> bool:
        """Whether it has examined all that is durable."""
        return self.position > self.stream.head_durable

    @property
    def is_ended(self) -> bool:
        """Whether it has examined all that was asked for."""
        return 0 < self.until <= self.position

    @property
    def takes_no_work(self) -> bool:
        """Whether records are pushed as they are: no filter is tried, and no row is taken out of one."""
        subscription = self.subscription
        if subscription is not None and (subscription.parked_to or subscription.excluded or self.legs):
            return False
        return self.wanted.compiled.is_everything

    @property
    def waits_for(self) -> str:
        """What keeps it from pushing: `publications`, `credit`, `link`, `settlement`, `journal`, or "" for nothing."""
        if self.is_reading or (self.subscription is not None and self.subscription.is_changing):
            return "journal"
        if self.position >= self.end:
            return "publications"
        if self.credit <= 0:
            return "credit"
        if self.is_congested:
            return "link"
        if self.subscription is not None and self.subscription.ledger.is_full and not self.legs:
            return "settlement"
        return ""

    @property
    def is_waiting(self) -> bool:
        """Whether the next publication reaches it, or one has."""
        return self.among is not None or self.audience is not None

    @property
    def is_for_publications(self) -> bool:
        """Whether a publication is to reach it; else it lacks something that wakes it when it comes."""
        if self.credit <= 0 or self.is_congested or self.is_ended:
            return False
        # What its owner's other cursors settle may have made room for it as well.
        return self.waits_for in ("publications", "settlement")

    def go_by(self, way: Sequence[Range]) -> None:
        """Push what lies in these legs first, in their order; its cursor counts all of it as pushed from now on."""
        assert self.subscription is not None
        self.legs.extend(way)
        self.subscription.expect(max(last for _, last in way))
        self._position = way[0][0]

    @property
    def term_count(self) -> int:
        """How much is held for its filters, those that are still to come among them."""
        return self.wanted.compiled.size_in_terms + sum(wanted.compiled.size_in_terms for _, wanted in self.later)

    @property
    def unexamined(self) -> int:
        """The first sequence that no filter which it has, or is to have, was asked for."""
        return max(self.position, self.later[-1][0] if self.later else 0)

    def begin_under(self, before: Sequence[tuple[Filter, int]]) -> None:
        """Let these filters count first, each up to its last sequence."""
        for filter_, last in reversed(before):
            if last >= self.position:
                self.later.appendleft((last + 1, self.wanted))
                self.wanted = wanted_by(filter_)

    def filter_from(self, sequence: int, wanted: Wanted) -> None:
        """Another filter from a sequence on that is not examined yet; what counts before it goes on up to there."""
        while self.later and self.later[-1][0] >= sequence:
            self.later.pop()
        self.later.append((sequence, wanted))
        self._pass_to(self.position)

    def stand_at(self, position: int) -> None:
        """All below `position` was examined, and not wanted, by whoever it waited with."""
        self._pass_to(position)
        if self.subscription is not None:
            self.subscription.pass_to(position)

    def _pass_to(self, position: int) -> None:
        self._position = position
        while self.later and position >= self.later[0][0]:
            _, self.wanted = self.later.popleft()

    def _turn(self) -> None:
        """Go on with the next leg where one was gone through; behind the last one, by the sequences."""
        while self.legs and self.position > self.legs[0][1]:
            self.legs.popleft()
            assert self.subscription is not None
            self._position = self.legs[0][0] if self.legs else self.subscription.ledger.position

    def take(self, records: Sequence[PlacedRecord], examiner: Examiner, size_max: int) -> Taken:
        """Examine records from the position on until there are `size_max` bytes to push, each record counted as
        `READ_SIZE_MIN` at least, or nothing more may be.
        """
        parcels: list[Parcel] = []
        buffers: list[Octets] = []
        names: list[tuple[int, str]] = []
        size = counted_size = first_pushed = last_pushed = 0
        examined = self._pass_early(records)
        ledger = None if self.subscription is None else self.subscription.ledger
        excluded = () if self.subscription is None else self.subscription.excluded
        if self.legs and ledger is not None:
            excluded = tuple(between(self.position, self.legs[0][1], ledger.unsettled))
        for record in records[examined:]:
            record_end = min(record.first_sequence + record.count, self.end)
            last = min(record_end, self.later[0][0] if self.later else record_end) - 1
            if last < self.position:
                break
            first = max(self.position, record.first_sequence)
            if (
                ledger is not None
                and not ledger.is_ordered
                and not (self.wanted.compiled.is_everything and not excluded)
            ):
                # Every other row may be a range of its own.
                last = min(last, first + 2 * max(1, ledger.ranges_max - ledger.unsettled_count) - 2)
            last, is_long = examiner.reach(self.stream, record, self.wanted, first, last)
            attempt = self._attempt_at(first, last) if is_long else None
            if attempt is not None and not examiner.try_on(self.stream, record, self.wanted, attempt):
                break
            exhausted = () if self.subscription is None else self.subscription.exhausted(self.position, last)
            for first, end in exhausted:
                exhausted_rows = examiner.examine(self.stream, record, self.wanted, first, end, excluded, attempt)
                if exhausted_rows is not None:
                    parcels.append(examiner.parcel_of(record, exhausted_rows.runs))
            outside = (*excluded, *exhausted)
            excerpt = examiner.examine(self.stream, record, self.wanted, self._first_in(record), last, outside, attempt)
            self._pass_to(last + 1)
            is_cut = self.position < record_end
            examined += not is_cut
            if excerpt is not None:
                buffers.append(excerpt.memory)
                size += len(excerpt.memory)
                counted_size += max(len(excerpt.memory), READ_SIZE_MIN)
                first_pushed = first_pushed or excerpt.runs[0][0]
                last_pushed = excerpt.runs[-1][1]
                self._announce(record, names)
                if ledger is not None and not self.legs:
                    self._note(excerpt.runs)
            if is_cut or counted_size >= size_max or size >= self.credit:
                break
            if ledger is not None and ledger.is_full and not self.legs:
                break
            if examiner.cost_ns >= QUANTUM_NS:
                break
        if self.subscription is not None:
            self.subscription.pass_to(self.position)
        self._turn()
        if not buffers:
            return Taken(None, examined, parcels)
        self.credit -= size + PUSH_OVERHEAD
        push = Push(self.session, buffers, size, first_pushed, last_pushed, self.redelivered_to, names)
        return Taken(push, examined, parcels)

    def _first_in(self, record: PlacedRecord) -> int:
        return record.first_sequence if self.is_whole else self.position

    def _pass_early(self, records: Sequence[PlacedRecord]) -> int:
        """Pass over the records that were appended before the time to start from: how many of the first these are."""
        count = 0
        for record in records if self.from_us else ():
            if record.append_time_us >= self.from_us:
                self.from_us = 0
                break
            if self.position >= self.end:
                break
            self._pass_to(min(record.first_sequence + record.count, self.end))
            count += 1
        return count

    def _attempt_at(self, first: int, last: int) -> Attempt:
        """The attempt at these rows, which goes on where it has begun already."""
        attempt = self._attempt
        if (
            attempt is None
            or (attempt.first, attempt.last) != (first, last)
            or attempt.filter is not self.wanted.filter
        ):
            attempt = self._attempt = Attempt(first, last, self.wanted)
        return attempt

    def _note(self, runs: tuple[tuple[int, int], ...]) -> None:
        subscription = self.subscription
        assert subscription is not None
        ledger = subscription.ledger
        if ledger.is_ordered:
            ledger.push(runs[0][0], runs[-1][1])
        else:
            for first, last in runs:
                ledger.push(first, last)
        subscription.note_pushed(runs[-1][1])
        if subscription.missed:
            subscription.missed = without(subscription.missed, runs)

    def _announce(self, record: PlacedRecord, names: list[tuple[int, str]]) -> None:
        source_id = source_id_of(record)
        if self._told.tell(source_id):
            names.append((source_id, self.stream.source_names.get(source_id, "")))

    def skip_to(self, position: int) -> None:
        """Nothing from the flow's position to before `position` can be had: go on there.

        Its subscriber settles that like what was pushed, once the application knows.
        """
        before = self.position
        self._pass_to(position)
        if self.subscription is not None:
            self.subscription.miss(before, position - 1)
        self._turn()
