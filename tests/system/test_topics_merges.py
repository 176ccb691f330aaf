"""Merges of topics that two servers have, on bad days: one of them is killed, or has no space, in the middle.

Two proxies gave each topic to a server of its own, since one of them knew no other one. What goes from the giver to the
keeper then passes a wire, which is cut at the very part, or answer, at which the day is to turn bad.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from itertools import count, product
from pathlib import Path
from typing import TypeVar

import pytest
import zmq

import veredus
from tests.processes import free_port, wait_until
from tests.system.serving_topics import QUICK, Said, ServedProxy, Server
from veredus.kernel.errors import Unavailable
from veredus.protocols.topics.messages import Transfer, decode_message
from veredus.protocols.topics.transfer import decode_part
from veredus.topics import Client

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it takes Linux to make a disk fail from outside"),
    pytest.mark.xdist_group("topics-merges"),
]

SEGMENT_SIZE = 512 << 10
SPARES_COUNT = 400
FILLER_SIZE = 64 << 10
TWINS_COUNT, MANY_COUNT = 20, 700
WAIT_S = 60.0
LIFE_S = 300.0
LOOK_S = 0.01
ROWS, END, HEARD = "at-the-third-rows", "at-the-end", "at-the-answer-to-the-end"
"""When the wire is cut: the giver copies and serves; it has let go of the topic; the keeper has it, and has said so."""
CUTS = {ROWS: ("RowsPart", False, 3), END: ("End", False, 1), HEARD: ("End", True, 1)}
"""The part, whether its answer is meant, and the how manyth."""
KEEPER, GIVER = "keeper", "giver"
SIDES = {KEEPER: ("kit", "alice"), GIVER: ("gus", "carol")}
"""Who puts, and who is subscribed, by the proxy that gave the topics to this server."""
REFUSALS: dict[str, dict[str, str]] = {ROWS: {}, END: {GIVER: "try again"}, HEARD: {GIVER: "try again"}}
"""What is said then to those who ask for the topic, where both servers are well."""
SUBSCRIBERS = ("alice", "carol", "dora")
"""Dora is subscribed at both: her first SUBSCRIBE was answered late, and she asked the other proxy."""
KILL, FULL = "kill", "full"
STRUCK_AT = {KILL: (ROWS, END, HEARD), FULL: (ROWS, END)}
TOPICS = {
    (day, victim, cut): f"{day}-{victim}-{cut}" for day in STRUCK_AT for victim in SIDES for cut in STRUCK_AT[day]
}
T = TypeVar("T")


class Wire:
    """The address at which all reach the keeper. TRANSFERs pass whose topic's wire is not cut, and all else."""

    def __init__(self, address: str, keeper: str) -> None:
        """Cut for every topic, between `address` and where the keeper listens."""
        self._until: dict[str, tuple[str, bool, int]] = {}
        """By topic for which it is not cut, with what it will be."""
        self._known: dict[bytes, tuple[str, str]] = {}
        """By envelope, the topic and the kind of a part, which may be asked and answered more than once."""
        self._is_over = threading.Event()
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._front, self._back = self._context.socket(zmq.ROUTER), self._context.socket(zmq.DEALER)
        self._front.bind(f"tcp://{address}")
        # What is sent to a keeper that is down is lost.
        self._back.immediate = True
        self._back.connect(f"tcp://{keeper}")
        self._thread = threading.Thread(target=self._relay, daemon=True)
        self._thread.start()

    def mend(self, topic: str, until: str = "") -> None:
        """Let what belongs to the topic pass; with the part that `until` names it is cut again."""
        self._until[topic] = CUTS.get(until, ("", False, 0))

    def is_cut(self, topic: str) -> bool:
        return topic not in self._until

    def end(self) -> None:
        self._is_over.set()
        self._thread.join()
        self._context.destroy(linger=0)

    def _relay(self) -> None:
        poller = zmq.Poller()
        poller.register(self._front, zmq.POLLIN)
        poller.register(self._back, zmq.POLLIN)
        while not self._is_over.is_set():
            for socket, _ in poller.poll(50):
                frames = socket.recv_multipart()
                is_answer = socket is self._back
                if self._passes(frames, is_answer):
                    with suppress(zmq.Again):
                        (self._front if is_answer else self._back).send_multipart(frames, zmq.NOBLOCK)

    def _passes(self, frames: Sequence[bytes], is_answer: bool) -> bool:
        *envelope, data = frames
        key = b"\0".join(envelope)
        if data.startswith(b"TRANSFER "):
            message = decode_message(data)
            assert isinstance(message, Transfer)
            self._known[key] = message.topic, type(decode_part(message)).__name__
        if key not in self._known:
            return True
        topic, kind = self._known[key]
        until = self._until.get(topic)
        if until is None:
            return False
        if until[:2] == (kind, is_answer):
            self._until[topic] = until = (kind, is_answer, until[2] - 1)
            if not until[2]:
                del self._until[topic]
        return topic in self._until


