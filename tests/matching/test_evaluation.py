"""The evaluation by columns says what a plain interpreter says, row by row."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings

from tests.matching.reference import Cell, answer
from tests.matching.strategies import CONDITIONS, TESTS, batches
from veredus.kernel.errors import Misuse
from veredus.matching import compile_predicate
from veredus.matching.evaluation import evaluate
from veredus.matching.syntax import Condition

Batch = tuple[dict[str, pa.Array], list[dict[str, Cell]]]


def selected(text: str, count: int = 1, **columns: pa.Array) -> list[bool]:
    return compile_predicate(text).select(columns, count).tolist()


def check_against_rows(condition: Condition, batch: Batch) -> None:
    columns, rows = batch
    found = evaluate(condition, columns, len(rows))
    expected = [answer(condition, row) for row in rows]
    assert found.true.dtype == found.false.dtype == np.bool_
    assert found.true.tolist() == [one is True for one in expected]
    assert found.false.tolist() == [one is False for one in expected]


@settings(max_examples=250)
@given(TESTS, batches())
def test_every_single_test_agrees_with_the_plain_interpreter(condition: Condition, batch: Batch) -> None:
    check_against_rows(condition, batch)


@settings(max_examples=150)
@given(CONDITIONS, batches())
def test_every_compound_condition_agrees_with_the_plain_interpreter(condition: Condition, batch: Batch) -> None:
    check_against_rows(condition, batch)


def test_the_selector_of_the_message_service_selects_what_it_says() -> None:
    stock = pa.array(["SUN", "SUN", "IBM", None, "SUN"])
    quote = pa.array([31.0, 30.0, 99.0, 99.0, None])
    assert selected("stock = 'SUN' and quote > 30", 5, stock=stock, quote=quote) == [True, False, False, False, False]


@pytest.mark.parametrize(
    "text", ["a = 1", "a <> 1", "NOT a = 1", "a IN (1)", "a NOT IN (1)", "a", "NOT a", "a + 1 = 2"]
)
def test_nothing_that_is_asked_of_an_absent_attribute_is_true(text: str) -> None:
    assert selected(text) == [False]


def test_only_a_null_test_is_true_of_an_absent_attribute() -> None:
    assert selected("a IS NULL") == [True]
    assert selected("a IS NOT NULL") == [False]


@pytest.mark.parametrize("text", ["t = 1", "t <> 1", "NOT t = 1", "t + 1 > 0", "t BETWEEN 1 AND 2", "t = X'61'", "t"])
def test_a_mismatch_of_kinds_is_unknown_and_so_is_its_negation(text: str) -> None:
    assert selected(text, t=pa.array(["a"])) == [False]
    assert selected(f"NOT ({text})", t=pa.array(["a"])) == [False]


def test_unknown_gives_way_to_what_decides_a_chain() -> None:
    assert selected("absent = 1 OR TRUE") == [True]
    assert selected("NOT (absent = 1 AND FALSE)") == [True]
    assert selected("absent = 1 AND TRUE") == [False]


def test_integers_and_floats_beyond_the_mantissa_compare_exactly() -> None:
    big = pa.array([2**53 + 1])
    rounded = pa.array([float(2**53)])
    assert selected("i > f", i=big, f=rounded) == [True]
    assert selected("i = f", i=big, f=rounded) == [False]
    assert selected("f = 9007199254740993", f=rounded) == [False]
    assert selected("i = 9007199254740992.0", i=big) == [False]
    assert selected("i < 9223372036854775808.0", i=pa.array([2**63 - 1])) == [True]
    assert selected("i IN (9007199254740992.0)", i=big) == [False]


def test_integers_and_floats_in_columns_compare_row_by_row() -> None:
    i = pa.array([2, 2, 2, 2, 2, 2])
    f = pa.array([2.0, 2.5, 1.5, float("nan"), float("inf"), float("-inf")])
    assert selected("i = f", 6, i=i, f=f) == [True, False, False, False, False, False]
    assert selected("i <> f", 6, i=i, f=f) == [False, True, True, True, True, True]
    assert selected("i < f", 6, i=i, f=f) == [False, True, False, False, True, False]
    assert selected("f < i", 6, i=i, f=f) == [False, False, True, False, False, True]
    assert selected("i >= f", 6, i=i, f=f) == [True, False, True, False, False, True]
    assert selected("NOT f <= i", 6, i=i, f=f) == [False, True, False, True, True, False]


def test_a_whole_number_divides_towards_zero() -> None:
    assert selected("i / 2 = -3", i=pa.array([-7])) == [True]
    assert selected("i / 2.0 = -3.5", i=pa.array([-7])) == [True]


def test_arithmetic_without_a_result_is_null() -> None:
    greatest = pa.array([2**63 - 1])
    assert selected(
        "i + 1 IS NULL AND i * 2 IS NULL AND i / 0 IS NULL AND f / 0 IS NULL", i=greatest, f=pa.array([1.0])
    ) == [True]
    assert selected("i + i IS NULL AND i - j IS NULL", i=pa.array([2**62]), j=pa.array([-(2**62)])) == [True]
    assert selected("-i IS NULL AND ABS(i) IS NULL AND i * -1 IS NULL", i=pa.array([-(2**63)])) == [True]


def test_a_sign_turns_numbers_of_both_kinds() -> None:
    assert selected("-f = -1.5 AND +f = 1.5 AND -i = -3 AND ABS(-f) = 1.5", f=pa.array([1.5]), i=pa.array([3])) == [
        True
    ]


def test_wildcards_of_like_take_any_character_a_line_break_too() -> None:
    columns = {"t": pa.array(["a\nb", "ab", "aéb", "aéb\n"])}
    assert compile_predicate("t LIKE 'a_b'").select(columns, 4).tolist() == [True, False, True, False]
    assert compile_predicate("t LIKE 'a%b_'").select(columns, 4).tolist() == [False, False, False, True]
    assert compile_predicate("t LIKE '%\n_'").select(columns, 4).tolist() == [True, False, False, False]
    octets = {"$key": pa.array([b"\xff\nab", b"\xff\na\xff"])}
    assert compile_predicate("$key LIKE '%a_'").select(octets, 2).tolist() == [True, False]


def test_a_key_compares_with_text_and_with_octets() -> None:
    columns = {"$key": pa.array(["é".encode(), b"\xff"])}
    assert compile_predicate("$key = 'é'").select(columns, 2).tolist() == [True, False]
    assert compile_predicate("$key = X'ff'").select(columns, 2).tolist() == [False, True]
    assert compile_predicate("$key LIKE '_'").select(columns, 2).tolist() == [True, False]
    assert compile_predicate("$key LIKE '%'").select(columns, 2).tolist() == [True, True]


def test_times_are_microseconds_of_universal_time() -> None:
    append_time = pa.array([1_356_998_400_000_000, 1_356_998_399_999_999])
    found = compile_predicate("$append_time >= TIMESTAMP '2013-01-01 01:00+01:00'").select(
        {"$append_time": append_time}, 2
    )
    assert found.tolist() == [True, False]


def test_a_condition_on_a_dictionary_is_spread_over_its_rows() -> None:
    carrier = pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 0], pa.int8()), pa.array(["UA", None]))
    assert selected("carrier = 'UA'", 4, carrier=carrier) == [True, False, False, True]
    assert selected("carrier <> 'AA'", 4, carrier=carrier) == [True, False, False, True]
    assert selected("carrier IS NULL", 4, carrier=carrier) == [False, True, True, False]


def test_a_full_dictionary_of_small_indices_still_has_room_for_null() -> None:
    values = pa.array([f"v{place}" for place in range(128)])
    column = pa.DictionaryArray.from_arrays(pa.array([*range(128), None, 5], pa.int8()), values)
    found = selected("v = 'v5'", 130, v=column)
    assert [row for row, is_wanted in enumerate(found) if is_wanted] == [5, 129]


@pytest.mark.parametrize(
    "layout", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())]
)
def test_text_means_the_same_in_every_layout(layout: pa.DataType) -> None:
    column = pa.array(["a", "b", None]).cast(layout)
    assert selected("t LIKE 'a%' AND t < 'b' AND OCTET_LENGTH(t) = 1", 3, t=column) == [True, False, False]


def test_a_column_of_another_length_than_the_batch_is_misuse() -> None:
    with pytest.raises(Misuse, match="has 1 rows, and the batch has 2"):
        selected("a = 1", 2, a=pa.array([1]))


@pytest.mark.parametrize("column", [pa.array([[1]]), pa.array([1], pa.timestamp("ns")), pa.array([2**63], pa.uint64())])
def test_a_column_of_a_type_that_no_attribute_has_is_misuse(column: pa.Array) -> None:
    with pytest.raises(Misuse) as caught:
        selected("a = 1", a=column)
    assert caught.value.code == "bad-column"


def test_columns_that_no_condition_reads_are_not_looked_at() -> None:
    assert selected("a = 1", 1, a=pa.array([1]), other=pa.array([[1], [2]])) == [True]
