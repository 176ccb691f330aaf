"""A server that answers, but late: a proxy says so, and takes it for silent only while it answers nothing at all."""

from veredus.kernel.events import DeadlineReached
from veredus.protocols.topics import messages as m
from veredus.protocols.topics.exchange import Answer, Answered, Ask
from veredus.protocols.topics.messages import encode_message
from veredus.protocols.topics.proxy import MILLISECOND

from .proxy_scene import SECOND, Scene, said

BUSY = "s1:1, which has the topic a, answers other requests, but not this one in time: try again"


def late(token: int) -> Answered:
    return Answered(token, encode_message(m.Status("s1:1", "NO_MESSAGES")), server="s1:1")


def test_a_server_whose_answers_all_come_too_late_is_not_silent() -> None:
    scene = Scene()
    scene.claim("s1:1", "a")
    (first,) = scene.ask(1, m.Get("alice", "a", "-1"))
    scene.pass_time(50 * MILLISECOND)
    (second,) = scene.ask(2, m.Get("bob", "a", "-1"))
    assert isinstance(first, Ask)
    assert isinstance(second, Ask)
    scene.pass_time(360 * MILLISECOND)
    assert scene.notes == ["server-silent"]
    assert scene.tell(late(first.token)) == [], "who asked was told already"
    assert not scene.proxy.silent
    effects = [effect for effect in scene.pass_time(50 * MILLISECOND) if isinstance(effect, Answer)]
    assert said(effects) == [(2, "SERVER_UNAVAILABLE", BUSY)]
    assert scene.notes == ["server-silent", "server-answers-again"]


def test_for_how_long_a_server_was_silent_is_counted_from_its_last_answer() -> None:
    scene = Scene()
    scene.claim("s1:1", "a")
    scene.ask(1, m.Get("alice", "a", "-1"))
    (other,) = scene.ask(2, m.Get("bob", "a", "-1"))
    assert isinstance(other, Ask)
    scene.pass_time(290 * MILLISECOND)
    scene.answer(other.token, "NO_MESSAGES")
    effects = [effect for effect in scene.pass_time(110 * MILLISECOND) if isinstance(effect, Answer)]
    text = "s1:1, which has the topic a, has not answered for 0.1 s: try again"
    assert said(effects) == [(1, "SERVER_UNAVAILABLE", text)]


def test_while_the_proxy_was_away_its_servers_were_not_silent() -> None:
    scene = Scene()
    scene.claim("s1:1", "a")
    scene.ask(1, m.Get("alice", "a", "-1"))
    scene.pass_time(350 * MILLISECOND)
    (other,) = scene.ask(2, m.Get("bob", "a", "-1"))
    assert isinstance(other, Ask)
    scene.answer(other.token, "NO_MESSAGES")
    heard_ns = scene.now_ns + 60 * MILLISECOND
    scene.now_ns += 2 * SECOND
    assert said(scene.tell(DeadlineReached(heard_ns))) == [(1, "SERVER_UNAVAILABLE", BUSY)]
    assert not scene.proxy.silent
