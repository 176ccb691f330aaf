"""Who has a node use its private key again and again holds up no other address, no health check, and no stop."""

from __future__ import annotations

import signal
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.attack.figures import Figures
from tests.attack.neighbour import neighbour, resident_size
from tests.attack.tls_by_hand import client_hello, record_of
from tests.certificates import CERTIFICATES
from tests.processes import free_port
from tests.system.serving import ServedNode

HELLO = record_of(client_hello(bytes(range(32))))
ATTACKER = "127.0.0.2"


class Attacked(ServedNode):
    """A node whose private key is a large one: each handshake costs some 7 ms."""

    def __init__(self, directory: Path) -> None:
        """Not started yet."""
        self.tls_port, self.metrics_port = free_port(), free_port()
        settings = {
            "LISTEN_TLS": f"127.0.0.1:{self.tls_port}",
            "LISTEN_METRICS": f"127.0.0.1:{self.metrics_port}",
            "TLS_CERTIFICATE": str(CERTIFICATES / "large.pem"),
            "TLS_KEY": str(CERTIFICATES / "large.key"),
        }
        super().__init__(directory, settings)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Attacked]:
    served = Attacked(tmp_path / "journal")
    served.start().close()
    yield served
    if served.process is not None:
        served.kill()


@contextmanager
def burst(port: int, count: int) -> Iterator[list[socket.socket]]:
    """Connections that have all said the same ClientHello at once."""
    with ExitStack() as held:
        strangers = [
            held.enter_context(socket.create_connection(("127.0.0.1", port), 20, (ATTACKER, 0))) for _ in range(count)
        ]
        for stranger in strangers:
            stranger.sendall(HELLO)
            stranger.setblocking(False)
        yield strangers


def answered(strangers: list[socket.socket]) -> int:
    """To how many of them the node has said something."""
    return sum(map(_is_answered, strangers))


def _is_answered(stranger: socket.socket) -> bool:
    try:
        return bool(stranger.recv(1, socket.MSG_PEEK))
    except (BlockingIOError, ConnectionError):
        return False


def test_a_burst_of_hellos_of_one_address_leaves_another_address_and_health_checks_their_turn(
    served: Attacked, figures: Figures, is_full: bool
) -> None:
    count = 900 if is_full else 300
    trust = ssl.create_default_context(cafile=str(CERTIFICATES / "large.pem"))
    trust.check_hostname = False
    assert served.process is not None
    before = resident_size(served.process.pid)
    with neighbour(served.address) as felt, burst(served.tls_port, count) as strangers:
        with socket.create_connection(("127.0.0.1", served.tls_port), 20) as plain, trust.wrap_socket(plain):
            before_victim = answered(strangers)
        with urlopen(f"http://127.0.0.1:{served.metrics_port}/livez", timeout=20) as told:
            assert told.status == 200
        trip_count = len(felt.trips_ms) + 5
        while len(felt.trips_ms) < trip_count:
            time.sleep(0.005)
        before_health = answered(strangers)
    growth = resident_size(served.process.pid) - before
    attack = figures.attack("TLS: strangers, a burst of ClientHellos, a large key", f"{count} at once, RSA 4096")
    attack.record("handshakes before a victim's of another address", before_victim, bound="at most half")
    attack.record("handshakes before the answer of /livez", before_health, bound="at most half")
    attack.record("growth", growth / 2**20, "MiB")
    attack.record_felt(felt)
    assert before_victim <= count // 2
    assert before_health <= count // 2


def test_a_stop_waits_for_no_handshake_of_a_burst(served: Attacked) -> None:
    count = 300
    with burst(served.tls_port, count) as strangers:
        assert served.process is not None
        served.process.send_signal(signal.SIGTERM)
        assert served.process.wait(20) == 0
        assert answered(strangers) <= count // 2
