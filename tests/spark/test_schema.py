"""Publications and rows are one another's columns, exactly, or are refused by the column's name."""

from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    YearMonthIntervalType,
)

from veredus.delivery.arrays import TIMESTAMP
from veredus.delivery.publication import Columns
from veredus.kernel.errors import Refused
from veredus.spark.schema import ROWS_COUNT_MIN, Origin, Taken, check_written, projection_of, published

EVERY_FIXED = StructType(
    [
        StructField("sequence", LongType()),
        StructField("source", StringType()),
        StructField("number", LongType()),
        StructField("key", BinaryType()),
        StructField("body", BinaryType()),
        StructField("event_time", TimestampType()),
        StructField("append_time", TimestampType()),
    ]
)


def struct(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def taken(count: int = 3, source: str = "desk", rows: list[int] | None = None, **attributes: pa.Array) -> Taken:
    keys = pa.DictionaryArray.from_arrays(pa.array([0] * count, pa.int32()), pa.array([b"k"]))
    bodies = pa.array([b"%d" % index for index in range(count)], pa.binary())
    sequences = np.array(range(count) if rows is None else rows, np.int64) + 101
    origin = Origin(count, source, -90, 5_000_000)
    return Taken(Columns(keys, bodies, None, attributes), sequences, (origin,), 4_000_000, 100)


def read(schema: StructType, *batches: Taken, is_mismatch_null: bool = False) -> pa.Table:
    projection = projection_of(schema, is_mismatch_null)
    return pa.Table.from_batches(projection.record_batches(batches), schema=to_arrow_schema(schema, timezone="UTC"))


def test_the_fixed_columns_say_where_a_row_stands_and_whose_it_is() -> None:
    assert read(EVERY_FIXED, taken(2)).to_pylist() == [
        {
            "sequence": 101 + row,
            "source": "desk",
            "number": 11 + row,
            "key": b"k",
            "body": b"%d" % row,
            "event_time": datetime(1970, 1, 1, 0, 0, 4, tzinfo=UTC),
            "append_time": datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC),
        }
        for row in range(2)
    ]


def test_the_rows_of_an_excerpt_keep_their_own_sequences_and_numbers() -> None:
    table = read(struct(sequence=LongType(), number=LongType()), taken(3, rows=[0, 4, 9]))
    assert table.to_pydict() == {"sequence": [101, 105, 110], "number": [11, 15, 20]}


def test_a_row_without_a_source_has_neither_source_nor_number() -> None:
    table = read(struct(source=StringType(), number=LongType()), taken(2, source=""))
    assert table.to_pydict() == {"source": [None, None], "number": [None, None]}


def test_a_schema_is_a_projection_in_its_own_order() -> None:
    table = read(struct(body=StringType(), delay=LongType(), key=StringType()), taken(2, delay=pa.array([7, None])))
    assert table.to_pydict() == {"body": ["0", "1"], "delay": [7, None], "key": ["k", "k"]}


def test_an_attribute_that_is_absent_from_a_batch_is_null() -> None:
    assert read(struct(quote=DoubleType()), taken(2)).to_pydict() == {"quote": [None, None]}


@pytest.mark.parametrize(
    ("kind", "array"),
    [
        (BooleanType(), pa.array([True, None, False])),
        (LongType(), pa.array([1, None, 3])),
        (DoubleType(), pa.array([1.5, None, 3.0])),
        (DoubleType(), pa.array([1, None, 3])),
        (StringType(), pa.array(["a", None, "b"])),
        (StringType(), pa.array(["a", None, "a"]).dictionary_encode()),
        (BinaryType(), pa.array([b"\xff", None, b""])),
        (TimestampType(), pa.array([1, None, 3], TIMESTAMP)),
    ],
)
def test_every_type_of_attribute_can_be_read(kind: DataType, array: pa.Array) -> None:
    table = read(struct(attribute=kind), taken(3, attribute=array))
    assert table["attribute"].to_pylist() == array.to_pylist()
    assert table.schema == to_arrow_schema(struct(attribute=kind), timezone="UTC")


@pytest.mark.parametrize(
    ("kind", "array"),
    [
        (LongType(), pa.array(["7"])),
        (LongType(), pa.array([7.0])),
        (StringType(), pa.array([b"text"])),
        (DoubleType(), pa.array([(1 << 53) + 1])),
    ],
)
def test_an_attribute_of_another_type_is_refused_or_null_as_the_reader_likes(kind: DataType, array: pa.Array) -> None:
    with pytest.raises(Refused, match="column quote: the batch of source 'desk' at sequence 101") as caught:
        read(struct(quote=kind), taken(1, quote=array))
    assert caught.value.code == "type-mismatch"
    assert read(struct(quote=kind), taken(1, quote=array), is_mismatch_null=True)["quote"].to_pylist() == [None]


