"""A proxy over real ZeroMQ, between clients and servers that were written from the page and know nothing of ours."""

import asyncio
import select
import socket as socket_module
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from queue import SimpleQueue

import pytest
import uvloop
import zmq

from tests.processes import free_port
from veredus.kernel.engine import Now
from veredus.kernel.events import DeadlineReached
from veredus.node.handed_on import AT_ONCE_MAX
from veredus.protocols.topics.messages import message_size_max
from veredus.protocols.topics.proxy import Effect, Event, ProxySettings
from veredus.runtime.topics_limits import TopicsLimits
from veredus.runtime.topics_proxy import TopicsProxy
from veredus.runtime.topics_sockets import ENVELOPE_SIZE_MAX, PARTS_MAX

ANSWER_MS = 10_000


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
        with self.socket(zmq.REQ) as socket:
            socket.send(data)
            assert socket.poll(ANSWER_MS), f"no answer to {data!r}"
            return socket.recv()

    def claim(self, server: PageServer) -> None:
        self.say_periodic(server.address, *server.queues)

    def meet(self, server: PageServer) -> None:
        """Have the proxy connect to a server that it does not know yet, and wait until that may be asked."""
        self.claim(server)
        while not any(link.is_open for link in list(self.proxy._sockets._back_links)):
            time.sleep(0.005)

    def say_periodic(self, server: str, *topics: str) -> None:
        """Say for a server which topics are its own."""
        answer = self.ask(f"PERIODIC {server}\r\n\r\n".encode() + " ".join(topics).encode())
        assert answer == b"STATUS p1 OK\r\n\r\n"

    @contextmanager
    def socket(self, kind: int) -> Iterator[zmq.Socket[bytes]]:
        """A socket that is connected to the proxy."""
        with self.context.socket(kind) as socket:
            socket.linger = 0
            socket.connect(f"tcp://{self.proxy.address}")
            yield socket

    def wait_for_peers(self, count: int) -> None:
        """Until so many peers wait for an answer."""
        deadline = time.monotonic() + ANSWER_MS / 1000
        while self.proxy.engine.peer_count != count:
            assert time.monotonic() < deadline, f"{self.proxy.engine.peer_count} wait, and not {count}"
            time.sleep(0.005)


@contextmanager
def scene(
    server_count: int = 1,
    answer_ms: int = 500,
    body_size_max: int = 1 << 20,
    retries_max: int = 3,
    new_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop,
    requests_max: int = 10_000,
) -> Iterator[tuple[Scene, list[PageServer]]]:
    """A proxy, and servers that it does not know yet."""
    loop = new_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    settings = ProxySettings("p1", answer_ms * 1_000_000, retries_max, learning_ns=0, body_size_max=body_size_max)
    servers = [PageServer(context) for _ in range(server_count)]

    async def open_proxy() -> TopicsProxy:
        return TopicsProxy(settings, "127.0.0.1:0", TopicsLimits(requests_max=requests_max))

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


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_an_answer_that_came_while_the_proxy_was_busy_is_read_before_its_server_is_called_silent(
    new_loop: Callable[[], asyncio.AbstractEventLoop], monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        scene(answer_ms=2_000, retries_max=0, new_loop=new_loop) as (around, (server,)),
        around.socket(zmq.REQ) as ask,
        around.socket(zmq.REQ) as other,
    ):
        around.meet(server)
        assert around.ask(b"SUBSCRIBE alice prices\r\n\r\n") == f"STATUS {server.address} OK\r\n\r\n".encode()
        server.is_deaf = True
        ask.send(b"PUT bob prices 1\r\n\r\n12.5")
        around.wait_for_peers(1)
        due_ns = around.proxy.engine.deadline()
        assert due_ns is not None
        (link,) = around.proxy._sockets._back_links
        connection = link._transport.get_extra_info("socket")  # type: ignore[union-attr]

        handle = around.proxy.engine.handle

        def be_busy(event: Event, now: Now) -> Sequence[Effect]:
            monkeypatch.undo()
            server.is_deaf = False
            select.select([connection.fileno()], [], [], ANSWER_MS / 1000)
            while time.monotonic_ns() <= due_ns:
                time.sleep(0.01)
            return handle(event, now)

        monkeypatch.setattr(around.proxy.engine, "handle", be_busy)
        other.send(b"SUBSCRIBE carol prices\r\n\r\n")
        assert ask.poll(2 * ANSWER_MS)
        assert ask.recv() == f"STATUS {server.address} OK\r\n\r\n".encode()


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


