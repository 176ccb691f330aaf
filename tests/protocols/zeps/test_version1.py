"""A version 1 client, played by hand, against a link over the real streams floor."""

import pytest

from veredus.kernel.events import LinkClosed, LinkCongested, LinkDrained, Received
from veredus.protocols.links import SESSION_BITS, DrainRequested, ReadingPaused, ReadingResumed, session_of
from veredus.protocols.zeps import frames
from veredus.protocols.zeps.frames import CommandParser
from veredus.protocols.zeps.orders import LinkLimits
from veredus.streams import exchange as x

from .peer import MUCH, Peer, filled
from .place import SECOND_NS, Place

# ── open-stream, close-stream ────────────────────────────────────────────────────────────────────────────────────────


def test_an_attach_is_answered_attach_ok() -> None:
    assert Peer(Place()).heard == [frames.AttachOk()]


def test_a_detach_is_answered_detach_ok_and_closes() -> None:
    place = Place()
    assert Peer(place).say(frames.DETACH) == [frames.DetachOk()]
    assert place.closed == {1: "detached"}


def test_detach_ok_waits_until_all_is_on_disk() -> None:
    place = Place()
    peer = Peer(place)
    place.hold_journal()
    peer.publish(("k", "v"))
    assert peer.say(frames.DETACH) == []
    assert peer.say(frames.PING) == [frames.PingOk()]
    place.release_journal()
    peer.listen()
    assert peer.heard[-1] == frames.DetachOk()


@pytest.mark.parametrize(
    ("attach", "reason"),
    [
        (b"\xaa\xa5\x01\x04ZEPZ\x00\x01\x01s", "protocol"),
        (b"\xaa\xa5\x01\x04ZEPS\x00\x03\x01s", "version_3"),
        (b"\xaa\xa5\x01\x04ZEPS\x00\x00\x01s", "version_0"),
        (b"\xaa\xa5\x01\x04ZEPS\x00\x01\x00", "name"),
        (b"\xaa\xa5\x01\x04ZEPS\x00\x01\x02\xff\xff", "not_allowed"),
        (b"\xaa\xa5\x02", "ATTACH"),
        (b"\xaa\xa5\x06\x01k\x00\x00\x00\x00", "ATTACH"),
        (b"GET / HTTP/1.1\r\n", "AA_A5"),
    ],
)
def test_what_opens_no_stream_is_answered_invalid_and_closed(attach: bytes, reason: str) -> None:
    place = Place()
    place.open(1)
    parser = CommandParser(100)
    (answer,) = parser.feed(place.receive(1, attach))
    assert isinstance(answer, frames.Invalid)
    assert reason in answer.reason.decode()
    assert 1 in place.closed


def test_an_attach_that_comes_too_late_is_answered_invalid() -> None:
    place = Place()
    place.open(1)
    place.receive(1, b"\xaa\xa5\x01\x04ZE")
    place.wait(place.limits.greeting_timeout_ns)
    assert place.take(1).startswith(b"\xaa\xa5\x0c")
    assert 1 in place.closed


def test_a_peer_that_nobody_knows_is_refused_with_the_reason() -> None:
    place = Place()
    place.principals[None] = None
    peer = Peer(place, principal="")
    assert "token" in peer.invalid


def test_ping_is_answered_before_attach_and_after() -> None:
    place = Place()
    place.open(1)
    assert place.receive(1, frames.PING) == frames.PING_OK
    assert place.receive(1, frames.encode_attach("s")) == frames.ATTACH_OK
    assert place.receive(1, frames.PING) == frames.PING_OK


@pytest.mark.parametrize(
    "command",
    [
        frames.ATTACH_OK,
        frames.SUBSCRIBE_OK,
        frames.DETACH_OK,
        frames.encode_deliver(1, b"k", b"b"),
        frames.encode_invalid("x"),
        frames.encode_attach("s"),
    ],
)
def test_an_unexpected_command_gets_invalid_and_ends_the_attachment(command: bytes) -> None:
    place = Place()
    peer = Peer(place)
    peer.say(command)
    assert "nothing_that_a_client_says" in peer.invalid
    assert 1 in place.closed
    assert peer.say(frames.PING) == []


def test_a_node_that_stops_says_detach() -> None:
    place = Place()
    peer = Peer(place)
    place.tell(DrainRequested(1))
    peer.listen()
    assert peer.heard[-1] == frames.Detach()
    assert place.closed == {1: "draining"}


