"""The bytes of a segment: its header, the record that opens each group, and where records lie.

    0                  4096                                                              end              size
    | header, padded   | GROUP record | records | GROUP record | records | ...           | old or no bytes |

A segment's number is its ordinal, from 1, plus a generation in the bits above 40 (the cleaner's; 0 for one that was
appended to). Every record's envelope carries its segment's salt and its place. A group never spans segments, is
written by one order, and says where the group before it ended and what was durable when it was written. All numbers
are little-endian.
Source: docs/internals/DESIGN.md, "Journal"; docs/reference/journal-format.md.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from veredus.delivery.record import (
    BODY_CRC_SIZE,
    ENVELOPE_SIZE,
    RecordKind,
    RecordView,
    is_body_sound,
    read_envelope,
    sealed_record,
)
from veredus.kernel.errors import Refused
from veredus.kernel.octets import ALIGNMENT, Octets, aligned, crc32c

FORMAT_VERSION = 2
SEGMENT_HEADER_SIZE = 4096
SEGMENT_SIZE_MAX = 1 << 32
"""In bytes; an index counts with 32 bits."""
_COPY_OFFSET = 2048
"""Where the header stands once more: without it a journal that has no checkpoint yet could not be read."""
SEGMENT_MAGIC = b"VEREDSEG"
ORDINAL_BITS = 40
NEWEST_NAME = "newest"
"""The file that holds the header of the segment that was made last: so one that is gone is missed."""
CONTINUED = 1
"""An envelope's flag: the record behind this one was asked for together with it, and is there or neither is."""

_MAGIC_VERSION = struct.Struct("<8sII")
_HEADER = struct.Struct("<8sIIQQ16sQI")
_GROUP = struct.Struct("<QQQQQQQ")
_BODY_SIZES = struct.Struct("<II")
_BODY_SIZES_OFFSET = ENVELOPE_SIZE + 12
_BATCH_HEADER_SIZE = 64
_ENVELOPE_BODY_SIZE = struct.Struct("<I")
_STAGED_GROWTH = 32
_BATCH_IDS = struct.Struct("<I8xIQ")
_BATCH_STREAM_OFFSET = ENVELOPE_SIZE + 24
BATCH_IDS_END = _BATCH_STREAM_OFFSET + _BATCH_IDS.size
"""How much of a record `batch_ids` reads, in bytes."""

GROUP_RECORD_SIZE = aligned(ENVELOPE_SIZE + BODY_CRC_SIZE + _GROUP.size)


class Position(NamedTuple):
    """A place in the journal: a segment's number (of generation 0) and an offset in it, in bytes."""

    segment: int
    offset: int


class SegmentHeader(NamedTuple):
    """What a segment says of itself."""

    version: int
    number: int
    size: int
    journal_id: bytes
    created_us: int
    salt: int


class GroupHeader(NamedTuple):
    """What the record that opens a group says; `size` is the group's, this record included, in bytes."""

    at: Position
    size: int
    durable: Position
    previous_end: Position


def ordinal_of(number: int) -> int:
    """The segment's place in the series, whatever its generation."""
    return number & ((1 << ORDINAL_BITS) - 1)


def cleaned_number(numbers: list[int]) -> int:
    """The number of the segment that takes the place of these neighbours: the last one's ordinal, a new generation."""
    generation = 1 + max(number >> ORDINAL_BITS for number in numbers)
    return generation << ORDINAL_BITS | max(map(ordinal_of, numbers))


def segment_name(number: int) -> str:
    """The file of a segment."""
    return f"{number:016x}.segment"


def index_name(number: int) -> str:
    """The file of a segment's index."""
    return f"{number:016x}.index"


def number_of(name: str, suffix: str) -> int | None:
    """The segment's number in the name of a file with this suffix, None for any other file."""
    stem, dot, end = name.rpartition(".")
    if dot + end != suffix or len(stem) != 16 or not set(stem) <= set("0123456789abcdef"):
        return None
    return int(stem, 16)


def salt_of(journal_id: bytes, number: int) -> int:
    """The salt of a segment.

    A CRC tells any two messages of one length apart that differ within 32 bits only, so no two segments of one journal
    and one generation share a salt.
    """
    return crc32c(journal_id + number.to_bytes(8, "little"))


