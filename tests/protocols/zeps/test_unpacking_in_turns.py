"""What is far more once it is unpacked reaches a client of version 1 in turns, and others go on in between."""

from __future__ import annotations

from typing import Any

import pytest

from veredus.delivery.batch import BatchHeader, Layout, compressed, signed_record
from veredus.delivery.columns import encode_columns
from veredus.delivery.payload import columns_of
from veredus.delivery.publication import Rows
from veredus.kernel.effects import Send
from veredus.kernel.events import LinkClosed, LinkCongested, LinkDrained
from veredus.kernel.turns import QUANTUM_NS
from veredus.protocols.links import TurnGiven, TurnWanted, session_of
from veredus.protocols.zeps import frames
from veredus.protocols.zeps.frames import CommandParser
from veredus.protocols.zeps.packing import ROW_NS
from veredus.streams import exchange as x

from .peer import MUCH, Peer
from .place import Place

WRITER = 99
ROWS = 5_000
AT_ONCE_MAX = QUANTUM_NS // ROW_NS + 1


class Turning(Place):
    """Gives turns when it is asked to, and knows the most DELIVERs that a link said for one event."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.wanted: set[int] = set()
        self.delivered_max = 0

    def _step(self, thing: Any) -> None:
        if isinstance(thing, TurnWanted):
            self.wanted.add(thing.link)
        else:
            super()._step(thing)

    def _keep_left(self, link: int, effects: list[object]) -> None:
        super()._keep_left(link, effects)
        said = b"".join(bytes(b) for effect in effects if isinstance(effect, Send) for b in effect.buffers)
        delivered = [c for c in CommandParser(1 << 30).feed(said) if isinstance(c, frames.Deliver)]
        self.delivered_max = max(self.delivered_max, len(delivered))

    def give_turn(self, link: int = 1) -> None:
        self.wanted.remove(link)
        self.tell(TurnGiven(link))

    def give_turns(self, link: int = 1) -> None:
        while link in self.wanted:
            self.give_turn(link)


def offer_columns(place: Place, count: int) -> None:
    """Store so many small records of very many empty publications."""
    Peer(place, WRITER)
    rows = Rows([b""] * ROWS, [b""] * ROWS)
    payload = compressed(b"".join(bytes(part) for part in encode_columns(columns_of(rows))), "zstd")
    for first in range(1, 1 + count * ROWS, ROWS):
        header = BatchHeader(int(Layout.COLUMNS), 1, len(payload), 0, ROWS, 1, 0, 0, ROWS, first, 7, 7)
        place.tell(x.BatchOffered(session_of(WRITER, 1), signed_record(header, [payload]), header))
    place.wait(1)


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
