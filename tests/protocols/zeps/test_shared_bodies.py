"""A large body is sent to clients of version 1 as it lies in its record: it is in memory once for all of them."""

from __future__ import annotations

from typing import Any

import pytest

from veredus.delivery.batch import CODEC_FLAGS, BatchHeader, compressed, signed_record
from veredus.delivery.publication import Rows
from veredus.delivery.rows import encode_rows
from veredus.journal import exchange as j
from veredus.kernel.effects import Send
from veredus.kernel.events import DeadlineReached
from veredus.kernel.octets import Octets
from veredus.kernel.turns import QUANTUM_NS
from veredus.protocols.links import WorkDone, session_of
from veredus.protocols.zeps import frames
from veredus.protocols.zeps.packing import OCTET_NS
from veredus.protocols.zeps.payloads import SHARED_SIZE_MIN
from veredus.protocols.zeps.prices import RAW_OCTET_NS
from veredus.streams import exchange as x

from .peer import MUCH, Peer
from .place import START_NS, Place

WRITER = 99
READERS = range(1, 5)


class Watched(Place):
    """Keeps the buffers that each link is sent, what was pushed to them, and what their work has cost."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.buffers: dict[int, list[Octets]] = {}
        self.pushed: list[x.Push] = []
        self.costs_ns: list[int] = []

    def _step(self, thing: Any) -> None:
        if isinstance(thing, Send):
            self.buffers.setdefault(thing.link, []).extend(thing.buffers)
        elif isinstance(thing, x.Push):
            self.pushed.append(thing)
        elif isinstance(thing, WorkDone):
            self.costs_ns.append(thing.cost_ns)
        super()._step(thing)


class Apart(Watched):
    """Each record that is read from the journal lies in memory of its own."""

    def _read(self, asked: j.ReadRequested) -> None:
        kept = self.journal
        self.journal = {
            stream_id: [record._replace(memory=memoryview(bytes(record.memory))) for record in records]
            for stream_id, records in kept.items()
        }
        super()._read(asked)
        self.journal = kept


def offer(place: Place, bodies: list[bytes], codec: str = "", first: int = 1) -> None:
    """Publish these bodies as one batch, numbered from `first` on."""
    payload = encode_rows(Rows([b"key"] * len(bodies), bodies))
    if codec:
        payload = compressed(payload, codec)
    count, flags = len(bodies), int(CODEC_FLAGS[codec]) if codec else 0
    header = BatchHeader(0, flags, len(payload), 0, count, 1, 0, 0, count, first, 7, 7)
    place.tell(x.BatchOffered(session_of(WRITER, 1), signed_record(header, [payload]), header))


def subscribed(place: Place) -> list[Peer]:
    """Readers that give credit without end."""
    peers = [Peer(place, link, door="tcp" if link % 2 else "zeromq") for link in READERS]
    for peer in peers:
        peer.say(frames.encode_subscribe(b"", 0), frames.encode_credit(MUCH))
    return peers


def published(place: Place, bodies: list[bytes], codec: str = "") -> list[Peer]:
    """Readers that are delivered these bodies."""
    peers = subscribed(place)
    Peer(place, WRITER)
    offer(place, bodies, codec)
    give_turns(place)
    check_delivered(peers, bodies)
    return peers


def give_turns(place: Place) -> None:
    while place.streams.deadline() == place.monotonic_ns + 1:
        # Flows wait for their turns, in which nothing may be due.
        place.monotonic_ns += 1
        for order in place.streams.handle(DeadlineReached(), place.now):
            place.tell(order)


def check_delivered(peers: list[Peer], bodies: list[bytes]) -> None:
    for peer in peers:
        assert len(peer.delivered) == len(bodies)
        delivered = [command.body for command in peer.heard if isinstance(command, frames.Deliver)]
        assert list(map(bytes, delivered)) == bodies


def check_shared(place: Watched, count: int) -> None:
    """Each link was sent so many large bodies, which lie in one piece of memory."""
    large = [buffer for link in READERS for buffer in place.buffers[link] if len(buffer) >= SHARED_SIZE_MIN]
    assert len(large) == count * len(READERS)
    assert all(isinstance(buffer, memoryview) for buffer in large)
    assert len({id(buffer.obj) for buffer in large if isinstance(buffer, memoryview)}) == 1


@pytest.mark.parametrize("codec", ["", "zstd", "lz4"])
@pytest.mark.parametrize("count", [1, 3])
def test_a_large_body_lies_in_memory_once_for_all_links(count: int, codec: str) -> None:
    place = Watched()
    published(place, [bytes([number]) * SHARED_SIZE_MIN for number in range(count)], codec)
    check_shared(place, count)


def test_a_large_body_that_is_pushed_behind_a_small_one_lies_in_memory_once_for_all_links() -> None:
    place = Watched()
    bodies = [b"small", b"x" * SHARED_SIZE_MIN]
    Peer(place, WRITER)
    for number, body in enumerate(bodies, 1):
        offer(place, [body], first=number)
    peers = subscribed(place)
    give_turns(place)
    assert {len(said.buffers) for said in place.pushed} == {2}
    check_delivered(peers, bodies)
    check_shared(place, 1)


def test_what_each_link_reads_from_the_journal_for_itself_is_decompressed_once_for_all_of_them() -> None:
    place = Apart(tail_size_max=0)
    published(place, [b"x" * SHARED_SIZE_MIN], "zstd")
    check_shared(place, 1)


def test_what_was_decompressed_is_held_by_nobody_once_it_was_written() -> None:
    place = Watched()
    published(place, [b"x" * SHARED_SIZE_MIN], "zstd")
    assert len(place.undelivered.payloads) == 1
    place.buffers.clear()
    assert len(place.undelivered.payloads) == 0


def test_one_link_pays_for_what_is_decompressed_and_those_that_find_it_so_pay_little_for_that() -> None:
    place, size = Watched(), 10 * QUANTUM_NS // OCTET_NS
    published(place, [bytes(size)], "zstd")
    *others, one = sorted(cost_ns for cost_ns in place.costs_ns if cost_ns >= size * OCTET_NS)
    assert len(others) == len(READERS) - 1
    assert one - others[-1] >= size * RAW_OCTET_NS
    assert others[-1] <= size * OCTET_NS + QUANTUM_NS // 10


def test_what_is_small_and_what_is_a_small_part_of_much_is_copied_and_holds_nothing_else_in_memory() -> None:
    place = Watched()
    published(place, [b"small", *[b"x" * SHARED_SIZE_MIN] * 8, b"small", bytes(SHARED_SIZE_MIN - 1)])
    assert all(isinstance(buffer, bytes) for link in READERS for buffer in place.buffers[link])
    assert max(map(len, place.buffers[1])) > 2 * SHARED_SIZE_MIN, "all that goes in one turn is one buffer"


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_who_is_delivered_what_was_compressed_pays_for_what_it_is_decompressed(codec: str) -> None:
    place, size = Place(), 10 * QUANTUM_NS // OCTET_NS
    published(place, [bytes(size)], codec)
    assert place.monotonic_ns - START_NS >= 10 * (len(READERS) - 1), "turns of their principal"
