"""Arrays made without pyarrow's own converters are those that the converters make."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.delivery.making import INT64, VALUES
from veredus.delivery.arrays import (
    TIMESTAMP,
    constant_octets,
    constant_time,
    filled_numbers_of,
    int64_array,
    numbers_array,
    numbers_of,
    octets_array,
    plain_array,
    repeated,
    text_array,
    typed_array,
    validity_of,
)

TYPES = {
    "bool": pa.bool_(),
    "int64": pa.int64(),
    "float64": pa.float64(),
    "text": pa.string(),
    "bytes": pa.binary(),
    "timestamp": TIMESTAMP,
}


def like(array: pa.Array, expected: pa.Array) -> None:
    array.validate(full=True)
    plain = plain_array(array)
    plain.validate(full=True)
    assert plain.type == expected.type
    assert plain.null_count == expected.null_count
    assert repr(plain.to_pylist()) == repr(expected.to_pylist())


@pytest.mark.parametrize("kind", sorted(TYPES))
@given(data=st.data())
def test_values_of_one_type_make_the_array_that_arrow_makes(kind: str, data: st.DataObject) -> None:
    pool = data.draw(st.lists(VALUES[kind] | st.none(), min_size=1, max_size=40))
    values = pool * data.draw(st.integers(1, 9))
    expected = pa.array(values, pa.string() if set(values) == {None} else TYPES[kind])
    like(typed_array(values), expected)


@given(st.lists(st.integers(-(1 << 53), 1 << 53) | st.floats(allow_nan=False) | st.none(), min_size=1))
def test_integers_beside_floats_become_floats(values: list[int | float | None]) -> None:
    kinds = set(map(type, values)) - {type(None)}
    expected = pa.string() if not kinds else pa.int64() if kinds == {int} else pa.float64()
    like(typed_array(values), pa.array(values, expected))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([1, "text"], "values of types int, str"),
        ([1, True], "values of types bool, int"),
        ([True, 1.5, None], "values of types bool, float"),
        ([{}, None], "values of types dict"),
        ([[1]], "values of types list"),
        ([1.5, (1 << 53) + 1], "not exactly a float"),
        ([1 << 63], "64 bits"),
        ([None, -(1 << 63) - 1], "64 bits"),
        (["a", "\ud800"], "surrogates"),
        ([datetime(2026, 1, 1)], "time zone"),  # noqa: DTZ001
        ([datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1), None], "time zone"),  # noqa: DTZ001
    ],
    ids=str,
)
def test_what_no_column_can_hold_is_refused(values: list[Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        typed_array(values)


def test_times_of_any_zone_are_the_same_instants() -> None:
    when = datetime(2026, 3, 4, 5, 6, 7, 8, timezone(timedelta(hours=-7)))
    assert typed_array([when]).to_pylist() == [when.astimezone(UTC)]


@pytest.mark.parametrize("words_count", [1, 2, 16, 17, 200])
def test_a_few_words_over_and_over_make_a_dictionary_in_an_order_of_its_own(words_count: int) -> None:
    words = [f"word {index:03}" for index in range(words_count)]
    array = typed_array([words[index * 7 % words_count] for index in range(800)])
    assert pa.types.is_dictionary(array.type) == (words_count <= 16)
    if words_count <= 16:
        assert array.dictionary.to_pylist() == words


@given(st.lists(st.binary(max_size=9) | st.binary(max_size=9).map(bytearray) | st.text(max_size=9)))
def test_bytes_and_text_stand_beside_one_another(values: list[bytes | bytearray | str]) -> None:
    like(octets_array(values), pa.array([v.encode() if isinstance(v, str) else bytes(v) for v in values], pa.binary()))


def test_a_buffer_of_wide_elements_counts_its_bytes() -> None:
    wide = memoryview(np.arange(3, dtype=np.int64))
    assert octets_array([b"x", wide]).to_pylist() == [b"x", wide.tobytes()]
    with pytest.raises(TypeError):
        octets_array([b"x", 7])  # type: ignore[list-item]


@given(st.lists(st.text(max_size=9)))
def test_text_is_written_as_utf_8(values: list[str]) -> None:
    like(text_array(values), pa.array(values, pa.string()))


@given(st.lists(INT64), st.integers(0, 3))
def test_numbers_are_read_where_they_lie(values: list[int], start: int) -> None:
    like(int64_array(values), pa.array(values, pa.int64()))
    array = int64_array(values).slice(start)
    assert numbers_of(array).tolist() == values[start:]
    assert numbers_of(array.view(TIMESTAMP)).tolist() == values[start:]
    like(numbers_array(np.array(values, np.int64), pa.int64()), pa.array(values, pa.int64()))


@given(st.lists(st.integers(-5, 5) | st.none(), min_size=1), st.integers(0, 20))
def test_what_is_null_is_told_and_filled(values: list[int | None], start: int) -> None:
    for array in (pa.array(values, pa.int64()).slice(start), typed_array([*values, 1]).slice(start, len(values))):
        expected = array.to_pylist()
        assert validity_of(array).tolist() == [value is not None for value in expected]
        assert filled_numbers_of(array, 7).tolist() == [7 if value is None else value for value in expected]


@pytest.mark.parametrize("count", [0, 1, 5])
def test_a_constant_is_the_same_in_every_row(count: int) -> None:
    like(constant_octets(b"abc", count), pa.array([b"abc"] * count, pa.binary()))
    like(constant_octets(b"", count), pa.array([b""] * count, pa.binary()))
    like(constant_octets("ä".encode(), count, pa.string()), pa.array(["ä"] * count, pa.string()))
    like(constant_time(5, count), pa.array([5] * count, TIMESTAMP))
    like(repeated(text_array(["w"]), count), pa.array(["w"] * count, pa.string()))
    with pytest.raises(ValueError, match="at most"):
        constant_octets(b"x" * 1024, 1 << 21)