@pytest.mark.parametrize("is_there", [True, False])
def test_fifty_clients_of_a_server_that_does_not_answer_hold_up_none_of_another(is_there: bool) -> None:
    with scene(2, answer_ms=10_000) as (around, (deaf, well)):
        deaf.is_deaf, well.queues = True, {"b": {}}
        around.say_periodic(deaf.address if is_there else f"127.0.0.1:{free_port()}", "a")
        around.claim(well)
        with ExitStack() as sockets:
            waiting = [sockets.enter_context(around.socket(zmq.REQ)) for _ in range(50)]
            for number, socket in enumerate(waiting):
                socket.send(f"SUBSCRIBE client-{number} a\r\n\r\n".encode())
            around.wait_for_peers(50)
            for number in range(50):
                assert b" OK\r\n" in around.ask(f"SUBSCRIBE client-{number} b\r\n\r\n".encode())
            assert [socket for socket in waiting if socket.poll(0)] == [], "they still wait, and nobody waited for them"


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
        for server in (b"not-an-address", b"127.0.0.1:0"):
            refused = around.ask(b"PERIODIC %b\r\n\r\nt" % server)
            assert refused.startswith(b"STATUS p1 REFUSED\r\n\r\nthe id of a server is the address")
        assert b" OK\r\n" in around.ask(b"SUBSCRIBE alice s\r\n\r\n")


@pytest.mark.parametrize(
    "envelope",
    [[], [b""], [b"hop", b""], [b"hop", b"", b"hop 2", b"\x00" * 255, b""]],
    ids=["none", "a REQ's", "one hop's", "of several hops"],
)
def test_an_envelope_comes_back_as_it_was_with_the_answer(envelope: list[bytes]) -> None:
    with scene() as (around, (server,)):
        around.claim(server)
        with around.socket(zmq.DEALER) as socket:
            socket.send_multipart([*envelope, b"SUBSCRIBE alice t\r\n\r\n"])
            socket.send_multipart([*envelope, b"garbage"])
            assert socket.poll(ANSWER_MS)
            told = [socket.recv_multipart(), socket.recv_multipart()]
        assert [parts[:-1] for parts in told] == [envelope, envelope]
        assert sorted(parts[-1].split(b" ", 2)[2][:6] for parts in told) == [b"BAD_ME", b"OK\r\n\r\n"]


@pytest.mark.parametrize("envelope", [[bytes(ENVELOPE_SIZE_MAX), b""], [b"a" * 13] * 300 + [b""], [bytes(10_000)]])
def test_an_envelope_that_is_too_large_is_refused_and_comes_back_as_it_was(envelope: list[bytes]) -> None:
    with scene() as (around, (server,)):
        around.claim(server)
        with around.socket(zmq.DEALER) as socket:
            socket.send_multipart([*envelope, b"SUBSCRIBE alice t\r\n\r\n"])
            assert socket.poll(ANSWER_MS)
            *back, said = socket.recv_multipart()
            assert back == envelope
            size = sum(map(len, envelope))
            text = f"the frames before the message have {size} bytes and 1 more each, and at most 4096 are accepted"
            assert said == f"STATUS p1 BAD_MESSAGE\r\n\r\n{text}".encode()
            socket.send_multipart([b""] * 1000 + [b"SUBSCRIBE bob t\r\n\r\n"])
            assert socket.poll(ANSWER_MS)
            assert len(socket.recv_multipart()) == 1001
        assert list(server.queues["t"]) == ["bob"]


