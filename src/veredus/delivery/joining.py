"""Many batches as one set of columns: what a reader of a stream of tiny batches wants.

Columns cost microseconds each, however few rows they have; so batches that are laid out as rows are joined as lists
first, and become columns once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

import pyarrow as pa

from veredus.kernel.errors import PeerFault
from veredus.kernel.octets import Octets

from .arrays import constant_time, plain_array
from .batch import BatchHeader, Layout
from .payload import columns_of, read_columns, read_rows
from .publication import AttributeValue, Columns, Rows, in_dates

Signed = tuple[Octets, BatchHeader]
"""A batch without its envelope, and its header."""


def joined_columns(batches: Sequence[Signed]) -> Columns:
    """The rows of these batches, in order, as columns without dictionaries; at least one batch.

    `event_times_us` is always there; an attribute that a batch has not is null in its rows; `rows` is None, also where
    there are excerpts. Integers become floats where another batch has floats. Raises `PeerFault`, and
    `PeerFault("mixed-types")` where an attribute has else one type in one batch and another in the next, or an integer
    is no float exactly.
    """
    parts: list[Columns] = []
    for layout, run in groupby(batches, key=_layout_of):
        if layout == Layout.ROWS:
            parts.append(_plain(columns_of(_joined_rows(run)), 0))
        else:
            parts += [_plain(read_columns(*signed), signed[1].event_time_min_us) for signed in run]
    return parts[0] if len(parts) == 1 else _joined(parts)


def _layout_of(signed: Signed) -> int:
    return signed[1].layout


def _joined_rows(batches: Iterable[Signed]) -> Rows:
    keys: list[bytes] = []
    bodies: list[bytes] = []
    times: list[int] = []
    attributes: list[dict[str, AttributeValue] | None] = []
    for batch, header in batches:
        rows = read_rows(batch, header)
        keys += rows.keys
        bodies += rows.bodies
        times += rows.event_times_us or [in_dates(header.event_time_min_us)] * header.count
        attributes += rows.attributes or [None] * header.count
    return Rows(keys, bodies, times, attributes if any(attributes) else None)


def _plain(columns: Columns, event_time_us: int) -> Columns:
    times = columns.event_times_us
    return Columns(
        plain_array(columns.keys),
        columns.bodies,
        constant_time(event_time_us, len(columns.bodies)).view(pa.int64()) if times is None else times,
        {name: plain_array(array) for name, array in columns.attributes.items()},
    )


def _joined(parts: Sequence[Columns]) -> Columns:
    kinds: dict[str, pa.DataType] = {}
    for part in parts:
        for name, array in part.attributes.items():
            kinds[name] = _kind_of(name, kinds.get(name, array.type), array.type)
    return Columns(
        pa.concat_arrays([part.keys for part in parts]),
        pa.concat_arrays([part.bodies for part in parts]),
        pa.concat_arrays([part.event_times_us for part in parts]),
        {name: pa.concat_arrays([_column(part, name, kind) for part in parts]) for name, kind in kinds.items()},
    )


def _kind_of(name: str, one: pa.DataType, other: pa.DataType) -> pa.DataType:
    if one == other:
        return one
    if one in _NUMBERS and other in _NUMBERS:
        return pa.float64()
    raise PeerFault("mixed-types", f"attribute {name!r} is {one} in one batch and {other} in another")


_NUMBERS = (pa.int64(), pa.float64())


def _column(part: Columns, name: str, kind: pa.DataType) -> pa.Array:
    array = part.attributes.get(name)
    if array is None:
        return pa.nulls(len(part.bodies), kind)
    try:
        return array if array.type == kind else array.cast(kind)
    except pa.ArrowInvalid as error:
        raise PeerFault("mixed-types", f"attribute {name!r}: {error}") from None
