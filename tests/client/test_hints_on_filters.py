"""A filter that is valid and hardly meant gives a warning; what does not parse says what to write."""

import warnings

import pytest

from veredus.client.arguments import filter_of
from veredus.kernel.errors import Refused


def hints(keys: object, where: str | None = None) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        filter_of(keys, where)  # type: ignore[arg-type]
    return [str(one.message) for one in caught]


@pytest.mark.parametrize("pattern", ["a,b", "prefix:a,prefix:b", "literal:a, prefix:b", "tokens:a.x,tokens:b.y"])
def test_a_pattern_that_is_several_is_warned_of(pattern: str) -> None:
    (hint,) = hints(pattern)
    assert repr(pattern) in hint
    assert "give several patterns one by one" in hint


@pytest.mark.parametrize("pattern", ["literal:1,2", "regex:a{1,2}", "prefix:a;b", "tokens:a,b.c", r"prefix:a\x2cb"])
def test_a_comma_that_is_meant_is_not(pattern: str) -> None:
    assert hints([pattern]) == []


def test_two_minus_signs_begin_no_comment() -> None:
    (hint,) = hints(None, "quote > 100 -- only dear ones".replace(" only dear ones", " n"))
    assert hint == (
        "where: -- begins no comment, but is minus twice: take it out, or write - (-x) with parentheses if it is meant"
    )
    assert hints(None, "quote > 100 - (-n)") == []
    assert hints(None, "name = 'a--b'") == []


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("a > 5, b < 3", "found ,; write AND or OR between conditions"),
        ("a > 100 -- only dear ones", "found dear; -- begins no comment"),
    ],
)
def test_what_stands_for_and_or_for_a_comment_elsewhere_is_told(where: str, said: str) -> None:
    with pytest.raises(Refused) as caught:
        filter_of(None, where)
    assert caught.value.code == "bad-predicate"
    assert said in caught.value.message
