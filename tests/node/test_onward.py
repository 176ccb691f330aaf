"""What is on the way to a server: who floods it is asked for no more while it is slow, and everybody else is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from veredus.node.onward import ALWAYS_COUNT, LOST_NS, Onward

WAIT_NS = 100


def flooded(onward: Onward) -> int:
    """How much is on the way of somebody who asks for all that he may, in one moment; the last token."""
    token = 0
    while token < 10 * ALWAYS_COUNT and onward.ask("greedy", token + 1, False, 0):
        token += 1
    onward.check()
    return token


def test_a_server_that_answers_soon_is_asked_as_much_as_anybody_wants() -> None:
    assert flooded(Onward(WAIT_NS)) == 10 * ALWAYS_COUNT


def test_a_slow_server_is_asked_for_others_alone_until_it_has_answered() -> None:
    onward = Onward(WAIT_NS)
    last = flooded(onward)
    assert not onward.ask("greedy", last + 1, False, WAIT_NS + 1)
    assert onward.ask("victim", last + 2, False, WAIT_NS + 1)
    for token in range(1, last + 1):
        onward.answer(token)
    onward.check()
    assert onward.ask("greedy", last + 1, False, WAIT_NS + 1)


def test_of_each_some_is_always_on_the_way_however_slow_the_server_is() -> None:
    onward = Onward(WAIT_NS)
    asked = [onward.ask("p", token, False, token * WAIT_NS) for token in range(2 * ALWAYS_COUNT)]
    assert asked == [True] * ALWAYS_COUNT + [False] * ALWAYS_COUNT


def test_the_second_half_of_what_may_be_unwritten_is_for_those_who_have_nothing_on_the_way() -> None:
    onward = Onward(WAIT_NS)
    assert onward.ask("greedy", 1, True, 0)
    assert not onward.ask("greedy", 2, True, 0)
    assert onward.ask("victim", 3, True, 0)


def test_what_is_on_the_way_may_be_asked_once_more() -> None:
    onward = Onward(WAIT_NS)
    assert onward.ask("p", 1, True, 0)
    assert onward.ask("p", 1, True, 1000 * WAIT_NS)
    onward.check()


def test_what_is_never_answered_keeps_nobody_back_for_ever() -> None:
    onward = Onward(WAIT_NS)
    last = flooded(onward)
    assert not onward.ask("greedy", last + 1, False, LOST_NS - 1)
    assert onward.ask("greedy", last + 1, False, LOST_NS)
    onward.check()


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 200), st.booleans(), st.booleans()), max_size=100))
def test_whatever_happens_who_has_nothing_on_the_way_may_ask(steps: list[tuple[str, int, bool, bool]]) -> None:
    onward = Onward(WAIT_NS)
    for now, (payer, number, is_filling, is_asked) in enumerate(steps):
        token = 3 * number + "abc".index(payer)
        if is_asked:
            has_nothing = not any(one % 3 == token % 3 for one in onward._payers)
            assert onward.ask(payer, token, is_filling, 10 * now) or not has_nothing
        else:
            onward.answer(token)
        onward.check()
