"""A server that was put back to a copy: what it gives again is never taken for what was lost."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import pytest

from tests.streams.rig import incarnation
from veredus.protocols.topics.exchange import Answer, Answered, Ask
from veredus.protocols.topics.messages import Get, GetMany, Merge, Put, Status, Subscribe, Unsubscribe
from veredus.streams.lives import Lives

from .floor import PROXY, SERVER, SETTINGS, ServerScene

TOPIC = "prices"
HIGHER = "127.0.0.1:9002"


def server(name: str = SERVER) -> ServerScene:
    return ServerScene(replace(SETTINGS, server_id=name))


def put(scene: ServerScene, who: str, first: int, *bodies: bytes) -> None:
    for counter, body in enumerate(bodies, first):
        assert scene.say(Put(who, TOPIC, counter, body)).status == "OK"


def get(scene: ServerScene, last_id: str = "-1") -> Status:
    return scene.say(Get("alice", TOPIC, last_id))


def put_back(scene: ServerScene, copy: object) -> None:
    """As `veredus journal restored` does."""
    scene.rig.disk = deepcopy(copy)  # type: ignore[assignment]
    scene.rig.time_ns += 5_000_000_000
    scene.restart()
    scene.rig.order(scene.rig.floor.raise_terms(scene.rig.now))
    scene.sync()


def merge(giver: ServerScene, keeper: ServerScene) -> None:
    """Let the giver have given everything."""
    assert giver.say(Merge(PROXY, TOPIC, SERVER)).status == "OK"
    for _ in range(100):
        giver.sync()
        asked = giver.take(Ask)
        if not asked:
            break
        for one in asked:
            keeper.ask(one.data)
            keeper.sync()
            (answer,) = keeper.take(Answer)
            giver.tell(Answered(one.token, answer.data))
    assert TOPIC not in giver.rig.floor.tables.streams


def test_a_life_is_that_of_a_term_and_the_first_one_is_the_incarnation() -> None:
    lives = Lives.of(incarnation(1), [(1, 1), (1700, 9), (1800, 12)])
    assert [lives.at(n) for n in (1, 8)] == [incarnation(1)] * 2
    assert lives.at(9) == lives.at(11) != lives.at(12) == lives.at(99) == lives.present
    assert [lives.last_with(n) for n in (3, 9)] == [8, 11]
    assert lives.present in lives
    assert incarnation(2) not in lives
    assert all(life.startswith(lives.tag) for life, _ in lives.known)


def test_an_id_of_a_message_that_a_restore_lost_is_not_given_again_and_others_stay_as_they_are() -> None:
    scene = server()
    scene.say(Subscribe("alice", TOPIC))
    put(scene, "bob", 0, b"b0", b"b1")
    first = get(scene)
    scene.rig.checkpoint()
    copy = deepcopy(scene.rig.disk)
    second = get(scene, first.message_id)
    put(scene, "bob", 2, b"lost")
    lost = get(scene, second.message_id)
    assert lost.body == b"lost"
    put_back(scene, copy)
    assert get(scene) == first, "the same message has the same id"
    put(scene, "carol", 0, b"new")
    refused = get(scene, lost.message_id)
    assert (refused.status, b"earlier state" in refused.body) == ("REFUSED", True)
    assert get(scene, first.message_id) == second
    new = get(scene, second.message_id)
    assert (new.body, new.message_id == lost.message_id) == (b"new", False)
    assert get(scene, new.message_id).status == "NO_MESSAGES"


def test_an_id_of_a_life_that_was_lost_as_a_whole_is_refused_as_one_of_a_message_is() -> None:
    scene = server()
    scene.say(Subscribe("alice", TOPIC))
    put(scene, "bob", 0, b"b0")
    first = get(scene)
    scene.rig.checkpoint()
    copy = deepcopy(scene.rig.disk)
    for _ in range(3):
        put_back(scene, deepcopy(copy))
        scene.rig.time_ns += 10**9
        assert get(scene) == first
        put(scene, "carol", 0, b"new")
        new = get(scene, first.message_id)
        assert (new.status, new.body) == ("OK", b"new")
    put_back(scene, copy)
    refused = get(scene, new.message_id)
    assert (refused.status, b"earlier state" in refused.body) == ("REFUSED", True)


def test_many_are_given_up_to_where_a_life_ends_and_what_was_lost_behind_it_is_not_settled() -> None:
    scene = server()
    scene.say(Subscribe("alice", TOPIC))
    put(scene, "bob", 0, b"b0", b"b1")
    scene.rig.checkpoint()
    copy = deepcopy(scene.rig.disk)
    put(scene, "bob", 2, b"lost")
    three = scene.say(GetMany("alice", TOPIC, "-1", 9))
    put_back(scene, copy)
    put(scene, "carol", 0, b"new")
    two = scene.say(GetMany("alice", TOPIC, "-1", 9))
    assert [status.message_id.partition("-")[2] for status in (three, two)] == ["1..3", "1..2"]
    assert get(scene, three.message_id).body == b"new"


@pytest.mark.parametrize("count", [1, 2, 3])
def test_what_a_restored_server_was_given_reaches_the_keeper_though_its_former_life_was_merged(count: int) -> None:
    giver, keeper = server(HIGHER), server()
    for scene in (giver, keeper):
        scene.say(Subscribe("alice", TOPIC))
    put(giver, "bob", 0, b"b0", b"b1")
    native = giver.rig.attach(70_000, "desk", stream=TOPIC)
    giver.rig.publish(native, 1, 2)
    giver.rig.checkpoint()
    copy = deepcopy(giver.rig.disk)
    put(giver, "bob", 2, b"b2", b"b3")
    put(keeper, "carol", 0, b"c0")
    merge(giver, keeper)
    before = keeper.bodies(TOPIC)
    assert len(before) == 7
    put_back(giver, copy)
    new = [b"d%d" % n for n in range(count)]
    put(giver, "dan", 0, *new)
    giver.rig.time_ns += 1_000_000_000
    keeper.rig.time_ns = giver.rig.time_ns
    giver.say(Subscribe("erin", TOPIC))
    merge(giver, keeper)
    assert keeper.bodies(TOPIC) == before + new
    last, got = "-1", []
    while (said := get(keeper, last)).status == "OK":
        got.append(said.body)
        last = said.message_id
    assert sorted(got) == sorted(before + new)
    assert keeper.say(Get("erin", TOPIC, "-1")).status == "NO_MESSAGES"
    assert keeper.say(Unsubscribe("erin", TOPIC)).status == "OK"
