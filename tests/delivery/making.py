"""Batches for tests: sound ones of any content, and hostile ones under a right signature."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from veredus.delivery.batch import (
    CODEC_FLAGS,
    BatchHeader,
    BatchLimits,
    Layout,
    check_header,
    compressed,
    read_header,
    signed_record,
    verify_signature,
)
from veredus.delivery.columns import encode_columns
from veredus.delivery.payload import columns_of, verify_payload
from veredus.delivery.publication import (
    TIMESTAMP_MAX_US,
    TIMESTAMP_MIN_US,
    AttributeValue,
    Columns,
    Rows,
    microseconds_of,
)
from veredus.delivery.record import ENVELOPE_SIZE
from veredus.delivery.rows import encode_rows

LIMITS = BatchLimits()
HEADER = BatchHeader(
    layout=int(Layout.ROWS), flags=0, payload_size=0, token_size=0, span=1, stream_id=7, source_id=9, epoch=3,
    count=1, first_number=11, event_time_min_us=0, event_time_max_us=0,
)  # fmt: skip

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
TIMES_US = st.integers(TIMESTAMP_MIN_US, TIMESTAMP_MAX_US)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int64": INT64,
    "float64": st.floats(),
    "text": st.text(max_size=12) | st.sampled_from(["", "a", "b"]),
    "bytes": st.binary(max_size=12),
    "timestamp": st.datetimes(timezones=st.just(UTC)),
}
KEYS = st.sampled_from([b"", b"a", b"a.b", b"EWR.JFK"]) | st.binary(max_size=20) | st.just(b"k" * 255)
BODIES = st.binary(max_size=30)


@st.composite
def publications(draw: st.DrawFn, count_max: int = 80) -> Rows:
    """Any publications that may stand in one batch, as lists; attributes of all six types, any of them absent.

    Each column repeats a few drawn values in an order of its own: large batches cost no more to draw than small ones.
    """
    count = draw(st.integers(1, count_max))

    def column(values: st.SearchStrategy[Any]) -> list[Any]:
        pool = draw(st.lists(values, min_size=1, max_size=4))
        step = draw(st.integers(1, 9))
        return [pool[index // step % len(pool)] for index in range(count)]

    kinds = draw(st.dictionaries(st.text(min_size=1, max_size=4), st.sampled_from(sorted(VALUES)), max_size=3))
    columns = {name: column(st.none() | VALUES[kind]) for name, kind in kinds.items()}
    attributes: list[dict[str, AttributeValue] | None] | None = [
        {name: values[index] for name, values in columns.items() if values[index] is not None} for index in range(count)
    ]
    times = column(TIMES_US) if draw(st.booleans()) else None
    return Rows(column(KEYS), column(BODIES), times, attributes if any(attributes or ()) else None)


def batch_in(record: bytearray) -> memoryview:
    """The batch that a record holds, its blank envelope and padding left out."""
    header = read_header_of(record)
    return memoryview(record)[ENVELOPE_SIZE : ENVELOPE_SIZE + header.size]


def read_header_of(record: bytearray) -> BatchHeader:
    """The header of the batch in a record."""
    sizes = np.frombuffer(record, "<u4", 2, ENVELOPE_SIZE + 12)
    return read_header(memoryview(record)[ENVELOPE_SIZE : ENVELOPE_SIZE + 64 + int(sizes[0]) + int(sizes[1])])


def signed(payload: bytes, layout: Layout, count: int, token: bytes = b"", **changes: int) -> memoryview:
    """A batch around any payload, under a right signature; `changes` are made to its header."""
    header = HEADER._replace(layout=int(layout), span=count, count=count)._replace(**changes)
    return batch_in(signed_record(header, [payload], token))


def batch_of(rows: Rows, layout: Layout, codec: str | None = None, token: bytes = b"") -> memoryview:
    """A sound batch of these publications."""
    if layout == Layout.ROWS:
        payload = encode_rows(rows)
    else:
        payload = b"".join(encode_columns(columns_of(rows)))
    low, high = (min(rows.event_times_us), max(rows.event_times_us)) if rows.event_times_us else (5, 5)
    return signed(
        compressed(payload, codec) if codec else payload, layout, len(rows.keys), token,
        flags=CODEC_FLAGS[codec], event_time_min_us=low, event_time_max_us=high,
    )  # fmt: skip


def accept(batch: bytes | memoryview, limits: BatchLimits = LIMITS) -> BatchHeader:
    """What a node does with an offered batch, in its order; raises `PeerFault`."""
    header = read_header(batch)
    check_header(header, limits)
    verify_signature(batch)
    verify_payload(batch, header, limits)
    return header


def same(one: Rows, other: Rows) -> bool:
    """Whether two lists of publications are equal, NaN beside NaN and the types of values included."""
    return repr(plain(one)) == repr(plain(other))


def plain(rows: Rows) -> tuple[object, ...]:
    """Rows with nothing left out and in one order, so that equal ones look equal."""
    attributes = [
        sorted(
            (name, type(value), microseconds_of(value) if isinstance(value, datetime) else value)
            for name, value in (row or {}).items()
        )
        for row in rows.attributes or [None] * len(rows.keys)
    ]
    return rows.keys, rows.bodies, rows.event_times_us, attributes, rows.rows


def plain_columns(count: int) -> Columns:
    """`count` small publications as columns, without attributes."""
    return Columns(
        pa.array([f"key.{i % 3}".encode() for i in range(count)], pa.binary()),
        pa.array([f"body {i}".encode() for i in range(count)], pa.binary()),
        None,
        {},
    )