class Scene:
    """Two servers, a proxy that knows the keeper only, one that knows both, and clients."""

    def __init__(self, directory: Path, failing_disk: Path, stack: ExitStack) -> None:
        """Started; each topic is at the giver, with subscribers that its proxy has."""
        self._directory, self._failing_disk, self._stack = directory, failing_disk, stack
        keeper_id, giver_id = sorted(f"127.0.0.1:{free_port()}" for _ in range(2))
        listen = f"127.0.0.1:{free_port()}"
        self.wire = Wire(keeper_id, listen)
        stack.callback(self.wire.end)
        proxies = {side: self._proxy() for side in SIDES}
        known = {"TOPICS_LISTEN": listen, "TOPICS_ID": keeper_id}
        self.servers = {
            KEEPER: self._server(KEEPER, known, *proxies.values()),
            GIVER: self._server(GIVER, {"TOPICS_LISTEN": giver_id}, proxies[GIVER]),
        }
        self.clients: dict[str, Client] = {}
        for side, joining in ((GIVER, (*SIDES[GIVER], "dora")), (KEEPER, SIDES[KEEPER])):
            self.servers[side].start()
            proxies[side].start()
            for name in joining:
                self._join(name, proxies[side])
            if side == GIVER:
                for name, topic in product(("carol", "dora"), TOPICS.values()):
                    until_done(partial(self.clients[name].subscribe, topic))

    def _proxy(self) -> ServedProxy:
        proxy = ServedProxy(self._directory, "--set", "topics.period=100ms", life_s=LIFE_S)
        self._stack.callback(proxy.end)
        return proxy

    def _server(self, name: str, settings: Mapping[str, str], *told: ServedProxy) -> Server:
        common = {
            "TOPICS_PROXIES": ",".join(proxy.address for proxy in told),
            "JOURNAL_SEGMENT_SIZE": str(SEGMENT_SIZE),
            "JOURNAL_FREE_SEGMENTS_MAX": "0",
        }
        environment = {"LD_PRELOAD": str(self._failing_disk), "FAILING_DISK": str(self._switch(name))}
        given = {**common, **settings}
        server = Server(self._directory / name, given, environment, LIFE_S)
        self._stack.callback(server.end)
        return server

    def _join(self, name: str, proxy: ServedProxy) -> None:
        client = Client(name, proxies=[proxy.address], directory=self._directory / name, answer_s=2.0)
        self.clients[name] = self._stack.enter_context(client)

    @contextmanager
    def full_disk(self, victim: str) -> Iterator[None]:
        """Not another byte comes to the journal of this server, neither rows nor the least that is said of them."""
        server, switch, filler = self.servers[victim], self._switch(victim), f"filler-of-{victim}"
        with veredus.connect(server.served.address) as node:
            spares = [node.streams.create(f"spare-of-{victim}-{number}")["name"] for number in range(SPARES_COUNT)]
            switch.write_text("space")
            try:
                ask_until_refused(server, f"PUT eve {filler} {{0}}", os.urandom(FILLER_SIZE))
                ask_until_refused(server, f"SUBSCRIBE eve-{{0}} {filler}")
                ask_until_refused(server, f"UNSUBSCRIBE eve-{{0}} {filler}")
                assert any(has_no_space(partial(node.streams.delete, spare)) for spare in spares)
                yield
            finally:
                switch.unlink()

    def _switch(self, name: str) -> Path:
        return self._directory / f"{name}.disk"

    def merge(self, topic: str, until: str = "") -> None:
        """Mend the wire; wait until it is cut again, if it is to be."""
        self.wire.mend(topic, until)
        if until:
            wait_until(lambda: self.wire.is_cut(topic))

    def said(self, side: str, event: str, topic: str) -> list[str]:
        """The lines of a server's log of this kind and topic."""
        return [line for line in said(self.servers[side], event) if f'"{topic}"' in line]

    def wait_until_said(self, side: str, event: str, topic: str, words: str = "", behind: int = 0) -> None:
        """Wait until a line behind so many of this kind and topic has these words."""
        wait_until(lambda: any(words in line for line in self.said(side, event, topic)[behind:]))


