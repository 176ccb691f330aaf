"""A proxy, told by hand what clients and servers say."""

from dataclasses import replace
from typing import NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from veredus.kernel.errors import PeerFault
from veredus.kernel.events import DeadlineReached
from veredus.protocols.topics import messages as m
from veredus.protocols.topics.conflicts import HELD_NS, MERGES_MAX
from veredus.protocols.topics.exchange import Answer, Answered, Ask, Asked
from veredus.protocols.topics.many import pack
from veredus.protocols.topics.messages import decode_message, encode_message
from veredus.protocols.topics.plain import plainly_asked
from veredus.protocols.topics.proxy import MILLISECOND, Effect

from .proxy_scene import SECOND, SETTINGS, Scene, said


def test_what_a_client_says_goes_to_the_topics_server_and_its_answer_back_unaltered() -> None:
    scene = Scene()
    scene.claim("s2:1", "prices")
    scene.claim("s1:1")
    assert scene.met == ["s2:1", "s1:1"], "as soon as it is known, so that the first question need not wait"
    data = b"PUT bob prices 7 \r\n\r\nEWR 12.5"
    assert scene.tell(Asked(1, data)) == [Ask("s2:1", 1, data)]
    reply = b"STATUS s2:1 OK \r\n\r\n"
    assert scene.tell(Answered(1, reply)) == [Answer(1, reply)]
    assert scene.proxy.deadline() is None


def test_a_new_topic_goes_to_the_server_with_the_fewest_and_stays_there() -> None:
    scene = Scene()
    scene.claim("s1:1", "a", "b")
    scene.claim("s2:1", "c")
    subscribe = encode_message(m.Subscribe("alice", "new"))
    assert scene.tell(Asked(1, subscribe)) == [Ask("s2:1", 1, subscribe)]
    scene.claim("s2:1", "c")
    scene.answer(1)
    assert scene.tell(Asked(2, subscribe)) == [Ask("s2:1", 2, subscribe)]
    assert scene.notes == ["topic-assigned"]


def test_clients_do_not_wait_for_one_another() -> None:
    scene = Scene()
    scene.claim("s1:1", "a")
    scene.claim("s2:1", "b")
    for peer in range(1, 101):
        assert len(scene.ask(peer, m.Get(f"c{peer}", "ab"[peer % 2], "-1"))) == 1
    for peer in reversed(range(1, 101)):
        assert [effect.peer for effect in scene.answer(peer) if isinstance(effect, Answer)] == [peer]


def test_a_proxy_that_knows_no_server_says_so() -> None:
    scene = Scene()
    ((peer, status, text),) = said(scene.ask(1, m.Subscribe("alice", "t")))
    assert (peer, status) == (1, "PROXY_DOES_NOT_KNOW_ANY_SERVER")
    assert "start one that lists this proxy" in text


def test_a_proxy_that_has_just_begun_assigns_nothing_before_servers_could_claim_what_is_theirs() -> None:
    scene = Scene(replace(SETTINGS, learning_ns=6 * SECOND))
    scene.claim("s1:1", "a")
    assert isinstance(scene.ask(1, m.Get("alice", "a", "-1"))[0], Ask), "what is claimed is known"
    ((_, status, text),) = said(scene.ask(2, m.Subscribe("alice", "new")))
    assert status == "PROXY_DOES_NOT_KNOW_ANY_SERVER"
    assert "started 0 s ago and has not heard from any server yet" in text
    scene.answer(1)
    scene.pass_time(6 * SECOND)
    assert isinstance(scene.ask(3, m.Subscribe("alice", "new"))[0], Ask)


@pytest.mark.parametrize("is_woken", [True, False])
def test_a_proxy_that_stood_still_while_it_listened_has_not_learned_by_that(is_woken: bool) -> None:
    scene = Scene(replace(SETTINGS, learning_ns=6 * SECOND))
    scene.claim("s1:1", "a")
    scene.pass_time(5 * SECOND)
    scene.now_ns += 60 * SECOND
    if is_woken:
        scene.tell(DeadlineReached())
    assert said(scene.ask(1, m.Subscribe("alice", "new")))[0][1] == "PROXY_DOES_NOT_KNOW_ANY_SERVER"
    scene.tell(DeadlineReached())
    scene.pass_time(5 * SECOND)
    ((_, status, text),) = said(scene.ask(2, m.Subscribe("alice", "new")))
    assert status == "PROXY_DOES_NOT_KNOW_ANY_SERVER", (
        "what servers said meanwhile may be lost: they have a period again"
    )
    assert "started 70 s ago" in text
    scene.pass_time(SECOND)
    assert isinstance(scene.ask(3, m.Subscribe("alice", "new"))[0], Ask)


