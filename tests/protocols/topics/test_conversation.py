"""One question of a client's, told by hand what becomes of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veredus.kernel.engine import Now
from veredus.kernel.errors import Misuse
from veredus.kernel.events import DeadlineReached
from veredus.protocols.topics.conversation import (
    AskProxy,
    Conversation,
    Effect,
    GiveUp,
    Phase,
    ProxyAnswered,
    ProxyUnreachable,
    Tell,
)
from veredus.protocols.topics.messages import Status

MILLISECOND = 1_000_000
OK = ProxyAnswered(b"STATUS s OK\r\n\r\n")


def at(ms: int) -> Now:
    """So many milliseconds after the beginning."""
    return Now(ms * MILLISECOND, 0)


def begun(*proxies: str) -> tuple[Conversation, list[Effect]]:
    """A conversation that has asked its first proxy, and what it ordered."""
    conversation = Conversation(b"?", proxies)
    return conversation, list(conversation.begin(at(0)))


def test_the_first_proxy_is_asked_and_its_answer_told() -> None:
    conversation, effects = begun("p1", "p2")
    assert effects == [AskProxy("p1", b"?")]
    assert conversation.handle(OK, at(5)) == [Tell(Status("s", "OK"))]
    assert conversation.deadline() is None
    assert conversation.handle(OK, at(6)) == [], "once"


def test_a_proxy_is_asked_four_times_100_ms_apart_and_then_the_next_one() -> None:
    conversation, _ = begun("p1", "p2")
    asked: list[Effect] = []
    for ms in (100, 200, 300, 400):
        assert conversation.deadline() == ms * MILLISECOND
        assert conversation.handle(DeadlineReached(), at(ms - 1)) == [], "too early"
        asked += conversation.handle(DeadlineReached(), at(ms))
    assert asked == [AskProxy("p1", b"?")] * 3 + [AskProxy("p2", b"?")]


def test_a_proxy_that_cannot_be_reached_is_passed_over_at_once() -> None:
    conversation, _ = begun("p1", "p2")
    assert conversation.handle(ProxyUnreachable("refused the connection"), at(1)) == [AskProxy("p2", b"?")]
    assert conversation.handle(OK, at(2)) == [Tell(Status("s", "OK"))]


def test_whoever_gives_up_names_each_proxy_and_why() -> None:
    conversation, _ = begun("p1", "p2", "p3")
    conversation.handle(ProxyUnreachable("refused the connection"), at(0))
    for ms in (100, 200, 300, 400):
        conversation.handle(DeadlineReached(), at(ms))
    ((end),) = conversation.handle(ProxyAnswered(b"what?"), at(401))
    assert isinstance(end, GiveUp)
    (first, second, third) = end.reasons
    assert (first, second) == (("p1", "refused the connection"), ("p2", "did not answer in 4 tries of 100 ms each"))
    assert third[0] == "p3"
    assert third[1].startswith("gave an invalid answer: an empty line ends a header")


def test_an_answer_that_is_a_question_is_none() -> None:
    conversation, _ = begun("p1")
    ((end),) = conversation.handle(ProxyAnswered(b"SUBSCRIBE a t\r\n\r\n"), at(1))
    assert end == GiveUp((("p1", "answered with SUBSCRIBE"),))


def test_nobody_to_ask_is_said_before_anything_is_asked() -> None:
    with pytest.raises(Misuse) as raised:
        Conversation(b"?", ())
    assert raised.value.code == "no-proxies"


EVENTS = st.sampled_from([OK, ProxyAnswered(b"noise"), ProxyUnreachable("gone"), DeadlineReached()])


@given(st.integers(1, 3), st.lists(st.tuples(EVENTS, st.integers(0, 150)), max_size=40))
def test_whatever_happens_it_ends_once_and_asks_no_more_than_it_may(
    count: int, steps: list[tuple[ProxyAnswered | ProxyUnreachable | DeadlineReached, int]]
) -> None:
    conversation, effects = begun(*(f"p{number}" for number in range(count)))
    ms = 0
    for event, pause in steps:
        ms += pause
        effects += conversation.handle(event, at(ms))
    while conversation.deadline() is not None:
        ms += 100
        effects += conversation.handle(DeadlineReached(), at(ms))
    assert conversation.phase is Phase.DONE
    assert [isinstance(effect, (Tell, GiveUp)) for effect in effects].count(True) == 1
    assert len(effects) - 1 <= 4 * count
