"""A version 1 client, played by hand, against a link over the real streams floor."""

import pytest

from veredus.delivery.publication import datetime_of
from veredus.kernel.events import LinkClosed, LinkCongested, LinkDrained, Received
from veredus.protocols.links import (
    SESSION_BITS,
    DrainRequested,
    FrameRefused,
    ReadingPaused,
    ReadingResumed,
    session_of,
)
from veredus.protocols.zeps import frames
from veredus.protocols.zeps.frames import CommandParser
from veredus.protocols.zeps.orders import LinkLimits
from veredus.streams import exchange as x

from .peer import MUCH, Peer, filled
from .place import SECOND_NS, WALL_NS, Place

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
        (b"\xaa\xa5\x01\x04ZEPS\x00\x01\x02\xc3\xa9", "'%C3%A9'"),
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


@pytest.mark.parametrize("door", ["tcp", "zeromq"])
@pytest.mark.parametrize("command", [frames.PING, frames.PING_OK, frames.DETACH])
def test_a_ping_or_a_detach_without_an_open_stream_is_invalid(command: bytes, door: str) -> None:
    place = Place()
    place.open(1, door)
    assert place.receive(1, command).startswith(b"\xaa\xa5\x0c\x2cunexpected:_the_first_command_must_be_ATTACH")


def test_a_ping_is_answered_after_attach_ok_and_after_what_was_said_in_between() -> None:
    place = Place()
    place.open(1)
    place.hold_journal()
    hasty = frames.encode_attach("s") + frames.encode_subscribe(b"", 0) + frames.PING + frames.encode_subscribe(b"a", 0)
    assert place.receive(1, hasty + frames.PING) == b""
    place.release_journal()
    said = frames.ATTACH_OK + frames.SUBSCRIBE_OK + frames.PING_OK + frames.SUBSCRIBE_OK + frames.PING_OK
    assert place.take(1) == said


def test_ping_ok_says_that_every_publish_before_it_is_on_disk() -> None:
    place = Place()
    peer = Peer(place)
    place.hold_journal()
    assert peer.say(frames.PING) == [frames.PingOk()]
    assert peer.publish(("k", "1")) == []
    assert peer.say(frames.PING, frames.PING) == []
    assert peer.say(frames.encode_subscribe(b"", 0), frames.encode_credit(MUCH)) == []
    place.release_journal()
    peer.listen()
    assert peer.heard[2:] == [frames.PingOk(), frames.PingOk(), frames.SubscribeOk(), frames.Deliver(1, b"k", b"1")]


def test_a_batch_that_is_refused_is_not_confirmed_by_the_ping_behind_it() -> None:
    place = Place()
    peer = Peer(place)
    place.hold_journal()
    peer.publish(("k", "1"))
    peer.say(frames.PING)
    place.tell(x.RefuseBatch(session_of(1, 1), 1, "disk-full", "the disk is full", 0))
    assert peer.invalid == "disk-full:_the_disk_is_full"
    place.release_journal()
    peer.listen()
    assert frames.PingOk() not in peer.heard


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (frames.ATTACH_OK, "ATTACH-OK"),
        (frames.SUBSCRIBE_OK, "SUBSCRIBE-OK"),
        (frames.DETACH_OK, "DETACH-OK"),
        (frames.encode_deliver(1, b"k", b"b"), "DELIVER"),
        (frames.encode_invalid("x"), "INVALID"),
        (frames.encode_attach("s"), "ATTACH"),
    ],
)
def test_an_unexpected_command_gets_invalid_with_its_name_and_ends_the_attachment(command: bytes, name: str) -> None:
    place = Place()
    peer = Peer(place)
    peer.say(command)
    assert f"unexpected:_{name}_is_not_allowed_here" in peer.invalid
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
    assert "at_most_10_bytes" in peer.invalid


