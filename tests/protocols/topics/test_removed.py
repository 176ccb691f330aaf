"""Ids of messages of a stream that was removed: nothing of it is owed, so they keep nobody waiting."""

from hashlib import blake2b
from typing import Any

import pytest

from tests.protocols.topics.test_getting import GIVEN, GIVER, SUBSCRIBE, Scene, merge, sequence_of
from tests.streams.rig import incarnation
from veredus.kernel.engine import Now
from veredus.kernel.events import Received
from veredus.protocols.topics.getting import GetEnded, Gets
from veredus.protocols.topics.messages import Get, Put, StatusWord
from veredus.protocols.topics.putting import PutEnded, Puts
from veredus.streams import exchange as x
from veredus.streams.removed import GIVEN as MARK

from .town import SECOND, Node, Person, ProxyHost, Town

NOW = Now(0, 0)


class Lives(Scene):
    """The streams of one name are told apart by ids."""

    def boot(self) -> None:
        self.rig.floor.tables.ids = lambda: incarnation(self.next_id())[::-1]
        super().boot()


def remove(scene: Scene, **more: object) -> None:
    """The stream `s` is deleted, and whoever hung on it hears so."""
    before = len(scene.rig.said)
    scene.rig.do(x.AdminRequested(9_999, 1, "local", "stream.delete", {"name": "s", **more}))
    assert any(isinstance(said, x.AnswerAdmin) for said in scene.rig.said[before:])
    scene.follow(scene.up(before))
    scene.sync()


def begin_anew(scene: Scene) -> None:
    """Alice subscribes to what is there no more, and so makes it; somebody publishes to it."""
    assert scene.get()[0] == "NOT_SUBSCRIBED"
    assert scene.status(SUBSCRIBE) == "OK"
    scene.grant, scene.number = scene.rig.attach(20_000 + scene.next_id(), who=scene.next_id()), 0
    scene.publish(2)


@pytest.mark.parametrize("after", ["", "kill", "checkpoint"])
def test_the_id_of_a_message_of_a_stream_that_was_removed_is_answered_with_the_next_one(after: str) -> None:
    scene = Lives()
    ids: list[str] = []
    for _ in range(3):
        if ids:
            remove(scene)
            if after == "checkpoint":
                scene.rig.checkpoint()
            if after:
                scene.restart()
        if ids:
            begin_anew(scene)
        else:
            scene.status(SUBSCRIBE)
            scene.publish(2)
        first = scene.get()
        assert sequence_of(first[0]) == 1
        for old in ids:
            assert scene.get(old) == first, "nothing of what was removed is owed"
            assert scene.get(old.replace("-1", "-1..2")) == first
        ids.append(first[0])
    if after:
        scene.restart()
    assert scene.get(ids[0]) == first
    second = scene.get(first[0])
    assert sequence_of(second[0]) == 2
    assert scene.get(ids[1]) == second
    assert scene.get(f"{'f' * 16}-6")[0] == "SERVER_UNAVAILABLE", "another server's, for all that is known"


def test_the_ids_of_what_was_merged_into_a_stream_that_was_removed_are_passed_over_too() -> None:
    scene = Lives()
    scene.publish(1)
    merge(scene, 2, floor=1, origins=((GIVER, 7, ((7, x.Place(row=0), 1),)),))
    assert sequence_of(scene.get()[0]) == 2
    remove(scene)
    begin_anew(scene)
    assert sequence_of(scene.get(f"{GIVEN}7")[0]) == 1
    assert scene.get(f"{'f' * 16}-6")[0] == "SERVER_UNAVAILABLE"


@pytest.mark.parametrize("after", ["", "kill", "checkpoint"])
def test_the_ids_of_a_stream_that_went_to_another_server_are_not_passed_over(after: str) -> None:
    for is_said in (True, False):
        scene = Lives()
        scene.status(SUBSCRIBE)
        scene.publish(2)
        old, _ = scene.get()
        if not is_said:
            # It is removed by hand, and bears the mark of one that may be the keeper's by then.
            who, session = "127.0.0.1:9", 30_000
            scene.rig.do(x.SubscribeRequested(session, "local", "s", who, MARK, incarnation=incarnation(1)))
        remove(scene, **({"given": True} if is_said else {}))
        if after == "checkpoint":
            scene.rig.checkpoint()
        if after:
            scene.restart()
        begin_anew(scene)
        assert scene.get(old)[0] == "SERVER_UNAVAILABLE", "it is owed there"


