"""What waits for the credit of clients of version 1 is bounded over all of them, and none of it is lost."""

from __future__ import annotations

from collections.abc import Callable
from weakref import ref

import numpy as np
import pytest

from veredus.kernel.events import LinkClosed, LinkCongested, LinkDrained
from veredus.protocols.links import session_of
from veredus.protocols.zeps import frames
from veredus.streams import exchange as x

from .peer import MUCH, Peer
from .place import Place

BODY = "x" * 1000
SIZE_MAX = 20_000
"""Room for what waits for four clients, as `wait_for` lets it wait."""
WRITER = 99


def wait_for(place: Place, links: int, door: str = "tcp", count: int = 3) -> list[Peer]:
    """So many clients have had the first of `count` publications of one batch; the others wait for their credit."""
    peers = [Peer(place, link, door=door) for link in range(1, links + 1)]
    for peer in peers:
        peer.say(frames.encode_subscribe(b"", 0), frames.encode_credit(1))
    Peer(place, WRITER).publish(*[("k", BODY)] * count)
    for peer in peers:
        assert peer.delivered == [(1, b"k")]
        place.undelivered.check()
    return peers


@pytest.mark.parametrize("door", ["tcp", "zeromq"])
@pytest.mark.parametrize("tail_size_max", [64 << 20, 0])
def test_what_waits_for_clients_without_credit_is_bounded_and_comes_once_and_in_order_with_credit(
    door: str, tail_size_max: int
) -> None:
    place = Place(undelivered_size_max=SIZE_MAX, tail_size_max=tail_size_max)
    peers = wait_for(place, 12, door)
    assert 0 < place.undelivered.size <= SIZE_MAX
    for credit in (1, len(BODY) + 1000, 1, MUCH):
        for peer in peers:
            peer.say(frames.encode_credit(credit))
            place.undelivered.check()
        Peer(place, WRITER).publish(("k", BODY))
    for peer in peers:
        assert [sequence for sequence, _ in peer.delivered] == list(range(1, 8))
    assert place.undelivered.size == 0


def test_who_has_waited_longest_is_let_go_first_and_who_has_credit_is_pushed_on() -> None:
    place = Place(undelivered_size_max=SIZE_MAX)
    reader = Peer(place, 50)
    reader.say(frames.encode_subscribe(b"", 0), frames.encode_credit(MUCH))
    wait_for(place, 12)
    assert len(reader.delivered) == 3
    place.down.clear()
    for link in range(1, 13):
        place.receive(link, frames.encode_credit(MUCH))
    again = {said.session >> 32 for said in place.down if isinstance(said, x.SubscribeRequested)}
    assert again == set(range(1, max(again) + 1))
    assert 1 <= max(again) < 12, "what the last ones have waits here still"


def test_who_takes_nothing_is_pushed_nothing_after_it_was_let_go_until_it_takes_more() -> None:
    place = Place(undelivered_size_max=0)
    peer = Peer(place)
    peer.say(frames.encode_subscribe(b"", 0))
    place.tell(LinkCongested(1))
    peer.publish(("k", BODY), ("k", BODY))
    peer.say(frames.encode_credit(MUCH))
    place.down.clear()
    for _ in range(3):
        peer.publish(("k", BODY))
    assert not [said for said in place.down if isinstance(said, x.SubscribeRequested | x.CreditGranted)]
    assert peer.delivered == []
    place.tell(LinkDrained(1))
    assert [sequence for sequence, _ in peer.delivered] == [1, 2, 3, 4, 5]


def test_what_waits_keeps_nothing_in_memory_that_was_read_from_the_journal_with_it() -> None:
    place = Place(tail_size_max=0)
    Peer(place, WRITER).publish(("k", BODY), ("k", BODY))
    (records,) = place.journal.values()
    (record,) = records
    read = np.zeros(10 * len(record.memory), np.uint8)
    read[: len(record.memory)] = record.memory
    records[0] = record._replace(memory=read.data[: len(record.memory)])
    peer = Peer(place)
    peer.say(frames.encode_subscribe(b"", 0), frames.encode_credit(1))
    assert peer.delivered == [(1, b"k")]
    records[0], memory = record, ref(read)
    del read
    assert memory() is None
    peer.say(frames.encode_credit(MUCH))
    assert [sequence for sequence, _ in peer.delivered] == [1, 2]


ENDS: dict[str, Callable[[Place, Peer], object]] = {
    "lost": lambda place, peer: place.tell(LinkClosed(peer.link)),
    "DETACH": lambda _, peer: peer.say(frames.DETACH),
    "attached again": lambda _, peer: peer.say(frames.encode_attach("s")),
    "bad": lambda place, peer: place.receive(peer.link, b"\xaa\xa5\x63"),
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("undelivered_size_max", [SIZE_MAX, 0])
def test_nothing_waits_for_whom_is_gone_and_each_session_is_closed_once(end: str, undelivered_size_max: int) -> None:
    place = Place(undelivered_size_max=undelivered_size_max)
    for peer in wait_for(place, 3, "zeromq"):
        ENDS[end](place, peer)
    assert place.undelivered.size == 0
    for link in (1, 2, 3, WRITER):
        place.tell(LinkClosed(link))
    opened = [said.session for said in place.down if isinstance(said, x.SubscribeRequested | x.SourceAttachRequested)]
    closed = [said.session for said in place.down if isinstance(said, x.SessionClosed)]
    assert sorted(opened) == sorted(closed)


def test_what_was_let_go_and_is_trimmed_before_credit_comes_ends_the_attachment_with_the_reason() -> None:
    place = Place(undelivered_size_max=0)
    (peer,) = wait_for(place, 1)
    place.tell(x.AdminRequested(session_of(WRITER, 0), 1, "local", "stream.trim", {"name": "s", "floor": 4}))
    peer.say(frames.encode_credit(MUCH))
    assert peer.invalid.startswith("below-floor:")


def test_what_was_let_go_never_comes_from_another_stream_of_the_same_name() -> None:
    place = Place(undelivered_size_max=0, may=lambda principal, verb, _: principal == "local" or verb != "publish")
    writer, peer = Peer(place, WRITER), Peer(place, principal="reader")
    peer.say(frames.encode_subscribe(b"", 0), frames.encode_credit(1))
    writer.publish(("k", BODY), ("k", BODY))
    assert peer.delivered == [(1, b"k")]
    place.tell(x.AdminRequested(session_of(WRITER, 0), 1, "local", "stream.delete", {"name": "s"}))
    Peer(place, 98).publish(("other", BODY), ("other", BODY))
    peer.say(frames.encode_credit(MUCH))
    assert peer.delivered == [(1, b"k")]
    assert peer.invalid.startswith("stream-replaced:")
