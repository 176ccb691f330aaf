"""Finds out what a journal's directory holds, after a clean stop or after any other.

    checkpoint ──► index summaries of the sealed segments ──► closed? ── yes ──► done, no record was read
                                                                │ no, or the segments refute it
                                                                ▼
    group by group behind the checkpoint: all sound ──► replayed ──► the next one
         │ something is not sound
         ├── the next segment goes on exactly here ──────────────────────► on in the next segment
         ├── a later sound group says that this place was durable ──► DAMAGE: named, kept aside; on behind it
         └── none does ─► TORN: the sound beginning of the group is kept, the rest kept aside and cleared; the end
                                └── a segment was made behind it, and is gone ─► MISSING: named

The generator orders what it needs from the host, which answers (`RecoveryOrder`), and hands out what was found: first
the checkpoint's state, then each record behind it, in order. The checkpoint and what was replayed are synced before it
ends: what was read may not have been on the platter, nor the name of the file.

Invariants
    (1) A record is replayed only if it is sound, carries its place's salt, and lies in a group or in a place known
    to have been durable.
    (2) Requests that were one append are replayed all or not at all, unless damage took some.
    (3) What is cleared or skipped has been set aside before. No segment that may be missed is removed or cut.
Source: docs/internals/DESIGN.md, "Recovery"; guarantee 6.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping

from veredus.delivery.record import RecordKind, RecordView
from veredus.kernel.effects import Note
from veredus.kernel.octets import ALIGNMENT

from .beginning import is_own, name_excess, read_segment, read_summary
from .belonging import Belongings, go_without, keep_apart, sort_out
from .catalogue import Catalogue, Segment, StagePlaces
from .checkpoint import (
    CHECKPOINT_NAME,
    CLOSED_NAME,
    CLOSED_SIZE,
    COPY_NAME,
    Checkpoint,
    SegmentRow,
    ascending,
    open_segment_of,
    tables_of,
)
from .index import STAGE_KEY, build_index
from .layout import (
    GROUP_RECORD_SIZE,
    SEGMENT_HEADER_SIZE,
    GroupHeader,
    Position,
    batch_ids,
    growth_of,
    number_of,
    ordinal_of,
    salt_of,
    segment_name,
)
from .missing import kept_of, name_missing
from .scan import (
    Unsound,
    collect_rows,
    description,
    group_at,
    groups_from,
    is_blank,
    last_trace,
    records_between,
    sound_beginning,
    walk,
)
from .settings import LogSettings, Recovered, empty_journal, recovered_from
from .steps import (
    Answer,
    CheckpointLoaded,
    ClearFile,
    ReadFile,
    RecoveryOrder,
    RemoveFile,
    Replayed,
    SetAside,
    Steps,
    SyncFile,
)


def recover(
    listing: Mapping[str, int], settings: LogSettings, new_journal_id: bytes
) -> Generator[RecoveryOrder, Answer, Recovered]:
    """What the files in `listing` (sizes by name) hold; `new_journal_id` names the journal if it is a new one.

    Raises `Refused("newer-format")`, `Refused("older-format")`, and `Refused("journal-damaged")` when too much is gone
    to go on.
    """
    belongings = yield from sort_out(listing)
    listing, checkpoint = belongings.listing, belongings.checkpoint
    if checkpoint is None:
        if not any(map(is_own, listing)):
            return empty_journal(new_journal_id)
        journal_id = yield from go_without(belongings, new_journal_id)
        recovery = _Recovery(belongings, empty_journal(journal_id), ())
    else:
        yield CheckpointLoaded(checkpoint.state)
        yield from map(SyncFile, sorted({CHECKPOINT_NAME, COPY_NAME} & listing.keys()))
        recovery = yield from _after_checkpoint(checkpoint, belongings)
    closed = (yield ReadFile(CLOSED_NAME, 0, CLOSED_SIZE)) if CLOSED_NAME in listing else None
    is_closed = checkpoint is not None and closed is not None and bytes(closed) == belongings.crc
    if not is_closed or (yield from recovery.is_refuted()):
        yield from recovery.scan()
    if checkpoint is not None and listing.get(CLOSED_NAME) == CLOSED_SIZE and not is_closed:
        # A later one was there, so what was appended before that may be gone from the end.
        yield Note("error", "journal-checkpoint-missing", {"file": CLOSED_NAME})
        recovery.recovered.is_damaged = True
    if CLOSED_NAME in listing:
        yield RemoveFile(CLOSED_NAME)
    yield from recovery.sort_rest(settings)
    recovery.recovered.foreign = yield from keep_apart(belongings)
    return recovery.recovered


def _after_checkpoint(checkpoint: Checkpoint, belongings: Belongings) -> Generator[RecoveryOrder, Answer, _Recovery]:
    catalogue = tables_of(checkpoint)
    recovered = recovered_from(checkpoint, catalogue, belongings.checkpoint_size)
    recovery = _Recovery(belongings, recovered, checkpoint.dropped_keys)
    for row in ascending(checkpoint.segments):
        yield from recovery.adopt(row)
    yield from recovery.adopt_open(checkpoint)
    catalogue.forget_lost_places()
    return recovery


class _Recovery:
    """Owns what was found so far: `recovered`, whose `position` is the end of what was replayed."""

    def __init__(self, belongings: Belongings, recovered: Recovered, dropped_keys: Iterable[int]) -> None:
        self.belongings = belongings
        self.listing = belongings.listing
        self.recovered = recovered
        self.newest = belongings.newest
        self.catalogue: Catalogue = recovered.catalogue
        self.dropped_keys = frozenset(dropped_keys)
        self._is_behind_damage = False
        self._accounted: set[int] = set()
        """Segments of which the end is missing, and was named, or that held nothing as those around them say."""
        self._gone: SegmentRow | None = None
        """The checkpoint's open segment, if its file is not there."""
        self._kept: dict[int, int] = {}
        """Where what is sound ends in the checkpoint's open segment, if that lacks what was at its end."""
        self._loaded: dict[int, memoryview] = {}

    # ── sealed segments ──────────────────────────────────────────────────────────────────────────────────────────────

    def adopt(self, row: SegmentRow) -> Steps:
        """Know a sealed segment of the checkpoint: by its index, or by a walk if that is missing or unsound."""
        number = row.number
        if segment_name(number) not in self.listing:
            yield Note("error", "journal-segment-missing", {"segment": number})
            return
        size = self.listing[segment_name(number)]
        yield from name_excess(segment_name(number), self.listing, row.size)
        if size < row.size:
            yield Note("error", "journal-segment-missing", {"segment": number, "offset": size, "size": row.size - size})
        journal_id = self.recovered.journal_id
        # The next checkpoint knows it as it is now: what is gone is named once.
        segment = Segment(number, salt_of(journal_id, number), min(row.size, size), row.end)
        segment.summary = yield from read_summary(number, row.end, journal_id, self.listing)
        if segment.summary is None:
            yield from self._reindex(segment)
        self.catalogue.adopt(segment)

    def adopt_open(self, checkpoint: Checkpoint) -> Steps:
        """Know the segment that the checkpoint was taken in, with what it held."""
        row = checkpoint.open_segment
        if row is None:
            return
        name = segment_name(row.number)
        if name in self.listing:
            yield from name_excess(name, self.listing, row.size)
            self.recovered.open_segment = open_segment_of(checkpoint, row, self.catalogue)
        else:
            yield Note("error", "journal-segment-missing", {"segment": row.number})
            self._gone = row

    def _reindex(self, segment: Segment) -> Steps:
        number = segment.number
        data = yield from self._load(number)
        next_rows = {
            STAGE_KEY | stage.stage: first
            for stage in self.catalogue.stages.values()
            for held_by, first in stage.segments
            if held_by == number
        }
        segment.rows, unsound = collect_rows(data, segment.end, number, segment.salt, next_rows)
        segment.summary, _ = build_index(segment.rows, segment.end)
        self.recovered.unindexed.append(segment)
        yield Note("warning", "journal-index-rebuilt", {"segment": number})
        for stretch in unsound:
            yield from self._name_damage(data, stretch, segment)
        self._loaded.clear()

    def _load(self, number: int) -> Generator[RecoveryOrder, Answer, memoryview]:
        """All bytes of a segment."""
        data = self._loaded.get(number)
        if data is None:
            data = yield from read_segment(number, self.listing, is_needed=True)
            assert data is not None
            self._loaded[number] = data
        return data

    def _following(self, number: int) -> int | None:
        """The next segment that is there behind this one."""
        numbers = (found for name in self.listing if (found := number_of(name, ".segment")) is not None)
        return min((found for found in numbers if number < found == ordinal_of(found)), default=None)

    # ── behind the checkpoint ────────────────────────────────────────────────────────────────────────────────────────

    def is_refuted(self) -> Generator[RecoveryOrder, Answer, bool]:
        """Whether a checkpoint that is said to be the last is not: its open segment, or a later one, is gone or cut, or
        something was appended behind it, and it is an older copy.

        Only where a group would begin is looked at: at the end, and at the beginning of each later segment.
        """
        opened, end = self.recovered.open_segment, self.recovered.position
        if self._gone is not None or (opened is not None and self.listing[segment_name(opened.number)] < opened.size):
            return True
        newest = 0 if self.newest is None else self.newest.number
        if newest > self.recovered.next_ordinal and segment_name(newest) not in self.listing:
            return True
        if any(self.belongings.is_cut(number) for number in self.belongings.headers if number > end.segment):
            return True
        places = [end] if segment_name(end.segment) in self.listing else []
        following = self._following(end.segment)
        while following is not None:
            places.append(Position(following, SEGMENT_HEADER_SIZE))
            following = self._following(following)
        for number, offset in places:
            head = yield ReadFile(segment_name(number), offset, GROUP_RECORD_SIZE)
            salt = salt_of(self.recovered.journal_id, number)
            found = None if head is None else group_at(memoryview(head), 0, number, salt, offset)
            if found is not None and (found[1].previous_end == end or found[1].durable > end):
                yield Note("warning", "journal-checkpoint-outdated", {"segment": number, "offset": offset})
                return True
        return False

    def scan(self) -> Steps:
        """Replay what lies behind the checkpoint, and settle where the journal ends."""
        recovered = self.recovered
        recovered.is_clean = False
        opened = recovered.open_segment
        begun = opened or self._gone
        sizes = {} if begun is None else {begun.number: begun.size}
        if self._gone is not None:
            self._is_behind_damage = recovered.is_damaged = True
        number: int | None
        begin = number = recovered.next_ordinal if opened is None else opened.number
        if opened is None and number is not None and segment_name(number) not in self.listing:
            number = self._following(number) if self._is_behind_damage else None
        if opened is not None:
            self._kept = kept_of(opened, (yield from self._load(opened.number)))
        scanned: list[Segment] = []
        while number is not None:
            data = yield from self._load(number)
            if recovered.open_segment is None:
                yield from name_excess(segment_name(number), self.listing, len(data))
            segment = self._open(number, len(data))
            # What was cut off by others is not written to: its space is gone as well.
            segment.size = min(segment.size, len(data))
            scanned.append(segment)
            number = yield from self._scan_segment(segment, data)
            self._loaded = {kept: self._loaded[kept] for kept in self._loaded if kept > segment.number}
        held = {segment.number for segment in scanned if segment.end > SEGMENT_HEADER_SIZE} | self._accounted
        if (yield from name_missing(self.belongings, begin, recovered.position, sizes, self._kept, held)):
            recovered.is_damaged = True
        opened = recovered.open_segment
        if opened is not None and opened.end == SEGMENT_HEADER_SIZE:
            # Nothing was ever written to it, perhaps not even its header: it is made once more.
            del self.catalogue.segments[opened.number]
            recovered.open_segment = None
            recovered.next_ordinal = opened.number
            scanned.remove(opened)
        for segment in scanned:
            yield SyncFile(segment_name(segment.number))

    def _open(self, number: int, size: int) -> Segment:
        opened = self.recovered.open_segment
        if opened is None:
            salt = salt_of(self.recovered.journal_id, number)
            opened = Segment(number, salt, size, SEGMENT_HEADER_SIZE, rows={})
            self.recovered.open_segment = self.catalogue.segments[number] = opened
            self.recovered.next_ordinal = number + 1
        return opened

    def _scan_segment(self, segment: Segment, data: memoryview) -> Generator[RecoveryOrder, Answer, int | None]:
        """Replay a segment from its `end` on; returns the segment that goes on behind it, None at the end of the
        journal.
        """
        number, salt = segment.number, segment.salt
        while True:
            start = segment.end
            found = self._next_group(segment, data)
            records: list[RecordView] = []
            end = start
            if found is not None:
                view, header = found
                self.recovered.group_number = view.envelope.first_sequence
                behind = min(start + header.size, len(data))
                pieces = list(records_between(data, start + GROUP_RECORD_SIZE, behind, salt))
                records, end = sound_beginning(start, pieces)
                if end == start + header.size:
                    yield from self._replay(segment, records, end)
                    continue
            # Of a segment in which nothing was left the file is there: the next one follows on the one before.
            last = Position(number, end) if end > SEGMENT_HEADER_SIZE else self.recovered.position
            if (following := (yield from self._continuation(number, last))) is not None:
                # Those in between held nothing, and may have been let go.
                self._kept.pop(number, None)
                self._accounted.update(range(number + 1, following))
                yield from self._replay(segment, records, end)
                self._seal(segment)
                return following
            first, durable = yield from self._evidence(number, end, data)
            if first is not None and durable > Position(number, end):
                resume = min(first.at, durable)
                yield from self._pass_damage(segment, data, end, resume, first)
                if resume.segment == number:
                    continue
                self._seal(segment)
                return self._following(number)
            yield from self._replay(segment, records, end)
            yield from self._end_here(segment, data, 0 if found is None else start + found[1].size)
            return None

    def _next_group(self, segment: Segment, data: memoryview) -> tuple[RecordView, GroupHeader] | None:
        """The group at the segment's end, if it is sound and follows what was replayed."""
        found = group_at(data, segment.end, segment.number, segment.salt)
        if found is None or not (self._is_behind_damage or found[1].previous_end == self.recovered.position):
            return None
        self._is_behind_damage = False
        return found

    def _continuation(self, number: int, position: Position) -> Generator[RecoveryOrder, Answer, int | None]:
        """The segment behind `number` whose first group says that the group before it ended at `position`.

        It need not be the next one: a segment in which nothing was left was cut and passed over.
        """
        following = self._following(number)
        while following is not None:
            data = yield from self._load(following)
            salt = salt_of(self.recovered.journal_id, following)
            found = group_at(data, SEGMENT_HEADER_SIZE, following, salt)
            if found is not None and found[1].previous_end == position:
                return following
            following = self._following(following)
        return None

    def _evidence(
        self, number: int, offset: int, data: memoryview
    ) -> Generator[RecoveryOrder, Answer, tuple[GroupHeader | None, Position]]:
        """The first sound group behind a place, and the furthest that any of them says to have been durable."""
        first: GroupHeader | None = None
        durable = self.belongings.until
        behind: int | None = number
        start = offset + ALIGNMENT
        while behind is not None:
            for group in groups_from(data, start, behind, salt_of(self.recovered.journal_id, behind)):
                first = first or group
                durable = max(durable, group.durable)
            behind = self._following(behind)
            if behind is not None:
                data = yield from self._load(behind)
                start = SEGMENT_HEADER_SIZE
        if first is not None and number in self._kept:
            # As if the segment were gone: what is found behind it was not torn off with it.
            durable = max(durable, first.at)
        return first, durable

    def _pass_damage(
        self, segment: Segment, data: memoryview, start: int, resume: Position, first: GroupHeader
    ) -> Steps:
        """Name what is damaged from the segment's end on, keep it aside, replay what is sound in between."""
        end = start
        if resume.segment == segment.number:
            end = resume.offset
        elif first.previous_end.segment == segment.number:
            end = min(first.previous_end.offset, len(data))
            if end < first.previous_end.offset:
                size = first.previous_end.offset - end
                where: dict[str, object] = {"segment": segment.number, "offset": end, "size": size}
                yield Note("error", "journal-segment-missing", where)
                self._accounted.add(segment.number)
        if end > start:
            yield SetAside(segment_name(segment.number), start, end - start)
        for found in walk(data, segment.end, end, segment.number, segment.salt):
            if isinstance(found, Unsound):
                yield from self._name_damage(data, found, segment)
            elif found.envelope.kind != RecordKind.GROUP:
                yield from self._replay(segment, (found,), found.offset + len(found.memory))
        segment.end = end
        self.recovered.position = Position(segment.number, end)
        if resume.segment == segment.number:
            self._kept.pop(segment.number, None)
        self._is_behind_damage = self.recovered.is_damaged = True

    def _name_damage(self, data: memoryview, stretch: Unsound, segment: Segment) -> Steps:
        yield Note("error", "journal-damaged", description(data, stretch, segment.number, segment.salt))

    def _end_here(self, segment: Segment, data: memoryview, claimed_end: int) -> Steps:
        """The journal ends at the segment's end: keep aside and clear what is behind it, here and in later segments."""
        end = segment.end
        following = self._following(segment.number)
        while following is not None:
            later = yield from self._load(following)
            last = last_trace(later, SEGMENT_HEADER_SIZE, salt_of(self.recovered.journal_id, following))
            yield from self._clear_torn(later, following, SEGMENT_HEADER_SIZE, last)
            following = self._following(following)
        torn_end = max(last_trace(data, end, segment.salt), min(claimed_end, len(data)))
        yield from self._clear_torn(data, segment.number, end, torn_end)
        is_short = Position(segment.number, end) < self.belongings.until
        if max(torn_end, claimed_end) > end or segment.number in self._kept or is_short:
            # The last group says that it reaches further: nothing may be written to where it would pass for a part.
            # Nor behind what is not there: a later start would miss that once more.
            self._seal(segment)

    def _clear_torn(self, data: memoryview, number: int, start: int, end: int) -> Steps:
        if is_blank(data[start:end]):
            return
        name, size = segment_name(number), end - start
        yield SetAside(name, start, size)
        yield Note("warning", "journal-torn-tail", {"segment": number, "offset": start, "size": size})
        yield ClearFile(name, start, size)

    def _seal(self, segment: Segment) -> None:
        assert segment.rows is not None
        summary, _ = build_index(segment.rows, segment.end)
        self.catalogue.seal(segment, summary)
        self.recovered.unindexed.append(segment)
        self.recovered.open_segment = None

    def _replay(self, segment: Segment, records: Iterable[RecordView], end: int) -> Steps:
        """Know these records, and hand them out; the journal reaches to `end` now."""
        for view in records:
            envelope = view.envelope
            if envelope.kind in (RecordKind.BATCH, RecordKind.STAGED):
                if self.dropped_keys and self._is_dropped(view):
                    continue
                self._place(segment, view)
            self.recovered.growth += growth_of(envelope.kind, view.memory)
            yield Replayed(view)
        if end > segment.end:
            segment.end = end
            self.recovered.position = Position(segment.number, end)

    def _is_dropped(self, view: RecordView) -> bool:
        """Whether its stream or stage was dropped before the checkpoint, while this was on its way."""
        stage_key = STAGE_KEY | view.envelope.first_sequence if view.envelope.kind == RecordKind.STAGED else 0
        return batch_ids(view.memory)[0] in self.dropped_keys or stage_key in self.dropped_keys

    def _place(self, segment: Segment, view: RecordView) -> None:
        envelope = view.envelope
        stream_id, count, first_number = batch_ids(view.memory)
        first = envelope.first_sequence
        if envelope.kind == RecordKind.BATCH:
            stream = self.catalogue.streams.get(stream_id)
            last = 0 if stream is None else stream.last_sequence
            if self.recovered.is_damaged and first > last + 1:
                self.recovered.gaps.append((stream_id, last + 1, first - 1))
        else:
            # A stage's numbers begin at 1, so a lost record, be it the first, does not move those behind it.
            stage = self.catalogue.stages.get(first) or self.catalogue.add_stage(StagePlaces(first, stream_id))
            stage.row_count = max(stage.row_count, first_number - 1)
        ids = (stream_id, first, count)
        self.catalogue.add(segment, envelope.kind, ids, envelope.append_time_us, view.offset, len(view.memory))

    # ── the rest ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def sort_rest(self, settings: LogSettings) -> Steps:
        """What is in the directory and belongs to nothing: to be written over, or removed."""
        recovered = self.recovered
        newest = 0 if self.newest is None else self.newest.number
        if recovered.open_segment is not None:
            recovered.next_ordinal = recovered.open_segment.number + 1
        elif recovered.position.segment >= recovered.next_ordinal:
            recovered.next_ordinal = recovered.position.segment + 1
        for name, size in self.listing.items():
            segment, index = number_of(name, ".segment"), number_of(name, ".index")
            is_full_size = size == settings.segment_size
            if index is not None and index not in self.catalogue.segments:
                yield RemoveFile(name)
            elif segment is None or segment in self.catalogue.segments:
                continue
            elif segment == recovered.next_ordinal:
                recovered.is_next_there = True
            elif recovered.next_ordinal < segment <= newest:
                # It would be missed, and its turn comes.
                continue
            elif segment < recovered.next_ordinal and is_full_size and len(recovered.free) < settings.free_count_max:
                recovered.free.append(segment)
            else:
                recovered.surplus.append(segment)
