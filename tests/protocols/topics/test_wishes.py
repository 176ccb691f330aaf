"""SUBSCRIBE and UNSUBSCRIBE that come late, told apart by the number of the wish."""

from __future__ import annotations

import pytest

from veredus.protocols.topics.messages import Get, Message, Put, Status, Subscribe, Unsubscribe, encode_message
from veredus.streams import exchange as x

from .floor import ServerScene, status_of
from .town import PERIOD_NS, SECOND, Node, ProxyHost, Town

TOPIC = "prices"


def subscribe(wish: int = 0, left: int = 0) -> Subscribe:
    return Subscribe("alice", TOPIC, wish, left)


def unsubscribe(wish: int = 0) -> Unsubscribe:
    return Unsubscribe("alice", TOPIC, wish)


def said(scene: ServerScene, question: Subscribe | Unsubscribe | Get) -> str:
    status = scene.say(question)
    return f"{status.status} {status.message_id}".rstrip()


def test_an_unsubscribe_that_comes_late_undoes_no_newer_subscribe() -> None:
    scene = ServerScene()
    assert said(scene, subscribe(5)) == "OK"
    assert said(scene, unsubscribe(6)) == "OK"
    assert said(scene, subscribe(7)) == "OK"
    assert said(scene, unsubscribe(6)) == "REFUSED 7"
    assert scene.say(Put("bob", TOPIC, 1, b"one")).status == "OK"
    assert scene.say(Get("alice", TOPIC, "-1")).body == b"one"


def test_a_refusal_says_whether_the_number_is_older_or_was_used_for_the_opposite() -> None:
    scene = ServerScene()
    assert said(scene, subscribe(5)) == "OK"
    assert said(scene, unsubscribe(6)) == "OK"
    for wish, why in (
        (5, "arrived after the newer request 6"),
        (6, "has the number of the opposite request before it"),
    ):
        assert scene.say(subscribe(wish)).body.decode() == (
            f"request {wish} of alice/topics {why} and changes nothing; for a new request, use a number above 6"
        )


def test_a_subscribe_that_comes_late_subscribes_nobody_who_has_left() -> None:
    scene = ServerScene()
    assert said(scene, subscribe(5)) == "OK"
    assert said(scene, unsubscribe(6)) == "OK"
    assert said(scene, subscribe(5)) == "REFUSED 6"
    assert said(scene, Get("alice", TOPIC, "-1")) == "NOT_SUBSCRIBED"


def test_a_subscribe_that_comes_behind_an_unsubscribe_that_found_nothing_is_late_too() -> None:
    scene = ServerScene()
    assert scene.say(Put("bob", TOPIC, 1, b"one")).status == "OK"
    assert said(scene, unsubscribe(6)) == "NOT_SUBSCRIBED"
    scene.restart()
    assert said(scene, subscribe(5)) == "REFUSED 6"
    assert said(scene, unsubscribe(6)) == "OK"


@pytest.mark.parametrize("after", ["nothing", "kill", "checkpoint"])
@pytest.mark.parametrize("is_made_meanwhile", [False, True])
def test_a_subscribe_that_comes_behind_an_unsubscribe_from_before_the_topic_was_there_is_late_too(
    is_made_meanwhile: bool, after: str
) -> None:
    scene = ServerScene()

    def be_killed() -> None:
        if after == "checkpoint":
            scene.rig.checkpoint()
        if after != "nothing":
            scene.restart()

    assert said(scene, unsubscribe(6)) == "NOT_SUBSCRIBED"
    be_killed()
    if is_made_meanwhile:
        assert scene.say(Put("bob", TOPIC, 1, b"one")).status == "OK"
        be_killed()
    assert said(scene, subscribe(5)) == "REFUSED 6"
    assert said(scene, subscribe(6)) == "REFUSED 6"
    if not is_made_meanwhile:
        assert said(scene, unsubscribe(5)) == "REFUSED 6"
    assert said(scene, subscribe(7)) == "OK"
    assert scene.say(Put("bob", TOPIC, 2, b"two")).status == "OK"
    assert scene.say(Get("alice", TOPIC, "-1")).body == b"two"


