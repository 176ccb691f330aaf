"""A proxy that takes a proxy for a server, itself or another one, finds out by what it is answered."""

from __future__ import annotations

from dataclasses import replace

import pytest

from veredus.protocols.topics import messages as m
from veredus.protocols.topics.announcements import NO_SERVER_NS
from veredus.protocols.topics.exchange import Answer, Answered, Ask, Asked
from veredus.protocols.topics.messages import encode_message

from .proxy_scene import SETTINGS, Scene, said

GET = m.Get("alice", "t", "-1")


def loop(scene: Scene, ask: Ask) -> list[object]:
    """The proxy asks itself, and hears what it says."""
    (answer,) = scene.tell(Asked(1000, ask.data, is_from_proxy=True))
    assert isinstance(answer, Answer)
    return list(scene.tell(Answered(ask.token, answer.data)))


def test_a_proxy_that_asks_itself_drops_what_it_took_for_a_server_and_whoever_waits_tries_again() -> None:
    scene = Scene()
    scene.claim("proxy.example:1", "t")
    (ask,) = scene.ask(1, GET)
    assert isinstance(ask, Ask)
    ((peer, status, text),) = said(loop(scene, ask))  # type: ignore[arg-type]
    assert (peer, status) == (1, "SERVER_UNAVAILABLE")
    assert "proxy.example:1 is a proxy and not a server" in text
    assert scene.proxy.topics.servers == []
    assert scene.fields["no-server-but-proxy"]["server"] == "proxy.example:1"
    ((_, status, _),) = said(scene.ask(1, GET))
    assert status == "PROXY_DOES_NOT_KNOW_ANY_SERVER"


def test_the_topics_of_a_proxy_that_was_taken_for_a_server_go_to_a_server() -> None:
    scene = Scene()
    scene.claim("a-proxy:1")
    scene.claim("b-server:1", "other")
    (ask,) = scene.ask(1, GET)
    assert isinstance(ask, Ask)
    assert ask.address == "a-proxy:1"
    loop(scene, ask)
    (again,) = scene.ask(2, GET)
    assert isinstance(again, Ask)
    assert again.address == "b-server:1"
    assert [one.peer for one in scene.answer(again.token, "NO_MESSAGES") if isinstance(one, Answer)] == [2]


def test_a_proxy_that_was_taken_for_a_server_is_refused_for_a_while_and_a_server_that_comes_there_is_taken() -> None:
    scene = Scene()
    scene.claim("a:1", "t")
    (ask,) = scene.ask(1, GET)
    assert isinstance(ask, Ask)
    loop(scene, ask)
    ((_, status, text),) = said(scene.ask(1, m.Periodic("a:1", ("t",))))
    assert (status, "a:1 is a proxy and not a server" in text, "topics.id" in text) == ("REFUSED", True, True)
    scene.pass_time(NO_SERVER_NS)
    scene.claim("a:1", "t")
    assert scene.proxy.topics.server_of("t") == "a:1"


@pytest.mark.parametrize("count", [1, 2])
def test_what_else_is_on_its_way_to_a_proxy_that_was_taken_for_a_server_is_answered_once(count: int) -> None:
    scene = Scene()
    scene.claim("a:1", "t", "u")
    scene.claim("b:1", "t", "u")
    asks = [scene.ask(peer, m.Get("alice", topic, "-1")) for peer, topic in ((1, "t"), (2, "u"))][:count]
    for peer, (ask,) in enumerate(asks, 1):
        assert isinstance(ask, Ask)
        told = loop(scene, ask)
        assert [one.peer for one in told if isinstance(one, Answer)] == [peer]
    assert scene.proxy.topics.servers == ["b:1"]


def test_a_listed_server_at_whose_address_a_proxy_answers_is_one_that_has_not_been_heard() -> None:
    scene = Scene(replace(SETTINGS, servers=("a:1", "b:1")))
    scene.claim("a:1", "t")
    scene.claim("b:1")
    (ask,) = scene.ask(1, GET)
    assert isinstance(ask, Ask)
    loop(scene, ask)
    (beyond,) = scene.ask(1, GET)
    assert isinstance(beyond, Ask)
    ((_, status, text),) = said(scene.answer(beyond.token, "NOT_SUBSCRIBED"))
    assert (status, "a:1, which may have it" in text) == ("SERVER_UNAVAILABLE", True)


@pytest.mark.parametrize("message", [GET, m.Put("bob", "t", 1, b"x"), m.Subscribe("alice", "t")])
def test_no_proxy_asks_a_server_what_another_proxy_asks_it(message: m.Message) -> None:
    scene = Scene()
    scene.claim("a:1", "t")
    ((_, status, text),) = said(scene.tell(Asked(1, encode_message(message), is_from_proxy=True)))
    assert (status, "p1 is a proxy and not a server" in text) == ("PROXY_DOES_NOT_KNOW_ANY_SERVER", True)
