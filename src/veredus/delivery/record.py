"""The record: what a journal keeps and a subscriber gets, an envelope by the node around bytes that it never rewrites.

    0        4       6      7       8      12     16               24            32
    | crc u32 | magic | kind | flags | size | salt | first_sequence | append_time | body, `size` bytes | zeros to 8 |

All numbers little-endian. `crc` is the CRC-32C of bytes 4 to 36: the rest of the envelope and the body's own first four
bytes, which are in turn the CRC-32C of the rest of the body. So one flipped bit anywhere is seen, and the node can
number and time a batch without touching what its source signed.

`salt` is of a segment and a place in it: a record left over in a recycled segment, or written to another place, carries
another one and never passes for what should be there.
Source: docs/internals/DESIGN.md, "Batches" and "Journal".
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

from veredus.kernel.octets import ALIGNMENT, Octets, aligned, crc32c

ENVELOPE_SIZE = 32
BODY_CRC_SIZE = 4
RECORD_MAGIC = 0xC0DA
_ENVELOPE = struct.Struct("<IHBBIIQQ")
_BODY_CRC = struct.Struct("<I")
_CRC_END = ENVELOPE_SIZE + BODY_CRC_SIZE


class RecordKind(IntEnum):
    """What a record's body is. Unknown kinds below 128 are refused, from 128 on skipped (optional)."""

    GROUP = 1
    """Opens a group: what was durable when it was written (veredus.journal)."""
    BATCH = 2
    """A batch of a source (veredus.delivery.batch); `first_sequence` is the sequence of its first row."""
    STAGED = 3
    """A batch written under a stage; `first_sequence` holds the stage's number: it has no sequences yet."""
    FACT = 4
    """A change of a table (stream, source, cursor, stage), as tagged msgpack (veredus.streams.facts)."""


class Envelope(NamedTuple):
    """The node's part of a record."""

    kind: int
    flags: int
    size: int
    salt: int
    first_sequence: int
    append_time_us: int

    @property
    def record_size(self) -> int:
        """What the whole record takes, padding included, in bytes."""
        return (ENVELOPE_SIZE + self.size + ALIGNMENT - 1) & -ALIGNMENT


def write_envelope(record: bytearray | memoryview, envelope: Envelope) -> None:
    """Fill in the first `ENVELOPE_SIZE` bytes of a record whose body, with its own CRC, is in place."""
    kind, flags, size, salt, first_sequence, append_time_us = envelope
    _ENVELOPE.pack_into(record, 0, 0, RECORD_MAGIC, kind, flags, size, salt, first_sequence, append_time_us)
    crc = crc32c(memoryview(record)[4:_CRC_END])
    _BODY_CRC.pack_into(record, 0, crc)


def renumbered(record: Octets, first_sequence: int, append_time_us: int) -> memoryview:
    """A fresh envelope as a BATCH for a record that was staged; the caller sends it in front of the record's body."""
    _, _, _, flags, size, salt, _, _ = _ENVELOPE.unpack_from(record, 0)
    head = bytearray(_CRC_END)
    head[ENVELOPE_SIZE:] = memoryview(record)[ENVELOPE_SIZE:_CRC_END]
    write_envelope(head, Envelope(RecordKind.BATCH, flags, size, salt, first_sequence, append_time_us))
    return memoryview(head)[:ENVELOPE_SIZE]


def read_envelope(data: Octets, offset: int = 0) -> Envelope | None:
    """The envelope at `offset`, or None when these are not the first bytes of a sound record.

    Checks magic and envelope CRC; whether the body is sound is for `is_body_sound`. Needs 36 bytes from `offset`.
    """
    if len(data) - offset < _CRC_END:
        return None
    crc, magic, kind, flags, size, salt, first_sequence, append_time_us = _ENVELOPE.unpack_from(data, offset)
    if magic != RECORD_MAGIC or size < BODY_CRC_SIZE:
        return None
    if crc32c(data[offset + 4 : offset + _CRC_END]) != crc:
        return None
    return Envelope(kind, flags, size, salt, first_sequence, append_time_us)


def is_body_sound(body: Octets) -> bool:
    """Whether a body's first four bytes are the CRC-32C of the rest of it."""
    if len(body) < BODY_CRC_SIZE:
        return False
    crc: int = _BODY_CRC.unpack_from(body)[0]
    return crc32c(memoryview(body)[BODY_CRC_SIZE:]) == crc


def sealed_record(kind: RecordKind, payload: Octets, salt: int, first_sequence: int, append_time_us: int) -> bytearray:
    """A whole record around `payload`: envelope, body CRC, payload, padding."""
    size = BODY_CRC_SIZE + len(payload)
    record = bytearray(aligned(ENVELOPE_SIZE + size))
    record[_CRC_END : _CRC_END + len(payload)] = payload
    _BODY_CRC.pack_into(record, ENVELOPE_SIZE, crc32c(memoryview(record)[_CRC_END : _CRC_END + len(payload)]))
    write_envelope(record, Envelope(kind, 0, size, salt, first_sequence, append_time_us))
    return record


class RecordView(NamedTuple):
    """A record found in a run of bytes: its place, its envelope, and its whole memory with padding."""

    offset: int
    envelope: Envelope
    memory: memoryview

    @property
    def body(self) -> memoryview:
        """The body, its CRC included, without padding."""
        return self.memory[ENVELOPE_SIZE : ENVELOPE_SIZE + self.envelope.size]

    @property
    def payload(self) -> memoryview:
        """The body behind its CRC."""
        return self.memory[_CRC_END : ENVELOPE_SIZE + self.envelope.size]


def records_in(data: Octets, offset: int = 0) -> Iterator[RecordView]:
    """The sound records from `offset` on, one behind the other; ends at the first place that is none.

    The caller learns where it ended from the last view, and decides whether that is the end, a torn tail or damage.
    """
    memory = memoryview(data)
    while (envelope := read_envelope(memory, offset)) is not None:
        end = offset + envelope.record_size
        if end > len(memory) or not is_body_sound(
            memory[offset + ENVELOPE_SIZE : offset + ENVELOPE_SIZE + envelope.size]
        ):
            return
        yield RecordView(offset, envelope, memory[offset:end])
        offset = end
