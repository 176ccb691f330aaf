"""A server of topics in its place in a node: what is asked at its door, what it asks itself, and when it is woken."""

from __future__ import annotations

from collections import deque
from typing import Any, TypeVar

from tests.journal.rig import DiskOrder, MemoryDisk, recover_from
from veredus.journal.log import Log
from veredus.journal.settings import LogSettings
from veredus.kernel.effects import CloseLink, Note, PauseReading, ResumeReading
from veredus.kernel.engine import Now
from veredus.kernel.events import DeadlineReached, LinkClosed, LinkOpened
from veredus.node.engine import DrainRequested, FloorOrdered, NodeEngine
from veredus.protocols.topics.exchange import Answer, Answered, Ask, Asked, Meet
from veredus.protocols.topics.messages import (
    Get,
    Message,
    Periodic,
    Put,
    Status,
    Subscribe,
    decode_message,
    encode_message,
)
from veredus.protocols.topics.server import Server, ServerSettings
from veredus.streams import exchange as x
from veredus.streams.engine import StreamsEngine
from veredus.streams.tables import StreamsLimits

LINK = 7
SERVER, PROXY = "127.0.0.1:9001", "127.0.0.1:9101"
MS = 1_000_000
SETTINGS = ServerSettings(SERVER, (PROXY,), answer_ns=100 * MS, period_ns=5_000 * MS)
LOG = LogSettings(segment_size=64 << 10)
K = TypeVar("K")


class Node:
    """A node whose door is a server of topics; `orders` is what the host was ordered beside the disk."""

    def __init__(self, disk: MemoryDisk | None = None, unsynced_size_max: int = 1 << 30) -> None:
        self.disk = disk or MemoryDisk()
        self.time_ns = 1_000 * MS
        self.orders: list[Any] = []
        self.pending: deque[Any] = deque()
        self._count = 0
        found = recover_from(self.disk, LOG)
        floor = StreamsEngine(StreamsLimits(), x.Durability.GROUP, self._id, lambda *_: True, lambda _: 0)
        for state in found.states:
            floor.load(state)
        for view in found.views:
            floor.replay(view)
        self.floor = floor
        self.engine = NodeEngine(Log(LOG, found.recovered), floor, self._open, unsynced_size_max, 10)
        self.tell(FloorOrdered(floor.finish_recovery(found.recovered.is_clean)))
        self.sync()
        self.tell(LinkOpened(LINK, "topics", SERVER))

    def _id(self) -> bytes:
        self._count += 1
        return (len(self.disk.files) * 1000 + self._count).to_bytes(16, "big")

    def _open(self, event: LinkOpened) -> Server:
        return Server(event.link, SETTINGS, self._id)

    def tell(self, event: object) -> None:
        """One event; what is ordered of the disk waits."""
        now = Now(self.time_ns, 1_700_000_000_000_000_000 + self.time_ns)
        for effect in self.engine.handle(event, now):
            (self.pending if isinstance(effect, DiskOrder) else self.orders).append(effect)

    def sync(self) -> None:
        """Carry out what was ordered of the disk, and what follows."""
        self.tell(DeadlineReached())
        while self.pending:
            event = self.disk.carry_out(self.pending.popleft())
            if event is not None:
                self.tell(event)
            self.tell(DeadlineReached())

    def pass_time(self, ns: int) -> None:
        """Let time pass as the host does: the engine is told whenever its deadline has come."""
        end_ns = self.time_ns + ns
        while (at := self.engine.deadline()) is not None and at <= end_ns:
            self.time_ns = max(at, self.time_ns)
            self.tell(DeadlineReached())
        self.time_ns = end_ns

    def take(self, kind: type[K]) -> list[K]:
        """The orders of one kind since the last time."""
        taken = [order for order in self.orders if isinstance(order, kind)]
        self.orders = [order for order in self.orders if not isinstance(order, kind)]
        return taken

    def ask(self, peer: int, question: Message) -> None:
        self.tell(Asked(peer, encode_message(question), LINK))

    def say(self, question: Message) -> Status:
        """Ask, carry everything out, and take the answer."""
        self.ask(900, question)
        self.sync()
        (answer,) = self.take(Answer)
        assert answer.peer == 900
        status = decode_message(answer.data)
        assert isinstance(status, Status)
        return status


def put(counter: int, body: bytes = b"x") -> Put:
    return Put("bob", "s", counter, body)


