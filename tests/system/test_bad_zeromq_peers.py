"""Peers that break the rules over ZeroMQ, where a frame is a command, before a node in a process of its own.

Each is told INVALID, and nothing that it says counts until it attaches again. One
whose frame ZeroMQ itself refuses hears nothing. Others are served.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Iterator

import pytest
import zmq

import veredus
from tests.interop.zeps1_by_hand import Client, Said, ZeroMqWay, over_zeromq
from tests.processes import free_port
from tests.system.serving import ServedNode

pytestmark = [pytest.mark.slow, pytest.mark.attack]

FRAME_SIZE_MAX = 2 << 20
BODY_SIZE_MAX = 64 << 10
TOO_LARGE = b"too-large:_all_frames_of_a_message_may_have_at_most_2097152_bytes"
NOT_ATTACHED = Said(Client.INVALID, (b"unexpected:_the_first_command_must_be_ATTACH",))
ATTACH = b"\xaa\xa5\x01\x04ZEPS\x00\x01\x06hidden"
PUBLISH = b"\xaa\xa5\x06\x01k\x00\x00\x00\x04body"
PING = b"\xaa\xa5\x08"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedNode]:
    """One node for all of them: whoever spoils it for the next one is found out."""
    settings = {
        "LISTEN_ZEROMQ": f"tcp://127.0.0.1:{free_port()}",
        "LIMITS_FRAME_SIZE_MAX": "2 MiB",
        "LIMITS_BODY_SIZE_MAX": "64 KiB",
    }
    served = ServedNode(tmp_path_factory.mktemp("peers") / "journal", settings)
    served.start().close()
    yield served
    served.kill()


@pytest.fixture(autouse=True)
def other(served: ServedNode) -> Iterator[None]:
    """A well-behaved peer at the same door, which is served before and after."""
    with veredus.connect(served.address, timeout_s=20, refused_s=20) as node:
        node.streams.create("shared")
        latest = int(node.streams.show("shared")["head"])
    client = over_zeromq(served.setting("LISTEN_ZEROMQ"))
    client.attach("shared")
    assert client.hear() == Said(Client.ATTACH_OK)
    client.subscribe(b"", latest)
    assert client.hear() == Said(Client.SUBSCRIBE_OK)
    client.credit(1 << 30)
    for body in (b"before", b"after"):
        client.publish(b"k", body)
        latest += 1
        assert client.hear() == Said(Client.DELIVER, (latest, b"k", body))
        if body == b"before":
            yield
    client.detach()
    assert client.hear() == Said(Client.DETACH_OK)
    client.close()
    with (
        veredus.connect(served.address, timeout_s=20, refused_s=20) as node,
        node.subscribe("shared", until=latest + 1) as shared,
    ):
        assert {publication.body for publication in shared} == {b"before", b"after"}, "and nothing of the others'"
        assert "hidden" not in [stream["name"] for stream in node.streams.list()]


@pytest.fixture
def hostile(served: ServedNode) -> Iterator[Client]:
    client = over_zeromq(served.setting("LISTEN_ZEROMQ"))
    yield client
    client.close()


@pytest.fixture
def attached(hostile: Client) -> Client:
    hostile.attach("shared")
    assert hostile.hear() == Said(Client.ATTACH_OK)
    return hostile


def send_parts(client: Client, *parts: bytes) -> None:
    """One message of several frames."""
    assert isinstance(client.way, ZeroMqWay)
    client.way.socket.send_multipart(parts)


def hear_invalid(client: Client) -> bytes:
    """The reason that the node gives; from then on it passes over what comes, until this attaches again."""
    said = client.hear()
    assert said.command == Client.INVALID
    client.publish(b"k", b"hidden")
    client.ping()
    client.attach("shared")
    assert client.hear() == Said(Client.ATTACH_OK)
    client.detach()
    assert client.hear() == Said(Client.DETACH_OK)
    (reason,) = said.fields
    assert isinstance(reason, bytes)
    code, _, message = reason.partition(b":_")
    assert code
    return message


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", b"a_command_must_start_with_AA_A5"),
        (bytes(1000), b"a_command_must_start_with_AA_A5"),
        (b"\xaa\xa5\x63", b"unknown_command_99"),
        (b"\xaa\xa5", b"the_frame_ends_within_its_command"),
        (ATTACH[:-1], b"the_frame_ends_within_its_command"),
        (PUBLISH, b"the_first_command_must_be_ATTACH"),
        (b"\xaa\xa5\x02", b"the_first_command_must_be_ATTACH"),
        (ATTACH.replace(b"ZEPS", b"AMQP"), b"the_protocol_of_this_listener_is_ZEPS"),
        (ATTACH.replace(b"\x00\x01\x06hidden", b"\x00\x02\x00"), b"version_2_is_not_supported,_only_1"),
        (ATTACH.replace(b"\x00\x01", b"\xff\xff"), b"version_65535_is_not_supported,_only_1"),
    ],
    ids=["http", "zeros", "unknown", "short", "truncated", "early", "the server's", "protocol", "version 2", "version"],
)
def test_who_does_not_begin_with_an_attach_of_version_1_is_told_why(
    hostile: Client, frame: bytes, reason: bytes
) -> None:
    hostile.way.send(frame)
    assert hear_invalid(hostile).startswith(reason)


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (b"\xde\xad\xbe\xef", b"a_command_must_start_with_AA_A5"),
        (b"", b"the_frame_ends_within_its_command"),
        (PUBLISH[:-1], b"the_frame_ends_within_its_command"),
        (PUBLISH + PUBLISH, b"bytes_follow_the_command_in_its_frame"),
        (PUBLISH + b"\0", b"bytes_follow_the_command_in_its_frame"),
        (PING + PUBLISH, b"bytes_follow_the_command_in_its_frame"),
        (PUBLISH[:5] + b"\xff\xff\xff\xff", b"this_listener_accepts_bodies_of_at_most_65536_"),
        (
            PUBLISH[:5] + struct.pack(">I", BODY_SIZE_MAX + 1) + bytes(BODY_SIZE_MAX + 1),
            b"this_listener_accepts_bodies_of_at_most_65536_",
        ),
        (b"\xaa\xa5\x07" + bytes(8) + b"\x01k\x00\x00\x00\x01x", b"DELIVER_is_not_allowed_here"),
    ],
    ids=["garbage", "empty", "truncated", "two", "trailing", "mixed", "claims", "oversized", "the server's"],
)
def test_an_attached_peer_whose_frame_is_no_command_is_told_why_and_attached_no_more(
    attached: Client, frame: bytes, reason: bytes
) -> None:
    attached.way.send(frame)
    assert hear_invalid(attached).startswith(reason)


def test_a_command_in_two_frames_of_a_message_is_none(attached: Client) -> None:
    send_parts(attached, PUBLISH[:6], PUBLISH[6:])
    assert hear_invalid(attached).startswith(b"the_frame_ends_within_its_command")


def test_frames_of_one_message_are_commands_of_their_own_and_an_empty_delimiter_is_passed_over(
    attached: Client,
) -> None:
    send_parts(attached, b"", PING, PING)
    assert [attached.hear(), attached.hear()] == [Said(Client.PING_OK)] * 2
    send_parts(attached, b"", b"")
    send_parts(attached, b"", PING, b"garbage", PUBLISH)
    assert attached.hear() == Said(Client.PING_OK)
    assert hear_invalid(attached).startswith(b"a_command_must_start_with_AA_A5")


def test_a_frame_above_the_limit_ends_the_connection_that_it_came_by(attached: Client) -> None:
    attached.way.send(PUBLISH[:5] + struct.pack(">I", FRAME_SIZE_MAX) + bytes(FRAME_SIZE_MAX))
    said = attached.hear()
    assert (said.command, said.fields[0]) == (Client.INVALID, TOO_LARGE)
    assert isinstance(attached.way, ZeroMqWay)
    # ZeroMQ connects again by itself, as somebody whom the node does not know; what was on its way by then is lost.
    attached.way.socket.setsockopt(zmq.RCVTIMEO, 200)
    deadline = time.monotonic() + 20
    while True:
        attached.ping()
        try:
            assert attached.hear() == NOT_ATTACHED
            break
        except zmq.Again:
            assert time.monotonic() < deadline
    attached.way.socket.setsockopt(zmq.RCVTIMEO, 10_000)
    attached.publish(b"k", b"hidden")
    attached.attach("shared")
    assert attached.hear() == Said(Client.ATTACH_OK), "nothing is said of what came before"


def greeting(mechanism: bytes) -> bytes:
    """What opens a connection of ZeroMQ's own protocol."""
    return b"\xff" + bytes(8) + b"\x7f\x03\x00" + mechanism.ljust(20, b"\0") + bytes(32)


READY = b"\x04\x1c\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER"


@pytest.mark.parametrize(
    "said",
    [greeting(b"NULL") + READY + b"\x02" + b"\x7f" + b"\xff" * 7, greeting(b"MAGIC"), bytes(range(256)) * 64],
    ids=["a frame larger than all memory", "an unknown mechanism", "garbage"],
)
def test_who_does_not_even_speak_zeromq_harms_nobody(served: ServedNode, said: bytes) -> None:
    port = int(served.setting("LISTEN_ZEROMQ").rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), 10) as raw:
        raw.sendall(said)
        raw.settimeout(10)
        with contextlib.suppress(ConnectionError):
            while raw.recv(1024):
                pass
