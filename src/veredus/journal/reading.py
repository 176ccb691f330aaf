"""Reads records of a stream, and finds a place by time: only what is durable, only what is sound.

    asked ──► rows in memory? ── no ──► read them from the index ── unsound ──► rebuild the index from the segment
                 │ yes         ◄────────────────┘ ◄──────────────────────────────────┘
                 ▼
              read the records ──► all sound ──► RecordsRead
                 ▲     └── something unsound: look it all up again, once; then RangeMissing("damaged")
                 └───────────┘

Invariants
    (1) A record is handed out only if its envelope has its place's salt and a right CRC, its body a right CRC, and
    its
        place is the one that was looked for.
    (2) Every request is answered exactly once.
    (3) Something that is found damaged is read twice before that is said, for the segment may have been let go between.
    (4) From bytes that could not be read nothing is concluded about others: no index is made without all of its
    segment, and none without a part of it before two readings agreed that this part is unsound.
Source: docs/internals/DESIGN.md, "Journal"; guarantee 6.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field

from veredus.delivery.record import ENVELOPE_SIZE, RecordKind, renumbered
from veredus.kernel.effects import Note
from veredus.kernel.octets import Octets

from .catalogue import Catalogue, Run, Segment, StreamPlaces
from .exchange import (
    READ_SIZE_MIN,
    WANTING,
    BytesFailed,
    BytesRead,
    Located,
    LocateRequested,
    PlacedRecord,
    RangeMissing,
    ReadBytes,
    ReadRequested,
    RecordsRead,
)
from .index import STAGE_KEY, Row, RowsCache, find_row, find_time, row_at, row_count
from .layout import record_at
from .orders import Orders
from .scan import Unsound, rows_like

EXTENTS_MAX = 32
GAP_SIZE_MAX = 32 << 10
FAILURES_MAX = 3
"""How often bytes that cannot be read are asked for again before they are given up for this request."""
READINGS_MAX = 8
"""How often a segment is read for its index until two readings agree on what is unsound there."""


@dataclass(slots=True)
class _Read:
    """One request for records, and what was ordered for it: `chunks` by extent, `rows` with the extent each lies in."""

    request: ReadRequested
    attempt: int = 1
    segment: Segment | None = None
    run: Run | None = None
    rows: list[tuple[Row, int]] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    chunks: list[Octets | None] = field(default_factory=list)
    missing: int = 0
    failure: BytesFailed | None = None
    failure_count: int = 0


@dataclass(slots=True)
class _Locate:
    """One request for a place by time."""

    request: LocateRequested
    failure_count: int = 0


@dataclass(slots=True)
class _Load:
    """Rows on their way from an index file, and who waits for them; `is_rebuild` when they come from the segment
    itself.
    """

    segment: Segment
    key: int
    waiting: list[_Read | _Locate]
    attempt: int = 1
    is_rebuild: bool = False
    unsound: list[Unsound] | None = None
    """What the reading before found unsound in the segment."""


class Reading:
    """Owns the requests that wait for bytes, and the rows that were loaded last."""

    __slots__ = (
        "_catalogue",
        "_given_up",
        "_loads",
        "_loads_by_key",
        "_on_rebuilt",
        "_orders",
        "_postponed",
        "_reads",
        "cache",
    )

    def __init__(
        self,
        catalogue: Catalogue,
        orders: Orders,
        cache_size_max: int,
        on_rebuilt: Callable[[Segment], None],
    ) -> None:
        """`on_rebuilt` hears of segments whose index must be written again."""
        self._catalogue = catalogue
        self._orders = orders
        self._reads: dict[int, tuple[_Read, int]] = {}
        self._loads: dict[int, _Load] = {}
        self._postponed: list[_Read | _Locate] = []
        self._loads_by_key: dict[tuple[int, int], _Load] = {}
        self._given_up: set[int] = set()
        """Segments that could not be read the last time, however often that was tried."""
        self.cache = RowsCache(cache_size_max)
        self._on_rebuilt = on_rebuilt

    def read(self, request: ReadRequested) -> None:
        """Begin to answer a request for records."""
        self._seek(_Read(request))

    def locate(self, request: LocateRequested) -> None:
        """Begin to answer a request for a place."""
        self._find(_Locate(request))

    def take_bytes(self, event: BytesRead | BytesFailed) -> None:
        """Bytes came, or will not come."""
        data: Octets = event.data if isinstance(event, BytesRead) else b""
        load = self._loads.pop(event.token, None)
        if load is not None:
            del self._loads_by_key[load.segment.number, load.key]
            if isinstance(event, BytesFailed) and event.code in WANTING:
                self._postponed += load.waiting
            else:
                self._take_rows(load, data)
        elif event.token in self._reads:
            read, extent = self._reads.pop(event.token)
            read.chunks[extent] = data
            read.missing -= 1
            if isinstance(event, BytesFailed):
                read.failure = event
            if read.missing == 0 and read.failure is not None:
                self._try_again(read, read.failure)
            elif read.missing == 0:
                assert read.segment is not None
                self._given_up.discard(read.segment.number)
                self._verify(read)

    def _try_again(self, read: _Read, failure: BytesFailed) -> None:
        """Bytes could not be read: look it all up again, for the segment may have been let go; then by and by."""
        read.failure = None
        if failure.code in WANTING:
            self._postponed.append(read)
            return
        assert read.segment is not None
        if self._has_patience(read, read.segment):
            if read.failure_count == 1:
                self._seek(read)
            else:
                self._postponed.append(read)
        else:
            self._name_damage(read)

    def _has_patience(self, waiting: _Read | _Locate, segment: Segment) -> bool:
        """Whether to try once more; not so often for each record of a segment that nobody could read the last time."""
        waiting.failure_count += 1
        if waiting.failure_count <= (1 if segment.number in self._given_up else FAILURES_MAX):
            return True
        self._given_up.add(segment.number)
        return False

    @property
    def has_postponed(self) -> bool:
        """Whether something is to be tried again by and by."""
        return bool(self._postponed)

    def retry(self) -> None:
        """Try again what could not be read for want of a file descriptor or of memory."""
        postponed, self._postponed = self._postponed, []
        for waiting in postponed:
            self._resume_one(waiting)

    # ── where it lies ────────────────────────────────────────────────────────────────────────────────────────────────

    def _seek(self, read: _Read) -> None:
        request = read.request
        position = request.first_sequence
        stream = self._catalogue.streams.get(request.stream_id)
        if stream is None or position > stream.last_sequence:
            self._orders.say(RecordsRead(request.token, (), position))
            return
        if position < stream.floor:
            self._orders.say(RangeMissing(request.token, "trimmed", position, stream.floor))
            return
        run, run_behind = self._catalogue.find_run(stream, position)
        if run is not None:
            self._seek_in_stage(read, run)
            return
        segment, segment_behind = self._catalogue.find_segment(stream, position)
        starts = [run_behind.first_sequence] if run_behind is not None else []
        if segment is None:
            starts += [segment_behind.first_of(stream.stream_id)] if segment_behind is not None else []
            self._miss(read, min(starts, default=stream.last_sequence + 1))
            return
        rows = self._rows_of(segment, stream.stream_id, read)
        if rows is None:
            return
        index = find_row(rows, position)
        if row_at(rows, index).last < position:
            self._miss(read, min([*starts, row_at(rows, index + 1).first]))
            return
        self._order(read, segment, rows, index, None)

    def _seek_in_stage(self, read: _Read, run: Run) -> None:
        ordinal = read.request.first_sequence - run.first_sequence
        places = self._catalogue.stages[run.stage].segments
        part = bisect_right(places, ordinal, key=lambda place: place[1]) - 1
        behind = places[part + 1][1] if part + 1 < len(places) else run.count
        if part < 0:
            self._miss(read, run.first_sequence + behind)
            return
        segment = self._catalogue.segments[places[part][0]]
        rows = self._rows_of(segment, STAGE_KEY | run.stage, read)
        if rows is None:
            return
        index = find_row(rows, ordinal)
        if index < 0 or row_at(rows, index).last < ordinal:
            # What was damaged before it was indexed left no row: it ends where the next one begins.
            following = row_at(rows, index + 1).first if index + 1 < row_count(rows) else behind
            self._miss(read, run.first_sequence + following)
            return
        self._order(read, segment, rows, index, run)

    def _miss(self, read: _Read, next_sequence: int) -> None:
        request = read.request
        self._orders.say(RangeMissing(request.token, "damaged", request.first_sequence, next_sequence))

    def _rows_of(self, segment: Segment, key: int, waiting: _Read | _Locate) -> array[int] | None:
        """The rows, or None when they must be loaded; `waiting` goes on when they are there."""
        if segment.rows is not None:
            return segment.rows[key]
        rows = self.cache.get(segment.number, key)
        if rows is None:
            load = self._loads_by_key.get((segment.number, key))
            if load is None:
                self._load(_Load(segment, key, [waiting]))
            else:
                load.waiting.append(waiting)
        return rows

    # ── rows ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _load(self, load: _Load) -> None:
        summary = load.segment.summary
        assert summary is not None
        token = self._orders.token()
        self._loads[token] = load
        self._loads_by_key[load.segment.number, load.key] = load
        if load.is_rebuild:
            self._orders.say(ReadBytes(token, load.segment.number, 0, load.segment.end))
        else:
            offset, size = summary.rows_place(summary.find(load.key))
            self._orders.say(ReadBytes(token, load.segment.number, offset, size, is_index=True))

    def _take_rows(self, load: _Load, data: Octets) -> None:
        segment, key = load.segment, load.key
        summary = segment.summary
        assert summary is not None
        if segment.number not in self._catalogue.segments or segment.rows is not None:
            self._resume(load)
        elif load.is_rebuild and len(data) < segment.end:
            self._give_up_rows(load)
        elif load.is_rebuild:
            self._rebuild(load, data)
        elif (rows := summary.checked_rows(summary.find(key), data)) is not None:
            self.cache.put(segment.number, key, rows)
            self._resume(load)
        else:
            load.is_rebuild = load.attempt == 2
            load.attempt += 1
            self._load(load)

    def _rebuild(self, load: _Load, data: Octets) -> None:
        segment = load.segment
        assert segment.summary is not None
        rows, unsound = rows_like(memoryview(data), segment.number, segment.salt, segment.summary)
        if unsound and unsound != load.unsound:
            load.unsound = unsound
            load.attempt += 1
            if load.attempt > READINGS_MAX:
                self._give_up_rows(load)
            else:
                self._load(load)
            return
        segment.rows = rows
        self._orders.say(Note("warning", "journal-index-rebuilt", {"segment": segment.number}))
        self._on_rebuilt(segment)
        self._resume(load)

    def _give_up_rows(self, load: _Load) -> None:
        """Neither the index nor the segment can be read now: nothing is concluded from that, but what waits must go
        on.
        """
        for waiting in load.waiting:
            if self._has_patience(waiting, load.segment):
                self._postponed.append(waiting)
            elif isinstance(waiting, _Read):
                self._miss_part(waiting, load.segment, load.key)
            else:
                # An earlier place than was asked for leaves nothing out.
                part = load.segment.part(load.key)
                self._orders.say(Located(waiting.request.token, part.first_sequence))

    def _miss_part(self, read: _Read, segment: Segment, key: int) -> None:
        next_sequence = segment.last_of(key) + 1
        stream = self._catalogue.streams.get(read.request.stream_id)
        run = None if stream is None else self._catalogue.find_run(stream, read.request.first_sequence)[0]
        if run is not None:
            next_sequence += run.first_sequence
        where: dict[str, object] = {
            "segment": segment.number,
            "what": "cannot be read",
            "stream": read.request.stream_id,
            "first_sequence": read.request.first_sequence,
            "last_sequence": next_sequence - 1,
        }
        self._orders.say(Note("error", "journal-damaged", where))
        self._miss(read, next_sequence)

    def _resume(self, load: _Load) -> None:
        for waiting in load.waiting:
            self._resume_one(waiting)

    def _resume_one(self, waiting: _Read | _Locate) -> None:
        if isinstance(waiting, _Read):
            self._seek(waiting)
        else:
            self._find(waiting)

    # ── records ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _order(self, read: _Read, segment: Segment, rows: array[int], index: int, run: Run | None) -> None:
        """Order the bytes of the records from `index` on, as long as they follow one another and are not too many."""
        read.segment, read.run = segment, run
        read.rows.clear()
        read.offsets.clear()
        sizes: list[int] = []
        total = 0
        size_max = read.request.size_max
        expected = row_at(rows, index).first
        end = -1
        for place in range(index, row_count(rows)):
            row = row_at(rows, place)
            first, _, offset, size, count = row
            # A row without a size stands for what was lost: it lies nowhere.
            counted_size = max(size, READ_SIZE_MIN)
            if first != expected or (total and (not size or total + counted_size > size_max)):
                break
            if not sizes or offset - end > GAP_SIZE_MAX:
                if len(sizes) == EXTENTS_MAX:
                    break
                read.offsets.append(offset)
                sizes.append(size)
            else:
                sizes[-1] = offset + size - read.offsets[-1]
            read.rows.append((row, len(sizes) - 1))
            end = offset + size
            total += counted_size
            expected = first + count
        read.failure = None
        read.chunks = [None] * len(sizes)
        read.missing = len(sizes)
        for extent, (offset, size) in enumerate(zip(read.offsets, sizes, strict=True)):
            token = self._orders.token()
            self._reads[token] = (read, extent)
            self._orders.say(ReadBytes(token, segment.number, offset, size))

    def _verify(self, read: _Read) -> None:
        records: list[PlacedRecord] = []
        for row, extent in read.rows:
            record = self._checked(read, row, extent)
            if record is None:
                break
            records.append(record)
        request = read.request
        if not records and read.attempt == 1:
            read.attempt = 2
            if read.segment is not None:
                key = STAGE_KEY | read.run.stage if read.run is not None else request.stream_id
                self.cache.drop(read.segment.number, key)
            self._seek(read)
        elif records:
            last = records[-1]
            self._orders.say(RecordsRead(request.token, records, last.first_sequence + last.count))
        else:
            self._name_damage(read)

    def _checked(self, read: _Read, row: Row, extent: int) -> PlacedRecord | None:
        chunk, segment, run = read.chunks[extent], read.segment, read.run
        assert chunk is not None
        assert segment is not None
        first, append_time_us, offset, size, count = row
        start = read.offsets[extent]
        view = record_at(memoryview(chunk), offset - start, segment.salt, start)
        if view is None:
            return None
        _, envelope, memory = view
        if len(memory) != size:
            return None
        if run is None:
            is_right = envelope.kind == RecordKind.BATCH and envelope.first_sequence == first
            return PlacedRecord(first, count, append_time_us, memory) if is_right else None
        if envelope.kind != RecordKind.STAGED or envelope.first_sequence != run.stage:
            return None
        # The bytes were read for this request alone, so the node's envelope is rewritten where it is.
        first += run.first_sequence
        memory[:ENVELOPE_SIZE] = renumbered(memory, first, run.append_time_us)
        return PlacedRecord(first, count, run.append_time_us, memory)

    def _name_damage(self, read: _Read) -> None:
        row, _ = read.rows[0]
        first = row.first if read.run is None else read.run.first_sequence + row.first
        segment = read.segment
        assert segment is not None
        where: dict[str, object] = {
            "segment": segment.number,
            "offset": row.offset,
            "size": row.size,
            "stream": read.request.stream_id,
            "first_sequence": first,
            "last_sequence": first + row.count - 1,
        }
        self._orders.say(Note("error", "journal-damaged", where))
        self._miss(read, first + row.count)

    # ── places by time ───────────────────────────────────────────────────────────────────────────────────────────────

    def _find(self, locate: _Locate) -> None:
        request = locate.request
        stream = self._catalogue.streams.get(request.stream_id)
        if stream is None:
            self._orders.say(Located(request.token, 1))
            return
        candidates = [stream.last_sequence + 1]
        published = stream.published
        place = bisect_left(published, request.append_time_us, key=lambda run: run.append_time_us)
        if place < len(published):
            candidates.append(published[place].first_sequence)
        in_batches = self._find_in_batches(stream, locate)
        if in_batches is None:
            return
        candidates.append(in_batches)
        self._orders.say(Located(request.token, max(stream.floor, min(candidates))))

    def _find_in_batches(self, stream: StreamPlaces, locate: _Locate) -> int | None:
        """The first sequence of a batch of that time or later, the head + 1 for none; None when rows must be loaded."""
        time_us, key = locate.request.append_time_us, stream.stream_id
        segments = self._catalogue.segments
        place = bisect_left(stream.segments, time_us, key=lambda number: segments[number].last_time_of(key))
        if place == len(stream.segments):
            return stream.last_sequence + 1
        segment = segments[stream.segments[place]]
        rows = self._rows_of(segment, key, locate)
        return None if rows is None else row_at(rows, find_time(rows, time_us)).first