def test_a_proxy_that_was_busy_for_a_moment_while_it_listened_goes_on_with_what_it_had() -> None:
    scene = Scene(replace(SETTINGS, learning_ns=6 * SECOND))
    scene.claim("s1:1", "a")
    scene.pass_time(5900 * MILLISECOND)
    scene.now_ns += 900 * MILLISECOND
    scene.tell(DeadlineReached())
    assert said(scene.ask(1, m.Subscribe("alice", "new")))[0][1] == "PROXY_DOES_NOT_KNOW_ANY_SERVER"
    scene.pass_time(100 * MILLISECOND)
    assert isinstance(scene.ask(2, m.Subscribe("alice", "new"))[0], Ask)


def test_a_proxy_that_has_heard_all_of_its_servers_need_not_wait() -> None:
    scene = Scene(replace(SETTINGS, learning_ns=6 * SECOND, servers=("s1:1", "s2:1")))
    scene.claim("s1:1", "a")
    ((_, _, text),) = said(scene.ask(1, m.Subscribe("alice", "new")))
    assert "has not heard from s2:1 yet" in text
    assert "check that it runs and lists this proxy in topics.proxies" in text
    scene.claim("s2:1", "new")
    effects = scene.ask(2, m.Subscribe("alice", "new"))
    assert [effect.address for effect in effects if isinstance(effect, Ask)] == ["s2:1"]


def test_a_new_topic_is_not_left_with_a_server_that_never_answered() -> None:
    scene = Scene()
    scene.claim("s1:1")
    scene.claim("s2:1")
    scene.ask(1, m.Subscribe("alice", "new"))
    scene.pass_time(SECOND)
    (ask,) = scene.ask(2, m.Subscribe("alice", "new"))
    assert isinstance(ask, Ask)
    assert ask.address == "s2:1"
    assert scene.claim("s1:1", "new") == [], "it had come there all the same"
    (merge,) = scene.claim("s2:1", "new")
    assert merge == Ask("s2:1", 3, b"MERGE p1 new s1:1\r\n\r\n")


def test_of_two_servers_with_one_topic_the_higher_is_told_to_give_it_away_until_it_has() -> None:
    scene = Scene()
    scene.claim("s1:1", "t")
    (merge,) = scene.claim("s2:1", "t", "u")
    assert merge == Ask("s2:1", 1, b"MERGE p1 t s1:1\r\n\r\n")
    assert scene.claim("s2:1", "t", "u") == [], "it is being asked"
    assert scene.answer(1) == []
    assert scene.claim("s1:1", "t") == [Ask("s2:1", 2, b"MERGE p1 t s1:1\r\n\r\n")], "it still says that it has it"
    scene.answer(2)
    assert scene.claim("s2:1", "u") == []
    assert scene.claim("s1:1", "t") == []
    assert "topic-conflict" in scene.notes


def test_the_log_tells_a_conflict_once_and_why_it_stays_once_in_a_while() -> None:
    scene = Scene()

    def period(status: str, why: bytes) -> list[str]:
        scene.notes.clear()
        for server in ("s1:1", "s2:1", "s1:1"):
            for merge in scene.claim(server, "t"):
                assert isinstance(merge, Ask)
                scene.answer(merge.token, status, why)
        scene.pass_time(20 * SECOND)
        return [*scene.notes]

    assert period("OK", b"under way") == ["topic-conflict"]
    assert period("OK", b"under way") == []
    reasons = [period("TRANSFER_TOPIC_ERROR", b"give it a higher id") for _ in range(4)]
    assert reasons == [["topic-not-given"], [], [], ["topic-not-given"]], "once a minute"
    assert scene.fields["topic-not-given"] == {
        "topic": "t", "giver": "s2:1", "keeper": "s1:1", "status": "TRANSFER_TOPIC_ERROR",
        "reason": "give it a higher id",
    }  # fmt: skip
    scene.claim("s2:1")
    assert period("OK", b"under way") == ["topic-conflict"], "it is another one"