def test_an_integer_that_a_double_holds_is_one_whatever_stands_beside_it() -> None:
    numbers = pa.array([1, (1 << 53) + 1, None, -(1 << 53), -(1 << 60)])
    table = read(struct(quote=DoubleType()), taken(5, quote=numbers), is_mismatch_null=True)
    assert table["quote"].to_pylist() == [1.0, None, None, -float(1 << 53), None]
    with pytest.raises(Refused, match="has integers that a double does not hold exactly"):
        read(struct(quote=DoubleType()), taken(5, quote=numbers))


def test_a_body_that_is_no_text_is_refused_or_null_where_text_is_wanted() -> None:
    batch = taken(2)
    batch = batch._replace(columns=batch.columns._replace(bodies=pa.array([b"\xff", b"fine"])))
    with pytest.raises(Refused, match="not UTF-8"):
        read(struct(body=StringType()), batch)
    assert read(struct(body=StringType()), batch, is_mismatch_null=True)["body"].to_pylist() == [None, "fine"]


def test_small_batches_are_joined_and_large_ones_are_not_held_back() -> None:
    projection = projection_of(struct(body=BinaryType()), is_mismatch_null=False)
    sizes = [10, 20, ROWS_COUNT_MIN, 5, 6]
    joined = list(projection.record_batches(taken(count) for count in sizes))
    assert [batch.num_rows for batch in joined] == [30 + ROWS_COUNT_MIN, 11]


def test_a_large_batch_reaches_spark_on_the_memory_it_came_in() -> None:
    projection = projection_of(struct(body=BinaryType()), is_mismatch_null=False)
    batch = taken(ROWS_COUNT_MIN)
    (out,) = projection.record_batches([batch])
    assert out.column(0).buffers()[2].address == batch.columns.bodies.buffers()[2].address


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (struct(key=LongType()), "column key: can be read as binary, string"),
        (struct(sequence=StringType()), "column sequence: can be read as bigint, not as string"),
        (
            struct(delay=IntegerType()),
            "column delay: the attribute can be read as boolean, bigint, .*timestamp, not as int",
        ),
        (struct(price=DecimalType(10, 2)), r"not as decimal\(10,2\)"),
        (
            struct(event_time=TimestampNTZType()),
            "can be read as timestamp, not as timestamp_ntz: name it timestamp_ltz",
        ),
        (struct(age=YearMonthIntervalType()), "column age: .* not as interval year to month"),
        (struct(), "no column"),
        (StructType([StructField("delay", LongType(), nullable=False)]), "leave out NOT NULL"),
    ],
)
def test_a_column_that_no_publication_can_have_is_refused(schema: StructType, words: str) -> None:
    with pytest.raises(Refused, match=words) as caught:
        projection_of(schema, is_mismatch_null=False)
    assert caught.value.code == "bad-schema"


def test_rows_to_be_written_become_key_body_time_and_attributes() -> None:
    rows = pa.RecordBatch.from_pydict(
        {
            "key": pa.array(["a", "b"]),
            "body": pa.array([b"1", b"2"]),
            "event_time": pa.array([1, 2], pa.timestamp("us", tz="Europe/Rome")),
            "small": pa.array([1, None], pa.int32()),
            "ratio": pa.array([0.5, None], pa.float32()),
            "seen": pa.array([1, None], pa.timestamp("us", tz="Europe/Rome")),
        }
    )
    out = published(rows)
    kinds = [pa.binary(), pa.binary(), TIMESTAMP, pa.int64(), pa.float64(), TIMESTAMP]
    assert out.schema.types == kinds
    assert out.to_pydict()["small"] == [1, None]
    assert out["event_time"].cast(pa.int64()).to_pylist() == [1, 2]


def test_rows_without_key_and_body_are_published_with_empty_ones() -> None:
    out = published(pa.RecordBatch.from_pydict({"delay": [1, 2]}))
    assert out.to_pydict() == {"delay": [1, 2], "key": [b"", b""], "body": [b"", b""]}


@pytest.mark.parametrize("name", ["key", "body", "event_time"])
def test_a_null_where_a_publication_has_none_is_refused(name: str) -> None:
    kind = TIMESTAMP if name == "event_time" else pa.binary()
    with pytest.raises(Refused, match=f"column {name} has no value in 1 of"):
        published(pa.RecordBatch.from_pydict({name: pa.array([None], kind)}))


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (struct(key=BinaryType(), sequence=LongType()), "column sequence is assigned by the node"),
        (struct(key=LongType()), "column key: can be binary, string, not bigint: cast it"),
        (struct(key=BinaryType(), at=TimestampNTZType()), "not timestamp_ntz: cast it to timestamp_ltz"),
        (struct(key=BinaryType(), age=YearMonthIntervalType()), "column age: .* not interval year to month: cast it"),
        (struct(day=DateType()), "column day: an attribute can be"),
    ],
)
def test_a_column_that_cannot_be_published_is_refused_before_a_row_is_written(schema: StructType, words: str) -> None:
    with pytest.raises(Refused, match=words):
        check_written(schema)


