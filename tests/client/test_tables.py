"""Arrow tables as publications: the types that are taken, and what is said of those that are not."""

from collections.abc import Sequence
from decimal import Decimal

import pyarrow as pa
import pytest

from veredus.client.tables import tables_of
from veredus.delivery.arrays import TIMESTAMP
from veredus.delivery.batch import BatchLimits
from veredus.delivery.publication import TIMESTAMP_MAX_US, Columns
from veredus.kernel.errors import Misuse

FAR_US = TIMESTAMP_MAX_US + 1
LIMITS = BatchLimits(body_size_max=100, attributes_max=4)


def columns_of(table: pa.Table, attributes: Sequence[str] = (), event_time: str | None = None) -> Columns:
    ((tabled, _),) = tables_of(table, "k", "b", event_time, attributes, LIMITS)
    return tabled.columns


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.string_view(), pa.binary(3)], ids=str
)
def test_keys_and_bodies_are_text_or_bytes_of_any_width(kind: pa.DataType) -> None:
    columns = columns_of(pa.table({"k": pa.array(["abc"], kind), "b": pa.array(["xyz"], kind)}))
    assert (columns.keys.to_pylist(), columns.bodies.to_pylist()) == ([b"abc"], [b"xyz"])
    assert (columns.keys.type, columns.bodies.type) == (pa.binary(), pa.binary())


@pytest.mark.parametrize(
    ("values", "kind", "taken"),
    [
        ([True, None], pa.bool_(), pa.bool_()),
        ([1, 2], pa.int8(), pa.int64()),
        ([1, 2], pa.uint32(), pa.int64()),
        ([1.5, None], pa.float32(), pa.float64()),
        (["a", "b"], pa.large_string(), pa.string()),
        ([b"a", b"b"], pa.binary(1), pa.binary()),
        ([0, 1], pa.timestamp("ms", tz="Europe/Vienna"), TIMESTAMP),
    ],
)
def test_attributes_become_the_types_that_attributes_have(
    values: list[object], kind: pa.DataType, taken: pa.DataType
) -> None:
    table = pa.table({"k": ["a", "b"], "b": ["x", "y"], "x": pa.array(values, kind)})
    assert columns_of(table, ["x"]).attributes["x"].type == taken


def test_an_attribute_that_cannot_be_named_so_is_refused() -> None:
    table = pa.table({"k": ["a"], "b": ["x"], "x": [1]})
    for name in ("", "n" * 256):
        with pytest.raises(Misuse, match="bad-attribute"):
            list(tables_of(table, "k", "b", None, {"x": name}, LIMITS))


def test_dictionaries_stay_dictionaries_in_keys_and_attributes() -> None:
    words = pa.array(["a", "b", "a"]).dictionary_encode()
    columns = columns_of(pa.table({"k": words, "b": words, "x": words}), ["x"])
    assert pa.types.is_dictionary(columns.keys.type)
    assert pa.types.is_dictionary(columns.attributes["x"].type)
    assert columns.bodies.to_pylist() == [b"a", b"b", b"a"]


@pytest.mark.parametrize("unit", ["s", "ms", "us"])
def test_event_times_are_taken_in_microseconds(unit: str) -> None:
    table = pa.table({"k": ["a"], "b": ["x"], "t": pa.array([3], pa.timestamp(unit, tz="UTC"))})
    factor = {"s": 1_000_000, "ms": 1_000, "us": 1}[unit]
    times = columns_of(table, (), "t").event_times_us
    assert times is not None
    assert times.to_pylist() == [3 * factor]


@pytest.mark.parametrize(
    ("columns", "event_time", "attributes", "says"),
    [
        ({"b": ["x"]}, None, [], "no column 'k'"),
        ({"k": [None], "b": ["x"]}, None, [], "no value"),
        ({"k": [1], "b": ["x"]}, None, [], "text or bytes"),
        ({"k": ["a"], "b": ["x" * 101]}, None, [], "at most 100 bytes"),
        ({"k": ["a" * 256], "b": ["x"]}, None, [], "at most 255 bytes"),
        ({"k": ["a"], "b": ["x"], "t": ["now"]}, "t", [], "timestamps or microseconds"),
        ({"k": ["a"], "b": ["x"], "t": pa.array([1], pa.timestamp("us"))}, "t", [], "no time zone"),
        (
            {"k": ["a"], "b": ["x"], "t": pa.array([FAR_US], TIMESTAMP)},
            "t",
            [],
            "'t' has a time outside the years 1 to 9999",
        ),
        ({"k": ["a"], "b": ["x"], "t": [-FAR_US]}, "t", [], "'t' has a time outside the years 1 to 9999"),
        ({"k": ["a"], "b": ["x"], "t": pa.array([FAR_US], TIMESTAMP)}, None, ["t"], "'t' has a time outside the years"),
        ({"k": ["a"], "b": ["x"], "t": [1_764_115_200]}, "t", [], "column 't' looks like seconds"),
        ({"k": ["a"], "b": ["x"], "t": [1_764_115_200_000]}, "t", [], "column 't' looks like milliseconds"),
        ({"k": ["a"], "b": ["x"], "l": [[1]]}, None, ["l"], "attributes must be"),
        ({"k": ["a"], "b": ["x"], "d": [Decimal("12345678901234567890.12")]}, None, ["d"], "cast it to one of these"),
        ({"k": ["a"], "b": ["x"], "n": pa.array([1 << 63], pa.uint64())}, None, ["n"], "'n' does not fit int64"),
        ({"k": ["a"], "b": ["x"]}, None, list("vwxyz"), "at most 4 attributes"),
    ],
)
def test_what_a_table_cannot_say_is_refused_with_the_column(
    columns: dict[str, object], event_time: str | None, attributes: list[str], says: str
) -> None:
    with pytest.raises(Misuse, match=says):
        list(tables_of(pa.table(columns), "k", "b", event_time, attributes, LIMITS))


class DataFrame:
    columns = ("k", "b")

    def __repr__(self) -> str:
        return "   k  b\n0  a  1\n1  b  2"


def test_a_frame_is_refused_without_its_rows_and_with_what_makes_a_table_of_it() -> None:
    with pytest.raises(Misuse) as told:
        list(tables_of(DataFrame(), "k", "b", None, None, LIMITS))  # type: ignore[arg-type]
    assert told.value.message == (
        "a table must be a pyarrow.Table or RecordBatch, not a DataFrame: pyarrow.Table.from_pandas(frame) makes one"
    )