def test_who_may_not_publish_may_still_subscribe_and_hears_of_it_at_a_publish() -> None:
    place = Place(may=lambda principal, verb, stream: principal == "writer" or verb == "subscribe")
    writer, reader = Peer(place, 1, principal="writer"), Peer(place, 2, principal="reader")
    writer.publish(("k", "v"))
    reader.say(frames.encode_subscribe(b"", 0), frames.encode_credit(100))
    assert reader.delivered == [(1, b"k")]
    reader.publish(("k", "w"))
    assert "may_not_publish" in reader.invalid


def test_that_a_reader_may_not_publish_is_noted_when_it_does_and_not_before() -> None:
    place = Place(may=lambda principal, verb, stream: principal == "writer" or verb == "subscribe")
    writer, reader = Peer(place, 1, principal="writer"), Peer(place, 2, principal="reader")
    writer.publish(("k", "v"))
    reader.say(frames.encode_subscribe(b"", 0), frames.encode_credit(100))
    assert [note for note in place.notes if note.event == "forbidden"] == []
    reader.publish(("k", "w"))
    (noted,) = [note for note in place.notes if note.event == "forbidden"]
    fields = {name: noted.fields[name] for name in ("principal", "verb", "kind", "name")}
    assert fields == {"principal": "reader", "verb": "publish", "kind": "stream", "name": "s"}
    assert noted.fields["session"] >> 32 == 2


def test_what_a_hasty_client_says_before_attach_ok_is_held_not_lost() -> None:
    place = Place()
    place.open(1)
    place.hold_journal()
    hasty = frames.encode_attach("s") + frames.encode_publish(b"k", b"v") + frames.encode_subscribe(b"", 0)
    assert place.receive(1, hasty) == b""
    place.release_journal()
    assert place.take(1) == frames.ATTACH_OK + frames.SUBSCRIBE_OK
    assert place.receive(1, frames.encode_credit(1)) == frames.encode_deliver(1, b"k", b"v")


def test_without_an_attach_ok_an_attachment_has_published_nothing_when_its_link_ends() -> None:
    place = Place()
    place.open(1)
    place.hold_journal()
    assert place.receive(1, frames.encode_attach("s") + frames.encode_publish(b"k", b"v") + frames.PING) == b""
    place.tell(LinkClosed(1, "gone"))
    place.release_journal()
    assert place.take(1) == b""
    assert [records for records in place.journal.values() if records] == []


def test_each_attach_of_a_socket_has_one_answer_and_what_is_between_two_counts() -> None:
    place = Place()
    place.open(1, "zeromq")
    place.hold_journal()
    said = b""
    for body in (b"former", b"latter"):
        for command in (frames.encode_attach("s"), frames.encode_publish(b"k", body), frames.PING):
            said += place.receive(1, command)
    place.release_journal()
    answers = CommandParser(100).feed(said + place.take(1))
    assert answers == [frames.AttachOk(), frames.PingOk()] * 2
    peer = Peer(place, 2)
    peer.say(frames.encode_subscribe(b"", 0), frames.encode_credit(MUCH))
    assert [c.body for c in peer.heard if isinstance(c, frames.Deliver)] == [b"former", b"latter"]


def test_more_than_a_greeting_before_attach_ok_gets_invalid() -> None:
    place = Place()
    place.open(1)
    place.hold_journal()
    flood = frames.encode_attach("s") + frames.encode_publish(b"k", bytes(60)) * 1000
    assert place.receive(1, flood) == b""
    place.release_journal()
    assert b"bytes_arrived_before_ATTACH-OK_was_sent:_read_ATTACH-OK" in place.take(1)


def test_a_large_body_before_attach_ok_gets_the_true_reason() -> None:
    for door in ("tcp", "zeromq"):
        place = Place()
        place.open(1, door)
        place.hold_journal()
        place.receive(1, frames.encode_attach("s"))
        place.receive(1, frames.encode_publish(b"k", b"small"))
        place.receive(1, frames.encode_publish(b"k", bytes(place.limits.greeting_size_max + 1)))
        place.release_journal()
        said = CommandParser(100).feed(place.take(1))
        assert said[0] == frames.AttachOk()
        assert isinstance(said[1], frames.Invalid)
        assert said[1].reason == (
            b"too-large:_more_than_65536_bytes_arrived_before_ATTACH-OK_was_sent:"
            b"_read_ATTACH-OK,_then_send_large_commands"
        )
        assert [len(records) for records in place.journal.values()] == [1], "what came before it counts"


