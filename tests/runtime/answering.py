"""Sockets of topics in a loop of their own, where each question gets the answer that a test gives; and who asks."""

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from tests.protocols.zmtp.by_hand import OPENING, frame
from veredus.protocols.topics.exchange import Answer, Answered, Asked, LateAnswer
from veredus.runtime.binding import bind_tcp
from veredus.runtime.topics_limits import TopicsLimits
from veredus.runtime.topics_sockets import TopicsSockets


class Answering(NamedTuple):
    loop: asyncio.AbstractEventLoop
    address: str
    close: Callable[[], None]


@contextmanager
def answering(answer_to: Callable[[Asked], Answer | LateAnswer], limits: TopicsLimits) -> Iterator[Answering]:
    """Listen, and answer each question at once."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    def answer(asked: Asked | Answered) -> None:
        assert isinstance(asked, Asked)
        sockets.carry_out(answer_to(asked))

    async def listen() -> TopicsSockets:
        return TopicsSockets(bind_tcp("127.0.0.1:0", "topics.listen"), 1 << 20, answer, limits=limits)

    async def end() -> None:
        sockets.close()

    def close() -> None:
        asyncio.run_coroutine_threadsafe(end(), loop).result(10)

    sockets = asyncio.run_coroutine_threadsafe(listen(), loop).result(10)
    yield Answering(loop, sockets.address, close)
    close()
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
