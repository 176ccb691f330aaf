"""A whole server over a real streams floor and log, told by hand what its sockets hear."""

from dataclasses import replace
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.protocols.topics.floor import LINK, MS, PROXY, SERVER, SETTINGS, ServerScene
from veredus.kernel.effects import CloseLink, Note
from veredus.kernel.events import DeadlineReached, LinkClosed
from veredus.protocols.links import DrainRequested
from veredus.protocols.topics.exchange import Answered, Ask, Asked, Meet
from veredus.protocols.topics.messages import (
    Get,
    Message,
    Periodic,
    Put,
    Status,
    Subscribe,
    Unsubscribe,
    decode_message,
    encode_message,
)

SECOND = 1000 * MS
OTHER = "127.0.0.1:9002"
SUBSCRIBE = Subscribe("alice", "s")


def get(last_id: str = "-1", client: str = "alice", topic: str = "s") -> Get:
    return Get(client, topic, last_id)


def put(counter: int, body: bytes = b"x", client: str = "bob", topic: str = "s") -> Put:
    return Put(client, topic, counter, body)


def told(scene: ServerScene) -> list[tuple[int, str]]:
    return [(peer, status.status) for peer, status in scene.answers()]


# ── questions ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_is_put_after_a_subscription_is_got_and_each_answer_names_the_server() -> None:
    scene = ServerScene()
    assert scene.say(put(1, b"before")) == Status(SERVER, "OK")
    assert scene.say(SUBSCRIBE) == Status(SERVER, "OK")
    assert scene.say(put(2, b"behind")) == Status(SERVER, "OK")
    status = scene.say(get())
    assert (status.sender, status.status, status.body) == (SERVER, "OK", b"behind")
    assert scene.say(get(status.message_id)) == Status(SERVER, "NO_MESSAGES")
    assert scene.say(Unsubscribe("alice", "s")) == Status(SERVER, "OK")
    assert scene.say(get(status.message_id)).status == "NOT_SUBSCRIBED"


def test_a_message_without_a_body_is_a_message() -> None:
    scene = ServerScene()
    scene.say(SUBSCRIBE)
    scene.say(put(1, b""))
    status = scene.say(get())
    assert (status.status, status.body) == ("OK", b"")
    assert status.message_id


@pytest.mark.parametrize("is_killed", [False, True])
def test_bodies_larger_than_what_waits_for_a_client_follow_one_another_at_once(is_killed: bool) -> None:
    scene = ServerScene()
    scene.say(SUBSCRIBE)
    bodies = [bytes([counter]) * 100_000 for counter in range(1, 5)]
    for counter, body in enumerate(bodies, 1):
        scene.say(put(counter, body))
    if is_killed:
        scene.restart()
    last, got = "-1", []
    while (status := scene.say(get(last))).status == "OK":
        last = status.message_id
        got.append(status.body)
    assert got == bodies


def test_nothing_is_answered_before_it_is_durable() -> None:
    scene = ServerScene()
    asked = [scene.ask(question) for question in (put(1), SUBSCRIBE, put(2), put(2), get())]
    assert told(scene) == []
    scene.sync()
    assert sorted(peer for peer, _ in told(scene)) == asked


def test_more_than_may_be_in_hand_is_refused_at_once_and_taken_when_there_is_room() -> None:
    scene = ServerScene(replace(SETTINGS, requests_max=2))
    scene.ask(put(1))
    scene.ask(put(1, client="carol"))
    peer = scene.ask(put(2))
    ((answered, status),) = scene.answers()
    assert (answered, status.status) == (peer, "SERVER_UNAVAILABLE")
    assert status.body == b"2 requests are being handled, and this is the limit: try again"
    scene.sync()
    assert len(told(scene)) == 2
    assert scene.say(put(2)).status == "OK"
    assert scene.bodies("s") == [b"x", b"x", b"x"]


def test_who_has_used_up_his_share_is_told_so_and_nothing_is_put_for_him() -> None:
    scene = ServerScene()
    scene.tell(Asked(7, encode_message(put(1)), LINK, why_not="others have their share: try again"))
    ((peer, status),) = scene.answers()
    assert (peer, status.status, status.body) == (7, "SERVER_UNAVAILABLE", b"others have their share: try again")
    assert scene.say(SUBSCRIBE).status == "OK"


def test_a_body_over_the_limit_is_refused() -> None:
    scene = ServerScene(replace(SETTINGS, body_size_max=10))
    status = scene.say(put(1, bytes(11)))
    assert (status.status, status.body) == ("REFUSED", b"the body has 11 bytes, and the limit is 10: put it in parts")
    assert scene.say(put(1, bytes(10))).status == "OK"


