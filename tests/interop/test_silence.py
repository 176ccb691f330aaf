"""Silent peers on real sockets, at each listener and by each mechanism: let go in time, and never for the node's own
absence."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import veredus
from tests.interop.ears import (
    Ear,
    LibzmqEar,
    NativeEar,
    StreamEar,
    Zeps1Ear,
    ZmtpEar,
    listen,
    over_tcp,
    over_tls,
    over_unix,
)
from tests.processes import free_port
from tests.system.serving import ServedNode

pytestmark = pytest.mark.interop

CERTIFICATES = Path(__file__).parents[1] / "runtime" / "certificates"
LONG_SIZE, BODY_SIZE, ROOM_SIZE = 12 << 20, 8 << 10, 16 << 10
PIECE_SIZE = 8_000
INTERVAL_S, SILENCE_S = 0.5, 2.0
TIMES = {"LIMITS_HEARTBEAT_INTERVAL": "500ms", "LIMITS_SILENCE_MAX": "2s"}


class Open:
    """A node whose peers on loopback prove nothing, with each listener that there is."""

    def __init__(self, directory: Path) -> None:
        self.tls, self.zeromq = f"127.0.0.1:{free_port()}", f"tcp://127.0.0.1:{free_port()}"
        self.topics, self.unix = f"127.0.0.1:{free_port()}", str(directory / "socket")
        settings = {
            "LISTEN_UNIX": self.unix,
            "LISTEN_TLS": self.tls,
            "LISTEN_ZEROMQ": self.zeromq,
            "TOPICS_LISTEN": self.topics,
            "TLS_CERTIFICATE": str(CERTIFICATES / "node.pem"),
            "TLS_KEY": str(CERTIFICATES / "node.key"),
        }
        self.served = ServedNode(directory / "journal", {**settings, **TIMES})
        self.served.start().close()
        self._fill()

    def peers(self) -> dict[str, Callable[[], Ear]]:
        tcp, authority = f"127.0.0.1:{self.served.port}", CERTIFICATES / "authority.pem"
        return {
            "native over TCP": lambda: NativeEar(over_tcp(tcp)),
            "native over TLS": lambda: NativeEar(over_tls(self.tls, authority)),
            "native over Unix": lambda: NativeEar(over_unix(self.unix)),
            "ZEPS 1 over TCP": lambda: Zeps1Ear(over_tcp(tcp)),
            "ZEPS 1 over TLS": lambda: Zeps1Ear(over_tls(self.tls, authority)),
            "ZEPS 1 over Unix": lambda: Zeps1Ear(over_unix(self.unix)),
            "ZEPS 1 over ZMTP": lambda: ZmtpEar(over_tcp(self.zeromq), attaches=True),
            "ZEPS 1 over libzmq": lambda: LibzmqEar(self.zeromq),
            "topics": lambda: ZmtpEar(over_tcp(self.topics), attaches=False),
        }

    def readers(self) -> dict[str, Callable[[], StreamEar]]:
        tcp, authority = f"127.0.0.1:{self.served.port}", CERTIFICATES / "authority.pem"
        return {
            "native over TCP": lambda: NativeEar(over_tcp(tcp, ROOM_SIZE)),
            "native over TLS": lambda: NativeEar(over_tls(self.tls, authority, ROOM_SIZE)),
            "native over Unix": lambda: NativeEar(over_unix(self.unix)),
            "ZEPS 1 over TCP": lambda: Zeps1Ear(over_tcp(tcp, ROOM_SIZE)),
            "ZEPS 1 over TLS": lambda: Zeps1Ear(over_tls(self.tls, authority, ROOM_SIZE)),
            "ZEPS 1 over Unix": lambda: Zeps1Ear(over_unix(self.unix)),
            "ZEPS 1 over ZMTP": lambda: ZmtpEar(over_tcp(self.zeromq, ROOM_SIZE), attaches=True),
        }

    def _fill(self) -> None:
        """Publish what takes long to read."""
        with veredus.connect(self.served.address) as node, node.publisher("long") as publisher:
            for _ in range(LONG_SIZE // BODY_SIZE + 2):
                last = publisher.publish("k", os.urandom(BODY_SIZE))
            publisher.wait(last)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Open]:
    scene = Open(tmp_path_factory.mktemp("open"))
    yield scene
    scene.served.kill()


@pytest.fixture
def ears() -> Iterator[list[Ear]]:
    ears: list[Ear] = []
    yield ears
    for ear in ears:
        ear.close()


def test_nobody_is_closed_for_silence_by_a_node_that_was_stopped_for_longer(scene: Open, ears: list[Ear]) -> None:
    peers = scene.peers()
    ears += [peer() for peer in peers.values()]
    assert scene.served.process is not None
    for _ in range(2):
        listen(ears, INTERVAL_S)
        scene.served.process.send_signal(signal.SIGSTOP)
        listen(ears, 1.5 * SILENCE_S)
        scene.served.process.send_signal(signal.SIGCONT)
        listen(ears, 1.5 * SILENCE_S)
    assert [name for name, ear in zip(peers, ears, strict=True) if not ear.is_open] == []


@pytest.mark.parametrize("credit", [2 << 20, LONG_SIZE], ids=["what the node hands over", "more than it hands over"])
def test_who_reads_slowly_and_steadily_stays_and_who_reads_nothing_is_let_go(
    scene: Open, ears: list[Ear], credit: int
) -> None:
    slow = {name: reader() for name, reader in scene.readers().items()}
    stuck = {name: reader() for name, reader in scene.readers().items()}
    ears += [*slow.values(), *stuck.values()]
    for reader in (*slow.values(), *stuck.values()):
        reader.subscribe(credit)
    end_s = time.monotonic() + 3 * SILENCE_S
    while time.monotonic() < end_s:
        for reader in slow.values():
            reader.read(PIECE_SIZE)
        time.sleep(0.1)
    with ThreadPoolExecutor(len(slow)) as threads:
        list(threads.map(lambda reader: reader.read_all(credit), slow.values()))
    assert [name for name, reader in slow.items() if reader.size < credit] == []
    time.sleep(SILENCE_S)
    for reader in stuck.values():
        reader.read_all(2 * credit)
    assert [name for name, reader in stuck.items() if reader.is_open] == []
