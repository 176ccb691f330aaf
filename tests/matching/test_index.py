"""The index of filters: it names each that wants something of a batch, and leaves out what it can tell."""

from collections.abc import Callable
from math import inf, nextafter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.matching.strategies import COLUMNS, CONDITIONS, LITERALS, batches, likenesses
from tests.matching.test_patterns import SCHEMED
from veredus.matching import Filter, compile_filter
from veredus.matching.filters import CompiledFilter, union_of
from veredus.matching.index import REFINED_COUNT_MAX, Column, FilterIndex
from veredus.matching.needs import Begins, Need, OneOf, Span, needs_of
from veredus.matching.patterns import EVERY_KEY, compile_pattern
from veredus.matching.predicate import Predicate
from veredus.matching.syntax import Between, Comparison, Condition, Conjunction, Membership, Name, names_of

NAMES = st.sampled_from([*COLUMNS, "absent"]).map(Name)
SYMBOLS = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])
INDEXED: st.SearchStrategy[Condition] = st.one_of(
    st.builds(Comparison, SYMBOLS, NAMES, LITERALS),
    st.builds(Comparison, SYMBOLS, LITERALS, NAMES),
    st.builds(Between, NAMES, LITERALS, LITERALS, st.booleans()),
    st.builds(Membership, NAMES, st.lists(LITERALS, min_size=1, max_size=3).map(tuple), st.booleans()),
    likenesses(),
)
PREDICATES = (
    INDEXED | st.lists(INDEXED, min_size=2, max_size=4).map(lambda found: Conjunction(tuple(found))) | CONDITIONS
).map(lambda condition: Predicate(condition, names_of(condition)))
KEY_UNIONS = st.just(union_of([EVERY_KEY])) | st.lists(SCHEMED, min_size=1, max_size=3).map(
    lambda texts: union_of([compile_pattern(text) for text in texts])
)
FILTERS = st.builds(CompiledFilter, KEY_UNIONS, st.none() | PREDICATES)
QUOTES: dict[str, Column] = {
    "$key": [b"ACME", b"INIT", b"ACME", b"ZULU"],
    "quote": pa.array([10, 20, 30, None]),
    "kind": pa.array(["bid", "ask", "ask", "bid"]).dictionary_encode(),
}


def known(filters: dict[str, CompiledFilter]) -> FilterIndex[str]:
    index: FilterIndex[str] = FilterIndex()
    for name, wanted in filters.items():
        if needs := needs_of(wanted):
            index.add(name, needs)
    return index


def by_text(*wheres: str) -> FilterIndex[str]:
    return known({where: compile_filter(Filter(where=where)) for where in wheres})


def found(index: FilterIndex[str], columns: dict[str, Column] = QUOTES) -> set[str]:
    named = index.match(columns.get, len(columns["$key"]), columns)
    assert len(set(named)) == len(named)
    return set(named)


@given(st.lists(FILTERS, max_size=6), batches(), st.booleans())
def test_whatever_wants_a_row_of_a_batch_is_named(filters: list[CompiledFilter], batch: Any, has_list: bool) -> None:
    columns, rows = batch
    index = known({str(place): wanted for place, wanted in enumerate(filters)})
    count, keys = len(rows), columns["$key"]
    of: Callable[[str], Any] = {**columns, "$key": keys.to_pylist() if has_list else keys}.get
    named = index.match(of, count, columns)
    for place, wanted in enumerate(filters):
        if wanted.select(keys, columns.get, count).any():
            assert str(place) in named or not needs_of(wanted), str(wanted.predicate)


@given(st.lists(st.tuples(FILTERS, st.booleans()), max_size=8), batches())
def test_what_was_added_and_removed_leaves_no_trace(changes: list[tuple[CompiledFilter, bool]], batch: Any) -> None:
    columns, rows = batch
    filters = {str(place): wanted for place, (wanted, _) in enumerate(changes) if needs_of(wanted)}
    index = known(filters)
    for place, (_, is_removed) in enumerate(changes):
        if is_removed and str(place) in index:
            index.remove(str(place))
            del filters[str(place)]
    assert set(index) == set(filters)
    assert set(index.match(columns.get, len(rows), columns)) == set(
        known(filters).match(columns.get, len(rows), columns)
    )
    for name in list(index):
        index.remove(name)
    assert (index._spans, index._words, len(index)) == ({}, {}, 0)


