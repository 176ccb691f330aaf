"""What is published: a key, a body, typed attributes and an event time; and the columns that many of them make.

Source: docs/internals/DESIGN.md, "Words".
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

AttributeValue: TypeAlias = bool | int | float | str | bytes | datetime
"""What an attribute holds: bool, int64, float64, text, bytes or an aware timestamp. Absent is null."""

Attributes: TypeAlias = Mapping[str, AttributeValue | None]

UNIX_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
TIMESTAMP_MIN_US = (datetime.min.replace(tzinfo=UTC) - UNIX_EPOCH) // _MICROSECOND
TIMESTAMP_MAX_US = (datetime.max.replace(tzinfo=UTC) - UNIX_EPOCH) // _MICROSECOND
"""What a `datetime` can say, in microseconds: a timestamp attribute beyond it could be stored and never be read."""
ATTRIBUTE_NAME_SIZE_MAX = 255
"""Bytes of UTF-8 in the name of an attribute."""
FLOAT_INTEGER_MAX = 1 << 53
"""Integers up to this are float64 without loss: what an attribute that mixes the two may hold."""


def microseconds_of(when: datetime) -> int:
    """Microseconds from the Unix epoch to an aware `when`; exact. Raises `ValueError` when it is naive."""
    if when.tzinfo is None:
        raise ValueError(f"{when!r} has no time zone: use an aware datetime, e.g. datetime.now(UTC)")
    return (when - UNIX_EPOCH) // _MICROSECOND


def in_dates(microseconds: int) -> int:
    """The nearest time that a `datetime` can say: nodes once took event times outside the years 1 to 9999."""
    return min(max(microseconds, TIMESTAMP_MIN_US), TIMESTAMP_MAX_US)


def datetime_of(microseconds: int) -> datetime:
    """The aware UTC datetime that many microseconds after the Unix epoch; the nearest one where that is none."""
    try:
        return UNIX_EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:
        return UNIX_EPOCH + timedelta(microseconds=in_dates(microseconds))


class Columns(NamedTuple):
    """Publications as Arrow columns of one length.

    `keys` is binary, plain or dictionary-encoded with int32 codes; `bodies` is binary; `event_times_us` is int64, or
    None when all
    are the batch's least event time; `attributes` by name: bool, int64, float64, string, binary or timestamp[us, UTC].
    `rows`, in an excerpt, says which rows of the batch these are: uint32, ascending.
    """

    keys: pa.Array
    bodies: pa.Array
    event_times_us: pa.Array | None
    attributes: dict[str, pa.Array]
    rows: npt.NDArray[np.uint32] | None = None


class Rows(NamedTuple):
    """Publications as Python lists of one length; `event_times_us` and `attributes` may be None for "all default".

    `rows`, in an excerpt, says which rows of the batch these are.
    """

    keys: list[bytes]
    bodies: list[bytes]
    event_times_us: list[int] | None = None
    attributes: list[dict[str, AttributeValue] | None] | None = None
    rows: list[int] | None = None
