"""The journal as one engine: appends are durable before they are answered, reads give what is durable and sound.

    streams floor ◄──► Log ── Appending: the queue, the group under way, the open segment and the next
                           ── Reading:   the requests that wait for bytes
                           ── Upkeep:    checkpoints, index files, segments that may go
                           ── Cleaner:   what is left in segments that are mostly dead
                       └─► disk

It routes; what is true when is said by the four parts. The host gives `DeadlineReached` when `deadline()` is due,
also when it is due at once: that closes the group of all that came together. `CheckpointBegun` and
`CheckpointRequested` must be told after the streams floor was told every `Appended` before it, and after what it said
in turn (`StagesPublished`, `StreamTrimmed`, …) was told here.
Source: docs/internals/DESIGN.md, "Journal".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from veredus.kernel.deadlines import Deadlines
from veredus.kernel.effects import Note
from veredus.kernel.engine import Now
from veredus.kernel.errors import InvariantBroken
from veredus.kernel.events import DeadlineReached

from .appending import Appending
from .catalogue import Extent, Part, Segment
from .cleaner import Cleaner
from .exchange import (
    AppendRequested,
    BytesFailed,
    BytesRead,
    CheckpointBegun,
    CheckpointRequested,
    FileFailed,
    FileWritten,
    GroupFailed,
    GroupWritten,
    HeldBack,
    LocateRequested,
    LogEffect,
    LogEvent,
    ReadRequested,
    RemoveSegment,
    SegmentCreated,
    SegmentFailed,
    StagesPublished,
    StagesUnwanted,
    StreamDropped,
    StreamTrimmed,
)
from .index import STAGE_KEY
from .layout import Position
from .orders import Orders
from .phases import Phase, Timer
from .reading import Reading
from .settings import LogSettings, Recovered
from .upkeep import Upkeep


class Log:
    """Owns one journal, from what recovery found on; see the module."""

    __slots__ = (
        "_appending",
        "_catalogue",
        "_cleaner",
        "_gaps",
        "_orders",
        "_reading",
        "_retry_ns",
        "_surplus",
        "_timers",
        "_upkeep",
    )

    def __init__(self, settings: LogSettings, recovered: Recovered) -> None:
        """`recovered` belongs to the log from now on."""
        self._orders = Orders()
        self._timers: Deadlines[Timer] = Deadlines()
        self._catalogue = recovered.catalogue
        self._gaps = recovered.gaps
        self._surplus = recovered.surplus
        self._retry_ns = settings.retry_ns
        self._appending = Appending(settings, recovered, self._orders, self._timers, self._seal)
        self._upkeep = Upkeep(settings, recovered, self._orders, self._timers, self._appending)
        self._reading = Reading(self._catalogue, self._orders, settings.rows_cache_size_max, self._upkeep.reindex)
        self._cleaner = Cleaner(settings, self._catalogue, recovered.journal_id, self._orders, self._upkeep.reindex)
        self._timers.set(Timer.START, 0)

    def _seal(self, segment: Segment) -> None:
        self._upkeep.seal(segment)

    # ── what the node asks ───────────────────────────────────────────────────────────────────────────────────────────

    @property
    def unsynced_size(self) -> int:
        """Bytes that were asked for and are not yet answered."""
        return self._appending.answering.size

    @property
    def unsynced_by(self) -> Mapping[str | None, int]:
        """Those of each payer that has any; of None what the node itself asked for."""
        return self._appending.answering.size_by

    @property
    def is_answering(self) -> bool:
        """Whether something is in the journal, and not answered yet; it is at the next deadlines, a part at each."""
        return bool(self._appending.answering)

    @property
    def is_answered(self) -> bool:
        """Whether all that was asked for is answered."""
        return self._appending.is_answered

    @property
    def has_space(self) -> bool:
        """Whether appends that carry publications are taken."""
        return self._appending.phase is Phase.RUNNING

    @property
    def why_full(self) -> str:
        """Why there is no room to grow, "" where nothing is known to hinder it."""
        return self._appending.why_full

    @property
    def phase(self) -> Phase:
        """What the log can do."""
        return self._appending.phase

    @property
    def position(self) -> Position:
        """The end of what was answered."""
        return self._appending.position

    @property
    def segment_count(self) -> int:
        """How many segments hold something."""
        return len(self._catalogue.segments)

    @property
    def size(self) -> int:
        """What the segments take, in bytes, those kept to be written over left out."""
        return sum(segment.size for segment in self._catalogue.segments.values())

    def extent(self, stream_id: int) -> Extent:
        """What is kept of a stream."""
        return self._catalogue.extent(stream_id)

    def parts(self, stream_id: int) -> Sequence[Part]:
        """The runs in which a stream is kept: where retention may cut it."""
        return self._catalogue.parts(stream_id)

    def handle(self, event: LogEvent, now: Now) -> Sequence[LogEffect]:
        """Take one fact; see `Engine`."""
        handler = _HANDLERS.get(type(event))
        if handler is None:
            raise InvariantBroken(f"the log was told {event!r}")
        handler(self, event, now)
        return self._orders.take()

    def deadline(self) -> int | None:
        """When to be woken; in the past for at once."""
        return self._timers.next_ns()

    def check(self) -> None:
        """Repeat the invariants of the parts."""
        self._appending.check()
        self._catalogue.check()

    # ── handlers ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _append(self, event: AppendRequested, now: Now) -> None:
        self._appending.append(event, now)
        self._upkeep.hold_back()

    def _read(self, event: ReadRequested, now: Now) -> None:
        self._reading.read(event)

    def _locate(self, event: LocateRequested, now: Now) -> None:
        self._reading.locate(event)

    def _publish(self, event: StagesPublished, now: Now) -> None:
        self._catalogue.hear(event)

    def _drop_stages(self, event: StagesUnwanted, now: Now) -> None:
        self._appending.drop(STAGE_KEY | stage for stage in event.stages)
        self._catalogue.hear(event)
        self._upkeep.want()

    def _trim(self, event: StreamTrimmed, now: Now) -> None:
        self._catalogue.hear(event)
        self._upkeep.want()

    def _drop_stream(self, event: StreamDropped, now: Now) -> None:
        self._appending.drop((event.stream_id,))
        self._catalogue.hear(event)
        self._upkeep.want()

    def _begin_checkpoint(self, event: CheckpointBegun, now: Now) -> None:
        self._upkeep.begin()

    def _checkpoint(self, event: CheckpointRequested, now: Now) -> None:
        self._upkeep.checkpoint(event, now)

    def _group_written(self, event: GroupWritten, now: Now) -> None:
        self._appending.written(event, now)
        self._upkeep.proceed(now)
        self._upkeep.want()

    def _group_failed(self, event: GroupFailed, now: Now) -> None:
        self._appending.failed(event)

    def _segment_created(self, event: SegmentCreated, now: Now) -> None:
        self._appending.created(event, now)

    def _segment_failed(self, event: SegmentFailed, now: Now) -> None:
        self._appending.create_failed(event, now)
        self._upkeep.want()

    def _bytes(self, event: BytesRead | BytesFailed, now: Now) -> None:
        self._reading.take_bytes(event)
        if self._reading.has_postponed and not self._timers.is_set(Timer.READ):
            self._timers.set(Timer.READ, now.monotonic_ns + self._retry_ns)
        self._cleaner.take_bytes(event, now)

    def _file_written(self, event: FileWritten, now: Now) -> None:
        if self._upkeep.file_written(event, now):
            self._cleaner.consider()
        self._cleaner.file_written(event)
        self._upkeep.want()

    def _file_failed(self, event: FileFailed, now: Now) -> None:
        self._upkeep.file_failed(event, now)
        self._cleaner.file_failed(event)

    def _held_back(self, event: HeldBack, now: Now) -> None:
        self._upkeep.held_back(event, now)
        self._upkeep.want()

    def _deadline_reached(self, event: DeadlineReached, now: Now) -> None:
        for timer in self._timers.due(now.monotonic_ns):
            _TIMERS[timer](self, now)

    def _start(self, now: Now) -> None:
        missing = list(self._catalogue.missing(self._gaps))
        if missing:
            self._orders.say(Note("warning", "journal-sequences-missing", {"stream_first_last": missing}))
        for number in self._surplus:
            self._orders.say(RemoveSegment(number))
        self._upkeep.hold_back()
        self._appending.prepare(now)

    def _submit(self, now: Now) -> None:
        self._appending.submit(now)

    def _answer(self, now: Now) -> None:
        self._appending.answer(now)
        self._upkeep.proceed(now)
        self._upkeep.want()

    def _sync(self, now: Now) -> None:
        self._appending.request_sync(now)

    def _retry_space(self, now: Now) -> None:
        self._appending.retry_create(now)

    def _retry_hold(self, now: Now) -> None:
        self._upkeep.retry_hold()

    def _retry_reads(self, now: Now) -> None:
        self._reading.retry()

    def _retry_indexes(self, now: Now) -> None:
        self._upkeep.retry_indexes()

    def _retry_checkpoint(self, now: Now) -> None:
        self._upkeep.want()


_TIMERS: dict[Timer, Callable[[Log, Now], None]] = {
    Timer.START: Log._start,
    Timer.SUBMIT: Log._submit,
    Timer.ANSWER: Log._answer,
    Timer.SYNC: Log._sync,
    Timer.SPACE: Log._retry_space,
    Timer.HOLD: Log._retry_hold,
    Timer.INDEX: Log._retry_indexes,
    Timer.READ: Log._retry_reads,
    Timer.CHECKPOINT: Log._retry_checkpoint,
}

_HANDLERS: dict[type, Callable[[Log, Any, Now], None]] = {
    AppendRequested: Log._append,
    ReadRequested: Log._read,
    LocateRequested: Log._locate,
    StagesPublished: Log._publish,
    StagesUnwanted: Log._drop_stages,
    StreamTrimmed: Log._trim,
    StreamDropped: Log._drop_stream,
    CheckpointBegun: Log._begin_checkpoint,
    CheckpointRequested: Log._checkpoint,
    GroupWritten: Log._group_written,
    GroupFailed: Log._group_failed,
    SegmentCreated: Log._segment_created,
    SegmentFailed: Log._segment_failed,
    BytesRead: Log._bytes,
    BytesFailed: Log._bytes,
    FileWritten: Log._file_written,
    FileFailed: Log._file_failed,
    HeldBack: Log._held_back,
    DeadlineReached: Log._deadline_reached,
}