@pytest.mark.parametrize("door", ["tcp", "zeromq"])
@pytest.mark.parametrize("is_pipelined", [True, False])
def test_what_comes_before_a_bad_command_takes_effect_and_is_answered(door: str, is_pipelined: bool) -> None:
    place = Place()
    place.open(1, door)
    place.hold_journal()
    good = [frames.encode_publish(b"k", b"1"), frames.PING, frames.encode_subscribe(b"", 0), frames.encode_credit(MUCH)]
    commands = [frames.encode_attach("s"), *good, frames.DETACH_OK, frames.encode_publish(b"k", b"behind"), frames.PING]
    if not is_pipelined:
        place.release_journal()
        place.receive(1, commands.pop(0))
        place.hold_journal()
    for command in commands if door == "zeromq" else [b"".join(commands)]:
        place.receive(1, command)
    place.release_journal()
    said = CommandParser(100).feed(place.take(1))
    kinds = [type(command).__name__ for command in said if not isinstance(command, frames.AttachOk)]
    assert kinds[:3] == ["PingOk", "SubscribeOk", "Invalid"], said
    assert [b"behind" in bytes(record.memory) for records in place.journal.values() for record in records] == [False]


def test_a_subscription_that_cannot_be_had_takes_nothing_from_those_before_it() -> None:
    place = filled(3)
    peer = Peer(place)
    peer.say(frames.encode_publish(b"k", b"4") + frames.PING + frames.encode_subscribe(b"", 0) + frames.PING
             + frames.encode_subscribe(b"", 99) + frames.PING)  # fmt: skip
    assert peer.heard[1:4] == [frames.PingOk(), frames.SubscribeOk(), frames.PingOk()]
    assert "above-head:_the_newest_sequence_of_the_stream_is_4," in peer.invalid
    assert len(peer.heard) == 5


def test_a_frame_that_the_transport_does_not_take_gets_invalid_behind_what_came_before_it() -> None:
    place = Place()
    peer = Peer(place, door="zeromq")
    peer.say(frames.encode_publish(b"k", b"1"), frames.PING)
    place.tell(FrameRefused(1, "too-large", "a frame has at most 20 octets here"))
    assert peer.invalid == "too-large:_a_frame_has_at_most_20_octets_here"
    assert peer.heard[1] == frames.PingOk()
    other = Place()
    other.open(1, "zeromq")
    other.tell(FrameRefused(1, "too-large", "a frame has at most 20 octets here"))
    assert b"too-large:" in other.take(1)


# ── a new attach of an identity ──────────────────────────────────────────────────────────────────────────────────────


def test_a_new_attach_on_a_socket_ends_the_former_attachment() -> None:
    place = filled(3)
    peer = Peer(place, 1, door="zeromq")
    peer.say(frames.encode_subscribe(b"", 0), frames.encode_credit(MUCH))
    assert len(peer.delivered) == 3
    place.hold_journal()
    peer.publish(("k", "of the former life"))
    before = len(peer.heard)
    assert peer.say(frames.PING, frames.encode_attach("s")) == []
    place.release_journal()
    Peer(place, 2).publish(("k", "5"))
    peer.listen()
    assert peer.heard[before:] == [frames.PingOk(), frames.AttachOk()], "nothing that the former life wanted"
    peer.say(frames.encode_subscribe(b"", 4), frames.encode_credit(MUCH))
    assert peer.delivered[3:] == [(5, b"k")]


@pytest.mark.parametrize("stream", ["s", "other"])
@pytest.mark.parametrize(
    ("between", "said"),
    [([], []), ([frames.PING] * 2, [frames.PingOk()] * 2), ([frames.DETACH], [frames.DetachOk()]),
     ([frames.PING, frames.DETACH], [frames.PingOk(), frames.DetachOk()]),
     ([frames.encode_subscribe(b"", 0)], [frames.SubscribeOk()])],
)  # fmt: skip
def test_a_new_attach_is_answered_behind_all_that_the_former_attachment_is_owed(
    stream: str, between: list[bytes], said: list[frames.Command]
) -> None:
    place = Place()
    peer = Peer(place, door="zeromq")
    place.hold_journal()
    peer.publish(("k", "1"))
    assert peer.say(*between, frames.encode_attach(stream), frames.PING) == []
    place.release_journal()
    peer.listen()
    assert peer.heard[1:] == [*said, frames.AttachOk(), frames.PingOk()]


