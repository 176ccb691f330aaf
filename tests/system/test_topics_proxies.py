"""Proxies as processes of their own: killed, stopped, doubled and lied to, between clients and servers on real sockets.

The servers are written from the page, and say what is theirs when the test lets them.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import zmq

from tests.processes import Child, ended, free_port
from tests.system.serving_topics import PROXY_COMMAND, QUICK, WAIT_MS, ServedProxy
from veredus.cli.exits import Exit

pytestmark = pytest.mark.slow

SLOW = ("--set", "topics.answer=2s")
"""What is asked before the proxy is connected to a server is asked again then, and nothing else is."""
SERVER = """
import sys, zmq
server = zmq.Context().socket(zmq.REP)
server.bind(f"tcp://{sys.argv[1]}")
while True:
    server.recv()
    server.send(f"STATUS {sys.argv[1]} OK\\r\\n\\r\\n".encode())
"""


class Around:
    """Sockets around proxies."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.proxies: list[ServedProxy] = []
        self._servers: list[zmq.Socket[bytes]] = []

    def start_proxy(self, *arguments: str, descriptors_max: int = 0) -> ServedProxy:
        proxy = ServedProxy(self.directory, *arguments, descriptors_max=descriptors_max)
        self.proxies.append(proxy)
        proxy.start()
        return proxy

    def asking(self, proxy: ServedProxy, data: bytes) -> zmq.Socket[bytes]:
        """A REQ socket that has asked the proxy this."""
        asking = self.context.socket(zmq.REQ)
        asking.linger = 0
        asking.connect(f"tcp://{proxy.address}")
        asking.send(data)
        return asking

    def ask(self, proxy: ServedProxy, data: bytes) -> bytes:
        """The answer to a question."""
        with self.asking(proxy, data) as asking:
            assert asking.poll(WAIT_MS), f"no answer to {data!r}"
            return asking.recv()

    def claim(self, proxy: ServedProxy, server: str, topics: bytes = b"") -> None:
        answer = self.ask(proxy, f"PERIODIC {server}\r\n\r\n".encode() + topics)
        assert answer == f"STATUS {proxy.address} OK\r\n\r\n".encode()

    def server(self) -> tuple[zmq.Socket[bytes], str]:
        """A server that answers when the test does, and its id."""
        server = self.context.socket(zmq.ROUTER)
        server.linger = 0
        address = f"127.0.0.1:{free_port()}"
        server.bind(f"tcp://{address}")
        self._servers.append(server)
        return server, address

    def end(self) -> None:
        for proxy in self.proxies:
            proxy.end()
        for server in self._servers:
            server.close()
        self.context.destroy(linger=0)


@pytest.fixture
def around(tmp_path: Path) -> Iterator[Around]:
    around = Around(tmp_path)
    yield around
    around.end()


def hear(server: zmq.Socket[bytes]) -> tuple[list[bytes], bytes]:
    """The next question, and its envelope."""
    assert server.poll(WAIT_MS), "the server was not asked"
    *envelope, data = server.recv_multipart()
    return envelope, data


@contextmanager
def server_process(address: str) -> Iterator[Child]:
    """A server that answers OK to everything, as a process."""
    with Child([sys.executable, "-c", SERVER, address]) as process:
        yield process


