"""Looks through a whole journal without changing it: what lies in each segment, and what is not sound.

It first goes the way of recovery, whose cuts and removals are not carried out, then walks through every segment that
holds something wanted. `journal-damaged` names a stretch that was once durable and is unsound; `journal-torn-tail`
one that recovery would set aside and cut, since nothing says that it ever was. What recovery replays is handed out: who
knows what facts mean can tell whether all that is kept belongs to something.
Source: docs/internals/DESIGN.md, "Recovery".
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar, cast

from veredus.delivery.record import RecordKind, RecordView
from veredus.kernel.effects import Note

from .beginning import name_excess, read_segment, read_summary
from .catalogue import Catalogue, Extent, Segment
from .layout import (
    CONTINUED,
    FORMAT_VERSION,
    SEGMENT_HEADER_SIZE,
    Position,
    batch_ids,
    decode_segment_header,
    index_name,
    number_of,
    ordinal_of,
    segment_headers,
    segment_name,
)
from .recovery import recover
from .scan import Unsound, description, last_trace, walk
from .settings import LogSettings, Recovered
from .steps import Answer, CheckpointLoaded, ReadFile, RecoveryOrder, Replayed

T = TypeVar("T")


@dataclass(slots=True)
class SegmentReport:
    """What lies in one segment; `size` and `end` in bytes, `record_counts` by kind, without the records that open
    groups.
    """

    number: int
    size: int
    end: int
    is_open: bool
    group_count: int = 0
    record_counts: dict[str, int] = field(default_factory=dict)
    row_count: int = 0
    stream_ids: list[int] = field(default_factory=list)
    damage: list[dict[str, object]] = field(default_factory=list)


@dataclass(slots=True)
class Report:
    """What lies in a journal. `is_sound` when nothing that was once durable is damaged; a torn tail is no damage."""

    format_version: int
    journal_id: bytes
    position: Position
    is_clean: bool
    segments: list[SegmentReport]
    free: list[int]
    """Segments in which nothing is wanted."""
    notes: list[Note]
    """What recovery would say, and what is wrong with index files and checkpoints."""
    extents: dict[int, Extent]
    """What is kept of each stream, by its id."""
    catalogue: Catalogue
    """To be told what the floor above knows, before `missing` is asked for."""
    gaps: list[tuple[int, int, int]]

    @property
    def is_sound(self) -> bool:
        """Whether nothing is lost."""
        return not any(segment.damage for segment in self.segments) and not any(n.level == "error" for n in self.notes)

    @property
    def missing(self) -> list[tuple[int, int, int]]:
        """The sequences of streams that damage took, as far as later ones are there: (stream's id, first, last)."""
        return list(self.catalogue.missing(self.gaps))


@dataclass(frozen=True, slots=True)
class DumpedRecord:
    """One record of a segment. `first_sequence` is the stage for a staged batch; `payload` is a fact's, empty else."""

    segment: int
    offset: int
    size: int
    kind: str
    stream_id: int
    first_sequence: int
    count: int
    append_time_us: int
    is_continued: bool
    payload: bytes


Verifying: TypeAlias = Generator[ReadFile | CheckpointLoaded | Replayed, Answer, Report]
Dumping: TypeAlias = Generator["RecoveryOrder | DumpedRecord", Answer, None]


def verify(listing: Mapping[str, int], settings: LogSettings) -> Verifying:
    """Look through the files in `listing`. Raises what recovery raises when it cannot go on at all."""
    notes: list[Note] = []
    recovered = yield from rehearse(listing, settings, notes)
    segments = sorted(recovered.catalogue.segments.values(), key=lambda segment: ordinal_of(segment.number))
    reports: list[SegmentReport] = []
    for segment in segments:
        if segment_name(segment.number) in listing:
            reports.append((yield from _verify_segment(segment, listing, recovered)))
            notes += yield from _verify_index(segment, listing, recovered.journal_id)
    held = {segment.number for segment in segments}
    numbers = (number_of(name, ".segment") for name in listing if name not in recovered.foreign)
    free = sorted(number for number in numbers if number is not None and number not in held)
    extents = {stream_id: recovered.catalogue.extent(stream_id) for stream_id in recovered.catalogue.streams}
    return Report(
        FORMAT_VERSION, recovered.journal_id, recovered.position, recovered.is_clean, reports, free, notes, extents,
        recovered.catalogue, recovered.gaps,
    )  # fmt: skip


def rehearse(
    listing: Mapping[str, int], settings: LogSettings, notes: list[Note]
) -> Generator[ReadFile | CheckpointLoaded | Replayed, Answer, Recovered]:
    """What recovery would find, and hands out, without changing anything; what it would say goes to `notes`.

    Raises what recovery raises when it cannot go on at all.
    """
    return _without_hands(recover(listing, settings, bytes(16)), notes)


def _without_hands(
    steps: Generator[RecoveryOrder, Answer, T], notes: list[Note]
) -> Generator[ReadFile | CheckpointLoaded | Replayed, Answer, T]:
    """Go the way of recovery, and change nothing; what it says goes to `notes`."""
    answer: Answer = None
    while True:
        try:
            order = steps.send(answer)
        except StopIteration as end:
            return cast(T, end.value)
        answer = None
        if isinstance(order, ReadFile):
            answer = yield order
        elif isinstance(order, CheckpointLoaded | Replayed):
            yield order
        elif isinstance(order, Note) and order.event != "journal-damaged":
            notes.append(order)


def _verify_segment(
    segment: Segment, listing: Mapping[str, int], recovered: Recovered
) -> Generator[ReadFile, Answer, SegmentReport]:
    number = segment.number
    name = segment_name(number)
    report = SegmentReport(number, listing[name], segment.end, segment is recovered.open_segment)
    data = yield ReadFile(name, 0, segment.end)
    if data is None:
        report.damage.append({"segment": number, "offset": 0, "size": segment.end, "what": "cannot be read"})
        return report
    view = memoryview(data)
    headers = segment_headers(view)
    if any(head is None or (head.number, head.journal_id) != (number, recovered.journal_id) for head in headers):
        report.damage.append({"segment": number, "offset": 0, "size": SEGMENT_HEADER_SIZE, "what": "header"})
    stream_ids: dict[int, None] = {}
    for found in walk(view, SEGMENT_HEADER_SIZE, segment.end, number, segment.salt):
        if isinstance(found, Unsound):
            report.damage.append(description(view, found, number, segment.salt))
        elif found.envelope.kind == RecordKind.GROUP:
            report.group_count += 1
        else:
            kind = _kind_name(found)
            report.record_counts[kind] = report.record_counts.get(kind, 0) + 1
            if found.envelope.kind in (RecordKind.BATCH, RecordKind.STAGED):
                stream_id, count, _ = batch_ids(found.memory)
                stream_ids[stream_id] = None
                report.row_count += count
    report.stream_ids = sorted(stream_ids)
    return report


def _verify_index(
    segment: Segment, listing: Mapping[str, int], journal_id: bytes
) -> Generator[ReadFile | CheckpointLoaded | Replayed, Answer, list[Note]]:
    """What is wrong with a sealed segment's index: never more than a warning, for it is made again from the segment."""
    name = index_name(segment.number)
    if not segment.is_sealed or name not in listing:
        return []
    summary = yield from _without_hands(read_summary(segment.number, segment.end, journal_id, listing), [])
    if summary is not None:
        places = [summary.rows_place(place) for place in range(len(summary.keys))]
        data = yield ReadFile(name, 0, max((offset + size for offset, size in places), default=0))
        view = memoryview(b"" if data is None else data)
        if all(
            summary.checked_rows(place, view[offset : offset + size]) is not None
            for place, (offset, size) in enumerate(places)
        ):
            return []
    return [Note("warning", "journal-index-damaged", {"segment": segment.number})]


def _kind_name(view: RecordView) -> str:
    kind = view.envelope.kind
    return RecordKind(kind).name.lower() if kind in set(RecordKind) else f"kind {kind}"


def dump(listing: Mapping[str, int], numbers: list[int] | None = None) -> Dumping:
    """Every sound record of these segments (of all, for None), in order; what is unsound is noted in between.

    Of a segment that was recycled, records end where its own end.
    """
    present = (number_of(name, ".segment") for name in listing)
    wanted = sorted((number for number in present if number is not None), key=ordinal_of)
    for number in wanted:
        if numbers is not None and number not in numbers:
            continue
        data = yield from read_segment(number, listing)
        header = None if data is None else decode_segment_header(data)
        if data is None or header is None or header.number != number:
            yield Note("error", "journal-segment-unreadable", {"segment": number})
            continue
        yield from name_excess(segment_name(number), listing, len(data))
        yield from _dump_segment(data, number, header.salt)


def _dump_segment(data: memoryview, number: int, salt: int) -> Dumping:
    end = last_trace(data, SEGMENT_HEADER_SIZE, salt)
    for found in walk(data, SEGMENT_HEADER_SIZE, end, number, salt):
        if isinstance(found, Unsound):
            yield Note("error", "journal-unsound", description(data, found, number, salt))
            continue
        envelope = found.envelope
        is_batch = envelope.kind in (RecordKind.BATCH, RecordKind.STAGED)
        stream_id, count, _ = batch_ids(found.memory) if is_batch else (0, 0, 0)
        yield DumpedRecord(
            number,
            found.offset,
            len(found.memory),
            _kind_name(found),
            stream_id,
            envelope.first_sequence,
            count,
            envelope.append_time_us,
            bool(envelope.flags & CONTINUED),
            bytes(found.payload) if envelope.kind == RecordKind.FACT else b"",
        )
