"""A proxy whose servers are away, or slow, and those who ask once more."""

from dataclasses import replace

import pytest

from veredus.protocols.topics import messages as m
from veredus.protocols.topics.exchange import Answer, Answered, Ask, Asked
from veredus.protocols.topics.messages import encode_message
from veredus.protocols.topics.proxy import MILLISECOND, Effect

from .proxy_scene import SECOND, SETTINGS, Scene, said


@pytest.mark.parametrize("is_heard", [True, False])
def test_a_topic_stays_where_its_messages_went_though_one_of_them_was_given_up(is_heard: bool) -> None:
    scene = Scene()
    scene.claim("s1:1", "a")
    scene.claim("s2:1")
    assert isinstance(scene.ask(1, m.Put("bob", "new", 1, b"x"))[-1], Ask)
    scene.pass_time(350 * MILLISECOND)
    (ask,) = scene.ask(2, m.Put("ann", "new", 1, b"x"))
    assert isinstance(ask, Ask)
    assert ask.address == "s2:1"
    if is_heard:
        scene.answer(ask.token)
    ((peer, status, _),) = said([e for e in scene.pass_time(60 * MILLISECOND) if isinstance(e, Answer)])
    assert (peer, status) == (1, "SERVER_UNAVAILABLE")
    if not is_heard:
        scene.answer(ask.token)
    scene.claim("s1:1", "a", "new")
    (ask,) = scene.ask(3, m.Put("ann", "new", 2, b"x"))
    assert isinstance(ask, Ask)
    assert ask.address == "s2:1", "what it puts is to stay in order"


def test_who_subscribed_and_left_is_not_subscribed_by_an_earlier_question_that_is_asked_again() -> None:
    scene = Scene()
    scene.claim("s1:1", "a")
    (lost,) = scene.ask(1, m.Subscribe("alice", "a"))
    (others,) = scene.ask(3, m.Subscribe("bob", "a"))
    assert isinstance(lost, Ask)
    assert isinstance(others, Ask)
    (left,) = scene.ask(4, m.Unsubscribe("alice", "a"))
    assert isinstance(left, Ask)
    scene.answer(left.token)
    effects = scene.pass_time(150 * MILLISECOND)
    assert [effect.token for effect in effects if isinstance(effect, Ask)] == [others.token]
    text = "alice has asked to subscribe to a, or not to be subscribed, since"
    assert said([e for e in effects if isinstance(e, Answer)]) == [(1, "SERVER_UNAVAILABLE", text)]


@pytest.mark.parametrize("question", [m.Put("alice", "a", 1, b"x"), m.Subscribe("alice", "a", 7)])
def test_a_copy_of_what_is_on_its_way_is_not_asked_but_answered_with_it(question: m.Message) -> None:
    scene = Scene()
    scene.claim("s1:1", "a")
    (ask,) = scene.ask(1, question)
    assert isinstance(ask, Ask)
    assert scene.ask(2, question) == scene.ask(3, question) == []
    assert scene.answer(ask.token) == [Answer(peer, b"STATUS s OK\r\n\r\n") for peer in (1, 2, 3)]
    (anew,) = scene.ask(4, question)
    assert isinstance(anew, Ask), "nothing like it is on its way any more"
    assert scene.ask(5, question) == []
    assert [peer for peer, *_ in said([e for e in scene.pass_time(SECOND) if isinstance(e, Answer)])] == [4, 5]


GETS: list[m.Message] = [m.Get("alice", "a", "-1"), m.GetMany("alice", "a", "-1", 9)]


@pytest.mark.parametrize("question", GETS)
def test_no_answer_to_a_get_is_older_than_the_get(question: m.Message) -> None:
    scene = Scene()
    scene.claim("s1:1", "a")
    (first,) = scene.ask(1, question)
    assert isinstance(first, Ask)
    assert scene.ask(2, question) == scene.ask(3, question) == [], "one at a time is asked"
    told, anew = scene.answer(first.token, "NOT_SUBSCRIBED")
    assert told == Answer(1, b"STATUS s NOT_SUBSCRIBED\r\n\r\n")
    assert anew == Ask("s1:1", first.token + 1, encode_message(question)), "for both that wait"
    assert scene.ask(4, question) == []
    told_2, told_3, last = scene.answer(first.token + 1)
    assert [told_2, told_3] == [Answer(peer, b"STATUS s OK\r\n\r\n") for peer in (2, 3)]
    assert isinstance(last, Ask)
    assert scene.answer(last.token) == [Answer(4, b"STATUS s OK\r\n\r\n")]
    assert scene.proxy.peer_count == 0


def test_a_get_that_its_envelope_tells_to_be_a_copy_is_answered_with_the_first() -> None:
    scene = Scene()
    scene.claim("s1:1", "a")
    get = encode_message(GETS[0])
    asked = [
        Asked(1, get, origin=b"1", envelope=(b"7", b"")),
        Asked(2, get, origin=b"1", envelope=(b"7", b"")),
        Asked(3, get, origin=b"1", envelope=(b"8", b"")),
        Asked(4, get, origin=b"2", envelope=(b"7", b"")),
        Asked(5, get, origin=b"1"),
    ]
    (first,) = [effect for one in asked for effect in scene.tell(one)]
    assert isinstance(first, Ask)
    *told, anew = scene.answer(first.token)
    assert told == [Answer(peer, b"STATUS s OK\r\n\r\n") for peer in (1, 2)]
    assert scene.tell(asked[2]._replace(peer=6)) == []
    assert isinstance(anew, Ask)
    assert scene.answer(anew.token) == [Answer(peer, b"STATUS s OK\r\n\r\n") for peer in (3, 4, 5, 6)]