def test_what_a_giver_says_at_length_is_cut_in_the_log() -> None:
    scene = Scene()
    scene.claim("s1:1", "t")
    (merge,) = scene.claim("s2:1", "t")
    assert isinstance(merge, Ask)
    scene.answer(merge.token, "REFUSED", b"x" * 1_000_000)
    assert len(str(scene.fields["topic-not-given"]["reason"])) == 1000


def with_a_giver_that_is_asked() -> tuple[Scene, Ask]:
    """`s2:1`, which has had a put for topic `t`, is asked to give it to `s1:1`."""
    scene = Scene()
    scene.claim("s2:1", "t")
    scene.ask(1, m.Put("bob", "t", 1, b"x"))
    scene.answer(1)
    (merge,) = scene.claim("s1:1", "t")
    assert isinstance(merge, Ask)
    return scene, merge


@pytest.mark.parametrize(
    ("said_of_it", "goes_to"), [(b"under way", "s2:1"), (b"", "s1:1"), (b"Topic transferred", "s1:1")]
)
def test_puts_stay_with_a_giver_that_is_giving_and_leave_one_that_has_given_at_once(
    said_of_it: bytes, goes_to: str
) -> None:
    scene, merge = with_a_giver_that_is_asked()
    scene.answer(merge.token, body=said_of_it)
    asks = [effect for effect in scene.ask(2, m.Put("bob", "t", 2, b"y")) if isinstance(effect, Ask)]
    assert [ask.address for ask in asks] == [goes_to]


@pytest.mark.parametrize(
    "asked",
    [m.Put("bob", "t", 2, b"y"), m.PutMany("bob", "t", 2, pack([b"y", b"z"])), m.Get("bob", "t", "-1"),
     m.GetMany("bob", "t", "-1", 9), m.Subscribe("bob", "t", 7), m.Unsubscribe("bob", "t", 7)],
)  # fmt: skip
def test_a_giver_is_told_nothing_of_the_topic_before_it_answers_for_it_may_have_copied_it(asked: m.Message) -> None:
    scene = Scene()
    scene.claim("s2:1", "t", "u")
    scene.ask(1, m.Put("bob", "t", 1, b"x"))
    (merge,) = scene.claim("s1:1", "t")
    assert isinstance(merge, Ask)
    assert scene.ask(2, asked) == [], "it waits for the answer"
    assert [effect.address for effect in scene.ask(3, m.Put("bob", "u", 1, b"")) if isinstance(effect, Ask)] == ["s2:1"]
    effects = scene.pass_time(SECOND)
    held = [(2, "SERVER_UNAVAILABLE", "s2:1 is being asked to move the topic t: try again")]
    assert said([effect for effect in effects if isinstance(effect, Answer) and effect.peer == 2]) == held
    (merge,) = scene.claim("s2:1", "t", "u")
    assert isinstance(merge, Ask)
    assert scene.ask(2, asked) == [], "the proxy had given up waiting, and does not know"
    assert [effect.address for effect in scene.answer(merge.token, body=b"under way") if isinstance(effect, Ask)] == [
        "s2:1"
    ]


def test_what_waited_for_the_answer_of_a_giver_goes_to_where_the_topic_is_then() -> None:
    scene, merge = with_a_giver_that_is_asked()
    put = m.Put("bob", "t", 2, b"y")
    assert scene.ask(2, put) == []
    asked = [effect.address for effect in scene.answer(merge.token) if isinstance(effect, Ask)]
    assert asked == ["s1:1"], "it has given"
    scene, _ = with_a_giver_that_is_asked()
    assert scene.ask(2, put) == []
    scene.claim("s2:1")
    asks = [effect for effect in scene.pass_time(SETTINGS.answer_ns) if isinstance(effect, Ask)]
    assert ("s1:1", encode_message(put)) in [(ask.address, ask.data) for ask in asks], "it has the topic no more"


def test_a_giver_that_never_answers_is_told_again_after_a_while_and_one_that_has_given_is_not_asked_any_more() -> None:
    scene = Scene()
    scene.claim("s2:1", "t", "u")
    scene.ask(1, m.Put("bob", "t", 1, b"x"))
    scene.claim("s1:1", "t", "u")
    scene.pass_time(HELD_NS)
    put = m.Put("bob", "t", 2, b"y")
    assert [effect.address for effect in scene.ask(2, put) if isinstance(effect, Ask)] == ["s2:1"]
    scene.claim("s2:1", "u")
    assert [effect.address for effect in scene.ask(2, m.Put("bob", "t", 3, b"")) if isinstance(effect, Ask)] == ["s1:1"]


