"""Peers that grant as much credit as there is and read nothing: they take neither memory nor time from a neighbour."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, closing
from pathlib import Path

import pytest

from tests.attack.by_hand import Peer
from tests.attack.figures import Figures
from tests.attack.neighbour import neighbour, resident_size, resident_size_peak
from tests.attack.test_work import wait_for
from tests.interop import zeps1_by_hand as zeps1
from tests.processes import free_port
from tests.system.serving import ServedNode
from veredus.protocols.zeps import messages as m
from veredus.protocols.zeps import native

pytestmark = pytest.mark.slow

MIB = 1 << 20
MUCH = 1 << 60
BODY = bytes(200)
LARGE_GROWTH_MAX = 60
"""In MiB, however many peers wait for what is published once."""


@pytest.mark.parametrize("door", ["TCP", "ZeroMQ", "TCP, version 2"])
def test_credit_without_end_of_peers_that_read_nothing_leaves_the_neighbour_its_turn(
    tmp_path: Path, figures: Figures, is_full: bool, door: str
) -> None:
    peers, count = (10, 200_000) if is_full else (6, 100_000)
    zeromq = f"tcp://127.0.0.1:{free_port()}"
    served = ServedNode(tmp_path / "journal", {"LISTEN_ZEROMQ": zeromq})
    openings: dict[str, Callable[[], AbstractContextManager[object]]] = {
        "TCP": lambda: _greedy(zeps1.over_tcp("127.0.0.1", served.port)),
        "ZeroMQ": lambda: _greedy(zeps1.over_zeromq(zeromq)),
        "TCP, version 2": lambda: _greedy_natively(served.port),
    }
    with ExitStack() as stack:
        stack.callback(served.kill)
        with served.start() as node, node.publisher("much", source="s") as publisher:
            for _ in range(count // 1000):
                publisher.publish_many(["key"] * 1000, [BODY] * 1000)
            publisher.flush()
        assert served.process is not None
        before = resident_size(served.process.pid)
        felt = stack.enter_context(neighbour(served.address))
        for _ in range(peers):
            stack.enter_context(openings[door]())
        wait_for(felt, len(felt.trips_ms) + 100)
        growth = (resident_size_peak(served.process.pid) - before) / MIB
    bound = 8 * peers
    attack = figures.attack(
        f"credit without end, nothing read, over {door}", f"{peers} peers, {count:,} publications of {len(BODY)} bytes"
    )
    attack.record_felt(felt)
    attack.record("growth", growth, "MiB", f"at most {bound} MiB")
    assert growth < bound


@pytest.mark.parametrize(
    ("credit", "bodies"),
    [pytest.param(1, [bytes(100_000)] * 8, id="one byte"), pytest.param(MUCH, [bytes(8 * MIB)], id="without end")],
)
def test_large_publications_wait_once_for_all_who_read_nothing_of_them(
    served: ServedNode, figures: Figures, is_full: bool, credit: int, bodies: list[bytes]
) -> None:
    count = 800 if is_full else 200
    name = "of one byte" if credit == 1 else "without end"
    with ExitStack() as stack:
        with served.start() as node, node.publisher("much", source="s") as publisher:
            publisher.flush()
            for _ in range(count):
                stack.enter_context(_greedy(zeps1.over_tcp("127.0.0.1", served.port), credit))
            assert served.process is not None
            before = resident_size(served.process.pid)
            publisher.publish_many(["key"] * len(bodies), bodies)
            publisher.flush()
        felt = stack.enter_context(neighbour(served.address))
        wait_for(felt, 300)
        growth = (resident_size_peak(served.process.pid) - before) / MIB
    attack = figures.attack(
        f"credit {name}, nothing read, for large publications",
        f"{count} peers, {len(bodies)} of {len(bodies[0]):,} bytes",
    )
    attack.record_felt(felt)
    attack.record("growth", growth, "MiB", f"at most {LARGE_GROWTH_MAX} MiB")
    assert growth < LARGE_GROWTH_MAX


def _greedy(client: zeps1.Client, credit: int = MUCH) -> closing[zeps1.Client]:
    client.attach("much")
    assert client.hear().command == client.ATTACH_OK
    client.subscribe(b"", 0)
    client.credit(credit)
    assert client.hear().command == client.SUBSCRIBE_OK
    return closing(client)


def _greedy_natively(port: int) -> Peer:
    peer = Peer(port)
    peer.send(1, m.Subscribe("much", credit=MUCH))
    while peer.hear_kind() != native.Kind.DELIVER:
        pass
    return peer