# ── a disk that is full ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("is_known", [False, True])
def test_a_put_that_finds_the_disk_full_is_an_error_and_works_once_there_is_room(is_known: bool) -> None:
    scene = ServerScene()
    scene.say(SUBSCRIBE)
    if is_known:
        scene.say(put(1, b"one"))
    scene.rig.is_full = True
    for _ in range(2):
        status = scene.say(put(2, b"two"))
        assert status.status == "INTERNAL_ERROR"
        assert status.body.endswith(b"[disk-full]")
    assert scene.say(get()).status == ("OK" if is_known else "NO_MESSAGES"), "what is there can be had"
    scene.rig.is_full = False
    assert scene.say(put(2, b"two")).status == "OK"
    assert scene.say(put(2, b"two")).status == "OK"
    assert scene.bodies("s") == ([b"one", b"two"] if is_known else [b"two"])


def test_a_subscription_that_finds_the_disk_full_is_not_there() -> None:
    scene = ServerScene()
    scene.say(put(1))
    scene.rig.is_full = True
    status = scene.say(SUBSCRIBE)
    assert status.status == "INTERNAL_ERROR"
    assert scene.say(get()).status == "NOT_SUBSCRIBED"
    scene.rig.is_full = False
    assert scene.say(SUBSCRIBE).status == "OK"
    scene.rig.is_full = True
    assert scene.say(Unsubscribe("alice", "s")).status == "INTERNAL_ERROR"
    scene.rig.is_full = False
    assert scene.say(get()).status == "NO_MESSAGES"
    assert scene.say(Unsubscribe("alice", "s")).status == "OK"


def test_a_get_that_cannot_be_settled_gives_nothing_until_there_is_room() -> None:
    scene = ServerScene()
    scene.say(SUBSCRIBE)
    scene.say(put(1, b"one"))
    scene.say(put(2, b"two"))
    first = scene.say(get())
    scene.rig.is_full = True
    for _ in range(3):
        status = scene.say(get(first.message_id))
        assert (status.status, status.message_id) == ("INTERNAL_ERROR", "")
        assert list(scene.rig.floor.flows) == list(scene.server.gets.by_session), "none is left over"
    scene.rig.is_full = False
    second = scene.say(get(first.message_id))
    assert second.body == b"two"
    scene.restart()
    assert scene.say(get(first.message_id)) == second
    assert scene.say(get(second.message_id)).status == "NO_MESSAGES"


# ── proxies ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def periodics(scene: ServerScene) -> list[tuple[str, Message]]:
    """What was asked of proxies, who answer that it is well."""
    asked = scene.take(Ask)
    for ask in asked:
        scene.tell(Answered(ask.token, encode_message(Status(ask.address, "OK")), LINK))
    return [(ask.address, decode_message(ask.data)) for ask in asked]


def test_proxies_are_met_and_told_all_topics_at_once_and_each_period() -> None:
    scene = ServerScene(replace(SETTINGS, proxies=("p1:1", "p2:1"), retries_max=0))
    assert [meet.address for meet in scene.take(Meet)] == ["p1:1", "p2:1"]
    scene.pass_time(0)
    assert periodics(scene) == [("p1:1", Periodic(SERVER, ())), ("p2:1", Periodic(SERVER, ()))]
    for topic in ("b", "a"):
        scene.say(put(1, topic=topic))
    scene.pass_time(5 * SECOND - 1)
    assert periodics(scene) == []
    scene.pass_time(1)
    both = Periodic(SERVER, ("a", "b"))
    assert periodics(scene) == [("p1:1", both), ("p2:1", both)]
    scene.restart()
    scene.pass_time(0)
    assert periodics(scene) == [("p1:1", both), ("p2:1", both)], "also what it finds when it begins"


