"""What worlds of topics owe to whom when a topic is removed at a server, and that they miss what is owed."""

from __future__ import annotations

import pytest

from veredus.sim.topics_seats import IN_HAND_MAX_NS
from veredus.sim.topics_told import ASKED, LEAVING, Told, judge
from veredus.sim.world import Clock, Violation, World

TOPIC, SERVER, CLIENT = "topic-1", "server-1", "client-1"
FIRST, SECOND = b"client-2|1", b"client-2|2"


class Scene:
    """One server, to whose topic somebody has subscribed, and one message was put."""

    def __init__(self) -> None:
        self.world = World(1)
        self.told = told = Told(self.world, (TOPIC,))
        told.servers[SERVER] = Clock(self.world, 0.0, 0)
        told.has(SERVER, (TOPIC,))
        self.seat = told.seat(CLIENT, TOPIC)
        self.subscribe()
        self.put(FIRST)

    def pass_time(self) -> None:
        self.world.run(self.world.now_ns + 1000)

    def subscribe(self) -> None:
        self.pass_time()
        self.told.wishes(self.seat, ASKED)
        self.told.subscribed(self.seat, self.world.now_ns)

    def put(self, body: bytes) -> None:
        self.pass_time()
        put = self.told.begins_put(TOPIC, "client-2", int(body[-1:]), body)
        self.told.asked(SERVER, 1, b"PUT client-2 topic-1 1\r\n\r\n" + body)
        self.told.taken(put)

    def remove(self) -> None:
        """Somebody asks for it, and it goes and is made anew."""
        self.pass_time()
        self.told.removals.ask(SERVER, TOPIC)
        self.go()
        self.told.removals.end(SERVER, TOPIC)

    def go(self) -> None:
        self.told.has(SERVER, ())
        self.told.has(SERVER, (TOPIC,))
        self.pass_time()

    def get(self, body: bytes) -> None:
        self.told.gets(self.seat)
        self.told.got(self.seat, "0123456789abcdef-1", body)

    def judge(self, *bodies: bytes) -> None:
        judge(self.told, {TOPIC: list(bodies)}, ())


def test_what_was_removed_is_owed_to_nobody_and_what_is_put_to_who_subscribes_again_is() -> None:
    scene = Scene()
    scene.remove()
    scene.put(SECOND)
    scene.judge(SECOND)
    scene.subscribe()
    third = b"client-2|3"
    scene.put(third)
    with pytest.raises(Violation, match=r"never got 1 messages: \[b'client-2\|3'\]"):
        scene.judge(SECOND, third)
    scene.get(third)
    scene.judge(SECOND, third)
    with pytest.raises(Violation, match="told to be taken are not in"):
        scene.judge(third)


def test_what_goes_though_nobody_removes_it_is_owed() -> None:
    scene = Scene()
    scene.remove()
    scene.subscribe()
    scene.put(SECOND)
    scene.go()
    with pytest.raises(Violation, match="told to be taken are not in"):
        scene.judge()


def test_what_comes_again_was_put_again_since_it_was_removed() -> None:
    scene = Scene()
    scene.get(FIRST)
    scene.world.run(scene.world.now_ns + IN_HAND_MAX_NS)
    scene.remove()
    scene.subscribe()
    scene.put(SECOND)
    scene.get(SECOND)
    with pytest.raises(Violation, match="twice"):
        scene.get(SECOND)
    with pytest.raises(Violation, match="twice"):
        scene.get(FIRST)
    scene.told.asked(SERVER, 1, b"PUT client-2 topic-1 1\r\n\r\n" + FIRST)
    scene.get(FIRST)


def test_who_has_left_what_is_removed_may_get_too_much() -> None:
    for is_removed in (False, True):
        scene = Scene()
        scene.told.wishes(scene.seat, LEAVING)
        scene.told.leaves(scene.seat)
        scene.told.left(scene.seat, SERVER, True, scene.world.now_ns)
        if is_removed:
            scene.remove()
        assert scene.seat.is_in_doubt is is_removed