@pytest.mark.parametrize("question", GETS)
def test_who_waits_behind_a_get_is_put_off_with_it(question: m.Message) -> None:
    scene = Scene()
    scene.claim("s1:1", "a")
    scene.ask(1, question)
    scene.pass_time(350 * MILLISECOND)
    assert scene.ask(2, question) == []
    effects = scene.pass_time(50 * MILLISECOND)
    text = "s1:1, which has the topic a, has not answered for 0.4 s: try again"
    assert said(effects) == [(peer, "SERVER_UNAVAILABLE", text) for peer in (1, 2)]


def test_who_subscribes_while_an_older_get_goes_from_server_to_server_gets() -> None:
    scene = Scene()
    scene.claim("s1:1", "a")
    scene.claim("s2:1")
    get = m.Get("alice", "a", "-1")
    scene.ask(1, get)
    (elsewhere,) = scene.answer(1, "NOT_SUBSCRIBED")
    assert isinstance(elsewhere, Ask)
    assert elsewhere.address == "s2:1"
    (subscribe,) = scene.ask(2, m.Subscribe("alice", "a", 7))
    assert isinstance(subscribe, Ask)
    assert scene.answer(subscribe.token) == [Answer(2, b"STATUS s OK\r\n\r\n")]
    assert scene.ask(3, get) == []
    told, anew = scene.answer(elsewhere.token, "NOT_SUBSCRIBED")
    assert told == Answer(1, b"STATUS s NOT_SUBSCRIBED\r\n\r\n")
    assert anew == Ask("s1:1", subscribe.token + 1, encode_message(get))


def test_a_get_with_another_id_lets_no_copy_of_the_one_before_be_asked_beside_it() -> None:
    scene = Scene()
    scene.claim("s1:1", "a")
    older, newer = m.Get("alice", "a", "-1"), m.Get("alice", "a", "x-1")
    questions: list[m.Message] = [older, newer]
    for peer, question in enumerate(questions, 1):
        assert scene.ask(peer, question) == [Ask("s1:1", peer, encode_message(question))]
    assert scene.ask(3, older) == scene.ask(4, newer) == []


def test_what_differs_is_asked_at_once_whoever_asked_what_before() -> None:
    scene = Scene()
    scene.claim("s1:1", "a", "b")
    bob, other, alice = ("bob", "a"), ("alice", "b"), ("alice", "a")
    puts = [m.Put(*alice, 1, b"x"), m.Put(*alice, 1, b"y"), m.Put(*alice, 2, b"x"), m.Put(*bob, 1, b"x")]
    others = [m.Put(*other, 1, b"x"), m.Get(*alice, "-1"), m.Subscribe(*alice), m.Unsubscribe(*alice)]
    for peer, question in enumerate((*puts, *others), 1):
        assert scene.ask(peer, question) == [Ask("s1:1", peer, encode_message(question))]


def test_nobody_is_told_that_it_is_not_subscribed_while_a_listed_server_is_away() -> None:
    scene = Scene(replace(SETTINGS, learning_ns=6 * SECOND, servers=("s1:1", "s2:1", "s3:1")))
    scene.claim("s2:1")
    scene.pass_time(7 * SECOND)
    away = (
        "s2:1 has no such subscription to a, and s1:1, s3:1, which may have it, is not available: try again, or remove"
        " that server from the list"
    )
    for peer, question in enumerate((m.Get("alice", "a", "-1"), m.Unsubscribe("alice", "a")), 1):
        assert [effect.address for effect in scene.ask(peer, question) if isinstance(effect, Ask)] == ["s2:1"]
        assert said(scene.answer(peer, "NOT_SUBSCRIBED")) == [(peer, "SERVER_UNAVAILABLE", away)]
    scene.ask(3, m.Unsubscribe("alice", "a"))
    assert said(scene.answer(3))[0][:2] == (3, "SERVER_UNAVAILABLE"), "who is away may give it messages all the same"
    scene.claim("s3:1")
    scene.claim("s1:1")
    scene.ask(4, m.Unsubscribe("alice", "a"))
    for token, other in ((4, "s1:1"), (5, "s3:1")):
        assert scene.answer(token, "NOT_SUBSCRIBED") == [Ask(other, token + 1, b"UNSUBSCRIBE alice a\r\n\r\n")]
    assert scene.answer(6, "NOT_SUBSCRIBED")[0] == Answer(4, b"STATUS s NOT_SUBSCRIBED\r\n\r\n")