def test_an_envelope_of_as_many_frames_as_are_read_is_answered_and_one_more_ends_the_connection() -> None:
    with scene() as (around, (server,)):
        around.claim(server)
        with around.socket(zmq.DEALER) as socket, socket.get_monitor_socket(zmq.EVENT_DISCONNECTED) as cut_off:
            socket.send_multipart([b"a"] * (PARTS_MAX - 2) + [b"", b"SUBSCRIBE bob t\r\n\r\n"])
            assert socket.poll(ANSWER_MS)
            assert len(socket.recv_multipart()) == PARTS_MAX
            socket.send_multipart([b"a"] * (PARTS_MAX - 1) + [b"", b"SUBSCRIBE eve t\r\n\r\n"])
            assert cut_off.poll(ANSWER_MS)
            socket.disable_monitor()
        assert list(server.queues["t"]) == ["bob"]


def test_what_is_too_large_is_refused_or_cut_off_and_harms_nobody_on_the_way_to_its_server() -> None:
    with scene(body_size_max=4096) as (around, (server,)):
        around.claim(server)
        assert b" OK\r\n" in around.ask(b"PUT bob t 1\r\n\r\n" + bytes(4096))
        said = around.ask(b"PUT bob t 2\r\n\r\n" + bytes(1 << 20))
        text = b"this proxy accepts bodies of at most 4096 bytes, this one has 1048576"
        assert said == b"STATUS p1 BAD_MESSAGE\r\n\r\n" + text
        with around.socket(zmq.DEALER) as socket, socket.get_monitor_socket(zmq.EVENT_DISCONNECTED) as cut_off:
            socket.send(b"PUT bob t 3\r\n\r\n" + bytes(message_size_max(4096)))
            assert cut_off.poll(ANSWER_MS)
            socket.disable_monitor()
            assert b" OK\r\n" in around.ask(b"PUT bob t 4\r\n\r\n")
        heard = [server.heard.get(timeout=1)[:12] for _ in range(2)]
        assert (heard, server.heard.empty()) == ([b"PUT bob t 1\r", b"PUT bob t 4\r"], True)


def test_a_thousand_questions_of_one_that_reads_no_answer_cost_the_others_nothing() -> None:
    with scene() as (around, (server,)):
        around.claim(server)
        with around.socket(zmq.DEALER) as socket:
            for number in range(1000):
                socket.send_multipart([b"", f"SUBSCRIBE client-{number} t\r\n\r\n".encode()])
            assert b" OK\r\n" in around.ask(b"SUBSCRIBE alice t\r\n\r\n")
            for _ in range(1001):
                server.heard.get(timeout=ANSWER_MS / 1000)
            around.wait_for_peers(0)


def test_clients_that_go_away_while_they_are_waited_for_are_forgotten_with_their_answers() -> None:
    with scene() as (around, (server,)):
        server.is_deaf = True
        around.claim(server)
        with ExitStack() as sockets:
            for number in range(50):
                socket = sockets.enter_context(around.socket(zmq.REQ))
                socket.send(f"SUBSCRIBE client-{number} t\r\n\r\n".encode())
            around.wait_for_peers(50)
        server.is_deaf = False
        around.wait_for_peers(0)
        assert b" OK\r\n" in around.ask(b"SUBSCRIBE alice t\r\n\r\n")


def test_a_server_that_comes_back_is_not_told_what_nobody_waits_for_any_more() -> None:
    with scene(0, answer_ms=20) as (around, _), around.context.socket(zmq.ROUTER) as server:
        server.linger = 0
        address = f"127.0.0.1:{free_port()}"
        around.say_periodic(address, "t")
        assert b" SERVER_UNAVAILABLE\r\n" in around.ask(b"PUT bob t 1\r\n\r\nold")
        server.bind(f"tcp://{address}")
        deadline = time.monotonic() + ANSWER_MS / 1000
        while not server.poll(0):
            assert b" SERVER_UNAVAILABLE\r\n" in around.ask(b"PUT bob t 2\r\n\r\nnew")
            assert time.monotonic() < deadline
        assert server.recv_multipart()[-1] == b"PUT bob t 2\r\n\r\nnew"


