"""From Arrow tables to what a source publishes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from veredus.delivery.arrays import TIMESTAMP
from veredus.delivery.batch import BatchLimits
from veredus.delivery.columns import lengths_of
from veredus.delivery.cutting import Tabled
from veredus.delivery.publication import TIMESTAMP_MAX_US, TIMESTAMP_MIN_US, Columns
from veredus.kernel.errors import Misuse
from veredus.kernel.lazily import pc
from veredus.kernel.names import KEY_SIZE_MAX

from .arguments import check_unit, shown
from .given import check_names

_TIMES = pa.timestamp("us", tz="UTC")


def tables_of(
    table: pa.Table | pa.RecordBatch,
    key: str,
    body: str,
    event_time: str | None,
    attributes: Sequence[str] | Mapping[str, str] | None,
    limits: BatchLimits,
) -> Iterator[tuple[Tabled, int]]:
    """The rows of a table as publications, a record batch at a time, each with its size in bytes.

    `key`, `body`: columns of text or bytes, without nulls. `event_time`: a column of timestamps, or of whole
    microseconds. `attributes`: columns, or attribute names by column. Raises `Misuse("bad-table")` before the first.
    """
    if not isinstance(table, pa.Table | pa.RecordBatch):
        is_frame = hasattr(table, "columns")
        advice = "pyarrow.Table.from_pandas(frame)" if is_frame else "pyarrow.table(…) or pyarrow.Table.from_pandas(…)"
        raise Misuse(
            "bad-table", f"a table must be a pyarrow.Table or RecordBatch, not {shown(table)}: {advice} makes one"
        )
    if not isinstance(attributes, Mapping | Sequence | None) or isinstance(attributes, bytes):
        raise Misuse("bad-table", f"attributes must be a list of columns, or a mapping, not {shown(attributes)}")
    if isinstance(attributes, str):
        raise Misuse("bad-table", f"attributes must be a list of columns: [{attributes!r}]")
    batches = [table] if isinstance(table, pa.RecordBatch) else table.combine_chunks().to_batches()
    names = dict(attributes) if isinstance(attributes, Mapping) else {name: name for name in attributes or ()}
    check_names(names.values(), limits.attributes_max)
    made = [_tabled(batch, key, body, event_time, names, limits) for batch in batches if batch.num_rows]
    yield from made


def _tabled(
    batch: pa.RecordBatch, key: str, body: str, event_time: str | None, names: Mapping[str, str], limits: BatchLimits
) -> tuple[Tabled, int]:
    keys = _octets(batch, key, True)
    bodies = _octets(batch, body, False)
    _check_size("key", keys, KEY_SIZE_MAX)
    _check_size("body", bodies, limits.body_size_max)
    columns = Columns(
        keys,
        bodies,
        None if event_time is None else _times(batch, event_time),
        {name: _attribute(batch, column) for column, name in names.items()},
    )
    size = int(lengths_of(bodies).sum(dtype="int64")) + int(lengths_of(keys).sum(dtype="int64"))
    return Tabled(columns), size + sum(array.nbytes for array in columns.attributes.values())


def _column(batch: pa.RecordBatch, name: str) -> pa.Array:
    if name not in batch.schema.names:
        raise Misuse("bad-table", f"the table has no column {name!r}; it has {', '.join(batch.schema.names)}")
    return batch.column(name)


def _octets(batch: pa.RecordBatch, name: str, is_dictionary_kept: bool) -> pa.Array:
    array = _column(batch, name)
    if array.null_count:
        raise Misuse(
            "bad-table",
            f"column {name!r} has no value in {array.null_count} of {len(array)} rows: every publication needs a key"
            " and a body",
        )
    kind = array.type
    if is_dictionary_kept and pa.types.is_dictionary(kind):
        values = array.dictionary
        if values.null_count == 0 and _is_octets(values.type):
            return pa.DictionaryArray.from_arrays(array.indices.cast(pa.int32()), values.cast(pa.binary()))
    if pa.types.is_dictionary(kind):
        array = array.dictionary_decode()
    if not _is_octets(array.type):
        raise Misuse("bad-table", f"column {name!r} is of type {kind}: keys and bodies must be text or bytes")
    return _narrowed(array, pa.binary(), name)


def _is_octets(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_string(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary_view(kind)
        or pa.types.is_string_view(kind)
        or pa.types.is_fixed_size_binary(kind)
    )


def _narrowed(array: pa.Array, kind: pa.DataType, name: str) -> pa.Array:
    try:
        return array if array.type == kind else array.cast(kind)
    except pa.ArrowException as error:
        cure = ": round it before" if pa.types.is_timestamp(kind) and pa.types.is_timestamp(array.type) else ""
        raise Misuse("bad-table", f"column {name!r} does not fit {kind}: {error}{cure}") from None


def _times(batch: pa.RecordBatch, name: str) -> pa.Array:
    array = _column(batch, name)
    if array.null_count:
        raise Misuse(
            "bad-table",
            f"column {name!r} has no value in {array.null_count} of {len(array)} rows: give every publication its event"
            " time",
        )
    if pa.types.is_timestamp(array.type):
        if array.type.tz is None:
            raise Misuse("bad-table", f"column {name!r} has no time zone: cast it to timestamp[us, UTC] first")
        array = _narrowed(array, TIMESTAMP, name).view(pa.int64())
    elif not pa.types.is_integer(array.type):
        raise Misuse(
            "bad-table", f"column {name!r} is of type {array.type}: event times must be timestamps or microseconds"
        )
    else:
        for when in pc.min_max(_narrowed(array, pa.int64(), name)).as_py().values():
            if when is not None:
                check_unit(f"a time of column {name!r}", when, "bad-table")
    return _dated(_narrowed(array, pa.int64(), name), name)


def _dated(array: pa.Array, name: str) -> pa.Array:
    """The times, in microseconds, if a `datetime` can say each of them."""
    span = pc.min_max(array.view(pa.int64())).as_py()
    if span["min"] is not None and not TIMESTAMP_MIN_US <= span["min"] <= span["max"] <= TIMESTAMP_MAX_US:
        raise Misuse("bad-table", f"column {name!r} has a time outside the years 1 to 9999 in UTC")
    return array


def _attribute(batch: pa.RecordBatch, name: str) -> pa.Array:
    array = _column(batch, name)
    kind = array.type
    if pa.types.is_dictionary(kind):
        values = array.dictionary
        if values.null_count == 0 and _is_octets(values.type):
            wanted = pa.string() if "string" in str(values.type) else pa.binary()
            return pa.DictionaryArray.from_arrays(array.indices.cast(pa.int32()), values.cast(wanted))
        array = array.dictionary_decode()
        kind = array.type
    if pa.types.is_boolean(kind):
        return array
    if pa.types.is_integer(kind):
        return _narrowed(array, pa.int64(), name)
    if pa.types.is_floating(kind):
        return _narrowed(array, pa.float64(), name)
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return _dated(_narrowed(array, TIMESTAMP, name), name)
    if _is_octets(kind):
        return _narrowed(array, pa.string() if "string" in str(kind) else pa.binary(), name)
    raise Misuse(
        "bad-table",
        f"column {name!r} is of type {kind}: attributes must be bool, integer, float, text, bytes or timestamp with a"
        " time zone; cast it to one of these",
    )


def _check_size(what: str, array: pa.Array, size_max: int) -> None:
    size = int(lengths_of(array).max(initial=0))
    if size > size_max:
        message = f"a {what} may have at most {size_max} bytes, row {_longest(array)} has {size}"
        raise Misuse("too-large", message, size=size)


def _longest(array: pa.Array) -> int:
    lengths = pc.binary_length(array.dictionary_decode() if pa.types.is_dictionary(array.type) else array)
    return int(pc.index(lengths, pc.max(lengths)).as_py())
