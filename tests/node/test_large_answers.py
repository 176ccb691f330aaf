"""An answer that says where a whole commit lies is large, and asked for by few bytes: memory and time stay bounded.

A repeated COMMIT, and an OPEN_RUN that joins, are answered when the journal's group is done, all at once.
"""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from tests.node.test_costly_frames import BOMBER, ITS_OTHER, PING, VICTIM, Node
from veredus.journal import exchange as journal
from veredus.kernel.effects import Send
from veredus.kernel.engine import Now
from veredus.kernel.events import LinkClosed, Received
from veredus.kernel.octets import Octets
from veredus.kernel.turns import QUANTUM_NS
from veredus.protocols.zeps import frames, native
from veredus.protocols.zeps import messages as m
from veredus.protocols.zeps.channel import Awaited
from veredus.protocols.zeps.native import Kind

ID, SINK, RUN, COMMIT_ID = b"1" * 16, "sink", 1, 7
STREAMS_COUNT = 600
ANSWER_SIZE = STREAMS_COUNT * 250
"""At least."""


class SlowNode(Node):
    """As `Node`, but its disk may be held; and what it sends is kept as it is, by link."""

    def __init__(self, unsynced_size_max: int = 1 << 30) -> None:
        self.is_held = False
        self.writing: list[object] = []
        self.sent: dict[int, list[Octets]] = {}
        super().__init__(unsynced_size_max)

    def tell(self, *events: object) -> None:
        queue: deque[Any] = deque(events)
        while queue:
            for effect in self.engine.handle(queue.popleft(), Now(self.time_ns, 1_700_000_000_000_000_000)):
                if isinstance(effect, Send) and effect.buffers != (frames.ATTACH_OK,):
                    self.sent.setdefault(effect.link, []).extend(effect.buffers)
                    self.heard[effect.link] += self.parsers[effect.link].feed(b"".join(effect.buffers))
                elif isinstance(effect, journal.WriteGroup | journal.CreateSegment | journal.WriteFile):
                    if self.is_held:
                        self.writing.append(effect)
                    else:
                        queue.append(self.disk.carry_out(effect))

    def hold(self, channel: int = 9) -> None:
        """The disk does nothing any more; and a batch is on its way to it, so whatever comes waits for the next."""
        self.is_held = True
        self.tell(Received(VICTIM, native.encode_message(channel, m.AttachSource("other", "me", b"2" * 16))))
        self.turns(8)
        assert self.writing

    def release(self) -> None:
        self.is_held = False
        writing, self.writing = self.writing, []
        self.tell(*(self.disk.carry_out(effect) for effect in writing))

    def said(self, link: int, kind: Kind) -> list[Any]:
        return [native.decode_message(frame) for frame in self.heard[link] if frame.kind == kind]

    def answers_count(self, link: int) -> int:
        return sum(frame.kind in (Kind.COMMITTED, Kind.RUN_OPENED) for frame in self.heard[link])

    def forget(self) -> None:
        for link in self.heard:
            self.heard[link].clear()
        self.sent.clear()


def node_with_a_large_commit() -> tuple[SlowNode, int]:
    """A node, and the epoch of a run of the bomber's, open on both its links, whose last commit has many streams."""
    node = SlowNode()
    node.tell(Received(BOMBER, native.encode_message(RUN, m.OpenRun(SINK, ID))))
    node.turns(8)
    (run,) = node.said(BOMBER, Kind.RUN_OPENED)
    for index in range(STREAMS_COUNT):
        stage = m.OpenStage(SINK, run.epoch, f"{index:05d}" + "n" * 250, index.to_bytes(16, "big"))
        node.tell(Received(BOMBER, native.encode_message(2 + index, stage)))
        node.turns(2)
    stages = tuple(opened.stage for opened in node.said(BOMBER, Kind.STAGE_OPENED))
    assert len(stages) == STREAMS_COUNT
    node.tell(Received(BOMBER, native.encode_message(RUN, m.Commit(1, SINK, run.epoch, COMMIT_ID, stages))))
    node.turns(100)
    node.tell(Received(ITS_OTHER, native.encode_message(RUN, m.OpenRun(SINK, ID, run.epoch))))
    node.turns(200)
    (joined,) = node.said(ITS_OTHER, Kind.RUN_OPENED)
    assert len(msgspec.msgpack.decode(joined.detail)) == STREAMS_COUNT
    node.forget()
    return node, run.epoch


def asked(way: str, epoch: int, number: int) -> bytes:
    """What is asked for by few bytes, and answered by many."""
    if way == "COMMIT":
        return native.encode_message(RUN, m.Commit(number, SINK, epoch, COMMIT_ID, ()))
    return native.encode_message(1_000 - number, m.OpenRun(SINK, ID, epoch))


WAYS = pytest.mark.parametrize("way", ["COMMIT", "OPEN_RUN"])


@WAYS
def test_all_answers_for_one_commit_share_one_encoded_copy(way: str) -> None:
    node, epoch = node_with_a_large_commit()
    for number in (2, 3):
        for link in (BOMBER, ITS_OTHER):
            node.tell(Received(link, asked(way, epoch, number)))
            node.turns(200)
    assert node.answers_count(BOMBER) == node.answers_count(ITS_OTHER) == 2
    large = [buffer for link in (BOMBER, ITS_OTHER) for buffer in node.sent[link] if len(buffer) > ANSWER_SIZE]
    assert (len(large), len({id(buffer) for buffer in large})) == (4, 1)


