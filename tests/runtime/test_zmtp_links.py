"""Links that carry messages themselves: who reads what waits for it is not silent, who reads nothing of it is."""

import asyncio
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from tests.protocols.zmtp.by_hand import OPENING, frame
from veredus.protocols.topics.exchange import Answer, Answered, Asked
from veredus.protocols.zmtp.link import Timing
from veredus.runtime.binding import bind_tcp
from veredus.runtime.topics_limits import TopicsLimits
from veredus.runtime.topics_sockets import TopicsSockets

ANSWER = bytes(64 << 10)
MS = 1_000_000
LIMITS = TopicsLimits(timing=Timing(5_000 * MS, 500 * MS, 2_000 * MS))


@pytest.fixture
def address() -> Iterator[str]:
    """Where each question is answered with `ANSWER`."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    def answer(asked: Asked | Answered) -> None:
        assert isinstance(asked, Asked)
        sockets.carry_out(Answer(asked.peer, ANSWER))

    async def listening() -> TopicsSockets:
        return TopicsSockets(bind_tcp("127.0.0.1:0", "topics.listen"), 1 << 20, answer, limits=LIMITS)

    async def close() -> None:
        sockets.close()

    sockets = asyncio.run_coroutine_threadsafe(listening(), loop).result(10)
    yield sockets.address
    asyncio.run_coroutine_threadsafe(close(), loop).result(10)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def asking(address: str, count: int) -> socket.socket:
    """A peer with little room that has asked so often, and reads nothing yet."""
    host, _, port = address.rpartition(":")
    peer = socket.socket()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 << 10)
    peer.settimeout(5)
    peer.connect((host, int(port)))
    peer.sendall(OPENING + frame(0, b"question") * count)
    return peer


def rest_of(peer: socket.socket) -> int:
    """How much comes until the other ends the link, or says nothing more."""
    size = 0
    peer.settimeout(0.5)
    try:
        while octets := peer.recv(1 << 20):
            size += len(octets)
    except OSError:
        return size
    return size


def has_ended(peer: socket.socket) -> bool:
    """Whether the other has closed: to speak once may go unnoticed."""
    try:
        for _ in range(2):
            peer.sendall(frame(0, b"question"))
            time.sleep(0.1)
    except ConnectionError:
        return True
    return False


@pytest.mark.parametrize("count", [24, 128], ids=["what the system holds", "more than is written"])
def test_a_peer_that_reads_slowly_stays_and_one_that_reads_nothing_is_let_go(address: str, count: int) -> None:
    with asking(address, count) as slow, asking(address, count) as stuck:
        size = 0
        for _ in range(60):
            size += len(slow.recv(8_000))
            time.sleep(0.1)
        assert not has_ended(slow)
        size += rest_of(slow)
        assert size >= count * len(ANSWER)
        rest_of(stuck)
        assert has_ended(stuck)
