"""PLAIN and CURVE: both ends of the engine against each other, and against what a forger may try."""

import pytest

from tests.protocols.zmtp.by_hand import BOUNDS, command, frame, greeting, heard, metadata, said, told
from veredus.kernel.turns import QUANTUM_NS
from veredus.protocols.zmtp.connection import COMMAND_NS, SEALED_NS, Connection, Phase
from veredus.protocols.zmtp.curve import (
    CLIENT_RANDOM_SIZE,
    SERVER_RANDOM_SIZE,
    CurveClient,
    CurveServer,
    KeyPair,
)
from veredus.protocols.zmtp.mechanisms import Credential, Local, Mechanism, Null
from veredus.protocols.zmtp.plain import PlainClient, PlainServer
from veredus.protocols.zmtp.z85 import decode_z85, encode_z85

ROUTER, DEALER = Local(b"ROUTER"), Local(b"DEALER", b"me")
SERVER, CLIENT, STRANGER = KeyPair(b"s" * 32), KeyPair(b"c" * 32), KeyPair(b"x" * 32)


def random(size: int) -> bytes:
    return bytes(range(size))


def curve_server() -> CurveServer:
    return CurveServer(ROUTER, SERVER, random(SERVER_RANDOM_SIZE))


def curve_client(server: bytes = SERVER.public) -> CurveClient:
    return CurveClient(DEALER, CLIENT, server, random(CLIENT_RANDOM_SIZE)[::-1])


def ends(server: Mechanism, client: Mechanism) -> tuple[Connection, Connection]:
    servers = {mechanism.name: mechanism for mechanism in (server, Null(ROUTER, is_server=True))}
    pair = Connection(servers, BOUNDS, is_server=True), Connection({client.name: client}, BOUNDS, is_server=False)
    for end in pair:
        end.begin()
    return pair


def exchange(ours: Connection, theirs: Connection) -> None:
    """Until neither has anything to say."""
    while (data := said(theirs)) or ours.phase is Phase.GREETING:
        told(ours, data)
        told(theirs, said(ours))


PAIRS = {
    "PLAIN": (lambda: ends(PlainServer(ROUTER), PlainClient(DEALER, "desk", "secret")), Credential("secret")),
    "CURVE": (lambda: ends(curve_server(), curve_client()), Credential(key=CLIENT.public)),
}


@pytest.mark.parametrize(("name", "step_count"), [("PLAIN", 1), ("CURVE", 2)])
def test_each_command_of_a_handshake_has_its_price(name: str, step_count: int) -> None:
    ours, theirs = PAIRS[name][0]()
    exchange(ours, theirs)
    assert ours.take_cost() == step_count * ours.mechanism.step_ns > 0


@pytest.mark.parametrize("name", PAIRS)
def test_who_is_admitted_talks_and_is_talked_to(name: str) -> None:
    make, credential = PAIRS[name]
    ours, theirs = make()
    exchange(ours, theirs)
    assert ours.asked == credential
    ours.admit()
    told(theirs, said(ours))
    exchange(ours, theirs)
    assert (ours.phase, theirs.phase) == (Phase.TRAFFIC, Phase.TRAFFIC)
    assert ours.remote == (b"DEALER", b"me")
    theirs.send([(b"one", b"", b"t" * 500)])
    theirs.ping()
    assert told(ours, said(theirs)) == [[b"one", b"", b"t" * 500]]
    ours.send_single([b"a", b"b"])
    assert told(theirs, said(ours)) == [[b"a"], [b"b"]]
    ours.send_whole([b"a", b"b" * 300])
    assert told(theirs, said(ours)) == [[b"a" + b"b" * 300]]


@pytest.mark.parametrize("name", PAIRS)
def test_who_is_not_believed_hears_an_error_and_is_closed(name: str) -> None:
    ours, theirs = PAIRS[name][0]()
    exchange(ours, theirs)
    ours.refuse("unauthenticated", "who is that?")
    told(theirs, said(ours))
    assert theirs.fault is not None
    assert theirs.fault.message == "the peer refuses: who_is_that?"
    assert ours.phase is Phase.CLOSED


@pytest.mark.parametrize("name", PAIRS)
def test_nothing_is_taken_while_somebody_judges(name: str) -> None:
    ours, theirs = PAIRS[name][0]()
    exchange(ours, theirs)
    assert told(ours, b"x" * BOUNDS.handshake_size_max) == []
    assert ours.phase is Phase.ASKING
    told(ours, b"x")
    assert ours.fault is not None
    assert ours.fault.code == "too-large"


def test_a_server_speaks_the_mechanism_that_the_client_means() -> None:
    ours, theirs = ends(PlainServer(ROUTER), Null(DEALER, is_server=False))
    exchange(ours, theirs)
    assert (ours.phase, theirs.phase) == (Phase.TRAFFIC, Phase.TRAFFIC)