def salt_at(salt: int, offset: int) -> int:
    """The salt of the record at `offset` of a segment with this one.

    So a record passes for itself at its own place alone: one that a disk wrote elsewhere, or a copy of one inside a
    body, does not.
    """
    return (salt + offset // ALIGNMENT) & 0xFFFFFFFF


def check_version(version: int) -> None:
    """Refuse a format that is not this one. Raises `Refused("newer-format")`, `Refused("older-format")`."""
    if version > FORMAT_VERSION:
        message = (
            f"the journal has format {version}, and this Veredus supports format {FORMAT_VERSION}: use a newer Veredus"
        )
        raise Refused("newer-format", message, version=version)
    if version < FORMAT_VERSION:
        message = (
            f"the journal has format {version}, from before the first release, and this Veredus supports"
            f" format {FORMAT_VERSION}: read it with the version that wrote it, and publish it to a new journal"
        )
        raise Refused("older-format", message, version=version)


def encode_segment_header(number: int, size: int, journal_id: bytes, created_us: int) -> bytes:
    """The first `SEGMENT_HEADER_SIZE` bytes of a segment."""
    salt = salt_of(journal_id, number)
    rest = _HEADER.pack(SEGMENT_MAGIC, FORMAT_VERSION, 0, number, size, journal_id, created_us, salt)
    head = _HEADER.pack(SEGMENT_MAGIC, FORMAT_VERSION, crc32c(rest), number, size, journal_id, created_us, salt)
    return head.ljust(_COPY_OFFSET, b"\0") + head.ljust(SEGMENT_HEADER_SIZE - _COPY_OFFSET, b"\0")


def decode_segment_header(data: Octets) -> SegmentHeader | None:
    """What the header says, or None when it is unsound. Another version is returned with nothing but its version."""
    first, second = segment_headers(data)
    return first or second


def segment_headers(data: Octets) -> tuple[SegmentHeader | None, SegmentHeader | None]:
    """What the header says and what its copy says, None for one that is unsound.

    Another version is believed where both say it: flipped bits say it of one.
    """
    first, second = _decode_header(data, 0), _decode_header(data, _COPY_OFFSET)
    if first is None or second is None or first.version != second.version:
        return _if_ours(first), _if_ours(second)
    return first, second


def _if_ours(header: SegmentHeader | None) -> SegmentHeader | None:
    return header if header is not None and header.version == FORMAT_VERSION else None


def _decode_header(data: Octets, offset: int) -> SegmentHeader | None:
    if len(data) < offset + _HEADER.size:
        return None
    magic, version, crc = _MAGIC_VERSION.unpack_from(data, offset)
    if magic != SEGMENT_MAGIC:
        return None
    _, _, _, number, size, journal_id, created_us, salt = _HEADER.unpack_from(data, offset)
    is_ours = crc32c(_HEADER.pack(magic, FORMAT_VERSION, 0, number, size, journal_id, created_us, salt)) == crc
    if version != FORMAT_VERSION and not is_ours:
        return SegmentHeader(version, 0, 0, b"", 0, 0)
    if version != FORMAT_VERSION or not is_ours:
        # What is ours but for the version is a version with a flipped bit.
        return None
    return SegmentHeader(version, number, size, journal_id, created_us, salt)


def encode_group(header: GroupHeader, salt: int, group_number: int, written_us: int) -> bytearray:
    """The GROUP record that opens a group; it has `GROUP_RECORD_SIZE` bytes."""
    payload = _GROUP.pack(*header.at, header.size, *header.durable, *header.previous_end)
    return sealed_record(RecordKind.GROUP, payload, salt_at(salt, header.at.offset), group_number, written_us)


def decode_group(view: RecordView) -> GroupHeader | None:
    """What a GROUP record says, or None for a record of another kind or size."""
    if view.envelope.kind != RecordKind.GROUP or len(view.payload) != _GROUP.size:
        return None
    a, b, size, c, d, e, f = _GROUP.unpack(view.payload)
    return GroupHeader(Position(a, b), size, Position(c, d), Position(e, f))


def record_at(data: memoryview, offset: int, salt: int, start: int = 0) -> RecordView | None:
    """The sound record at `offset` of `data`, which begins at `start` of the segment with this salt; or None."""
    envelope = read_envelope(data, offset)
    if envelope is None or envelope.salt != salt_at(salt, start + offset):
        return None
    end = offset + envelope.record_size
    body = data[offset + ENVELOPE_SIZE : offset + ENVELOPE_SIZE + envelope.size]
    if end > len(data) or not is_body_sound(body):
        return None
    return RecordView(offset, envelope, data[offset:end])


def body_size(record: bytearray | memoryview, kind: int) -> int:
    """The size of the body of a record that is to be placed, without padding, in bytes.

    A batch says it in its own header; every other record was sealed with it.
    """
    if kind in (RecordKind.BATCH, RecordKind.STAGED):
        payload_size, token_size = _BODY_SIZES.unpack_from(record, _BODY_SIZES_OFFSET)
        return int(_BATCH_HEADER_SIZE + payload_size + token_size)
    return int(_ENVELOPE_BODY_SIZE.unpack_from(record, 8)[0])


def growth_of(kind: int, record: bytearray | memoryview) -> int:
    """By how many bytes, at most, a record makes the state larger that a checkpoint holds.

    A fact is told there in no more bytes than it takes itself; of a batch, its resume token is kept, and of a staged
    one the segment that it lies in.
    """
    if kind == RecordKind.BATCH:
        return int(_BODY_SIZES.unpack_from(record, _BODY_SIZES_OFFSET)[1])
    return _STAGED_GROWTH if kind == RecordKind.STAGED else len(record)


def batch_ids(record: memoryview) -> tuple[int, int, int]:
    """The stream id, the count of rows and the first number of the batch that this record carries."""
    stream_id, count, first_number = _BATCH_IDS.unpack_from(record, _BATCH_STREAM_OFFSET)
    return stream_id, count, first_number
