"""Whole batches under a right signature, header and all: refused as a fault of the peer, or readable every way, also by
a reader that knows the page alone.
"""

from __future__ import annotations

import struct
import sys
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import numpy as np

from fuzz.driver import main
from fuzz.page import read_payload
from veredus.delivery.batch import (
    CODEC_FLAGS,
    BatchHeader,
    BatchLimits,
    Layout,
    check_header,
    compressed,
    payload_of,
    read_header,
    signed_record,
    token_of,
    verify_signature,
)
from veredus.delivery.columns import encode_columns
from veredus.delivery.payload import columns_of, excerpt_record, read_columns, read_rows, verify_payload
from veredus.delivery.publication import Rows
from veredus.delivery.record import ENVELOPE_SIZE
from veredus.delivery.rows import encode_rows
from veredus.kernel.errors import PeerFault
from veredus.kernel.octets import crc32c

LIMITS = BatchLimits(batch_size_max=1 << 16, body_size_max=1 << 16)
SIZES_OFFSET = 12
HEADER_SIZE = 64


def _rows(count: int) -> Rows:
    """Publications with attributes of every type, some absent, and enough of them that text becomes a dictionary."""
    when = datetime(2013, 1, 1, tzinfo=UTC)
    some = ({"carrier": "UA", "delay": 3}, {"carrier": "AA", "ratio": 0.5, "late": True}, {"at": when, "raw": b"\0"})
    return Rows(
        [b"EWR.%d" % (index % 3) for index in range(count)],
        [b"body" * (index % 5) for index in range(count)],
        list(range(count)),
        [dict(some[index % 3]) if index % 4 else None for index in range(count)],
    )


def _batch(layout: Layout, count: int, codec: str | None = None) -> bytes:
    rows = _rows(count)
    payload = encode_rows(rows) if layout == Layout.ROWS else b"".join(encode_columns(columns_of(rows)))
    header = BatchHeader(int(layout), CODEC_FLAGS[codec], 0, 0, count, 4, 5, 1, count, 1, 0, count - 1)
    record = signed_record(header, [compressed(payload, codec) if codec else payload], b"token")
    sizes = struct.unpack_from("<II", record, ENVELOPE_SIZE + SIZES_OFFSET)
    return bytes(record[ENVELOPE_SIZE : ENVELOPE_SIZE + HEADER_SIZE + sum(sizes)])


SEEDS = tuple(
    _batch(layout, count, codec) for layout in Layout for count in (1, 3, 70) for codec in (None, "zstd", "lz4")
)


def target(data: bytes) -> None:
    batch = bytearray(data)
    if len(batch) >= HEADER_SIZE:
        # Lengths that disagree with the bytes and a wrong signature are seen at once; what lies behind is wanted.
        (token_size,) = struct.unpack_from("<I", batch, SIZES_OFFSET + 4)
        payload_size = len(batch) - HEADER_SIZE - token_size
        if payload_size >= 0:
            struct.pack_into("<I", batch, SIZES_OFFSET, payload_size)
        struct.pack_into("<I", batch, 0, crc32c(memoryview(batch)[4:]))
    try:
        header = read_header(batch)
        check_header(header, LIMITS)
        verify_signature(batch)
        verify_payload(batch, header, LIMITS)
    except PeerFault:
        return
    assert len(token_of(batch, header)) == header.token_size
    rows, columns = read_rows(batch, header), read_columns(batch, header)
    assert len(rows.keys) == len(columns.keys) == header.count
    payload = payload_of(batch, header, LIMITS)
    assert read_payload(payload, header.layout, header.count) == (rows.keys, rows.bodies, rows.event_times_us)
    assert header.has_dates_only
    selection = np.arange(header.count) % 2 == 0
    again = memoryview(excerpt_record(header, columns, selection))[ENVELOPE_SIZE:]
    sizes = struct.unpack_from("<II", again, SIZES_OFFSET)
    excerpt = again[: HEADER_SIZE + sum(sizes)]
    cut = read_rows(excerpt, read_header(excerpt))
    assert cut.keys == rows.keys[::2]
    assert cut.bodies == rows.bodies[::2]
    assert cut.rows == list(range(0, header.count, 2))


if __name__ == "__main__":
    main("batch", target, SEEDS)
