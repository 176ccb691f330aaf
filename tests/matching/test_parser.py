"""Predicates as text: what parses to what, and that everything else is refused with its place."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.matching.strategies import CONDITIONS
from veredus.kernel.errors import Refused
from veredus.matching import DEPTH_MAX, PREDICATE_SIZE_MAX, TERM_COUNT_MAX, compile_predicate
from veredus.matching.parser import LIKE_SIZE_MAX, parse
from veredus.matching.syntax import (
    Arithmetic,
    Comparison,
    Condition,
    Conjunction,
    Disjunction,
    Kind,
    Literal,
    Name,
    Negation,
    Sign,
    Truth,
    text_of,
)

WORDS = ["<>", "<=", "a", "b1", "AND", "or", "Not", "IN", "LIKE", "ESCAPE", "BETWEEN", "IS", "NULL", "TIMESTAMP"]
VALUES = ["TRUE", "'x'", "''", "X'0a'", "x'", "1", "2.5", "1e999"]
ODDITIES = ["TIMESTAMP '2013-01-01'", "9223372036854775808", "ABS", "$key", "$", '"odd', '"odd"', "é", "\x00", "\ud800"]
FRAGMENTS = st.sampled_from([*"()+-*/=<>,'\"$.%!0;\\\n", *WORDS, *VALUES, *ODDITIES])


def position_of_refusal(text: str) -> int:
    with pytest.raises(Refused) as caught:
        compile_predicate(text)
    assert caught.value.code == "bad-predicate"
    position = caught.value.details["position"]
    assert isinstance(position, int)
    assert f"at position {position}: " in str(caught.value)
    return position


@settings(max_examples=300)
@given(CONDITIONS)
def test_the_canonical_text_parses_back_to_the_same_tree(condition: Condition) -> None:
    text = text_of(condition)
    assert parse(text) == condition
    assert str(compile_predicate(text)) == text


@settings(max_examples=500)
@given(
    st.lists(FRAGMENTS, max_size=12).map(" ".join) | st.lists(FRAGMENTS, max_size=8).map("".join) | st.text(max_size=20)
)
def test_any_text_is_a_predicate_or_refused_with_a_position_in_it(text: str) -> None:
    try:
        predicate = compile_predicate(text)
    except Refused as refusal:
        position = refusal.details["position"]
        assert isinstance(position, int)
        assert 0 <= position <= len(text)
    else:
        assert compile_predicate(str(predicate)) == predicate


def test_operators_bind_as_in_sql() -> None:
    a, b, c = (Truth(Name(name)) for name in "abc")
    assert parse("a OR b AND NOT c") == Disjunction((a, Conjunction((b, Negation(c)))))
    assert parse("(a OR b) AND c") == Conjunction((Disjunction((a, b)), c))
    one, two, three = (Literal(Kind.INTEGER, number) for number in (1, 2, 3))
    product = Arithmetic(two, (("*", three),))
    assert parse("1 + 2 * 3 = x") == Comparison("=", Arithmetic(one, (("+", product),)), Name("x"))
    assert parse("-x * 2 > 3") == Comparison(">", Arithmetic(Sign("-", Name("x")), (("*", two),)), three)


def test_the_and_of_between_belongs_to_between() -> None:
    assert str(compile_predicate("a between 1 and 2 and b")) == "a BETWEEN 1 AND 2 AND b"
    assert len(parse("a between 1 and 2 and b").conditions) == 2  # type: ignore[union-attr]


def test_keywords_have_no_case_and_names_do() -> None:
    assert compile_predicate("Not A is nUll") == compile_predicate("NOT A IS NULL")
    assert compile_predicate("A = 1") != compile_predicate("a = 1")


def test_the_least_integer_can_be_written_and_one_above_the_greatest_cannot() -> None:
    assert parse("a = -9223372036854775808") == Comparison("=", Name("a"), Literal(Kind.INTEGER, -(2**63)))
    assert position_of_refusal("a = 9223372036854775808") == 4
    assert position_of_refusal("a = -9223372036854775809") == 5
    assert position_of_refusal("a = " + "9" * 5000) == 4


def test_a_timestamp_with_an_offset_is_brought_to_universal_time() -> None:
    assert (
        str(compile_predicate("t < TIMESTAMP '2013-01-01T05:30+05:30'"))
        == "t < TIMESTAMP '2013-01-01 00:00:00.000000Z'"
    )
    assert str(compile_predicate("timestamp < 3")) == "timestamp < 3"


def test_the_names_are_told_once_in_the_order_in_which_they_are_written() -> None:
    predicate = compile_predicate("b = 1 AND a + b > c AND ABS(\"d e\") IN (1) AND $key LIKE 'x'")
    assert predicate.names == ("b", "a", "c", "d e", "$key")


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("", 0),
        ("   ", 3),
        ("a =", 3),
        ("stock = 'SUN", 8),
        ("5", 0),
        ("a + 1", 0),
        ("a AND 'x'", 6),
        ("a < b < c", 6),
        ("a = NULL", 4),
        ("(a = 1", 6),
        ("a = 1)", 5),
        ("a = 1 b", 6),
        ("a IN ()", 6),
        ("a IN (b)", 6),
        ("a IN (-b)", 6),
        ("a IN (1", 7),
        ("a LIKE b", 7),
        ("a LIKE 'x' ESCAPE 'ab'", 18),
        ("a LIKE '!x' ESCAPE '!'", 7),
        ("a LIKE 'x!' ESCAPE '!'", 7),
        ("a NOT 3", 6),
        ("a IS 3", 5),
        ("a BETWEEN 1 OR 2", 12),
        ("a != 1", 2),
        ("NOT", 3),
        ("a = (b = c)", 4),
        ("nope(a) = 1", 0),
        ("ABS(a, b) = 1", 0),
        ("ABS() = 1", 4),
        ("$nope = 1", 0),
        ('"$key" = 1', 0),
        ('"" = 1', 0),
        ("12ab = 1", 2),
        ("X'0' = a", 0),
        ("X'0g' = a", 3),
        ("a = 1e999", 4),
        ("t = TIMESTAMP '2013-02-30'", 14),
        ("t = TIMESTAMP 'today'", 14),
        ("t = TIMESTAMP '0001-01-01 00:00+01:00'", 14),
        ("t = TIMESTAMP '2013-01-01 00:00+19:00'", 14),
        ("a = '\udc80'", 5),
        ("a = 1; b", 5),
    ],
)
def test_what_does_not_parse_is_refused_at_its_place(text: str, position: int) -> None:
    assert position_of_refusal(text) == position


@pytest.mark.parametrize("opening", ["(", "NOT ", "- ", "a AND (", "ABS(", "1 + ("])
def test_deep_nesting_is_refused_and_never_exhausts_the_stack(opening: str) -> None:
    assert position_of_refusal(opening * (PREDICATE_SIZE_MAX // len(opening))) <= len(opening) * (DEPTH_MAX + 1)


def test_what_is_nested_as_deep_as_allowed_parses_prints_and_compares() -> None:
    text = "(" * (DEPTH_MAX - 1) + "a" + ")" * (DEPTH_MAX - 1)
    assert str(compile_predicate(text)) == "a"
    position_of_refusal(f"({text})")
    nested = "NOT " * (DEPTH_MAX - 1) + "a"
    assert str(compile_predicate(nested)) == nested
    assert hash(compile_predicate(nested)) == hash(compile_predicate(nested.lower()))


def test_long_chains_are_not_deep_but_their_terms_are_counted() -> None:
    assert compile_predicate(" OR ".join(["a"] * TERM_COUNT_MAX)).names == ("a",)
    position_of_refusal(" OR ".join(["a"] * (TERM_COUNT_MAX + 1)))
    position_of_refusal(f"a IN ({', '.join(['1'] * TERM_COUNT_MAX)})")


def test_a_pattern_of_like_longer_than_allowed_is_refused() -> None:
    compile_predicate("a LIKE '" + "%_" * (LIKE_SIZE_MAX // 2) + "'")
    assert position_of_refusal("a LIKE '" + "%_" * LIKE_SIZE_MAX + "'") == 7


def test_a_predicate_longer_than_allowed_is_refused_before_it_is_read() -> None:
    position_of_refusal("a = '" + "x" * PREDICATE_SIZE_MAX)
    assert position_of_refusal("t IN (" + ",".join(["TIMESTAMP'2013-01-01'"] * 300) + ")") == 0
