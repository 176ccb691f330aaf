"""A link by TLS is told of what waits as one without, and what it wrote last arrives before the end."""

from __future__ import annotations

import asyncio
import gc
import random
import socket
import ssl
import threading
import weakref
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from typing import Any

import pytest
import uvloop

from tests.attack import tls_by_hand as by_hand
from tests.attack.tls_by_hand import client_hello
from tests.certificates import CERTIFICATES
from veredus.node.settings import TlsSection
from veredus.runtime.checks import Checks
from veredus.runtime.security import client_context, server_context
from veredus.runtime.tls_links import (
    HELLO_SIZE_MAX,
    SEALED_SIZE_MAX,
    Phase,
    TlsTransport,
    shake_hands,
)
from veredus.runtime.tls_records import Records
from veredus.runtime.tls_turns import GO_COUNT, READ_SIZE_MAX, TURN_COUNT, Shared

AUTHORITY, NODE, NODE_KEY = (str(CERTIFICATES / name) for name in ("authority.pem", "node.pem", "node.key"))
HIGH, LOW = 1 << 20, 1 << 18
ALERT, CLOSE_NOTIFY = 21, b"\x01\x00"
UNASKED_SIZE_MAX = 4 << 10
"""Less is sent to a peer beside what is written: heads of records, what its session is known by, a goodbye."""
LOOPS: list[Callable[[], asyncio.AbstractEventLoop]] = [asyncio.new_event_loop, uvloop.new_event_loop]
Run = Callable[[Awaitable[None]], None]


@pytest.fixture(params=LOOPS, ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    def run(story: Awaitable[None]) -> None:
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(asyncio.wait_for(story, 30))

    return run


class Link(asyncio.BufferedProtocol):
    """Keeps what comes, and what it is told."""

    def __init__(self) -> None:
        self.memory = memoryview(bytearray(5_000))
        self.heard = bytearray()
        self.pieces: list[int] = []
        self.told: list[str] = []
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, TlsTransport)
        self.transport = transport
        transport.set_write_buffer_limits(HIGH, LOW)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.memory

    def buffer_updated(self, nbytes: int) -> None:
        self.heard += self.memory[:nbytes]
        self.pieces.append(nbytes)

    def pause_writing(self) -> None:
        self.told.append("pause")

    def resume_writing(self) -> None:
        self.told.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set_result(None)


class Curt(Link):
    """Closes its connection when it is given as much as it can take."""

    def buffer_updated(self, nbytes: int) -> None:
        super().buffer_updated(nbytes)
        if nbytes == len(self.memory):
            self.transport.close()


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not is_so():
            await asyncio.sleep(0.005)


async def leaves_nothing(story: Awaitable[weakref.ref[Any]]) -> None:
    """Wait until nobody holds what is left of this, though no garbage is collected."""
    gc.disable()
    try:
        left = await story
        await until(lambda: left() is None)
    finally:
        gc.enable()


def shared() -> Shared:
    loop = asyncio.get_running_loop()
    return Shared(loop, Checks(loop, "handshakes", 1, 1000))


def begun(
    link: Link, tls: TlsSection | None = None, common: Shared | None = None
) -> tuple[asyncio.Task[None], socket.socket]:
    """Have a link shake hands; the socket of its peer, whose system takes little at once."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    for end in (ours, theirs):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
    theirs.settimeout(20)
    context = server_context(tls or TlsSection(certificate=NODE, key=NODE_KEY))
    shaking = shake_hands(link, ours, context, common or shared(), "here", 5.0)
    return asyncio.create_task(shaking), theirs


async def connected(tls: TlsSection | None = None) -> tuple[Link, ssl.SSLSocket]:
    """A link, and the client behind it, whose system takes little at once."""
    link = Link()
    shaking, theirs = begun(link, tls)
    context = client_context(AUTHORITY)
    context.check_hostname = False
    client = await asyncio.to_thread(
        lambda: context.wrap_socket(theirs, suppress_ragged_eofs=False, server_hostname="localhost")
    )
    try:
        await shaking
    except OSError:
        with client:
            # Raises what the client hears of it.
            await asyncio.to_thread(client.recv, 1)
        raise
    return link, client


async def connected_by_hand(link: Link, common: Shared | None = None) -> tuple[socket.socket, by_hand.Half]:
    """The socket of a link's peer, and what seals what the peer says."""
    shaking, theirs = begun(link, common=common)
    said = await asyncio.to_thread(by_hand.shake_hands, theirs)
    await shaking
    return theirs, said