# ── publish ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_publications_of_one_read_are_one_batch_of_an_anonymous_source() -> None:
    place = Place()
    Peer(place).publish(("a", "1"), ("b", "2"), ("c", "3"))
    offered = [fact for fact in place.down if isinstance(fact, x.BatchOffered)]
    assert [(o.header.count, o.header.first_number, o.header.source_id, o.header.epoch) for o in offered] == [
        (3, 1, 0, 0)
    ]


def test_a_run_over_the_batch_limit_is_cut_into_batches() -> None:
    limits = LinkLimits()
    limits = limits._replace(batch=limits.batch._replace(batch_size_max=5000, count_max=7))
    place = Place(limits)
    peer = Peer(place)
    peer.publish(*[("k", "x" * 100)] * 20, ("k", "y" * 9000), ("k", "z"))
    counts = [fact.header.count for fact in place.down if isinstance(fact, x.BatchOffered)]
    assert counts == [7, 7, 6, 1, 1]
    peer.say(frames.encode_subscribe(b"", 0), frames.encode_credit(MUCH))
    assert [sequence for sequence, _ in peer.delivered] == list(range(1, 23))


def test_a_body_over_the_limit_gets_invalid() -> None:
    limits = LinkLimits()
    place = Place(limits._replace(batch=limits.batch._replace(body_size_max=10)))
    peer = Peer(place)
    peer.publish(("k", "x" * 11))
    assert "at_most_10_octets" in peer.invalid


def test_who_may_not_publish_may_still_subscribe_and_hears_of_it_at_a_publish() -> None:
    place = Place(may=lambda principal, verb, stream: principal == "writer" or verb == "subscribe")
    writer, reader = Peer(place, 1, principal="writer"), Peer(place, 2, principal="reader")
    writer.publish(("k", "v"))
    reader.say(frames.encode_subscribe(b"", 0), frames.encode_credit(100))
    assert reader.delivered == [(1, b"k")]
    reader.publish(("k", "w"))
    assert "may_not_publish" in reader.invalid


def test_what_a_hasty_client_says_before_attach_ok_is_held_not_lost() -> None:
    place = Place()
    place.open(1)
    place.hold_journal()
    hasty = frames.encode_attach("s") + frames.encode_publish(b"k", b"v") + frames.encode_subscribe(b"", 0)
    assert place.receive(1, hasty) == b""
    place.release_journal()
    assert place.take(1) == frames.ATTACH_OK + frames.SUBSCRIBE_OK
    assert place.receive(1, frames.encode_credit(1)) == frames.encode_deliver(1, b"k", b"v")


def test_more_than_a_greeting_before_attach_ok_gets_invalid() -> None:
    place = Place()
    place.open(1)
    place.hold_journal()
    flood = frames.encode_attach("s") + frames.encode_publish(b"k", bytes(60)) * 1000
    assert b"wait_for_ATTACH-OK" in place.receive(1, flood)


def test_a_batch_that_the_node_could_not_store_gets_invalid_with_the_reason() -> None:
    place = Place()
    peer = Peer(place)
    place.tell(x.RefuseBatch(session_of(1, 1), 1, "disk-full", "the disk is full", 0))
    assert peer.invalid == "the_disk_is_full"


# ── subscribe ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_delivery_starts_after_the_last_known_sequence() -> None:
    peer = Peer(filled(20))
    assert peer.say(frames.encode_subscribe(b"", 17)) == [frames.SubscribeOk()]
    assert [c.sequence for c in peer.say(frames.encode_credit(MUCH)) if isinstance(c, frames.Deliver)] == [18, 19, 20]


def test_a_pattern_is_a_prefix_unless_it_names_a_scheme() -> None:
    place = filled(9, "abc")
    prefix, regex = Peer(place, 1), Peer(place, 2)
    prefix.say(frames.encode_credit(MUCH), frames.encode_subscribe(b"b", 0))
    regex.say(frames.encode_credit(MUCH), frames.encode_subscribe(b"regex:a|c", 0))
    assert prefix.delivered == [(2, b"b"), (5, b"b"), (8, b"b")]
    assert [sequence for sequence, _ in regex.delivered] == [1, 3, 4, 6, 7, 9]


