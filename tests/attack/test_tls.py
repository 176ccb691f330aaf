"""Over TLS what a peer does not read, and what it sends and the node does not read, is bounded as over TCP."""

from __future__ import annotations

import os
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.attack.figures import Figures
from tests.attack.neighbour import neighbour, resident_size, resident_size_peak
from tests.certificates import CERTIFICATES
from tests.processes import free_port
from tests.system.serving import ServedNode
from veredus.protocols.zeps import frames, native
from veredus.protocols.zeps import messages as m

pytestmark = pytest.mark.slow

MIB = 1 << 20
GREETING = frames.encode_attach("", native.VERSION) + native.encode_message(0, m.Hello())


@pytest.fixture
def tls_port() -> int:
    return free_port()


@pytest.fixture
def served(tmp_path: Path, tls_port: int) -> Iterator[ServedNode]:
    """A node with a listener for TLS, and memory for little that is unread."""
    settings = {
        "LISTEN_TLS": f"127.0.0.1:{tls_port}",
        "TLS_CERTIFICATE": str(CERTIFICATES / "node.pem"),
        "TLS_KEY": str(CERTIFICATES / "node.key"),
        "LIMITS_SEND_SIZE_MAX": "8 MiB",
    }
    served = ServedNode(tmp_path / "journal", settings)
    yield served
    if served.process is not None:
        served.kill()


def greeted(port: int) -> ssl.SSLSocket:
    """A connection that has said who it is, takes little at a time, and reads nothing from now on."""
    context = ssl.create_default_context(cafile=str(CERTIFICATES / "authority.pem"))
    context.check_hostname = False
    plain = socket.socket()
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    plain.settimeout(20)
    plain.connect(("127.0.0.1", port))
    connection = context.wrap_socket(plain)
    connection.sendall(GREETING)
    return connection


def test_subscribers_by_tls_that_read_nothing_take_bounded_memory(
    served: ServedNode, tls_port: int, figures: Figures, is_full: bool
) -> None:
    count, publications = (200, 48) if is_full else (8, 16)
    body = os.urandom(MIB - 100)
    with ExitStack() as held:
        with served.start() as node, node.publisher("s", source="p") as publisher:
            for _ in range(publications):
                publisher.publish("k", body)
            publisher.flush(timeout_s=30)
        assert served.process is not None
        pid = served.process.pid
        before = resident_size(pid)
        with neighbour(served.address) as felt:
            for _ in range(count):
                connection = held.enter_context(greeted(tls_port))
                connection.sendall(native.encode_message(1, m.Subscribe("s", credit=1 << 40)))
            time.sleep(3)
        growth = resident_size_peak(pid) - before
    attack = figures.attack("TLS: subscribers that read nothing", f"{count} of {publications} MiB")
    attack.record("growth", growth / MIB, "MiB", "at most 32 MiB")
    attack.record_felt(felt)
    assert growth < 32 * MIB
