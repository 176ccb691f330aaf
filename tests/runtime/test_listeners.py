"""Connections count from the moment they are accepted, and whoever says nothing is let go in time."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import struct
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import cast

import pytest
import uvloop

from tests.forks import told_by_child
from tests.runtime.test_security import NODE, NODE_KEY
from veredus.kernel.errors import Unavailable
from veredus.node.admission import AdmissionLimits
from veredus.node.settings import TlsSection
from veredus.runtime.binding import UnixPath, bind_tcp, bind_unix
from veredus.runtime.listeners import (
    Arrivals,
    Listener,
    Peer,
    Place,
    tcp_peer_of,
    unix_peer_of,
)
from veredus.runtime.security import server_context

MS = 1_000_000
LOOPS: list[Callable[[], asyncio.AbstractEventLoop]] = [asyncio.new_event_loop, uvloop.new_event_loop]


class Echo(asyncio.BufferedProtocol):
    """Gives back what it gets, and proves itself by an octet `p`."""

    def __init__(self, house: House, peer: Peer, place: Place) -> None:
        self.house, self.peer, self.place = house, peer, place
        self.memory = memoryview(bytearray(1 << 16))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.place.abandon = self.transport.abort
        self.house.links.append(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.memory

    def buffer_updated(self, nbytes: int) -> None:
        data = bytes(self.memory[:nbytes])
        self.house.heard.append(data)
        if b"p" in data:
            self.place.prove()
        self.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.place.leave()


class House:
    """A listener on a free port, and what came by it."""

    def __init__(self, limits: AdmissionLimits, tls: ssl.SSLContext | None = None) -> None:
        self.limits, self.tls = limits, tls
        self.links: list[Echo] = []
        self.asked = 0
        """How many links were asked for."""
        self.heard: list[bytes] = []
        self.opened: list[socket.socket] = []

    async def __aenter__(self) -> House:
        self.arrivals = Arrivals(asyncio.get_running_loop(), self.limits)
        sockets = bind_tcp("127.0.0.1:0", "[listen]").listen()
        self.listener = Listener("tcp", sockets, self.arrivals, tcp_peer_of("tcp", ""), self._open_link, self.tls)
        self.port = int(self.listener.address.rpartition(":")[2])
        return self

    def _open_link(self, peer: Peer, place: Place) -> Echo:
        self.asked += 1
        return Echo(self, peer, place)

    async def __aexit__(self, *_: object) -> None:
        self.listener.close()
        self.arrivals.close()
        for link in self.links:
            link.transport.abort()
        while len(self.arrivals.admission):
            await asyncio.sleep(0)
        for connection in self.opened:
            connection.close()

    async def holds(self, count: int) -> None:
        """Wait until so many connections have a place."""
        while len(self.arrivals.admission) != count:
            await asyncio.sleep(0.001)


class Client:
    """A connection, octet by octet."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.loop = asyncio.get_running_loop()

    async def say(self, data: bytes) -> bytes:
        await self.loop.sock_sendall(self.connection, data)
        heard = b""
        while len(heard) < len(data):
            taken = await self.loop.sock_recv(self.connection, len(data))
            assert taken, "the node has closed the connection"
            heard += taken
        return heard

    async def is_let_go(self) -> bool:
        try:
            while await self.loop.sock_recv(self.connection, 4096):
                pass
        except ConnectionError:
            pass
        self.connection.close()
        return True


async def client_of(house: House, address: str = "127.0.0.1") -> Client:
    connection = socket.socket()
    house.opened.append(connection)
    connection.setblocking(False)
    connection.bind((address, 0))
    await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", house.port))
    return Client(connection)


def limits(count: int = 100, unproven: int = 50, address: int = 50, timeout_ms: int = 60_000) -> AdmissionLimits:
    return AdmissionLimits(count, count, unproven, address, timeout_ms * MS)


@pytest.fixture(params=LOOPS, ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Awaitable[None]], None]:
    def run(story: Awaitable[None]) -> None:
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(asyncio.wait_for(story, 20))

    return run


Run = Callable[[Awaitable[None]], None]


def test_a_connection_that_says_nothing_counts_and_has_no_link_yet(run: Run) -> None:
    async def story() -> None:
        async with House(limits()) as house:
            client = await client_of(house)
            await house.holds(1)
            assert house.links == []
            assert await client.say(b"hello") == b"hello"
            assert len(house.links) == 1
            client.connection.close()
            await house.holds(0)

    run(story())


def test_what_came_while_the_node_was_away_is_read_before_its_sender_is_too_late(run: Run) -> None:
    async def story() -> None:
        async with House(limits(timeout_ms=400)) as house:
            client = await client_of(house)
            await house.holds(1)
            client.connection.send(b"hello")
            time.sleep(1.0)
            assert await client.loop.sock_recv(client.connection, 100) == b"hello"

    run(story())


