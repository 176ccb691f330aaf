"""A client that knows nothing but the page of the native protocol, against a whole node on real sockets and files."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop import native_by_hand as hand
from tests.interop.native_by_hand import Client, Row, record, rows_of
from tests.interop.serving import Serving

pytestmark = pytest.mark.interop
MUCH = 1 << 30


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    serving = Serving(tmp_path / "node")
    client = Client(*serving.tcp)
    yield client
    client.close()
    serving.stop()


def attached(client: Client, channel: int, incarnation: bytes) -> dict[str, int]:
    client.ask(channel, hand.ATTACH_SOURCE, stream="s", source="me", incarnation=incarnation)
    grant = client.hear(channel, hand.SOURCE_ATTACHED)
    assert isinstance(grant, dict)
    return grant


def test_the_checksum_of_the_page_is_the_one_of_its_example() -> None:
    assert hand.crc32c(b"123456789") == 0xE3069283


def test_what_is_offered_by_the_page_is_taken_pushed_and_settled_by_the_page(client: Client) -> None:
    grant = attached(client, 1, b"1" * 16)
    assert (grant["epoch"], grant["last_number"], grant["source_id"] > 0) == (1, 0, True)
    client.say(1, hand.OFFER, record(grant, 1, [b"a", b"b", b"a"], [b"1", b"2", b"3"], b"offset=3"))
    assert client.hear(1, hand.RECEIPT) == struct.pack("<QQBB6x", 3, 1, 0, 0)
    client.ask(2, hand.SUBSCRIBE, stream="s", subscriber="app", name="main", incarnation=b"2" * 16, credit=MUCH)
    assert client.hear(2, hand.SUBSCRIBED)["position"] == 1
    assert client.hear(2, hand.SOURCES) == {"names": [[grant["source_id"], "me"]]}
    delivered = client.hear(2, hand.DELIVER)
    assert delivered[:8] == bytes(8)
    source = grant["source_id"]
    assert rows_of(delivered[8:]) == [
        Row(1, 1, source, b"a", b"1"),
        Row(2, 2, source, b"b", b"2"),
        Row(3, 3, source, b"a", b"3"),
    ]
    client.say(2, hand.SETTLE, struct.pack("<QQ", 1, 3))
    assert client.hear(2, hand.SETTLED) == struct.pack("<Q", 3)


def test_a_filter_of_the_page_brings_an_excerpt(client: Client) -> None:
    grant = attached(client, 1, b"1" * 16)
    client.say(1, hand.OFFER, record(grant, 1, [b"a", b"b", b"a"], [b"1", b"2", b"3"]))
    client.hear(1, hand.RECEIPT)
    client.ask(2, hand.SUBSCRIBE, stream="s", filter={"keys": ["literal:a"], "where": None}, credit=MUCH)
    client.hear(2, hand.SUBSCRIBED)
    client.hear(2, hand.SOURCES)
    rows = rows_of(client.hear(2, hand.DELIVER)[8:])
    assert [(row.sequence, row.number, row.key) for row in rows] == [(1, 1, b"a"), (3, 3, b"a")]


def test_an_older_incarnation_is_fenced_and_the_newer_learns_where_to_go_on(client: Client) -> None:
    grant = attached(client, 1, b"1" * 16)
    client.say(1, hand.OFFER, record(grant, 1, [b"a"], [b"1"], b"offset=1"))
    client.hear(1, hand.RECEIPT)
    client.ask(3, hand.ATTACH_SOURCE, stream="s", source="me", incarnation=b"3" * 16)
    assert client.hear(1, hand.FENCED)["epoch"] == 2
    newer = client.hear(3, hand.SOURCE_ATTACHED)
    assert (newer["epoch"], newer["last_number"], newer["token"]) == (2, 1, b"offset=1")
    client.say(3, hand.OFFER, record(newer, 1, [b"a"], [b"1"]))
    assert client.hear(3, hand.RECEIPT)[16] == 1
    client.say(3, hand.OFFER, record(newer, 7, [b"a"], [b"1"]))
    refused = client.hear(3, hand.BATCH_REFUSED)
    assert (refused["code"], refused["last_number"]) == ("gap", 1)


def test_a_request_of_the_page_is_answered(client: Client) -> None:
    client.ask(0, hand.REQUEST, request=1, verb="stream.create", arguments={"name": "t"})
    reply = client.hear(0, hand.REPLY)
    assert (reply["request"], reply["result"]["name"], reply["result"]["head"]) == (1, "t", 0)
    client.ask(0, hand.REQUEST, request=2, verb="stream.show", arguments={"name": "nowhere"})
    refusal = client.hear(0, hand.REFUSED)
    assert (refusal["request"], refusal["code"], refusal["final"]) == (2, "unknown-stream", False)
