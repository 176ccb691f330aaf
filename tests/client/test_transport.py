"""A socket to a node leads to a node, never back to itself."""

import asyncio
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from veredus.client.addresses import parse_address
from veredus.client.loops import new_loop
from veredus.client.transport import LINK, TURN_S, NodeSocket, open_socket
from veredus.kernel.events import Received
from veredus.protocols.zeps import native
from veredus.protocols.zeps.client_exchange import FramesReceived
from veredus.protocols.zeps.frames import ATTACH_OK
from veredus.protocols.zeps.native import Kind

ATTEMPTS_COUNT = 15_000


async def connected_to_itself(told: list[object]) -> NodeSocket:
    ends = socket.socket()
    ends.bind(("127.0.0.1", 0))
    ends.connect(ends.getsockname())
    ends.setblocking(False)
    node_socket = NodeSocket(told.append)
    await asyncio.get_running_loop().create_connection(lambda: node_socket, sock=ends)
    for _ in range(100):
        await asyncio.sleep(0)
    node_socket.abort()
    return node_socket


def test_a_connection_to_itself_is_closed_and_nobody_hears_of_it() -> None:
    told: list[object] = []
    assert asyncio.run(connected_to_itself(told)).is_to_itself
    assert told == []


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems have other ephemeral ports")
def test_a_port_where_nobody_listens_is_refused_however_often_it_is_tried() -> None:
    # Linux tries the even ports first when it looks for one for a connection, and comes to ours in the end.
    low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    address = parse_address(f"127.0.0.1:{(low + high) // 4 * 2}")
    told: list[object] = []

    async def knock() -> None:
        for _ in range(ATTEMPTS_COUNT):
            with pytest.raises(ConnectionRefusedError):
                await open_socket(address, None, told.append)

    asyncio.run(knock())
    assert told == []


def test_who_sends_a_long_frame_slowly_is_heard_before_it_is_whole() -> None:
    told: list[object] = []
    node_socket = NodeSocket(told.append)
    for part in (ATTACH_OK, native.encode_frame(Kind.PING, 0, bytes(64))[:40]):
        rest = part
        while rest:
            buffer = node_socket.get_buffer(len(rest))
            count = min(len(buffer), len(rest))
            buffer[:count], rest = rest[:count], rest[count:]
            node_socket.buffer_updated(count)
    assert told[0] == Received(LINK, ATTACH_OK)
    assert told[1:] == [FramesReceived(LINK, [], None)] * len(told[1:])
    assert len(told) > 1


def test_what_takes_its_time_is_followed_by_a_turn_of_everybody_else() -> None:
    turns: list[int] = [0]
    told_at: list[int] = []

    def tell(event: object) -> None:
        if isinstance(event, FramesReceived):
            told_at.append(turns[0])
            time.sleep(2 * TURN_S)

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ping = native.encode_frame(Kind.PING, 0, bytes(8))
        with suppress(ConnectionError):
            writer.write(ATTACH_OK + ping * 500_000)
            await writer.drain()

    async def listen() -> None:
        async with await asyncio.start_server(serve, "127.0.0.1") as server:
            host, port = server.sockets[0].getsockname()
            node_socket = await open_socket(parse_address(f"{host}:{port}"), None, tell)
            while len(told_at) < 10:
                await asyncio.sleep(0)
                turns[0] += 1
            node_socket.abort()

    loop = new_loop()
    try:
        loop.run_until_complete(listen())
    finally:
        loop.close()
    assert len(set(told_at)) == len(told_at), "never twice in one turn"