def test_a_proxy_that_does_not_answer_is_told_again_a_few_times_and_then_anew_before_the_period_is_over() -> None:
    scene = ServerScene(replace(SETTINGS, proxies=(PROXY, "p2:1"), answer_ns=100 * MS, retries_max=2))
    scene.pass_time(0)
    first, second = scene.take(Ask)
    scene.tell(Answered(second.token, encode_message(Status("p2:1", "OK")), LINK))
    for _ in range(2):
        scene.pass_time(100 * MS - 1)
        assert scene.take(Ask) == []
        scene.pass_time(1)
        (again,) = scene.take(Ask)
        assert (again.address, again.data, again.token != first.token) == (PROXY, first.data, True)
    scene.pass_time(100 * MS + 5 * SECOND // 10 - 1)
    assert scene.take(Ask) == []
    assert scene.take(Note) == []
    scene.pass_time(1)
    (third,) = scene.take(Ask)
    assert (third.address, third.token not in (first.token, second.token)) == (PROXY, True)
    scene.tell(Answered(third.token, encode_message(Status(PROXY, "OK")), LINK))
    scene.pass_time(5 * SECOND - 800 * MS - 1)
    assert scene.take(Ask) == []
    scene.pass_time(1)
    assert [ask.address for ask in scene.take(Ask)] == [PROXY, "p2:1"]


def test_a_proxy_that_did_not_answer_is_told_again_what_is_there_by_then() -> None:
    scene = ServerScene(replace(SETTINGS, answer_ns=100 * MS, retries_max=2))
    scene.pass_time(0)
    assert [decode_message(ask.data) for ask in scene.take(Ask)] == [Periodic(SERVER, ())]
    scene.say(put(1, topic="new"))
    scene.pass_time(100 * MS)
    assert periodics(scene) == [(PROXY, Periodic(SERVER, ("new",)))]


def test_a_proxy_that_is_silent_for_a_whole_period_is_noted_once_until_it_answers() -> None:
    scene = ServerScene(replace(SETTINGS, proxies=(PROXY,), answer_ns=100 * MS, retries_max=0))

    def noted(seconds: int) -> list[object]:
        notes: list[Note] = []
        for _ in range(seconds * 10):
            scene.pass_time(100 * MS)
            notes += scene.take(Note)
        return [(note.level, note.event, note.fields["proxy"]) for note in notes]

    assert noted(4) == []
    assert noted(10) == [("warning", "proxy-silent", PROXY)]
    scene.take(Ask)
    while not (asks := scene.take(Ask)):
        scene.pass_time(10 * MS)
    scene.tell(Answered(asks[-1].token, encode_message(Status(PROXY, "OK")), LINK))
    assert noted(14) == [("warning", "proxy-silent", PROXY)]


def test_no_proxy_was_silent_while_the_server_itself_was_away() -> None:
    scene = ServerScene(replace(SETTINGS, proxies=(PROXY,), answer_ns=100 * MS, retries_max=0))
    scene.pass_time(SECOND)
    scene.rig.time_ns += 500 * SECOND
    scene.tell(DeadlineReached())
    scene.pass_time(5 * SECOND - 1)
    assert scene.take(Note) == []
    scene.pass_time(SECOND)
    assert [note.event for note in scene.take(Note)] == ["proxy-silent"]


def test_a_server_without_proxies_says_that_nobody_finds_it() -> None:
    scene = ServerScene(replace(SETTINGS, proxies=()))
    (note,) = scene.take(Note)
    assert (note.level, note.event) == ("warning", "no-proxies")


def test_a_proxy_that_refuses_is_noted_and_told_again_with_the_next_period() -> None:
    scene = ServerScene()
    scene.pass_time(0)
    (ask,) = scene.take(Ask)
    refusal = encode_message(Status(PROXY, "REFUSED", "", b"none of this proxy's servers"))
    scene.tell(Answered(ask.token, refusal, LINK))
    scene.tell(Answered(ask.token, refusal, LINK))
    (note,) = scene.take(Note)
    assert (note.level, note.event) == ("warning", "proxy-refuses")
    assert note.fields == {"proxy": PROXY, "reason": "none of this proxy's servers"}
    scene.pass_time(5 * SECOND)
    assert len(scene.take(Ask)) == 1


def test_topics_that_nobody_may_be_told_of_are_left_out() -> None:
    scene = ServerScene()
    scene.say(put(1, topic="open"))
    scene.say(put(1, topic="shut"))
    scene.rig.may = lambda principal, verb, resource: (principal, resource.name) != ("local", "shut")
    scene.restart()
    scene.pass_time(0)
    assert periodics(scene) == [(PROXY, Periodic(SERVER, ("open",)))]


# ── the end ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_server_that_drains_answers_what_is_in_hand_takes_nothing_new_and_closes_its_link() -> None:
    scene = ServerScene()
    scene.say(SUBSCRIBE)
    first, second = scene.ask(put(1)), scene.ask(get())
    assert told(scene) == [(second, "NO_MESSAGES")]
    scene.tell(DrainRequested(LINK, "the node stops"))
    late = scene.ask(put(2))
    assert scene.take(CloseLink) == []
    ((answered, status),) = scene.answers()
    assert (answered, status.status, status.body) == (
        late,
        "SERVER_UNAVAILABLE",
        f"{SERVER} is stopping: try again".encode(),
    )
    scene.sync()
    kinds = [type(order).__name__ for order in scene.ended]
    assert kinds == ["Meet", "Answer", "CloseLink"], "first the answer, then the end"
    assert told(scene) == [(first, "OK")]
    assert scene.bodies("s") == [b"x"]
    scene.pass_time(20 * SECOND)
    assert scene.take(Ask) == [], "proxies hear no more of it"


def test_a_server_with_nothing_in_hand_closes_its_link_as_soon_as_it_drains() -> None:
    scene = ServerScene()
    scene.tell(DrainRequested(LINK, "the node stops"))
    assert [close.link for close in scene.take(CloseLink)] == [LINK]


def test_a_link_that_is_closed_leaves_no_session_behind() -> None:
    scene = ServerScene()
    for client in "ab":
        scene.say(Subscribe(client, "s"))
        scene.say(put(1, client=client))
        scene.say(put(1, client=client, topic="t"))
    floor = scene.rig.floor
    assert (len(floor.flows), floor.attached_count) == (2, 4)
    scene.tell(LinkClosed(LINK, "closed"))
    scene.sync()
    assert (len(floor.flows), floor.attached_count) == (0, 0)
    assert all(not one["is_attached"] for one in scene.listed("s")["subscription_list"])


# ── whatever happens ─────────────────────────────────────────────────────────────────────────────────────────────────


class Step(NamedTuple):
    """What a client does; `is_lost` says that its answer never comes, and `is_held_back` that the disk waits."""

    what: str
    client: str
    is_lost: bool
    is_held_back: bool


STEPS = st.lists(
    st.one_of(
        st.builds(
            Step,
            st.sampled_from(["put", "put", "get", "get", "get", "subscribe"]),
            st.sampled_from("abc"),
            st.booleans(),
            st.booleans(),
        ),
        st.sampled_from(["restart", "full", "room"]),
    ),
    max_size=50,
)


class Client:
    """Whoever puts and gets as the page has it: it asks the same again until it is answered."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.counter = 0
        self.is_putting = False
        self.last = "-1"
        self.got: list[bytes] = []
        self.begins_least: int | None = None
        """How many messages there were when it first asked to be subscribed, and when it was told that it is."""
        self.begins_most: int | None = None

    def question(self, what: str, head: int) -> Message:
        if what == "subscribe":
            self.begins_least = head if self.begins_least is None else self.begins_least
            return Subscribe(self.name, "s")
        if what == "get":
            return get(self.last, self.name)
        self.counter += not self.is_putting
        self.is_putting = True
        return put(self.counter, f"{self.name}{self.counter}".encode(), self.name)

    def hear(self, what: str, status: Status, head: int) -> None:
        if what == "put" and status.status == "OK":
            self.is_putting = False
        elif what == "subscribe" and status.status in ("OK", "ALREADY_SUBSCRIBED"):
            self.begins_most = head if self.begins_most is None else self.begins_most
        elif what == "get" and status.status == "OK" and status.message_id != self.last:
            assert status.message_id != "-1"
            self.last = status.message_id
            self.got.append(status.body)


@settings(max_examples=100, deadline=None)
@given(STEPS)
def test_whatever_happens_each_message_behind_a_subscription_is_got_once_and_in_order(steps: list[Step | str]) -> None:
    scene = ServerScene(replace(SETTINGS, sessions_max=1))
    clients = {name: Client(name) for name in "abc"}
    asked: dict[int, tuple[Step, Client]] = {}
    heard: list[int] = []

    def head() -> int:
        stream = scene.rig.floor.tables.streams.get("s")
        return 0 if stream is None else stream.head_durable

    def listen() -> None:
        for peer, status in scene.answers():
            heard.append(peer)
            step, client = asked[peer]
            if not step.is_lost:
                client.hear(step.what, status, head())

    def ask(step: Step) -> None:
        client = clients[step.client]
        asked[scene.ask(client.question(step.what, head()))] = (step, client)
        if not step.is_held_back:
            scene.sync()
        listen()

    for step in steps:
        if isinstance(step, Step):
            ask(step)
        elif step == "restart":
            scene.restart()
        else:
            scene.rig.is_full = step == "full"
    scene.rig.is_full = False
    scene.sync()
    listen()
    assert len(set(heard)) == len(heard), "each is answered once"
    for what in ("put", "subscribe", *["get"] * (len(steps) + len(clients) + 2)):
        for name in clients:
            ask(Step(what, name, False, False))
    bodies = scene.bodies("s")
    for name, client in clients.items():
        mine = [body for body in bodies if body.startswith(name.encode())]
        assert mine == [f"{name}{counter}".encode() for counter in range(1, client.counter + 1)], "once, in order"
        assert client.begins_least is not None
        assert client.begins_most is not None
        begins = len(bodies) - len(client.got)
        assert client.got == bodies[begins:]
        assert client.begins_least <= begins <= client.begins_most
