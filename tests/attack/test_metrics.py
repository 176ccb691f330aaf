"""Whoever asks for the figures and does not read them takes no memory for a text of his own."""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.attack.by_hand import Peer
from tests.attack.figures import Figures
from tests.attack.neighbour import neighbour, resident_size, resident_size_peak
from tests.processes import free_port
from tests.system.serving import ServedNode
from veredus.node.figures import LABELLED_STREAMS_MAX
from veredus.protocols.zeps import messages as m
from veredus.protocols.zeps import native

pytestmark = pytest.mark.slow

MIB = 1 << 20


def ask_and_read_nothing(port: int) -> socket.socket:
    """A connection that has asked for the figures."""
    asking = socket.socket()
    asking.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    asking.connect(("127.0.0.1", port))
    asking.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
    return asking


def test_figures_that_are_asked_for_and_not_read_are_in_memory_once(
    tmp_path: Path, figures: Figures, is_full: bool
) -> None:
    port = free_port()
    served = ServedNode(tmp_path / "journal", {"LISTEN_METRICS": f"127.0.0.1:{port}", "JOURNAL_SYNC": "none"})
    served.start().close()
    try:
        with Peer(served.port) as peer:
            names = [f"{number:04}".ljust(255, "x") for number in range(LABELLED_STREAMS_MAX)]
            asked = (m.Request(number, "stream.create", {"name": name}) for number, name in enumerate(names, 1))
            peer.send_bytes(b"".join(native.encode_message(0, request) for request in asked))
            assert all(isinstance(peer.hear(), m.Reply) for _ in names)
        assert served.process is not None
        before = resident_size(served.process.pid)
        connections = 2_000 if is_full else 200
        with neighbour(served.address) as felt, ExitStack() as held:
            for _ in range(connections):
                held.enter_context(ask_and_read_nothing(port))
                time.sleep(0.003)
        growth = (resident_size_peak(served.process.pid) - before) / MIB
    finally:
        served.kill()
    attack = figures.attack("metrics asked for and not read", f"{connections:,} connections")
    attack.record_felt(felt)
    attack.record("growth", growth, "MiB", "at most 64 MiB")
    assert growth < 64
