"""Puts of clients over a real streams floor and log."""

from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.protocols.topics.floor import Floor
from tests.streams.rig import incarnation
from veredus.delivery.batch import read_header
from veredus.delivery.payload import read_rows
from veredus.delivery.record import records_in
from veredus.protocols.topics.messages import Put
from veredus.protocols.topics.putting import FENCES_MAX, PutEnded, Puts
from veredus.streams import exchange as x

BODY_SIZE_MAX = 1000


class Scene(Floor[PutEnded]):
    """A server's way in."""

    def __init__(self, putters_max: int = 100) -> None:
        super().__init__(PutEnded)
        self._putters_max = putters_max
        self.boot()

    def boot(self) -> None:
        self.puts = Puts(self.next_id, lambda: incarnation(self.next_id()), BODY_SIZE_MAX, self._putters_max)
        self.join(lambda event: self.puts.handle(event, self.rig.now), self.puts.check)

    def restart(self) -> None:
        self.rig.restart()
        self.boot()

    def put(self, peer: int, counter: int, body: bytes = b"x", client: str = "bob", topic: str = "s") -> None:
        """Ask, and leave what is ordered of the disk undone."""
        self.follow(self.puts.ask(peer, Put(client, topic, counter, body), "local", self.rig.now))

    def done(self) -> list[tuple[int, str]]:
        """Who was answered with what since the last time."""
        ended, self.ended = self.ended, []
        return [(end.peer, end.status.value) for end in ended]

    def bodies(self, topic: str = "s") -> list[bytes]:
        """All that is in the stream."""
        session = self.next_id()
        self.rig.do(x.SubscribeRequested(session, "local", topic, credit=1 << 40))
        found: list[bytes] = []
        for push in self.rig.pushes(session):
            for view in records_in(b"".join(push.buffers)):
                found += read_rows(view.body, read_header(view.body)).bodies
        return found


def test_a_put_is_answered_when_it_is_durable_and_not_before() -> None:
    scene = Scene()
    scene.put(1, 1)
    assert scene.done() == []
    scene.sync()
    assert scene.done() == [(1, "OK")]
    assert scene.bodies() == [b"x"]


def test_the_same_counter_with_the_same_body_is_put_once_before_and_after_it_is_durable() -> None:
    scene = Scene()
    scene.put(1, 1)
    scene.put(2, 1)
    scene.sync()
    scene.put(3, 1)
    scene.sync()
    assert scene.done() == [(1, "OK"), (2, "OK"), (3, "OK")]
    scene.restart()
    scene.put(4, 1)
    scene.sync()
    assert scene.done() == [(4, "OK")]
    assert scene.bodies() == [b"x"]


def test_a_counter_that_is_put_again_while_it_is_on_its_way_waits_for_the_disk_too() -> None:
    scene = Scene()
    scene.put(1, 1)
    scene.sync()
    scene.put(2, 2)
    scene.put(3, 2)
    assert scene.done() == [(1, "OK")]
    scene.sync()
    assert scene.done() == [(2, "OK"), (3, "OK")]
    assert scene.bodies() == [b"x", b"x"]


def test_any_other_counter_that_is_not_higher_is_refused_with_the_last_one() -> None:
    scene = Scene()
    scene.put(1, 7, b"seven")
    scene.sync()
    scene.put(2, 9, b"nine")
    scene.put(3, 9, b"other")
    scene.put(4, 8, b"eight")
    scene.put(5, 7, b"seven")
    texts = {end.peer: end.text for end in scene.ended}
    assert scene.done() == [(1, "OK"), (3, "REFUSED"), (4, "REFUSED"), (5, "OK")]
    assert texts[3] == "counter 9 of bob on s was used for another body: put this body under a counter above 9"
    assert (
        texts[4]
        == "counter 8 of bob on s is below its last one, 9: it may be done; put another body under a counter above 9"
    )
    scene.sync()
    assert scene.done() == [(2, "OK")]
    scene.put(6, 7, b"seven")
    assert scene.done() == [(6, "REFUSED")], "whose body it was is not known any more"
    assert scene.bodies() == [b"seven", b"nine"]


def test_each_client_has_counters_of_its_own_on_each_topic() -> None:
    scene = Scene()
    for peer, (client, topic) in enumerate([("a", "s"), ("b", "s"), ("a", "t")]):
        scene.put(peer, 1, f"{client}{topic}".encode(), client, topic)
    scene.sync()
    assert sorted(scene.done()) == [(0, "OK"), (1, "OK"), (2, "OK")]
    assert (sorted(scene.bodies()), scene.bodies("t")) == ([b"as", b"bs"], [b"at"])


def test_what_the_journal_refuses_is_answered_as_an_error_and_taken_when_it_is_put_again() -> None:
    scene = Scene()
    scene.put(1, 1)
    scene.sync()
    scene.rig.is_full = True
    scene.put(2, 2)
    scene.put(3, 2)
    scene.sync()
    texts = [end.text for end in scene.ended]
    assert scene.done() == [(1, "OK"), (2, "INTERNAL_ERROR"), (3, "INTERNAL_ERROR")]
    assert texts[1].endswith("try again later [disk-full]")
    scene.rig.is_full = False
    scene.put(4, 2)
    scene.sync()
    assert scene.done() == [(4, "OK")]
    assert scene.bodies() == [b"x", b"x"]


