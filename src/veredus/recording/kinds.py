"""The kinds of things that are written down, and their columns: docs/reference/recordings.md."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import pyarrow as pa


class Kind(StrEnum):
    """What a file holds; also the name of its directory once it is Parquet."""

    OFFERED = "offered"
    ACKNOWLEDGED = "acknowledged"
    JOURNAL = "journal"
    PUSHED = "pushed"
    SETTLED = "settled"
    GAPS = "gaps"


_TEXT, _INT64 = pa.string(), pa.int64()
_SUBSCRIPTION = [("stream", _TEXT), ("subscription", _TEXT), ("life", _TEXT), ("place", _INT64)]
_RANGE = [("first_sequence", _INT64), ("last_sequence", _INT64)]

SCHEMAS: Final[dict[Kind, pa.Schema]] = {
    Kind.OFFERED: pa.schema([("stream", _TEXT), ("source", _TEXT), ("number", _INT64), ("digest", _INT64)]),
    Kind.ACKNOWLEDGED: pa.schema(
        [
            ("stream", _TEXT),
            ("source", _TEXT),
            ("first_number", _INT64),
            ("last_number", _INT64),
            ("first_sequence", _INT64),
        ]
    ),
    Kind.JOURNAL: pa.schema(
        [("stream", _TEXT), ("sequence", _INT64), ("source", _TEXT), ("number", _INT64), ("digest", _INT64)]
    ),
    Kind.PUSHED: pa.schema(
        [
            *_SUBSCRIPTION,
            ("sequence", _INT64),
            ("source", _TEXT),
            ("number", _INT64),
            ("digest", _INT64),
            ("redelivered", pa.bool_()),
        ]
    ),
    Kind.SETTLED: pa.schema([*_SUBSCRIPTION, *_RANGE]),
    Kind.GAPS: pa.schema([*_SUBSCRIPTION, *_RANGE, ("code", _TEXT)]),
}