def updates(said: by_hand.Half, count: int) -> bytes:
    """So many updates of keys that ask for as many."""
    return b"".join(said.update(is_asking=True) for _ in range(count))


def raw(there: socket.socket) -> bytes:
    """All that is sent, sealed as it is, until its end."""
    return b"".join(iter(lambda: there.recv(1 << 16), b""))


def read_all(client: ssl.SSLSocket) -> bytes:
    return b"".join(iter(lambda: client.recv(1 << 16), b""))


def test_what_was_written_arrives_in_order_and_then_a_goodbye(run: Run) -> None:
    dice = random.Random(3)
    buffers = [dice.randbytes(dice.choice((0, 1, 100, 16_384, 16_385, 300_000))) for _ in range(60)]

    async def go() -> None:
        link, client = await connected()
        with client:
            for start in range(0, len(buffers), 7):
                link.transport.writelines(buffers[start : start + 7])
            link.transport.close()
            link.transport.write(b"nothing more")
            # With ragged ends not passed over, an end without a goodbye would raise.
            assert await asyncio.to_thread(read_all, client) == b"".join(buffers)
            client.close()
            await link.lost

    run(go())


def test_what_nobody_reads_waits_as_it_was_given_and_is_counted(run: Run) -> None:
    async def go() -> None:
        link, client = await connected()
        with client:
            body = bytes(4 << 20)
            link.transport.writelines((body, body))
            await until(lambda: link.told == ["pause"])
            size = link.transport.get_write_buffer_size()
            assert 2 * len(body) - SEALED_SIZE_MAX <= size <= 2 * len(body) + SEALED_SIZE_MAX
            assert len(body) < sum(map(len, link.transport._waiting)) <= 2 * len(body)
            left = 2 * len(body)
            while left:
                left -= len(await asyncio.to_thread(client.recv, 1 << 16))
            await until(lambda: link.told == ["pause", "resume"])
            assert link.transport.get_write_buffer_size() == 0
            link.transport.abort()
            await link.lost

    run(go())


def test_who_is_not_read_from_can_send_little_and_all_of_it_comes_later(run: Run) -> None:
    async def go() -> None:
        link, client = await connected()
        with client:
            link.transport.pause_reading()
            said = random.Random(5).randbytes(2 << 20)
            saying = asyncio.create_task(asyncio.to_thread(client.sendall, said))
            await asyncio.sleep(0.2)
            assert not saying.done()
            assert not link.heard
            assert link.transport._incoming.pending <= 2 * READ_SIZE_MAX
            link.transport.resume_reading()
            await saying
            await until(lambda: len(link.heard) == len(said))
            assert bytes(link.heard) == said
            await asyncio.to_thread(client.unwrap)
            await link.lost

    run(go())


def test_who_goes_without_a_goodbye_is_gone_and_gets_what_was_written(run: Run) -> None:
    async def go() -> None:
        link, client = await connected()
        with client:
            link.transport.write(b"last words")
            client.sendall(b"first words")
            socket.socket.shutdown(client, socket.SHUT_WR)
            assert await asyncio.to_thread(read_all, client) == b"last words"
            await link.lost
            assert bytes(link.heard) == b"first words"

    run(go())