def test_silence_before_the_tls_handshake_is_counted_and_ends_in_time(run: Run) -> None:
    async def story() -> None:
        tls = server_context(TlsSection(certificate=NODE, key=NODE_KEY))
        async with House(limits(timeout_ms=150), tls) as house:
            silent, halfway = await client_of(house), await client_of(house)
            await halfway.loop.sock_sendall(halfway.connection, b"\x16\x03\x01\x02\x00\x01")
            await house.holds(2)
            assert await silent.is_let_go()
            assert await halfway.is_let_go()
            await house.holds(0)
            assert house.links == []

    run(story())


def test_tls_is_spoken_by_whoever_shakes_hands_and_others_leave_no_place_taken(run: Run) -> None:
    async def story() -> None:
        tls = server_context(TlsSection(certificate=NODE, key=NODE_KEY))
        trust = ssl.create_default_context()
        trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
        async with House(limits(), tls) as house:
            garbled = await client_of(house)
            await garbled.loop.sock_sendall(garbled.connection, b"GET / HTTP/1.1\r\n\r\n")
            assert await garbled.is_let_go()
            reader, writer = await asyncio.open_connection("127.0.0.1", house.port, ssl=trust)
            writer.write(b"proved")
            assert await reader.readexactly(6) == b"proved"
            await house.holds(1)
            writer.close()
            await house.holds(0)

    run(story())


def test_whoever_is_heard_but_proves_nothing_is_let_go_in_time_and_the_proven_stay(run: Run) -> None:
    async def story() -> None:
        async with House(limits(timeout_ms=150)) as house:
            stranger, known = await client_of(house), await client_of(house)
            assert await stranger.say(b"x") == b"x"
            assert await known.say(b"p") == b"p"
            assert await stranger.is_let_go()
            assert await known.say(b"again") == b"again"

    run(story())


def test_a_newcomer_pushes_out_the_oldest_silent_one_of_a_full_address_and_nobody_else(run: Run) -> None:
    async def story() -> None:
        async with House(limits(address=3)) as house:
            other, known = await client_of(house, "127.0.0.2"), await client_of(house)
            assert await known.say(b"p") == b"p"
            crowd = [await client_of(house) for _ in range(3)]
            await house.holds(5)
            late = await client_of(house)
            assert await crowd[0].is_let_go()
            for client in (other, known, *crowd[1:], late):
                assert await client.say(b"here") == b"here"

    run(story())


def test_a_burst_of_one_address_is_taken_up_by_turns_and_another_address_has_the_next(run: Run) -> None:
    async def story() -> None:
        async with House(limits()) as house:
            for source in ("127.0.0.2",) * 20 + ("127.0.0.3",):
                connection = socket.create_connection(("127.0.0.1", house.port), 20, (source, 0))
                house.opened.append(connection)
            while house.arrivals.admission.unproven_count < 21:
                await asyncio.sleep(0)
            for connection in house.opened:
                connection.sendall(b"x")
            while len(house.links) < 21:
                await asyncio.sleep(0)
            assert "127.0.0.3" in [link.peer.address for link in house.links[:2]]

    run(story())


def hung_up(house: House, said: bytes = b"x", source: str = "127.0.0.2", is_reset: bool = False) -> None:
    """Somebody says something, and goes at once."""
    with socket.create_connection(("127.0.0.1", house.port), 20, (source, 0)) as connection:
        connection.sendall(said)
        if is_reset:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def test_who_is_there_waits_behind_nobody_who_has_said_something_and_hung_up(run: Run) -> None:
    async def story() -> None:
        async with House(limits()) as house:
            for _ in range(40):
                hung_up(house)
            living = socket.create_connection(("127.0.0.1", house.port), 20)
            house.opened.append(living)
            living.sendall(b"x")
            while "127.0.0.1" not in [link.peer.address for link in house.links]:
                await asyncio.sleep(0)
            assert len(house.links) < 20
            await house.holds(1)

    run(story())


def test_who_writes_no_more_and_reads_on_is_answered(run: Run) -> None:
    async def story() -> None:
        async with House(limits()) as house:
            for _ in range(10):
                hung_up(house)
            reading = await client_of(house)
            await reading.loop.sock_sendall(reading.connection, b"hello")
            reading.connection.shutdown(socket.SHUT_WR)
            assert await reading.loop.sock_recv(reading.connection, 5) == b"hello"

    run(story())


def test_what_was_said_by_who_has_hung_up_is_heard(run: Run) -> None:
    async def story() -> None:
        async with House(limits()) as house:
            hung_up(house, b"last words")
            while not house.heard:
                await asyncio.sleep(0)
            assert house.heard == [b"last words"]
            await house.holds(0)

    run(story())


