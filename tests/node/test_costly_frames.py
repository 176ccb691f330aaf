"""A small frame that takes long to read is paid for by whoever sent it: its principal waits for turns, nobody else."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from tests.journal.rig import MemoryDisk, recover_from
from veredus.delivery.batch import BatchFlags, BatchHeader, signed_record
from veredus.journal import exchange as journal
from veredus.journal.log import Log
from veredus.journal.settings import LogSettings
from veredus.kernel.effects import Send
from veredus.kernel.engine import Now
from veredus.kernel.events import DeadlineReached, LinkOpened, Received
from veredus.kernel.turns import QUANTUM_NS
from veredus.node.engine import FloorOrdered, NodeEngine
from veredus.protocols.zeps import frames, native
from veredus.protocols.zeps import messages as m
from veredus.protocols.zeps.attachment import NodeLink
from veredus.protocols.zeps.native import Kind
from veredus.protocols.zeps.orders import LinkLimits
from veredus.protocols.zeps.parsing import FrameParser
from veredus.protocols.zeps.version2 import SETTLE_PIECE_SIZE
from veredus.streams import exchange as x
from veredus.streams.engine import StreamsEngine
from veredus.streams.tables import StreamsLimits

MIB = 1 << 20
RAW_SIZE = 15 * MIB
BOMBER, ITS_OTHER, VICTIM = 1, 2, 3
PRINCIPALS = {BOMBER: "bomber", ITS_OTHER: "bomber", VICTIM: "victim"}
SETTINGS = LogSettings(segment_size=64 << 20)
PING = native.encode_frame(Kind.PING, 0)
MANY_STAGES = tuple(range(1, 1_001))


class Node:
    """A node with three native links of two principals, over a disk of dictionaries; `heard` is by link."""

    def __init__(self, unsynced_size_max: int = 1 << 30) -> None:
        self.disk = MemoryDisk()
        self.time_ns = 1_000_000_000
        self.parsers = {link: FrameParser(1 << 20) for link in PRINCIPALS}
        self.heard: dict[int, list[native.Frame]] = {link: [] for link in PRINCIPALS}
        found = recover_from(self.disk, SETTINGS)
        floor = StreamsEngine(StreamsLimits(), x.Durability.GROUP, lambda: bytes(16), lambda *_: True, lambda _: 0)
        log = Log(SETTINGS, found.recovered)
        self.engine = NodeEngine(log, floor, lambda event: NodeLink(event.link, LinkLimits()), unsynced_size_max, 10)
        self.tell(FloorOrdered(floor.finish_recovery(found.recovered.is_clean)))
        for link, principal in PRINCIPALS.items():
            self.tell(LinkOpened(link, "tcp", f"peer-{link}", principal))
            self.tell(Received(link, frames.encode_attach("", 2) + native.encode_message(0, m.Hello())))
        self.turns(4)

    def tell(self, *events: object) -> None:
        """These facts in one turn, and what the disk answers."""
        queue: deque[Any] = deque(events)
        while queue:
            for effect in self.engine.handle(queue.popleft(), Now(self.time_ns, 1_700_000_000_000_000_000)):
                if isinstance(effect, Send) and effect.buffers != (frames.ATTACH_OK,):
                    self.heard[effect.link] += self.parsers[effect.link].feed(b"".join(effect.buffers))
                elif isinstance(effect, journal.WriteGroup | journal.CreateSegment | journal.WriteFile):
                    queue.append(self.disk.carry_out(effect))

    def turns(self, count: int) -> None:
        for _ in range(count):
            self.time_ns += 1
            self.tell(DeadlineReached())

    def pongs(self, link: int) -> int:
        return sum(frame.kind == Kind.PONG for frame in self.heard[link])

    def turns_until_pong(self, link: int) -> int:
        """How many turns pass until the link has its answer."""
        for count in range(200):
            if self.pongs(link):
                return count
            self.turns(1)
        raise AssertionError(f"link {link} waits for ever")


def offers_of(node: Node, flags: BatchFlags, payload: Sequence[bytes], row_count: int = 1) -> bytes:
    """An OFFER of one publication, on a channel that was granted to the bomber."""
    node.tell(Received(BOMBER, native.encode_message(1, m.AttachSource("s", "me", b"1" * 16))))
    node.turns(8)
    (grant,) = (native.decode_message(frame) for frame in node.heard[BOMBER] if frame.kind == Kind.SOURCE_ATTACHED)
    assert isinstance(grant, m.SourceAttached)
    source = grant.stream_id, grant.source_id, grant.epoch
    header = BatchHeader(0, int(flags), 0, 0, row_count, *source, row_count, 1, 5, 5)
    return native.encode_frame(Kind.OFFER, 1, signed_record(header, payload))


def counts_of_turns(node: Node, said: bytes, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many frames of what the bomber says come to the floor in each turn, until it has all of them."""
    handle, counts = StreamsEngine.handle, [0]

    def counted(self: StreamsEngine, event: Any, now: Now) -> Sequence[object]:
        counts[-1] += getattr(event, "session", 0) > 0
        return handle(self, event, now)

    monkeypatch.setattr(StreamsEngine, "handle", counted)
    node.tell(Received(BOMBER, said + PING))
    while not node.pongs(BOMBER):
        counts.append(0)
        node.turns(1)
    return counts


