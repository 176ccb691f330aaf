"""Walks the bytes of a segment, group by group: what is sound there, and what is not.

A place where a record should be and none is sound is an `Unsound`. Behind it the walk goes on at the next record: a
record is salted with its place, so a copy of one inside a body, or one that was written elsewhere, never passes for it.
Source: docs/internals/DESIGN.md, "Recovery".
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from veredus.delivery.record import RECORD_MAGIC, RecordKind, RecordView, read_envelope
from veredus.kernel.octets import ALIGNMENT, aligned

from .index import STAGE_KEY, Summary, add_row, no_rows, row_at
from .layout import (
    BATCH_IDS_END,
    CONTINUED,
    GROUP_RECORD_SIZE,
    SEGMENT_HEADER_SIZE,
    GroupHeader,
    Position,
    batch_ids,
    decode_group,
    record_at,
    salt_at,
)

_BLOCK_SIZE = 4 << 20
_ZEROS = bytes(_BLOCK_SIZE)
_GROUP_START = RECORD_MAGIC | RecordKind.GROUP << 16


class Unsound(NamedTuple):
    """A stretch of a segment that should hold records and does not; offset and size in bytes."""

    offset: int
    size: int


def group_at(
    data: memoryview, offset: int, number: int, salt: int, start: int = 0
) -> tuple[RecordView, GroupHeader] | None:
    """The sound GROUP record at `offset` of `data`, which begins at `start` of segment `number`, and what it says; None
    when there is none.
    """
    view = record_at(data, offset, salt, start)
    header = None if view is None else decode_group(view)
    at = Position(number, start + offset)
    if view is None or header is None or header.at != at or header.size < GROUP_RECORD_SIZE:
        return None
    return view, header


def is_blank(data: memoryview) -> bool:
    """Whether there are only zeros."""
    # Compared with zeros it takes a twentieth of the time that stripping them would.
    blocks = (data[at : at + _BLOCK_SIZE].tobytes() for at in range(0, len(data), _BLOCK_SIZE))
    return all(block == _ZEROS[: len(block)] for block in blocks)


def _starts(data: memoryview, offset: int, salt: int, mask: int, wanted: int) -> Iterator[int]:
    """Aligned offsets from `offset` on where an envelope with this salt seems to start; nothing is verified."""
    at = aligned(offset)
    while at + 16 <= len(data):
        end = min(len(data), at + _BLOCK_SIZE + ALIGNMENT)
        if is_blank(data[at:end]):
            # Behind the end of a fresh segment nothing was ever written.
            at += _BLOCK_SIZE
            continue
        import numpy as np  # a lot to import for a client of topics

        words = np.frombuffer(data[at : at + (end - at) // ALIGNMENT * ALIGNMENT], "<u4")[1::2]
        salts = np.uint32(salt_at(salt, at)) + np.arange(len(words) - 1, dtype="<u4")
        hits = np.flatnonzero(((words[:-1] & np.uint32(mask)) == wanted) & (words[1:] == salts))
        for hit in hits.tolist():
            yield at + hit * ALIGNMENT
        at += _BLOCK_SIZE


def groups_from(data: memoryview, offset: int, number: int, salt: int) -> Iterator[GroupHeader]:
    """The sound groups of this segment from `offset` on, wherever they lie, in order."""
    for start in _starts(data, offset, salt, 0xFFFFFF, _GROUP_START):
        found = group_at(data, start, number, salt)
        if found is not None:
            yield found[1]


def records_between(data: memoryview, offset: int, end: int, salt: int) -> Iterator[RecordView | Unsound]:
    """What lies from `offset` to `end`, which should be filled with records."""
    while offset < end:
        view = record_at(data, offset, salt)
        if view is not None and offset + len(view.memory) <= end:
            yield view
            offset += len(view.memory)
            continue
        starts = _starts(data[:end], offset + ALIGNMENT, salt, 0xFFFF, RECORD_MAGIC)
        behind = next((start for start in starts if read_envelope(data, start) is not None), end)
        yield Unsound(offset, behind - offset)
        offset = behind


def sound_beginning(start: int, pieces: Iterable[RecordView | Unsound]) -> tuple[list[RecordView], int]:
    """The records of a group up to the first that is unsound, and where they end; requests that are not whole are
    left out.
    """
    records: list[RecordView] = []
    whole_count, end = 0, start + GROUP_RECORD_SIZE
    for piece in pieces:
        if isinstance(piece, Unsound):
            break
        records.append(piece)
        if not piece.envelope.flags & CONTINUED:
            whole_count, end = len(records), piece.offset + len(piece.memory)
    return records[:whole_count], (end if whole_count else start)


def sound_end(data: memoryview, end: int, number: int, salt: int) -> int:
    """How far the last group that begins before `end` is sound: `end` itself where a group was, and is, whole; 0 where
    no group is.

    It is looked for from the end backwards, so that what is as it should be takes little reading.
    """
    start, last = end, None
    while last is None and start > SEGMENT_HEADER_SIZE:
        # Each part reaches over the one behind it, lest a record on the border be missed.
        behind, start = start, max(SEGMENT_HEADER_SIZE, start - _BLOCK_SIZE)
        for group in groups_from(data[: min(end, behind + GROUP_RECORD_SIZE)], start, number, salt):
            last = group
    if last is None:
        return 0
    at = last.at.offset
    pieces = records_between(data, at + GROUP_RECORD_SIZE, min(at + last.size, end, len(data)), salt)
    return sound_beginning(at, pieces)[1]


def walk(data: memoryview, start: int, end: int, number: int, salt: int) -> Iterator[RecordView | Unsound]:
    """What lies from `start` to `end` of a segment of which all of that was once durable; GROUP records too."""
    offset = start
    while offset < end:
        found = group_at(data, offset, number, salt)
        if found is not None:
            view, header = found
            behind = min(end, offset + header.size)
            yield view
        else:
            behind = next((group.at.offset for group in groups_from(data, offset + ALIGNMENT, number, salt)), end)
            behind = min(behind, end)
            yield Unsound(offset, min(GROUP_RECORD_SIZE, behind - offset))
        yield from records_between(data, offset + GROUP_RECORD_SIZE, behind, salt)
        offset = behind


def collect_rows(
    data: memoryview, end: int, number: int, salt: int, next_rows: dict[int, int]
) -> tuple[dict[int, array[int]], list[Unsound]]:
    """The rows of a sealed segment that ends at `end`, by key, out of its bytes, and what is unsound there.

    `next_rows` says, by the keys of the stages that are wanted, how many rows of each lie before this segment.
    """
    rows_by_key: dict[int, array[int]] = {}
    unsound: list[Unsound] = []
    for found in walk(data, SEGMENT_HEADER_SIZE, min(end, len(data)), number, salt):
        if isinstance(found, Unsound):
            unsound.append(found)
            continue
        envelope = found.envelope
        if envelope.kind not in (RecordKind.BATCH, RecordKind.STAGED):
            continue
        stream_id, count, first_number = batch_ids(found.memory)
        key, first = stream_id, envelope.first_sequence
        if envelope.kind == RecordKind.STAGED:
            key = STAGE_KEY | envelope.first_sequence
            if key not in next_rows:
                continue
            # A stage's numbers begin at 1, so a lost record in between does not move those behind it.
            first = max(next_rows[key], first_number - 1)
            next_rows[key] = first + count
        rows = rows_by_key.setdefault(key, no_rows())
        add_row(rows, first, envelope.append_time_us, found.offset, len(found.memory), count)
    return rows_by_key, unsound


def rows_like(
    data: memoryview, number: int, salt: int, summary: Summary
) -> tuple[dict[int, array[int]], list[Unsound]]:
    """The rows of a sealed segment, out of its bytes, so that they agree with its summary; and what is unsound there.

    What the summary has and the bytes have not gets a row that no record can satisfy: whoever reads it learns of the
    damage.
    """
    keys = summary.keys.tolist()
    firsts = dict(zip(keys, summary.firsts.tolist(), strict=True))
    stage_firsts = {key: first for key, first in firsts.items() if key >= STAGE_KEY}
    found, unsound = collect_rows(data, summary.end, number, salt, stage_firsts)
    rows_by_key: dict[int, array[int]] = {}
    for place, key in enumerate(keys):
        times = (summary.first_times[place], summary.last_times[place])
        rows_by_key[key] = _filled(found.get(key, no_rows()), summary.firsts[place], summary.lasts[place], times)
    return rows_by_key, unsound


def _filled(rows: array[int], first: int, last: int, times: tuple[int, int]) -> array[int]:
    """The rows with one in front and one behind where they do not reach from `first` to `last`."""
    filled = no_rows()
    start = row_at(rows, 0).first if rows else last + 1
    if start > first:
        add_row(filled, first, times[0], 0, 0, start - first)
    filled.extend(rows)
    reached = row_at(filled, -1).last
    if reached < last:
        add_row(filled, reached + 1, times[1], 0, 0, last - reached)
    return filled


def description(data: memoryview, unsound: Unsound, number: int, salt: int) -> dict[str, object]:
    """Where something unsound lies, and what it was, as far as its envelope still says that."""
    where: dict[str, object] = {"segment": number, "offset": unsound.offset, "size": unsound.size}
    envelope = read_envelope(data, unsound.offset)
    if envelope is None or envelope.salt != salt_at(salt, unsound.offset):
        return where
    where["kind"] = envelope.kind
    if envelope.kind == RecordKind.BATCH:
        where["first_sequence"] = envelope.first_sequence
        if len(data) >= unsound.offset + BATCH_IDS_END:
            stream_id, count, _ = batch_ids(data[unsound.offset :])
            where |= {"stream_as_read": stream_id, "count_as_read": count}
    elif envelope.kind == RecordKind.STAGED:
        where["stage"] = envelope.first_sequence
    return where


def last_trace(data: memoryview, offset: int, salt: int) -> int:
    """The end of the last thing from `offset` on that looks like a record of this segment; `offset` when nothing
    does.
    """
    end = offset
    for start in _starts(data, offset, salt, 0xFFFF, RECORD_MAGIC):
        envelope = read_envelope(data, start)
        size = ALIGNMENT if envelope is None else envelope.record_size
        end = max(end, min(len(data), start + size))
    return end