def test_an_answer_that_comes_too_late_is_nobodys() -> None:
    with scene(0, answer_ms=20) as (around, _), around.context.socket(zmq.ROUTER) as server:
        server.linger = 0
        address = f"127.0.0.1:{server.bind_to_random_port('tcp://127.0.0.1')}"
        around.say_periodic(address, "t")
        with around.socket(zmq.DEALER) as client:
            client.send(b"GET alice t -1\r\n\r\n")
            assert client.poll(ANSWER_MS)
            assert client.recv().startswith(b"STATUS p1 SERVER_UNAVAILABLE")
            around.say_periodic(address, "t")
            for number in range(4):
                assert server.poll(ANSWER_MS), "it was asked again"
                *envelope, _ = server.recv_multipart()
                server.send_multipart([*envelope, f"STATUS s OK late-{number}\r\n\r\n".encode()])
            client.send(b"GET alice t -1\r\n\r\n")
            assert server.poll(ANSWER_MS)
            *envelope, _ = server.recv_multipart()
            server.send_multipart([b"nobody", b"", b"STATUS s OK astray\r\n\r\n"])
            server.send_multipart([envelope[0], b"not a token", b"", b"STATUS s OK astray\r\n\r\n"])
            server.send_multipart([*envelope, b"STATUS s OK in-time\r\n\r\n"])
            assert client.poll(ANSWER_MS)
            assert client.recv() == b"STATUS s OK in-time\r\n\r\n"


@pytest.mark.parametrize(("envelope", "is_copy"), [((b"7", b""), True), ((), False), ((b"for bob", b""), False)])
def test_a_get_is_a_copy_where_its_envelope_is_the_same(envelope: tuple[bytes, ...], is_copy: bool) -> None:
    with scene(0, answer_ms=5_000) as (around, _), around.context.socket(zmq.ROUTER) as server:
        server.linger = 0
        address = f"127.0.0.1:{server.bind_to_random_port('tcp://127.0.0.1')}"
        around.say_periodic(address, "t")
        with around.socket(zmq.DEALER) as client:
            for _ in range(2):
                client.send_multipart([*envelope, b"GET alice t -1\r\n\r\n"])
            around.wait_for_peers(2)
            for count in (2,) if is_copy else (1, 1):
                assert server.poll(ANSWER_MS)
                *back, _ = server.recv_multipart()
                server.send_multipart([*back, b"STATUS s NO_MESSAGES\r\n\r\n"])
                for _ in range(count):
                    assert client.poll(ANSWER_MS)
                    assert client.recv_multipart() == [*envelope, b"STATUS s NO_MESSAGES\r\n\r\n"]


def test_three_hundred_servers_are_each_asked_what_is_theirs() -> None:
    with scene(0) as (around, _), around.context.socket(zmq.ROUTER) as server, ExitStack() as sockets:
        server.linger = 0
        dealers = [sockets.enter_context(around.socket(zmq.DEALER)) for _ in range(300)]
        for number, dealer in enumerate(dealers):
            port = server.bind_to_random_port("tcp://127.0.0.1")
            dealer.send_multipart([b"", f"PERIODIC 127.0.0.1:{port}\r\n\r\ntopic-{number}".encode()])
        for dealer in dealers:
            assert dealer.poll(ANSWER_MS)
            assert dealer.recv_multipart() == [b"", b"STATUS p1 OK\r\n\r\n"]
        for number, dealer in enumerate(dealers):
            dealer.send_multipart([b"", f"PUT bob topic-{number} 1\r\n\r\n".encode()])
        asked: dict[bytes, bytes] = {}
        while len(asked) < 300:
            assert server.poll(ANSWER_MS), f"{len(asked)} were asked, each over a connection of its own"
            identity, token, empty, data = server.recv_multipart()
            asked[identity] = data
            server.send_multipart([identity, token, empty, b"STATUS s OK " + data.split(b" ")[2] + b"\r\n\r\n"])
        for number, dealer in enumerate(dealers):
            assert dealer.poll(ANSWER_MS)
            assert dealer.recv_multipart() == [b"", f"STATUS s OK topic-{number}\r\n\r\n".encode()]