@pytest.mark.parametrize("after", ["nothing", "kill", "checkpoint"])
def test_a_subscribe_that_comes_late_where_the_topic_was_removed_or_given_away_subscribes_nobody(after: str) -> None:
    scene = ServerScene()
    assert said(scene, subscribe(5)) == "OK"
    assert said(scene, unsubscribe(6)) == "OK"
    scene.rig.do(x.AdminRequested(9, 1, "local", "stream.delete", {"name": TOPIC}))
    if after == "checkpoint":
        scene.rig.checkpoint()
    if after != "nothing":
        scene.restart()
    assert said(scene, subscribe(5)) == "REFUSED 6"
    assert said(scene, unsubscribe(6)) == "NOT_SUBSCRIBED"
    assert said(scene, subscribe(7, left=6)) == "OK"


@pytest.mark.parametrize("is_there", [False, True])
def test_who_says_when_it_left_has_left_for_a_merge_with_where_it_did_not(is_there: bool) -> None:
    scene = ServerScene()
    if is_there:
        assert scene.say(Put("bob", TOPIC, 1, b"one")).status == "OK"
    assert said(scene, subscribe(7, left=6)) == "OK"
    asked = {"stream": TOPIC, "name": "topics"}
    (answer,) = scene.rig.do(x.AdminRequested(9, 1, "local", "subscription.left", asked))
    assert isinstance(answer, x.AnswerAdmin)
    assert isinstance(answer.result, list)
    ((who, removed_us, wish, *_),) = answer.result
    assert (who, removed_us, wish) == ("alice", 0, 6)


@pytest.mark.parametrize("is_checkpointed", [False, True])
def test_which_wish_was_the_last_is_known_after_a_kill(is_checkpointed: bool) -> None:
    scene = ServerScene()
    assert said(scene, subscribe(5)) == "OK"
    assert said(scene, subscribe(7)) == "ALREADY_SUBSCRIBED"
    if is_checkpointed:
        scene.rig.checkpoint()
    scene.restart()
    assert said(scene, unsubscribe(6)) == "REFUSED 7"
    assert said(scene, unsubscribe(8)) == "OK"
    if is_checkpointed:
        scene.rig.checkpoint()
    scene.restart()
    assert said(scene, subscribe(7)) == "REFUSED 8"


def test_the_same_wish_once_more_is_answered_as_done() -> None:
    scene = ServerScene()
    assert said(scene, subscribe(5)) == "OK"
    assert said(scene, subscribe(5)) == "ALREADY_SUBSCRIBED"
    assert said(scene, unsubscribe(6)) == "OK"
    assert said(scene, unsubscribe(6)) == "OK"


def test_what_a_late_copy_made_before_the_client_left_elsewhere_is_not_what_it_asks_for_anew() -> None:
    scene = ServerScene()
    assert said(scene, subscribe(5)) == "OK"
    assert scene.say(Put("bob", TOPIC, 1, b"while it had left")).status == "OK"
    assert said(scene, subscribe(7, left=6)) == "OK"
    assert said(scene, Get("alice", TOPIC, "-1")) == "NO_MESSAGES"
    assert scene.say(Put("bob", TOPIC, 2, b"since")).status == "OK"
    assert said(scene, subscribe(7, left=6)) == "ALREADY_SUBSCRIBED"
    assert said(scene, subscribe(8, left=6)) == "ALREADY_SUBSCRIBED"
    assert scene.say(Get("alice", TOPIC, "-1")).body == b"since"
    scene.restart()
    assert said(scene, subscribe(5)) == "REFUSED 8"
    assert said(scene, unsubscribe(6)) == "REFUSED 8"
    assert said(scene, subscribe(10, left=9)) == "OK"
    assert said(scene, Get("alice", TOPIC, "-1")) == "NO_MESSAGES"


