"""Pushes that wait to be written keep nobody from being heard; answers that wait do, when there is no room for them."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest

from tests.journal.rig import MemoryDisk, recover_from
from veredus.journal import exchange as journal
from veredus.journal.log import Log
from veredus.journal.settings import LogSettings
from veredus.kernel.effects import CloseLink, PauseReading, ResumeReading, Send
from veredus.kernel.engine import Now
from veredus.kernel.events import DeadlineReached, LinkCongested, LinkDrained, LinkOpened, Received
from veredus.node.engine import FloorOrdered, NodeEngine
from veredus.protocols.zeps import frames, native
from veredus.protocols.zeps import messages as m
from veredus.protocols.zeps.attachment import NodeLink
from veredus.protocols.zeps.native import Kind
from veredus.protocols.zeps.orders import LinkLimits
from veredus.protocols.zeps.parsing import FrameParser
from veredus.streams import exchange as x
from veredus.streams.engine import StreamsEngine
from veredus.streams.tables import StreamsLimits

DEAF, OTHER = 1, 2
SETTINGS = LogSettings(segment_size=1 << 20)
LIMITS = LinkLimits()
MUCH = 1 << 40
GREETING = frames.encode_attach("", 2) + native.encode_message(0, m.Hello())
PING = native.encode_frame(Kind.PING, 0)
PONG_SIZE = len(native.encode_frame(Kind.PONG, 0))


class Node:
    """A node over a disk of dictionaries; `said` is what it ordered of its host, by link."""

    def __init__(self) -> None:
        self.disk = MemoryDisk()
        self.time_ns = 1_000_000_000
        self.said: dict[int, list[Any]] = {DEAF: [], OTHER: []}
        found = recover_from(self.disk, SETTINGS)
        floor = StreamsEngine(StreamsLimits(), x.Durability.GROUP, lambda: bytes(16), lambda *_: True, lambda _: 0)
        log = Log(SETTINGS, found.recovered)
        self.engine = NodeEngine(log, floor, lambda event: NodeLink(event.link, LIMITS), 1 << 30, 10)
        self.tell(FloorOrdered(floor.finish_recovery(found.recovered.is_clean)))

    def tell(self, *events: object) -> None:
        """These facts at one moment, and what the disk answers."""
        queue: deque[Any] = deque(events)
        while queue:
            for effect in self.engine.handle(queue.popleft(), Now(self.time_ns, 1_700_000_000_000_000_000)):
                if isinstance(effect, Send | PauseReading | ResumeReading | CloseLink):
                    self.said[effect.link].append(effect)
                elif isinstance(effect, journal.WriteGroup | journal.CreateSegment | journal.WriteFile):
                    queue.append(self.disk.carry_out(effect))

    def open(self, link: int, greeting: bytes) -> None:
        self.tell(LinkOpened(link, "tcp", f"peer-{link}", f"principal-{link}"))
        self.hear(link, greeting)

    def hear(self, link: int, octets: bytes) -> list[object]:
        """These octets of a peer's, and the deadlines behind them; what is ordered for its link because of that."""
        self.said[link].clear()
        self.tell(Received(link, octets))
        for _ in range(8):
            self.time_ns += 1
            self.tell(DeadlineReached())
        return [effect for effect in self.said[link] if not isinstance(effect, Send)]

    def sent(self, link: int) -> bytes:
        """What is to be written to a link, once."""
        octets = b"".join(b"".join(effect.buffers) for effect in self.said[link] if isinstance(effect, Send))
        self.said[link].clear()
        return octets

    def wait(self, ns: int) -> None:
        """Let time pass; the engine is told whenever it is due."""
        end_ns = self.time_ns + ns
        while (due := self.engine.deadline()) is not None and due <= end_ns:
            self.time_ns = max(self.time_ns + 1, due)
            self.tell(DeadlineReached())
        self.time_ns = end_ns


@pytest.fixture
def node() -> Node:
    return Node()


def delivered(octets: bytes) -> list[bytes]:
    """The bodies of what a version 1 client was sent."""
    commands = frames.CommandParser(1 << 20).feed(octets)
    return [bytes(command.body) for command in commands if isinstance(command, frames.Deliver)]