# ── removed, and merged later ────────────────────────────────────────────────────────────────────────────────────────


class Shop(Node):
    """A node whose streams of one name are told apart by ids."""

    def _new_id(self) -> bytes:
        return blake2b(super()._new_id(), digest_size=16).digest()


def test_whoever_holds_the_id_of_a_removed_stream_gets_each_message_once_when_the_next_one_has_gone_elsewhere() -> None:
    town = Town(seed=1, loss=0.0, delay_ms=1.0)
    proxies, servers = ("p1:1", "p2:1"), ("s1:1", "s2:1")
    for proxy in proxies:
        town.proxies[proxy] = ProxyHost(town, proxy)
    for server in servers:
        town.servers[server] = Shop(town, server, proxies)
    town.cuts = {("s1:1", "p2:1"), ("s2:1", "p1:1")}
    for host in (*town.servers.values(), *town.proxies.values()):
        host.start()
    bob, alice = Person(town, "bob", proxies[:1]), Person(town, "alice", proxies[1:])
    town.run(town.time_ns + SECOND)

    def do(person: Person, step: Any) -> str:
        said: list[Any] = []
        person.do(step, said.append)
        town.run(town.time_ns + SECOND, lambda: bool(said))
        town.run(town.time_ns + SECOND // 10)
        return str(said[0].status)

    assert do(bob, bob.put("news", b"elsewhere")) == "OK"
    assert do(alice, alice.subscribe("news")) == "OK"
    assert do(alice, alice.put("news", b"first")) == "OK"
    assert do(alice, alice.get("news")) == "OK"
    giver = town.servers["s2:1"]
    link = giver.connect(lambda _: None)
    giver.handle(Received(link, (x.AdminRequested(1, 1, "local", "stream.delete", {"name": "news"}),)))
    town.run(town.time_ns + SECOND // 10)
    assert giver.topics() == []
    assert do(alice, alice.subscribe("news")) == "OK"
    for body in (b"second", b"third"):
        assert do(alice, alice.put("news", body)) == "OK"
    town.cuts.clear()
    town.run(town.time_ns + 10 * SECOND, lambda: giver.topics() == [])
    assert (town.servers["s1:1"].topics(), giver.topics()) == (["news"], [])
    town.run(town.time_ns + SECOND)
    assert [do(alice, alice.get("news")) for _ in range(3)] == ["OK", "OK", "NO_MESSAGES"]
    assert alice.handed["news"] == [b"first", b"second", b"third"]


@pytest.mark.parametrize("code", ["stream-deleted", "stream-replaced", "subscription-removed"])
def test_who_gets_or_puts_while_a_topic_is_removed_is_told_to_try_again(code: str) -> None:
    gets = Gets(lambda: 7, lambda: incarnation(1), 10, 1000)
    gets.ask(1, Get("alice", "s", "-1"), "local", NOW)
    (got,) = gets.handle(x.Refuse(7, code, "it is gone"), NOW)
    assert got == GetEnded(
        1,
        StatusWord.SERVER_UNAVAILABLE,
        f"it is gone [{code}]: retry; if the answer is NOT_SUBSCRIBED then, subscribe first",
    )
    puts = Puts(lambda: 8, lambda: incarnation(1), 1000, 10)
    puts.ask(1, Put("alice", "s", 1, b"one"), "local", Now(0, 0))
    (put,) = puts.handle(x.Refuse(8, code, "it is gone"), Now(0, 0))
    assert put == PutEnded(
        1, StatusWord.SERVER_UNAVAILABLE, f"it is gone [{code}]: retry, and it is put to the topic that begins then"
    )


def test_who_gets_while_a_commit_moves_its_subscription_is_told_to_try_again() -> None:
    gets = Gets(lambda: 7, lambda: incarnation(1), 10, 1000)
    gets.ask(1, Get("alice", "s", "-1"), "local", NOW)
    (got,) = gets.handle(x.Fence(7, 1, "a commit has moved it: subscribe again"), NOW)
    assert got == GetEnded(1, StatusWord.SERVER_UNAVAILABLE, "a commit has moved it: subscribe again: retry")