def test_who_may_not_publish_hears_why_and_the_next_one_asks_anew() -> None:
    scene = Scene()
    scene.rig.may = lambda principal, verb, resource: resource.name != "s"
    scene.rig.boot()
    scene.put(1, 1)
    scene.put(2, 1, topic="t")
    scene.sync()
    assert sorted(scene.done()) == [(1, "REFUSED"), (2, "OK")]


def test_a_source_that_somebody_else_took_over_is_taken_back_and_nothing_is_put_twice() -> None:
    scene = Scene()
    scene.put(1, 1)
    scene.sync()
    scene.put(2, 2, b"two")
    taken = x.SourceAttachRequested(900, "local", "s", "bob", incarnation(900), 0, is_sparse=True)
    scene.follow([taken])
    scene.sync()
    scene.put(3, 2, b"two")
    scene.sync()
    assert scene.done() == [(1, "OK"), (2, "OK"), (3, "OK")]
    assert scene.bodies() == [b"x", b"two"]


def test_a_source_that_is_taken_over_again_and_again_is_left_to_the_other_one() -> None:
    scene = Scene()
    scene.put(1, 1)
    scene.sync()
    for number in range(FENCES_MAX + 1):
        scene.follow([x.SourceAttachRequested(900 + number, "local", "s", "bob", incarnation(900 + number), 0, True)])
        scene.put(2 + number, 1)
        scene.sync()
    assert all(status == "OK" for _, status in scene.done()), "each was answered, by whoever has the source"


def test_a_body_over_the_limit_is_refused_before_anything_is_asked() -> None:
    scene = Scene()
    scene.put(1, 1, bytes(BODY_SIZE_MAX + 1))
    (end,) = scene.ended
    assert (end.status, end.text) == ("REFUSED", "the body has 1001 bytes, and the limit is 1000: put it in parts")
    assert scene.rig.floor.tables.streams == {}


def test_who_asked_the_longest_ago_makes_room_and_is_known_when_it_comes_again() -> None:
    scene = Scene(putters_max=2)
    for peer, client in enumerate("abc"):
        scene.put(peer, 5, client.encode(), client)
        scene.sync()
    scene.put(3, 5, b"a", "a")
    scene.put(4, 5, b"other", "a")
    scene.put(5, 6, b"more", "b")
    scene.sync()
    assert sorted(scene.done()) == [(0, "OK"), (1, "OK"), (2, "OK"), (3, "OK"), (4, "REFUSED"), (5, "OK")]
    assert scene.bodies() == [b"a", b"b", b"c", b"more"]


class Step(NamedTuple):
    """A put, from this client."""

    client: str
    counter: int
    body: bytes


STEPS = st.one_of(
    st.builds(Step, st.sampled_from("ab"), st.integers(1, 6), st.sampled_from([b"x", b"y"])),
    st.sampled_from(["sync", "restart", "full", "room"]),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(STEPS, max_size=30))
def test_whatever_happens_a_counter_is_in_the_stream_once_and_what_was_said_to_be_put_is_there(
    steps: list[Step | str],
) -> None:
    scene = Scene(putters_max=1)
    asked: dict[int, Step] = {}
    answered: list[tuple[int, str]] = []
    said_ok: dict[tuple[str, int], bytes] = {}
    for peer, step in enumerate(steps):
        if isinstance(step, Step):
            asked[peer] = step
            scene.put(peer, step.counter, step.client.encode() + step.body, step.client)
        elif step == "sync":
            scene.sync()
        elif step == "restart":
            answered += scene.done()
            scene.restart()
        else:
            scene.rig.is_full = step == "full"
    scene.rig.is_full = False
    scene.sync()
    answered += scene.done()
    assert len({peer for peer, _ in answered}) == len(answered), "each is answered once"
    for peer, status in answered:
        step = asked[peer]
        if status == "OK":
            body = step.client.encode() + step.body
            assert said_ok.setdefault((step.client, step.counter), body) == body, "never two bodies of one counter"
    bodies = scene.bodies() if scene.rig.floor.tables.streams else []
    assert all(bodies.count(body) >= 1 for body in said_ok.values())
    for client in "ab":
        mine = [body for (who, _), body in sorted(said_ok.items()) if who == client]
        there = iter(body for body in bodies if body.startswith(client.encode()))
        assert all(body in there for body in mine), "in the order of counters"


def test_a_first_put_may_have_the_counter_0() -> None:
    scene = Scene()
    for peer, (counter, body) in enumerate(((0, b"zero"), (0, b"zero"), (1, b"one")), 1):
        scene.put(peer, counter, body)
        scene.sync()
    assert scene.done() == [(1, "OK"), (2, "OK"), (3, "OK")]
    assert scene.bodies() == [b"zero", b"one"]
