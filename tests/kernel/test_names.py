"""Names are checked where people give them, and the refusal says which character is wrong."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veredus.kernel.errors import Refused
from veredus.kernel.names import NAME_SIZE_MAX, checked_name

LETTERS = "abcXYZ019_"
SIGNS = ".:@/+=-"


@given(st.sampled_from(LETTERS), st.text(LETTERS + SIGNS, max_size=NAME_SIZE_MAX - 1))
def test_a_name_of_allowed_characters_is_given_back(first: str, rest: str) -> None:
    assert checked_name("stream", first + rest) == first + rest


@given(
    st.text(LETTERS, min_size=1, max_size=20), st.characters(exclude_characters=LETTERS + SIGNS), st.text(max_size=5)
)
def test_a_wrong_character_is_named_with_its_position(before: str, wrong: str, after: str) -> None:
    if wrong.isascii() and wrong.isalnum():
        return
    with pytest.raises(Refused) as caught:
        checked_name("source", before + wrong + after)
    assert caught.value.code == "bad-name"
    assert caught.value.details["position"] == len(before)
    assert repr(wrong) in caught.value.message


@pytest.mark.parametrize("name", ["", "x" * (NAME_SIZE_MAX + 1), "-a", ".a", "a b", "a\n", "a\0", "ä", "a\u0661"])
def test_what_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(Refused, match="bad-name"):
        checked_name("stream", name)


def test_the_longest_name_is_a_name() -> None:
    assert checked_name("sink", "x" * NAME_SIZE_MAX) == "x" * NAME_SIZE_MAX
