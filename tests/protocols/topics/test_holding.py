"""Topics that a server holds, lets go again, and passes on, over a real streams floor and log."""

from collections.abc import Callable
from dataclasses import replace

from tests.protocols.topics.floor import LINK, MS, SERVER, SETTINGS, ServerScene
from veredus.kernel.effects import CloseLink
from veredus.kernel.engine import Now
from veredus.protocols.links import DrainRequested
from veredus.protocols.topics.exchange import Answered, Ask
from veredus.protocols.topics.messages import Get, Put, Status, Subscribe, Unsubscribe, encode_message
from veredus.protocols.topics.server import HELD_NS

SECOND = 1000 * MS
OTHER = "127.0.0.1:9002"
SUBSCRIBE, GET = Subscribe("alice", "s"), Get("alice", "s", "-1")


def put(counter: int, body: bytes = b"x", client: str = "bob", topic: str = "s") -> Put:
    return Put(client, topic, counter, body)


def told(scene: ServerScene) -> list[tuple[int, str]]:
    return [(peer, status.status) for peer, status in scene.answers()]


class Holding:
    """A topic that a server holds; `called` counts how often it was told that nothing of the topic is in hand."""

    def __init__(self, scene: ServerScene, topic: str = "s") -> None:
        self.scene = scene
        self.called = 0
        self.act(lambda now: scene.server.hold(topic, f"{topic} goes to {OTHER}", self._then, now))

    def _then(self, now: Now) -> None:
        self.called += 1
        floor = self.scene.rig.floor
        sessions = [*self.scene.server.puts.by_session, *self.scene.server.gets.by_session]
        self.open_count = len(sessions)
        self.topics = list(floor.tables.streams)

    def act(self, what: Callable[[Now], None]) -> None:
        """Call the server as its other parts do, and follow what it orders."""
        act(self.scene, what)


def act(scene: ServerScene, what: Callable[[Now], None]) -> None:
    scene.server._effects = []
    what(scene.rig.now)
    scene.follow(scene.server._effects)


def release(scene: ServerScene, topic: str = "s") -> None:
    act(scene, lambda now: scene.server.release(topic, now))


def pass_on(scene: ServerScene, topic: str = "s", address: str = OTHER) -> None:
    act(scene, lambda now: scene.server.pass_on(topic, address, now))


def test_a_topic_is_handed_over_only_when_nothing_of_it_is_in_hand_and_no_session_is_open() -> None:
    scene = ServerScene()
    scene.say(SUBSCRIBE)
    on_its_way = scene.ask(put(1))
    holding = Holding(scene)
    late = scene.ask(put(1, client="late"))
    assert (holding.called, told(scene)) == (0, [])
    scene.sync()
    assert told(scene) == [(on_its_way, "OK")]
    assert (holding.called, holding.open_count) == (1, 0)
    assert (len(scene.rig.floor.flows), scene.rig.floor.attached_count) == (0, 0)
    release(scene)
    scene.sync()
    assert told(scene) == [(late, "OK")]
    assert holding.called == 1


def test_a_topic_of_which_nothing_is_in_hand_is_handed_over_at_once() -> None:
    scene = ServerScene()
    assert Holding(scene).called == 1


def test_what_is_asked_of_a_topic_that_is_held_waits_and_other_topics_go_on() -> None:
    scene = ServerScene()
    Holding(scene)
    scene.ask(put(1))
    scene.sync()
    assert told(scene) == []
    assert scene.say(put(1, topic="t")).status == "OK"
    assert "s" not in scene.rig.floor.tables.streams