def test_a_new_attach_is_answered_behind_the_word_that_the_former_publications_could_not_be_stored() -> None:
    place = Place()
    peer = Peer(place, door="zeromq")
    place.hold_journal()
    peer.publish(("k", "1"))
    peer.say(frames.PING, frames.encode_attach("other"), frames.PING)
    place.tell(x.RefuseBatch(session_of(1, 1), 1, "disk-full", "the disk is full", 0))
    place.release_journal()
    peer.listen()
    invalid, *rest = peer.heard[1:]
    assert isinstance(invalid, frames.Invalid)
    assert invalid.reason == b"disk-full:_the_disk_is_full"
    assert rest == [frames.AttachOk(), frames.PingOk()]


def test_what_comes_behind_a_detach_before_attach_ok_is_invalid_behind_detach_ok() -> None:
    place = Place()
    place.hold_journal()
    peer = Peer(place, door="zeromq")
    peer.say(frames.encode_publish(b"k", b"1"), frames.DETACH, frames.PING, frames.encode_attach("s"), frames.PING)
    place.release_journal()
    peer.listen()
    attached, detached, invalid, *rest = peer.heard
    assert [attached, detached, *rest] == [frames.AttachOk(), frames.DetachOk(), frames.AttachOk(), frames.PingOk()]
    assert isinstance(invalid, frames.Invalid)


def test_while_a_new_attach_waits_nothing_is_delivered() -> None:
    place = Place(tail_size_max=0)
    Peer(place, 2).publish(("k", "1"), ("k", "2"))
    peer = Peer(place, 1, door="zeromq")
    place.hold_reads()
    peer.say(frames.encode_subscribe(b"", 0), frames.encode_credit(MUCH))
    place.hold_journal()
    peer.publish(("k", "3"))
    peer.say(frames.encode_attach("s"))
    place.release_reads()
    place.release_journal()
    peer.listen()
    assert peer.heard[1:] == [frames.SubscribeOk(), frames.AttachOk()]


def test_a_new_attachment_on_a_link_that_takes_no_more_is_delivered_nothing_until_it_does() -> None:
    place = filled(3)
    peer = Peer(place, 1, door="zeromq")
    place.tell(LinkCongested(1, 100))
    peer.say(frames.encode_attach("s"), frames.encode_subscribe(b"", 0), frames.encode_credit(MUCH))
    assert peer.delivered == []
    place.tell(LinkDrained(1))
    assert len(peer.delivered) == 3
    peer.say(frames.encode_attach("s"), frames.encode_subscribe(b"", 0), frames.encode_credit(MUCH))
    assert len(peer.delivered) == 6


def test_what_comes_behind_a_detach_is_invalid_whether_its_answer_was_read_or_not() -> None:
    behind = [frames.encode_publish(b"k", b"behind"), frames.PING]
    for is_pipelined in (True, False):
        place = Place()
        peer = Peer(place, door="zeromq")
        place.hold_journal()
        peer.publish(("k", "1"))
        peer.say(frames.DETACH, *behind * is_pipelined)
        place.release_journal()
        peer.say(*behind * (not is_pipelined))
        detached, invalid = peer.heard[1:]
        assert detached == frames.DetachOk()
        assert isinstance(invalid, frames.Invalid)
        assert invalid.reason == b"unexpected:_the_first_command_must_be_ATTACH"
        assert peer.say(frames.encode_attach("s"), frames.PING) == [frames.AttachOk(), frames.PingOk()]
        assert place.closed == {}