def test_a_client_that_knows_another_key_of_the_server_gets_nowhere() -> None:
    ours, theirs = ends(curve_server(), curve_client(STRANGER.public))
    exchange(ours, theirs)
    assert ours.fault is not None
    assert ours.fault.code == "unauthenticated"


def test_a_message_that_was_bent_or_comes_twice_ends_the_connection() -> None:
    """RFC 26: "The server SHALL verify that a client connection does use correctly incrementing short nonces"."""
    for bend in (lambda data: data[:-1] + bytes([data[-1] ^ 1]), lambda data: data + data):
        ours, theirs = ends(curve_server(), curve_client())
        exchange(ours, theirs)
        ours.admit()
        told(theirs, said(ours))
        theirs.send([(b"hello",)])
        told(ours, bend(said(theirs)))
        assert ours.fault is not None
        assert b"ERROR" not in said(ours), 'RFC 26: "A server SHALL NOT send an ERROR command in response"'


def test_clear_frames_are_not_taken_where_all_are_sealed() -> None:
    ours, theirs = ends(curve_server(), curve_client())
    exchange(ours, theirs)
    ours.admit()
    assert told(ours, frame(0, b"clear" * 20)) == []
    assert ours.fault is not None


def traffic() -> tuple[Connection, CurveClient]:
    """A server's end in traffic, and the client that seals for it."""
    client = curve_client()
    ours, theirs = ends(curve_server(), client)
    exchange(ours, theirs)
    ours.admit()
    told(theirs, said(ours))
    exchange(ours, theirs)
    return ours, client


@pytest.mark.parametrize("outer", [0, 1, 4])
@pytest.mark.parametrize("size", [0, 200])
def test_the_flags_outside_of_a_seal_lift_no_bound_of_a_message(outer: int, size: int) -> None:
    ours, client = traffic()
    for _ in range(BOUNDS.parts_max + 1):
        assert told(ours, frame(outer, client.seal(1, bytes(size)))) == []
    assert ours.fault is not None
    assert ours.fault.code == "too-large"


def test_a_sealed_command_is_no_larger_than_a_clear_one() -> None:
    ours, client = traffic()
    body = b"\x01x" + bytes(BOUNDS.command_size_max - 2)
    ours.message_size_max = 2 * BOUNDS.command_size_max
    assert told(ours, frame(0, client.seal(4, body))) == []
    assert ours.fault is None
    told(ours, frame(0, client.seal(4, body + b"x")))
    assert ours.fault is not None
    assert ours.fault.code == "too-large"


@pytest.mark.parametrize(("flags", "body"), [(0, b""), (1, b""), (4, b"\x01x"), (4, b"\x04PING\0\0")])
def test_a_flood_of_sealed_frames_is_opened_a_few_at_a_time(flags: int, body: bytes) -> None:
    ours, client = traffic()
    ours.take_cost()
    ours.receive(b"".join(frame(0, client.seal(flags if number % 8 else flags & 4, body)) for number in range(1000)))
    costs = list(iter(lambda: (ours.next_messages(), ours.take_cost())[1], 0))
    assert ours.fault is None
    assert sum(costs) >= 1000 * SEALED_NS
    assert max(costs) <= QUANTUM_NS + SEALED_NS + COMMAND_NS


@pytest.mark.parametrize("place", [6, 20, 80, 110, 150, 199])
def test_a_hello_with_any_other_octet_is_refused(place: int) -> None:
    """RFC 26: "The server [...] SHALL reject and disconnect clients who send malformed HELLO commands"."""
    ours, theirs = ends(curve_server(), curve_client())
    told(theirs, said(ours) + greeting(b"CURVE", as_server=1)[12:])
    hello = said(theirs)
    at = 64 + 2 + place
    told(ours, hello[:at] + bytes([hello[at] ^ 1]) + hello[at + 1 :])
    assert ours.phase is Phase.CLOSED


def test_plain_takes_nothing_but_its_own_commands_in_their_order() -> None:
    for octets in (
        command(b"INITIATE", metadata(Socket_Type=b"DEALER")),
        command(b"HELLO", b"\x04desk"),
        command(b"HELLO", b"\x01a\x01bc"),
    ):
        ours, _ = ends(PlainServer(ROUTER), PlainClient(DEALER, "", ""))
        told(ours, greeting(b"PLAIN") + octets)
        assert ours.phase is Phase.CLOSED
        assert heard(ours) == []


def test_z85_is_that_of_rfc_32() -> None:
    """RFC 32: 86 4F D2 6F B5 59 F7 5B SHALL encode as "HelloWorld"."""
    octets = bytes.fromhex("864FD26FB559F75B")
    assert encode_z85(octets) == "HelloWorld"
    assert decode_z85("HelloWorld") == octets
    for text in ("Hello", "HelloWorl", "Hello Worl", "#####"):
        if text != "Hello":
            with pytest.raises(ValueError, match="Z85"):
                decode_z85(text)
