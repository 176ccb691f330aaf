"""Handshakes of CURVE cost a node much: strangers of one address wait for their turns, and nobody else does."""

from __future__ import annotations

from tests.journal.rig import MemoryDisk, recover_from
from tests.protocols.zmtp.by_hand import BOUNDS, greeting
from veredus.journal.log import Log
from veredus.journal.settings import LogSettings
from veredus.kernel.effects import Send
from veredus.kernel.engine import Now
from veredus.kernel.events import DeadlineReached, LinkOpened, Received
from veredus.kernel.turns import CROWD_COUNT, QUANTUM_NS
from veredus.node.engine import FloorOrdered, NodeEngine
from veredus.protocols.zeps.attachment import NodeLink
from veredus.protocols.zeps.orders import LinkLimits
from veredus.protocols.zmtp import frames
from veredus.protocols.zmtp.connection import Connection
from veredus.protocols.zmtp.curve import CLIENT_RANDOM_SIZE, SERVER_RANDOM_SIZE, CurveClient, CurveServer, KeyPair
from veredus.protocols.zmtp.framed import FramedLink, Identities
from veredus.protocols.zmtp.link import Timing, ZmtpLink
from veredus.protocols.zmtp.mechanisms import Local
from veredus.streams import exchange as x
from veredus.streams.engine import StreamsEngine
from veredus.streams.tables import StreamsLimits

SERVER, CLIENT = KeyPair(b"s" * 32), KeyPair(b"c" * 32)
SETTINGS = LogSettings()
STRANGERS_COUNT, VICTIM = 200, 1000
HELLO = frames.encode_command(
    CurveClient(Local(b"DEALER"), CLIENT, SERVER.public, bytes(range(CLIENT_RANDOM_SIZE))).begin()[0]
)


class Node:
    """A node with a listener for CURVE; to which links it has said WELCOME is in `welcomed`."""

    def __init__(self) -> None:
        self.time_ns = 1_000_000_000
        self.welcomed: list[int] = []
        found = recover_from(MemoryDisk(), SETTINGS)
        floor = StreamsEngine(StreamsLimits(), x.Durability.GROUP, lambda: bytes(16), lambda *_: True, lambda _: 0)
        self.engine = NodeEngine(Log(SETTINGS, found.recovered), floor, self._link_of, 1 << 30, 10)
        self.tell(FloorOrdered(floor.finish_recovery(found.recovered.is_clean)))

    def _link_of(self, event: LinkOpened) -> FramedLink:
        mechanism = CurveServer(Local(b"ROUTER"), SERVER, bytes(range(SERVER_RANDOM_SIZE)))
        connection = Connection({b"CURVE": mechanism}, BOUNDS, is_server=True)
        wire = ZmtpLink(connection, Timing(5_000_000_000, 1_000_000_000, 5_000_000_000))
        return FramedLink(event.link, wire, NodeLink(event.link, LinkLimits()), Identities())

    def come(self, link: int, address: str) -> None:
        """A peer that has greeted, as far as ZMTP, and has yet to say HELLO."""
        self.tell(LinkOpened(link, "zeromq", f"{address}:{10_000 + link}"))
        self.tell(Received(link, greeting(b"CURVE")))

    def tell(self, event: object) -> None:
        for effect in self.engine.handle(event, Now(self.time_ns, 1_700_000_000_000_000_000)):
            if isinstance(effect, Send) and b"WELCOME" in b"".join(effect.buffers):
                self.welcomed.append(effect.link)

    def turn(self) -> None:
        self.time_ns += 1
        self.tell(DeadlineReached())


def test_an_address_has_a_share_of_handshakes_done_in_a_turn_and_another_address_has_the_next() -> None:
    node = Node()
    for link in range(1, STRANGERS_COUNT + 1):
        node.come(link, "192.0.2.1")
    node.come(VICTIM, "192.0.2.2")
    node.turn()
    share = QUANTUM_NS // CurveServer.step_ns + 1
    for link in range(1, STRANGERS_COUNT + 1):
        node.tell(Received(link, HELLO))
    node.tell(Received(VICTIM, HELLO))
    assert len(node.welcomed) <= share
    node.turn()
    assert VICTIM in node.welcomed
    while len(node.welcomed) <= STRANGERS_COUNT:
        before = len(node.welcomed)
        node.turn()
        assert len(node.welcomed) <= before + share


def test_strangers_of_as_many_addresses_have_one_share_together_and_each_is_answered() -> None:
    node = Node()
    for link in range(1, STRANGERS_COUNT + 1):
        node.come(link, f"192.0.2.{link}")
        node.turn()
    share = QUANTUM_NS // CurveServer.step_ns + CROWD_COUNT
    for link in range(1, STRANGERS_COUNT + 1):
        node.tell(Received(link, HELLO))
    assert len(node.welcomed) <= share
    while len(node.welcomed) < STRANGERS_COUNT:
        before = len(node.welcomed)
        node.turn()
        assert len(node.welcomed) <= before + share
    assert sorted(node.welcomed) == list(range(1, STRANGERS_COUNT + 1))
