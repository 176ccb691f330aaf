"""What lies where: which segments hold which rows of which streams and stages, and what of it is still wanted.

    stream ── segments that hold its batches, ascending ─────────► segment ── rows by key (open) or summary (sealed)
          └── published runs ──► stage ── segments of its rows ──►

Invariants
    (1) A segment's `live_count` counts the keys in it of which something may still be wanted; at 0 and sealed it is
    dead.
    (2) A stream's segments ascend by sequence, and so do its published runs.
    (3) What is unknown here is dead: a key in a segment whose stream or stage is not in the tables is not wanted.
    (4) The published stages are those of the streams' runs; who lets go of a stream looks at no others but open ones.
Source: docs/internals/DESIGN.md, "Journal" and "Checkpoints and space".
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import msgspec

from veredus.delivery.record import RecordKind

from .exchange import StagesPublished, StagesUnwanted, StreamDropped, StreamTrimmed
from .index import ROW_WORDS, STAGE_KEY, Summary, add_row, no_rows, row_at, row_count, size_of_rows

PIECES_MAX = 16
"""Into about how many parts the rows of the open segment are told."""


class Extent(msgspec.Struct, frozen=True, order=True):
    """What is kept of a stream: sequences, bytes with envelopes and padding, publications, append times in µs.

    Sizes count whole segments' parts: what is trimmed within the first one still counts.
    """

    first_sequence: int
    last_sequence: int
    size: int
    count: int
    first_append_time_us: int
    last_append_time_us: int


class Part(msgspec.Struct, frozen=True, order=True):
    """A run of a stream's records that lie together; `size` in bytes, times in µs."""

    first_sequence: int
    last_sequence: int
    size: int
    first_append_time_us: int
    last_append_time_us: int


class Run(msgspec.Struct, frozen=True, order=True):
    """The rows of a published stage, in the stream."""

    first_sequence: int
    count: int
    stage: int
    append_time_us: int

    @property
    def last_sequence(self) -> int:
        """The sequence of the stage's last row."""
        return self.first_sequence + self.count - 1


