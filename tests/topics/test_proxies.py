"""Proxies that are not there, go away, come back, are slow, or are none."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from random import Random
from typing import Self

import pytest
import zmq

from tests.processes import beside, free_port
from tests.topics.paper_server import scene
from veredus.client.loops import LoopThread
from veredus.kernel.errors import Unavailable
from veredus.topics import Client, Message

MANY_COUNT = 30
RUNS = "check that the proxy runs (a forwarder or load balancer accepts for one that is down)"


def client(proxies: list[str], directory: Path, answer_s: float = 0.1, **options: int) -> Client:
    return Client("alice", proxies=proxies, directory=directory, answer_s=answer_s, **options)


@contextmanager
def router() -> Iterator[tuple[zmq.Socket[bytes], str]]:
    """Something that hears, and says what the test says."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    heard = context.socket(zmq.ROUTER)
    address = f"127.0.0.1:{heard.bind_to_random_port('tcp://127.0.0.1')}"
    try:
        yield heard, address
    finally:
        heard.close(linger=0)
        context.term()


class Relay:
    """Between a client and a proxy; `size_of` says after how many bytes from the proxy a connection is cut."""

    def __init__(self, target: str, size_of: Callable[[], int]) -> None:
        self._host, _, self._port = target.rpartition(":")
        self._size_of = size_of
        self._links: list[asyncio.StreamWriter] = []
        self._thread = LoopThread()
        self.connection_count = 0
        self._server = self._thread.run(partial(asyncio.start_server, self._relay, "127.0.0.1"))
        host, port = self._server.sockets[0].getsockname()
        self.address = f"{host}:{port}"

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connection_count += 1
        far_reader, far_writer = await asyncio.open_connection(self._host, self._port)
        self._links += [writer, far_writer]
        ways = [self._copy(reader, far_writer, 1 << 60), self._copy(far_reader, writer, self._size_of())]
        tasks = [asyncio.ensure_future(way) for way in ways]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        writer.transport.abort()
        far_writer.transport.abort()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, left: int) -> None:
        while left and (data := await reader.read(min(left, 65_536))):
            writer.write(data)
            left -= len(data)

    def cut(self) -> None:
        """Cut all connections."""
        links, self._links = self._links, []
        for link in links:
            self._thread.call(link.transport.abort)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.cut()
        self._thread.run(self._close)
        self._thread.stop()

    async def _close(self) -> None:
        self._server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        if others:
            await asyncio.wait(others, timeout=5)


def test_where_no_proxy_is_of_help_each_is_named_with_the_reason(tmp_path: Path) -> None:
    dead = f"127.0.0.1:{free_port()}"
    with router() as (_, deaf), client(["*:5551", dead, deaf], tmp_path, 0.02) as alice:
        with pytest.raises(Unavailable) as raised:
            alice.get("t")
        assert raised.value.code == "no-proxy"
        assert raised.value.message == (
            "no proxy could handle the request: *:5551 is not an address to connect to (Invalid argument): write"
            " HOST:PORT; "
            f"{dead} does not accept the connection: check that a proxy runs there; {deaf} did not answer in 4 tries"
            " of 20 ms each. Check this, and try again"
        )
        assert list(raised.value.details["reasons"]) == ["*:5551", dead, deaf]  # type: ignore[call-overload]


def test_a_proxy_that_is_not_there_is_passed_over_at_once(tmp_path: Path) -> None:
    with scene() as around, client([f"127.0.0.1:{free_port()}", *around.addresses], tmp_path, 20) as alice:
        began = time.monotonic()
        alice.put("t", b"1")
        assert time.monotonic() - began < 10, "its answer was not waited for"
        assert around.server.bodies("t") == [b"1"]


