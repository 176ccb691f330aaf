"""The join follows each fact to its end before the next one, so that nothing is built on an append that was refused."""

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tests.journal.rig import MemoryDisk, recover_from
from veredus.delivery.batch import BatchHeader
from veredus.journal import exchange as journal
from veredus.journal.log import Log
from veredus.journal.settings import LogSettings
from veredus.kernel.effects import Note, Send
from veredus.kernel.engine import Now
from veredus.kernel.events import DeadlineReached, LinkOpened, Received
from veredus.node.engine import FloorOrdered, NodeEngine
from veredus.sim.content import Identity, batch_record
from veredus.sim.ports import PlainDoor, batch_offered
from veredus.streams import exchange as x
from veredus.streams.engine import StreamsEngine
from veredus.streams.rights import May
from veredus.streams.tables import StreamsLimits

NOW = Now(1_000_000_000, 1_700_000_000_000_000_000)
EPOCH = 1_700_000_000_000_000
"""Of the first run of a sink."""
WHO = bytes(16)
LINK = 1
SETTINGS = LogSettings(segment_size=64 << 10)


class Door(PlainDoor):
    """A plain door through which several facts may come at once, as frames do that arrive together."""

    def handle(self, event: Any, now: Now) -> Sequence[object]:
        if isinstance(event, Received):
            return [said for fact in event.data for said in super(Door, self).handle(Received(LINK, (fact,)), now)]
        return super().handle(event, now)


class Node:
    """A node with one link, over a disk of dictionaries."""

    def __init__(
        self, disk: MemoryDisk | None = None, settings: LogSettings = SETTINGS, may: May = lambda *_: True
    ) -> None:
        self.notes: list[Note] = []
        self.disk = disk or MemoryDisk()
        found = recover_from(self.disk, settings)
        self.floor = StreamsEngine(StreamsLimits(), x.Durability.GROUP, lambda: WHO, may, lambda _: 0)
        for state in found.states:
            self.floor.load(state)
        for view in found.views:
            self.floor.replay(view)
        log = Log(settings, found.recovered)
        self.engine = NodeEngine(log, self.floor, Door, 1 << 30, 10)  # type: ignore[arg-type]
        self.tell(FloorOrdered(self.floor.finish_recovery(found.recovered.is_clean)))
        self.tell(LinkOpened(LINK, "memory", "peer", "local"))

    def tell(self, event: object) -> list[Any]:
        """One event, and all that the disk answers; what was said to the link."""
        said: list[Any] = []
        queue: deque[object] = deque([event, DeadlineReached()])
        while queue:
            for effect in self.engine.handle(queue.popleft(), NOW):
                if isinstance(effect, Send):
                    said.extend(item for (item,) in effect.buffers)
                elif isinstance(effect, Note):
                    self.notes.append(effect)
                elif isinstance(effect, journal.WriteGroup | journal.CreateSegment | journal.WriteFile):
                    queue.extend((self.disk.carry_out(effect), DeadlineReached()))
        return said

    def say(self, *facts: object) -> list[Any]:
        """Facts of the peer that arrive at once; what is said to it because of them."""
        return self.tell(Received(LINK, facts))  # type: ignore[arg-type]


def offered(session: int, stream_id: int, source_id: int, epoch: int, first: int, count: int) -> x.BatchOffered:
    rows = [Identity("alpha", number) for number in range(first, first + count)]
    header = BatchHeader(0, 0, 0, 0, 0, stream_id, source_id, epoch, 0, first, 0, 0)
    return batch_offered(session, batch_record(header, rows))


def test_a_commit_that_arrives_with_a_refused_batch_leaves_no_hole_in_the_stream() -> None:
    node = Node()
    node.say(x.SourceAttachRequested(1, "local", "s", "alpha", WHO), x.RunOpenRequested(2, "local", "sink", WHO))
    (stage,) = node.say(x.StageOpenRequested(3, "local", "sink", EPOCH, "s", WHO))
    node.say(offered(3, 1, 0, 0, 1, 4))
    node.disk.size_max = 0
    number = 1
    while not isinstance(node.say(offered(1, 1, 1, 1, number, 30))[0], x.RefuseBatch):
        number += 30
    refused, committed = node.say(
        offered(1, 1, 1, 1, number, 30), x.CommitRequested(2, 1, "local", "sink", EPOCH, 1, (stage.stage,))
    )
    assert (refused.code, refused.last_number) == ("disk-full", number - 1)
    assert committed.streams == (("s", number, 4),)
    assert node.floor.tables.streams["s"].head_durable == number + 3


def test_a_checkpoint_that_is_due_when_a_node_starts_keeps_all_that_recovery_found() -> None:
    node = Node(settings=replace(SETTINGS, segment_size=16 << 10))
    node.say(x.SourceAttachRequested(1, "local", "s", "alpha", WHO), x.RunOpenRequested(2, "local", "sink", WHO))
    while node.engine.log.segment_count < 3:
        last = node.floor.tables.streams["s"].head_durable
        node.say(offered(1, 1, 1, 1, last + 1, 30))
    head = node.floor.tables.streams["s"].head_durable
    node.say(x.AdminRequested(4, 1, "local", "stream.trim", {"name": "s", "floor": head + 1}))
    for number in range(1, 4):
        (stage,) = node.say(x.StageOpenRequested(3, "local", "sink", EPOCH, "s", bytes([number]) * 16))
        node.say(offered(3, 1, 0, 0, 1, 4), x.SessionClosed(3))
        node.say(x.CommitRequested(2, number, "local", "sink", EPOCH, number, (stage.stage,)))
    assert "checkpoint" not in node.disk.files
    second = Node(node.disk, replace(SETTINGS, checkpoint_interval_size=1))
    assert "checkpoint" in second.disk.files, "what was trimmed lets segments go, so a checkpoint is due at once"
    third = Node(second.disk)
    assert third.floor.tables.streams["s"].head_durable == head + 12
    assert third.engine.log.extent(1).last_sequence == head + 12


def test_a_checkpoint_keeps_what_the_group_that_made_it_due_has_brought() -> None:
    node = Node(settings=replace(SETTINGS, checkpoint_interval_size=5000))
    node.say(x.SourceAttachRequested(1, "local", "s", "alpha", WHO))
    number = 1
    while "checkpoint" not in node.disk.files:
        node.say(offered(1, 1, 1, 1, number, 30))
        number += 30
    again = Node(node.disk)
    assert again.floor.tables.streams["s"].head_durable == number - 1
    (grant,) = again.say(x.SourceAttachRequested(1, "local", "s", "alpha", WHO, 1))
    assert grant.last_number == number - 1


def test_who_was_refused_is_noted_with_where_that_one_came_from() -> None:
    node = Node(may=lambda principal, verb, resource: verb != "publish")
    (refused,) = node.say(x.SourceAttachRequested(1, "mallory", "s", "alpha", WHO))
    assert refused.code == "forbidden"
    (noted,) = [note.fields for note in node.notes if note.event == "forbidden"]
    asked = {"principal": "mallory", "verb": "publish", "kind": "stream", "name": "s"}
    assert noted.items() >= {**asked, "link": LINK, "peer": "peer"}.items()