def test_a_pattern_that_does_not_parse_gets_invalid() -> None:
    peer = Peer(Place())
    peer.say(frames.encode_subscribe(b"regex:(", 0))
    assert "regex" in peer.invalid or "(" in peer.invalid


def test_a_pattern_may_hold_octets_that_are_no_text() -> None:
    place = Place()
    peer = Peer(place)
    peer.say(frames.encode_publish(b"\xff\x01", b"x"), frames.encode_publish(b"\xfe", b"y"))
    peer.say(frames.encode_subscribe(b"\xff", 0), frames.encode_credit(MUCH))
    assert peer.delivered == [(1, b"\xff\x01")]


def test_several_subscriptions_are_a_union_and_each_sequence_is_delivered_once() -> None:
    peer = Peer(filled(12, "abc"))
    peer.say(frames.encode_credit(MUCH))
    assert peer.say(frames.encode_subscribe(b"a", 0))[0] == frames.SubscribeOk()
    assert peer.say(frames.encode_subscribe(b"b", 6))[0] == frames.SubscribeOk()
    assert peer.say(frames.encode_subscribe(b"", 9))[0] == frames.SubscribeOk()
    assert peer.delivered == [
        (1, b"a"), (4, b"a"), (7, b"a"), (10, b"a"),  # the first, alone
        (8, b"b"), (11, b"b"),  # the second's past
        (12, b"c"),  # of the third's past what the others have not brought
    ]  # fmt: skip
    Peer(peer.place, 2).publish(("a", "x"), ("c", "y"), ("b", "z"))
    assert peer.delivered[7:] == [(13, b"a"), (14, b"c"), (15, b"b")]


def test_subscriptions_asked_for_in_one_breath_are_each_confirmed() -> None:
    peer = Peer(filled(4))
    said = peer.say(frames.encode_credit(MUCH) + frames.encode_subscribe(b"a", 2) + frames.encode_subscribe(b"b", 0))
    assert [c for c in said if isinstance(c, frames.SubscribeOk)] == [frames.SubscribeOk()] * 2
    assert peer.delivered == [(2, b"b"), (3, b"a"), (4, b"b")]


def test_the_same_subscription_again_brings_nothing_twice() -> None:
    peer = Peer(filled(6))
    peer.say(frames.encode_credit(MUCH), frames.encode_subscribe(b"a", 0), frames.encode_subscribe(b"a", 0))
    assert [sequence for sequence, _ in peer.delivered] == [1, 3, 5]


def test_a_sequence_that_is_not_there_yet_gets_invalid() -> None:
    peer = Peer(filled(3))
    peer.say(frames.encode_subscribe(b"", 9))
    assert "not_there_yet" in peer.invalid


def test_a_gap_cannot_be_said_in_version_1_and_ends_the_attachment() -> None:
    peer = Peer(filled(3))
    peer.say(frames.encode_subscribe(b"", 0))
    peer.place.tell(x.PushGap(session_of(1, 2), 1, 3, "trimmed"))
    assert peer.invalid == "sequences_1_to_2_cannot_be_had:_trimmed"


# ── credit ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_credit_counts_deliver_commands_and_is_overdrawn_by_at_most_one() -> None:
    place = Place()
    peer = Peer(place)
    peer.publish(*[("k", "12345")] * 10)
    size = len(frames.encode_deliver(1, b"k", b"12345"))
    peer.say(frames.encode_subscribe(b"", 0))
    assert peer.delivered == []
    peer.say(frames.encode_credit(3 * size))
    assert len(peer.delivered) == 3
    peer.say(frames.encode_credit(1))
    assert len(peer.delivered) == 4
    peer.say(frames.encode_credit(size - 1))
    assert len(peer.delivered) == 4
    peer.say(frames.encode_credit(1), frames.encode_credit(0))
    assert len(peer.delivered) == 5
    peer.say(frames.encode_credit((1 << 64) - 1), frames.encode_credit((1 << 64) - 1))
    assert len(peer.delivered) == 10


def test_credit_that_comes_in_drops_delivers_everything_once_and_in_order() -> None:
    place = Place(tail_size_max=2000)
    writer, reader = Peer(place, 1), Peer(place, 2)
    reader.say(frames.encode_subscribe(b"", 0))
    for number in range(60):
        writer.publish(*[("k", f"{number}" * 10)] * (number % 7 + 1))
    total = sum(number % 7 + 1 for number in range(60))
    for _ in range(3 * total):
        reader.say(frames.encode_credit(17))
    assert [sequence for sequence, _ in reader.delivered] == list(range(1, total + 1))