def test_narrow_numbers_may_be_written() -> None:
    check_written(struct(key=StringType(), small=IntegerType(), ratio=FloatType()))


def test_names_are_known_whatever_their_case() -> None:
    rows = {"KEY": ["k"], "Body": [b"b"], "EVENT_TIME": pa.array([1], TIMESTAMP), "Venue": ["EWR"]}
    out = published(pa.RecordBatch.from_pydict(rows))
    assert out.to_pydict() == {
        "key": [b"k"],
        "body": [b"b"],
        "event_time": [datetime(1970, 1, 1, 0, 0, 0, 1, UTC)],
        "Venue": ["EWR"],
    }
    table = read(struct(KEY=BinaryType(), Sequence=LongType(), SIZE=LongType()), taken(2, size=pa.array([4, 5])))
    assert table.to_pydict() == {"KEY": [b"k", b"k"], "Sequence": [101, 102], "SIZE": [4, 5]}


def test_types_are_named_as_a_schema_of_spark_names_them() -> None:
    words = "can be read as boolean, bigint, double, string, binary, timestamp, not as int "
    with pytest.raises(Refused, match=words):
        projection_of(struct(quote=IntegerType()), is_mismatch_null=False)
    with pytest.raises(Refused, match="has double, and the schema says bigint; read it"):
        read(struct(quote=LongType()), taken(2, quote=pa.array([1.5, None])))


@pytest.mark.parametrize("names", [("key", "KEY"), ("Body", "body"), ("Event_Time", "event_time"), ("Size", "size")])
def test_two_columns_that_are_one_to_spark_are_refused(names: tuple[str, str]) -> None:
    rows = pa.RecordBatch.from_arrays([pa.array([1], TIMESTAMP) if "ime" in names[0] else pa.array([b"x"])] * 2, names)
    with pytest.raises(Refused, match=f"columns {names[0]} and {names[1]} differ only in case") as caught:
        published(rows)
    assert caught.value.code == "bad-schema"
    with pytest.raises(Refused, match="differ only in case"):
        read(struct(**dict.fromkeys(names, TimestampType() if "ime" in names[0] else BinaryType())), taken(1))


def test_an_attribute_that_may_be_either_of_two_is_refused_and_the_exact_name_is_taken() -> None:
    batch = taken(1, size=pa.array([1]), Size=pa.array([2]))
    with pytest.raises(Refused, match="column SIZE can be either"):
        read(struct(SIZE=LongType()), batch)
    assert read(struct(Size=LongType()), batch).to_pydict() == {"Size": [2]}


@pytest.mark.parametrize(("name", "meant"), [("value", "body"), ("Value", "body"), ("topic", "stream")])
def test_what_kafka_calls_a_column_is_refused_with_the_column_that_is_meant(name: str, meant: str) -> None:
    wanted = struct(**{"key": BinaryType(), name: StringType()})
    with pytest.raises(Refused, match=f"column {name}: there is none, do you mean {meant}") as caught:
        projection_of(wanted, is_mismatch_null=False)
    assert (caught.value.code, caught.value.details) == ("bad-schema", {"column": name})
    projection_of(wanted, is_mismatch_null=False, attributes={name})
    projection_of(struct(**{meant: StringType(), name: StringType()}), is_mismatch_null=False)


def test_rows_whose_bodies_are_called_value_are_refused_before_they_are_written_without() -> None:
    for kind in (BinaryType(), StringType()):
        with pytest.raises(
            Refused, match="column value would be an attribute, and every body empty: rename it to body"
        ):
            check_written(struct(key=StringType(), value=kind))
    check_written(struct(key=StringType(), value=DoubleType()))
    check_written(struct(body=StringType(), value=StringType()))


def test_rows_that_name_a_topic_are_told_of_the_column_stream() -> None:
    with pytest.raises(Refused, match="do you mean column topic"):
        check_written(struct(topic=StringType(), body=StringType()), is_stream_named=False)
    check_written(struct(topic=StringType(), body=StringType()))


def test_a_column_that_is_there_twice_is_not_said_to_differ_in_case() -> None:
    twice = StructType([StructField("key", StringType())] * 2)
    with pytest.raises(Refused, match="column key is there twice: rename or drop one"):
        projection_of(twice, is_mismatch_null=False)


def test_a_text_that_a_mismatch_makes_null_cannot_be_not_null() -> None:
    schema = StructType([StructField("body", StringType(), nullable=False)])
    projection_of(schema, is_mismatch_null=False)
    with pytest.raises(Refused, match=r"column body is null .* onMismatch = null: leave out NOT NULL"):
        projection_of(schema, is_mismatch_null=True)
