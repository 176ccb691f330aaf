"""Silent peers on real sockets, at each listener and by each mechanism: let go in time, and never for the node's own
absence."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.interop.ears import Ear, LibzmqEar, NativeEar, Zeps1Ear, ZmtpEar, listen, over_tcp, over_tls, over_unix
from tests.processes import free_port
from tests.system.serving import ServedNode

pytestmark = pytest.mark.interop

CERTIFICATES = Path(__file__).parents[1] / "runtime" / "certificates"
INTERVAL_S, SILENCE_S = 0.25, 0.8
TIMES = {"LIMITS_HEARTBEAT_INTERVAL": "250ms", "LIMITS_SILENCE_MAX": "800ms"}


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
    for _ in range(3):
        listen(ears, INTERVAL_S)
        scene.served.process.send_signal(signal.SIGSTOP)
        listen(ears, 2 * SILENCE_S)
        scene.served.process.send_signal(signal.SIGCONT)
        listen(ears, 2 * SILENCE_S)
    assert [name for name, ear in zip(peers, ears, strict=True) if not ear.is_open] == []
