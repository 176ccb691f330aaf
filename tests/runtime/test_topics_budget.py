"""Messages to a proxy that are not whole share one budget: who waits for room is read on when there is some."""

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import pytest

from tests.protocols.zmtp.by_hand import OPENING, frame
from veredus.node.receiving import ReceiveBudget, ReceiveLimits
from veredus.protocols.topics.exchange import Answered, Asked
from veredus.runtime.binding import bind_tcp
from veredus.runtime.topics_limits import TopicsLimits
from veredus.runtime.topics_sockets import TopicsSockets

SIZE = 1 << 20
LIMITS = TopicsLimits(receive=ReceiveLimits(size_max=SIZE + SIZE // 2))
QUESTION = OPENING + frame(1, b"") + frame(0, bytes(SIZE))
TIMEOUT_S = 20.0
T = TypeVar("T")


class Scene:
    """Sockets on a loop of their own thread, and what they were asked."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.asked: list[Asked | Answered] = []
        self.sockets = self.run(
            lambda: TopicsSockets(bind_tcp("127.0.0.1:0", "topics.listen"), 2 * SIZE, self.asked.append, limits=LIMITS)
        )

    def run(self, do: Callable[[], T]) -> T:
        async def done() -> T:
            return do()

        return asyncio.run_coroutine_threadsafe(done(), self.loop).result(TIMEOUT_S)

    def connect(self, said: bytes) -> socket.socket:
        host, _, port = self.sockets.address.rpartition(":")
        peer = socket.create_connection((host, int(port)), TIMEOUT_S)
        threading.Thread(target=say, args=(peer, said), daemon=True).start()
        return peer

    def wait(self, is_so: Callable[[ReceiveBudget], bool]) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not self.run(lambda: is_so(self.sockets.receiving)):
            assert time.monotonic() < deadline
            time.sleep(0.002)


def say(peer: socket.socket, said: bytes) -> None:
    try:
        peer.sendall(said)
    except OSError:
        # The test is over, or the peer was let go.
        return


@contextmanager
def scene() -> Iterator[Scene]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    around = Scene(loop)
    try:
        yield around
    finally:
        around.run(around.sockets.close)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@contextmanager
def crowded(around: Scene) -> Iterator[tuple[socket.socket, socket.socket]]:
    """One peer whose message has the room and lacks its end, and one who waits for room."""
    with around.connect(QUESTION[:-1]) as first:
        around.wait(lambda receiving: receiving.granted_size > SIZE)
        with around.connect(QUESTION) as second:
            around.wait(lambda receiving: receiving.waiting_size > 0)
            around.run(around.sockets.receiving.check)
            assert not around.asked
            yield first, second


@pytest.mark.parametrize("is_finished", [True, False])
def test_who_waits_for_room_is_read_on_once_another_is_whole_or_gone(is_finished: bool) -> None:
    with scene() as around, crowded(around) as (first, _):
        if is_finished:
            first.sendall(QUESTION[-1:])
        else:
            first.close()
        around.wait(lambda receiving: not receiving.size)
        assert [len(one.data) for one in around.asked] == [SIZE] * (1 + is_finished)


def test_who_waits_for_room_still_waits_when_questions_are_taken_again() -> None:
    with scene() as around, crowded(around) as (first, _):
        around.run(around.sockets.pause_reading)
        around.run(around.sockets.resume_reading)
        with around.connect(OPENING + frame(1, b"") + frame(0, b"small")):
            around.wait(lambda _: len(around.asked) == 1)
        assert around.run(lambda: around.sockets.receiving.waiting_size) > 0
        first.sendall(QUESTION[-1:])
        around.wait(lambda receiving: not receiving.size)
        assert [len(one.data) for one in around.asked] == [5, SIZE, SIZE]
