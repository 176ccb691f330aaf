"""An id that the server of a topic does not know: a proxy finds out whether anybody owes something under it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from veredus.protocols.topics import messages as m
from veredus.protocols.topics.exchange import Answer, Answered, Ask
from veredus.protocols.topics.messages import encode_message

from .proxy_scene import SETTINGS, Effect, Scene
from .test_given_on import FIRST, MIDDLE, TOPIC, Place

OLD = "0123456789abcdef-7"
LISTED = replace(SETTINGS, servers=("h:1", "h:2", "h:3"))
GET = m.Get("alice", "t", OLD)


def scene_with(settings: object = LISTED, *away: str) -> Scene:
    """Server `b` has the topic `t`."""
    scene = Scene(settings)  # type: ignore[arg-type]
    for server in ("h:1", "h:2", "h:3"):
        if server not in away:
            scene.claim(server, *(["t"] if server == "h:2" else []))
    return scene


def told(scene: Scene, asked: Ask, word: str, message_id: str = "") -> list[Effect]:
    status = m.Status(asked.address, word, message_id)
    return scene.tell(Answered(asked.token, encode_message(status)))


def the_ask(effects: list[Effect]) -> Ask:
    (ask,) = effects
    assert isinstance(ask, Ask), ask
    return ask


@pytest.mark.parametrize("question", [GET, m.GetMany("alice", "t", OLD, 5)])
def test_an_id_that_no_server_knows_keeps_nobody_waiting(question: m.Message) -> None:
    scene = scene_with()
    ask = the_ask(scene.ask(1, question))
    for answer, following in (
        ("unknown", "h:3"),
        ("NOT_SUBSCRIBED", "h:2"),
        ("unknown", "h:1"),
        ("NOT_SUBSCRIBED", "h:2"),
    ):
        word, message_id = ("SERVER_UNAVAILABLE", OLD) if answer == "unknown" else (answer, "")
        assert ask.data == encode_message(question)
        ask = the_ask(told(scene, ask, word, message_id))
        assert ask.address == following
    assert ask.data == encode_message(question._replace(last_id="-1"))  # type: ignore[union-attr]
    (answered,) = told(scene, ask, "OK", "fedcba9876543210-1")
    assert isinstance(answered, Answer)
    assert b"fedcba9876543210-1" in answered.data


@pytest.mark.parametrize("word", ["OK", "NO_MESSAGES", "SERVER_UNAVAILABLE", "INTERNAL_ERROR"])
def test_another_server_that_knows_the_id_or_is_not_sure_answers(word: str) -> None:
    scene = scene_with()
    ask = the_ask(told(scene, the_ask(scene.ask(1, GET)), "SERVER_UNAVAILABLE", OLD))
    assert ask.address == "h:3"
    (answered,) = told(scene, ask, word)
    assert isinstance(answered, Answer)
    assert word.encode() in answered.data


@pytest.mark.parametrize("why", ["not listed", "one was not heard", "two claim the topic"])
def test_where_a_server_may_have_it_that_is_not_known_the_client_is_told_to_try_again(why: str) -> None:
    scene = scene_with(SETTINGS if why == "not listed" else LISTED, *(["h:3"] if why == "one was not heard" else []))
    if why == "two claim the topic":
        scene.claim("h:1", "t")
    asked = [one for one in scene.ask(1, GET) if isinstance(one, Ask) and one.data.startswith(b"GET")]
    (answered,) = told(scene, asked[0], "SERVER_UNAVAILABLE", OLD)
    assert isinstance(answered, Answer)
    assert b"SERVER_UNAVAILABLE" in answered.data


def test_a_server_says_under_an_id_that_it_does_not_know_it() -> None:
    here, there = Place(FIRST), Place(MIDDLE)
    for place in (here, there):
        assert place.say(m.Subscribe("alice", TOPIC)).status == "OK"
        assert place.say(m.Put("bob", TOPIC, 1, b"one")).status == "OK"
    named = there.say(m.Get("alice", TOPIC, "-1")).message_id
    said = here.say(m.Get("alice", TOPIC, named))
    assert (said.status, said.message_id) == ("SERVER_UNAVAILABLE", named)
