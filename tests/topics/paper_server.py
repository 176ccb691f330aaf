"""A server written from the page, which knows no more of ours than how many messages are put into one body; and a scene
with real proxies in front of it.

It keeps what section 5.1 keeps: the last counter of each publisher, the queue of each subscriber, the messages by id.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import zmq

from veredus.protocols.topics.many import pack_numbered, unpack
from veredus.protocols.topics.proxy import ProxySettings
from veredus.runtime.logs import set_up_logs
from veredus.runtime.topics_proxy import TopicsProxy

BODY_SIZE_MAX = 8 << 20
WAIT_MS = 5000
END = b"\r\n\r\n"


@dataclass
class PaperTopic:
    """One topic as the page has it."""

    last_counters: dict[str, int] = field(default_factory=dict)
    queues: dict[str, list[str]] = field(default_factory=dict)
    bodies: dict[str, bytes] = field(default_factory=dict)
    """Of all that was ever put, by id and in order."""

    def next_id(self, client: str) -> str:
        """Of the next message that a client puts."""
        return f"{client}-{1 + sum(known.startswith(f'{client}-') for known in self.bodies)}"


class PaperServer:
    """REP, one message after the other. `answer` may be replaced, to be worse than the page."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]]) -> None:
        self.topics: dict[str, PaperTopic] = {}
        self.heard: list[bytes] = []
        self.answer: Callable[[bytes], bytes] = self.answer_well
        self._socket = context.socket(zmq.REP)
        self.address = f"127.0.0.1:{self._socket.bind_to_random_port('tcp://127.0.0.1')}"
        self._is_ended = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def end(self) -> None:
        self._is_ended.set()
        self._thread.join()
        self._socket.close(linger=0)

    def topic(self, name: str) -> PaperTopic:
        return self.topics.setdefault(name, PaperTopic())

    def bodies(self, name: str) -> list[bytes]:
        """What was put on a topic, in order."""
        return list(self.topic(name).bodies.values())

    def status(self, words: str, body: bytes = b"") -> bytes:
        return f"STATUS {self.address} {words}".encode() + END + body

    def answer_well(self, data: bytes) -> bytes:
        header, _, body = data.partition(END)
        name, client, topic_name, *fields = header.decode().split(" ")
        topic = self.topic(topic_name)
        if name == "PUT":
            if int(fields[0]) > topic.last_counters.get(client, 0):
                topic.last_counters[client] = int(fields[0])
                message_id = topic.next_id(client)
                topic.bodies[message_id] = body
                for queue in topic.queues.values():
                    queue.append(message_id)
        elif name == "PUT_MANY":
            first, bodies = int(fields[0]), unpack(body)
            if first > topic.last_counters.get(client, 0):
                topic.last_counters[client] = first + len(bodies) - 1
                for content in bodies:
                    message_id = topic.next_id(client)
                    topic.bodies[message_id] = content
                    for queue in topic.queues.values():
                        queue.append(message_id)
        elif name == "SUBSCRIBE":
            if client in topic.queues:
                return self.status("ALREADY_SUBSCRIBED")
            topic.queues[client] = []
        elif client not in topic.queues:
            return self.status("NOT_SUBSCRIBED")
        elif name == "UNSUBSCRIBE":
            del topic.queues[client]
        else:
            return self._next(topic, topic.queues[client], fields[0], int(fields[1]) if name == "GET_MANY" else 0)
        return self.status("OK")

    def answer_strictly(self, data: bytes) -> bytes:
        """As a server that refuses another body under the last counter, as ours do."""
        header, _, body = data.partition(END)
        name, client, topic_name, *fields = header.decode().split(" ")
        topic = self.topic(topic_name)
        if name == "PUT" and topic.last_counters.get(client) == int(fields[0]) and body != self.bodies(topic_name)[-1]:
            return self.status(f"REFUSED {fields[0]}", b"used for another body")
        return self.answer_well(data)

    def _next(self, topic: PaperTopic, queue: list[str], last_id: str, count_max: int) -> bytes:
        first, _, last = last_id.partition("..")
        if queue and queue[0] == first:
            last = f"{first.partition('-')[0]}-{last}" if last else first
            del queue[: queue.index(last) + 1]
        if not queue:
            return self.status("NO_MESSAGES")
        if not count_max:
            return self.status(f"OK {queue[0]}", topic.bodies[queue[0]])
        given = queue[:count_max]
        numbers = [int(message_id.partition("-")[2]) for message_id in given]
        body = pack_numbered([topic.bodies[message_id] for message_id in given], numbers)
        return self.status(f"OK {given[0]}..{numbers[-1]}", body)

    def _serve(self) -> None:
        while not self._is_ended.is_set():
            if self._socket.poll(10):
                data = self._socket.recv()
                self.heard.append(data)
                self._socket.send(self.answer(data))


class Scene:
    """Real proxies on a loop of their own thread, and one server behind them."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], server: PaperServer, answer_ms: int) -> None:
        self.server = server
        self.proxies: list[TopicsProxy] = []
        self._context = context
        self._settings = ProxySettings("p", answer_ms * 1_000_000, learning_ns=0, body_size_max=BODY_SIZE_MAX)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()

    @property
    def addresses(self) -> list[str]:
        """Of the proxies, in their order."""
        return [proxy.address for proxy in self.proxies]

    def start_proxy(self, address: str = "127.0.0.1:0", *, is_known: bool = True) -> str:
        """A proxy that knows the server, or none; its address."""

        async def start() -> TopicsProxy:
            return TopicsProxy(self._settings, address)

        proxy = asyncio.run_coroutine_threadsafe(start(), self._loop).result(10)
        self.proxies.append(proxy)
        if is_known:
            with self._context.socket(zmq.REQ) as socket:
                socket.linger = 0
                socket.connect(f"tcp://{proxy.address}")
                socket.send(f"PERIODIC {self.server.address}".encode() + END + " ".join(self.server.topics).encode())
                assert socket.poll(WAIT_MS)
                assert b" OK" in socket.recv()
        return proxy.address

    def stop_proxy(self, address: str) -> None:
        (proxy,) = (proxy for proxy in self.proxies if proxy.address == address)
        self.proxies.remove(proxy)
        done = threading.Event()
        self._loop.call_soon_threadsafe(lambda: (proxy.close(), done.set()))
        assert done.wait(10)

    def end(self) -> None:
        for address in self.addresses:
            self.stop_proxy(address)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self.server.end()


@contextmanager
def scene(proxy_count: int = 1, answer_ms: int = 2000) -> Iterator[Scene]:
    """A server from the page, and proxies that know it. What these log is not printed by structlog's own default, from
    their thread into what a test captures.
    """
    set_up_logs("error")
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    around = Scene(context, PaperServer(context), answer_ms)
    try:
        for _ in range(proxy_count):
            around.start_proxy()
        yield around
    finally:
        around.end()
        context.destroy(linger=0)
