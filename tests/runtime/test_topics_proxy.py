"""A proxy over real ZeroMQ, between clients and servers that were written from the page and know nothing of ours."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from queue import SimpleQueue

import zmq

from cursus.protocols.topics.proxy import ProxySettings
from cursus.runtime.topics_proxy import TopicsProxy

ANSWER_MS = 2000
BODY_SIZE_MAX = 1 << 20


class PageServer:
    """A server as the page has it: REP, one message after the other, a queue for each subscriber of each topic."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]]) -> None:
        self.socket = context.socket(zmq.REP)
        self.address = f"127.0.0.1:{self.socket.bind_to_random_port('tcp://127.0.0.1')}"
        self.queues: dict[str, dict[str, list[tuple[str, bytes]]]] = {}
        self.heard: SimpleQueue[bytes] = SimpleQueue()
        self.is_deaf = False
        self._is_ended = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def end(self) -> None:
        self._is_ended.set()
        self._thread.join()
        self.socket.close(linger=0)

    def _serve(self) -> None:
        while not self._is_ended.is_set():
            if self.is_deaf:
                self._is_ended.wait(0.01)
            elif self.socket.poll(10) and not self.is_deaf:
                data = self.socket.recv()
                self.heard.put(data)
                self.socket.send(self._answer(data))

    def _answer(self, data: bytes) -> bytes:
        header, _, body = data.partition(b"\r\n\r\n")
        name, client, *fields = header.decode().split(" ")
        ok = f"STATUS {self.address} OK\r\n\r\n".encode()
        if name == "MERGE":
            self.queues.pop(fields[0], None)
            return ok
        topic = self.queues.setdefault(fields[0], {})
        if name == "SUBSCRIBE":
            topic.setdefault(client, [])
        elif name == "PUT":
            for queue in topic.values():
                queue.append((f"{client}-{fields[1]}", body))
        elif name == "GET":
            queue = topic[client]
            if queue and queue[0][0] == fields[1]:
                del queue[0]
            if not queue:
                return f"STATUS {self.address} NO_MESSAGES\r\n\r\n".encode()
            return f"STATUS {self.address} OK {queue[0][0]}\r\n\r\n".encode() + queue[0][1]
        return ok


