"""Peers that break the rules, octet by octet, over a real socket to a node in a process of its own.

Each learns by a code what was wrong with it, costs nobody else anything, and leaves nothing behind in a stream.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest

import veredus
from tests.interop import native_by_hand as hand
from tests.interop import zeps1_by_hand as zeps1
from tests.interop.native_by_hand import Client, record, record_of, rows_of
from tests.system.serving import ServedNode
from veredus.client.blocking import Node

pytestmark = [pytest.mark.slow, pytest.mark.attack]

MIB = 1 << 20
ZSTD, LZ4 = 1, 2
MOST = (1 << 64) - 1
TWO_ROWS = hand.msgspec.msgpack.encode([[b"k", b"k"], [b"1", b"2"], None, None, None])


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedNode]:
    """One node for all of them: whoever spoils it for the next one is found out."""
    served = ServedNode(tmp_path_factory.mktemp("peers") / "journal", {"LIMITS_FRAME_SIZE_MAX": "20 MiB"})
    served.start().close()
    yield served
    served.kill()


@pytest.fixture
def node(served: ServedNode) -> Iterator[Node]:
    """A well-behaved client, which is served before and after."""
    with veredus.connect(served.address) as node:
        yield node
        node.streams.list()


@pytest.fixture
def hostile(served: ServedNode, node: Node) -> Iterator[Client]:
    client = Client("127.0.0.1", served.port)
    yield client
    client.close()


def attached(client: Client, stream: str, channel: int = 1, incarnation: bytes = b"1" * 16) -> dict[str, int]:
    client.ask(channel, hand.ATTACH_SOURCE, stream=stream, source="me", incarnation=incarnation)
    grant = client.hear(channel, hand.SOURCE_ATTACHED)
    assert isinstance(grant, dict)
    return grant


def code_of_goodbye(client: Client) -> str:
    """The code by which the node says goodbye; that it closes the connection then is waited for."""
    said = client.hear(0, hand.GOODBYE)
    with pytest.raises((ConnectionError, BrokenPipeError)):
        client.take(1)
    return str(said["code"])


def head_of(node: Node, stream: str) -> int:
    return int(node.streams.show(stream)["head"])


def bodies_of(node: Node, stream: str) -> list[bytes]:
    with node.subscribe(stream, until=head_of(node, stream) + 1) as subscription:
        return [publication.body for publication in subscription]


# ── batches ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_number_gap_is_refused_with_the_last_number_and_the_source_goes_on(hostile: Client, node: Node) -> None:
    grant = attached(hostile, "gap")
    hostile.say(1, hand.OFFER, record(grant, 1, [b"k", b"k"], [b"1", b"2"]))
    hostile.hear(1, hand.RECEIPT)
    hostile.say(1, hand.OFFER, record(grant, 4, [b"k"], [b"4"]))
    refused = hostile.hear(1, hand.BATCH_REFUSED)
    assert (refused["code"], refused["first_number"], refused["last_number"]) == ("gap", 4, 2)
    hostile.say(1, hand.OFFER, record(grant, 3, [b"k"], [b"3"]))
    hostile.hear(1, hand.RECEIPT)
    assert bodies_of(node, "gap") == [b"1", b"2", b"3"]


def test_a_batch_that_straddles_is_refused_and_taken_once_it_is_cut(hostile: Client, node: Node) -> None:
    grant = attached(hostile, "straddling")
    hostile.say(1, hand.OFFER, record(grant, 1, [b"k", b"k"], [b"1", b"2"]))
    hostile.hear(1, hand.RECEIPT)
    hostile.say(1, hand.OFFER, record(grant, 2, [b"k", b"k"], [b"2", b"3"]))
    refused = hostile.hear(1, hand.BATCH_REFUSED)
    assert (refused["code"], refused["last_number"]) == ("straddles", 2)
    hostile.say(1, hand.OFFER, record(grant, 3, [b"k"], [b"3"]))
    hostile.hear(1, hand.RECEIPT)
    assert bodies_of(node, "straddling") == [b"1", b"2", b"3"]


def test_a_stale_epoch_writes_nothing_whether_it_attaches_with_it_or_signs_with_it(
    hostile: Client, served: ServedNode, node: Node
) -> None:
    stale = attached(hostile, "stale")
    newer = Client("127.0.0.1", served.port)
    grant = attached(newer, "stale", incarnation=b"2" * 16)
    assert grant["epoch"] == stale["epoch"] + 1
    assert hostile.hear(1, hand.FENCED)["epoch"] == grant["epoch"]
    hostile.ask(2, hand.ATTACH_SOURCE, stream="stale", source="me", incarnation=b"1" * 16, epoch=stale["epoch"])
    assert hostile.hear(2, hand.FENCED)["epoch"] == grant["epoch"]
    newer.say(1, hand.OFFER, record(grant, 1, [b"k"], [b"new"]))
    newer.hear(1, hand.RECEIPT)
    newer.say(1, hand.OFFER, record({**grant, "epoch": stale["epoch"]}, 2, [b"k"], [b"old"]))
    assert newer.hear(1, hand.FENCED)["epoch"] == grant["epoch"]
    newer.close()
    assert bodies_of(node, "stale") == [b"new"]


@pytest.mark.parametrize(("flag", "codec"), [(ZSTD, "zstd"), (LZ4, "lz4_raw")])
@pytest.mark.parametrize("claimed_size", [64 * MIB, 1 << 40, MOST])
def test_a_compressed_bomb_is_refused_by_the_size_that_it_claims(
    hostile: Client, node: Node, flag: int, codec: str, claimed_size: int
) -> None:
    grant = attached(hostile, "bombs", incarnation=uuid4().bytes)
    hostile.say(1, hand.OFFER, bomb(grant, flag, codec, claimed_size))
    assert hostile.hear(1, hand.BATCH_REFUSED)["code"] == "too-large"
    assert head_of(node, "bombs") == 0


@pytest.mark.parametrize(("flag", "codec"), [(ZSTD, "zstd"), (LZ4, "lz4_raw")])
def test_a_compressed_bomb_that_claims_to_be_small_ends_its_source_alone(
    hostile: Client, node: Node, flag: int, codec: str
) -> None:
    grant = attached(hostile, "bombs", incarnation=uuid4().bytes)
    hostile.say(1, hand.OFFER, bomb(grant, flag, codec, len(TWO_ROWS)))
    assert hostile.hear(1, hand.REFUSED)["code"] == "bad-batch"
    attached(hostile, "others", channel=2, incarnation=uuid4().bytes)
    assert head_of(node, "bombs") == 0


def bomb(grant: dict[str, int], flag: int, codec: str, claimed_size: int) -> bytes:
    """Two sound publications with 64 MiB of zeros behind them."""
    payload = pa.compress(TWO_ROWS + bytes(64 * MIB), codec=codec, asbytes=True)
    return record_of(grant, 1, 2, struct.pack("<Q", claimed_size) + payload, flags=flag)


@pytest.mark.parametrize("place", [32, 33, 68, 95, 96, -9])
def test_a_flipped_bit_anywhere_in_a_batch_ends_the_connection_and_nothing_is_kept(
    hostile: Client, node: Node, place: int
) -> None:
    grant = attached(hostile, "flipped")
    sound = bytearray(record(grant, 1, [b"k"], [bytes(64)]))
    sound[place] ^= 0x10
    hostile.say(1, hand.OFFER, bytes(sound))
    assert code_of_goodbye(hostile) in ("bad-crc", "bad-batch", "truncated")
    assert head_of(node, "flipped") == 0


def test_another_streams_id_in_a_batch_reaches_neither_stream(hostile: Client, node: Node) -> None:
    other = attached(hostile, "victim", channel=2)
    grant = attached(hostile, "own")
    hostile.say(1, hand.OFFER, record({**grant, "stream_id": other["stream_id"]}, 1, [b"k"], [b"x"]))
    assert hostile.hear(1, hand.REFUSED)["code"] == "wrong-ids"
    assert (head_of(node, "own"), head_of(node, "victim")) == (0, 0)


# ── frames ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("size", [20 * MIB + 1, (1 << 32) - 1])
def test_a_frame_above_the_limit_is_told_before_it_is_read(hostile: Client, size: int) -> None:
    hostile.socket.sendall(hand.HEAD.pack(size, hand.OFFER, 0, 1))
    assert code_of_goodbye(hostile) == "too-large"


@pytest.mark.parametrize(
    ("channel", "kind", "body"),
    [
        (1, hand.RECEIPT, bytes(24)),
        (0, 0x7F, b""),
        (1, hand.CREDIT, b"short"),
        (1, hand.SUBSCRIBE, b"\xc1 no msgpack"),
        (0, hand.HELLO, hand.msgspec.msgpack.encode({"client": "again"})),
        (0, hand.ATTACH_SOURCE, hand.msgspec.msgpack.encode({"stream": "s"})),
    ],
)
def test_a_frame_that_has_no_place_here_is_told_and_ends_the_connection(
    hostile: Client, channel: int, kind: int, body: bytes
) -> None:
    hostile.say(channel, kind, body)
    assert code_of_goodbye(hostile) == "bad-frame"


def test_a_frame_that_is_cut_off_leaves_nothing(hostile: Client, node: Node) -> None:
    grant = attached(hostile, "cut")
    whole = record(grant, 1, [b"k"], [bytes(1000)])
    hostile.socket.sendall(hand.HEAD.pack(len(whole), hand.OFFER, 0, 1) + whole[:-1])
    hostile.socket.shutdown(socket.SHUT_WR)
    with pytest.raises(ConnectionError):
        hostile.take(1)
    assert head_of(node, "cut") == 0


# ── credit ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_credit_beyond_all_measure_is_as_good_as_much(hostile: Client, node: Node) -> None:
    with node.publisher("rich", source="p") as publisher:
        publisher.publish_many([b"k"] * 100, [bytes(100)] * 100)
    hostile.ask(1, hand.SUBSCRIBE, stream="rich", credit=(1 << 63) - 1)
    hostile.hear(1, hand.SUBSCRIBED)
    hostile.hear(1, hand.SOURCES)
    rows = rows_of(hostile.hear(1, hand.DELIVER)[8:])
    # However a sum of these is cut to a machine's words, it is less than nothing at some time.
    for credit in (1 << 62, (1 << 63) - 1, 1 << 63, MOST):
        hostile.say(1, hand.CREDIT, struct.pack("<Q", credit))
        with node.publisher("rich", source="p") as publisher:
            publisher.wait(publisher.publish("k", b"more"), timeout_s=20)
        while len(rows) < head_of(node, "rich"):
            rows += rows_of(hostile.hear(1, hand.DELIVER)[8:])
    assert [row.sequence for row in rows] == list(range(1, 105))


def test_one_that_never_gives_credit_is_pushed_nothing_and_holds_nobody_back(hostile: Client, node: Node) -> None:
    hostile.ask(1, hand.SUBSCRIBE, stream="poor", subscriber="poor", name="main", incarnation=b"1" * 16)
    hostile.hear(1, hand.SUBSCRIBED)
    hostile.say(1, hand.CREDIT, bytes(8))
    with node.publisher("poor", source="p") as publisher:
        publisher.publish_many([b"k"] * 10_000, [bytes(1000)] * 10_000)
    assert len(bodies_of(node, "poor")) == 10_000
    shown = node.subscriptions.show("poor", "poor")
    assert (shown["credit"], shown["waits_for"], shown["pushed_to"]) == (0, "credit", 0)
    hostile.say(0, 0x04, b"still there?")
    assert hostile.hear(0, 0x05) == b"still there?"


def test_what_was_never_pushed_cannot_be_settled(hostile: Client, node: Node) -> None:
    with node.publisher("unpushed", source="p") as publisher:
        publisher.publish("k", b"1")
    hostile.ask(1, hand.SUBSCRIBE, stream="unpushed", subscriber="x", name="main", incarnation=b"1" * 16)
    hostile.hear(1, hand.SUBSCRIBED)
    hostile.say(1, hand.SETTLE, struct.pack("<QQ", 1, (1 << 63) - 1))
    assert hostile.hear(1, hand.REFUSED)["code"] == "not-pushed"
    assert node.subscriptions.show("unpushed", "x")["floor"] == 0


# ── version 1 ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "garbled",
    [
        b"\xaa\xa5\x63",
        b"\xaa\xa5\x02",
        b"\xaa\xa5\x06\x01k\xff\xff\xff\xff",
        b"\x00\x00\x00",
        b"\xaa\xa5\x01\x04ZEPS\x00\x01\x01s",
    ],
    ids=["unknown", "the server's", "oversized", "no signature", "a second attach"],
)
def test_a_garbled_command_of_version_1_is_answered_invalid(served: ServedNode, node: Node, garbled: bytes) -> None:
    client = zeps1.over_tcp("127.0.0.1", served.port)
    client.attach("first")
    assert client.hear() == zeps1.Said(client.ATTACH_OK)
    client.way.send(garbled)
    said = client.hear()
    assert (said.command, said.fields[0] != b"") == (client.INVALID, True)
    with pytest.raises(ConnectionError):
        client.hear()
    client.close()


def test_credit_of_version_1_beyond_all_measure_or_none_harms_nobody(served: ServedNode, node: Node) -> None:
    with node.publisher("first-rich", source="p") as publisher:
        publisher.publish_many([b"k"] * 10, [b"x"] * 10)
    rich, poor = (zeps1.over_tcp("127.0.0.1", served.port) for _ in range(2))
    for client in (rich, poor):
        client.attach("first-rich")
        assert client.hear() == zeps1.Said(client.ATTACH_OK)
        client.subscribe(b"", 0)
        assert client.hear() == zeps1.Said(client.SUBSCRIBE_OK)
    for _ in range(3):
        rich.credit(MOST)
    poor.credit(0)
    assert [rich.hear().fields[0] for _ in range(10)] == list(range(1, 11))
    poor.ping()
    assert poor.hear() == zeps1.Said(poor.PING_OK)
    rich.close()
    poor.close()


# ── what one may have ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def narrow(tmp_path: Path) -> Iterator[ServedNode]:
    """A node that allows each principal little."""
    limits = {"CONNECTIONS_PER_PRINCIPAL_MAX": "3", "STREAMS_PER_PRINCIPAL_MAX": "2"}
    limits |= {"SOURCES_PER_PRINCIPAL_MAX": "2", "CHANNELS_MAX": "4"}
    served = ServedNode(tmp_path / "narrow", {f"LIMITS_{name}": value for name, value in limits.items()})
    served.start().close()
    yield served
    served.kill()


def test_a_principal_has_no_more_streams_and_sources_than_it_may(narrow: ServedNode) -> None:
    with veredus.connect(narrow.address) as node:
        node.streams.create("one")
        node.streams.create("two")
        with pytest.raises(veredus.Refused) as streams:
            node.streams.create("three")
        assert streams.value.code == "too-many-streams"
        held = [node.publisher("one", source="a"), node.publisher("two", source="b")]
        with pytest.raises(veredus.Refused) as sources:
            node.publisher("one", source="c")
        assert sources.value.code == "too-many-sources"
        for publisher in held:
            publisher.wait(publisher.publish("k", b"still served"), timeout_s=20)
            publisher.close()
        node.publisher("one", source="c").close()


def test_a_principal_has_no_more_open_ephemeral_subscriptions_than_it_may() -> None:
    with veredus.embedded(limits={"ephemeral_subscriptions_per_principal_max": 2}) as node:
        held = [node.subscribe("watched") for _ in range(2)]
        with pytest.raises(veredus.Refused, match="ephemeral_subscriptions_per_principal_max") as refused:
            node.subscribe("watched")
        assert (refused.value.code, refused.value.details["subscriptions_max"]) == ("too-many-subscriptions", 2)
        node.subscribe("watched", subscriber="billing").close()
        held.pop().close()
        node.subscribe("watched").close()
        held.pop().close()


def test_a_principal_has_no_more_connections_than_it_may(narrow: ServedNode) -> None:
    held = [Client("127.0.0.1", narrow.port) for _ in range(3)]
    with pytest.raises(AssertionError, match="too-many-connections"):
        Client("127.0.0.1", narrow.port)
    held.pop().close()
    with veredus.connect(narrow.address, timeout_s=20, refused_s=20) as node:
        node.streams.list()
    for client in held:
        client.close()


def test_a_connection_has_no_more_channels_than_it_may(narrow: ServedNode) -> None:
    client = Client("127.0.0.1", narrow.port)
    for channel in range(1, 5):
        client.ask(channel, hand.SUBSCRIBE, stream="one")
        client.hear(channel, hand.SUBSCRIBED)
    client.ask(5, hand.SUBSCRIBE, stream="one")
    assert code_of_goodbye(client) == "too-many-channels"
    client.close()


def test_a_stream_knows_no_more_sources_than_it_may_and_others_go_on(served: ServedNode, node: Node) -> None:
    node.streams.create("narrow", sources_max=2)
    node.streams.create("wide")
    held = {name: node.publisher("narrow", source=name) for name in ("a", "b")}
    with veredus.connect(served.address) as late, pytest.raises(veredus.Refused) as refused:
        late.publisher("narrow", source="c")
    assert (refused.value.code, refused.value.details["sources_max"]) == ("too-many-sources", 2)
    assert "'narrow'" in refused.value.message
    for name, publisher in held.items():
        publisher.wait(publisher.publish("k", name.encode()), timeout_s=20)
        publisher.close()
    with pytest.raises(veredus.Refused), node.publisher("narrow", source="c"):
        pass
    for stream, source in (("narrow", "a"), ("narrow", ""), ("wide", "c")):
        with node.publisher(stream, source=source) as publisher:
            publisher.wait(publisher.publish("k", b"on"), timeout_s=20)
    assert bodies_of(node, "narrow") == [b"a", b"b", b"on", b"on"]
    assert node.streams.show("narrow")["sources"] == 2