def test_who_has_reset_the_connection_costs_no_link(run: Run) -> None:
    async def story() -> None:
        async with House(limits()) as house:
            for _ in range(5):
                hung_up(house, is_reset=True)
            living = await client_of(house)
            assert await living.say(b"x") == b"x"
            await house.holds(1)
            assert len(house.links) == 1

    run(story())


def test_who_has_hung_up_before_a_handshake_costs_none(run: Run) -> None:
    async def story() -> None:
        tls = server_context(TlsSection(certificate=NODE, key=NODE_KEY))
        async with House(limits(), tls) as house:
            for _ in range(5):
                hung_up(house, b"\x16\x03\x01\x02\x00\x01")
            garbled = await client_of(house)
            await garbled.loop.sock_sendall(garbled.connection, b"GET / HTTP/1.1\r\n\r\n")
            assert await garbled.is_let_go()
            await house.holds(0)
            assert house.asked == 1

    run(story())


def test_who_has_hung_up_makes_room_before_who_is_there(run: Run) -> None:
    async def story() -> None:
        async with House(limits(address=4)) as house:
            crowd = [await client_of(house) for _ in range(2)]
            for client in crowd:
                assert await client.say(b"x") == b"x"
            for _ in range(10):
                hung_up(house, source="127.0.0.1")
            for client in crowd:
                assert await client.say(b"here") == b"here"

    run(story())


def test_where_all_places_are_proven_a_newcomer_is_reset(run: Run) -> None:
    async def story() -> None:
        async with House(limits(count=2)) as house:
            known = [await client_of(house) for _ in range(2)]
            for client in known:
                await client.say(b"p")
            with contextlib.suppress(ConnectionResetError):
                assert await (await client_of(house)).is_let_go()
            assert house.arrivals.admission.refused_count == 1
            assert await known[0].say(b"here") == b"here"

    run(story())


# ── Unix ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_unix_socket_is_for_whom_its_mode_lets_in_from_the_first_moment(tmp_path: Path) -> None:
    path = tmp_path / "node.sock"
    for mode in (0o600, 0o660):
        listening = bind_unix(str(path), mode)
        owned = UnixPath(str(path))
        assert path.stat().st_mode & 0o777 == mode
        owned.remove()
        assert not path.exists()
        listening.close()


def test_what_is_no_socket_is_never_taken_away(tmp_path: Path) -> None:
    path = tmp_path / "node.sock"
    path.write_text("precious")
    with pytest.raises(Unavailable, match="not a socket") as refused:
        bind_unix(str(path), 0o600)
    assert refused.value.code == "port-in-use"
    assert path.read_text() == "precious"
    link = tmp_path / "link.sock"
    link.symlink_to(path)
    with pytest.raises(Unavailable):
        bind_unix(str(link), 0o600)
    assert link.is_symlink()


@pytest.mark.parametrize("directory", ["short", "longer than an address takes".ljust(120, "_")])
def test_a_second_node_on_one_path_is_refused_while_the_first_lives(tmp_path: Path, directory: str) -> None:
    path = tmp_path / directory / "node.sock"
    path.parent.mkdir()
    first = bind_unix(str(path), 0o600)
    with pytest.raises(Unavailable, match="another process listens"):
        bind_unix(str(path), 0o600)
    first.close()
    second = bind_unix(str(path), 0o600)
    second.close()


def test_a_path_that_somebody_else_has_taken_over_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "node.sock"
    first = bind_unix(str(path), 0o600)
    owned = UnixPath(str(path))
    path.unlink()
    second = bind_unix(str(path), 0o600)
    owned.remove()
    assert path.exists()
    first.close()
    second.close()


def test_unix_peers_are_told_apart_by_user(tmp_path: Path) -> None:
    path = tmp_path / "node.sock"
    with bind_unix(str(path), 0o600) as listening, socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        with listening.accept()[0] as accepted:
            own = unix_peer_of("unix")(accepted, "")
            assert (own.address, own.principal) == (f"user:{os.geteuid()}", "local")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
def test_a_unix_peer_of_another_user_is_a_principal_of_its_own(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    for parent in tmp_path.parents[:3]:
        parent.chmod(parent.stat().st_mode | 0o011)
    path = tmp_path / "node.sock"

    def connect() -> str:
        os.setuid(65534)
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
        return "connected"

    with bind_unix(str(path), 0o666) as listening:
        # In a child: all threads of a process are the same user, those of other tests' nodes as well.
        assert told_by_child(connect) == "connected"
        listening.setblocking(True)
        with listening.accept()[0] as accepted:
            peer = unix_peer_of("unix")(accepted, "")
    assert (peer.address, peer.principal) == ("user:65534", "unix:nobody")