def test_whoever_waits_too_long_for_a_topic_is_told_why() -> None:
    scene = ServerScene()
    holding = Holding(scene)
    first = scene.ask(put(1))
    scene.pass_time(HELD_NS // 2)
    second = scene.ask(put(2))
    scene.pass_time(HELD_NS // 2 - 1)
    assert told(scene) == []
    scene.pass_time(1)
    ((peer, status),) = scene.answers()
    assert (peer, status.status) == (first, "SERVER_UNAVAILABLE")
    assert status.body == f"s goes to {OTHER}, for 0.3 s: try again".encode()
    release(scene)
    scene.sync()
    assert told(scene) == [(second, "OK")]
    scene.pass_time(10 * HELD_NS)
    assert told(scene) == [], "and nobody is answered twice"
    assert holding.called == 1


def test_a_topic_that_is_released_takes_what_has_waited_in_the_order_in_which_it_was_asked() -> None:
    scene = ServerScene()
    Holding(scene)
    asked = [scene.ask(question) for question in (SUBSCRIBE, put(2, b"two"), put(1, b"one"), GET)]
    release(scene)
    scene.sync()
    statuses = dict(told(scene))
    assert [statuses[peer] for peer in asked] == ["OK", "OK", "REFUSED", "NO_MESSAGES"]


def passed_on(scene: ServerScene) -> Ask:
    """The one question that went to the other server."""
    (ask,) = [ask for ask in scene.take(Ask) if ask.address == OTHER]
    return ask


def test_what_is_asked_of_a_topic_that_went_elsewhere_is_asked_there_to_the_letter() -> None:
    scene = ServerScene()
    scene.say(put(1, topic="t"))
    Holding(scene)
    data = b"PUT bob s 7 \r\n\r\n\x00\xffEWR"
    waited = scene.ask(data)
    pass_on(scene)
    ask = passed_on(scene)
    assert ask.data == data
    reply = encode_message(Status(OTHER, "OK", "abc-7", b"\x00\xff\r\n\r\n"))
    scene.tell(Answered(ask.token, reply, LINK))
    ((peer, status),) = scene.answers()
    assert (peer, encode_message(status)) == (waited, reply)
    scene.tell(Answered(ask.token, reply, LINK))
    assert told(scene) == []
    later = scene.ask(GET)
    ask = passed_on(scene)
    assert ask.data == encode_message(GET)
    scene.tell(Answered(ask.token, b"no status", LINK))
    assert told(scene) == []
    scene.tell(Answered(ask.token, encode_message(Status(OTHER, "NO_MESSAGES")), LINK))
    assert scene.answers() == [(later, Status(OTHER, "NO_MESSAGES"))]
    assert "s" not in scene.rig.floor.tables.streams
    assert scene.say(put(2, topic="t")).status == "OK"


def test_who_leaves_a_topic_that_went_elsewhere_has_left_it_here_too() -> None:
    scene = ServerScene()
    Holding(scene)
    pass_on(scene)
    peer = scene.ask(Unsubscribe("alice", "s", 8))
    scene.sync()
    ask = passed_on(scene)
    assert ask.data == encode_message(Unsubscribe("alice", "s", 8))
    scene.tell(Answered(ask.token, encode_message(Status(OTHER, "OK")), LINK))
    assert scene.answers() == [(peer, Status(OTHER, "OK"))]
    scene.restart()
    assert scene.say(Subscribe("alice", "s", 7)).status == "REFUSED"
    assert scene.say(Subscribe("alice", "s", 9)).status == "OK"


def test_where_the_other_server_does_not_answer_both_are_named() -> None:
    scene = ServerScene(replace(SETTINGS, answer_ns=100 * MS, retries_max=3))
    Holding(scene)
    pass_on(scene)
    peer = scene.ask(put(1))
    scene.pass_time(400 * MS - 1)
    assert len([ask for ask in scene.take(Ask) if ask.address == OTHER]) == 4
    assert told(scene) == []
    scene.pass_time(1)
    ((answered, status),) = scene.answers()
    assert (answered, status.status) == (peer, "SERVER_UNAVAILABLE")
    assert status.body == f"s was moved from {SERVER} to {OTHER}, which does not answer: try again".encode()


def test_where_a_topic_went_is_forgotten_after_four_periods() -> None:
    scene = ServerScene(replace(SETTINGS, period_ns=SECOND))
    Holding(scene)
    pass_on(scene)
    scene.pass_time(4 * SECOND - 1)
    scene.ask(put(1))
    passed_on(scene)
    scene.pass_time(SECOND)
    scene.answers()
    assert scene.say(put(1)).status == "OK"
    assert scene.bodies("s") == [b"x"]


def test_a_draining_server_waits_for_what_it_asked_elsewhere() -> None:
    scene = ServerScene()
    Holding(scene)
    pass_on(scene)
    peer = scene.ask(put(1))
    scene.tell(DrainRequested(LINK, "the node stops"))
    assert scene.take(CloseLink) == []
    scene.tell(Answered(passed_on(scene).token, encode_message(Status(OTHER, "OK")), LINK))
    assert told(scene) == [(peer, "OK")]
    assert len(scene.take(CloseLink)) == 1


def test_a_topic_that_is_held_keeps_a_draining_server_no_longer_than_questions_wait() -> None:
    scene = ServerScene()
    scene.server.hold("s", "s is on its way", lambda now: None, scene.rig.now)
    peer = scene.ask(put(1))
    scene.tell(DrainRequested(LINK, "the node stops"))
    assert scene.take(CloseLink) == []
    scene.pass_time(HELD_NS)
    assert told(scene) == [(peer, "SERVER_UNAVAILABLE")]
    assert len(scene.take(CloseLink)) == 1
