"""Moves what is still wanted out of mostly dead segments: a quiet stream does not keep all that was beside it.

    after a checkpoint: a run of neighbours with little left ──► their rows ──► their records ──► one new file
        ──► the catalogue points there ──► the old ones are dead, and go with the next checkpoint

The new segment has the ordinal of the last old one, of the next generation: the order of the series stays as it was,
sequences and append times too. Only envelopes are written anew, for they carry the segment's salt and their place.

Invariants
    (1) Until the new file is durable nothing points to it; until a checkpoint names it the old ones stay. So a crash
        at any moment finds either all of the old ones or the new one in the last checkpoint.
    (2) Records are copied only if they are sound; a segment with one that is not is left alone.
    (3) One cleaning is under way at a time.
Source: docs/internals/DESIGN.md, "Checkpoints and space".
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass, field

from veredus.delivery.record import read_envelope, write_envelope
from veredus.kernel.effects import Note
from veredus.kernel.engine import Now
from veredus.kernel.octets import Octets

from .catalogue import Catalogue, Segment
from .exchange import BytesFailed, BytesRead, FileFailed, FileWritten, ReadBytes, WriteFile
from .index import INDEX_HEADER_SIZE, ROW_SIZE, Row, add_row, no_rows, row_at, row_count
from .layout import (
    CONTINUED,
    GROUP_RECORD_SIZE,
    SEGMENT_HEADER_SIZE,
    GroupHeader,
    Position,
    cleaned_number,
    encode_group,
    encode_segment_header,
    ordinal_of,
    record_at,
    salt_at,
    salt_of,
    segment_name,
)
from .orders import Orders
from .settings import LogSettings

READS_MAX = 64
GAP_SIZE_MAX = 4 << 10
RUN_COUNT_MIN = 8
MOSTLY_DEAD = 8
"""A segment is mostly dead when at most one part in so many is wanted."""


@dataclass(slots=True)
class _Cleaning:
    """One run of segments being cleaned. `rows` are those of the old segment that is being read, by offset."""

    old: list[Segment]
    reading: int = 0
    rows: list[tuple[int, Row]] = field(default_factory=list)
    next_row: int = 0
    chunks: dict[int, tuple[int, list[tuple[int, Row]]]] = field(default_factory=dict)
    copied: list[tuple[int, Row, bytearray]] = field(default_factory=list)
    token: int = 0
    new: Segment | None = None


class Cleaner:
    """Owns the cleaning that is under way, and what was found not to be worth another try."""

    __slots__ = ("_catalogue", "_cleaning", "_journal_id", "_on_sealed", "_orders", "_settings", "_unsound")

    def __init__(
        self,
        settings: LogSettings,
        catalogue: Catalogue,
        journal_id: bytes,
        orders: Orders,
        on_sealed: Callable[[Segment], None],
    ) -> None:
        """Clean the segments of `catalogue`. `on_sealed` summarises a new segment and writes its index."""
        self._on_sealed = on_sealed
        self._settings = settings
        self._catalogue = catalogue
        self._journal_id = journal_id
        self._orders = orders
        self._cleaning: _Cleaning | None = None
        self._unsound: dict[int, None] = {}

    def consider(self) -> None:
        """Begin to clean, if there is a run of segments that is worth it and nothing else is being cleaned."""
        run = self._run_worth_cleaning() if self._cleaning is None else []
        if run:
            self._cleaning = _Cleaning(run)
            self._read_rows(self._cleaning)

    def _run_worth_cleaning(self) -> list[Segment]:
        """The first run of neighbours with little left in them that together give back half a segment, or are many."""
        segment_size = self._settings.segment_size
        run: list[Segment] = []
        live_size = waste = 0
        segments = sorted(self._catalogue.segments.values(), key=lambda segment: ordinal_of(segment.number))
        for segment in segments:
            is_open = not segment.is_sealed
            if segment.live_count == 0 and not is_open:
                continue
            is_candidate = (
                not is_open
                and segment.rows is None
                and segment.number not in self._unsound
                and segment.live_size * MOSTLY_DEAD <= segment_size
            )
            if is_candidate and (live_size + segment.live_size) * 2 <= segment_size:
                run.append(segment)
                live_size += segment.live_size
                waste += segment.size - segment.live_size
                continue
            if waste * 2 >= segment_size or len(run) >= RUN_COUNT_MIN:
                break
            run = [segment] if is_candidate else []
            live_size = segment.live_size if is_candidate else 0
            waste = segment.size - segment.live_size if is_candidate else 0
        return run if waste * 2 >= segment_size or len(run) >= RUN_COUNT_MIN else []

    def _give_up(self, cleaning: _Cleaning) -> None:
        if cleaning.reading < len(cleaning.old):
            self._unsound[cleaning.old[cleaning.reading].number] = None
        self._cleaning = None

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _read_rows(self, cleaning: _Cleaning) -> None:
        segment = cleaning.old[cleaning.reading]
        summary = segment.summary
        assert summary is not None
        size = sum(summary.counts) * ROW_SIZE
        cleaning.token = self._orders.token()
        offset = INDEX_HEADER_SIZE + len(summary.data)
        self._orders.say(ReadBytes(cleaning.token, segment.number, offset, size, is_index=True))

    def take_bytes(self, event: BytesRead | BytesFailed, now: Now) -> None:
        """Bytes came, or will not come; those of others are passed over."""
        cleaning = self._cleaning
        if cleaning is None:
            return
        data: Octets = event.data if isinstance(event, BytesRead) else b""
        if event.token == cleaning.token:
            cleaning.token = 0
            self._take_rows(cleaning, memoryview(data), now)
        elif event.token in cleaning.chunks:
            offset, rows = cleaning.chunks.pop(event.token)
            if not self._copy(cleaning, memoryview(data), offset, rows):
                self._give_up(cleaning)
            elif not cleaning.chunks:
                self._read_records(cleaning, now)

    def _take_rows(self, cleaning: _Cleaning, data: memoryview, now: Now) -> None:
        segment = cleaning.old[cleaning.reading]
        summary = segment.summary
        assert summary is not None
        cleaning.rows, cleaning.next_row = [], 0
        for place, key in enumerate(summary.keys):
            floor = self._catalogue.wanted_from(segment, key)
            if floor is None:
                continue
            start, size = summary.starts[place] * ROW_SIZE, summary.counts[place] * ROW_SIZE
            rows = summary.checked_rows(place, data[start : start + size])
            if rows is None:
                self._give_up(cleaning)
                return
            held = (row_at(rows, index) for index in range(row_count(rows)))
            cleaning.rows += [(key, row) for row in held if row.last >= floor]
        cleaning.rows.sort(key=lambda keyed: keyed[1].offset)
        self._read_records(cleaning, now)

    def _read_records(self, cleaning: _Cleaning, now: Now) -> None:
        """Order the next records of the segment; at its end go on with the next one; at the last one's end write.

        The chunks are answered in their order, so what is copied stays in the order in which it lay.
        """
        if cleaning.next_row == len(cleaning.rows):
            cleaning.reading += 1
            if cleaning.reading < len(cleaning.old):
                self._read_rows(cleaning)
            else:
                self._write(cleaning, now)
            return
        number = cleaning.old[cleaning.reading].number
        while cleaning.next_row < len(cleaning.rows) and len(cleaning.chunks) < READS_MAX:
            first = cleaning.next_row
            end = cleaning.rows[first][1].offset
            place = first
            while place < len(cleaning.rows) and cleaning.rows[place][1].offset - end <= GAP_SIZE_MAX:
                end = cleaning.rows[place][1].offset + cleaning.rows[place][1].size
                place += 1
            offset = cleaning.rows[first][1].offset
            token = self._orders.token()
            cleaning.chunks[token] = (offset, cleaning.rows[first:place])
            cleaning.next_row = place
            self._orders.say(ReadBytes(token, number, offset, end - offset))

    def _copy(self, cleaning: _Cleaning, data: memoryview, offset: int, rows: list[tuple[int, Row]]) -> bool:
        """Keep the records; False when one of them is not sound."""
        salt = cleaning.old[cleaning.reading].salt
        for key, row in rows:
            view = record_at(data, row.offset - offset, salt, offset)
            if view is None or len(view.memory) != row.size:
                return False
            cleaning.copied.append((key, row, bytearray(view.memory)))
        return True

    # ── writing ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _write(self, cleaning: _Cleaning, now: Now) -> None:
        number = cleaned_number([segment.number for segment in cleaning.old])
        salt = salt_of(self._journal_id, number)
        offset = SEGMENT_HEADER_SIZE + GROUP_RECORD_SIZE
        rows_by_key: dict[int, array[int]] = {}
        for key, row, record in cleaning.copied:
            envelope = read_envelope(record)
            assert envelope is not None
            write_envelope(record, envelope._replace(salt=salt_at(salt, offset), flags=envelope.flags & ~CONTINUED))
            rows = rows_by_key.setdefault(key, no_rows())
            add_row(rows, row.first, row.append_time_us, offset, row.size, row.count)
            offset += row.size
        start = Position(number, SEGMENT_HEADER_SIZE)
        group = GroupHeader(start, offset - SEGMENT_HEADER_SIZE, Position(0, 0), Position(0, 0))
        cleaning.new = Segment(number, salt, offset, offset, rows=rows_by_key)
        cleaning.token = self._orders.token()
        buffers: list[Octets] = [
            encode_segment_header(number, offset, self._journal_id, now.wall_us),
            encode_group(group, salt, 0, now.wall_us),
            *(record for _, _, record in cleaning.copied),
        ]
        self._orders.say(WriteFile(cleaning.token, segment_name(number), buffers))

    def file_written(self, event: FileWritten) -> None:
        """The new segment is durable: point to it, and let the old ones die."""
        cleaning = self._cleaning
        if cleaning is None or cleaning.new is None or cleaning.token != event.token:
            return
        self._cleaning = None
        self._on_sealed(cleaning.new)
        self._catalogue.replace(cleaning.old, cleaning.new)
        fields: dict[str, object] = {
            "segments": [segment.number for segment in cleaning.old],
            "kept_in": cleaning.new.number,
            "kept_size": cleaning.new.size,
        }
        self._orders.say(Note("info", "journal-cleaned", fields))

    def file_failed(self, event: FileFailed) -> None:
        """The new segment could not be written: everything stays as it is, until the next checkpoint."""
        if self._cleaning is not None and self._cleaning.token == event.token:
            self._cleaning = None
