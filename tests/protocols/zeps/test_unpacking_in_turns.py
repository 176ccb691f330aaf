"""What is far more once it is unpacked reaches a client of version 1 in turns, and others go on in between."""

from __future__ import annotations

import pytest

from veredus.kernel.events import LinkClosed, LinkCongested, LinkDrained
from veredus.protocols.zeps import frames
from veredus.protocols.zeps.packing import ROW_NS

from .peer import MUCH, Peer
from .turning import AT_ONCE_MAX, ROWS, Turning, offer_columns


def asking(place: Turning, door: str = "tcp") -> Peer:
    peer = Peer(place, 1, door=door)
    peer.say(frames.encode_subscribe(b"", 0), frames.encode_credit(MUCH))
    return peer


def sequences(peer: Peer) -> list[int]:
    return [sequence for sequence, _ in peer.delivered]


@pytest.mark.parametrize("door", ["tcp", "zeromq"])
def test_very_many_publications_of_a_small_push_come_in_turns_and_are_paid_for(door: str) -> None:
    place = Turning()
    peer = asking(place, door)
    place.give_turns()
    offer_columns(place, 3)
    place.give_turns()
    assert sequences(peer) == list(range(1, 3 * ROWS + 1))
    assert place.delivered_max <= AT_ONCE_MAX
    assert place.work_ns >= 3 * ROWS * ROW_NS


def test_a_link_that_is_congested_meanwhile_is_delivered_nothing_until_it_is_drained() -> None:
    place = Turning()
    offer_columns(place, 1)
    peer = asking(place)
    before = len(sequences(peer))
    assert 0 < before < ROWS
    place.tell(LinkCongested(1))
    place.give_turns()
    assert len(sequences(peer)) == before
    place.tell(LinkDrained(1))
    place.give_turns()
    assert sequences(peer) == list(range(1, ROWS + 1))


def test_credit_that_comes_meanwhile_brings_no_more_before_the_turn_and_a_turn_no_more_than_credit() -> None:
    place = Turning()
    offer_columns(place, 1)
    peer = Peer(place, 1)
    row_size = len(frames.encode_deliver(1, b"", b""))
    peer.say(frames.encode_subscribe(b"", 0), frames.encode_credit(1000 * row_size))
    before = len(sequences(peer))
    peer.say(frames.encode_credit(row_size))
    assert len(sequences(peer)) == before < 1001
    place.give_turns()
    assert sequences(peer) == list(range(1, 1002))
    peer.say(frames.encode_credit(MUCH))
    place.give_turns()
    assert sequences(peer) == list(range(1, ROWS + 1))


@pytest.mark.parametrize("undelivered_size_max", [256 << 20, 0])
@pytest.mark.parametrize("end", ["DETACH", "lost"])
def test_who_leaves_meanwhile_is_delivered_nothing_more(end: str, undelivered_size_max: int) -> None:
    place = Turning(undelivered_size_max=undelivered_size_max)
    offer_columns(place, 2)
    peer = asking(place)
    before = len(sequences(peer))
    if end == "lost":
        place.tell(LinkClosed(1))
    else:
        assert isinstance(peer.say(frames.DETACH)[-1], frames.DetachOk)
    place.give_turns()
    assert len(sequences(peer)) == before
    assert place.undelivered.size == 0
    assert 1 not in place.wanted


def test_what_is_let_go_meanwhile_comes_again_from_where_it_was_and_nothing_twice() -> None:
    place = Turning(undelivered_size_max=0)
    offer_columns(place, 2)
    peer = asking(place)
    place.give_turns()
    assert sequences(peer) == list(range(1, 2 * ROWS + 1))


def test_another_subscription_meanwhile_brings_nothing_twice_and_nothing_in_another_order() -> None:
    place = Turning()
    offer_columns(place, 2)
    peer = asking(place)
    peer.say(frames.encode_subscribe(b"", 1 + ROWS // 3))
    place.give_turns()
    got = sequences(peer)
    assert got == list(range(1, 2 * ROWS + 1))
    assert place.delivered_max <= AT_ONCE_MAX
