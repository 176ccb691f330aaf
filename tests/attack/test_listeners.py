"""Whoever holds connections, begins frames or reads nothing keeps nobody else out, and takes bounded memory."""

from __future__ import annotations

import contextlib
import http.client
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

import veredus
from tests.attack.figures import Figures
from tests.attack.neighbour import neighbour, resident_size
from tests.attack.tls_by_hand import client_hello, record_of
from tests.certificates import CERTIFICATES
from tests.interop.ears import LibzmqEar, StreamEar, Zeps1Ear, ZmtpEar, listen, over_tcp
from tests.processes import Child, free_port
from tests.protocols.zmtp.by_hand import command, greeting
from tests.system.serving import ServedNode
from veredus.protocols.zeps import frames, native
from veredus.protocols.zeps import messages as m
from veredus.runtime.security import add_token, client_context

MIB = 1 << 20
GREETING = frames.encode_attach("", 2) + native.encode_message(0, m.Hello())
ROOT = Path(__file__).parent.parent.parent


@contextmanager
def holding(
    source: str, port: int, count: int, seconds: float, said: bytes = b"", rest: bytes = b"", zeros: int = 0
) -> Iterator[None]:
    """An attacker at work in a process of its own."""
    arguments = [source, str(port), str(count), str(seconds), said.hex(), rest.hex(), str(zeros)]
    with Child(
        [sys.executable, "-m", "tests.attack.holding", *arguments], cwd=ROOT, stdout=subprocess.PIPE
    ) as attacker:
        assert attacker.stdout is not None
        attacker.stdout.readline()
        yield


def pid_of(served: ServedNode) -> int:
    assert served.process is not None
    return served.process.pid


class Guarded:
    """A node that asks who comes, and how a victim with a token gets in at one of its doors."""

    def __init__(self, directory: Path, door: str, more: Mapping[str, str]) -> None:
        settings = directory / "veredus.toml"
        settings.write_text(
            f'[security]\ntokens = "{directory / "tokens"}"\n[[security.rules]]\nprincipal = "*"\nmay = ["*"]\n'
        )
        self._door = door
        self._token, _ = add_token(directory / "tokens", "victim")
        doors = {"LISTEN_TLS": f"127.0.0.1:{free_port()}", "LISTEN_ZEROMQ": f"tcp://127.0.0.1:{free_port()}"}
        pair = {"TLS_CERTIFICATE": str(CERTIFICATES / "node.pem"), "TLS_KEY": str(CERTIFICATES / "node.key")}
        self.served = ServedNode(directory / "journal", {"SETTINGS": str(settings), **doors, **pair, **more})
        addresses = {"tcp": self.served.address, "tls": doors["LISTEN_TLS"], "zeromq": doors["LISTEN_ZEROMQ"]}
        self._address = addresses[door]
        self.port = int(self._address.rpartition(":")[2])

    def start(self) -> None:
        self.served.start(self._token).close()

    def let_in(self) -> None:
        """The victim comes, is welcome, and goes."""
        if self._door == "zeromq":
            LibzmqEar(self._address, {"PLAIN_USERNAME": b"victim", "PLAIN_PASSWORD": self._token.encode()}).close()
        elif self._door == "tls":
            tls = client_context(str(CERTIFICATES / "authority.pem"))
            address = f"veredus+tls://localhost:{self.port}"
            veredus.connect(address, token=self._token, tls=tls, timeout_s=10).close()
        else:
            veredus.connect(self._address, token=self._token, timeout_s=10).close()

    def letting_in_ms(self, count: int, seconds: float) -> list[float]:
        """How long each of `count` visits took, one after the other over so many seconds."""
        took = []
        for _ in range(count):
            time.sleep(seconds / count)
            began = time.perf_counter()
            self.let_in()
            took.append((time.perf_counter() - began) * 1000)
        return sorted(took)


