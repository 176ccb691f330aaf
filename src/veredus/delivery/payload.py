"""A batch's payload, whichever layout it has: verified when it is offered, read as rows or as columns, cut to an
excerpt.

Source: docs/internals/DESIGN.md, "Batches"; docs/decisions/0004 and 0007.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import repeat
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from veredus.kernel.errors import PeerFault
from veredus.kernel.lazily import Lazily, np, pa, pc
from veredus.kernel.names import KEY_SIZE_MAX
from veredus.kernel.octets import Octets

from .batch import BatchFlags, BatchHeader, BatchLimits, Layout, check_stored, payload_of, signed_record
from .publication import (
    TIMESTAMP_MAX_US,
    TIMESTAMP_MIN_US,
    UNIX_EPOCH,
    AttributeValue,
    Columns,
    Rows,
    in_dates,
)
from .rows import decode_rows, encode_rows

if TYPE_CHECKING:
    import numpy.typing as npt

    from . import arrays
    from . import columns as columnar
else:
    arrays, columnar = Lazily("veredus.delivery.arrays"), Lazily("veredus.delivery.columns")

_READ_LIMITS = BatchLimits(batch_size_max=1 << 30, body_size_max=1 << 30, count_max=1 << 31, attributes_max=1 << 15)
ROWS_COUNT_MAX = 128
"""Batches up to this many publications are laid out as rows, larger ones as columns (benchmarks/micro/layouts.py)."""


def verify_payload(batch: Octets, header: BatchHeader, limits: BatchLimits) -> None:
    """Raise `PeerFault` unless an offered batch's payload is right in every offset, count, size and text, and keeps the
    limits.
    """
    payload = payload_of(batch, header, limits)
    check_stored(batch, header, payload)
    if header.layout == Layout.ROWS:
        rows = decode_rows(payload, header.count, limits.attributes_max, is_offered=True)
        key_size = max(map(len, rows.keys))
        body_size = max(map(len, rows.bodies))
        times = rows.event_times_us
        low, high = (min(times), max(times)) if times else (None, None)
        is_excerpt = rows.rows is not None
    else:
        columns = columnar.decode_columns(payload, header.count, limits.attributes_max, is_offered=True)
        key_size = int(columnar.lengths_of(columns.keys).max(initial=0))
        body_size = int(columnar.lengths_of(columns.bodies).max(initial=0))
        low, high = _range_of(columns.event_times_us)
        is_excerpt = columns.rows is not None
        if header.count > 1 and columnar.grows_beyond(columns, limits.growth_max):
            message = (
                f"the dictionaries of a batch may add {limits.growth_max} bytes to it once they are written out, these"
                f" add {columnar.growth_of(columns)}: send fewer publications in a batch"
            )
            raise PeerFault("too-large", message)
    if is_excerpt:
        raise PeerFault("bad-batch", "an offered batch must be complete: it must not have a column of rows")
    if key_size > KEY_SIZE_MAX:
        raise PeerFault("too-large", f"a key may have at most {KEY_SIZE_MAX} bytes, one key has {key_size}")
    if body_size > limits.body_size_max:
        raise PeerFault("too-large", f"a body may have at most {limits.body_size_max} bytes, one body has {body_size}")
    if low is None:
        low = high = header.event_time_min_us
    if (low, high) != (header.event_time_min_us, header.event_time_max_us):
        raise PeerFault("bad-batch", "the range of event times in the header differs from that of the publications")


def _range_of(times: pa.Array | None) -> tuple[int | None, int | None]:
    if times is None:
        return None, None
    values = arrays.numbers_of(times)
    return int(values.min()), int(values.max())


class Unpacked:
    """A batch's publications as its layout has them; rows become columns when one is asked for.

    Most filters look at keys and at one attribute, most batches of rows are small, and a column costs more than a row.
    """

    __slots__ = ("_attributes", "_columns", "_rows", "header", "size")

    def __init__(self, batch: Octets, header: BatchHeader) -> None:
        """Raises `PeerFault`."""
        payload = payload_of(batch, header, _READ_LIMITS)
        self.header = header
        self.size = len(payload)
        """Of the payload, in bytes, decompressed."""
        self._rows: Rows | None = None
        self._columns: Columns | None = None
        self._attributes: dict[str, pa.Array | None] = {}
        if header.layout == Layout.COLUMNS:
            self._columns = columns_in(payload, header)
        else:
            self._rows = rows_in(payload, header)

    @property
    def keys(self) -> pa.Array | list[bytes]:
        """The keys: a column, or a list where the batch is laid out so."""
        return self.columns.keys if self._rows is None else self._rows.keys

    @property
    def key_column(self) -> pa.Array:
        """The keys as a column."""
        keys = self.keys
        return arrays.octets_array(keys) if isinstance(keys, list) else keys

    @property
    def columns(self) -> Columns:
        """All of it, as columns."""
        if self._columns is None:
            assert self._rows is not None
            self._columns = columns_of(self._rows)
        return self._columns

    @property
    def names(self) -> Collection[str]:
        """The names of all attributes that some publication has, and perhaps of some that none has."""
        if self._columns is not None:
            return self._columns.attributes
        assert self._rows is not None
        return {name: None for row in self._rows.attributes or () for name in row or ()}

    def attribute(self, name: str) -> pa.Array | None:
        """The attribute's column, None where no publication has it."""
        if self._columns is not None:
            return self._columns.attributes.get(name)
        if name not in self._attributes:
            assert self._rows is not None
            values = [row.get(name) if row else None for row in self._rows.attributes or ()]
            is_there = values.count(None) < len(values)
            self._attributes[name] = attribute_column(name, values) if is_there else None
        return self._attributes[name]