def test_who_gets_from_the_keeper_is_not_sent_on_to_a_giver_that_has_not_answered() -> None:
    scene = Scene()
    scene.claim("s1:1", "t")
    scene.ask(1, m.Put("bob", "t", 1, b"x"))
    (merge,) = scene.claim("s2:1", "t")
    assert isinstance(merge, Ask)
    (ask,) = scene.ask(2, m.Get("bob", "t", "-1"))
    assert isinstance(ask, Ask)
    assert ask.address == "s1:1"
    assert scene.answer(ask.token, "NOT_SUBSCRIBED") == []
    (ask,) = scene.answer(merge.token, body=b"under way")
    assert isinstance(ask, Ask)
    assert ask.address == "s2:1"


def test_a_put_without_an_answer_is_not_said_again_to_a_giver_that_is_asked_to_give_meanwhile() -> None:
    scene = Scene()
    scene.claim("s2:1", "t")
    scene.ask(1, m.Put("bob", "t", 1, b"x"))
    (merge,) = scene.claim("s1:1", "t")
    effects = scene.pass_time(SETTINGS.answer_ns)
    assert said([effect for effect in effects if isinstance(effect, Answer)]) == [
        (1, "SERVER_UNAVAILABLE", "s2:1 is being asked to move the topic t: try again")
    ]
    assert [effect.data for effect in effects if isinstance(effect, Ask)] == [merge.data]


def test_many_conflicts_are_merged_some_at_a_time() -> None:
    scene = Scene()
    topics = [f"t{number:02}" for number in range(50)]
    scene.claim("s1:1", *topics)
    merges = scene.claim("s2:1", *topics)
    assert len(merges) == MERGES_MAX
    asked = [merge.data for merge in merges if isinstance(merge, Ask)]
    for token in range(1, 51):
        asked += [merge.data for merge in scene.answer(token) if isinstance(merge, Ask)]
    assert asked == [f"MERGE p1 {topic} s1:1\r\n\r\n".encode() for topic in topics]


@pytest.mark.parametrize("question", [m.Get("alice", "new", "-1"), m.Unsubscribe("alice", "new", 7)])
def test_nobody_is_told_that_they_are_not_subscribed_before_every_known_server_was_asked(
    question: m.Get | m.Unsubscribe,
) -> None:
    scene = Scene()
    for server in ("s1:1", "s2:1", "s3:1"):
        scene.claim(server)
    data = encode_message(question)
    assert scene.tell(Asked(1, data)) == [Ask("s1:1", 1, data)]
    assert scene.answer(1, "NOT_SUBSCRIBED") == [Ask("s2:1", 2, data)]
    assert scene.answer(2, "NOT_SUBSCRIBED") == [Ask("s3:1", 3, data)]
    ((_, word, _),) = [(e.peer, decode_message(e.data).status, 0) for e in scene.answer(3, "NOT_SUBSCRIBED")]  # type: ignore[union-attr]
    assert word == "NOT_SUBSCRIBED"


def test_a_topic_that_was_made_through_another_proxy_goes_to_the_server_where_it_is_found() -> None:
    scene = Scene()
    scene.claim("s1:1")
    scene.claim("s2:1")
    data = encode_message(m.Unsubscribe("alice", "new", 7))
    assert scene.tell(Asked(1, data)) == [Ask("s1:1", 1, data)]
    assert scene.answer(1, "NOT_SUBSCRIBED") == [Ask("s2:1", 2, data)]
    assert isinstance(scene.answer(2)[0], Answer)
    put = encode_message(m.Put("bob", "new", 1, b"one"))
    assert scene.tell(Asked(2, put)) == [Ask("s2:1", 3, put)]


def test_where_a_known_server_does_not_answer_nobody_is_told_that_they_are_not_subscribed() -> None:
    scene = Scene()
    scene.claim("s1:1", "t")
    scene.claim("s2:1")
    scene.ask(1, m.Get("alice", "t", "-1"))
    scene.answer(1, "NOT_SUBSCRIBED")
    ((_, status, text),) = said([effect for effect in scene.pass_time(SECOND) if isinstance(effect, Answer)])
    assert status == "SERVER_UNAVAILABLE"
    assert text.startswith("s2:1, which may have the topic t,")
    assert text.endswith("try again")


