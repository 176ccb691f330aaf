"""Good records to bend, signed so that what is bent behind the signature is tried too."""

from __future__ import annotations

from datetime import UTC, datetime

from veredus.delivery.batch import CODEC_FLAGS, BatchHeader, Layout, compressed, signed_record
from veredus.delivery.columns import encode_columns
from veredus.delivery.payload import columns_of
from veredus.delivery.publication import Rows
from veredus.delivery.rows import encode_rows

ROWS = Rows(
    [b"EWR.LAX", b"", b"JFK.SFO"],
    [b"first", b"second" * 20, b""],
    [1_000_000, 5, 7],
    [{"delay": 3, "carrier": "UA"}, None, {"at": datetime(2013, 1, 1, tzinfo=UTC), "late": True, "ratio": 0.5}],
)


def _header(layout: Layout, flags: int = 0) -> BatchHeader:
    return BatchHeader(int(layout), flags, 0, 0, 3, 4, 5, 1, 3, 1, 5, 1_000_000)


def rows_record() -> bytearray:
    """A batch of three, laid out as rows, with a resume token."""
    return signed_record(_header(Layout.ROWS), [encode_rows(ROWS)], b"token")


def columns_payload() -> bytes:
    """The same three as columns."""
    return b"".join(encode_columns(columns_of(ROWS)))


def columns_record(codec: str | None = None) -> bytearray:
    """A batch of three, laid out as columns, compressed by `codec`."""
    payload = columns_payload()
    if codec is not None:
        payload = compressed(payload, codec)
    return signed_record(_header(Layout.COLUMNS, CODEC_FLAGS[codec]), [payload])