def test_a_peer_hears_why_its_handshake_failed(run: Run) -> None:
    async def go() -> None:
        tls = TlsSection(certificate=NODE, key=NODE_KEY, client_authorities=AUTHORITY, client_certificates="required")
        with pytest.raises(ssl.SSLError, match="alert certificate required"):
            await connected(tls)

    run(go())


@pytest.mark.parametrize("said", [b"\xaa", b"GET / HTTP/1.1\r\n\r\n", b"\xff" + bytes(9)])
def test_who_begins_without_tls_is_answered_by_an_alert_at_once(run: Run, said: bytes) -> None:
    async def go() -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        context = server_context(TlsSection(certificate=NODE, key=NODE_KEY))
        with theirs:
            theirs.sendall(said)
            with pytest.raises(ConnectionAbortedError, match=f"begin with TLS, not with {said[0]:02X}"):
                await shake_hands(Link(), ours, context, shared(), "here", 60)
            # RFC 8446, section 6.2: a fatal alert, protocol_version.
            assert await asyncio.to_thread(read_all, theirs) == b"\x15\x03\x03\x00\x02\x02\x46"

    run(go())


def test_a_handshake_has_its_time(run: Run) -> None:
    async def go() -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        context = server_context(TlsSection(certificate=NODE, key=NODE_KEY))
        with theirs, pytest.raises(ConnectionAbortedError, match="in time"):
            await shake_hands(Link(), ours, context, shared(), "here", 0.05)
        theirs.close()

    run(go())


def test_of_records_that_bring_little_few_are_opened_at_a_time(run: Run) -> None:
    count, size = 20_000, 1 << 20

    async def go() -> None:
        link, client = await connected()
        with client:
            await asyncio.to_thread(lambda: [client.send(b"x") for _ in range(count)])
            await until(lambda: len(link.heard) == count)
            assert max(link.pieces) <= GO_COUNT
            # What brings much is read as before.
            await asyncio.to_thread(client.sendall, bytes(size))
            await until(lambda: len(link.heard) == count + size)
            assert max(link.pieces[-10:]) == len(link.memory)
        await link.lost

    run(go())


def test_what_comes_behind_our_goodbye_is_not_answered_and_what_was_written_arrives(run: Run) -> None:
    written = random.Random(7).randbytes(1 << 20)

    async def go() -> None:
        link = Link()
        theirs, said = await connected_by_hand(link)
        with theirs:
            link.transport.write(written)
            link.transport.close()
            asking = asyncio.create_task(asyncio.to_thread(theirs.sendall, updates(said, 4_000)))
            # The peer is slow to read: its system takes no more for now.
            await asyncio.sleep(0.1)
            heard = await asyncio.to_thread(raw, theirs)
            assert 0 < len(heard) - len(written) < UNASKED_SIZE_MAX
            await asking
            assert not link.lost.done()
            theirs.shutdown(socket.SHUT_WR)
            await link.lost

    run(go())


def test_what_came_before_our_goodbye_and_was_not_opened_is_not_answered_either(run: Run) -> None:
    async def go() -> None:
        link = Curt()
        theirs, said = await connected_by_hand(link)
        with theirs:
            theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
            # What brings much is read much at a time.
            theirs.sendall(said.seal(by_hand.SEALED, bytes(1_000)))
            await until(lambda: bool(link.heard))
            theirs.sendall(said.seal(by_hand.SEALED, bytes(len(link.memory))) + updates(said, 4_000))
            assert 0 < len(await asyncio.to_thread(raw, theirs)) < UNASKED_SIZE_MAX
        await link.lost

    run(go())


class LoopTurns:
    """Counts the turns of a loop."""

    def __init__(self) -> None:
        self.count = 0
        self._count()

    def _count(self) -> None:
        self.count += 1
        asyncio.get_running_loop().call_soon(self._count)


