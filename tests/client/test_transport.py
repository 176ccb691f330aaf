"""A socket to a node leads to a node, never back to itself."""

import asyncio
import socket
import sys
from pathlib import Path

import pytest

from veredus.client.addresses import parse_address
from veredus.client.transport import NodeSocket, open_socket

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
