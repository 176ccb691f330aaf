"""The topic service: servers, which are nodes, and proxies, each a process of its own, and clients from the page alone.

The clients here speak the page's words over a plain ZeroMQ socket and keep nothing: whoever is killed may lose or
double. `veredus.topics` keeps what it must on its own disk; the two are measured side by side.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import zmq

from benchmarks.broker import LOOPBACK, Broker, free_port, serve
from benchmarks.contenders import serving

BODY_SIZE: Final = 100
ANSWER_S: Final = 20.0
"""How long a client from the page waits for its one answer: a run that is slower has failed."""
_LOOK_S: Final = 0.005
_WINDOW_COUNT: Final = 500
T = TypeVar("T")


class Answer(NamedTuple):
    """A STATUS, taken apart."""

    status: str
    message_id: str
    body: bytes


def answer_of(data: bytes) -> Answer:
    """What a STATUS says."""
    header, _, body = data.partition(b"\r\n\r\n")
    _, _, status, message_id, *_ = (*header.decode().split(" "), "")
    return Answer(status, message_id, body)


def question(header: str, body: bytes = b"") -> bytes:
    """A message with this header."""
    return b"%s\r\n\r\n%s" % (header.encode(), body)


@dataclass(slots=True)
class Service:
    """Owns the processes of one service and their ports, which stay when a process is started again."""

    workdir: Path
    servers: Sequence[str] = ()
    proxies: Sequence[str] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    running: dict[str, Broker] = field(default_factory=dict)
    """By the address at which the topic service is spoken."""

    @classmethod
    def of(cls, workdir: Path, servers_count: int, proxies_count: int, settings: Mapping[str, str]) -> Service:
        """One with so many servers, in the order of their ids, and proxies; `settings` of the servers."""
        addresses = sorted({f"{LOOPBACK}:{free_port()}" for _ in range(8 * (servers_count + proxies_count))})
        chosen = addresses[: servers_count + proxies_count]
        return cls(workdir, chosen[:servers_count], chosen[servers_count:], settings)

    def start(self, topics: Sequence[str] = ()) -> None:
        """Start all, and wait until each proxy knows each server, and that each has its share of these topics.

        Two proxies that were asked first would give one topic to two servers, which would then have to be merged. So
        the proxies begin when the topics are there, and are told with the next PERIODIC.
        """
        if not topics:
            self._start_proxies()
        for index, server in enumerate(self.servers):
            self.start_server(server)
            own = topics[index :: len(self.servers)]
            ask_all(server, [question(f"SUBSCRIBE nobody {topic}") for topic in own])
            ask_all(server, [question(f"UNSUBSCRIBE nobody {topic}") for topic in own])
        if topics:
            self._start_proxies()
        for proxy in self.proxies:
            self.wait_until_known(proxy)

    def _start_proxies(self) -> None:
        for proxy in self.proxies:
            self.start_proxy(proxy)

    def start_server(self, address: str, proxies: Sequence[str] | None = None) -> Broker:
        """Start the node that serves topics at `address`, and wait until it is ready."""
        settings = {
            "topics.listen": address,
            "topics.proxies": ",".join(self.proxies if proxies is None else proxies),
            "log.level": "info",
            **self.settings,
        }
        workdir = self._directory(address)
        node = serving.start_node(workdir, workdir / "journal", settings)
        self.running[address] = node
        deadline_s = time.monotonic() + ANSWER_S
        # The native door, for which it was waited, opens a little before the one for topics.
        while self.logged(address, "node-ready") is None:
            if time.monotonic() > deadline_s:
                raise RuntimeError(f"the server {address} does not get ready")
            time.sleep(_LOOK_S)
        return node

    def start_proxy(self, address: str, servers: Sequence[str] | None = None) -> Broker:
        """Start the proxy at `address`, which waits for `servers` to say what they have before it assigns."""
        argv = [str(Path(sys.executable).with_name("veredus")), "proxy", "--listen", address]
        for name, value in (("servers", ",".join(self.servers if servers is None else servers)), ("proxies", address)):
            argv += ["--set", f"topics.{name}={value}"]
        self.running[address] = serve(argv, int(address.rpartition(":")[2]), self._directory(address))
        return self.running[address]

    def wait_until_known(self, proxy: str) -> None:
        """Wait until a proxy assigns topics, which it does once every server has spoken."""
        with PageClient("ready", proxy) as client:
            client.until_done("GET", "ready", "-1", wanted=("NOT_SUBSCRIBED",))

    def logged(self, address: str, event: str) -> float | None:
        """When a process wrote this event to its log first, in seconds since 1970; None where it has not."""
        for line in (self._directory(address) / "broker.log").read_text().splitlines():
            if f'"{event}"' in line and (fields := json.loads(line))["event"] == event:
                return _seconds(fields["timestamp"])
        return None

    def cpu_s(self, addresses: Iterable[str]) -> float:
        """CPU seconds that these processes have used."""
        return sum(self.running[address].cpu_s() for address in addresses)

    def stop(self, addresses: Iterable[str] | None = None) -> None:
        """Stop these processes, or all."""
        for address in list(self.running) if addresses is None else addresses:
            self.running.pop(address).stop()

    def _directory(self, address: str) -> Path:
        directory = self.workdir / address.replace(":", "-")
        directory.mkdir(exist_ok=True)
        return directory


class PageClient:
    """A REQ socket to a proxy or a server, blocking: a client from the page that keeps nothing."""

    def __init__(self, client_id: str, address: str) -> None:
        """Connect to `address`."""
        self._id = client_id
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.REQ)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.RCVTIMEO, round(ANSWER_S * 1000))
        self._socket.connect(f"tcp://{address}")
        self._counters: dict[str, int] = {}
        self._last_ids: dict[str, str] = {}
        self.refused_count = 0
        """How often it was told to try again."""

    def ask(self, name: str, topic: str, last: str = "", body: bytes = b"") -> Answer:
        """Ask once, and wait for the answer."""
        header = f"{name} {self._id} {topic} {last}" if last else f"{name} {self._id} {topic}"
        self._socket.send(question(header, body))
        return answer_of(self._socket.recv())

    def until_done(
        self, name: str, topic: str, last: str = "", body: bytes = b"", wanted: Sequence[str] = ("OK",)
    ) -> Answer:
        """Ask again and again while the service says that it is not able to; raises RuntimeError for anything else."""
        deadline_s = time.monotonic() + ANSWER_S
        while (answer := self.ask(name, topic, last, body)).status not in wanted:
            is_hopeless = answer.status not in ("SERVER_UNAVAILABLE", "PROXY_DOES_NOT_KNOW_ANY_SERVER")
            if is_hopeless or time.monotonic() > deadline_s:
                raise RuntimeError(f"{name} {topic}: {answer}")
            self.refused_count += 1
            time.sleep(_LOOK_S)
        return answer

    def subscribe(self, topic: str) -> None:
        """Be subscribed; whoever was told to try again may be already."""
        self.until_done("SUBSCRIBE", topic, wanted=("OK", "ALREADY_SUBSCRIBED"))

    def put(self, topic: str, body: bytes) -> None:
        """Put once; the counter is from now on this one."""
        self._counters[topic] = counter = self._counters.get(topic, 0) + 1
        self.until_done("PUT", topic, str(counter), body)

    def get(self, topic: str) -> bytes | None:
        """The next message, if there is one."""
        last = self._last_ids.get(topic, "-1")
        answer = self.until_done("GET", topic, last, wanted=("OK", "NO_MESSAGES"))
        if answer.status == "NO_MESSAGES":
            return None
        self._last_ids[topic] = answer.message_id
        return answer.body

    def close(self) -> None:
        """Disconnect."""
        self._context.destroy(linger=0)

    def __enter__(self) -> PageClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncPageClient:
    """The same on a running loop, by the socket's descriptor: `zmq.asyncio` would cost several times as much."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], client_id: str, address: str) -> None:
        """Connect to `address`; the context may have many."""
        self._id = client_id
        self._socket = context.socket(zmq.REQ)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.connect(f"tcp://{address}")
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(int(self._socket.getsockopt(zmq.FD)), self._look)
        self._waiting: asyncio.Future[bytes] | None = None
        self.refused_count = 0
        """How often it was told to try again."""
        self._counters: dict[str, int] = {}
        self._last_ids: dict[str, str] = {}

    async def ask(self, header: str, body: bytes = b"", wanted: Sequence[str] = ("OK",)) -> Answer:
        """Ask until the service is able to answer; raises RuntimeError for anything that is not wanted."""
        data = question(header, body)
        while True:
            waiting = self._waiting = self._loop.create_future()
            self._socket.send(data)
            # The descriptor tells of changes only, and sending may swallow one.
            self._look()
            answer = answer_of(await waiting)
            if answer.status in wanted:
                return answer
            if answer.status != "SERVER_UNAVAILABLE":
                raise RuntimeError(f"{header}: {answer}")
            self.refused_count += 1

    async def subscribe(self, topic: str) -> None:
        """Be subscribed; whoever was told to try again may be already."""
        await self.ask(f"SUBSCRIBE {self._id} {topic}", wanted=("OK", "ALREADY_SUBSCRIBED"))

    async def put(self, topic: str, body: bytes) -> None:
        """Put once."""
        self._counters[topic] = counter = self._counters.get(topic, 0) + 1
        await self.ask(f"PUT {self._id} {topic} {counter}", body)

    async def get(self, topic: str) -> bytes | None:
        """The next message, if there is one."""
        last = self._last_ids.get(topic, "-1")
        answer = await self.ask(f"GET {self._id} {topic} {last}", wanted=("OK", "NO_MESSAGES"))
        if answer.status == "NO_MESSAGES":
            return None
        self._last_ids[topic] = answer.message_id
        return answer.body

    def close(self) -> None:
        """Disconnect."""
        self._loop.remove_reader(int(self._socket.getsockopt(zmq.FD)))
        self._socket.close()

    def _look(self) -> None:
        if self._waiting is None:
            return
        try:
            data = self._socket.recv(zmq.NOBLOCK)
        except zmq.Again:
            return
        waiting, self._waiting = self._waiting, None
        if not waiting.done():
            waiting.set_result(data)