@pytest.mark.parametrize(
    ("where", "needs"),
    [
        ("quote >= 5", (Span("quote", 5.0, inf),)),
        ("quote > 5", (Span("quote", nextafter(5.0, inf), inf),)),
        ("quote > 9007199254740993", (Span("quote", 2.0**53, inf),)),
        ("5 > quote AND quote >= 1", (Span("quote", 1.0, nextafter(5.0, 0.0)),)),
        ("quote BETWEEN 1 AND 2.5", (Span("quote", 1.0, 2.5),)),
        ("quote IN (7, 3)", (Span("quote", 3.0, 7.0),)),
        ("kind = 'bid' AND kind IN ('bid', 'ask')", (OneOf("kind", frozenset({b"bid"})),)),
        ("kind LIKE 'b%' AND $key = 'A'", (Begins("kind", frozenset({b"b"})), OneOf("$key", frozenset({b"A"})))),
        ("kind LIKE 'b\\%' ESCAPE '\\'", (OneOf("kind", frozenset({b"b%"})),)),
        ("quote <> 5", ()),
        ("NOT quote > 5", ()),
        ("quote > 5 OR kind = 'bid'", ()),
        ("quote > bid", ()),
        ("kind LIKE '%b'", ()),
        ("flag", ()),
    ],
)
def test_a_filter_needs_what_all_rows_that_it_wants_have(where: str, needs: tuple[Need, ...]) -> None:
    assert needs_of(compile_filter(Filter(where=where))) == needs


@pytest.mark.parametrize(
    ("keys", "need"),
    [
        (("literal:A", "literal:B"), OneOf("$key", frozenset({b"A", b"B"}))),
        (("literal:AB", "prefix:C"), Begins("$key", frozenset({b"AB", b"C"}))),
        (("tokens:eu.*.x", "tokens:us.>"), Begins("$key", frozenset({b"eu.", b"us."}))),
        (("tokens:eu.fra",), Begins("$key", frozenset({b"eu.fra"}))),
        (("regex:abc.*",), Begins("$key", frozenset({b"abc"}))),
        (("tokens:*.x",), None),
        (("prefix:A", "tokens:*.x"), None),
    ],
)
def test_keys_are_needed_by_what_they_begin_with(keys: tuple[str, ...], need: Need | None) -> None:
    assert needs_of(compile_filter(Filter(keys=keys))) == (() if need is None else (need,))


def test_only_what_some_row_meets_is_named() -> None:
    wanted = ("quote > 25", "quote >= 30", "quote > 31", "quote < 10", "quote <= 10", "quote BETWEEN 11 AND 19")
    assert found(by_text(*wanted)) == {"quote > 25", "quote >= 30", "quote <= 10"}
    assert found(by_text("kind = 'bid'", "kind = 'none'", "kind LIKE 'a%'", "other = 'bid'", "kind > 5")) == {
        "kind = 'bid'",
        "kind LIKE 'a%'",
    }


def test_needs_that_different_rows_meet_are_not_met_where_one_of_them_is_a_word() -> None:
    wanted = ("kind = 'ask' AND quote > 25", "kind = 'bid' AND quote > 25", "$key = 'INIT' AND kind = 'bid'")
    assert found(by_text(*wanted)) == {"kind = 'ask' AND quote > 25"}


def test_a_single_row_is_asked_about_as_a_batch_is() -> None:
    lone: dict[str, Column] = {"$key": [b"ACME"], "quote": pa.array([10.5])}
    assert found(by_text("quote > 10", "quote > 10.5", "quote >= 10.5", "quote > 11", "$key LIKE 'AC%'"), lone) == {
        "quote > 10",
        "quote >= 10.5",
        "$key LIKE 'AC%'",
    }


def test_thousands_of_filters_are_known_and_forgotten() -> None:
    index = by_text(*(f"quote > {place}" for place in range(3000)))
    assert found(index) == {f"quote > {place}" for place in range(30)}
    for place in range(0, 3000, 2):
        index.remove(f"quote > {place}")
    assert found(index) == {f"quote > {place}" for place in range(1, 30, 2)}
    index.add("anew", needs_of(compile_filter(Filter(where="quote = 20"))))
    assert "anew" in found(index)


def test_a_word_that_many_rows_have_is_left_to_the_filter_itself() -> None:
    count = REFINED_COUNT_MAX + 1
    columns: dict[str, Column] = {
        "$key": [b"k"] * 2 * count,
        "kind": pa.array(["bid"] * count + ["ask"] * count),
        "quote": pa.array([1] * count + [9] * count),
    }
    wanted = ("kind = 'bid' AND quote > 5", "kind = 'ask' AND quote > 9")
    assert found(by_text(*wanted), columns) == {"kind = 'bid' AND quote > 5"}


def test_a_long_word_that_stands_in_every_row_is_not_written_out() -> None:
    rows = [0] * 16_000
    rows[77] = 1
    words = pa.DictionaryArray.from_arrays(pa.array(rows, pa.int32()), pa.array(["w" * 1_000_000, "x"]))
    columns: dict[str, Column] = {"$key": [b"key"] * len(rows), "word": words}
    index = by_text("word = 'x'", "word = 'y'", "word LIKE 'ww%'", "word = 'x' AND quote > 1")
    before = pa.default_memory_pool().max_memory()
    assert found(index, columns) == {"word = 'x'", "word LIKE 'ww%'"}
    assert pa.default_memory_pool().max_memory() - before < 16 << 20
