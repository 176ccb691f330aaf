"""The checkpoint file: where recovery may start, what lies where before that, and the state of the streams floor there.

    | "VEREDCKP" | version u32 | crc u32 | size u64 | msgpack, `size` bytes |

`crc` is the CRC-32C of all behind it. The file is there twice (`checkpoint`, `checkpoint.copy`), written one after
the other. The file `closed` holds the CRC of the checkpoint behind which nothing was appended.
Source: docs/internals/DESIGN.md, "Checkpoints and space"; docs/reference/journal-format.md.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable

import msgspec

from veredus.kernel.gathered import Gathered, crc_of_both
from veredus.kernel.octets import Octets, crc32c

from .catalogue import Catalogue, Run, Segment, StagePlaces, StreamPlaces
from .index import no_rows
from .layout import FORMAT_VERSION, Position, check_version, ordinal_of, salt_of

CHECKPOINT_NAME = "checkpoint"
COPY_NAME = "checkpoint.copy"
CLOSED_NAME = "closed"
CLOSED_SIZE = 4
_MAGIC = b"VEREDCKP"
_HEAD = struct.Struct("<8sIIQ")
CHECKPOINT_HEAD_SIZE = _HEAD.size
_SIZE = struct.Struct("<Q")
_STATE_HEAD = struct.Struct(">BI")
_LONG_BYTES = 0xC6
"""How msgpack begins bytes of any size, which four bytes then say."""


class SegmentRow(msgspec.Struct, array_like=True):
    """A segment of the series; sizes in bytes."""

    number: int
    size: int
    end: int


class _StreamRow(msgspec.Struct, array_like=True):
    stream_id: int
    floor: int
    last_sequence: int
    last_time_us: int
    published: tuple[tuple[int, int, int, int], ...] = ()


class _StageRow(msgspec.Struct, array_like=True):
    stage: int
    stream_id: int
    row_count: int
    size: int
    segments: list[tuple[int, int]]
    first_sequence: int


class Checkpoint(msgspec.Struct):
    """What a checkpoint file holds. Rows of the open segment are as in an index file."""

    journal_id: bytes
    segment: int
    offset: int
    next_ordinal: int
    group_number: int
    open_segment: SegmentRow | None
    segments: list[SegmentRow]
    streams: list[_StreamRow]
    stages: list[_StageRow]
    dropped_keys: list[int]
    open_rows: list[tuple[int, bytes]]
    state: bytes = b""
    until_segment: int = 0
    until_offset: int = 0

    @property
    def position(self) -> Position:
        """Where recovery goes on: the state reflects all that lies before it."""
        return Position(self.segment, self.offset)

    @property
    def until(self) -> Position:
        """Behind the position, the state may reflect what lies before this place: so that was durable as well."""
        return max(self.position, Position(self.until_segment, self.until_offset))


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Checkpoint).decode


def taken_checkpoint(
    catalogue: Catalogue,
    journal_id: bytes,
    position: Position,
    ordinals: tuple[int, int],
    dropped_keys: list[int],
) -> Checkpoint:
    """The checkpoint of a journal at `position`, without a state; `ordinals` are the next segment's and the last
    group's number.

    Sealed segments in which nothing is wanted are left out: they may go once the checkpoint is durable.
    """
    kept = [s for s in catalogue.segments.values() if s.is_sealed and s.live_count]
    opened = next((s for s in catalogue.segments.values() if not s.is_sealed), None)
    rows = {} if opened is None or opened.rows is None else opened.rows
    return Checkpoint(
        journal_id,
        position.segment,
        position.offset,
        *ordinals,
        None if opened is None else SegmentRow(opened.number, opened.size, opened.end),
        [SegmentRow(s.number, s.size, s.end) for s in kept],
        [
            _StreamRow(s.stream_id, s.floor, s.last_sequence, s.last_time_us, _packed(s.published))
            for s in catalogue.streams.values()
        ],
        [
            _StageRow(s.stage, s.stream_id, s.row_count, s.size, list(s.segments), s.first_sequence)
            for s in catalogue.stages.values()
        ],
        dropped_keys,
        [(key, words.tobytes()) for key, words in rows.items()],
    )


def _packed(runs: Iterable[Run]) -> tuple[tuple[int, int, int, int], ...]:
    return tuple((run.first_sequence, run.count, run.stage, run.append_time_us) for run in runs)


def encode_checkpoint(checkpoint: Checkpoint, state: Gathered) -> list[Octets]:
    """The file, as buffers one behind the other: of the checkpoint, which has no state, and of `state`, uncopied."""
    until = ("until_segment", checkpoint.until_segment, "until_offset", checkpoint.until_offset)
    behind = b"".join(map(_encode, until))
    before = _encode(checkpoint).removesuffix(_encode(b"") + behind) + _STATE_HEAD.pack(_LONG_BYTES, state.size)
    size = len(before) + state.size + len(behind)
    crc = crc_of_both(crc32c(_SIZE.pack(size) + before), state.crc, state.size)
    head = _HEAD.pack(_MAGIC, FORMAT_VERSION, crc32c(behind, crc), size)
    return [head, before, *state.buffers(), behind]


def crc_of_checkpoint(data: Octets) -> bytes:
    """The four bytes by which the file `closed` names the checkpoint that starts with `data`."""
    return bytes(data[12:16])


def checkpoint_size(head: Octets) -> int | None:
    """The size of the whole file that begins with `head`, in bytes; None when no checkpoint begins so.

    Raises `Refused("newer-format")`, `Refused("older-format")`.
    """
    if len(head) < _HEAD.size:
        return None
    magic, version, _, size = _HEAD.unpack_from(head, 0)
    if magic != _MAGIC:
        return None
    check_version(version)
    return _HEAD.size + int(size)


def is_checkpoint_sound(data: Octets) -> bool:
    """Whether all of a file, which has the size that its beginning says, is as it was written."""
    _, _, crc, _ = _HEAD.unpack_from(data, 0)
    return bool(crc32c(memoryview(data)[16:]) == crc)


class _Place(msgspec.Struct):
    """What a checkpoint says of where it is: the rest may be much, and is passed over."""

    journal_id: bytes
    segment: int
    offset: int


_decode_place = msgspec.msgpack.Decoder(_Place).decode


def place_of_checkpoint(data: Octets) -> tuple[bytes, Position]:
    """The id of the journal that a sound file is of, and where in it recovery goes on."""
    place = _decode_place(memoryview(data)[CHECKPOINT_HEAD_SIZE:])
    return place.journal_id, Position(place.segment, place.offset)


def decode_checkpoint(data: Octets) -> Checkpoint:
    """What a sound file holds."""
    return _decode(memoryview(data)[CHECKPOINT_HEAD_SIZE:])


def tables_of(checkpoint: Checkpoint) -> Catalogue:
    """The streams and stages of a checkpoint, to which its segments are then adopted in ascending order."""
    catalogue = Catalogue()
    # Each row goes as what is made of it comes, lest many take the memory of both for good.
    checkpoint.streams.reverse()
    while checkpoint.streams:
        row = checkpoint.streams.pop()
        stream = StreamPlaces(row.stream_id, row.floor, row.last_sequence, row.last_time_us)
        stream.published = [Run(*run) for run in row.published]
        catalogue.streams[row.stream_id] = stream
    for stage in checkpoint.stages:
        places = stage.stage, stage.stream_id, stage.row_count, stage.size, stage.segments, stage.first_sequence
        catalogue.add_stage(StagePlaces(*places))
    for stream in catalogue.streams.values():
        stream.size = sum(catalogue.stages[run.stage].size for run in stream.published)
    return catalogue


def open_segment_of(checkpoint: Checkpoint, row: SegmentRow, catalogue: Catalogue) -> Segment:
    """The segment that was appended to at the checkpoint, which has this row, with its rows, known to `catalogue`."""
    rows_by_key: dict[int, array[int]] = {}
    segment = Segment(row.number, salt_of(checkpoint.journal_id, row.number), row.size, row.end, rows=rows_by_key)
    catalogue.segments[segment.number] = segment
    checkpoint.open_rows.reverse()
    while checkpoint.open_rows:
        key, data = checkpoint.open_rows.pop()
        rows_by_key[key] = no_rows()
        rows_by_key[key].frombytes(data)
        catalogue.adopt_key(segment, key)
    return segment


def ascending(rows: Iterable[SegmentRow]) -> list[SegmentRow]:
    """The segments of a checkpoint in the order of the series."""
    return sorted(rows, key=lambda row: ordinal_of(row.number))