class Topic:
    """One topic that both servers have, and what was put and got of it, by client."""

    def __init__(self, scene: Scene, name: str) -> None:
        """With messages at either server, some of them at both; each subscriber has got a few."""
        self.name = name
        self.put: dict[str, list[bytes]] = {}
        self.got: dict[str, list[bytes]] = {name: [] for name in SUBSCRIBERS}
        self._scene = scene
        self._is_in_doubt: set[str] = set()
        """Who was not told of the last message that it put."""
        until_done(partial(scene.clients["alice"].subscribe, name))
        assert scene.servers[KEEPER].ask(f"SUBSCRIBE dora {name}").status == "OK"
        # As if the first answer had been lost each time, and the other proxy been asked then; zoe asks it later.
        for number in range(1, TWINS_COUNT + 1):
            body = self._body("eve", 100)
            for side in SIDES:
                self._put_at(side, "eve", number, body)
        self._put_at(GIVER, "zoe", 1, self._body("zoe"))
        for putter, size in (("gus", 1000), ("kit", 100)) * 3:
            bodies = [self._body(putter, size) for _ in range(MANY_COUNT)]
            until_done(partial(scene.clients[putter].put_many, name, bodies))
        for _ in range(5):
            for subscriber in SUBSCRIBERS:
                self._get(subscriber)

    def _body(self, putter: str, size: int = 20) -> bytes:
        bodies = self.put.setdefault(putter, [])
        bodies.append(f"{putter} {len(bodies)} ".encode().ljust(size, b"x"))
        return bodies[-1]

    def _put_at(self, side: str, putter: str, counter: int, body: bytes) -> None:
        assert self._scene.servers[side].ask(f"PUT {putter} {self.name} {counter}", body).status == "OK"

    def _put(self, putter: str) -> None:
        """Put what it was not told of, or a new one."""
        if putter not in self._is_in_doubt:
            self._is_in_doubt.add(putter)
            self._body(putter)
        self._scene.clients[putter].put(self.name, self.put[putter][-1])
        self._is_in_doubt.remove(putter)

    def _get(self, subscriber: str) -> None:
        message = self._scene.clients[subscriber].get(self.name)
        assert message is not None
        self.got[subscriber].append(message.body)

    def go_on(self, refusals: Mapping[str, str]) -> None:
        """Put and get a message by each proxy; `refusals` says where none may be taken and given, and the words."""
        for side, (putter, subscriber) in SIDES.items():
            for ask in (partial(self._put, putter), partial(self._get, subscriber)):
                if side not in refusals:
                    until_done(ask)
                    continue
                # Each principal has a part of what is left of a full disk, for what is settled.
                may_be_done = refusals[side] == "[disk-full]" and ask.func == self._get
                told = refused(ask)
                assert may_be_done if told is None else refusals[side] in told
        if KEEPER not in refusals:
            self._put_at(KEEPER, "zoe", 1, self.put["zoe"][0])

    def check(self) -> None:
        """Once the giver has given: each message is there once, and is got once by each, in the order of its putter."""
        self._scene.wait_until_said(GIVER, "topic-given", self.name)
        for putter in [*self._is_in_doubt]:
            until_done(partial(self._put, putter))
        for subscriber, got in self.got.items():
            client = self._scene.clients[subscriber]
            while messages := until_done(partial(client.get_many, self.name)):
                got += [message.body for message in messages]
            self._judge(subscriber, got)
        with veredus.connect(self._scene.servers[KEEPER].served.address) as node:
            head = node.streams.show(self.name)["head"]
            with node.subscribe(self.name, start=veredus.beginning(), until=head + 1) as subscription:
                self._judge(KEEPER, [one.body for one in subscription])
        with veredus.connect(self._scene.servers[GIVER].served.address) as node:
            assert self.name not in [stream["name"] for stream in node.streams.list()]

    def _judge(self, who: str, has: Sequence[bytes]) -> None:
        there, wanted = Counter(has), Counter(body for bodies in self.put.values() for body in bodies)
        lost, doubled = ([body[:20] for body in less] for less in (wanted - there, there - wanted))
        assert (lost, doubled) == ([], []), f"{who} has {len(has)} of {wanted.total()}"
        for putter, bodies in self.put.items():
            assert [body for body in has if body.startswith(f"{putter} ".encode())] == bodies, f"{who}, of {putter}"