def test_what_was_pushed_and_waits_for_credit_is_delivered_also_when_the_subscription_changes_meanwhile() -> None:
    place = Place()
    peer = Peer(place)
    peer.publish(*[(key, "12345") for key in "abcabc"])
    peer.say(frames.encode_subscribe(b"a", 0), frames.encode_credit(1))
    assert peer.delivered == [(1, b"a")]
    peer.say(frames.encode_subscribe(b"b", 0), frames.encode_credit(MUCH))
    assert peer.delivered == [(1, b"a"), (4, b"a"), (2, b"b"), (5, b"b")]


def test_a_congested_link_is_sent_nothing_until_it_has_drained() -> None:
    peer = Peer(filled(5))
    peer.place.tell(LinkCongested(1))
    peer.say(frames.encode_credit(MUCH), frames.encode_subscribe(b"", 0))
    assert peer.delivered == []
    peer.place.tell(LinkDrained(1))
    assert len(peer.delivered) == 5


def test_a_batch_of_a_native_source_is_delivered_one_by_one() -> None:
    place = Place()
    peer = Peer(place)
    peer.publish(*[(f"k{n % 3}", "x") for n in range(2000)])
    peer.say(frames.encode_subscribe(b"k1", 0), frames.encode_credit(MUCH))
    assert peer.delivered == [(n + 1, b"k1") for n in range(2000) if n % 3 == 1]


# ── heartbeat, door, end ─────────────────────────────────────────────────────────────────────────────────────────────


def test_only_a_peer_that_has_pinged_is_let_go_for_silence() -> None:
    place = Place()
    quiet, lively = Peer(place, 1), Peer(place, 2)
    lively.say(frames.PING)
    place.wait(place.limits.silence_max_ns - SECOND_NS)
    lively.say(frames.PING)
    place.wait(2 * SECOND_NS)
    assert place.closed == {}
    place.wait(place.limits.silence_max_ns)
    assert place.closed == {2: "silent"}
    assert quiet.say(frames.PING) == [frames.PingOk()]


def test_a_peer_is_not_silent_while_nobody_reads_from_it() -> None:
    place = Place()
    Peer(place).say(frames.PING)
    place.tell(ReadingPaused(1))
    place.wait(3 * place.limits.silence_max_ns)
    place.tell(ReadingResumed(1))
    place.wait(place.limits.silence_max_ns // 2)
    assert place.closed == {}
    place.wait(2 * place.limits.silence_max_ns)
    assert place.closed == {1: "silent"}


def test_over_zeromq_each_command_is_a_frame_both_ways() -> None:
    place = Place()
    peer = Peer(place, door="zeromq")
    peer.publish(("a", "1"), ("b", "2"))
    place.receive(1, frames.encode_subscribe(b"", 0))
    place.tell(Received(1, frames.encode_credit(MUCH)))
    assert place.sent[1] == [frames.encode_deliver(1, b"a", b"1"), frames.encode_deliver(2, b"b", b"2")]


def test_over_zeromq_a_frame_that_is_no_whole_command_gets_invalid() -> None:
    for frame in (frames.PING + frames.PING, frames.encode_credit(5)[:-1], b""):
        place = Place()
        peer = Peer(place, door="zeromq")
        peer.say(frame)
        assert peer.invalid


def test_version_2_is_not_spoken_over_zeromq() -> None:
    place = Place()
    place.open(1, "zeromq")
    assert b"version_2" in place.receive(1, frames.encode_attach("", 2))


def test_each_session_that_was_opened_is_closed_once() -> None:
    place = filled(9, "abc")
    peer = Peer(place, 5)
    peer.say(frames.encode_credit(MUCH), frames.encode_subscribe(b"a", 0), frames.encode_subscribe(b"b", 3))
    place.tell(LinkClosed(5))
    opened = [f.session for f in place.down if isinstance(f, x.SubscribeRequested | x.SourceAttachRequested)]
    closed = [f.session for f in place.down if isinstance(f, x.SessionClosed)]
    mine = [session for session in opened if session >> SESSION_BITS == 5]
    assert sorted(mine) == sorted(session for session in closed if session >> SESSION_BITS == 5)
    assert len(set(mine)) == len(mine) > 2