class Scene:
    """A proxy on a loop of its own thread, and sockets around it."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], proxy: TopicsProxy) -> None:
        self.context, self.proxy = context, proxy

    def ask(self, data: bytes) -> bytes:
        """Ask on a REQ socket of its own; its answer, or nothing in time."""
        with self.context.socket(zmq.REQ) as socket:
            socket.linger = 0
            socket.connect(f"tcp://{self.proxy.address}")
            socket.send(data)
            assert socket.poll(ANSWER_MS), f"no answer to {data!r}"
            return socket.recv()

    def claim(self, server: PageServer) -> None:
        topics = " ".join(server.queues).encode()
        answer = self.ask(f"PERIODIC {server.address}\r\n\r\n".encode() + topics)
        assert answer == b"STATUS p1 OK\r\n\r\n"


@contextmanager
def scene(server_count: int = 1, answer_ms: int = 500) -> Iterator[tuple[Scene, list[PageServer]]]:
    """A proxy, and servers that it does not know yet."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    settings = ProxySettings("p1", answer_ns=answer_ms * 1_000_000, learning_ns=0)
    servers = [PageServer(context) for _ in range(server_count)]

    async def open_proxy() -> TopicsProxy:
        return TopicsProxy(settings, "127.0.0.1:0", BODY_SIZE_MAX)

    async def close_proxy(proxy: TopicsProxy) -> None:
        proxy.close()

    proxy = asyncio.run_coroutine_threadsafe(open_proxy(), loop).result(10)
    try:
        yield Scene(context, proxy), servers
    finally:
        asyncio.run_coroutine_threadsafe(close_proxy(proxy), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
        for server in servers:
            server.end()
        context.destroy(linger=0)


def test_a_client_and_a_server_written_from_the_page_meet_over_a_proxy() -> None:
    with scene() as (around, (server,)):
        around.claim(server)
        ok = f"STATUS {server.address} OK\r\n\r\n".encode()
        assert around.ask(b"SUBSCRIBE alice prices\r\n\r\n") == ok
        assert around.ask(b"PUT bob prices 1\r\n\r\n\x00EWR\r\n\r\n12.5") == ok
        message = f"STATUS {server.address} OK bob-1\r\n\r\n".encode() + b"\x00EWR\r\n\r\n12.5"
        assert around.ask(b"GET alice prices -1\r\n\r\n") == message
        assert around.ask(b"GET alice prices -1\r\n\r\n") == message, "again, for it was not said that it was got"
        assert b"NO_MESSAGES" in around.ask(b"GET alice prices bob-1\r\n\r\n")
        assert [server.heard.get(timeout=1) for _ in range(2)][1] == b"PUT bob prices 1\r\n\r\n\x00EWR\r\n\r\n12.5", (
            "unaltered"
        )


def test_a_hundred_clients_at_once_are_each_given_their_own_answer() -> None:
    with scene(2) as (around, servers):
        for server in servers:
            around.claim(server)
        sockets = [around.context.socket(zmq.REQ) for _ in range(100)]
        for number, socket in enumerate(sockets):
            socket.linger = 0
            socket.connect(f"tcp://{around.proxy.address}")
            socket.send(f"SUBSCRIBE client-{number} topic-{number}\r\n\r\n".encode())
        for socket in sockets:
            assert socket.poll(ANSWER_MS)
            assert b" OK\r\n" in socket.recv()
            socket.close()
        counts = sorted(len(server.queues) for server in servers)
        assert counts == [50, 50], "each new topic goes to the server with the fewest"
        for number in range(100):
            assert sum(f"client-{number}" in s.queues.get(f"topic-{number}", {}) for s in servers) == 1


def test_a_deaf_server_holds_up_nobody_but_those_who_ask_it_and_they_hear_which_it_is() -> None:
    with scene(2, answer_ms=50) as (around, servers):
        deaf, well = servers
        deaf.queues, well.queues = {"a": {}}, {"b": {}}
        for server in servers:
            around.claim(server)
        deaf.is_deaf = True
        waiting = around.context.socket(zmq.REQ)
        waiting.linger = 0
        waiting.connect(f"tcp://{around.proxy.address}")
        waiting.send(b"SUBSCRIBE alice a\r\n\r\n")
        assert b" OK\r\n" in around.ask(b"SUBSCRIBE alice b\r\n\r\n")
        assert waiting.poll(ANSWER_MS)
        header, _, text = waiting.recv().partition(b"\r\n\r\n")
        waiting.close()
        assert header == b"STATUS p1 SERVER_UNAVAILABLE"
        assert text.startswith(f"{deaf.address}, which has the topic a, has not answered for".encode())
        deaf.is_deaf = False
        around.claim(deaf)
        assert b" OK\r\n" in around.ask(b"SUBSCRIBE alice a\r\n\r\n")


def test_a_conflict_is_found_and_the_higher_server_told_to_merge() -> None:
    with scene(2) as (around, servers):
        for server in servers:
            server.queues = {"t": {}}
        keeper, giver = sorted(servers, key=lambda server: server.address)
        around.claim(keeper)
        around.claim(giver)
        answered = around.ask(b"SUBSCRIBE alice t\r\n\r\n")
        assert keeper.address.encode() in answered
        around.claim(giver)
        assert giver.heard.get(timeout=ANSWER_MS / 1000) == f"MERGE p1 t {keeper.address}\r\n\r\n".encode()


def test_garbage_is_answered_with_what_is_wrong_and_the_proxy_goes_on() -> None:
    with scene() as (around, (server,)):
        around.claim(server)
        assert around.ask(b"\xff" * 5000).startswith(b"STATUS p1 BAD_MESSAGE\r\n\r\nan empty line ends a header")
        assert around.ask(b"").startswith(b"STATUS p1 BAD_MESSAGE\r\n\r\n")
        assert around.ask(b"PERIODIC not-an-address\r\n\r\nt") == b"STATUS p1 OK\r\n\r\n"
        assert b" OK\r\n" in around.ask(b"SUBSCRIBE alice s\r\n\r\n")
