"""What waits for several peers, and lies in memory once, is known to be the same while it waits."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator

import pytest
import uvloop

from veredus.kernel.octets import Octets
from veredus.node.sending import SHARED_SIZE_MIN
from veredus.runtime.taking import Taking

SIZE = 4 << 20
"""More than a system holds of one connection."""
MEMORY = bytes(SIZE)


async def connected() -> tuple[asyncio.Transport, Taking, socket.socket]:
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    transport, _ = await asyncio.get_running_loop().connect_accepted_socket(asyncio.Protocol, ours)
    return transport, Taking(transport), theirs


def say(transport: asyncio.Transport, taking: Taking, *buffers: Octets) -> None:
    transport.writelines(buffers)
    taking.note(buffers)


async def read(theirs: socket.socket, size: int) -> None:
    while size > 0:
        size -= len(await asyncio.get_running_loop().sock_recv(theirs, min(size, 1 << 20)))


def as_peers_have() -> Iterator[Octets]:
    """The same memory: as it is, and as each has looked at it."""
    yield from (MEMORY, MEMORY, memoryview(MEMORY)[:SIZE], memoryview(MEMORY)[:SIZE])


async def known_while_it_waits() -> None:
    large, small, peers = as_peers_have(), bytes(SHARED_SIZE_MIN - 1), [await connected() for _ in range(2)]
    for transport, taking, _ in peers:
        say(transport, taking, small, next(large), small, next(large))
    for transport, taking, _ in peers:
        assert taking.shared == {id(MEMORY): transport.get_write_buffer_size() - len(small)}
    transport, taking, theirs = peers[0]
    await read(theirs, len(small) + SIZE)
    await asyncio.sleep(0)
    (left,) = taking.shared.values()
    assert 0 < left <= SIZE
    assert left <= transport.get_write_buffer_size()
    await read(theirs, len(small) + SIZE)
    assert taking.shared == {}
    for transport, _, theirs in peers:
        transport.abort()
        theirs.close()


async def copied_by_others() -> None:
    large = bytes(SIZE)
    transport, taking, theirs = await connected()
    say(transport, taking, large)
    assert taking.shared == {}
    transport.abort()
    theirs.close()


@pytest.mark.parametrize(
    ("loop_factory", "story"),
    [(uvloop.new_event_loop, known_while_it_waits), (asyncio.SelectorEventLoop, copied_by_others)],
)
def test_what_a_transport_holds_as_it_was_given_is_known_by_name(
    loop_factory: Callable[[], asyncio.AbstractEventLoop], story: Callable[[], object]
) -> None:
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(asyncio.wait_for(story(), 10))  # type: ignore[arg-type]