def test_while_two_servers_have_a_topic_a_subscription_is_looked_for_at_both() -> None:
    scene = Scene()
    scene.claim("s1:1", "t")
    scene.claim("s2:1", "t")
    scene.answer(1)
    get = encode_message(m.Get("alice", "t", "-1"))
    assert scene.tell(Asked(1, get)) == [Ask("s1:1", 2, get)]
    assert scene.answer(2, "NOT_SUBSCRIBED") == [Ask("s2:1", 3, get)]
    ((answer,),) = (scene.answer(3, "NOT_SUBSCRIBED"),)
    assert isinstance(answer, Answer), "there is nobody else to ask"
    for name in ("PUT bob t 1", "SUBSCRIBE alice t"):
        data = f"{name}\r\n\r\n".encode()
        (ask,) = scene.tell(Asked(2, data))
        assert isinstance(ask, Ask)
        assert (ask.address, ask.data) == ("s1:1", data)
        assert isinstance(scene.answer(ask.token, "NOT_SUBSCRIBED")[0], Answer), "it is done once"


def conflict_of_three() -> Scene:
    """A scene in which a topic goes to s2:1, and s1:1 and s3:1 claim it too; nothing is on its way."""
    scene = Scene()
    scene.claim("s2:1", "t")
    scene.ask(1, m.Put("bob", "t", 1, b"x"))
    scene.answer(1)
    for server in ("s1:1", "s3:1"):
        for merge in scene.claim(server, "t"):
            assert isinstance(merge, Ask)
            scene.answer(merge.token, body=b"under way")
    return scene


def test_a_clients_puts_go_on_to_the_server_that_had_them_until_it_has_given_the_topic_away() -> None:
    scene = conflict_of_three()
    (ask,) = scene.ask(2, m.Put("bob", "t", 2, b"y"))
    assert isinstance(ask, Ask)
    assert ask.address == "s2:1"
    scene.answer(ask.token)
    scene.claim("s2:1")
    (ask,) = scene.ask(3, m.Put("bob", "t", 3, b"z"))
    assert isinstance(ask, Ask)
    assert ask.address == "s1:1"


UNSUBSCRIBE = encode_message(m.Unsubscribe("alice", "t"))


@pytest.mark.parametrize(
    ("statuses", "told"),
    [
        (["OK", "NOT_SUBSCRIBED", "NOT_SUBSCRIBED"], "OK"),
        (["NOT_SUBSCRIBED", "OK", "NOT_SUBSCRIBED"], "OK"),
        (["NOT_SUBSCRIBED", "NOT_SUBSCRIBED", "OK"], "OK"),
        (["OK", "OK", "OK"], "OK"),
        (["NOT_SUBSCRIBED", "NOT_SUBSCRIBED", "NOT_SUBSCRIBED"], "NOT_SUBSCRIBED"),
        (["OK", "INTERNAL_ERROR"], "INTERNAL_ERROR"),
        (["REFUSED"], "REFUSED"),
        (["OK", "OK", "REFUSED"], "REFUSED"),
    ],
)
def test_who_unsubscribes_in_a_conflict_is_told_ok_when_all_have_done_it(statuses: list[str], told: str) -> None:
    scene = conflict_of_three()
    effects = scene.tell(Asked(7, UNSUBSCRIBE))
    for status, server in zip(statuses, ("s2:1", "s1:1", "s3:1"), strict=False):
        (ask,) = effects
        assert isinstance(ask, Ask)
        assert (ask.address, ask.data) == (server, UNSUBSCRIBE)
        effects = scene.answer(ask.token, status)
    assert effects == [Answer(7, encode_message(m.Status("s", told)))]


def test_who_unsubscribes_in_a_conflict_hears_of_a_server_that_does_not_answer() -> None:
    scene = conflict_of_three()
    (ask,) = scene.tell(Asked(7, UNSUBSCRIBE))
    assert isinstance(ask, Ask)
    assert scene.answer(ask.token) == [Ask("s1:1", ask.token + 1, UNSUBSCRIBE)]
    ((_, status, text),) = said(scene.pass_time(SECOND)[-1:])
    assert (status, text[:4]) == ("SERVER_UNAVAILABLE", "s1:1")
    (ask,) = scene.tell(Asked(8, UNSUBSCRIBE))
    assert isinstance(ask, Ask)
    (probe,) = scene.answer(ask.token)
    assert isinstance(probe, Ask), "now and then it is asked all the same"
    (ask,) = scene.ask(9, m.Unsubscribe("bob", "t"))
    assert isinstance(ask, Ask)
    assert said(scene.answer(ask.token))[0][:2] == (9, "SERVER_UNAVAILABLE"), "at once"