@dataclass(slots=True)
class Segment:
    """One segment: `rows` while they are in memory (open, or its index not yet on disk), `summary` once sealed."""

    number: int
    salt: int
    size: int
    end: int
    rows: dict[int, array[int]] | None = None
    summary: Summary | None = None
    live_count: int = 0
    live_size: int = 0

    @property
    def is_sealed(self) -> bool:
        """Whether nothing is appended to it any more."""
        return self.summary is not None

    def holds(self, key: int) -> bool:
        """Whether anything of `key` lies here."""
        if self.rows is not None:
            return key in self.rows
        return self.summary is not None and self.summary.find(key) >= 0

    def part(self, key: int) -> Part:
        """What of `key` lies here. Raises `KeyError` when nothing does."""
        if self.rows is not None:
            return _part_of(self.rows[key])
        summary = self.summary
        place = -1 if summary is None else summary.find(key)
        if summary is None or place < 0:
            raise KeyError(key)
        return Part(
            summary.firsts[place], summary.lasts[place], summary.sizes[place],
            summary.first_times[place], summary.last_times[place],
        )  # fmt: skip

    def size_of(self, key: int) -> int:
        """How many bytes of `key`, with envelopes and padding, lie here."""
        return self.part(key).size if self.rows is None else size_of_rows(self.rows[key])

    def pieces(self, key: int) -> list[Part]:
        """What of `key` lies here, cut finer while the rows are in memory."""
        if self.rows is None:
            return [self.part(key)]
        rows = self.rows[key]
        step = max(1, row_count(rows) // PIECES_MAX) * ROW_WORDS
        return [_part_of(rows[at : at + step]) for at in range(0, len(rows), step)]

    def first_of(self, key: int) -> int:
        """The first sequence of `key` here."""
        if self.rows is not None:
            return self.rows[key][0]
        assert self.summary is not None
        return self.summary.firsts[self.summary.find(key)]

    def last_of(self, key: int) -> int:
        """The last sequence of `key` here."""
        if self.rows is not None:
            return row_at(self.rows[key], -1).last
        assert self.summary is not None
        return self.summary.lasts[self.summary.find(key)]

    def last_time_of(self, key: int) -> int:
        """The last append time of `key` here, in µs."""
        if self.rows is not None:
            return self.rows[key][-3]
        assert self.summary is not None
        return self.summary.last_times[self.summary.find(key)]


def _replaced(held: list[tuple[int, int]], numbers: list[int], place: tuple[int, int]) -> list[tuple[int, int]]:
    """The places with the run of those in `numbers` replaced by one."""
    index = next(index for index, (number, _) in enumerate(held) if number in numbers)
    behind = [one for one in held[index:] if one[0] not in numbers]
    return [*held[:index], place, *behind]


def _part_of(rows: array[int]) -> Part:
    first, last = row_at(rows, 0), row_at(rows, -1)
    return Part(first.first, last.last, size_of_rows(rows), first.append_time_us, last.append_time_us)


@dataclass(slots=True)
class StreamPlaces:
    """One stream: `floor` is the least sequence wanted; `size` in bytes of what is kept."""

    stream_id: int
    floor: int = 1
    last_sequence: int = 0
    last_time_us: int = 0
    size: int = 0
    segments: array[int] = field(default_factory=lambda: array("Q"))
    published: list[Run] = field(default_factory=list)


@dataclass(slots=True)
class StagePlaces:
    """One stage: `segments` with the count of rows before each; `first_sequence` is 0 until it is published."""

    stage: int
    stream_id: int
    row_count: int = 0
    size: int = 0
    segments: list[tuple[int, int]] = field(default_factory=list)
    first_sequence: int = 0


class Catalogue:
    """Owns the tables of segments, streams and stages of one journal."""

    __slots__ = ("_unpublished", "dead_size", "segments", "stages", "streams")

    def __init__(self) -> None:
        """Of an empty journal."""
        self.segments: dict[int, Segment] = {}
        self.streams: dict[int, StreamPlaces] = {}
        self.stages: dict[int, StagePlaces] = {}
        self._unpublished: dict[int, int] = {}
        """The streams of those of them that are not published."""
        self.dead_size = 0
        """The size of the sealed segments in which nothing is wanted, in bytes."""

    # ── growing ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def add_batch(
        self, segment: Segment, stream_id: int, first: int, count: int, append_time_us: int, offset: int, size: int
    ) -> None:
        """A batch of a stream lies in the open segment."""
        stream = self.streams.get(stream_id) or self.streams.setdefault(stream_id, StreamPlaces(stream_id))
        assert segment.rows is not None
        rows = segment.rows.get(stream_id)
        if rows is None:
            rows = segment.rows[stream_id] = no_rows()
            stream.segments.append(segment.number)
            segment.live_count += 1
        add_row(rows, first, append_time_us, offset, size, count)
        stream.last_sequence = first + count - 1
        stream.last_time_us = append_time_us
        stream.size += size
        segment.live_size += size

    def add_stage(self, places: StagePlaces) -> StagePlaces:
        """Know a stage from now on."""
        self.stages[places.stage] = places
        if not places.first_sequence:
            self._unpublished[places.stage] = places.stream_id
        return places

    def add_staged(
        self, segment: Segment, stage: int, stream_id: int, count: int, append_time_us: int, offset: int, size: int
    ) -> None:
        """A batch under a stage lies in the open segment."""
        places = self.stages.get(stage) or self.add_stage(StagePlaces(stage, stream_id))
        assert segment.rows is not None
        rows = segment.rows.get(STAGE_KEY | stage)
        if rows is None:
            rows = segment.rows[STAGE_KEY | stage] = no_rows()
            places.segments.append((segment.number, places.row_count))
            segment.live_count += 1
        add_row(rows, places.row_count, append_time_us, offset, size, count)
        places.row_count += count
        places.size += size
        segment.live_size += size

    def add(
        self, segment: Segment, kind: int, ids: tuple[int, int, int], append_time_us: int, offset: int, size: int
    ) -> None:
        """A record lies in the open segment; `ids` are its stream's id, its first sequence (or stage) and its count."""
        stream_id, first, count = ids
        if kind == RecordKind.BATCH:
            self.add_batch(segment, stream_id, first, count, append_time_us, offset, size)
        elif kind == RecordKind.STAGED:
            self.add_staged(segment, first, stream_id, count, append_time_us, offset, size)

    def seal(self, segment: Segment, summary: Summary) -> None:
        """Nothing more is appended to the segment; its rows may leave memory once its index is on disk."""
        segment.summary = summary
        if segment.live_count == 0:
            self.dead_size += segment.size
        for key, last in zip(summary.keys.tolist(), summary.lasts.tolist(), strict=True):
            stream = self.streams.get(key)
            if stream is not None and last < stream.floor:
                self.trim(key, stream.floor)

    def adopt(self, segment: Segment) -> None:
        """Take in a sealed segment that was there before; segments come in ascending order, tables first."""
        self.segments[segment.number] = segment
        summary = segment.summary
        assert summary is not None
        for key, last, size in zip(summary.keys.tolist(), summary.lasts.tolist(), summary.sizes.tolist(), strict=True):
            self._adopt(segment, key, last, size)
        if segment.live_count == 0:
            self.dead_size += segment.size

    def adopt_key(self, segment: Segment, key: int) -> None:
        """Take in one key of the open segment that was there before."""
        part = segment.part(key)
        self._adopt(segment, key, part.last_sequence, part.size)

    def _adopt(self, segment: Segment, key: int, last: int, size: int) -> None:
        if key >= STAGE_KEY:
            if key - STAGE_KEY not in self.stages:
                return
        else:
            stream = self.streams.get(key)
            # The open segment may yet take more of the stream: it is looked at again when it is sealed.
            if stream is None or (segment.is_sealed and last < stream.floor):
                return
            stream.segments.append(segment.number)
            stream.size += size
        segment.live_count += 1
        segment.live_size += size

    def forget_lost_places(self) -> None:
        """Stages point no more to segments that are gone, or in which nothing of theirs is sound."""
        for stage in self.stages.values():
            stage.segments = [
                (number, first)
                for number, first in stage.segments
                if number in self.segments and self.segments[number].holds(STAGE_KEY | stage.stage)
            ]

    # ── publishing and letting go ────────────────────────────────────────────────────────────────────────────────────

    def publish(self, places: Iterable[tuple[int, int, int]], append_time_us: int) -> None:
        """The rows of stages are streams': the stage, the stream's id and the first sequence of each."""
        touched: dict[int, StreamPlaces] = {}
        for number, stream_id, first_sequence in places:
            stage = self.stages.get(number)
            if stage is None:
                continue
            stream = self.streams.get(stream_id) or self.streams.setdefault(stream_id, StreamPlaces(stream_id))
            stage.first_sequence = first_sequence
            self._unpublished.pop(number, None)
            stream.published.append(Run(first_sequence, stage.row_count, number, append_time_us))
            stream.size += stage.size
            stream.last_sequence = max(stream.last_sequence, first_sequence + stage.row_count - 1)
            touched[stream_id] = stream
        for stream_id, stream in touched.items():
            stream.last_time_us = max(stream.last_time_us, append_time_us)
            self.trim(stream_id, stream.floor)

    def drop_stages(self, stages: Iterable[int]) -> None:
        """Nothing of these stages is wanted."""
        for stage in stages:
            self._unpublished.pop(stage, None)
            places = self.stages.pop(stage, None)
            for number, _ in places.segments if places is not None else ():
                self._release(self.segments[number], STAGE_KEY | stage)

    def trim(self, stream_id: int, floor: int) -> None:
        """Nothing of the stream below `floor` is wanted."""
        stream = self.streams.get(stream_id)
        if stream is None:
            return
        stream.floor = max(stream.floor, floor)
        while stream.segments:
            segment = self.segments[stream.segments[0]]
            # The open segment may yet take more of the stream: it is looked at again when it is sealed.
            if not segment.is_sealed or segment.last_of(stream_id) >= stream.floor:
                break
            stream.segments.pop(0)
            stream.size -= self._release(segment, stream_id)
        gone_count = bisect_left(stream.published, stream.floor, key=lambda run: run.last_sequence)
        gone = [run.stage for run in stream.published[:gone_count]]
        del stream.published[:gone_count]
        stream.size -= sum(self.stages[stage].size for stage in gone)
        self.drop_stages(gone)

    def drop_stream(self, stream_id: int) -> None:
        """Nothing of the stream is wanted, nor of the stages that were meant for it."""
        stages = [stage for stage, meant_for in self._unpublished.items() if meant_for == stream_id]
        stream = self.streams.pop(stream_id, None)
        if stream is not None:
            for number in stream.segments:
                self._release(self.segments[number], stream_id)
            stages += [run.stage for run in stream.published]
        self.drop_stages(stages)

    def wanted_from(self, segment: Segment, key: int) -> int | None:
        """From which `first` on the rows of `key` in a sealed segment are wanted; None when none of them is."""
        if key < STAGE_KEY:
            stream = self.streams.get(key)
            return stream.floor if stream is not None and segment.last_of(key) >= stream.floor else None
        stage = self.stages.get(key - STAGE_KEY)
        if stage is None:
            return None
        if not stage.first_sequence:
            return 0
        return max(0, self.streams[stage.stream_id].floor - stage.first_sequence)

    def replace(self, old: list[Segment], new: Segment) -> None:
        """What was wanted of these neighbours lies in `new`, which is sealed: point there."""
        numbers = [segment.number for segment in old]
        self.segments[new.number] = new
        assert new.summary is not None
        for key, first, size in zip(new.summary.keys, new.summary.firsts, new.summary.sizes, strict=True):
            if key >= STAGE_KEY:
                stage = self.stages.get(key - STAGE_KEY)
                if stage is None:
                    continue
                stage.segments = _replaced(stage.segments, numbers, (new.number, first))
            else:
                stream = self.streams.get(key)
                if stream is None or new.last_of(key) < stream.floor:
                    continue
                gone = [number for number in stream.segments if number in numbers]
                stream.size += size - sum(self.segments[number].size_of(key) for number in gone)
                held = [(number, 0) for number in stream.segments]
                stream.segments = array("Q", [number for number, _ in _replaced(held, numbers, (new.number, 0))])
            new.live_count += 1
            new.live_size += size
        for segment in old:
            self._forget_stages(segment, new)
            if segment.live_count:
                self.dead_size += segment.size
            segment.live_count = segment.live_size = 0
        if not new.live_count:
            self.dead_size += new.size

    def _forget_stages(self, old: Segment, new: Segment) -> None:
        """A published stage of which the floor has passed all that lay here has nothing in `new`, but may elsewhere."""
        assert old.summary is not None
        assert new.summary is not None
        for key in old.summary.keys[bisect_left(old.summary.keys, STAGE_KEY) :]:
            stage = self.stages.get(key - STAGE_KEY)
            if stage is not None and new.summary.find(key) < 0:
                stage.segments = [place for place in stage.segments if place[0] != old.number]

    def forget(self, number: int) -> None:
        """A dead segment is gone."""
        segment = self.segments.pop(number)
        self.dead_size -= segment.size

    def _release(self, segment: Segment, key: int) -> int:
        size = segment.size_of(key)
        segment.live_count -= 1
        segment.live_size -= size
        if segment.live_count == 0 and segment.is_sealed:
            self.dead_size += segment.size
        return size

    def hear(self, event: StagesPublished | StagesUnwanted | StreamTrimmed | StreamDropped) -> None:
        """Take what the floor above knows."""
        match event:
            case StagesPublished(places, append_time_us):
                self.publish(places, append_time_us)
            case StagesUnwanted(stages):
                self.drop_stages(stages)
            case StreamTrimmed(stream_id, floor_sequence):
                self.trim(stream_id, floor_sequence)
            case StreamDropped(stream_id):
                self.drop_stream(stream_id)

    # ── asking ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def find_run(self, stream: StreamPlaces, sequence: int) -> tuple[Run | None, Run | None]:
        """The published run that holds `sequence`, and the first one that starts behind it."""
        published = stream.published
        place = bisect_right(published, sequence, key=lambda run: run.first_sequence)
        run = published[place - 1] if place else None
        behind = published[place] if place < len(published) else None
        return (run if run is not None and sequence <= run.last_sequence else None), behind

    def find_segment(self, stream: StreamPlaces, sequence: int) -> tuple[Segment | None, Segment | None]:
        """The segment whose batches of the stream reach over `sequence`, and the first one whose start behind it."""
        segments, key = stream.segments, stream.stream_id
        place = bisect_right(segments, sequence, key=lambda number: self.segments[number].first_of(key))
        segment = self.segments[segments[place - 1]] if place else None
        behind = self.segments[segments[place]] if place < len(segments) else None
        return (segment if segment is not None and sequence <= segment.last_of(key) else None), behind

    def missing(self, gaps: Iterable[tuple[int, int, int]]) -> Iterator[tuple[int, int, int]]:
        """What of gaps, (stream's id, first sequence, last), is wanted and lies in no stage either."""
        for stream_id, first, last in gaps:
            stream = self.streams.get(stream_id)
            if stream is None:
                continue
            first = max(first, stream.floor)
            for run in stream.published:
                if first <= run.last_sequence and run.first_sequence <= last:
                    if first < run.first_sequence:
                        yield stream_id, first, run.first_sequence - 1
                    first = run.last_sequence + 1
            if first <= last:
                yield stream_id, first, last

    def extent(self, stream_id: int) -> Extent:
        """What is kept of the stream; all zero, from sequence 1, for one that is unknown."""
        stream = self.streams.get(stream_id)
        if stream is None:
            return Extent(1, 0, 0, 0, 0, 0)
        times = [run.append_time_us for run in stream.published[:1]]
        if stream.segments:
            times.append(self.segments[stream.segments[0]].part(stream_id).first_append_time_us)
        count = max(0, stream.last_sequence - stream.floor + 1)
        return Extent(
            stream.floor, stream.last_sequence, stream.size, count, min(times, default=0), stream.last_time_us
        )

    def parts(self, stream_id: int) -> list[Part]:
        """The runs in which a stream is kept, ascending by their first sequence: where it can be cut without
        reading.
        """
        stream = self.streams.get(stream_id)
        if stream is None:
            return []
        parts = [part for number in stream.segments for part in self.segments[number].pieces(stream_id)]
        for run in stream.published:
            size = self.stages[run.stage].size
            parts.append(Part(run.first_sequence, run.last_sequence, size, run.append_time_us, run.append_time_us))
        return sorted(parts)

    def check(self) -> None:
        """Repeat the invariants."""
        live = dict.fromkeys(self.segments, 0)
        for stream in self.streams.values():
            firsts = [self.segments[number].first_of(stream.stream_id) for number in stream.segments]
            assert firsts == sorted(firsts), "(2)"
            assert stream.published == sorted(stream.published), "(2)"
            for number in stream.segments:
                live[number] += 1
        for places in self.stages.values():
            for number, _ in places.segments:
                live[number] += 1
        assert self._unpublished == {n: p.stream_id for n, p in self.stages.items() if not p.first_sequence}, "(4)"
        assert live == {number: segment.live_count for number, segment in self.segments.items()}, "(1)"
        dead = sum(s.size for s in self.segments.values() if s.is_sealed and s.live_count == 0)
        assert dead == self.dead_size, "(1)"
