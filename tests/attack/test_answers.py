"""One answer has a bounded size and costs a bounded time, whatever those who are listed in it keep."""

from __future__ import annotations

import struct

import pytest

from tests.attack.by_hand import Peer
from tests.attack.figures import Figures
from tests.attack.neighbour import neighbour
from tests.system.serving import ServedNode
from veredus.protocols.zeps import messages as m
from veredus.protocols.zeps import native
from veredus.protocols.zeps.native import Kind
from veredus.streams.listing import PARTS_MAX

pytestmark = pytest.mark.slow

INDIVIDUAL = 1


def test_a_list_of_cursors_with_very_many_ranges_is_given_in_small_answers(
    served: ServedNode, figures: Figures, is_full: bool
) -> None:
    # One principal may have a million ranges.
    cursors, ranges = (60, 16_000) if is_full else (8, 1_500)
    with served.start() as node, node.publisher("s", source="p") as publisher:
        for _ in range(2 * ranges + 1):
            publisher.publish("k", b"")
        publisher.flush()
    holes = b"".join(struct.pack("<QQ", number, number) for number in range(2, 2 * ranges + 1, 2))
    names = [f"cursor-{number:03}" for number in range(cursors)]
    with Peer(served.port) as peer:
        for channel, name in enumerate(names, 1):
            peer.send(channel, m.Subscribe("s", name, "main", mode=INDIVIDUAL, incarnation=bytes(16), credit=32 << 20))
            while peer.hear_kind() != Kind.DELIVER:
                pass
            peer.send_bytes(native.encode_frame(Kind.SETTLE, channel, holes))
            while peer.hear_kind() != Kind.SETTLED:
                pass
    with Peer(served.port) as peer, neighbour(served.address) as felt:
        found: list[str] = []
        after: object = None
        while after is not None or not found:
            page = peer.ask("subscription.list", stream="s", after=after).result
            assert len(page["rows"]) == 1 or sum(len(row["settled"]) for row in page["rows"]) <= PARTS_MAX
            found += [row["subscriber"] for row in page["rows"]]
            after = page["next"]
        shown = peer.ask("stream.show", name="s").result
        assert 1 <= len(shown["subscription_list"]) < cursors
        assert shown["subscriptions"] == cursors
    assert found == names
    figures.attack("a list of cursors of many ranges", f"{cursors} cursors of {ranges:,} ranges").record_felt(felt)