def test_who_unsubscribes_is_told_ok_when_no_server_has_the_subscription_any_more() -> None:
    scene = Scene()
    scene.claim("s1:1", "t")
    scene.claim("s2:1")
    assert scene.tell(Asked(7, UNSUBSCRIBE)) == [Ask("s1:1", 1, UNSUBSCRIBE)]
    assert scene.answer(1) == [Ask("s2:1", 2, UNSUBSCRIBE)], "it may have been assigned the topic since it spoke"
    assert scene.answer(2, "NOT_SUBSCRIBED") == [Answer(7, encode_message(m.Status("s", "OK")))]
    assert scene.proxy.topics.server_of("t") == "s1:1"


def test_who_unsubscribes_is_not_told_ok_while_a_server_is_silent_that_may_have_the_subscription() -> None:
    scene = Scene()
    scene.claim("s1:1", "t")
    scene.claim("s2:1")
    scene.tell(Asked(7, UNSUBSCRIBE))
    scene.answer(1)
    ((_, status, text),) = said([effect for effect in scene.pass_time(SECOND) if isinstance(effect, Answer)])
    assert (status, text[:32]) == ("SERVER_UNAVAILABLE", "s2:1, which may have the topic t")


def test_who_unsubscribes_is_not_told_ok_where_a_copy_of_its_subscribe_came_before_every_server_was_asked() -> None:
    scene = Scene()
    scene.claim("s1:1", "t")
    scene.claim("s2:1")
    assert scene.ask(7, m.Unsubscribe("alice", "t", 8)) == [Ask("s1:1", 1, b"UNSUBSCRIBE alice t\r\n\r\n8")]
    assert scene.ask(8, m.Subscribe("alice", "t", 7)) == [Ask("s1:1", 2, b"SUBSCRIBE alice t\r\n\r\n7")]
    ((peer, status, text),) = said(scene.answer(1))
    assert (peer, status) == (7, "SERVER_UNAVAILABLE")
    assert text == "alice has asked to subscribe to t, or not to be subscribed, since"


def test_who_unsubscribes_is_not_told_ok_before_every_listed_server_was_heard() -> None:
    scene = Scene(replace(SETTINGS, servers=("s1:1", "s2:1")))
    scene.claim("s1:1", "t")
    scene.pass_time(60 * SECOND)
    scene.tell(Asked(7, UNSUBSCRIBE))
    ((_, status, text),) = said(scene.answer(1))
    away = "the subscription to t has ended at one server, but s2:1, which may have it too, is not available"
    assert (status, text) == ("SERVER_UNAVAILABLE", f"{away}: try again, or remove that server from the list")


def test_a_body_that_is_too_large_for_servers_is_not_handed_on() -> None:
    scene = Scene(replace(SETTINGS, body_size_max=5000))
    scene.claim("s1:1", "t")
    scene.claim("s1:1", *(f"topic-{number}" for number in range(1000)))
    assert scene.proxy.topics.topic_count("s1:1") == 1000, "a server says all of its topics at once"
    assert isinstance(scene.ask(1, m.Put("bob", "topic-1", 1, bytes(5000)))[0], Ask)
    ((peer, status, text),) = said(scene.ask(2, m.Put("bob", "topic-1", 1, bytes(8000))))
    assert (peer, status, text) == (
        2,
        "BAD_MESSAGE",
        "this proxy accepts bodies of at most 5000 bytes, this one has 8000",
    )


def test_what_clients_name_and_nobody_has_is_not_kept() -> None:
    scene = Scene()
    scene.claim("s1:1", "t")
    for number in range(100):
        (ask,) = scene.ask(1, m.Get("alice", f"guess-{number}", "-1"))
        assert isinstance(ask, Ask)
        scene.answer(ask.token, "NOT_SUBSCRIBED")
    assert scene.proxy.topics.topic_count("s1:1") == 101
    for _ in range(2):
        scene.claim("s1:1", "t")
    assert scene.proxy.topics.topic_count("s1:1") == 1