def test_what_is_asked_at_the_door_is_answered_there_once_it_is_durable() -> None:
    node = Node()
    assert node.say(Subscribe("alice", "s")) == Status(SERVER, "OK")
    node.ask(1, put(1, b"one"))
    assert node.take(Answer) == []
    node.sync()
    assert node.take(Answer) == [Answer(1, encode_message(Status(SERVER, "OK")))]
    status = node.say(Get("alice", "s", "-1"))
    assert (status.status, status.body) == ("OK", b"one")
    again = Node(node.disk)
    assert again.say(put(1, b"one")) == Status(SERVER, "OK")
    assert again.say(Get("alice", "s", "-1")) == status
    assert again.say(Get("alice", "s", status.message_id)) == Status(SERVER, "NO_MESSAGES")


def test_questions_that_arrive_together_share_a_write_to_the_disk() -> None:
    node = Node()
    for peer in range(50):
        node.ask(peer, Put(f"client-{peer}", "s", 1, b"x"))
    for _ in range(3):
        node.sync()
    assert len(node.take(Answer)) == 50
    for peer in range(50):
        node.ask(peer, Put(f"client-{peer}", "s", 2, b"x"))
    node.tell(DeadlineReached())
    assert len(node.pending) == 1


def test_proxies_are_asked_again_in_time_though_nothing_else_happens() -> None:
    node = Node()
    assert node.take(Meet) == [Meet(PROXY)]
    began_ns = node.time_ns
    node.pass_time(0)
    (first,) = node.take(Ask)
    assert decode_message(first.data) == Periodic(SERVER, ())
    for tries in range(1, 4):
        node.pass_time(began_ns + tries * 100 * MS - 1 - node.time_ns)
        assert node.take(Ask) == []
        node.pass_time(1)
        (again,) = node.take(Ask)
        assert again.data == first.data, "the floor's answer has brought the deadline forward"
    node.pass_time(began_ns + 400 * MS + 500 * MS - 1 - node.time_ns)
    assert node.take(Ask) == []
    node.pass_time(1)
    (second,) = node.take(Ask)
    node.tell(Answered(second.token, encode_message(Status(PROXY, "REFUSED", "", b"not known")), LINK))
    (note,) = node.take(Note)
    assert (note.event, note.fields["reason"]) == ("proxy-refuses", "not known")
    node.pass_time(4_000 * MS)
    assert node.take(Ask) == []


def test_whoever_waits_for_a_topic_that_is_held_is_answered_in_time() -> None:
    node = Node()
    server = node.engine.links[LINK]
    assert isinstance(server, Server)
    server.hold("s", "s is on its way", lambda now: None, Now(node.time_ns, node.time_ns))
    node.ask(1, put(1))
    node.pass_time(300 * MS - 1)
    assert node.take(Answer) == []
    node.pass_time(1)
    assert [answer.peer for answer in node.take(Answer)] == [1]


def test_a_node_that_stops_has_the_door_closed_when_what_is_in_hand_is_answered() -> None:
    node = Node()
    node.ask(1, put(1))
    node.tell(DrainRequested())
    node.ask(2, put(2))
    assert [answer.peer for answer in node.take(Answer)] == [2]
    assert node.take(CloseLink) == []
    node.sync()
    assert [type(order) for order in node.orders if isinstance(order, Answer | CloseLink)] == [Answer, CloseLink]
    node.tell(LinkClosed(LINK, "closed"))
    node.sync()
    assert (node.engine.links, len(node.floor.flows), node.floor.attached_count) == ({}, 0, 0)


def test_a_door_that_is_closed_changes_nothing_any_more_but_what_was_put_goes_on_its_way() -> None:
    node = Node()
    node.ask(1, put(1))
    node.tell(LinkClosed(LINK, "closed"))
    node.ask(2, put(2))
    node.sync()
    assert node.take(Answer) == []
    assert node.floor.attached_count == 0
    node.pass_time(10_000 * MS)
    assert node.take(Ask) == []


def test_while_too_much_waits_for_the_disk_nothing_is_read_from_the_door() -> None:
    node = Node(unsynced_size_max=1000)
    node.say(put(1))
    node.ask(1, put(2, bytes(5000)))
    assert node.take(PauseReading) == [PauseReading(LINK)]
    node.sync()
    assert node.take(ResumeReading) == [ResumeReading(LINK)]
    assert [answer.peer for answer in node.take(Answer)] == [1]
