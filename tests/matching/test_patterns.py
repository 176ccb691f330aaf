"""Key patterns: what each means, one key at a time and by the column, and how they are refused."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veredus.kernel.errors import Misuse, Refused
from veredus.matching import EVERY_KEY, PATTERN_SIZE_MAX, compile_pattern, prefix_text

KEYS = [
    b"",
    b".",
    b"EWR",
    b"EWR.",
    b"EWR.LAX",
    b"EWR.LAX.UA.15",
    b"JFK.LAX.UA",
    b"a..b",
    b"EWR\n",
    b"\xff\x00",
    "é".encode(),
]
WORDS = st.sampled_from(["a", "b", "ab", "", "é", "*", r"\xff", r"\\", r"\x00", r"\x2a", r"\x3e", "a b"])
SCHEMED = st.one_of(
    st.lists(WORDS, max_size=4).map(lambda words: "literal:" + ".".join(words)),
    st.lists(WORDS, max_size=4).map(lambda words: "prefix:" + ".".join(words)),
    st.lists(WORDS, max_size=4).map(lambda words: "tokens:" + ".".join(words)),
    st.lists(WORDS, max_size=4).map(lambda words: "tokens:" + ".".join([*words, ">"])),
    st.sampled_from(
        ["regex:a.*", "regex:[ab]+", r"regex:\C*", "regex:(?i)A|é.", r"regex:a\.[^.]*", "regex:", "regex:(?s).?"]
    ),
    st.lists(WORDS, max_size=3).map(".".join),
)
SOME_KEYS = st.lists(
    st.sampled_from(
        [b"a", b"b", b"ab", b"", b".", "é".encode(), b"*", b">", b"\xff", b"\\", b"\x00", b"a b", b"\n", b"A"]
    ),
    max_size=6,
).map(b"".join)


def matched(text: str) -> list[bytes]:
    pattern = compile_pattern(text)
    found = [key for key in KEYS if pattern.matches(key)]
    mask = pattern.select(pa.array([*KEYS, None], pa.binary()))
    assert [key for key, is_wanted in zip([*KEYS, None], mask, strict=True) if is_wanted] == found
    return found


def position_of_refusal(text: str) -> int:
    with pytest.raises(Refused) as caught:
        compile_pattern(text)
    assert caught.value.code == "bad-pattern"
    position = caught.value.details["position"]
    assert isinstance(position, int)
    return position


def test_a_literal_matches_its_key_alone() -> None:
    assert matched("literal:EWR.LAX") == [b"EWR.LAX"]
    assert matched(r"literal:\xff\x00") == [b"\xff\x00"]
    assert matched("literal:") == [b""]


def test_a_prefix_matches_what_begins_with_it() -> None:
    assert matched("prefix:EWR.") == [b"EWR.", b"EWR.LAX", b"EWR.LAX.UA.15"]
    assert matched(r"prefix:\xff") == [b"\xff\x00"]
    assert matched("prefix:") == KEYS


def test_a_bare_pattern_is_a_prefix_taken_as_it_stands() -> None:
    assert matched("EWR.LAX.") == [b"EWR.LAX.UA.15"]
    assert compile_pattern(r"a\xff*") == compile_pattern(r"prefix:a\\xff*")
    assert compile_pattern("user:1") == compile_pattern("prefix:user:1")
    assert compile_pattern("") == EVERY_KEY


def test_a_star_stands_for_exactly_one_token() -> None:
    assert matched("tokens:EWR.*") == [b"EWR.", b"EWR.LAX"]
    assert matched("tokens:*.LAX.*") == [b"JFK.LAX.UA"]
    assert matched("tokens:*") == [b"", b"EWR", b"EWR\n", b"\xff\x00", "é".encode()]
    assert matched("tokens:a.*.b") == [b"a..b"]


def test_a_tail_stands_for_one_or_more_tokens() -> None:
    assert matched("tokens:EWR.>") == [b"EWR.", b"EWR.LAX", b"EWR.LAX.UA.15"]
    assert matched("tokens:*.LAX.>") == [b"EWR.LAX.UA.15", b"JFK.LAX.UA"]
    assert matched("tokens:>") == KEYS
    assert compile_pattern("tokens:>").is_everything


def test_an_octet_that_is_written_out_is_no_wildcard() -> None:
    pattern = compile_pattern(r"tokens:a.\x2a")
    assert pattern.matches(b"a.*")
    assert not pattern.matches(b"a.b")
    assert str(pattern) == r"tokens:a.\x2a"


def test_a_regular_expression_matches_the_whole_key_as_utf_8() -> None:
    assert matched(r"regex:(EWR|JFK)\.[A-Z.]*") == [b"EWR.", b"EWR.LAX", b"JFK.LAX.UA"]
    assert matched("regex:EWR|JFK") == [b"EWR"]
    assert matched("regex:.") == [b".", "é".encode()]
    assert matched(r"regex:\C\C") == [b"\xff\x00", "é".encode()]


@settings(max_examples=300)
@given(SCHEMED, st.lists(SOME_KEYS | st.none(), max_size=12), st.integers(0, 2))
def test_a_column_is_matched_as_its_keys_are_one_by_one(text: str, keys: list[bytes | None], start: int) -> None:
    pattern = compile_pattern(text)
    expected = [key is not None and pattern.matches(key) for key in keys]
    column = pa.array([b"a"] * start + keys, pa.binary()).slice(start)
    assert pattern.select(column).dtype == np.bool_
    assert pattern.select(column).tolist() == expected
    assert pattern.select(column.dictionary_encode()).tolist() == expected
    assert pattern.select(column.cast(pa.large_binary())).tolist() == expected


@settings(max_examples=200)
@given(SCHEMED)
def test_the_canonical_text_gives_an_equal_pattern(text: str) -> None:
    pattern = compile_pattern(text)
    again = compile_pattern(str(pattern))
    assert again == pattern
    assert hash(again) == hash(pattern)
    assert str(again) == str(pattern)


@given(st.binary(max_size=60))
def test_any_octets_can_be_written_as_a_prefix(prefix: bytes) -> None:
    text = prefix_text(prefix)
    assert text.isprintable() or not text.isascii()
    assert compile_pattern(text).matches(prefix)
    assert not prefix or not compile_pattern(text).matches(prefix[:-1])


@settings(max_examples=300)
@given(
    st.sampled_from(["", "literal:", "prefix:", "tokens:", "regex:"]),
    st.lists(st.sampled_from([*"ab.*>\\x()[]{}?+|^$é:-1Q2\ud800", r"\Q", "{1000}", "(?"]), max_size=12).map("".join),
)
def test_any_text_is_a_pattern_or_refused_with_a_position_in_it(scheme: str, rest: str) -> None:
    try:
        pattern = compile_pattern(scheme + rest)
    except Refused as refusal:
        position = refusal.details["position"]
        assert isinstance(position, int)
        assert 0 <= position <= len(scheme + rest)
    else:
        assert compile_pattern(str(pattern)) == pattern


@pytest.mark.parametrize(
    ("text", "position"),
    [
        (r"literal:a\q", 9),
        (r"literal:a\x4", 9),
        (r"prefix:\xg0", 7),
        ("literal:" + "k" * 256, 8),
        ("k" * 256, 0),
        ("tokens:a.>.b", 11),
        ("tokens:" + ".".join(["k" * 100] * 3), 7),
        ("tokens:" + "*." * 256, 7),
        ("tokens:a.b*", 10),
        (r"tokens:a.b\x2ec", 9),
        ("regex:a(b", 9),
        ("regex:(a))", 9),
        ("regex:x[a", 7),
        (r"regex:\*a**b", 9),
        ("regex:ab{2000}c", 8),
        ("regex:é(?=a)", 7),
        (r"regex:\Qab", 10),
        ("regex:(.{50}){20}", 6),
        ("literal:a\udc80", 9),
        ("regex:" + "a" * PATTERN_SIZE_MAX, 0),
    ],
)
def test_what_is_no_pattern_is_refused_at_its_place(text: str, position: int) -> None:
    assert position_of_refusal(text) == position


@pytest.mark.parametrize(
    "text", ["literal:" + "\x01" * 255, "prefix:" + "\x01" * 255, "tokens:" + "\x01" * 252 + ".*.>", "\x01" * 255]
)
def test_the_longest_patterns_can_be_said_in_their_canonical_text(text: str) -> None:
    assert compile_pattern(str(compile_pattern(text))) == compile_pattern(text)


def test_a_hostile_expression_is_refused_without_being_tried_a_thousand_times() -> None:
    assert position_of_refusal("regex:" + "(?:.{1000}){9}" * 60 + "(") > 0
    assert position_of_refusal("regex:" + ".{1000}" * 140) == 6


def test_keys_of_a_type_that_is_no_text_are_misuse() -> None:
    with pytest.raises(Misuse, match="not int64"):
        compile_pattern("a").select(pa.array([1]))