def test_a_new_attach_that_is_bad_ends_the_former_life_and_may_be_followed_by_a_good_one() -> None:
    place = Place()
    peer = Peer(place, door="zeromq")
    peer.say(frames.encode_attach("s", 9))
    assert "version_9" in peer.invalid
    assert peer.say(frames.PING) == []
    assert peer.say(frames.encode_attach("s"), frames.PING) == [frames.AttachOk(), frames.PingOk()]
    assert place.closed == {}


@pytest.mark.parametrize(
    "bad",
    [frames.encode_subscribe(b"regex:(", 0), frames.encode_subscribe(b"", 99), frames.ATTACH_OK, b"junk",
     frames.PING + b"x", frames.encode_attach("a b"), frames.encode_publish(b"k", bytes((16 << 20) + 1))],
)  # fmt: skip
def test_over_zeromq_what_is_on_its_way_behind_invalid_is_passed_over_until_the_next_attach(bad: bytes) -> None:
    place = Place()
    peer = Peer(place, door="zeromq")
    on_its_way = [
        frames.PING,
        frames.encode_publish(b"k", bytes(40_000)),
        b"junk",
        b"",
        frames.encode_subscribe(b"", 7),
    ]
    said = peer.say(bad, *on_its_way * 2)
    assert [type(command) for command in said] == [frames.Invalid]
    assert peer.say(frames.encode_attach("s"), frames.PING) == [frames.AttachOk(), frames.PingOk()]
    assert place.closed == {}


def test_over_zeromq_who_does_not_attach_is_told_so_once_and_takes_no_more_than_a_greeting() -> None:
    place = Place()
    place.open(1, "zeromq")
    said = CommandParser(100).feed(place.receive(1, frames.PING) + place.receive(1, frames.PING))
    assert [type(command) for command in said] == [frames.Invalid]
    for _ in range(3):
        assert place.closed == {}
        said += CommandParser(100).feed(place.receive(1, frames.encode_publish(b"k", bytes(30_000))))
    assert isinstance(said[1], frames.Invalid)
    assert said[1].reason == b"too-large:_attach_before_sending_more"
    assert place.closed == {1: "invalid"}
    assert place.receive(1, frames.PING) == b""


@pytest.mark.parametrize("bad", [b"\xaa\xa5\x01", frames.encode_attach("zz")[:-1], frames.encode_attach("zz") + b"!"])
@pytest.mark.parametrize("is_answered", [True, False])
def test_a_frame_that_is_no_whole_attach_takes_nothing_from_those_before_it(bad: bytes, is_answered: bool) -> None:
    place = Place()
    place.open(1, "zeromq")
    if is_answered:
        place.tell(Received(1, frames.encode_attach("s")))
    place.hold_journal()
    if not is_answered:
        place.tell(Received(1, frames.encode_attach("s")))
    for said in (frames.encode_publish(b"k", b"1"), frames.PING, bad, frames.PING):
        place.tell(Received(1, said))
    place.release_journal()
    *answers, invalid = CommandParser(100).feed(place.take(1))
    assert answers == [frames.AttachOk(), frames.PingOk()]
    assert isinstance(invalid, frames.Invalid)
    assert invalid.reason.split(b":")[0] in (b"truncated", b"bad-frame")
    assert place.receive(1, bad) == b""
    assert place.receive(1, frames.encode_attach("s")) == frames.ATTACH_OK


def test_a_socket_that_attaches_no_more_after_its_life_is_forgotten() -> None:
    place = Place()
    peer = Peer(place, door="zeromq")
    assert peer.say(frames.DETACH) == [frames.DetachOk()]
    assert place.closed == {}
    place.wait(place.limits.greeting_timeout_ns)
    assert "no_ATTACH_arrived" in peer.invalid
    assert place.closed == {1: "invalid"}


def test_a_late_attach_on_a_socket_that_connected_again_is_answered_behind_what_it_was_told_while_it_waited() -> None:
    place = Place()
    place.open(1, "zeromq")
    place.wait(place.limits.greeting_timeout_ns)
    said = CommandParser(100).feed(place.receive(1, b""))
    assert [type(command) for command in said] == [frames.Invalid], "libzmq keeps it for the next time that it is read"
    place.open(2, "zeromq")
    assert CommandParser(100).feed(place.receive(2, frames.encode_attach("s"))) == [frames.AttachOk()]