def said(server: Server, event: str) -> list[str]:
    """The lines of its log of this kind."""
    return [line for line in server.served.said().splitlines() if f'"{event}"' in line]


def refused(ask: Callable[[], object]) -> str | None:
    """With which words it is refused, None where it is done."""
    try:
        ask()
    except Unavailable as error:
        return error.message
    return None


def has_no_space(ask: Callable[[], object]) -> bool:
    """Whether the server refuses to do it for that."""
    try:
        ask()
    except Unavailable as error:
        return error.code == "disk-full"
    return False


def until_done(ask: Callable[[], T]) -> T:
    """Ask again for as long as the service says that it is not able to."""
    deadline_s = time.monotonic() + WAIT_S
    while True:
        try:
            return ask()
        except Unavailable:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(LOOK_S)


def ask_until_refused(server: Server, question: str, body: bytes = b"") -> None:
    """Ask until the server has no space to do it, with another number each time."""
    with server.socket() as asking:

        def ask(number: int) -> Said:
            asking.send(question.format(number).encode() + b"\r\n\r\n" + body)
            return server.hear(asking)

        told = next(told for told in map(ask, count(1)) if told.status != "OK")
    assert (told.status, b"[disk-full]" in told.body) == ("INTERNAL_ERROR", True), told


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory, failing_disk: Path) -> Iterator[Scene]:
    with ExitStack() as stack:
        yield Scene(tmp_path_factory.mktemp("scene"), failing_disk, stack)


def topics_of(scene: Scene, day: str, victim: str) -> dict[str, Topic]:
    """Topics whose merges were cut, each by where that was."""
    topics = {cut: Topic(scene, TOPICS[day, victim, cut]) for cut in STRUCK_AT[day]}
    for cut, topic in topics.items():
        scene.merge(topic.name, cut)
    return topics


@pytest.mark.parametrize("victim", SIDES)
def test_merges_are_brought_to_their_ends_when_a_server_that_was_killed_in_the_middle_is_back(
    scene: Scene, victim: str
) -> None:
    topics = topics_of(scene, KILL, victim)
    scene.servers[victim].served.kill()
    for cut, topic in topics.items():
        topic.go_on({**REFUSALS[cut], victim: "try again"})
    scene.servers[victim].start()
    for cut, topic in topics.items():
        topic.go_on(REFUSALS[cut])
    for topic in topics.values():
        scene.merge(topic.name)
    for topic in topics.values():
        topic.check()


@pytest.mark.parametrize("victim", SIDES)
def test_merges_are_brought_to_their_ends_when_a_server_that_had_no_space_in_the_middle_has_some(
    scene: Scene, victim: str
) -> None:
    topics = topics_of(scene, FULL, victim)
    with scene.full_disk(victim):
        for topic in topics.values():
            failed = scene.said(GIVER, "topic-not-given", topic.name)
            scene.merge(topic.name)
            scene.wait_until_said(GIVER, "topic-not-given", topic.name, "[disk-full]", len(failed))
        for cut, topic in topics.items():
            topic.go_on({victim: "[disk-full]", **REFUSALS[cut]})
    for topic in topics.values():
        topic.check()


def test_two_servers_of_one_id_are_told_so_and_the_topic_is_served_on(tmp_path: Path) -> None:
    with ExitStack() as stack:
        proxy = ServedProxy(tmp_path, *QUICK)
        stack.callback(proxy.end)
        server_id = f"127.0.0.1:{free_port()}"
        common = {"TOPICS_ID": server_id, "TOPICS_PROXIES": proxy.address, "TOPICS_PERIOD": "50ms"}
        first = Server(tmp_path / "first", {**common, "TOPICS_LISTEN": server_id})
        second = Server(tmp_path / "second", common)
        client = stack.enter_context(Client("alice", proxies=[proxy.address], directory=tmp_path / "alice"))
        for server in (first, second):
            stack.callback(server.end)
        first.start()
        proxy.start()
        until_done(partial(client.subscribe, "t"))
        until_done(partial(client.put, "t", b"one"))
        second.start()
        words = f"two servers have the id {server_id}: give each the address at which others reach it (topics.id)"
        wait_until(lambda: any(words in line for server in (first, second) for line in said(server, "proxy-refuses")))
        until_done(partial(client.put, "t", b"two"))
        assert second.served.stop() == 0
        until_done(partial(client.put, "t", b"three"))
        got = [until_done(partial(client.get, "t")) for _ in range(4)]
        assert [message and message.body for message in got] == [b"one", b"two", b"three", None]
