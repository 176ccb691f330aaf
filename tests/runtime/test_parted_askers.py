"""An answer to whoever was let go meanwhile is lost, and nobody else's is."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import pytest
import uvloop

from tests.protocols.zmtp.by_hand import OPENING, frame
from veredus.protocols.topics.exchange import Answer, Asked, LateAnswer
from veredus.protocols.topics.messages import Status
from veredus.runtime.binding import bind_tcp
from veredus.runtime.topics_limits import TopicsLimits
from veredus.runtime.topics_sockets import TopicsSockets


class Service:
    """Listens, and keeps what it is asked."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.faults: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: self.faults.append(context))
        self.sockets = TopicsSockets(
            bind_tcp("127.0.0.1:0", "topics.listen"), 1 << 20, self.asked.append, limits=TopicsLimits()
        )

    async def ask(self) -> socket.socket:
        """The connection of somebody who has asked something."""
        host, _, port = self.sockets.address.rpartition(":")
        peer = socket.create_connection((host, int(port)))
        peer.setblocking(False)
        count = len(self.asked)
        peer.sendall(OPENING + frame(0, b"question"))
        await self.until(lambda: len(self.asked) > count)
        return peer

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not is_so():
                await asyncio.sleep(0.005)

    def answer(self, peer: int, is_late: bool) -> None:
        data = b"answer"
        answer = LateAnswer(peer, Status("127.0.0.1:1", "OK", "s-1"), data) if is_late else Answer(peer, data)
        self.sockets.carry_out(answer)


@pytest.mark.parametrize("is_late", [False, True], ids=["at once", "late"])
@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_who_was_let_go_before_its_answer_keeps_no_answer_from_others(
    loop: Callable[[], asyncio.AbstractEventLoop], is_late: bool
) -> None:
    async def go() -> None:
        service = Service()
        bad = await service.ask()
        # It is refused, and does not hang up: its connection is still ending.
        bad.sendall(b"\xff" * 9)
        await asyncio.sleep(0.1)
        good = await service.ask()
        for asked in service.asked:
            service.answer(asked.peer, is_late)
        heard = b""
        async with asyncio.timeout(20):
            while b"answer" not in heard:
                heard += await asyncio.get_running_loop().sock_recv(good, 4096)
        assert not service.faults
        service.sockets.close()
        await asyncio.sleep(0.05)
        for peer in (bad, good):
            peer.close()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(go())