async def many(held: ExitStack, count: int) -> tuple[list[Link], list[socket.socket], list[by_hand.Half]]:
    """Links that share their turns, and their peers, whose systems take much at once."""
    links, common = [Link() for _ in range(count)], shared()
    peers, said = zip(*[await connected_by_hand(link, common) for link in links], strict=True)
    for link, peer in zip(links, peers, strict=True):
        held.enter_context(peer)
        for end in (peer, link.transport.get_extra_info("socket")):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    return links, list(peers), list(said)


def test_many_that_change_their_keys_at_once_hold_up_nobody_for_longer_than_a_round(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, update_count, opened_at = 40, 1_000, list[int]()
    take = Records.take
    turns: LoopTurns

    def taken(records: Records, data: memoryview, count_max: int) -> tuple[int, int]:
        size, count = take(records, data, count_max)
        opened_at.extend([turns.count] * count)
        return size, count

    async def go() -> None:
        nonlocal turns
        turns = LoopTurns()
        with ExitStack() as held:
            links, peers, said = await many(held, count + 1)
            # What brings much is read much at a time.
            for peer, sealer in zip(peers, said, strict=True):
                peer.sendall(sealer.seal(by_hand.SEALED, bytes(1_000)))
            await until(lambda: all(len(link.heard) == 1_000 for link in links))
            *others, neighbour = peers
            floods = [updates(sealer, update_count) for sealer in said[:-1]]
            # All of it is there before the loop reads the first.
            for peer, flood in zip(others, floods, strict=True):
                peer.sendall(flood)
            neighbour.sendall(said[-1].seal(by_hand.SEALED, b"here"))
            opened_at.clear()
            came_at = turns.count
            while len(links[-1].heard) == 1_000:
                await asyncio.sleep(0)
            # In the turn in which all come, the first have a go, and wait before the others for the next.
            assert turns.count - came_at <= 3 + -(-count * GO_COUNT // TURN_COUNT)
            await until(lambda: len(opened_at) == count * update_count + 1)

    monkeypatch.setattr(Records, "take", taken)
    run(go())
    assert max(map(opened_at.count, set(opened_at))) <= TURN_COUNT + GO_COUNT


def test_those_that_say_much_behind_our_goodbye_are_read_from_in_turns_of_a_line(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, size, read_at = 40, 1 << 20, list[int]()
    update = TlsTransport.buffer_updated
    turns: LoopTurns

    def updated(transport: TlsTransport, nbytes: int) -> None:
        if transport._phase is Phase.LEAVING:
            read_at.append(turns.count)
        update(transport, nbytes)

    async def go() -> None:
        nonlocal turns
        turns = LoopTurns()
        with ExitStack() as held:
            links, peers, _ = await many(held, count)
            for link, peer in zip(links, peers, strict=True):
                link.transport.close()
                await asyncio.to_thread(raw, peer)
            await asyncio.gather(*(asyncio.to_thread(peer.sendall, bytes(size)) for peer in peers))
        for link in links:
            await link.lost

    monkeypatch.setattr(TlsTransport, "buffer_updated", updated)
    run(go())
    assert len(read_at) >= count * size // READ_SIZE_MAX
    # The first of each comes of all of them at once.
    assert max(map(read_at.count, set(read_at))) <= TURN_COUNT // GO_COUNT + count
    assert len(read_at) <= len(set(read_at)) * TURN_COUNT // GO_COUNT + count


@pytest.mark.parametrize("how", ["gone", "late"])
def test_who_has_gone_or_is_late_before_its_turn_costs_no_step_of_a_handshake(run: Run, how: str) -> None:
    async def go() -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        context = server_context(TlsSection(certificate=NODE, key=NODE_KEY))
        common, may_go_on = shared(), threading.Event()
        common.steps.ask("there", lambda: may_go_on.wait(20), lambda _: None, lambda: True)
        with theirs:
            theirs.sendall(record(client_hello(bytes(range(32)))))
            timeout_s = 0.05 if how == "late" else 20.0
            shaking = asyncio.create_task(shake_hands(Link(), ours, context, common, "here", timeout_s))
            if how == "gone":
                await asyncio.sleep(0.05)
                theirs.shutdown(socket.SHUT_WR)
                may_go_on.set()
            with pytest.raises(ConnectionError, match="gone" if how == "gone" else "in time"):
                await shaking
            may_go_on.set()
            assert await asyncio.to_thread(theirs.recv, 1) == b"", "it was told nothing"

    run(go())


def test_a_handshake_that_failed_leaves_nothing_behind(run: Run) -> None:
    async def go() -> weakref.ref[Link]:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        context = server_context(TlsSection(certificate=NODE, key=NODE_KEY))
        link = Link()
        left = weakref.ref(link)
        theirs.close()
        with pytest.raises(ConnectionError):
            await shake_hands(link, ours, context, shared(), "here", 20)
        return left

    run(leaves_nothing(go()))


def record(body: bytes) -> bytes:
    return b"\x16\x03\x01" + len(body).to_bytes(2, "big") + body


@pytest.mark.parametrize(
    "said",
    [
        record(b"\x01" + (HELLO_SIZE_MAX + 1).to_bytes(3, "big") + bytes(2)),
        record(b"\x01") + record((HELLO_SIZE_MAX + 1).to_bytes(3, "big")),
    ],
    ids=["too large", "in small pieces"],
)
@pytest.mark.parametrize("cut", [1, 5, 100])
def test_a_hello_that_says_that_it_will_be_large_is_not_waited_for(run: Run, said: bytes, cut: int) -> None:
    async def go() -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        context = server_context(TlsSection(certificate=NODE, key=NODE_KEY))
        with theirs:
            shaking = asyncio.create_task(shake_hands(Link(), ours, context, shared(), "here", 20))
            with suppress(BrokenPipeError):
                # It is closed as soon as it is known.
                for start in range(0, len(said), cut):
                    theirs.send(said[start : start + cut])
                    await asyncio.sleep(0)
            with pytest.raises(ConnectionAbortedError, match="ClientHello"):
                await shaking

    run(go())


def test_what_a_peer_sends_behind_its_own_goodbye_is_not_kept_while_it_reads_nothing(run: Run) -> None:
    async def go() -> None:
        link = Link()
        theirs, said = await connected_by_hand(link)
        with theirs:
            link.transport.write(bytes(4 << 20))
            theirs.sendall(said.seal(ALERT, CLOSE_NOTIFY))
            await until(lambda: link.transport.is_closing())
            theirs.settimeout(0.2)
            sending = asyncio.create_task(asyncio.to_thread(theirs.sendall, bytes(16 << 20)))
            with pytest.raises(TimeoutError):
                await sending
            assert link.transport._incoming.pending + len(link.transport._unopened) <= READ_SIZE_MAX
            link.transport.abort()
        await link.lost

    run(go())


@pytest.mark.parametrize("how", ["goodbye", "gone", "abandoned"])
def test_a_connection_that_is_gone_leaves_nothing_behind(run: Run, how: str) -> None:
    async def go() -> weakref.ref[TlsTransport]:
        link = Link()
        theirs, said = await connected_by_hand(link)
        with theirs:
            link.transport.write(bytes(4 << 20))
            if how == "goodbye":
                theirs.sendall(said.seal(ALERT, CLOSE_NOTIFY))
                await until(lambda: link.transport.is_closing())
            if how != "gone":
                link.transport.abort()
        await link.lost
        return weakref.ref(link.transport)

    run(leaves_nothing(go()))


def test_who_ends_first_and_reads_on_gets_the_goodbye_behind_an_answer_of_any_size(run: Run) -> None:
    async def go() -> None:
        for count in range(1, 25):
            link, client = await connected()
            with client:
                link.transport.write(bytes(count << 14))
                socket.socket.shutdown(client, socket.SHUT_WR)
                await until(link.transport.is_closing)
                # Where it ended without a goodbye, to read would raise.
                assert len(await asyncio.to_thread(read_all, client)) == count << 14
            await link.lost

    run(go())
