"""Arrow's bitmaps and buffers become masks and arrays from wherever a slice begins."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from veredus.kernel.errors import Misuse
from veredus.matching.selection import binary_of, fixed_width, mask_of, spread, true_where_valid, validity_of

FLAGS = st.lists(st.booleans() | st.none(), max_size=40)


@given(FLAGS, st.integers(0, 20), st.integers(0, 40))
def test_a_mask_has_the_flags_of_its_slice(flags: list[bool | None], start: int, count: int) -> None:
    array = pa.array(flags, pa.bool_()).slice(start, count)
    expected = flags[start : start + count]
    assert true_where_valid(array).tolist() == [flag is True for flag in expected]
    valid = validity_of(array)
    assert (valid is None) == (None not in expected)
    if valid is not None:
        assert valid.tolist() == [flag is not None for flag in expected]
        assert (mask_of(array) & valid).tolist() == [flag is True for flag in expected]


@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.none(), max_size=20), st.integers(0, 10))
def test_fixed_width_values_begin_where_the_slice_does(numbers: list[int | None], start: int) -> None:
    array = pa.array(numbers, pa.int64()).slice(start)
    found = fixed_width(array, np.int64).tolist()
    assert len(found) == len(array)
    assert all(number is None or number == place for number, place in zip(numbers[start:], found, strict=True))


def test_a_dictionary_is_tried_once_for_each_value_and_for_null() -> None:
    tried: list[list[str | None]] = []

    def is_a(values: pa.Array) -> np.ndarray:
        tried.append(values.to_pylist())
        return np.array([value == "a" for value in values.to_pylist()])

    column = pa.array(["b", "a", None, "a", "a"]).dictionary_encode().slice(1)
    assert spread(column, is_a).tolist() == [True, False, True, True]
    assert tried == [["b", "a", None]]


def test_text_and_octets_share_memory_with_their_binary_form() -> None:
    text = pa.array(["a", "é"])
    assert binary_of(text).buffers()[2].address == text.buffers()[2].address
    assert binary_of(text).to_pylist() == [b"a", "é".encode()]
    with pytest.raises(Misuse, match="not bool"):
        binary_of(pa.array([True]))