def test_a_proxy_that_is_killed_with_requests_under_way_learns_the_map_before_it_assigns_anything(
    around: Around,
) -> None:
    (one, first), (other, second) = sorted((around.server(), around.server()), key=lambda server: server[1])
    proxy = around.start_proxy(*SLOW, "--set", "topics.period=10m", "--set", f"topics.servers={first},{second}")
    around.claim(proxy, first)
    around.claim(proxy, second, b"t u v")
    get = b"GET alice t -1\r\n\r\n"
    waiting = around.asking(proxy, get)
    envelope, data = hear(other)
    assert data == get
    proxy.end()
    proxy.start()
    other.send_multipart([*envelope, b"STATUS s OK lost\r\n\r\n"])
    for server in ("", first):
        if server:
            around.claim(proxy, server)
        answer = around.ask(proxy, get)
        assert answer.startswith(f"STATUS {proxy.address} PROXY_DOES_NOT_KNOW_ANY_SERVER\r\n".encode())
        assert second.encode() in answer, "it says for whom it waits"
    around.claim(proxy, second, b"t u v")
    waiting.close()
    with around.asking(proxy, get) as again:
        envelope, data = hear(other)
        assert data == get
        other.send_multipart([*envelope, b"STATUS s OK found\r\n\r\n"])
        assert again.poll(WAIT_MS)
        assert again.recv() == b"STATUS s OK found\r\n\r\n"
    assert not one.poll(0)


def test_of_two_proxies_at_one_address_the_second_is_refused_and_the_first_goes_on(around: Around) -> None:
    proxy = around.start_proxy()
    second = ended([*PROXY_COMMAND, "--listen", proxy.address])
    assert second.returncode == Exit.UNAVAILABLE
    assert f"cannot listen on {proxy.address}" in second.stderr
    assert "[port-in-use]" in second.stderr
    around.claim(proxy, "127.0.0.1:1", b"t")


def test_a_proxy_that_stops_takes_no_question_and_waits_for_the_answers_that_are_due(around: Around) -> None:
    proxy = around.start_proxy(*SLOW)
    server, address = around.server()
    around.claim(proxy, address, b"t")
    put = b"PUT bob t 1\r\n\r\nbody"
    with around.asking(proxy, put) as waiting:
        envelope, _ = hear(server)
        proxy.stop()
        with around.asking(proxy, b"PUT eve t 1\r\n\r\nbody") as late:
            while server.poll(300):
                assert hear(server)[1] == put
            server.send_multipart([*envelope, b"STATUS s OK\r\n\r\n"])
            assert waiting.poll(WAIT_MS)
            assert waiting.recv() == b"STATUS s OK\r\n\r\n"
            assert proxy.process is not None
            assert proxy.process.wait(WAIT_MS / 1000) == Exit.OK
            assert not late.poll(0)
    assert [line["event"] for line in proxy.said()[-2:]] == ["proxy-stopping", "proxy-stopped"]


def test_a_proxy_that_stops_waits_no_longer_than_it_asks(around: Around) -> None:
    proxy = around.start_proxy("--set", "topics.answer=200ms", "--set", "topics.retries_max=1")
    server, address = around.server()
    around.claim(proxy, address, b"t")
    with around.asking(proxy, b"GET alice t -1\r\n\r\n") as waiting:
        hear(server)
        proxy.stop()
        assert proxy.process is not None
        assert proxy.process.wait(WAIT_MS / 1000) == Exit.OK
        assert waiting.poll(WAIT_MS)
        assert b" SERVER_UNAVAILABLE\r\n" in waiting.recv()


def test_a_second_signal_waits_for_no_answer_any_more(around: Around) -> None:
    proxy = around.start_proxy(*SLOW, "--set", "topics.retries_max=100")
    server, address = around.server()
    around.claim(proxy, address, b"t")
    with around.asking(proxy, b"GET alice t -1\r\n\r\n"):
        hear(server)
        proxy.stop()
        assert proxy.process is not None
        while proxy.process.poll() is None:
            # What comes right behind a signal counts as the same one.
            time.sleep(0.3)
            proxy.process.send_signal(signal.SIGINT)
    assert proxy.process.returncode == Exit.OK


