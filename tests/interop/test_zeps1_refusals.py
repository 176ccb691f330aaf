"""What a client of the page does wrong, or too much of, on real sockets: it hears why, and what came before counts."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from urllib.parse import unquote

import pytest

from tests.interop.serving import Serving
from tests.interop.zeps1_by_hand import TIMEOUT_S, Client, Said, string
from tests.interop.zeps1_by_hand import over_tcp as tcp_client
from tests.protocols.zmtp.by_hand import frame, greeting, ready

pytestmark = pytest.mark.interop

MUCH = 1 << 40
OVER = 17 << 20
"""More than a body may have by default."""
FAR_OVER = 24 << 20
"""More than a frame may have by default."""
GREETING_SIZE = 64 << 10
LIVE, PERIOD, TIME = (1 << 64) - 1, 3 << 62, 1 << 63


class ZmtpWay:
    """Commands as frames of ZMTP 3.1 over a plain socket: no libzmq, which would hide when octets leave."""

    def __init__(self, endpoint: str, identity: bytes = b"") -> None:
        host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
        self.socket = socket.create_connection((host, int(port)), TIMEOUT_S)
        self.socket.sendall(greeting() + ready(identity=identity))
        self._exactly(64)
        self.command()
        self.said = b""

    def send(self, octets: bytes) -> None:
        self.socket.sendall(frame(0, octets))

    def command(self) -> bytes:
        """The next frame: flags, a size of one octet or eight, so many octets."""
        flags, size = self._exactly(2)
        if flags & 2:
            (size,) = struct.unpack(">Q", bytes([size]) + self._exactly(7))
        return self._exactly(size)

    def take(self, size: int) -> bytes:
        self.said = self.said or self.command()
        taken, self.said = self.said[:size], self.said[size:]
        return taken

    def _exactly(self, size: int) -> bytes:
        octets = b""
        while len(octets) < size:
            piece = self.socket.recv(size - len(octets))
            if not piece:
                raise ConnectionError("the server closed the connection")
            octets += piece
        return octets

    def close(self) -> None:
        self.socket.close()


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    serving = Serving(tmp_path_factory.mktemp("refusals") / "node")
    yield serving
    serving.stop()


@pytest.fixture(params=["tcp", "zeromq"])
def door(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def client_of(serving: Serving, door: str, identity: bytes = b"") -> Client:
    if door == "tcp":
        return tcp_client(*serving.tcp)
    return Client(ZmtpWay(serving.addresses["zeromq"], identity))


def attached(serving: Serving, door: str, stream: str, identity: bytes = b"") -> Client:
    client = client_of(serving, door, identity)
    client.attach(stream)
    assert client.hear() == Said(Client.ATTACH_OK)
    return client


def subscribed(serving: Serving, door: str, stream: str, latest: int = 0) -> Client:
    client = attached(serving, door, stream)
    client.subscribe(b"", latest)
    assert client.hear() == Said(Client.SUBSCRIBE_OK)
    client.credit(MUCH)
    return client


def bodies(serving: Serving, stream: str) -> list[bytes]:
    """What is in the stream up to a publication that is made now."""
    writer, reader = attached(serving, "tcp", stream), subscribed(serving, "tcp", stream)
    writer.publish(b"end", b"")
    heard: list[bytes] = []
    while (said := reader.hear()).fields[1] != b"end":
        heard.append(bytes(said.fields[2]))  # type: ignore[arg-type]
    writer.close()
    reader.close()
    return heard


def reason_of(said: Said) -> str:
    """As the page says: an underline is a blank, then percent-decoded."""
    assert said.command == Client.INVALID, said
    return unquote(bytes(said.fields[0]).decode("ascii").replace("_", " "))  # type: ignore[arg-type]


def wait_closed(client: Client) -> None:
    with pytest.raises(ConnectionError):
        client.hear()


@pytest.mark.parametrize("size", [OVER, FAR_OVER])
@pytest.mark.parametrize("is_all_sent", [False, True])
def test_a_publication_over_the_limit_is_told_why_behind_what_came_before_it(
    serving: Serving, door: str, size: int, is_all_sent: bool
) -> None:
    stream = f"over-{door}-{size}-{is_all_sent}"
    client = attached(serving, door, stream)
    client.publish(b"k", b"before")
    client.ping()
    command = b"\xaa\xa5\x06" + string(b"k") + struct.pack(">L", size) + bytes(size)
    octets = command if door == "tcp" else frame(0, command)
    try:
        client.way.socket.sendall(octets if is_all_sent else octets[:100])  # type: ignore[attr-defined]
    except ConnectionError:
        assert is_all_sent, "the node has closed before it has read all of it"
    assert client.hear() == Said(Client.PING_OK)
    if door == "tcp" or is_all_sent or size == FAR_OVER:
        reason = reason_of(client.hear())
        assert reason.startswith("too-large: "), reason
        assert "16777216" in reason or "20971520" in reason
    client.close()
    assert bodies(serving, stream) == [b"before"]


def test_commands_behind_an_attach_are_obeyed_and_answered_when_a_later_one_is_bad(serving: Serving, door: str) -> None:
    stream = f"behind-{door}"
    client = client_of(serving, door)
    client.attach(stream)
    for number in range(3):
        client.publish(b"k", b"%d" % number)
    client.ping()
    client.subscribe(b"", 0)
    client.way.send(b"\xaa\xa5\x0d")
    client.publish(b"k", b"behind what is bad")
    assert [client.hear().command for _ in range(3)] == [Client.ATTACH_OK, Client.PING_OK, Client.SUBSCRIBE_OK]
    assert reason_of(client.hear()) == "bad-frame: unknown command 13"
    client.close()
    assert bodies(serving, stream) == [b"0", b"1", b"2"]


def test_a_body_over_a_greeting_behind_an_attach_is_taken_or_refused_with_the_true_reason(
    serving: Serving, door: str
) -> None:
    stream = f"greeting-{door}"
    client = client_of(serving, door)
    client.attach(stream)
    client.publish(b"k", bytes(GREETING_SIZE + 1))
    client.ping()
    assert client.hear() == Said(Client.ATTACH_OK)
    said = client.hear()
    is_taken = said == Said(Client.PING_OK)
    if not is_taken:
        reason = reason_of(said)
        assert reason.startswith("too-large: ")
        assert reason.endswith("wait for it") or "65536" in reason
    client.close()
    assert bodies(serving, stream) == ([bytes(GREETING_SIZE + 1)] if is_taken else [])


def test_a_body_over_a_greeting_behind_attach_ok_is_taken(serving: Serving, door: str) -> None:
    stream = f"large-{door}"
    client = attached(serving, door, stream)
    client.publish(b"k", bytes(GREETING_SIZE + 1))
    client.ping()
    assert client.hear() == Said(Client.PING_OK)
    client.close()
    assert bodies(serving, stream) == [bytes(GREETING_SIZE + 1)]


def test_half_a_publication_is_none(serving: Serving, door: str) -> None:
    stream = f"half-{door}"
    client = attached(serving, door, stream)
    client.publish(b"k", b"whole")
    octets = b"\xaa\xa5\x06\x01k\x00\x00\x00\x09half"
    client.way.socket.sendall(octets if door == "tcp" else b"\x00\x11" + octets)  # type: ignore[attr-defined]
    client.close()
    assert bodies(serving, stream) == [b"whole"]


def test_delivery_begins_at_a_time_a_period_ago_or_live(serving: Serving, door: str) -> None:
    stream = f"begins-{door}"
    writer = attached(serving, door, stream)
    writer.publish(b"k", b"early")
    writer.ping()
    assert writer.hear() == Said(Client.PING_OK)
    # The node's clock is this machine's.
    between_us = time.time_ns() // 1000
    live, later = subscribed(serving, door, stream, LIVE), subscribed(serving, door, stream, TIME + between_us)
    writer.publish(b"k", b"late")
    for reader in (live, later, subscribed(serving, door, stream, TIME + between_us)):
        assert reader.hear() == Said(Client.DELIVER, (2, b"k", b"late"))
        reader.close()
    ever = subscribed(serving, door, stream, PERIOD + 3_600_000_000)
    assert ever.hear() == Said(Client.DELIVER, (1, b"k", b"early"))
    ever.close()
    writer.close()


def test_an_identity_that_attaches_by_another_connection_ends_the_former_attachment_which_is_told_so(
    serving: Serving,
) -> None:
    stream = "identity"
    writer = attached(serving, "zeromq", stream)
    for _ in range(200):
        writer.publish(b"k", bytes(50_000))
    writer.ping()
    assert writer.hear() == Said(Client.PING_OK)
    writer.close()
    former = attached(serving, "zeromq", stream, b"me")
    former.subscribe(b"", 0)
    former.credit(MUCH)
    assert former.hear() == Said(Client.SUBSCRIBE_OK)
    latter = attached(serving, "zeromq", stream, b"me")
    latter.ping()
    assert latter.hear() == Said(Client.PING_OK)
    said = former.hear()
    while said.command == Client.DELIVER:
        said = former.hear()
    assert said.command == Client.INVALID
    assert said.fields[0].startswith(b"replaced:_another_connection")  # type: ignore[union-attr]
    with pytest.raises(ConnectionError):
        former.hear()
    former.close()
    latter.close()


def test_a_client_that_reads_nothing_is_switched_to_history_and_misses_nothing(serving: Serving, door: str) -> None:
    stream, count, body = f"slow-{door}", 600, bytes(50_000)
    slow = subscribed(serving, door, stream)
    writer = attached(serving, door, stream)
    for _ in range(count):
        writer.publish(b"k", body)
    writer.ping()
    assert writer.hear() == Said(Client.PING_OK)
    assert [slow.hear().fields[0] for _ in range(count)] == list(range(1, count + 1))
    writer.publish(b"k", b"live")
    assert slow.hear() == Said(Client.DELIVER, (count + 1, b"k", b"live"))
    slow.close()
    writer.close()


def test_credit_is_no_command_that_a_ping_waits_for(serving: Serving, door: str) -> None:
    """'These two flows happen asynchronously': what credit brings has no end that PING-OK could wait for."""
    stream = f"credit-{door}"
    client = attached(serving, door, stream)
    client.publish(b"k", b"1")
    client.subscribe(b"", 0)
    client.credit(1)
    client.ping()
    heard = sorted(client.hear().command for _ in range(3))
    assert heard == sorted([Client.SUBSCRIBE_OK, Client.DELIVER, Client.PING_OK])
    client.close()


@pytest.mark.parametrize("is_attached", [False, True])
def test_what_is_no_frame_is_told_why_where_a_stream_could_be_open(serving: Serving, is_attached: bool) -> None:
    client = client_of(serving, "zeromq")
    if is_attached:
        client.attach("framed")
        assert client.hear() == Said(Client.ATTACH_OK)
    client.way.socket.sendall(b"\xff")  # type: ignore[attr-defined]
    assert reason_of(client.hear()).startswith("bad-frame: ")
    wait_closed(client)
    client.close()