def test_what_the_answers_share_says_where_the_commit_lies() -> None:
    node, epoch = node_with_a_large_commit()
    node.tell(Received(BOMBER, asked("COMMIT", epoch, 2) + asked("OPEN_RUN", epoch, 3)))
    node.turns(200)
    (committed,), (opened,) = node.said(BOMBER, Kind.COMMITTED), node.said(BOMBER, Kind.RUN_OPENED)
    assert (committed.request, committed.commit_id, committed.duplicate) == (2, COMMIT_ID, True)
    assert (opened.epoch, opened.commit_id) == (epoch, COMMIT_ID)
    assert [list(row) for row in committed.streams] == msgspec.msgpack.decode(opened.detail)


@WAYS
def test_who_asks_for_a_large_answer_pays_for_its_octets(way: str) -> None:
    node, epoch = node_with_a_large_commit()
    count = QUANTUM_NS // ANSWER_SIZE
    node.tell(Received(BOMBER, b"".join(asked(way, epoch, 2 + index) for index in range(count))))
    node.turns(1)
    assert node.answers_count(BOMBER) == count < Awaited.COUNT_MAX
    node.tell(Received(ITS_OTHER, PING), Received(VICTIM, PING))
    assert (node.pongs(ITS_OTHER), node.pongs(VICTIM)) == (0, 1), "its other link waits, and nobody else"


@WAYS
def test_a_link_has_few_large_answers_on_their_way_while_the_disk_is_slow(way: str) -> None:
    node, epoch = node_with_a_large_commit()
    node.hold()
    node.tell(Received(BOMBER, b"".join(asked(way, epoch, 2 + index) for index in range(200))))
    node.turns(500)
    assert node.answers_count(BOMBER) == 0
    node.release()
    node.hold(10)
    node.turns(500)
    assert node.answers_count(BOMBER) == Awaited.COUNT_MAX
    node.release()
    node.turns(5_000)
    assert node.answers_count(BOMBER) == 200, "the others have theirs, too"


@WAYS
def test_what_comes_due_at_once_is_told_in_turns_of_its_principal(way: str) -> None:
    node, epoch = node_with_a_large_commit()
    node.hold()
    asked_for = b"".join(asked(way, epoch, 2 + index) for index in range(Awaited.COUNT_MAX))
    node.tell(Received(BOMBER, asked_for), Received(ITS_OTHER, asked_for))
    node.turns(100)
    node.release()
    node.tell(Received(VICTIM, PING))
    assert node.pongs(VICTIM) == 1
    told = [0]
    for _ in range(50):
        told.append(node.answers_count(BOMBER) + node.answers_count(ITS_OTHER))
        node.turns(1)
    assert told[-1] == 2 * Awaited.COUNT_MAX
    in_turns = [after - before for before, after in pairwise(told)]
    assert max(in_turns) <= QUANTUM_NS // ANSWER_SIZE + 1


@WAYS
def test_what_comes_behind_a_large_answer_on_its_channel_is_told_behind_it(way: str) -> None:
    node, epoch = node_with_a_large_commit()
    node.hold()
    drop = native.encode_message(RUN, m.DropStages(100, SINK, epoch, ()))
    node.tell(Received(BOMBER, b"".join(asked("COMMIT", epoch, 2 + index) for index in range(3)) + drop))
    node.turns(100)
    node.release()
    node.turns(50)
    kinds = [frame.kind for frame in node.heard[BOMBER] if frame.channel == RUN]
    assert kinds == [Kind.COMMITTED] * 3 + [Kind.REPLY]


def test_channels_that_end_and_stages_that_are_dropped_leave_room_for_other_requests() -> None:
    node, epoch = node_with_a_large_commit()
    several = b"".join(
        native.encode_message(RUN, m.DropStages(100 + index, SINK, epoch, ()))
        + native.encode_message(900 + index, m.OpenRun(SINK, b"2" * 16, epoch + 10))
        + asked("OPEN_RUN", epoch, 200 + index)
        + native.encode_frame(Kind.CLOSE_CHANNEL, 800 - index)
        for index in range(60)
    )
    node.tell(Received(BOMBER, several))
    node.turns(500)
    node.hold()
    node.tell(Received(BOMBER, b"".join(asked("COMMIT", epoch, 2 + index) for index in range(40))))
    node.turns(100)
    node.release()
    node.turns(1_000)
    kinds = [frame.kind for frame in node.heard[BOMBER]]
    assert [kinds.count(kind) for kind in (Kind.REPLY, Kind.REFUSED, Kind.COMMITTED)] == [60, 60, 40]


@WAYS
def test_what_a_link_asked_for_that_is_gone_makes_no_copy_of_an_answer(way: str) -> None:
    node, epoch = node_with_a_large_commit()
    node.hold()
    node.tell(Received(BOMBER, b"".join(asked(way, epoch, 2 + index) for index in range(200))))
    node.tell(LinkClosed(BOMBER, "closed"))
    node.turns(100)
    node.release()
    node.turns(2_000)
    assert BOMBER not in node.engine.links
    large = [buffer for buffer in node.sent.get(BOMBER, ()) if len(buffer) > ANSWER_SIZE]
    assert len({id(buffer) for buffer in large}) <= 1