def read_columns(batch: Octets, header: BatchHeader) -> Columns:
    """The batch's publications as columns; on the batch's own memory where it is laid out so. Raises `PeerFault`.

    An event time outside the years 1 to 9999, which no node takes any more, is the nearest one in them.
    """
    return Unpacked(batch, header).columns


def read_rows(batch: Octets, header: BatchHeader) -> Rows:
    """The batch's publications as lists; event times as `read_columns` has them. Raises `PeerFault`."""
    payload = payload_of(batch, header, _READ_LIMITS)
    return rows_in(payload, header) if header.layout == Layout.ROWS else rows_of(columns_in(payload, header))


def read_payload(batch: Octets, header: BatchHeader) -> memoryview:
    """The payload alone, decompressed, for `rows_in` and `columns_in`. Raises `PeerFault`."""
    return payload_of(batch, header, _READ_LIMITS)


def rows_in(payload: Octets, header: BatchHeader) -> Rows:
    """As `read_rows`, of a payload that is laid out as rows. Raises `PeerFault`."""
    rows = decode_rows(payload, header.count, _READ_LIMITS.attributes_max)
    if header.has_dates_only or rows.event_times_us is None:
        return rows
    return rows._replace(event_times_us=list(map(in_dates, rows.event_times_us)))


def columns_in(payload: Octets, header: BatchHeader) -> Columns:
    """As `read_columns`, of a payload that is laid out as columns. Raises `PeerFault`."""
    columns = columnar.decode_columns(payload, header.count, _READ_LIMITS.attributes_max)
    if header.has_dates_only or columns.event_times_us is None:
        return columns
    times = arrays.numbers_of(columns.event_times_us).clip(TIMESTAMP_MIN_US, TIMESTAMP_MAX_US)
    return columns._replace(event_times_us=arrays.numbers_array(times, pa.int64()))