def test_what_is_not_for_a_proxy_is_answered_with_what_is() -> None:
    scene = Scene()
    ((_, status, text),) = said(scene.tell(Asked(1, b"MERGE s t s2:1\r\n\r\n")))
    assert (status, text) == (
        "BAD_MESSAGE",
        "a proxy accepts SUBSCRIBE, UNSUBSCRIBE, GET, GET_MANY, PUT, PUT_MANY and PERIODIC; MERGE is for servers",
    )
    ((_, _, text),) = said(scene.tell(Asked(3, b"STATUS s OK\r\n\r\n")))
    assert text == "STATUS is an answer, but there was no request"
    ((_, status, text),) = said(scene.tell(Asked(2, b"GET alice\r\n\r\n")))
    assert status == "BAD_MESSAGE"
    assert text.startswith("GET <SENDER_ID>")


def test_a_peer_hears_little_of_a_message_of_which_much_is_wrong() -> None:
    scene = Scene()
    for data in (b"SUBSCRIBE a b\r\n\r\n" + bytes(100_000), b"PERIODIC s:1\r\n\r\n" + b"x" * 100_000 + b"\0"):
        ((_, status, text),) = said(scene.tell(Asked(1, data)))
        assert (status, len(text) <= m.REASON_SIZE_MAX) == ("BAD_MESSAGE", True)


def test_who_is_not_listed_where_servers_are_is_none() -> None:
    scene = Scene(replace(SETTINGS, servers=("s1:1",)))
    ((_, status, text),) = said(scene.ask(1, m.Periodic("s2:1", ("t",))))
    assert (status, text) == (
        "REFUSED",
        "s2:1 is not one of the 1 servers of this proxy: list it under `servers`",
    )
    assert scene.proxy.topics.servers == []


def test_no_more_requests_are_on_their_way_than_may_be() -> None:
    scene = Scene(replace(SETTINGS, requests_max=3))
    scene.claim("s1:1", "t")
    for peer, client in enumerate("ab"):
        assert isinstance(scene.ask(peer, m.Get(client, "t", "-1"))[0], Ask)
    assert scene.ask(2, m.Get("a", "t", "-1")) == []
    for client in "ac":
        ((peer, status, _),) = said(scene.ask(3, m.Get(client, "t", "-1")))
        assert (peer, status) == (3, "SERVER_UNAVAILABLE")
    assert len(scene.answer(1)) == 2
    assert isinstance(scene.ask(4, m.Get("c", "t", "-1"))[0], Ask)


def test_who_has_used_up_his_share_is_told_so_and_nothing_is_asked_for_him() -> None:
    scene = Scene()
    scene.claim("s1:1", "t")
    asked = Asked(7, m.encode_message(m.Get("a", "t", "-1")), why_not="others have their share: try again")
    ((peer, status, text),) = said(scene.tell(asked))
    assert (peer, status, text) == (7, "SERVER_UNAVAILABLE", "others have their share: try again")
    assert scene.proxy.peer_count == 0


class Said(NamedTuple):
    """A server answered this question."""

    token: int
    status: str


STEPS = st.one_of(
    st.builds(m.Periodic, st.sampled_from(["s1:1", "s2:1", "s3:1"]), st.lists(st.sampled_from("tuv")).map(tuple)),
    st.builds(m.Get, st.just("alice"), st.sampled_from("tuvw"), st.just("-1")),
    st.builds(m.Put, st.just("bob"), st.sampled_from("tuvw"), st.integers(1, 9), st.just(b"x")),
    st.builds(m.Unsubscribe, st.just("alice"), st.sampled_from("tuvw")),
    st.builds(Said, st.integers(0, 30), st.sampled_from(["OK", "NOT_SUBSCRIBED", "REFUSED"])),
    st.integers(0, 500),
)


@given(st.lists(STEPS, max_size=40))
def test_whatever_happens_each_peer_is_answered_exactly_once(steps: list[m.Message | Said | int]) -> None:
    scene = Scene()
    effects: list[Effect] = []
    peers = 0
    for step in steps:
        if isinstance(step, int):
            effects += scene.pass_time(step * MILLISECOND)
        elif isinstance(step, Said):
            effects += scene.answer(step.token, step.status)
        else:
            peers += 1
            effects += scene.ask(peers, step)
    effects += scene.pass_time(60 * SECOND)
    assert scene.proxy.peer_count == 0
    assert sorted(effect.peer for effect in effects if isinstance(effect, Answer)) == list(range(1, peers + 1))


