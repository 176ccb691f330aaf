"""One who asks a listener of topics for much leaves room for others: in a turn, in hand, and in what is unwritten."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TypeVar

import pytest

from tests.protocols.zmtp.by_hand import OPENING, message
from veredus.node.sending import SendLimits
from veredus.protocols.topics.exchange import Answer, Answered, Asked
from veredus.runtime.binding import bind_tcp
from veredus.runtime.topics_limits import TopicsLimits
from veredus.runtime.topics_sockets import TopicsSockets
from veredus.runtime.zmtp_links import MESSAGES_PER_TURN

MIB = 1 << 20
TIMEOUT_S = 20.0
T = TypeVar("T")
PUT = message(b"", b"PUT greedy t 1\r\n\r\nx")


class Scene:
    """Sockets on a loop of their own thread; `answer` is what is said to each question that is taken, if anything."""

    def __init__(self, loop: asyncio.AbstractEventLoop, limits: TopicsLimits, answer: bytes | None, most: int) -> None:
        self.loop, self.answer = loop, answer
        self.asked: list[Asked] = []
        bound = bind_tcp("127.0.0.1:0", "topics.listen")
        self.sockets = self.run(lambda: TopicsSockets(bound, 2 * MIB, self._take, limits=limits, at_once_max=most))

    def _take(self, asked: Asked | Answered) -> None:
        assert isinstance(asked, Asked)
        self.asked.append(asked)
        if self.answer is not None or asked.why_not:
            self.sockets.carry_out(Answer(asked.peer, asked.why_not.encode() or self.answer or b""))

    def run(self, do: Callable[[], T]) -> T:
        async def done() -> T:
            return do()

        return asyncio.run_coroutine_threadsafe(done(), self.loop).result(TIMEOUT_S)

    def connect(self, said: bytes, source: str = "127.0.0.1") -> socket.socket:
        host, _, port = self.sockets.address.rpartition(":")
        peer = socket.create_connection((host, int(port)), TIMEOUT_S, (source, 0))
        threading.Thread(target=say, args=(peer, OPENING + said), daemon=True).start()
        return peer

    def wait(self, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not self.run(is_so):
            assert time.monotonic() < deadline
            time.sleep(0.002)


def say(peer: socket.socket, said: bytes) -> None:
    try:
        peer.sendall(said)
    except OSError:
        # The test is over, or the peer was let go.
        return


@contextmanager
def scene(limits: TopicsLimits, answer: bytes | None = b"STATUS s OK\r\n\r\n", at_once_max: int = 0) -> Iterator[Scene]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    around = Scene(loop, limits, answer, at_once_max)
    try:
        yield around
    finally:
        around.run(around.sockets.close)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def test_one_connection_cannot_fill_what_may_be_in_hand() -> None:
    with scene(TopicsLimits(requests_max=100), answer=None) as around, around.connect(PUT * 100):
        around.wait(lambda: len(around.asked) == 100)
        assert [bool(asked.why_not) for asked in around.asked] == [False] * 50 + [True] * 50
        assert around.asked[-1].why_not.endswith("others have their share: try again")
        with around.connect(PUT):
            around.wait(lambda: len(around.asked) == 101)
        assert not around.asked[-1].why_not


def test_what_members_say_of_themselves_takes_nobodys_share() -> None:
    with (
        scene(TopicsLimits(requests_max=2), answer=None) as around,
        around.connect(PUT * 10 + message(b"", b"PERIODIC s:1\r\n\r\nt")),
    ):
        around.wait(lambda: len(around.asked) == 11)
        assert not around.asked[-1].why_not


@pytest.mark.parametrize("greedy", ["principal", "address"])
def test_who_asks_little_is_heard_before_all_connections_of_one_who_is_greedy_are(greedy: str) -> None:
    count, links_count = 1000, 20
    victim = message(b"", b"PUT victim t 1\r\n\r\nx")
    with scene(TopicsLimits()) as around, ExitStack() as stack:
        victims: list[object] = []
        if greedy == "principal":
            around.sockets.payer_of = lambda link: "victim" if link in victims else greedy  # type: ignore[method-assign]
        around.run(around.sockets.pause_reading)
        for _ in range(links_count):
            stack.enter_context(around.connect(PUT * count))
        around.wait(lambda: len(around.sockets._fronts) == links_count)
        stack.enter_context(around.connect(victim, "127.0.0.1" if greedy == "principal" else "127.0.0.2"))
        around.wait(lambda: len(around.sockets._fronts) == links_count + 1)
        around.run(lambda: victims.append(list(around.sockets._fronts)[-1]))
        time.sleep(0.2)
        around.run(around.sockets.resume_reading)
        around.wait(lambda: len(around.asked) == links_count * count + 1)
        heard = [asked.data.startswith(b"PUT victim") for asked in around.asked].index(True)
        assert heard <= 10 * MESSAGES_PER_TURN, "the first messages of one link, and not all of all"


def many(name: str, count: int) -> bytes:
    return b"".join(message(b"", f"PUT {name} t {number}\r\n\r\nx".encode()) for number in range(1, count + 1))


@pytest.mark.parametrize("source", ["127.0.0.1", "127.0.0.2"], ids=["its own address", "another address"])
def test_who_has_its_share_on_its_way_waits_for_answers_and_nobody_else_does(source: str) -> None:
    with scene(TopicsLimits(), answer=None, at_once_max=90) as around, around.connect(many("greedy", 200)):
        around.wait(lambda: len(around.asked) == 30 and all(link.is_reading_on for link in around.sockets._fronts))
        with around.connect(many("victim", 1), source):
            around.wait(lambda: len(around.asked) == 31)
        assert around.asked[-1].data.startswith(b"PUT victim")
        for number in range(201):
            around.wait(lambda number=number: len(around.asked) > number)  # type: ignore[misc]
            peer = around.asked[number].peer
            around.run(lambda peer=peer: around.sockets.carry_out(Answer(peer, b"STATUS s OK\r\n\r\n")))  # type: ignore[misc]
        greedy = [asked.data for asked in around.asked if asked.data.startswith(b"PUT greedy")]
        assert greedy == [f"PUT greedy t {number}\r\n\r\nx".encode() for number in range(1, 201)], "all, in their order"
        assert not any(asked.why_not for asked in around.asked)


def test_what_somebody_asked_who_is_gone_counts_until_it_is_answered_and_then_others_go_on() -> None:
    with scene(TopicsLimits(), answer=None, at_once_max=90) as around:
        with around.connect(many("gone", 31)):
            around.wait(lambda: len(around.asked) == 30)
        with around.connect(many("other", 40)):
            around.wait(lambda: len(around.asked) == 40 and all(link.is_reading_on for link in around.sockets._fronts))
            answered = 0
            while sum(asked.data.startswith(b"PUT other") for asked in around.asked) < 40:
                around.wait(lambda answered=answered: len(around.asked) > answered)  # type: ignore[misc]
                peer = around.asked[answered].peer
                around.run(lambda peer=peer: around.sockets.carry_out(Answer(peer, b"")))  # type: ignore[misc]
                answered += 1
            around.wait(lambda: len(around.sockets._fronts) == 1)


def test_what_waits_to_be_written_to_all_who_do_not_read_is_bounded() -> None:
    size_max, body = 8 * MIB, bytes(MIB)
    limits = TopicsLimits(send=SendLimits(size_max=size_max, link_size_max=4 * MIB))
    with scene(limits, answer=body) as around:
        peers = [around.connect(PUT * 64) for _ in range(16)]
        try:
            around.wait(lambda: around.sockets.unwritten.budget.abandoned_count > 0)
            around.wait(lambda: around.sockets.unwritten.budget.size <= size_max)
        finally:
            for peer in peers:
                peer.close()