def rows_of(columns: Columns, start: int = 0, count: int | None = None) -> Rows:
    """`count` rows of these columns from `start` on, as lists; decode runs of about 512 to stay within the caches."""

    def cut(array: pa.Array) -> pa.Array:
        return array if start == 0 and count is None else array.slice(start, count)

    times, rows = columns.event_times_us, columns.rows
    return Rows(
        list_of(cut(columns.keys)),
        list_of(cut(columns.bodies)),
        None if times is None else list_of(cut(times)),
        attribute_rows({name: cut(array) for name, array in columns.attributes.items()})
        if columns.attributes
        else None,
        None if rows is None else rows[start : None if count is None else start + count].tolist(),
    )


def laid_out(rows: Rows) -> tuple[Layout, list[Octets]]:
    """The payload of these rows in the layout that suits so many. Raises `PeerFault("mixed-types")`."""
    if len(rows.bodies) <= ROWS_COUNT_MAX:
        return Layout.ROWS, [encode_rows(rows)]
    return Layout.COLUMNS, columnar.encode_columns(columns_of(rows))


def attribute_rows(columns: Mapping[str, pa.Array]) -> list[dict[str, AttributeValue] | None]:
    """The attributes of each row by name; what is null is left out. At least one column."""
    names = tuple(columns)
    lists = [list_of(array) for array in columns.values()]
    make = _MAPPINGS.get(len(names))
    if make is None:
        rows = list(map(dict, map(zip, repeat(names), zip(*lists, strict=True))))
    else:
        rows = make(*names, *lists)
    if any(array.null_count for array in columns.values()):
        return [{name: value for name, value in row.items() if value is not None} for row in rows]
    return rows  # type: ignore[return-value]


# A mapping written out costs a third of `dict(zip(names, row))`.
_MAPPINGS: dict[int, Callable[..., list[dict[str, Any]]]] = {
    1: lambda a, x: [{a: i} for i in x],
    2: lambda a, b, x, y: [{a: i, b: j} for i, j in zip(x, y, strict=True)],
    3: lambda a, b, c, x, y, z: [{a: i, b: j, c: k} for i, j, k in zip(x, y, z, strict=True)],
    4: lambda a, b, c, d, x, y, z, u: [{a: i, b: j, c: k, d: h} for i, j, k, h in zip(x, y, z, u, strict=True)],
}


def list_of(array: pa.Array) -> list[Any]:
    """An array's values as a list: numbers through numpy, a dictionary's values once each."""
    if pa.types.is_dictionary(array.type):
        values = array.dictionary.to_pylist()
        if array.indices.null_count:
            values.append(None)
            codes = arrays.filled_numbers_of(array.indices, len(values) - 1)
        elif len(values) == 1:
            return values * len(array)  # type: ignore[no-any-return]
        else:
            codes = arrays.numbers_of(array.indices)
        words = np.empty(len(values), object)
        words[:] = values
        return words[codes].tolist()  # type: ignore[no-any-return]
    if not array.null_count and array.type in (pa.int64(), pa.float64()):
        return arrays.numbers_of(array).tolist()  # type: ignore[no-any-return]
    if array.type == arrays.TIMESTAMP:
        # By numpy, which leaves no more to Python than an addition; Arrow takes forty times as long.
        times = list(map(UNIX_EPOCH.__add__, arrays.filled_numbers_of(array, 0).view("m8[us]").tolist()))
        if array.null_count:
            return [when if is_valid else None for when, is_valid in zip(times, arrays.validity_of(array), strict=True)]
        return times
    return array.to_pylist()  # type: ignore[no-any-return]


def columns_of(rows: Rows) -> Columns:
    """These rows as columns. An attribute's type is that of its values; text beside numbers, say, raises
    `PeerFault`.
    """
    return Columns(
        arrays.octets_array(rows.keys),
        arrays.octets_array(rows.bodies),
        None if rows.event_times_us is None else arrays.int64_array(rows.event_times_us),
        attribute_columns(rows.attributes) if rows.attributes else {},
        None if rows.rows is None else np.array(rows.rows, np.uint32),
    )


