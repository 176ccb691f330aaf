"""Each test quotes one sentence of RFC 37 of ZeroMQ (ZMTP 3.1) that the engine keeps, with its section."""

import pytest

from tests.protocols.zmtp.by_hand import (
    OPENING,
    client,
    command,
    frame,
    greeting,
    message,
    metadata,
    opened,
    ready,
    said,
    server,
    told,
)
from veredus.protocols.zmtp.connection import Phase


def test_a_greeting_has_64_octets_and_begins_with_a_signature_and_a_version() -> None:
    """Formal Grammar: "greeting = signature version mechanism as-server filler"."""
    assert said(client()) == greeting()


def test_any_padding_is_taken() -> None:
    """Version Negotiation: "A peer SHALL NOT assign any significance to the padding field"."""
    connection = server()
    told(connection, b"\xff" + bytes(range(1, 9)) + OPENING[9:])
    assert connection.phase is Phase.TRAFFIC


@pytest.mark.parametrize("version", [b"\x03\x00", b"\x03\x01", b"\x03\x02", b"\x04\x00", b"\xff\xff"])
def test_higher_versions_are_valid_and_3_0_is_spoken(version: bytes) -> None:
    """Version Negotiation: "A peer MUST accept higher protocol versions as valid"."""
    connection = server()
    assert told(connection, greeting(version=version) + ready() + message(b"hello")) == [[b"hello"]]


@pytest.mark.parametrize(
    ("octets", "version"),
    [
        (b"\x01\x00", "FF"),
        (b"\xff" + bytes(7) + b"\x05\x00", "1.0"),
        (b"\xff" + bytes(8) + b"\x7f\x01", "2.0"),
        (b"\xff" + bytes(8) + b"\x7f\x00", "2.0"),
    ],
)
def test_a_peer_of_an_older_version_is_refused_as_soon_as_it_is_known(octets: bytes, version: str) -> None:
    """Version Negotiation: "If a peer cannot downgrade its protocol [...], it MUST close the connection"."""
    connection = server()
    told(connection, octets[:-1])
    told(connection, octets[-1:])
    assert connection.fault is not None
    assert version in connection.fault.message


def test_a_server_that_has_read_a_whole_greeting_has_sent_one() -> None:
    """Authentication: "A peer that reads a full greeting, including mechanism, MUST also send a full greeting"."""
    for mechanism in (b"NULL", b"MAGIC"):
        connection = server()
        told(connection, greeting(mechanism))
        assert said(connection) == greeting()


def test_another_mechanism_closes_the_connection() -> None:
    """Authentication: "If the mechanism that the peer received does not exactly match [...] it MUST close"."""
    for connection in (server(), client()):
        told(connection, greeting(b"PLAIN"))
        assert connection.fault is not None
        assert connection.fault.code == "bad-mechanism"


def test_null_is_a_ready_each_and_then_messages() -> None:
    """NULL: "the client SHALL send a READY command and then wait for a READY command in reply"."""
    ours, theirs = server(), client(identity=b"me")
    for _ in range(3):
        told(theirs, said(ours))
        told(ours, said(theirs))
    assert (ours.phase, theirs.phase) == (Phase.TRAFFIC, Phase.TRAFFIC)
    assert ours.remote == (b"DEALER", b"me")
    assert theirs.remote == (b"ROUTER", b"")


def test_names_of_properties_have_no_case_and_unknown_ones_are_passed_over() -> None:
    """Connection Metadata: "Metadata names SHALL be case-insensitive"."""
    connection = server()
    data = metadata(SOCKET_TYPE=b"REQ", identity=b"x", X_Whatever=b"1" * 300)
    told(connection, greeting() + command(b"READY", data))
    assert connection.remote == (b"REQ", b"x")


@pytest.mark.parametrize("socket_type", [b"REQ", b"DEALER", b"ROUTER"])
def test_a_router_talks_to_req_dealer_and_router(socket_type: bytes) -> None:
    """The Socket-Type Property: "ROUTER: REQ, DEALER, ROUTER"."""
    connection = server()
    told(connection, greeting() + ready(socket_type))
    assert connection.phase is Phase.TRAFFIC


@pytest.mark.parametrize("socket_type", [b"SUB", b"PUB", b"REP", b"PUSH", b"PAIR", b"CLIENT", b"", b"\xff" * 99])
def test_another_socket_type_hears_an_error_and_is_disconnected(socket_type: bytes) -> None:
    """The Socket-Type Property: "it SHOULD handle errors by returning an ERROR command, and then disconnecting"."""
    connection = server()
    told(connection, greeting() + ready(socket_type))
    assert connection.phase is Phase.CLOSED
    assert said(connection)[64:].startswith(b"\x04")
    reason = b"a_ROUTER_talks_to_REQ,_DEALER,_ROUTER"
    connection = server()
    told(connection, greeting() + ready(socket_type))
    assert reason in said(connection)


