"""Connections that this side ends: the last word arrives, and nobody is waited for without end."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import cast

import pytest
import uvloop

from veredus.runtime import parting
from veredus.runtime.parting import THROWS_MAX, Parting, Partings
from veredus.runtime.taking import Taking

LAST = b"refused: no such thing"
PIECE = bytes(64 << 10)
Run = Callable[[Awaitable[None]], None]


class Refusing(asyncio.BufferedProtocol):
    """Says one last word to whoever says something."""

    def __init__(self, partings: Partings | None = None) -> None:
        self.partings = Partings(asyncio.get_running_loop()) if partings is None else partings
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.before = b""
        self._memory = bytearray(16)
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._memory

    def buffer_updated(self, nbytes: int) -> None:
        assert self._transport is not None
        self._transport.write(self.before + LAST)
        self._transport.pause_reading()
        self.partings.begin(self._transport, Taking(self._transport), self.lost.set_result)


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    def run(story: Awaitable[None]) -> None:
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(asyncio.wait_for(story, 20))

    return run


async def pair(partings: Partings | None = None) -> tuple[Refusing, socket.socket]:
    """A connection, both ends of it."""
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    _, refusing = await asyncio.get_running_loop().connect_accepted_socket(lambda: Refusing(partings), ours)
    return refusing, theirs


async def ended(partings: Partings) -> None:
    while partings:
        await asyncio.sleep(0.001)


async def flood(connection: socket.socket, count: int) -> None:
    for _ in range(count):
        await asyncio.get_running_loop().sock_sendall(connection, PIECE)


async def heard(connection: socket.socket) -> bytes:
    octets = b""
    while taken := await asyncio.get_running_loop().sock_recv(connection, 4096):
        octets += taken
    return octets


def test_the_last_word_reaches_who_goes_on_writing_and_the_connection_ends_with_that_peer(run: Run) -> None:
    async def story() -> None:
        refusing, theirs = await pair()
        await flood(theirs, 64)
        assert await heard(theirs) == LAST
        await refusing.lost
        assert len(refusing.partings) == 1
        theirs.close()
        await ended(refusing.partings)

    run(story())


def test_who_does_not_end_it_is_waited_for_only_so_long(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parting, "LOOK_S", 0.01)

    async def story() -> None:
        refusing, theirs = await pair()
        await asyncio.get_running_loop().sock_sendall(theirs, b"x")
        await refusing.lost
        await ended(refusing.partings)
        assert await heard(theirs) == LAST
        theirs.close()

    run(story())


def test_who_writes_on_without_end_is_waited_for_only_so_long(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parting, "LOOK_S", 0.02)

    async def story() -> None:
        refusing, theirs = await pair()
        with pytest.raises(ConnectionError):
            await flood(theirs, 1_000_000)
        await ended(refusing.partings)
        theirs.close()

    run(story())


def test_the_last_word_behind_much_that_is_unread_reaches_who_writes_on_and_reads_slowly(run: Run) -> None:
    size = 4 << 20

    async def story() -> None:
        refusing, theirs = await pair()
        refusing.before = bytes(size)
        writing = asyncio.create_task(flood(theirs, 2_000))
        octets = bytearray()
        while piece := await asyncio.get_running_loop().sock_recv(theirs, 32 << 10):
            octets += piece
            await asyncio.sleep(0.002)
        assert octets == bytes(size) + LAST
        writing.cancel()
        with suppress(asyncio.CancelledError, ConnectionError):
            await writing
        theirs.close()
        await ended(refusing.partings)

    run(story())


def test_nobody_is_slow_while_this_process_is_stopped(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parting, "LOOK_S", 0.02)

    async def story() -> None:
        refusing, theirs = await pair()
        refusing.before = bytes(4 << 20)
        await asyncio.get_running_loop().sock_sendall(theirs, b"x")
        while not refusing.partings:
            await asyncio.sleep(0)
        # As if stopped: for longer than any peer is waited for.
        time.sleep(1.0)
        assert await heard(theirs) == refusing.before + LAST
        theirs.close()
        await ended(refusing.partings)

    run(story())


def test_what_many_go_on_writing_is_thrown_away_in_turns_of_a_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    count, piece_count, thrown_at = 30, 16, list[int]()
    update = Parting.buffer_updated
    turn = 0

    def updated(parting: Parting, nbytes: int) -> None:
        thrown_at.append(turn)
        update(parting, nbytes)

    def count_turn() -> None:
        nonlocal turn
        turn += 1
        asyncio.get_running_loop().call_soon(count_turn)

    async def story() -> None:
        partings = Partings(asyncio.get_running_loop())
        pairs = [await pair(partings) for _ in range(count)]
        count_turn()
        await asyncio.gather(*(flood(theirs, piece_count) for _, theirs in pairs))
        for _, theirs in pairs:
            assert await heard(theirs) == LAST
            theirs.close()
        await ended(partings)

    monkeypatch.setattr(Parting, "buffer_updated", updated)
    run(story())
    # The first of each comes as it comes.
    assert len(thrown_at) <= THROWS_MAX * len(set(thrown_at)) + count
    assert max(map(thrown_at.count, set(thrown_at))) <= THROWS_MAX + count


def test_only_so_many_end_at_once(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parting, "PARTINGS_MAX", 2)

    async def story() -> None:
        partings = Partings(asyncio.get_running_loop())
        pairs = [await pair(partings) for _ in range(3)]
        for _, theirs in pairs:
            await asyncio.get_running_loop().sock_sendall(theirs, b"x")
            await asyncio.sleep(0.01)
            assert len(partings) <= 2
        for _, theirs in pairs:
            with suppress(ConnectionError):
                assert await heard(theirs) == LAST
            theirs.close()
        await ended(partings)

    run(story())


def test_a_connection_that_its_peer_has_reset_before_ends_too(run: Run) -> None:
    async def story() -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            theirs = socket.create_connection(server.getsockname())
            ours, _ = server.accept()
        _, refusing = await asyncio.get_running_loop().connect_accepted_socket(Refusing, ours)
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        theirs.send(b"x")
        theirs.close()
        await refusing.lost
        await ended(refusing.partings)

    run(story())