def bomb_of(node: Node) -> bytes:
    raw = msgspec.msgpack.encode([[b"k"], [bytes(RAW_SIZE)], None, None, None])
    return offers_of(node, BatchFlags.ZSTD, [len(raw).to_bytes(8, "little"), pa.compress(raw, "zstd", asbytes=True)])


def test_a_bomb_that_unpacks_to_15_mib_costs_its_principal_turns_and_another_is_answered_at_once() -> None:
    node = Node()
    bomb = bomb_of(node)
    assert len(bomb) < 4096
    node.turns(1)
    node.tell(Received(BOMBER, bomb + PING), Received(ITS_OTHER, PING), Received(VICTIM, PING))
    assert (node.pongs(BOMBER), node.pongs(ITS_OTHER), node.pongs(VICTIM)) == (0, 0, 1)
    assert node.turns_until_pong(BOMBER) >= RAW_SIZE // QUANTUM_NS - 1
    assert node.turns_until_pong(ITS_OTHER) <= 1
    assert Kind.RECEIPT in [frame.kind for frame in node.heard[BOMBER]], "the bomb itself was taken"


def test_a_frame_that_is_as_small_and_not_packed_costs_no_turn() -> None:
    node = Node()
    raw = msgspec.msgpack.encode([[b"k"], [bytes(1000)], None, None, None])
    offer = offers_of(node, BatchFlags(0), [raw])
    node.turns(1)
    node.tell(Received(BOMBER, offer + PING), Received(ITS_OTHER, PING))
    assert (node.pongs(BOMBER), node.pongs(ITS_OTHER)) == (1, 1)


@pytest.mark.parametrize(
    ("frame", "count", "cost_ns"),
    [
        (native.encode_frame(Kind.CREDIT, 2, (1).to_bytes(8, "little")), 2_000, 6_500),
        (native.encode_handed(2, 0), 2_000, 6_200),
        (native.encode_frame(Kind.SETTLE, 2, bytes(16)), 2_000, 14_000),
        (native.encode_frame(Kind.SETTLE, 2, bytes(16_000)), 20, 3_200_000),
        (native.encode_message(2, m.Return(1, retry=True)), 1_000, 22_000),
    ],
    ids=["CREDIT", "HANDED", "SETTLE", "SETTLE of 1,000 ranges", "RETURN"],
)
def test_a_flood_of_small_frames_takes_no_more_of_a_turn_than_its_principal_may_have(
    frame: bytes, count: int, cost_ns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`cost_ns` was measured, from the link to the cursor."""
    node = Node()
    opened = m.Subscribe("s", "me", "main", incarnation=b"1" * 16, mode=1)
    node.tell(Received(BOMBER, native.encode_message(2, opened)))
    node.turns(8)
    counts = counts_of_turns(node, frame * count, monkeypatch)
    assert sum(counts) == count
    assert max(counts) * cost_ns <= 2 * QUANTUM_NS
    assert max(counts) * cost_ns >= QUANTUM_NS // 2, "nobody waits for what was not done"


def test_a_settle_of_very_many_ranges_is_taken_in_pieces_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node()
    opened = m.Subscribe("s", "me", "main", incarnation=b"1" * 16, mode=1)
    node.tell(Received(BOMBER, native.encode_message(2, opened)))
    node.turns(8)
    count = native.SETTLE_COUNT_MAX - 1
    counts = counts_of_turns(node, native.encode_settle(2, ((1, 1),) * count), monkeypatch)
    assert (sum(counts), max(counts)) == (4, 1)
    assert 16 * count <= SETTLE_PIECE_SIZE * 4


@pytest.mark.parametrize(("row_count", "cost_ns"), [(1, 28_000), (100, 40_000)])
def test_a_flood_of_offers_takes_no_more_of_a_turn_than_its_principal_may_have(
    row_count: int, cost_ns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`cost_ns` was measured, from the link to the journal."""
    node = Node()
    raw = msgspec.msgpack.encode([[b"k"] * row_count, [b"b"] * row_count, None, None, None])
    offer = offers_of(node, BatchFlags(0), [raw], row_count)
    node.turns(1)
    counts = counts_of_turns(node, offer * 400, monkeypatch)
    assert sum(counts) == 400
    assert QUANTUM_NS // 2 <= max(counts) * cost_ns <= 2 * QUANTUM_NS


@pytest.mark.parametrize(
    "asked",
    [m.Commit(1, "sink", 1_700_000_000, 7, MANY_STAGES), m.DropStages(1, "sink", 1_700_000_000, MANY_STAGES)],
    ids=["COMMIT", "DROP_STAGES"],
)
def test_a_frame_that_names_very_many_stages_takes_a_turn_for_itself(
    asked: m.Commit | m.DropStages, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node()
    node.tell(Received(BOMBER, native.encode_message(2, m.OpenRun("sink", b"1" * 16))))
    node.turns(8)
    said = [native.encode_message(2, msgspec.structs.replace(asked, request=number)) for number in range(1, 21)]
    assert len(said[0]) < 4 * len(MANY_STAGES)
    assert max(counts_of_turns(node, b"".join(said), monkeypatch)) == 1


@pytest.mark.parametrize("verb", ["stream.show", "subscription.show"])
def test_what_may_be_shown_with_very_much_is_asked_for_once_in_a_turn(
    verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node()
    arguments = {"name": "s", "stream": "s", "subscriber": "me"}
    asked = [native.encode_message(0, m.Request(number, verb, arguments)) for number in range(1, 21)]
    assert max(counts_of_turns(node, b"".join(asked), monkeypatch)) == 1
