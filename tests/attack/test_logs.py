"""Peers that break the protocol all the time: they fill no log, and a log that nobody reads holds nobody."""

from __future__ import annotations

import json
import socket
from contextlib import suppress

import pytest

from tests.attack.figures import Figures
from tests.attack.neighbour import neighbour
from tests.system.serving import ServedNode
from tests.system.test_unwritable_logs import unwritable
from veredus.client.blocking import connect

pytestmark = pytest.mark.slow


def greet_badly(port: int, count: int) -> None:
    for _ in range(count):
        with socket.create_connection(("127.0.0.1", port), 10, ("127.0.1.1", 0)) as peer, suppress(ConnectionError):
            peer.sendall(b"GET / HTTP/1.1\r\n\r\n")
            while peer.recv(4096):
                pass


def test_bad_greetings_of_one_address_fill_no_log(served: ServedNode, figures: Figures, is_full: bool) -> None:
    count = 5000 if is_full else 150
    served.start().close()
    with neighbour(served.address) as felt:
        greet_badly(served.port, count)
    assert felt.trips_ms
    assert served.stop() == 0
    lines = [json.loads(line) for line in served.said().splitlines()]
    told = [line for line in lines if line["event"] == "attach-invalid"]
    seconds = max(1, len(felt.trips_ms) * 0.005)
    attack = figures.attack("bad greetings", f"{count:,}")
    attack.record("lines of the log", len(told), bound="5 in 10 s for each address")
    attack.record_felt(felt)
    assert len(told) <= 5 * (2 + seconds * 10 // 10)
    assert {line["peer"].split(":")[0] for line in told} == {"127.0.1.1"}
    assert all(line["listener"] == "tcp" for line in told)


def test_bad_greetings_while_nobody_reads_the_log_cost_the_neighbour_nothing(
    served: ServedNode, figures: Figures, is_full: bool
) -> None:
    count = 5000 if is_full else 150
    with unwritable("unread pipe") as descriptor:
        process = served.spawn(descriptor)
        connect(served.address, timeout_s=20, refused_s=20).close()
        with neighbour(served.address) as felt:
            greet_badly(served.port, count)
        assert felt.trips_ms
        process.terminate()
        assert process.wait(20) == 0
    figures.attack("bad greetings, the log a pipe that nobody reads", f"{count:,}").record_felt(felt)