WORDS = st.one_of(
    st.sampled_from(
        ["SUBSCRIBE", "UNSUBSCRIBE", "GET", "PUT", "PERIODIC", "MERGE", "get", "a", "-1", "", "1", "0", "07"]
    ),
    st.sampled_from(["٣", "1" * 18, "1" * 19, "9223372036854775807", "é", "\xa0", "\u200b", "\x7f", "\t"]),
    st.text(max_size=5),
)


NAMES = [b"SUBSCRIBE", b"UNSUBSCRIBE", b"GET", b"PUT", b"PERIODIC", b"MERGE", b"STATUS", b""]
END = b"\r\n\r\n"


@given(
    st.sampled_from(NAMES),
    st.lists(WORDS, min_size=1, max_size=4),
    st.sampled_from([b"", b" "]),
    st.sampled_from([END, b"\r\n", b""]),
    st.binary(max_size=4),
)
@example(b"PUT", ["bob", "t", "1"], b"", END, b"x")
@example(b"PUT", ["bob", "t", "0"], b"", END, b"x")
@example(b"PUT", ["bob", "t", "٣"], b"", END, b"x")
@example(b"PUT", ["bob", "t", "9" * 19], b"", END, b"x")
@example(b"GET", ["alice", "t", "-1"], b" ", END, b"")
@example(b"GET", ["alice", "t", "-1"], b"", END, b"x")
@example(b"GET", ["alice", "t" * 2040, "-1"], b"", END, b"")
@example(b"GET", ["alice", "\x7f", "-1"], b"", END, b"")
@example(b"GET", ["", "t", "-1"], b"", END, b"")
def test_what_is_plainly_asked_is_what_the_message_says(
    name: bytes, words: list[str], space: bytes, end: bytes, body: bytes
) -> None:
    header = b" ".join((name, *(word.encode(errors="surrogatepass") for word in words)))
    data = header + space + end + body
    asked = plainly_asked(data)
    try:
        message = decode_message(data)
    except PeerFault:
        assert asked is None
        return
    assert isinstance(message, m.Message)
    if asked is not None:
        assert asked == (type(message).__name__.upper(), message.sender, getattr(message, "topic", ""))
    elif data.isascii() and not isinstance(message, m.Periodic | m.Merge | m.Transfer | m.Status):
        assert isinstance(message, m.Put), "the quick way is taken"
        assert message.counter > 10**17 or b" 0" in header


def test_two_servers_of_one_id_are_told_so_and_one_that_was_started_again_is_not() -> None:
    scene = Scene(replace(SETTINGS, learning_ns=1000 * MILLISECOND))
    data = encode_message(m.Periodic("s1:1", ("prices",)))

    def said(origin: bytes) -> tuple[str, bytes]:
        (answer,) = [e for e in scene.tell(Asked(1, data, 0, origin)) if isinstance(e, Answer)]
        status = decode_message(answer.data)
        assert isinstance(status, m.Status)
        return status.status, status.body

    assert [said(origin)[0] for origin in (b"a", b"a", b"b", b"b", b"c")] == ["OK"] * 5
    text = b"two servers have the id s1:1: give each the address at which others reach it (topics.id)"
    assert said(b"b") == ("REFUSED", text)
    assert said(b"c") == ("OK", b"")


def test_a_server_that_claims_a_topic_while_a_question_is_on_its_way_is_asked_too() -> None:
    scene = Scene()
    scene.claim("s3:1")
    scene.claim("s2:1", "t")
    data = b"GET alice t -1\r\n\r\n"
    assert scene.tell(Asked(1, data)) == [Ask("s2:1", 1, data)]
    (merge,) = scene.claim("s1:1", "t")
    assert isinstance(merge, Ask)
    asked = []
    while (effects := scene.answer(1 if not asked else asked[-1].token, "NOT_SUBSCRIBED")) and isinstance(
        effects[0], Ask
    ):
        asked += effects
    assert sorted(ask.address for ask in asked) == ["s1:1", "s3:1"], "alice may be subscribed there"
    assert isinstance(effects[0], Answer)