def test_a_question_is_asked_again_three_times_and_then_answered_with_who_is_silent() -> None:
    scene = Scene()
    scene.claim("s1:1", "a")
    (ask,) = scene.ask(1, m.Put("bob", "a", 1, b"x"))
    *again, last = scene.pass_time(SECOND)
    assert again == [ask] * 3
    ((peer, status, text),) = said([last])
    assert (peer, status) == (1, "SERVER_UNAVAILABLE")
    assert text == "s1:1, which has the topic a, has not answered for 0.4 s: try again"
    assert scene.notes == ["server-silent"]
    assert scene.answer(1) == [], "too late: the peer was answered"


def test_while_a_server_is_silent_few_are_let_through_and_the_others_hear_at_once_since_when() -> None:
    scene = Scene()
    scene.claim("s1:1", "a")
    scene.ask(1, m.Get("alice", "a", "-1"))
    scene.pass_time(2 * SECOND)
    (probe,) = scene.ask(2, m.Get("alice", "a", "-1"))
    assert isinstance(probe, Ask)
    ((peer, status, text),) = said(scene.ask(3, m.Get("carol", "a", "-1")))
    assert (peer, status) == (3, "SERVER_UNAVAILABLE")
    assert text == "s1:1, which has the topic a, has not answered for 2.0 s: try again"
    assert len(scene.answer(probe.token)) == 1
    assert isinstance(scene.ask(4, m.Get("carol", "a", "-1"))[0], Ask), "it answers again"
    assert scene.notes == ["server-silent", "server-answers-again"]


def test_a_server_that_answers_others_is_asked_again_once_and_is_not_taken_for_silent() -> None:
    scene = Scene()
    scene.claim("s1:1", "prices", "news")
    scene.ask(1, m.Get("alice", "prices", "-1"))
    effects: list[Effect] = []
    for turn in range(8):
        effects += scene.pass_time(50 * MILLISECOND)
        scene.ask(10 + turn, m.Get("bob", "news", "-1"))
        scene.answer(2 + turn)
    (answer,) = [effect for effect in effects if isinstance(effect, Answer)]
    again = [effect for effect in effects if isinstance(effect, Ask)]
    said = b"s1:1, which has the topic prices, answers other requests, but not this one in time: try again"
    assert said in answer.data
    assert ([ask.token for ask in again], scene.proxy.silent) == ([1], {})


def test_topics_that_are_asked_for_while_their_server_is_silent_are_not_remembered() -> None:
    scene = Scene()
    scene.claim("s1:1", "claimed")
    scene.ask(1, m.Get("alice", "first", "-1"))
    scene.pass_time(SECOND)
    assert scene.notes[-1] == "server-silent"
    for number in range(1_000):
        scene.ask(2, m.Get("alice", f"topic-{number}", "-1"))
        scene.pass_time(MILLISECOND)
    assert scene.proxy.topics.topic_count("s1:1") <= 2 + 1_000 * MILLISECOND // SETTINGS.answer_ns + 1


@pytest.mark.parametrize("has_answered", [True, False])
def test_a_topic_goes_to_another_server_while_its_own_is_silent_only_where_that_has_not_answered_for_it(
    has_answered: bool,
) -> None:
    scene = Scene()
    scene.claim("s1:1")
    scene.claim("s2:1", "other")
    (ask,) = scene.ask(1, m.Subscribe("alice", "new"))
    assert isinstance(ask, Ask)
    assert ask.address == "s1:1"
    if has_answered:
        scene.answer(ask.token)
        scene.ask(2, m.Put("bob", "new", 1, b"x"))
    scene.pass_time(SECOND)
    assert scene.notes[-1] == "server-silent"
    scene.pass_time(SECOND)
    (next_,) = scene.ask(3, m.Put("bob", "new", 2, b"y"))
    assert isinstance(next_, Ask)
    assert next_.address == ("s1:1" if has_answered else "s2:1")


GARBAGE = [b"", b"what?", b"STATUS s OK\r\n", b"STATUS s\r\n\r\n", b"STATUS s OK a b\r\n\r\n", b"GET a t -1\r\n\r\n"]


@pytest.mark.parametrize("garbage", GARBAGE)
def test_an_answer_that_is_no_status_counts_as_none(garbage: bytes) -> None:
    scene = Scene()
    scene.claim("s1:1", "t")
    (ask,) = scene.ask(1, m.Put("bob", "t", 1, b"x"))
    assert isinstance(ask, Ask)
    assert scene.tell(Answered(ask.token, garbage)) == []
    (again,) = scene.pass_time(SETTINGS.answer_ns)
    assert again == ask
    ((_, status, text),) = said([one for one in scene.pass_time(SECOND) if isinstance(one, Answer)])
    assert (status, text[:29]) == ("SERVER_UNAVAILABLE", "s1:1, which has the topic t, ")


def test_a_word_that_nobody_knows_is_passed_on_to_whoever_may_know_it() -> None:
    scene = Scene()
    scene.claim("s1:1", "t")
    (ask,) = scene.ask(1, m.Put("bob", "t", 1, b"x"))
    assert isinstance(ask, Ask)
    data = b"STATUS s1:1 TEAPOT\r\n\r\nshort"
    assert scene.tell(Answered(ask.token, data)) == [Answer(1, data)]