def test_a_batch_that_the_node_could_not_store_gets_invalid_with_the_reason() -> None:
    place = Place()
    peer = Peer(place)
    place.tell(x.RefuseBatch(session_of(1, 1), 1, "disk-full", "the disk is full", 0))
    assert peer.invalid == "disk-full:_the_disk_is_full"


# ── subscribe ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_delivery_starts_after_the_last_known_sequence() -> None:
    peer = Peer(filled(20))
    assert peer.say(frames.encode_subscribe(b"", 17)) == [frames.SubscribeOk()]
    assert [c.sequence for c in peer.say(frames.encode_credit(MUCH)) if isinstance(c, frames.Deliver)] == [18, 19, 20]


def ten_one_a_second() -> Place:
    """A stream whose publications 1 to 10 were appended a second from each other, the last one a second ago."""
    place = Place()
    writer = Peer(place, 99)
    for number in range(1, 11):
        writer.publish(("k", str(number)))
        place.wait(SECOND_NS)
    return place


@pytest.mark.parametrize(
    ("latest", "expected"),
    [
        ((1 << 64) - 1, [11]),
        ((3 << 62) + 3_000_000, [8, 9, 10, 11]),
        ((3 << 62) + 2_999_999, [9, 10, 11]),
        ((3 << 62) + 3_600_000_000, list(range(1, 12))),
        ((3 << 62), [11]),
        ((2 << 62) + WALL_NS // 1000 + 5_000_000, [6, 7, 8, 9, 10, 11]),
        ((2 << 62), list(range(1, 12))),
        ((2 << 62) + WALL_NS // 1000 + 70_000_000, [11]),
    ],
    ids=[
        "live",
        "a period",
        "a shorter one",
        "a long one",
        "none",
        "a time",
        "a time before all",
        "a time a little ahead",
    ],
)
def test_delivery_begins_at_a_time_or_a_period_ago_or_live(latest: int, expected: list[int]) -> None:
    place = ten_one_a_second()
    peer = Peer(place)
    assert peer.say(frames.encode_subscribe(b"", latest)) == [frames.SubscribeOk()]
    peer.say(frames.encode_credit(MUCH))
    Peer(place, 2).publish(("k", "11"))
    assert [sequence for sequence, _ in peer.delivered] == expected


@pytest.mark.parametrize("ahead_us", [60_000_001, (1 << 62) - 1 - WALL_NS // 1000 - 10_000_000])
def test_a_time_to_come_is_refused_with_both_times(ahead_us: int) -> None:
    peer = Peer(ten_one_a_second())
    latest = (2 << 62) + WALL_NS // 1000 + 10_000_000 + ahead_us
    peer.say(frames.encode_subscribe(b"", latest))
    assert peer.invalid.startswith("start-in-the-future:_delivery_cannot_begin_at_")
    assert f"the_node's_clock_says_{datetime_of(WALL_NS // 1000 + 10_000_000).isoformat()}" in peer.invalid


def test_subscriptions_from_a_time_and_live_are_one_union_with_others() -> None:
    place = ten_one_a_second()
    peer = Peer(place)
    since = frames.encode_subscribe(b"k", (3 << 62) + 2_000_000)
    peer.say(since + frames.encode_subscribe(b"", (1 << 64) - 1) + frames.encode_credit(MUCH) + frames.PING)
    assert peer.heard[1:3] == [frames.SubscribeOk()] * 2
    Peer(place, 2).publish(("k", "11"), ("other", "12"))
    assert peer.delivered == [(9, b"k"), (10, b"k"), (11, b"k"), (12, b"other")]


def test_a_number_that_is_neither_a_sequence_nor_a_time_gets_invalid() -> None:
    peer = Peer(Place())
    peer.say(frames.encode_subscribe(b"", 1 << 62))
    assert "bad-start" in peer.invalid


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


def test_a_subscription_behind_the_clients_own_publications_is_judged_once_they_are_stored() -> None:
    place = Place()
    peer = Peer(place)
    place.hold_journal()
    own = [frames.encode_publish(b"k", b"%d" % number) for number in (1, 2, 3)]
    peer.say(*own[:2], frames.encode_subscribe(b"", 2), frames.PING, own[2], frames.encode_credit(MUCH))
    assert peer.heard == [frames.AttachOk()]
    place.release_journal()
    peer.listen()
    assert peer.heard == [frames.AttachOk(), frames.SubscribeOk(), frames.PingOk(), frames.Deliver(3, b"k", b"3")]


def test_a_refused_subscription_names_the_latest_with_which_nothing_that_is_kept_is_left_out() -> None:
    place = filled(6)
    place.tell(x.AdminRequested(session_of(99, 0), 1, "local", "stream.trim", {"name": "s", "floor": 4}))
    peer = Peer(place)
    peer.say(frames.encode_subscribe(b"", 1), frames.encode_credit(MUCH))
    assert "_subscribe_with_latest_3_" in peer.invalid
    again = Peer(place)
    again.say(frames.encode_subscribe(b"", 3), frames.encode_credit(MUCH))
    assert again.delivered[0][0] == 4


def test_a_subscription_behind_what_the_client_published_and_beyond_it_is_refused() -> None:
    place = Place()
    peer = Peer(place)
    place.hold_journal()
    peer.say(frames.encode_publish(b"k", b"1"), frames.encode_subscribe(b"", 2), frames.encode_publish(b"k", b"2"))
    place.release_journal()
    assert peer.invalid.startswith("above-head:_the_newest_sequence_of_the_stream_is_1,_below_this_`latest`:")
    assert "_subscribe_with_at_most_1." in peer.invalid


def test_the_same_subscription_again_brings_nothing_twice() -> None:
    peer = Peer(filled(6))
    peer.say(frames.encode_credit(MUCH), frames.encode_subscribe(b"a", 0), frames.encode_subscribe(b"a", 0))
    assert [sequence for sequence, _ in peer.delivered] == [1, 3, 5]


def test_a_sequence_that_is_not_there_yet_gets_invalid() -> None:
    peer = Peer(filled(3))
    peer.say(frames.encode_subscribe(b"", 9))
    assert "above-head:_the_newest_sequence_of_the_stream_is_3," in peer.invalid


def test_a_gap_cannot_be_said_in_version_1_and_ends_the_attachment() -> None:
    peer = Peer(filled(3))
    peer.say(frames.encode_subscribe(b"", 0))
    peer.place.tell(x.PushGap(session_of(1, 3), 1, 3, "trimmed"))
    assert peer.invalid == "gap:_sequences_1_to_2_are_not_available:_trimmed"


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
    assert peer.delivered == [(1, b"a"), (2, b"b"), (4, b"a"), (5, b"b")]


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


def test_the_node_pings_and_who_answers_lives() -> None:
    place = Place()
    quiet, lively = Peer(place, 1), Peer(place, 2)
    for _ in range(5):
        place.wait(place.limits.heartbeat_interval_ns)
        lively.listen()
        assert lively.heard.pop() == frames.Ping()
        lively.say(frames.PING_OK)
    quiet.listen()
    assert quiet.heard == [frames.AttachOk(), frames.Ping(), frames.Ping(), frames.Detach()]
    assert place.closed == {1: "silent"}
    assert [note.fields["code"] for note in place.notes if note.event == "peer-broke-protocol"] == ["silent"]


def test_a_slow_peer_that_takes_what_is_sent_to_it_is_not_silent() -> None:
    place = Place()
    Peer(place)
    for _ in range(5):
        place.tell(LinkCongested(1))
        place.wait(place.limits.silence_max_ns - SECOND_NS)
        place.tell(LinkDrained(1))
    assert place.closed == {}
    place.tell(LinkCongested(1))
    place.wait(place.limits.silence_max_ns)
    assert place.closed == {1: "silent"}


def test_a_peer_is_not_silent_while_nobody_reads_from_it() -> None:
    place = Place()
    Peer(place)
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