def test_an_identity_does_not_begin_with_a_zero() -> None:
    """The Identity Property: "The first octet of the Identity SHALL NOT be zero"."""
    for identity in (b"\0me", b"x" * 256):
        connection = server()
        told(connection, greeting() + ready(identity=identity))
        assert connection.phase is Phase.CLOSED


def test_an_error_of_the_peer_is_fatal() -> None:
    """Error Handling: "The peer SHALL treat an incoming ERROR command as fatal"."""
    connection = client()
    said(connection)
    told(connection, greeting() + command(b"ERROR", b"\x02no"))
    assert connection.fault is not None
    assert connection.fault.message == "the peer refuses: no"
    assert b"ERROR" not in said(connection)


@pytest.mark.parametrize("flags", [0x08, 0x10, 0x20, 0x40, 0x80, 0x05])
def test_reserved_flags_and_a_command_of_several_frames_are_faults(flags: int) -> None:
    """Framing: "Bits 7-3 are reserved for future use and MUST be zero"; MORE "SHALL be zero on command frames"."""
    connection = opened()
    assert told(connection, message(b"before") + frame(flags, b"x") + message(b"after")) == [[b"before"]]
    assert connection.fault is not None
    assert connection.fault.code == "bad-frame"


def test_long_and_short_sizes_are_taken_for_any_body() -> None:
    """Framing: "A short frame has a body of 0 to 255 octets. A long frame has a body of 0 to 2^63-1 octets"."""
    long = b"\x02" + bytes(7) + b"\x03abc"
    assert told(opened(), long + message(b"") + message(b"y" * 255) + message(b"z" * 256)) == [
        [b"abc"],
        [b""],
        [b"y" * 255],
        [b"z" * 256],
    ]


def test_a_message_comes_out_whole_or_not_at_all() -> None:
    """Messages: "deliver messages atomically, that is, all the frames of a message, or none of them"."""
    connection = opened()
    octets = message(b"one", b"", b"three")
    assert told(connection, octets[:-1]) == []
    assert told(connection, octets[-1:]) == [[b"one", b"", b"three"]]


def test_what_is_sent_is_what_the_grammar_says() -> None:
    """Formal Grammar: "message = *message-more message-last"."""
    connection = opened()
    connection.send([(b"one", b"t" * 300, b"")])
    connection.send_single([b"a", b"b" * 256])
    assert said(connection) == message(b"one", b"t" * 300, b"") + message(b"a") + message(b"b" * 256)


def test_a_message_that_is_given_in_pieces_is_said_without_a_copy_of_them() -> None:
    """Formal Grammar, and what is large is in memory once for all who are told it."""
    connection, large = opened(), bytes(70_000)
    connection.send_whole([b"head", large])
    connection.send_whole([b"alone"])
    buffers = connection.take_outgoing()
    assert b"".join(buffers) == message(b"head" + large) + message(b"alone")
    assert any(buffer is large for buffer in buffers)


@pytest.mark.parametrize("context", [b"", b"x", b"c" * 16])
def test_a_ping_is_answered_by_a_pong_with_its_context(context: bytes) -> None:
    """Connection Heartbeating: "it SHALL respond with a PONG command that echoes the ping-context"."""
    connection = opened()
    told(connection, command(b"PING", b"\x00\x09" + context))
    assert said(connection) == command(b"PONG", context)
    assert connection.ping_ttl == 9


def test_a_ping_with_a_context_of_17_octets_is_a_fault() -> None:
    """Connection Heartbeating: the ping-context "MUST not exceed 16 octets"."""
    connection = opened()
    told(connection, command(b"PING", bytes(19)))
    assert connection.phase is Phase.CLOSED


def test_a_ping_may_come_between_the_frames_of_a_message() -> None:
    """Formal Grammar: "Traffic consists of commands and messages intermixed"."""
    connection = opened()
    octets = frame(1, b"a") + command(b"PING", bytes(2)) + frame(0, b"b")
    assert told(connection, octets) == [[b"a", b"b"]]
    assert said(connection) == command(b"PONG")


def test_a_ping_of_ours_has_no_time_to_live() -> None:
    """Connection Heartbeating: "The ping-ttl [...] MAY be zero"."""
    connection = opened()
    connection.ping()
    assert said(connection) == command(b"PING", bytes(2))