def kinds(octets: bytes) -> list[int]:
    """The kinds of the frames that a native client was sent."""
    return [frame.kind for frame in FrameParser(1 << 20).feed(octets)]


def open_readers(node: Node) -> None:
    """Two clients of version 1 that subscribe to what they publish themselves."""
    for link in (DEAF, OTHER):
        node.open(link, frames.encode_attach("s"))
        node.hear(link, frames.encode_subscribe(b"", 0) + frames.encode_credit(MUCH))
        node.sent(link)


def test_a_client_that_does_not_read_its_pushes_publishes_and_is_pushed_no_more(node: Node) -> None:
    open_readers(node)
    node.tell(LinkCongested(DEAF, 100))
    bodies = [b"%d" % number for number in range(100)]
    for body in bodies:
        assert node.hear(DEAF, frames.encode_publish(b"k", body)) == [], "it is read from as before"
        assert node.sent(DEAF) == b""
    assert delivered(node.sent(OTHER)) == bodies
    node.tell(LinkDrained(DEAF))
    node.wait(1000)
    assert delivered(node.sent(DEAF)) == bodies


def test_a_client_whose_pushes_wait_is_silent_when_it_sends_nothing(node: Node) -> None:
    open_readers(node)
    node.tell(LinkCongested(DEAF, 100))
    for _ in range(10):
        node.wait(LIMITS.silence_max_ns - LIMITS.heartbeat_interval_ns)
        assert CloseLink(DEAF, "silent") not in node.said[DEAF]
        node.hear(DEAF, frames.PING_OK)
    node.wait(LIMITS.silence_max_ns)
    assert CloseLink(DEAF, "silent") in node.said[DEAF]


def test_answers_that_nobody_reads_end_the_reading_when_there_is_no_room_for_them(node: Node) -> None:
    open_readers(node)
    node.tell(LinkCongested(DEAF, 10 * len(frames.PING_OK)))
    for _ in range(9):
        assert node.hear(DEAF, frames.PING) == []
    assert node.hear(DEAF, frames.PING) == [PauseReading(DEAF)]
    assert node.hear(DEAF, frames.PING) == []
    assert node.sent(DEAF) == b"", "what was on its way is held"
    node.tell(LinkDrained(DEAF))
    node.wait(1)
    assert node.sent(DEAF) == frames.PING_OK
    assert node.hear(DEAF, frames.PING) == []


def test_a_native_client_that_does_not_read_its_pushes_is_answered(node: Node) -> None:
    node.open(DEAF, GREETING)
    node.open(OTHER, frames.encode_attach("s"))
    node.hear(DEAF, native.encode_message(1, m.Subscribe("s", credit=MUCH)))
    node.sent(DEAF)
    node.tell(LinkCongested(DEAF, 100 * PONG_SIZE))
    node.hear(OTHER, frames.encode_publish(b"k", b"body"))
    for _ in range(99):
        assert node.hear(DEAF, PING) == []
        assert kinds(node.sent(DEAF)) == [Kind.PONG]
    assert node.hear(DEAF, PING) == [PauseReading(DEAF)]
    node.said[DEAF].clear()
    node.tell(LinkDrained(DEAF))
    assert kinds(node.sent(DEAF)) == [Kind.DELIVER]


def test_a_native_subscription_that_begins_behind_a_link_that_is_full_is_pushed_nothing_before_it_drains(
    node: Node,
) -> None:
    node.open(DEAF, GREETING)
    node.open(OTHER, frames.encode_attach("s"))
    node.hear(OTHER, frames.encode_publish(b"k", bytes(1000)))
    node.tell(LinkCongested(DEAF, 1 << 20))
    for channel in range(1, 10):
        node.hear(DEAF, native.encode_message(channel, m.Subscribe("s", credit=MUCH)))
        assert kinds(node.sent(DEAF)) == [Kind.SUBSCRIBED]
    node.tell(LinkDrained(DEAF))
    node.wait(1000)
    assert kinds(node.sent(DEAF)).count(Kind.DELIVER) == 9