def test_a_proxy_may_listen_and_reach_servers_over_ipv6() -> None:
    if not socket_module.has_ipv6:
        pytest.skip("there is no IPv6 here")

    async def bound() -> str:
        proxy = TopicsProxy(ProxySettings(), "[::1]:0")
        proxy.close()
        return proxy.address

    assert asyncio.run(bound()).startswith("[::1]:")


def test_a_proxy_at_whose_own_address_a_server_is_said_to_be_finds_out_and_serves_on() -> None:
    with scene() as (around, (server,)):
        # The proxy knows itself by another name.
        around.say_periodic(around.proxy.address, "t")
        said = around.ask(b"PUT bob t 1\r\n\r\nx")
        assert said.startswith(b"STATUS p1 SERVER_UNAVAILABLE\r\n\r\n")
        assert b"is a proxy and not a server" in said
        around.claim(server)
        assert around.ask(b"PUT bob t 1\r\n\r\nx") == f"STATUS {server.address} OK\r\n\r\n".encode()


@pytest.mark.parametrize("requests_max", [10_000, 30])
def test_a_client_with_very_many_questions_at_once_is_slower_and_is_refused_nothing(requests_max: int) -> None:
    count = 1_000
    with scene(answer_ms=60_000, requests_max=requests_max) as (around, (server,)), around.socket(zmq.DEALER) as greedy:
        around.meet(server)
        assert around.ask(b"SUBSCRIBE alice prices\r\n\r\n") == f"STATUS {server.address} OK\r\n\r\n".encode()
        server.is_deaf = True
        for number in range(count):
            greedy.send_multipart([number.to_bytes(8), b"", f"PUT bob prices {number + 1}\r\n\r\nx".encode()])
        deadline = time.monotonic() + ANSWER_MS / 1000
        while not any(link.is_reading_on for link in list(around.proxy._sockets._fronts)):
            assert time.monotonic() < deadline, "it is read from, whatever it has on its way"
            time.sleep(0.005)
        assert around.proxy.engine.peer_count <= min(AT_ONCE_MAX, requests_max) // 2
        server.is_deaf = False
        for number in range(count):
            assert greedy.poll(ANSWER_MS)
            envelope, _, answer = greedy.recv_multipart()
            assert int.from_bytes(envelope) == number
            assert answer == f"STATUS {server.address} OK\r\n\r\n".encode()


@pytest.mark.parametrize("is_unread", [True, False])
def test_no_server_is_judged_while_answers_wait_that_were_read_and_not_taken(
    is_unread: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer_ns = 300_000_000
    judged: list[tuple[int, int]] = []
    with scene(answer_ms=300, retries_max=0) as (around, (server,)):
        around.meet(server)
        server.is_deaf = True
        handle = around.proxy.engine.handle

        def note(event: Event, now: Now) -> Sequence[Effect]:
            if isinstance(event, DeadlineReached) and event.heard_ns is not None:
                judged.append((event.heard_ns, now.monotonic_ns))
            return handle(event, now)

        monkeypatch.setattr(around.proxy.engine, "handle", note)
        (link,) = around.proxy._sockets._back_links
        link.is_reading_on = is_unread
        assert b"SERVER_UNAVAILABLE" in around.ask(b"PUT bob prices 1\r\n\r\nx")
        link.is_reading_on = False
    late = [now_ns - heard_ns >= answer_ns for heard_ns, now_ns in judged]
    assert all(late) == is_unread, "it waits as long as an answer may take, and no longer"
