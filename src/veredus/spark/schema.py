"""How rows of Spark and publications of a stream are one another's columns.

    stream string | sequence bigint | source string | number bigint | key | body | event_time, append_time timestamp | …

`key` and `body` are binary, or string where the reader says so. Every other column is the attribute of its name.
Names are Spark's: their case counts only where `spark.sql.caseSensitive` is true.
Reading, the schema is a projection: what it does not name is not decoded for Spark. `source` and `number` are null
where the publication came from an anonymous source or through a sink.
Source: docs/internals/DESIGN.md, "Spark"; docs/decisions/0008-spark-columns.md.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkTypeError
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType, TimestampNTZType

from veredus.delivery.arrays import TIMESTAMP, constant_octets, constant_time, numbers_array, plain_array, text_array
from veredus.delivery.publication import Columns
from veredus.kernel.errors import Refused

from .columns import check_names, is_case_sensitive, known_names, value_named

FIXED_DDL = (
    "sequence bigint, source string, number bigint, key binary, body binary,"
    " event_time timestamp_ltz, append_time timestamp_ltz"
)
"""`timestamp` alone is another type where `spark.sql.timestampType` says so."""
ROWS_COUNT_MIN = 4_096
"""Rows that are gathered into one Arrow batch for Spark, if that many follow at once."""
_INTEGER_MAX = 1 << 53
"""Up to here, a double holds every integer."""
ROWS_SIZE_MIN = 8 << 20
"""Bytes that are gathered into one Arrow batch for Spark, if that many follow at once."""

_OCTETS = (pa.binary(), pa.string())
_FIXED: dict[str, tuple[pa.DataType, ...]] = {
    "sequence": (pa.int64(),),
    "source": (pa.string(),),
    "number": (pa.int64(),),
    "key": _OCTETS,
    "body": _OCTETS,
    "event_time": (TIMESTAMP,),
    "append_time": (TIMESTAMP,),
    "stream": (pa.string(),),
}
WRITTEN = ("stream", "key", "body", "event_time")
"""Columns of rows to be written that are no attributes. A publication cannot be without: a null in them is refused."""
_OF_KAFKA = {"value": "body", "topic": "stream"}
"""What others call a column: an attribute of this name, without the column, is more likely the column than itself."""
_GIVEN_BY_THE_NODE = ("sequence", "source", "number", "append_time")
_ATTRIBUTE_TYPES = (pa.bool_(), pa.int64(), pa.float64(), pa.string(), pa.binary(), TIMESTAMP)
_WIDENED = {
    pa.int8(): pa.int64(), pa.int16(): pa.int64(), pa.int32(): pa.int64(), pa.float32(): pa.float64(),
    pa.large_string(): pa.string(), pa.large_binary(): pa.binary(),
}  # fmt: skip


_SPARK_NAMES = {pa.bool_(): "boolean", pa.int64(): "bigint", pa.float64(): "double", TIMESTAMP: "timestamp"}
"""What Spark calls a type, where Arrow calls it otherwise."""


class Origin(NamedTuple):
    """Where `row_count` rows come from: source "" is none; `number_offset` is added to a sequence for its number."""

    row_count: int
    source: str
    number_offset: int
    append_time_us: int


class Taken(NamedTuple):
    """Rows as they came from the node, of one batch or of several: each row's sequence, and the origins in order.

    `event_time_us` is that of all rows where they have no own; `size` is that of whole batches, in bytes.
    """

    columns: Columns
    sequences: npt.NDArray[np.int64]
    origins: Sequence[Origin]
    event_time_us: int
    size: int


# ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Projection:
    """The columns that Spark wants, in its order, as Arrow sees them."""

    wanted: pa.Schema
    is_mismatch_null: bool

    def record_batches(self, batches: Iterable[Taken], stream: str = "") -> Iterator[pa.RecordBatch]:
        """The rows of `batches` of a stream in order, small ones joined, in exactly the schema that Spark expects.

        Raises `Refused("type-mismatch")` for an attribute of another type than its column, and for a key or body that
        is no text where text is wanted; where mismatches are null, such a value is null instead.
        """
        check_names(self.wanted.names, self._known, is_case_sensitive())
        gathered: list[list[pa.Array]] = []
        row_count = size = 0
        for taken in batches:
            gathered.append(self.arrays(taken, stream))
            row_count += len(taken.columns.keys)
            size += taken.size
            if row_count >= ROWS_COUNT_MIN or size >= ROWS_SIZE_MIN:
                yield self._joined(gathered)
                gathered, row_count, size = [], 0, 0
        if gathered:
            yield self._joined(gathered)

    def is_fitting(self, columns: Columns) -> bool:
        """Whether each attribute has the very type that is wanted."""
        for field in self.wanted:
            if field.name not in self._known:
                array = value_named(field.name, columns.attributes, is_case_sensitive())
                if array is not None and _plain_type(array.type) != field.type:
                    return False
        return True

    @cached_property
    def _known(self) -> dict[str, str]:
        """Which of the fixed columns those are that are."""
        return known_names(self.wanted.names, _FIXED)

    def arrays(self, taken: Taken, stream: str) -> list[pa.Array]:
        """One batch's columns, in the order of the schema."""
        return [self._array(field, taken, stream) for field in self.wanted]

    def _joined(self, gathered: list[list[pa.Array]]) -> pa.RecordBatch:
        if len(gathered) == 1:
            return pa.RecordBatch.from_arrays(gathered[0], schema=self.wanted)
        columns = [pa.concat_arrays(arrays) for arrays in zip(*gathered, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=self.wanted)

    def _array(self, field: pa.Field, taken: Taken, stream: str) -> pa.Array:
        columns, count = taken.columns, len(taken.columns.keys)
        match self._known.get(field.name):
            case "sequence":
                return numbers_array(taken.sequences, field.type)
            case "stream":
                return constant_octets(stream.encode(), count, pa.string())
            case "number":
                return _numbers(taken)
            case "source":
                return _sources(taken)
            case "key":
                return self._octets(columns.keys, field, taken)
            case "body":
                return self._octets(columns.bodies, field, taken)
            case "event_time" if columns.event_times_us is not None:
                return columns.event_times_us.view(TIMESTAMP)
            case "event_time":
                return constant_time(taken.event_time_us, count)
            case "append_time":
                return numbers_array(_repeated(taken, [origin.append_time_us for origin in taken.origins]), TIMESTAMP)
            case _:
                array = value_named(field.name, columns.attributes, is_case_sensitive())
                return self._attribute(array, field, taken)

    def _octets(self, array: pa.Array, field: pa.Field, taken: Taken) -> pa.Array:
        plain = plain_array(array)
        if plain.type == field.type:
            return plain
        try:
            return plain.cast(field.type)
        except pa.ArrowInvalid:
            if self.is_mismatch_null:
                return pa.array([_text_of(octets) for octets in plain.to_pylist()], field.type)
            raise _mismatched(field.name, "bytes that are not UTF-8", field.type, taken) from None

    def _attribute(self, array: pa.Array | None, field: pa.Field, taken: Taken) -> pa.Array:
        if array is None:
            return pa.nulls(len(taken.columns.keys), field.type)
        plain = plain_array(array)
        if plain.type == field.type:
            return plain
        found = _said([plain.type])
        if plain.type == pa.int64() and field.type == pa.float64():
            try:
                return plain.cast(field.type)
            except pa.ArrowInvalid:
                if self.is_mismatch_null:
                    return _doubles(plain)
                found = "integers that a double does not hold exactly"
        if self.is_mismatch_null:
            return pa.nulls(len(plain), field.type)
        raise _mismatched(field.name, found, field.type, taken)


def projection_of(schema: StructType, is_mismatch_null: bool, attributes: Collection[str] = ()) -> Projection:
    """What `schema` asks for; `attributes` are sure to be meant as such.

    Raises `Refused("bad-schema")` with the column that no publication can have.
    """
    if not len(schema):
        raise Refused("bad-schema", f"the schema has no columns: name some of {FIXED_DDL}, or attributes")
    known = known_names(schema.names, _FIXED)
    for given in schema:
        name = known.get(given.name, "")
        allowed = _FIXED.get(name, _ATTRIBUTE_TYPES)
        if _arrow_type(given) not in allowed:
            what = "" if name else "the attribute "
            kind = given.dataType.simpleString()
            kind += ": name it timestamp_ltz" if isinstance(given.dataType, TimestampNTZType) else ""
            raise Refused(
                "bad-schema",
                f"column {given.name}: {what}can be read as {_said(allowed)}, not as {kind}",
                column=given.name,
            )
    wanted = to_arrow_schema(schema, timezone="UTC")
    for field in wanted:
        name = known.get(field.name, "")
        if not field.nullable and name not in ("sequence", "stream", "key", "body", "event_time", "append_time"):
            raise Refused("bad-schema", f"column {field.name} can be absent from a publication: leave out NOT NULL")
        if not field.nullable and is_mismatch_null and name in ("key", "body") and field.type == pa.string():
            message = f"column {field.name} is null where it is no text, with onMismatch = null: leave out NOT NULL"
            raise Refused("bad-schema", message, column=field.name)
        meant = _meant_by(field, known)
        if meant and field.name not in attributes:
            raise Refused(
                "bad-schema",
                f"column {field.name}: there is none, do you mean {meant}? If it is an attribute, name it in option"
                " attributes, too",
                column=field.name,
            )
    return Projection(wanted, is_mismatch_null)


def _arrow_type(field: StructField) -> pa.DataType:
    """The column's type as Arrow knows it; null where it knows none."""
    try:
        return to_arrow_schema(StructType([field]), timezone="UTC").field(0).type
    except PySparkTypeError:
        return pa.null()


def _said(kinds: Iterable[pa.DataType]) -> str:
    return ", ".join(_SPARK_NAMES.get(kind, str(kind)) for kind in kinds)


def _meant_by(field: pa.Field, known: Mapping[str, str]) -> str:
    """The column that is not there under its own name, and probably is under this field's; "" for none."""
    meant = _OF_KAFKA.get(field.name.lower(), "")
    return meant if field.type in _FIXED.get(meant, ()) and meant not in known.values() else ""


def _plain_type(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _repeated(taken: Taken, values: Sequence[int]) -> npt.NDArray[np.int64]:
    """For every row the value of its origin."""
    return np.repeat(np.array(values, np.int64), [origin.row_count for origin in taken.origins])


def _numbers(taken: Taken) -> pa.Array:
    numbers = taken.sequences + _repeated(taken, [origin.number_offset for origin in taken.origins])
    return _named_only(taken, numbers_array(numbers, pa.int64()))


def _sources(taken: Taken) -> pa.Array:
    codes = {source: code for code, source in enumerate(dict.fromkeys(origin.source for origin in taken.origins))}
    if len(codes) == 1:
        texts = constant_octets(taken.origins[0].source.encode(), len(taken.sequences), pa.string())
    else:
        rows = _repeated(taken, [codes[origin.source] for origin in taken.origins])
        texts = text_array(list(codes)).take(numbers_array(rows, pa.int64()))
    return _named_only(taken, texts)


def _named_only(taken: Taken, array: pa.Array) -> pa.Array:
    """The array, which has no nulls yet, null in the rows of anonymous origins."""
    if all(origin.source for origin in taken.origins):
        return array
    is_named = _repeated(taken, [bool(origin.source) for origin in taken.origins])
    bits = np.packbits(is_named.astype(np.bool_), bitorder="little")
    return pa.Array.from_buffers(array.type, len(array), [pa.py_buffer(bits), *array.buffers()[1:]])


def _doubles(integers: pa.Array) -> pa.Array:
    """The integers as doubles; null for those that a double may not hold exactly."""
    is_held = pc.and_(pc.greater_equal(integers, -_INTEGER_MAX), pc.less_equal(integers, _INTEGER_MAX))
    return pc.if_else(is_held, integers.cast(pa.float64(), safe=False), pa.scalar(None, pa.float64()))


def _text_of(octets: bytes) -> str | None:
    try:
        return octets.decode()
    except UnicodeDecodeError:
        return None


def _mismatched(name: str, found: str, wanted: pa.DataType, taken: Taken) -> Refused:
    name_of_source = taken.origins[0].source
    source = f" of source {name_of_source!r}" if name_of_source else ""
    return Refused(
        "type-mismatch",
        f"column {name}: the batch{source} at sequence {taken.sequences[0]} has {found}, and the schema says"
        f" {_said([wanted])}; read it as that type, or set the option `onMismatch` to null",
        column=name,
        sequence=int(taken.sequences[0]),
    )


# ── writing ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def check_written(schema: StructType, is_stream_named: bool = True) -> None:
    """Raise `Refused("bad-schema")` unless every column of rows to be written can be part of a publication.

    `is_stream_named`: whether the options name the stream, and no column does.
    """
    known = known_names(schema.names, _FIXED)
    if is_stream_named and "stream" in known.values():
        message = "the option `stream` and the column `stream` both name the stream of the rows: use only one"
        raise Refused("bad-option", message, option="stream")
    if not is_stream_named and "stream" not in known.values():
        topics = [name for name in schema.names if _OF_KAFKA.get(name.lower()) == "stream"]
        hint = f"; do you mean column {topics[0]}? Rename it to stream" if topics else ""
        message = f"the stream of the rows is missing: set the option `stream`, or add a column `stream`{hint}"
        raise Refused("bad-option", message, option="stream")
    for given in schema:
        field = pa.field(given.name, _arrow_type(given))
        if _meant_by(field, known) == "body":
            raise Refused(
                "bad-schema",
                f"column {field.name} would be an attribute, and every body empty: rename it to body. If it is an"
                " attribute, add a column body",
                column=field.name,
            )
        name = known.get(field.name, "")
        if name in _GIVEN_BY_THE_NODE:
            raise Refused(
                "bad-schema", f"column {field.name} is assigned by the node: drop it, or rename it to keep it"
            )
        kind = _WIDENED.get(field.type, field.type)
        allowed = _FIXED.get(name, _ATTRIBUTE_TYPES)
        if kind not in allowed:
            what = "" if name else "an attribute "
            cast = "cast it to timestamp_ltz" if isinstance(given.dataType, TimestampNTZType) else "cast it"
            raise Refused(
                "bad-schema",
                f"column {given.name}: {what}can be {_said(allowed)}, not {given.dataType.simpleString()}: {cast}",
                column=given.name,
            )


def published(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows as the client publishes them: key and body binary, times in UTC, attributes in the types there are.

    The columns key, body and event_time are called so, whatever their case was; a key or body column that is not there
    is empty bytes. Raises `Refused`: `null-column` for a null key, body or time, `bad-schema` for names that are one.
    """
    known = known_names(rows.schema.names, _FIXED)
    check_names(rows.schema.names, known, is_case_sensitive())
    arrays: dict[str, pa.Array] = {}
    for given, array in zip(rows.schema.names, rows.columns, strict=True):
        name = known.get(given, given)
        if name in WRITTEN and array.null_count:
            missing = f"no value in {array.null_count} of {len(array)} rows"
            message = f"column {given} has {missing}: fill them, or filter them out"
            raise Refused("null-column", message, column=given)
        kind = pa.binary() if name in ("key", "body") else _WIDENED.get(array.type, array.type)
        if pa.types.is_timestamp(kind):
            kind = TIMESTAMP
        arrays[name] = array if array.type == kind else array.cast(kind)
    for name in ("key", "body"):
        if name not in arrays:
            arrays[name] = pa.repeat(pa.scalar(b"", pa.binary()), rows.num_rows)
    return pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))