def test_what_was_asked_for_without_a_number_is_kept_by_whoever_left_before() -> None:
    scene = ServerScene()
    assert said(scene, subscribe()) == "OK"
    assert scene.say(Put("bob", TOPIC, 1, b"one")).status == "OK"
    assert said(scene, subscribe(7, left=6)) == "ALREADY_SUBSCRIBED"
    assert scene.say(Get("alice", TOPIC, "-1")).body == b"one"


def test_whoever_left_before_and_is_not_subscribed_is_subscribed() -> None:
    scene = ServerScene()
    assert said(scene, subscribe(7, left=6)) == "OK"
    assert said(scene, unsubscribe(8)) == "OK"
    assert said(scene, subscribe(7, left=6)) == "REFUSED 8"
    assert said(scene, subscribe(9, left=8)) == "OK"


def test_wishes_without_numbers_are_taken_as_they_come() -> None:
    scene = ServerScene()
    assert said(scene, subscribe(5)) == "OK"
    assert said(scene, unsubscribe()) == "OK"
    assert said(scene, subscribe()) == "OK"
    assert said(scene, unsubscribe()) == "OK"
    assert said(scene, subscribe(4)) == "REFUSED 5"


def test_already_subscribed_refreshes_the_time_of_the_subscription_for_good() -> None:
    scene = ServerScene()
    assert said(scene, subscribe()) == "OK"
    (before,) = scene.listed(TOPIC)["subscription_list"]
    scene.rig.time_ns += 5_000_000_000
    assert said(scene, subscribe()) == "ALREADY_SUBSCRIBED"
    for _ in range(2):
        (after,) = scene.listed(TOPIC)["subscription_list"]
        assert after["opened_us"] == before["opened_us"]
        assert after["renewed_us"] >= before["renewed_us"] + 5_000_000
        scene.restart()


def test_a_subscribe_that_waited_in_a_proxy_subscribes_nobody_who_has_left_over_another_one() -> None:
    town = Town(1, 0.0, 1.0)
    proxies = ("p1:1", "p2:1")
    town.proxies.update((proxy, ProxyHost(town, proxy)) for proxy in proxies)
    town.servers.update((server, Node(town, server, proxies)) for server in ("s1:1", "s2:1"))
    for host in (*town.servers.values(), *town.proxies.values()):
        host.start()
    town.run(town.time_ns + 3 * PERIOD_NS)

    def ask(proxy: str, question: Message) -> Status:
        told: list[bytes] = []
        town.ask("alice", proxy, encode_message(question), told.append)
        town.run(town.time_ns + SECOND, lambda: bool(told))
        return status_of(told[0])

    ask("p2:1", Get("alice", "another", "-1"))
    assert ask("p2:1", subscribe(5)).sender == "s2:1", "where less is asked for"
    assert ask("p2:1", unsubscribe(6)).status == "OK"
    late = ask("p1:1", subscribe(5))
    assert (late.sender, late.status, late.message_id) == ("s1:1", "REFUSED", "6")
    assert ask("p1:1", Put("bob", TOPIC, 1, b"put since it left")).sender == "s1:1"
    for proxy in proxies:
        assert ask(proxy, Get("alice", TOPIC, "-1")).status == "NOT_SUBSCRIBED"
    town.run(town.time_ns + 10 * PERIOD_NS, lambda: "prices" not in town.servers["s2:1"].topics())
    assert town.servers["s1:1"].topics() == [TOPIC]
    for proxy in proxies:
        assert ask(proxy, Get("alice", TOPIC, "-1")).status == "NOT_SUBSCRIBED"
    assert ask("p1:1", subscribe(7)).status == "OK"
    assert ask("p1:1", Get("alice", TOPIC, "-1")).status == "NO_MESSAGES"
