"""A stream's feed to a multicast group over the real streams floor: what is in its datagrams, and when they leave."""

from __future__ import annotations

from typing import TypeVar

from tests.interop.multicast_by_hand import Datagram, Message, opened
from veredus.kernel.events import LinkClosed, LinkOpened
from veredus.protocols.links import DrainRequested, session_of
from veredus.protocols.zeps.multicast import Multicaster
from veredus.protocols.zeps.packing import ROW_NS
from veredus.streams import exchange as x

from .peer import Peer, filled
from .place import SECOND_NS, Place
from .turning import AT_ONCE_MAX, ROWS, Turning, offer_columns

LINK = 50
SIZE_MAX = 200
Known = TypeVar("Known", bound=Place)


def fed(place: Known, stream: str = "s") -> Known:
    place.links[LINK] = Multicaster(LINK, stream, SIZE_MAX, SECOND_NS)  # type: ignore[assignment]
    place.sent[LINK] = []
    place.tell(LinkOpened(LINK, "multicast", stream))
    return place


def sent(place: Place) -> list[Datagram]:
    datagrams, place.sent[LINK] = place.sent[LINK], []
    assert max(map(len, datagrams), default=0) <= SIZE_MAX
    return [opened(datagram) for datagram in datagrams]


def test_history_is_never_multicast_and_the_first_datagram_says_where_live_begins() -> None:
    (first,) = sent(fed(filled(7)))
    assert (first.next, first.stream, first.messages) == (8, b"s", [])


def test_what_is_published_leaves_in_datagrams_of_whole_publications() -> None:
    place = fed(filled(1))
    sent(place)
    Peer(place).publish(*[("k", f"{n}" * 30) for n in range(9)])
    datagrams = sent(place)
    assert len(datagrams) > 1
    messages = [message for datagram in datagrams for message in datagram.messages]
    assert messages == [Message(n + 2, b"k", f"{n}".encode() * 30) for n in range(9)]
    assert [datagram.next for datagram in datagrams] == [d.messages[-1].sequence + 1 for d in datagrams]


def test_nothing_is_multicast_before_it_is_durable() -> None:
    place = fed(Place())
    peer = Peer(place)
    sent(place)
    place.hold_journal()
    peer.publish(("k", "v"))
    assert sent(place) == []
    place.release_journal()
    assert [datagram.messages for datagram in sent(place)] == [[Message(1, b"k", b"v")]]


def test_a_publication_larger_than_a_datagram_is_only_announced() -> None:
    place = fed(Place())
    sent(place)
    Peer(place).publish(("a", "small"), ("b", "x" * SIZE_MAX), ("c", "small"), ("d", "x" * SIZE_MAX))
    assert [(d.next, [message.sequence for message in d.messages]) for d in sent(place)] == [(4, [1, 3]), (5, [])]


def test_in_silence_the_next_sequence_is_announced() -> None:
    place = fed(filled(3))
    sent(place)
    place.wait(3 * SECOND_NS)
    assert [(datagram.next, datagram.messages) for datagram in sent(place)] == [(4, [])] * 3


def test_a_stream_that_may_not_be_read_is_asked_for_again_later() -> None:
    allowed: list[str] = []
    place = fed(Place(may=lambda principal, verb, stream: principal != "multicast" or bool(allowed)))
    assert sent(place) == []
    allowed.append("now")
    Peer(place)
    place.wait(2 * SECOND_NS)
    assert [datagram.next for datagram in sent(place)][:1] == [1]


def test_a_feed_whose_stream_has_ended_begins_again() -> None:
    place = fed(filled(3))
    sent(place)
    place.tell(x.EndSubscription(session_of(LINK, 1), 4))
    place.wait(SECOND_NS)
    assert [datagram.next for datagram in sent(place)] == [4]


def test_a_gap_moves_the_next_sequence_on() -> None:
    place = fed(filled(3))
    sent(place)
    place.tell(x.PushGap(session_of(LINK, 1), 4, 9, "trimmed"))
    assert [(datagram.next, datagram.messages) for datagram in sent(place)] == [(9, [])]


def test_a_feed_ends_with_the_node_and_closes_its_session_once() -> None:
    place = fed(filled(3))
    place.tell(DrainRequested(LINK))
    assert place.closed == {LINK: "draining"}
    assert [fact.session for fact in place.down if isinstance(fact, x.SessionClosed)].count(session_of(LINK, 1)) == 1
    sent(place)
    place.wait(5 * SECOND_NS)
    assert sent(place) == []


def test_very_many_publications_of_a_small_push_leave_in_turns_and_what_is_said_behind_them_leaves_behind() -> None:
    place = fed(Turning())
    offer_columns(place, 3)
    place.tell(x.PushGap(session_of(LINK, 1), 3 * ROWS + 1, 3 * ROWS + 9, "trimmed"))
    datagrams = sent(place)
    assert 0 < datagrams[-1].next < ROWS
    place.wait(SECOND_NS)
    place.give_turns(LINK)
    datagrams += sent(place)
    assert [m.sequence for d in datagrams for m in d.messages] == list(range(1, 3 * ROWS + 1))
    assert [d.next for d in datagrams] == sorted(d.next for d in datagrams)
    assert datagrams[-1].next == 3 * ROWS + 9
    assert place.sends_max <= AT_ONCE_MAX
    assert place.work_ns >= 3 * ROWS * ROW_NS
    granted = [said for said in place.down if isinstance(said, x.CreditGranted)]
    assert {said.session for said in granted} == {session_of(LINK, 1)}


def test_a_feed_that_ends_meanwhile_sends_nothing_more() -> None:
    place = fed(Turning())
    offer_columns(place, 1)
    sent(place)
    place.tell(LinkClosed(LINK))
    place.give_turns(LINK)
    assert sent(place) == []
    assert [said.session for said in place.down if isinstance(said, x.SessionClosed)].count(session_of(LINK, 1)) == 1


def test_a_feed_whose_stream_ends_meanwhile_sends_the_rest_and_begins_again() -> None:
    place = fed(Turning())
    offer_columns(place, 1)
    place.tell(x.EndSubscription(session_of(LINK, 1), ROWS + 1))
    place.give_turns(LINK)
    assert [m.sequence for d in sent(place) for m in d.messages] == list(range(1, ROWS + 1))
    place.wait(SECOND_NS)
    assert [datagram.next for datagram in sent(place)] == [ROWS + 1]