def test_something_else_that_listens_there_is_passed_over(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, scene() as around:

        def hang_up() -> None:
            link, _ = listener.accept()
            link.close()

        address = f"127.0.0.1:{listener.getsockname()[1]}"
        with beside(hang_up), client([address, *around.addresses], tmp_path, 20) as alice:
            alice.put("t", b"1")


@pytest.mark.parametrize(
    "say",
    [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\xaa\xa5\x0c\x03no!", b"\xff" * 200, b"\xff" + bytes(8) + b"\x7f\x03"],
    ids=["nothing", "HTTP", "a native listener", "garbage", "the beginning of a greeting"],
)
@pytest.mark.parametrize(
    ("shown", "check"),
    [
        ({}, "whether the proxy wants a token or keys"),
        ({"token": "veredus_00000000_x"}, "the token"),
        (
            dict(zip(("server_key", "secret_key"), map(bytes.decode, zmq.curve_keypair()), strict=True)),
            "the server_key",
        ),
    ],
    ids=["nothing shown", "token", "keys"],
)
def test_who_accepts_the_connection_and_is_no_proxy_is_told_alike_each_time(
    tmp_path: Path, say: bytes, shown: dict[str, str], check: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            for _ in range(2):
                link, _ = listener.accept()
                with link:
                    link.recv(10, socket.MSG_WAITALL)
                    link.sendall(say)

        address = f"127.0.0.1:{listener.getsockname()[1]}"
        with (
            beside(answer),
            Client("alice", proxies=[address], directory=tmp_path, answer_s=20, **shown) as alice,  # type: ignore[arg-type]
        ):
            for _ in range(2):
                with pytest.raises(Unavailable) as raised:
                    alice.get("t")
                reason = raised.value.details["reasons"][address]  # type: ignore[index]
                assert reason.startswith(f"accepts the connection, and closes it before the handshake is done: {RUNS}")
                assert f"{RUNS}, {check}" in reason
                assert reason.endswith("and that this is the port of a proxy")


def test_who_accepts_the_connection_and_says_nothing_is_not_said_to_be_slow(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        with client([address], tmp_path, 0.1) as alice, pytest.raises(Unavailable) as raised:
            alice.get("t")
    assert raised.value.details["reasons"] == {
        address: "did not answer in 4 tries of 100 ms each, and accepts the connection without a handshake:"
        f" {RUNS}, whether the proxy wants a token or keys, and that this is the port of a proxy"
    }


def test_a_client_finds_its_proxy_again_that_was_away(tmp_path: Path) -> None:
    with scene() as around, client(around.addresses, tmp_path, 1) as alice:
        alice.subscribe("t")
        (address,) = around.addresses
        around.stop_proxy(address)
        with pytest.raises(Unavailable) as raised:
            alice.put("t", b"1")
        assert "does not accept the connection" in raised.value.message
        around.start_proxy(address)
        alice.put("t", b"1")
        assert alice.get("t") == Message("t", "alice-1", b"1")
        assert alice.get("t") is None


def test_a_proxy_that_goes_away_in_the_middle_gives_way_to_the_next_one(tmp_path: Path) -> None:
    with scene(2) as around, client(around.addresses, tmp_path, 20) as alice:
        alice.subscribe("t")
        first = around.addresses[0]
        is_gone = threading.Event()

        def answer(data: bytes) -> bytes:
            if not is_gone.is_set():
                is_gone.set()
                around.stop_proxy(first)
            return around.server.answer_well(data)

        around.server.answer = answer
        alice.put("t", b"1")
        assert around.server.bodies("t") == [b"1"]
        assert alice.get("t") == Message("t", "alice-1", b"1")


def test_a_late_answer_to_an_earlier_question_is_not_taken_for_this_ones(tmp_path: Path) -> None:
    with router() as (heard, address), client([address], tmp_path, 0.2) as alice:
        asked: SimpleQueue[bytes] = SimpleQueue()

        def answer() -> None:
            first = heard.recv_multipart()
            again = heard.recv_multipart()
            assert first[-1] == b"GET alice t -1\r\n\r\n"
            assert again == first, "a proxy that has both sees that they are one"
            heard.send_multipart([*first[:-1], b"STATUS s OK 1\r\n\r\nto any of them"])
            heard.send_multipart([*first[:-1], b"STATUS s OK 2\r\n\r\ntwice"])
            third = heard.recv_multipart()
            assert third[:-1] != first[:-1]
            heard.send_multipart([*first[:-1], b"STATUS s OK 3\r\n\r\nlate"])
            asked.put(third[-1])
            heard.send_multipart([*third[:-1], b"STATUS s NO_MESSAGES\r\n\r\n"])

        with beside(answer):
            assert alice.get("t") == Message("t", "1", b"to any of them")
            assert alice.get("t") is None
        assert asked.get(timeout=1) == b"GET alice t 1\r\n\r\n"


def test_a_question_without_an_answer_is_asked_again_as_often_as_was_said(tmp_path: Path) -> None:
    with router() as (heard, address), client([address], tmp_path, 0.02, retries_max=5) as alice:
        with pytest.raises(Unavailable):
            alice.put("t", b"1")
        asked = []
        while heard.poll(200):
            asked.append(heard.recv_multipart()[-1])
        assert asked == asked[:1] * 6, "and each under the same counter"
        assert asked[0].startswith(b"PUT alice t ")


def test_a_slow_question_holds_up_no_other_topic(tmp_path: Path) -> None:
    with router() as (heard, address), client([address], tmp_path, 20) as alice:
        slow_is_asked, quick_is_got = threading.Event(), threading.Event()
        got: list[Message | None] = []

        def answer() -> None:
            slow = heard.recv_multipart()
            slow_is_asked.set()
            quick = heard.recv_multipart()
            heard.send_multipart([*quick[:-1], b"STATUS s OK 1\r\n\r\nquick"])
            assert quick_is_got.wait(10)
            heard.send_multipart([*slow[:-1], b"STATUS s OK 1\r\n\r\nslow"])

        with beside(answer), beside(lambda: got.append(alice.get("slow"))):
            assert slow_is_asked.wait(10)
            assert alice.get("quick") == Message("quick", "1", b"quick")
            quick_is_got.set()
        assert got == [Message("slow", "1", b"slow")]


def test_what_was_asked_on_a_connection_that_is_lost_is_asked_at_once_on_a_new_one(tmp_path: Path) -> None:
    with (
        scene() as around,
        Relay(around.addresses[0], lambda: 1 << 60) as relay,
        client([relay.address], tmp_path, 20) as alice,
    ):
        alice.subscribe("t")
        has_cut = threading.Event()

        def answer(data: bytes) -> bytes:
            if not has_cut.is_set():
                has_cut.set()
                relay.cut()
            return around.server.answer_well(data)

        around.server.answer = answer
        began = time.monotonic()
        alice.put("t", b"1")
        assert time.monotonic() - began < 10, "its time was not waited for"
        assert relay.connection_count == 2
        assert around.server.bodies("t") == [b"1"]


def test_a_peer_that_vanished_without_a_word_is_connected_to_anew(tmp_path: Path) -> None:
    with (
        router() as (_, address),
        Relay(address, lambda: 1 << 60) as relay,
        client([relay.address], tmp_path, 0.02, retries_max=9) as alice,
    ):
        with pytest.raises(Unavailable):
            alice.get("t")
        assert relay.connection_count == 4, "after three questions each"


def test_a_peer_that_is_silent_to_many_questions_at_once_is_not_connected_to_for_each(tmp_path: Path) -> None:
    topics = [f"t{number}" for number in range(MANY_COUNT)]
    with (
        router() as (_, address),
        Relay(address, lambda: 1 << 60) as relay,
        client([relay.address], tmp_path, 0.1, retries_max=9) as alice,
        ThreadPoolExecutor(MANY_COUNT) as askers,
    ):
        for asked in [askers.submit(alice.get, topic) for topic in topics]:
            with pytest.raises(Unavailable):
                asked.result()
        # Each connection that is dropped takes along the answers that are on their way.
        assert relay.connection_count <= 4


@pytest.mark.parametrize("seed", range(5))
def test_through_connections_that_are_cut_anywhere_each_message_comes_once_and_in_order(
    tmp_path: Path, seed: int
) -> None:
    die = Random(seed)
    with (
        scene() as around,
        Relay(around.addresses[0], lambda: die.randrange(60, 900)) as relay,
        client([relay.address], tmp_path, 1) as alice,
    ):

        def insist(operation: Callable[[], Message | None]) -> Message | None:
            while True:
                try:
                    return operation()
                except Unavailable:
                    continue

        insist(lambda: alice.subscribe("t"))
        got = []
        for number in range(40):
            insist(lambda number=number: alice.put("t", b"%d" % number))  # type: ignore[misc]
            got.append(insist(lambda: alice.get("t")))
        assert [message.body for message in got if message is not None] == [b"%d" % n for n in range(40)]
        assert around.server.bodies("t") == [b"%d" % number for number in range(40)]
        assert relay.connection_count > 3


def test_a_proxy_that_is_lost_in_the_handshake_is_not_said_to_refuse_the_client(tmp_path: Path) -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    address = f"127.0.0.1:{listening.getsockname()[1]}"

    def cut() -> None:
        while True:
            try:
                link, _ = listening.accept()
            except OSError:
                return
            link.recv(64)
            link.close()

    thread = threading.Thread(target=cut)
    thread.start()
    try:
        with client([address], tmp_path) as alice, pytest.raises(Unavailable) as caught:
            alice.put("t", b"x")
        assert f"{address} accepts the connection, and closes it before the handshake is done" in caught.value.message
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join()


def test_a_proxy_whose_name_is_not_known_is_told_so_and_the_next_one_is_asked(tmp_path: Path) -> None:
    nowhere = "nohost.invalid:7081"
    with (
        client([nowhere], tmp_path, answer_s=1.0) as alone,
        pytest.raises(Unavailable, match="cannot be found") as told,
    ):
        alone.subscribe("news")
    assert told.value.code == "no-proxy"
    assert "did not answer" not in told.value.message
    assert "check the name" in told.value.message
