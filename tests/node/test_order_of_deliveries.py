"""What a version 1 client is delivered comes in order, also where its credit waits for a turn beside what is pushed."""

from __future__ import annotations

from collections import deque
from typing import Any

from tests.journal.rig import MemoryDisk, recover_from
from veredus.journal import exchange as journal
from veredus.journal.log import Log
from veredus.journal.settings import LogSettings
from veredus.kernel.effects import Send
from veredus.kernel.engine import Now
from veredus.kernel.events import DeadlineReached, LinkOpened, Received
from veredus.kernel.turns import QUANTUM_NS
from veredus.node.engine import FloorOrdered, NodeEngine
from veredus.protocols.links import WorkDone
from veredus.protocols.zeps import frames
from veredus.protocols.zeps.attachment import NodeLink
from veredus.protocols.zeps.orders import LinkLimits
from veredus.streams import exchange as x
from veredus.streams.engine import StreamsEngine
from veredus.streams.tables import StreamsLimits

READER, PUBLISHER = 1, 2
PRINCIPALS = {READER: "reader", PUBLISHER: "publisher"}
SETTINGS = LogSettings(segment_size=1 << 20)
MUCH_NS = 5 * QUANTUM_NS


class Node:
    """A node with a reader and a publisher of version 1, over a disk of dictionaries."""

    def __init__(self) -> None:
        self.disk = MemoryDisk()
        self.time_ns = 1_000_000_000
        self.heard: list[bytes] = []
        found = recover_from(self.disk, SETTINGS)
        self.floor = StreamsEngine(StreamsLimits(), x.Durability.GROUP, lambda: bytes(16), lambda *_: True, lambda _: 0)
        log = Log(SETTINGS, found.recovered)
        self.engine = NodeEngine(log, self.floor, lambda event: NodeLink(event.link, LinkLimits()), 1 << 30, 10)
        self.tell(FloorOrdered(self.floor.finish_recovery(found.recovered.is_clean)))
        for link, principal in PRINCIPALS.items():
            self.tell(LinkOpened(link, "tcp", f"peer-{link}", principal))
            self.hear(link, frames.encode_attach("s"))

    def tell(self, *events: object) -> None:
        """These facts at one moment, and what the disk answers."""
        queue: deque[Any] = deque(events)
        while queue:
            for effect in self.engine.handle(queue.popleft(), Now(self.time_ns, 1_700_000_000_000_000_000)):
                if isinstance(effect, Send) and effect.link == READER:
                    self.heard += map(bytes, effect.buffers)
                elif isinstance(effect, journal.WriteGroup | journal.CreateSegment | journal.WriteFile):
                    queue.append(self.disk.carry_out(effect))

    def hear(self, link: int, octets: bytes) -> None:
        """These octets of a peer's, and the deadlines behind them."""
        self.tell(Received(link, octets))
        for _ in range(8):
            self.time_ns += 1
            self.tell(DeadlineReached())

    def sequences(self) -> list[int]:
        """What was delivered, in order."""
        parser = frames.CommandParser(1 << 20)
        commands = parser.feed(b"".join(self.heard))
        return [command.sequence for command in commands if isinstance(command, frames.Deliver)]


def test_credit_that_waits_for_a_turn_overtakes_nothing_that_is_pushed_in_the_same_one() -> None:
    node = Node()
    node.hear(PUBLISHER, b"".join(frames.encode_publish(b"a", bytes(100)) for _ in range(6)))
    node.hear(READER, frames.encode_subscribe(b"a", 0))
    # What its filter costs and what it asks wait for one turn: two rows are delivered for this credit, then four.
    node.floor._subscribing.feeding.turns.charge(PRINCIPALS[READER], MUCH_NS, Now(node.time_ns, 0))
    node.tell(Received(READER, frames.encode_credit(150)))
    node.tell(WorkDone(READER, MUCH_NS))
    node.tell(Received(READER, frames.encode_credit(1000)))
    for _ in range(20):
        node.time_ns += 1
        node.tell(DeadlineReached())
    assert node.sequences() == [1, 2, 3, 4, 5, 6]
