"""Each weather of the proxy, seen from both ends of real connections."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from veredus.chaos.proxy import Proxy
from veredus.chaos.striking import spoil

PATIENCE_S = 5.0
A_WHILE_S = 0.15


class Place:
    """A client and a node's end of one connection through a proxy."""

    def __init__(self, proxy: Proxy, arrived: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]]) -> None:
        self.proxy = proxy
        self._arrived = arrived
        self.writers: list[asyncio.StreamWriter] = []

    async def connect(self) -> None:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.proxy.port)
        self.far_reader, self.far_writer = await asyncio.wait_for(self._arrived.get(), PATIENCE_S)
        self.writers += (self.writer, self.far_writer)

    async def send_up(self, data: bytes) -> bytes:
        """What the node's end has read, once `data` came whole."""
        self.writer.write(data)
        return await asyncio.wait_for(self.far_reader.readexactly(len(data)), PATIENCE_S)

    async def send_down(self, data: bytes) -> bytes:
        self.far_writer.write(data)
        return await asyncio.wait_for(self.reader.readexactly(len(data)), PATIENCE_S)


@contextlib.asynccontextmanager
async def place() -> AsyncIterator[Place]:
    arrived: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()
    server = await asyncio.start_server(lambda reader, writer: arrived.put_nowait((reader, writer)), "127.0.0.1", 0)
    proxy = Proxy(*server.sockets[0].getsockname())
    await proxy.start()
    made = Place(proxy, arrived)
    try:
        await made.connect()
        yield made
    finally:
        await proxy.close()
        server.close()
        for writer in made.writers:
            writer.transport.abort()
        await asyncio.sleep(0)


def played(story: Callable[[Place], Awaitable[None]]) -> None:
    async def play() -> None:
        async with place() as made:
            await story(made)

    asyncio.run(play())


async def is_silent(reader: asyncio.StreamReader) -> bool:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(reader.read(1), A_WHILE_S)
        return False
    return True


async def is_reset(reader: asyncio.StreamReader) -> bool:
    try:
        return not await asyncio.wait_for(reader.read(), PATIENCE_S) and False
    except ConnectionResetError:
        return True


def test_in_fair_weather_both_ways_pass_everything_in_order() -> None:
    async def story(made: Place) -> None:
        data = bytes(range(256)) * 1_000
        assert await made.send_up(data) == data
        assert await made.send_down(data) == data
        assert made.proxy.relayed_sizes == {"up": len(data), "down": len(data)}

    played(story)


def test_a_delay_keeps_back_what_comes_and_loses_nothing() -> None:
    async def story(made: Place) -> None:
        spoil(made.proxy, "delay", 200)
        began = time.monotonic()
        assert await made.send_up(b"late") == b"late"
        assert time.monotonic() - began >= 0.2
        made.proxy.heal()
        began = time.monotonic()
        assert await made.send_up(b"soon") == b"soon"
        assert time.monotonic() - began < 0.2

    played(story)


def test_a_throttled_connection_passes_so_many_bytes_a_second() -> None:
    async def story(made: Place) -> None:
        made.proxy.throttle(20_000)
        began = time.monotonic()
        assert await made.send_up(bytes(6_000)) == bytes(6_000)
        assert time.monotonic() - began >= 0.3

    played(story)


@pytest.mark.parametrize("size", [1, 7, 999])
def test_a_cut_lets_exactly_so_many_bytes_pass_and_resets_both_ends(size: int) -> None:
    async def story(made: Place) -> None:
        spoil(made.proxy, "cut", size)
        made.writer.write(b"x" * 1_000)
        assert await asyncio.wait_for(made.far_reader.readexactly(size), PATIENCE_S) == b"x" * size
        assert await is_reset(made.far_reader)
        assert await is_reset(made.reader)

    played(story)


def test_a_reset_is_seen_as_one_at_both_ends_and_the_next_connection_is_let_be() -> None:
    async def story(made: Place) -> None:
        spoil(made.proxy, "reset", 1)
        assert await is_reset(made.reader)
        assert await is_reset(made.far_reader)
        await made.connect()
        assert await made.send_up(b"again") == b"again"

    played(story)


def test_half_open_the_client_is_reset_and_the_node_is_told_only_afterwards() -> None:
    async def story(made: Place) -> None:
        spoil(made.proxy, "half-open", 1)
        assert await is_reset(made.reader)
        assert await is_silent(made.far_reader)
        made.proxy.heal()
        assert await is_reset(made.far_reader)

    played(story)


@pytest.mark.parametrize(("amount", "is_up"), [(1, True), (2, False)])
def test_one_way_holds_back_the_other_and_what_was_held_comes_in_order(amount: int, is_up: bool) -> None:
    async def story(made: Place) -> None:
        spoil(made.proxy, "one-way", amount)
        if is_up:
            made.writer.write(b"held")
            assert await made.send_down(b"through") == b"through"
            assert await is_silent(made.far_reader)
            made.proxy.heal()
            assert await made.send_up(b", then") == b"held, "
        else:
            made.far_writer.write(b"held")
            assert await made.send_up(b"through") == b"through"
            assert await is_silent(made.reader)
            made.proxy.heal()
            assert await made.send_down(b", then") == b"held, "

    played(story)


def test_a_black_hole_takes_everything_both_ways_and_new_connections_too() -> None:
    async def story(made: Place) -> None:
        spoil(made.proxy, "black-hole", 1)
        made.writer.write(b"up")
        made.far_writer.write(b"down")
        assert await is_silent(made.reader)
        assert await is_silent(made.far_reader)
        await made.connect()
        made.writer.write(b"new")
        assert await is_silent(made.far_reader)
        made.proxy.heal()
        assert await asyncio.wait_for(made.far_reader.readexactly(3), PATIENCE_S) == b"new"

    played(story)


def test_a_node_that_is_away_is_a_reset_for_the_client() -> None:
    async def story() -> None:
        proxy = Proxy("127.0.0.1", 1)
        await proxy.start()
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            assert await is_reset(reader)
            writer.transport.abort()
        finally:
            await proxy.close()

    asyncio.run(story())
