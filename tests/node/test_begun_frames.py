"""Frames that are not whole, over the links of a node: they wait for room, go on, or end their own link."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.journal.rig import MemoryDisk, recover_from
from tests.protocols.zeps.place import Place
from veredus.journal.log import Log
from veredus.journal.settings import LogSettings
from veredus.kernel.effects import Admit, CloseLink, PauseReading, ResumeReading, Send
from veredus.kernel.engine import Now
from veredus.kernel.events import (
    DeadlineReached,
    LinkClosed,
    LinkCongested,
    LinkDrained,
    LinkOpened,
    Received,
)
from veredus.node.engine import NodeEngine
from veredus.node.receiving import ReceiveLimits
from veredus.protocols.zeps import frames, native
from veredus.protocols.zeps import messages as m
from veredus.protocols.zeps.attachment import NodeLink
from veredus.protocols.zeps.orders import LinkLimits
from veredus.protocols.zeps.parsing import FrameParser
from veredus.streams.engine import StreamsEngine
from veredus.streams.exchange import Durability
from veredus.streams.tables import StreamsLimits

MIB, SECOND = 1 << 20, 10**9
GREETING = frames.encode_attach("", 2) + native.encode_message(0, m.Hello())


class Node:
    """A node whose links speak ZEPS; `said` is what it ordered of its host beside the disk."""

    def __init__(self, size_max: int = 40 * MIB) -> None:
        settings = LogSettings(segment_size=64 << 10)
        log = Log(settings, recover_from(MemoryDisk(), settings).recovered)
        floor = StreamsEngine(StreamsLimits(), Durability.GROUP, lambda: bytes(16), lambda *_: True, lambda _: 0)
        limits = ReceiveLimits(size_max)
        self.engine = NodeEngine(log, floor, lambda o: Starved(o.link, LinkLimits()), 1 << 30, 100, limits)
        self.time_ns = SECOND

    def tell(self, event: object) -> list[Any]:
        return list(self.engine.handle(event, Now(self.time_ns, self.time_ns)))

    def pass_time(self, ns: int) -> list[Any]:
        """What is ordered until then; the engine is told whenever it is due."""
        end_ns, said = self.time_ns + ns, []
        while (due := self.engine.deadline()) is not None and due <= end_ns:
            self.time_ns = max(self.time_ns, due)
            said += self.tell(DeadlineReached())
        self.time_ns = end_ns
        return said

    def greeted(self, link: int, principal: str = "local") -> None:
        self.tell(LinkOpened(link, "tcp", "peer", principal))
        assert Admit(link, principal) in self.tell(Received(link, GREETING))

    def begin(self, link: int, size: int, held_size: int) -> list[Any]:
        """Let the first octets of a large frame of an optional kind come."""
        head = size.to_bytes(4, "little") + bytes((200, 0, 1, 0))
        return self.tell(Received(link, head + bytes(held_size)))


def closings(said: Sequence[object]) -> list[tuple[int, str]]:
    return [(order.link, order.reason) for order in said if isinstance(order, CloseLink)]


def goodbye_of(said: Sequence[Any], link: int) -> str:
    data = b"".join(b"".join(order.buffers) for order in said if isinstance(order, Send) and order.link == link)
    (frame,) = FrameParser(1 << 20).feed(data)
    goodbye = native.decode_message(frame)
    assert isinstance(goodbye, m.Goodbye)
    return goodbye.code


def test_a_large_frame_waits_for_room_unread_and_goes_on_when_there_is_some() -> None:
    node = Node()
    for link in (1, 2, 3):
        node.greeted(link)
    assert node.begin(1, 18 * MIB, 1000) == []
    assert node.begin(2, 18 * MIB, 1000) == [PauseReading(2)], "one principal has half of the room"
    said = node.tell(Received(1, bytes(18 * MIB - 1000)))
    assert ResumeReading(2) in said
    assert node.engine.receiving.size == 18 * MIB + native.HEAD_SIZE


def test_a_link_that_waits_for_room_is_not_taken_for_silent() -> None:
    node = Node()
    node.greeted(1)
    node.greeted(2)
    node.begin(1, 18 * MIB, 15 * MIB)
    node.begin(2, 18 * MIB, 1000)
    node.tell(Received(1, bytes(MIB)))
    assert (2, "silent") not in closings(node.pass_time(4 * SECOND))


def test_a_slow_frame_ends_its_link_with_a_code_when_another_waits() -> None:
    node = Node()
    node.greeted(1)
    node.greeted(2)
    node.begin(1, 18 * MIB, 1000)
    node.begin(2, 18 * MIB, 1000)
    said = node.pass_time(2 * SECOND)
    assert closings(said) == [(1, "too-slow")]
    assert goodbye_of(said, 1) == "too-slow"
    assert ResumeReading(2) in said
    assert node.engine.links[1].unfinished == (0, 0), "its memory is free at once"


def test_a_link_that_is_gone_leaves_its_room_to_others() -> None:
    node = Node()
    node.greeted(1)
    node.greeted(2)
    node.begin(1, 18 * MIB, 1000)
    node.begin(2, 18 * MIB, 1000)
    assert ResumeReading(2) in node.tell(LinkClosed(1, "gone"))
    node.tell(LinkClosed(2, "gone"))
    assert node.engine.receiving.size == 0


def test_a_body_by_version_1_that_is_not_whole_is_counted_with_its_size() -> None:
    place = Place()
    place.open(1)
    assert place.receive(1, frames.encode_attach("s")) == frames.ATTACH_OK
    publish = frames.encode_publish(b"k", bytes(10 * MIB))
    place.receive(1, publish[: 2 * MIB])
    assert place.links[1].unfinished == (2 * MIB, len(publish))
    place.receive(1, publish[2 * MIB :])
    assert place.links[1].unfinished == (0, 0)


class Starved(NodeLink):
    """A link for which there is no memory where it needs some."""

    def handle(self, event: object, now: Now) -> Sequence[object]:
        if isinstance(event, Received) and event.data == b"much":
            raise MemoryError
        return super().handle(event, now)


def test_a_frame_for_which_there_is_no_memory_ends_its_own_link() -> None:
    node = Node()
    node.greeted(1)
    node.greeted(2)
    said = node.tell(Received(1, b"much"))
    assert closings(said) == [(1, "too-slow")]
    assert goodbye_of(said, 1) == "too-slow"
    assert node.tell(Received(2, native.encode_frame(native.Kind.PING, 0))) != []


def test_a_link_is_read_from_again_when_the_last_reason_is_gone() -> None:
    node = Node()
    node.greeted(1)
    node.greeted(2)
    node.begin(1, 18 * MIB, 1000)
    assert PauseReading(2) in node.begin(2, 18 * MIB, 1000)
    assert node.tell(LinkCongested(2)) == []
    assert ResumeReading(2) not in node.tell(LinkClosed(1, "gone"))
    assert node.tell(LinkDrained(2)) == [ResumeReading(2)]


def test_silence_is_judged_as_of_when_what_had_come_was_read() -> None:
    node = Node()
    node.greeted(1)
    node.time_ns += 29 * SECOND
    node.tell(DeadlineReached())
    heard_ns = node.time_ns
    node.time_ns += 100 * SECOND
    assert node.tell(DeadlineReached(heard_ns)) == []
    due = node.engine.deadline()
    assert due is not None
    assert due > node.time_ns, "a due deadline is followed by one in the future"
    node.tell(Received(1, native.encode_frame(native.Kind.PONG, 0)))
    assert node.tell(DeadlineReached(node.time_ns)) == []
    node.time_ns += 35 * SECOND
    assert closings(node.pass_time(SECOND)) == []
