"""Filters: any of some patterns, and a condition."""

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.matching.test_patterns import SCHEMED, SOME_KEYS
from veredus.kernel.errors import Refused
from veredus.matching import INSTRUCTION_COUNT_MAX, PATTERN_COUNT_MAX, Filter, compile_filter, compile_pattern, union_of
from veredus.matching.filters import ONE_BY_ONE_COUNT_MAX

KEYS = pa.array([b"EWR.LAX", b"EWR.SFO", b"JFK.LAX", b"LGA.BOS"])
DELAY = pa.array([10, -3, 40, None])


def wanted_rows(wanted: Filter, keys: pa.Array = KEYS) -> list[int]:
    mask = compile_filter(wanted).select(keys, {"delay": DELAY}.get, 4)
    return [row for row, is_wanted in enumerate(mask) if is_wanted]


def test_a_filter_that_says_nothing_wants_everything() -> None:
    assert compile_filter(Filter()).is_everything
    assert compile_filter(Filter(keys=("literal:a", "tokens:>"))).is_everything
    assert wanted_rows(Filter()) == [0, 1, 2, 3]


def test_a_filter_that_says_something_does_not_want_everything() -> None:
    assert not compile_filter(Filter(keys=("EWR.",))).is_everything
    assert not compile_filter(Filter(where="TRUE")).is_everything


def test_keys_are_a_union_and_the_condition_is_asked_besides() -> None:
    keys = ("prefix:EWR.", "literal:JFK.LAX")
    assert wanted_rows(Filter(keys=keys)) == [0, 1, 2]
    assert wanted_rows(Filter(keys=keys, where="delay > 0")) == [0, 2]
    assert wanted_rows(Filter(where="delay > 0")) == [0, 2]
    assert wanted_rows(Filter(keys=keys, where="delay > 0"), KEYS.dictionary_encode()) == [0, 2]


@pytest.mark.parametrize("count", [1, 4, ONE_BY_ONE_COUNT_MAX, 2 * ONE_BY_ONE_COUNT_MAX])
@pytest.mark.parametrize("keys", [("EWR.",), ("prefix:EWR.", "literal:JFK.LAX"), ("tokens:*.LAX",), ("regex:.*S.*",)])
def test_a_list_of_keys_is_matched_as_a_column_of_them_is(keys: tuple[str, ...], count: int) -> None:
    listed = (KEYS.to_pylist() * count)[:count]
    compiled = compile_filter(Filter(keys=keys, where="$key <> 'EWR.SFO'"))
    found = compiled.select(listed, {}.get, count).tolist()
    assert found == compiled.select(pa.array(listed), {}.get, count).tolist()
    assert found == [compiled.keys.matches(key) and key != b"EWR.SFO" for key in listed]


def test_no_column_is_asked_for_where_no_key_is_wanted() -> None:
    asked: list[str] = []
    compiled = compile_filter(Filter(keys=("XYZ",), where="delay > 0"))
    assert compiled.select([b"EWR.LAX"], asked.append, 1).tolist() == [False]
    assert not asked


def test_the_key_can_be_asked_about_without_being_a_column() -> None:
    wanted = Filter(where="$key LIKE '%.LAX' AND delay < 20")
    assert wanted_rows(wanted) == [0]
    assert compile_filter(wanted).names == ("delay",)


def test_filters_are_values_that_can_be_sent() -> None:
    wanted = Filter(keys=("EWR.",), where="delay > 0")
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(wanted), type=Filter) == wanted
    assert msgspec.json.decode(msgspec.json.encode(wanted), type=Filter) == wanted
    assert len({wanted, Filter(keys=("EWR.",), where="delay > 0"), Filter()}) == 2
    assert compile_filter(wanted) == compile_filter(Filter(keys=("prefix:EWR.",), where="(delay) > 0"))


def test_too_many_patterns_are_refused_and_as_many_as_allowed_are_not() -> None:
    keys = tuple(f"literal:{place}" for place in range(PATTERN_COUNT_MAX))
    assert compile_filter(Filter(keys=keys)).keys.matches(b"7")
    with pytest.raises(Refused) as caught:
        compile_filter(Filter(keys=(*keys, "literal:one more")))
    assert caught.value.code == "bad-filter"


@pytest.mark.parametrize(
    ("wanted", "code", "position"),
    [
        (Filter(keys=("a", "regex:(")), "bad-pattern", 7),
        (Filter(where="delay >"), "bad-predicate", 7),
        (Filter(where=""), "bad-predicate", 0),
    ],
)
def test_a_filter_that_does_not_parse_is_refused_with_the_position(wanted: Filter, code: str, position: int) -> None:
    with pytest.raises(Refused) as caught:
        compile_filter(wanted)
    assert caught.value.code == code
    assert caught.value.details["position"] == position


def test_patterns_that_a_prefix_covers_are_left_out() -> None:
    union = union_of(compile_pattern(text) for text in ["EWR.LAX", "EWR.", "literal:EWR.SFO", "literal:JFK", "EWR."])
    assert [str(pattern) for pattern in union.patterns] == ["prefix:EWR.", "literal:JFK"]


@given(st.lists(SCHEMED, min_size=1, max_size=5), st.lists(SOME_KEYS, max_size=10))
def test_a_union_selects_what_any_of_its_patterns_matches(texts: list[str], keys: list[bytes]) -> None:
    patterns = [compile_pattern(text) for text in texts]
    expected = [any(pattern.matches(key) for pattern in patterns) for key in keys]
    union = union_of(patterns)
    assert [union.matches(key) for key in keys] == expected
    column = pa.array(keys, pa.binary())
    assert union.select(column).tolist() == expected
    assert union.select(column.dictionary_encode()).tolist() == expected


def test_the_regular_expressions_of_one_filter_have_so_many_instructions_together_and_no_more() -> None:
    texts = [f"regex:(a|b)*a(a|b){{{400 + number}}}" for number in range(64)]
    sizes = [compile_pattern(text).program_size for text in texts]
    fitting = next(count for count in range(64) if sum(sizes[: count + 1]) > INSTRUCTION_COUNT_MAX)
    compile_filter(Filter((*texts[:fitting], *texts[:fitting], "prefix:a")))
    with pytest.raises(Refused, match=r"at most 16384 instructions together") as caught:
        compile_filter(Filter(tuple(texts[: fitting + 1])))
    assert caught.value.code == "bad-filter"


def test_what_is_held_for_a_filter_grows_with_its_regular_expressions() -> None:
    small, large = "regex:EWR\\..*", "regex:(a|b)*a(a|b){600}"
    assert compile_filter(Filter((small, "prefix:a"))).size_in_terms < 8
    assert compile_filter(Filter((large,))).size_in_terms > compile_pattern(large).program_size // 20
    assert compile_filter(Filter()).size_in_terms == 0