def test_a_server_that_was_stopped_and_goes_on_is_found_again_by_those_who_ask(around: Around) -> None:
    proxy = around.start_proxy(*QUICK)
    address = f"127.0.0.1:{free_port()}"
    get, ok = b"GET alice t -1\r\n\r\n", f"STATUS {address} OK\r\n\r\n".encode()

    def events() -> list[str]:
        return [line["event"] for line in proxy.said()]

    with server_process(address) as server:
        around.claim(proxy, address, b"t")
        proxy.wait_for(lambda: around.ask(proxy, get) == ok)
        server.send_signal(signal.SIGSTOP)
        answer = around.ask(proxy, get)
        assert answer.startswith(f"STATUS {proxy.address} SERVER_UNAVAILABLE\r\n\r\n{address}, which has".encode())
        server.send_signal(signal.SIGCONT)
        proxy.wait_for(lambda: around.ask(proxy, get) == ok)
        proxy.wait_for(lambda: "server-answers-again" in events())
    assert events().index("server-silent") < events().index("server-answers-again")


def test_a_server_that_is_killed_and_started_again_is_asked_over_a_new_connection(around: Around) -> None:
    proxy = around.start_proxy(*QUICK)
    address = f"127.0.0.1:{free_port()}"
    get, ok = b"GET alice t -1\r\n\r\n", f"STATUS {address} OK\r\n\r\n".encode()
    around.claim(proxy, address, b"t")
    for _ in range(2):
        with server_process(address):
            proxy.wait_for(lambda: around.ask(proxy, get) == ok)
        assert b" SERVER_UNAVAILABLE\r\n" in around.ask(proxy, get)


@pytest.mark.attack
def test_more_servers_than_there_are_descriptors_for_end_no_proxy(around: Around) -> None:
    proxy = around.start_proxy(*QUICK, descriptors_max=64)
    server, address = around.server()
    around.claim(proxy, address, b"t")
    ok = b"STATUS s OK\r\n\r\n"
    with ExitStack() as opened, around.asking(proxy, b"PERIODIC 127.0.0.1:1\r\n\r\n") as asking:
        for _ in range(2, 100):
            assert asking.poll(WAIT_MS)
            assert asking.recv() == f"STATUS {proxy.address} OK\r\n\r\n".encode()
            port = opened.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1]
            asking.send(f"PERIODIC 127.0.0.1:{port}\r\n\r\n".encode())
        assert asking.poll(WAIT_MS)
        asking.recv()
        asking.send(b"GET alice t -1\r\n\r\n")
        envelope, _ = hear(server)
        server.send_multipart([*envelope, ok])
        assert asking.poll(WAIT_MS)
        assert asking.recv() == ok
    deadline = time.monotonic() + WAIT_MS / 1000
    while "socket-not-opened" not in [line["event"] for line in proxy.said()]:
        assert time.monotonic() < deadline


@pytest.mark.attack
def test_who_does_not_even_speak_zeromq_harms_nobody(around: Around) -> None:
    proxy = around.start_proxy()
    host, _, port = proxy.address.rpartition(":")
    for said in (b"GET / HTTP/1.1\r\n\r\n", bytes(range(256)) * 64, b"\xff" + bytes(8) + b"\x7f" + b"\xff" * 60):
        with socket.create_connection((host, int(port)), 10) as raw:
            raw.sendall(said)
        assert b" BAD_MESSAGE\r\n" in around.ask(proxy, said)
    around.claim(proxy, "127.0.0.1:1", b"t")


def test_where_a_proxy_listens_is_the_flag_then_the_setting_then_the_only_proxy_there_is(tmp_path: Path) -> None:
    only, listen, flag = (f"127.0.0.1:{free_port()}" for _ in range(3))
    config = tmp_path / "topics.toml"
    for text, arguments, address in (
        (f'[topics]\nproxies = ["{only}"]\n', (), only),
        (f'[topics]\nproxies = ["{only}"]\nlisten = "{listen}"\n', (), listen),
        (f'[topics]\nproxies = ["{only}"]\nlisten = "{listen}"\n', ("--listen", flag), flag),
    ):
        config.write_text(text)
        with Child(
            [*PROXY_COMMAND, *arguments], env={**os.environ, "VEREDUS_SETTINGS": str(config)}, stderr=-1
        ) as process:
            assert process.stderr is not None
            ready = json.loads(process.stderr.readline())
            assert (ready["event"], ready["address"]) == ("proxy-ready", address)