def tried(ask: Callable[[], T]) -> T:
    """Ask by the library until the service is able to answer; retrying a put is idempotent."""
    from veredus.kernel.errors import Unavailable

    while True:
        with suppress(Unavailable):
            return ask()


async def tried_async(ask: Callable[[], Awaitable[T]]) -> tuple[T, int]:
    """The same on a loop; also how often it was told to try again."""
    from veredus.kernel.errors import Unavailable

    refused_count = 0
    while True:
        try:
            return await ask(), refused_count
        except Unavailable:
            refused_count += 1


def ask_all(address: str, questions: Iterable[bytes]) -> None:
    """Ask many questions, some hundred of them under way at once; raises RuntimeError unless each is answered OK."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    try:
        socket = context.socket(zmq.DEALER)
        socket.setsockopt(zmq.RCVTIMEO, round(ANSWER_S * 1000))
        socket.connect(f"tcp://{address}")
        waiting_count = 0
        for asked in questions:
            socket.send_multipart((b"", asked))
            waiting_count += 1
            if waiting_count == _WINDOW_COUNT:
                _expect(answer_of(socket.recv_multipart()[-1]), "OK")
                waiting_count -= 1
        for _ in range(waiting_count):
            _expect(answer_of(socket.recv_multipart()[-1]), "OK")
    finally:
        context.destroy(linger=0)


def _expect(answer: Answer, status: str) -> Answer:
    if answer.status != status:
        raise RuntimeError(f"{status} expected: {answer}")
    return answer


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