def attribute_columns(rows: Sequence[Mapping[str, AttributeValue | None] | None]) -> dict[str, pa.Array]:
    """Attributes by name as columns, sorted by first appearance.

    Values of one name that have several types cannot make a column: int and float become float64 where that is exact,
    all else raises `PeerFault("mixed-types")`.
    """
    if rows[0] and (lists := _uniform_lists(tuple(rows[0]), rows)) is not None:
        columns = {name: attribute_column(name, values) for name, values in lists.items()}
        return {name: column for name, column in columns.items() if column.null_count < len(column)}
    found = dict.fromkeys(name for row in rows if row for name, value in row.items() if value is not None)
    return {name: attribute_column(name, [row.get(name) if row else None for row in rows]) for name in found}


def _uniform_lists(
    names: tuple[str, ...], rows: Sequence[Mapping[str, AttributeValue | None] | None]
) -> dict[str, list[AttributeValue | None]] | None:
    """The values of each name, when every row has these names and no others: C takes such rows apart by itself."""
    try:
        if len(dict.fromkeys(map(len, rows))) > 1:  # type: ignore[arg-type]
            return None
        return {name: list(map(itemgetter(name), rows)) for name in names}  # type: ignore[arg-type]
    except (TypeError, KeyError):
        return None


def attribute_column(name: str, values: Sequence[AttributeValue | None]) -> pa.Array:
    """One attribute's values as a column; see `attribute_columns`. Text of few distinct values becomes a dictionary."""
    try:
        return arrays.typed_array(values)
    except (pa.ArrowException, OverflowError, ValueError) as error:
        raise PeerFault("mixed-types", f"attribute {name!r}: {error}") from None


def _taken(array: pa.Array, indices: pa.Array) -> pa.Array:
    """These rows of an array; of a dictionary that has more words than they, only their words."""
    taken = array.take(indices)
    if pa.types.is_dictionary(array.type) and len(array.dictionary) > len(indices):
        used = taken.indices.drop_null().unique()
        codes = pc.index_in(taken.indices, value_set=used)
        return pa.DictionaryArray.from_arrays(codes, array.dictionary.take(used))
    return taken


_WRITTEN_OUT_SIZE_MAX = 64 << 10


def _is_written_out_well(columns: Columns) -> bool:
    """Whether rows, which have no dictionaries, would hold about what these columns hold: a long word may stand for
    many.
    """
    return not columnar.grows_beyond(columns, _WRITTEN_OUT_SIZE_MAX)


def excerpt_record(header: BatchHeader, columns: Columns, selection: npt.NDArray[np.bool_]) -> bytearray:
    """A record (its envelope still blank) that holds the selected rows of a batch, in the batch's own layout where that
    pays.

    `selection` is True for each row to keep, as many as `columns` has; at least one. An excerpt can be cut again.
    """
    chosen = np.flatnonzero(selection)
    indices = arrays.numbers_array(chosen, pa.int64())
    rows = chosen.astype(np.uint32) if columns.rows is None else columns.rows[chosen]
    times = columns.event_times_us
    kept = Columns(
        _taken(columns.keys, indices),
        columns.bodies.take(indices),
        None if times is None else times.take(indices),
        {name: _taken(array, indices) for name, array in columns.attributes.items()},
        rows,
    )
    low, high = _range_of(kept.event_times_us)
    is_small = len(chosen) <= ROWS_COUNT_MAX and _is_written_out_well(kept)
    cut = header._replace(
        layout=int(Layout.ROWS if is_small else Layout.COLUMNS),
        flags=int(BatchFlags.EXCERPT) | (header.flags & int(BatchFlags.PARKED)),
        count=len(chosen),
        event_time_min_us=header.event_time_min_us if low is None else low,
        event_time_max_us=header.event_time_min_us if high is None else high,
    )
    payload = [encode_rows(rows_of(kept))] if is_small else columnar.encode_columns(kept)
    return signed_record(cut, payload)