@pytest.mark.parametrize(
    ("door", "source", "whose"),
    [
        ("tcp", "127.0.0.2", "another address"),
        ("tcp", "127.0.0.1", "the same address"),
        ("tls", "127.0.0.1", "the same address, over TLS"),
        ("zeromq", "127.0.0.1", "the same address, over ZeroMQ"),
    ],
)
def test_a_victim_connects_though_thousands_of_unproven_connections_come_again_and_again(
    tmp_path: Path, figures: Figures, is_full: bool, door: str, source: str, whose: str
) -> None:
    guarded = Guarded(tmp_path, door, {} if is_full else {"LIMITS_CONNECTIONS_UNPROVEN_PER_ADDRESS_MAX": "50"})
    served = guarded.served
    try:
        guarded.start()
        count, seconds = (10_000, 20) if is_full else (200, 2)
        with holding(source, guarded.port, count, seconds):
            took = guarded.letting_in_ms(40 if is_full else 5, seconds / 2)
        attack = figures.attack(
            f"unproven connections again and again, a victim of {whose}", f"{count:,} every 5 s, {len(took)} victims"
        )
        attack.record("victims let in", len(took), bound="all")
        attack.record("connecting, median", took[len(took) // 2], "ms")
        attack.record("connecting, worst", took[-1], "ms")
        attack.record("resident", resident_size(pid_of(served)) / MIB, "MiB", "at most 200 MiB")
        assert resident_size(pid_of(served)) < 200 * MIB
    finally:
        served.kill()


HANGS_UP = {
    "tcp": frames.encode_attach("", 2) + native.encode_message(0, m.Hello(token="veredus_00000000_" + "A" * 43)),
    "tls": record_of(client_hello(bytes(range(32)))),
    "zeromq": greeting(b"PLAIN") + command(b"HELLO", b"\x01x\x3cveredus_00000000_" + b"A" * 43),
}
"""What costs a node something at each of its doors, and needs no answer to be said."""


@pytest.mark.parametrize("door", HANGS_UP)
def test_a_newcomer_waits_behind_nobody_who_says_something_and_hangs_up(
    tmp_path: Path, figures: Figures, is_full: bool, door: str
) -> None:
    guarded = Guarded(tmp_path, door, {})
    served = guarded.served
    try:
        guarded.start()
        addresses, seconds, count = (300, 20, 40) if is_full else (50, 0.5, 3)
        arguments = [str(guarded.port), str(addresses), str(seconds), HANGS_UP[door].hex()]
        with Child(
            [sys.executable, "-m", "tests.attack.hanging_up", *arguments], cwd=ROOT, stdout=subprocess.PIPE
        ) as attacker:
            assert attacker.stdout is not None
            attacker.stdout.readline()
            took = guarded.letting_in_ms(count, seconds / 2)
            came = int(attacker.communicate()[0])
        attack = figures.attack(
            f"strangers that say something and hang up, {door}",
            f"{addresses} addresses, {seconds:g} s, {count} victims",
        )
        attack.record("connections", came)
        attack.record("victims let in", len(took), bound="all")
        attack.record("connecting, median", took[len(took) // 2], "ms")
        attack.record("connecting, worst", took[-1], "ms")
        attack.record("resident", resident_size(pid_of(served)) / MIB, "MiB", "at most 200 MiB")
        assert resident_size(pid_of(served)) < 200 * MIB
    finally:
        served.kill()


def is_alive(port: int) -> bool:
    """Whether a health check is answered."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/livez")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def test_held_metrics_connections_keep_no_health_check_out(
    served: ServedNode, tmp_path: Path, figures: Figures, is_full: bool
) -> None:
    port = free_port()
    served = ServedNode(tmp_path / "journal", {"LISTEN_METRICS": f"127.0.0.1:{port}"})
    served.start().close()
    try:
        checks, alive, at_once, count = 20, 0, 0, 2_000 if is_full else 64
        with holding("127.0.0.1", port, count, 8 if is_full else 1, b"GET /metrics HTTP/1.1\r\n"):
            for _ in range(checks):
                tries = next((number for number in range(1, 4) if is_alive(port)), 0)
                alive += tries > 0
                at_once += tries == 1
        attack = figures.attack("connections for metrics held", f"{count:,}, {checks} health checks")
        attack.record("alive at once", at_once)
        attack.record("alive within three tries", alive, bound="all")
        assert alive == checks
    finally:
        served.kill()


@pytest.mark.parametrize(("held_count", "descriptors_max"), [(32, 0), (300, 0), (32, 256), (300, 256)])
def test_each_health_check_is_answered_at_once_beside_so_many_held_connections(
    tmp_path: Path, held_count: int, descriptors_max: int
) -> None:
    port = free_port()
    served = ServedNode(tmp_path / "journal", {"LISTEN_METRICS": f"127.0.0.1:{port}"}, descriptors_max)
    served.start().close()
    held = []
    try:
        for number in range(held_count):
            held.append(socket.create_connection(("127.0.0.1", port), timeout=10))
            if number % 2:
                held[-1].sendall(b"GET /metrics HTTP/1.1\r\n")
        assert [is_alive(port) for _ in range(20)] == [True] * 20
    finally:
        for connection in held:
            connection.close()
        served.kill()


def test_begun_frames_take_bounded_memory_and_a_neighbour_goes_on(
    tmp_path: Path, figures: Figures, is_full: bool
) -> None:
    count, size, begun_size = (146, 20 * MIB, 19 * MIB) if is_full else (24, 17 * MIB, 3 * MIB)
    limits = {} if is_full else {"LIMITS_RECEIVE_SIZE_MAX": "40 MiB", "LIMITS_FRAME_SIZE_MAX": "18 MiB"}
    served = ServedNode(tmp_path / "journal", limits)
    served.start().close()
    try:
        before = resident_size(pid_of(served))
        head = size.to_bytes(4, "little") + bytes((200, 0, 1, 0))
        with (
            neighbour(served.address) as felt,
            holding("127.0.0.1", served.port, count, 8 if is_full else 2, GREETING, head, begun_size),
        ):
            peak, answered = 0, len(felt.trips_ms)
            end_s = time.monotonic() + (8 if is_full else 1.5)
            while time.monotonic() < end_s:
                peak = max(peak, resident_size(pid_of(served)))
                time.sleep(0.02)
            assert len(felt.trips_ms) > answered + 10
        bound = (2 * 256 if is_full else 2 * 40) * MIB
        attack = figures.attack(
            "frames that are begun and left", f"{count} links, {begun_size // MIB} of {size // MIB} MiB each"
        )
        attack.record("growth", (peak - before) / MIB, "MiB", f"at most {bound // MIB} MiB")
        attack.record_felt(felt)
        assert peak - before < bound
    finally:
        served.kill()


def test_a_peer_that_reads_no_answers_is_not_read_from(served: ServedNode, figures: Figures, is_full: bool) -> None:
    count, seconds = (1_000, 10) if is_full else (100, 1.5)
    with served.start() as node:
        for number in range(count):
            node.streams.create(f"stream-{number}")
    before = resident_size(pid_of(served))
    request = native.encode_message(0, m.Request(1, "stream.list"))
    peak, sent, rest = before, 0, b""
    with neighbour(served.address) as felt, socket.create_connection(("127.0.0.1", served.port)) as greedy:
        greedy.sendall(GREETING)
        assert greedy.recv(3, socket.MSG_WAITALL) == frames.ATTACH_OK
        assert greedy.recv(native.HEAD_SIZE, socket.MSG_WAITALL)[4] == native.Kind.WELCOME
        greedy.setblocking(False)
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            rest = rest or request * 25
            with contextlib.suppress(BlockingIOError):
                taken = greedy.send(rest)
                rest, sent = rest[taken:], sent + taken
            peak = max(peak, resident_size(pid_of(served)))
            time.sleep(0.005)
    attack = figures.attack("stream.list again and again, answers unread", f"{count:,} streams, {seconds:g} s")
    attack.record("requests taken", sent / len(request))
    attack.record("growth", (peak - before) / MIB, "MiB", "at most 64 MiB")
    attack.record_felt(felt)
    assert peak - before < 64 * MIB


@pytest.mark.parametrize("way", ["TCP", "ZeroMQ"])
def test_version_1_peers_that_say_nothing_more_give_their_places_back(
    tmp_path: Path, figures: Figures, is_full: bool, way: str
) -> None:
    count = 1_000 if is_full else 40
    settings = {"CONNECTIONS_PER_PRINCIPAL_MAX": str(count), "HEARTBEAT_INTERVAL": "200ms", "SILENCE_MAX": "600ms"}
    zeromq = f"tcp://127.0.0.1:{free_port()}"
    limits = {f"LIMITS_{name}": value for name, value in settings.items()}
    served = ServedNode(tmp_path / "journal", {"LISTEN_ZEROMQ": zeromq, **limits})
    served.start().close()
    address = zeromq if way == "ZeroMQ" else f"127.0.0.1:{served.port}"
    idle: list[StreamEar] = []

    def come() -> StreamEar:
        idle.append(ZmtpEar(over_tcp(address), attaches=True) if way == "ZeroMQ" else Zeps1Ear(over_tcp(address)))
        idle[-1].is_lively = False
        return idle[-1]

    try:
        for _ in range(count):
            come()
        end_s = time.monotonic() + 15
        while any(ear.is_open for ear in idle) and time.monotonic() < end_s:
            listen(idle, 0.1)
        heard = sum(ear.ping_count > 0 and ear.was_detached and not ear.is_open for ear in idle)
        assert come().is_open, "there is room again"
        veredus.connect(served.address, timeout_s=5).close()
        attack = figures.attack(f"peers of version 1 over {way} that vanish", f"{count:,}")
        attack.record("pinged and let go", heard, bound="all")
        assert heard == count
    finally:
        for ear in idle:
            ear.close()
        served.kill()


def test_who_comes_with_many_connections_that_greet_at_once_pushes_out_none_of_its_own(served: ServedNode) -> None:
    limits = {"LIMITS_CONNECTIONS_PER_PRINCIPAL_MAX": "10000", "LIMITS_CONNECTIONS_UNPROVEN_PER_ADDRESS_MAX": "200"}
    served = ServedNode(served.directory, limits)
    served.start().close()
    come = []
    try:
        for _ in range(1_000):
            connection = socket.create_connection(("127.0.0.1", served.port))
            connection.sendall(GREETING)
            come.append(connection)
        for connection in come:
            connection.settimeout(10)
            assert connection.recv(3) == frames.ATTACH_OK
    finally:
        for connection in come:
            connection.close()
        served.kill()


def test_idle_links_hold_no_buffers(served: ServedNode, figures: Figures, is_full: bool) -> None:
    served = ServedNode(served.directory, {"LIMITS_CONNECTIONS_PER_PRINCIPAL_MAX": "10000"})
    served.start().close()
    count = 4_500 if is_full else 200
    before = resident_size(pid_of(served))
    idle = []
    try:
        for _ in range(count):
            connection = socket.create_connection(("127.0.0.1", served.port))
            connection.sendall(GREETING)
            idle.append(connection)
        for connection in idle:
            connection.settimeout(10)
            assert connection.recv(3) == frames.ATTACH_OK
        grown = (resident_size(pid_of(served)) - before) / count
        attack = figures.attack("links that are idle", f"{count:,}")
        attack.record("growth, each", grown / 1024, "KiB", "at most 64 KiB")
        assert grown < 64 * 1024
    finally:
        for connection in idle:
            connection.close()
        served.kill()
