"""A subscriber says again and again, over very many channels, what it was handed: a neighbour is served meanwhile."""

from __future__ import annotations

import pytest

from tests.attack.by_hand import Peer
from tests.attack.figures import Figures
from tests.attack.neighbour import neighbour
from tests.attack.test_work import wait_for
from tests.processes import beside
from tests.system.serving import ServedNode
from veredus.protocols.zeps import messages as m
from veredus.protocols.zeps import native

pytestmark = pytest.mark.slow

COUNT = 100
"""Publications of the stream."""


def test_a_flood_of_what_was_handed_out_leaves_the_neighbour_its_turn(
    served: ServedNode, figures: Figures, is_full: bool
) -> None:
    channels, count = (1_000, 1_000_000) if is_full else (100, 100_000)
    with served.start() as node, node.publisher("much", source="s") as publisher:
        publisher.publish_many(["key"] * COUNT, [b"body"] * COUNT)
        publisher.flush()
    with Peer(served.port) as first:
        _subscribe(first, channels)
    with Peer(served.port) as peer, neighbour(served.address) as felt:
        # What an earlier connection was pushed comes again: the node stores that it was handed out before it says so.
        _subscribe(peer, channels)
        felt.trips_ms.clear()
        flood = b"".join(native.encode_handed(1 + number % channels, COUNT) for number in range(count))
        with beside(peer.send_bytes, flood):
            while peer.hear_kind() != native.Kind.HANDED:
                pass
            wait_for(felt, 50)
            while peer.hear_kind() != native.Kind.HANDED:
                pass
    attack = figures.attack("a flood of HANDED over many channels", f"{count:,} over {channels:,} channels")
    attack.record_felt(felt)


def _subscribe(peer: Peer, channels: int) -> None:
    """As a durable subscriber on each channel, until all of the stream was pushed on each."""
    for channel in range(1, channels + 1):
        incarnation = channel.to_bytes(16, "big")
        opened = m.Subscribe("much", f"subscriber-{channel}", "main", incarnation=incarnation, credit=1 << 40)
        peer.send(channel, opened)
    for _ in range(channels):
        while peer.hear_kind() != native.Kind.DELIVER:
            pass
