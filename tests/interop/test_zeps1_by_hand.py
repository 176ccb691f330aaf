"""A client that knows nothing but the page of ZEPS 1, against a whole node on real sockets and files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.interop.serving import Serving
from tests.interop.zeps1_by_hand import Client, Said, over_tcp, over_zeromq

pytestmark = pytest.mark.interop

Connect = Callable[[], Client]
MUCH = 1 << 30


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    serving = Serving(tmp_path / "node")
    yield serving
    serving.stop()


def connecting(serving: Serving, door: str) -> Connect:
    if door == "zeromq":
        return lambda: over_zeromq(serving.addresses["zeromq"])
    return lambda: over_tcp(*serving.tcp)


def attached(connect: Connect, stream: str = "prices") -> Client:
    client = connect()
    client.attach(stream)
    assert client.hear() == Said(Client.ATTACH_OK)
    return client


def published(connect: Connect, count: int) -> None:
    """Publish `count` messages with keys by turns `a.` and `b.`; return when all are on disk."""
    client = attached(connect)
    for number in range(1, count + 1):
        client.publish(b"a.x" if number % 2 else b"b.x", b"%d" % number)
    client.detach()
    assert client.hear() == Said(Client.DETACH_OK)
    client.close()


@pytest.fixture(params=["tcp", "zeromq"])
def connect(request: pytest.FixtureRequest, serving: Serving) -> Connect:
    return connecting(serving, request.param)


def test_what_is_published_by_the_page_is_delivered_by_the_page(connect: Connect) -> None:
    published(connect, 100)
    client = attached(connect)
    client.subscribe(b"", 90)
    assert client.hear() == Said(Client.SUBSCRIBE_OK)
    client.credit(MUCH)
    heard = [client.hear() for _ in range(10)]
    assert heard == [Said(Client.DELIVER, (n, b"a.x" if n % 2 else b"b.x", b"%d" % n)) for n in range(91, 101)]
    other = attached(connect)
    other.publish(b"c", b"live")
    assert client.hear() == Said(Client.DELIVER, (101, b"c", b"live"))
    client.close()
    other.close()


def test_a_subscription_takes_a_prefix_and_credit_in_bytes(connect: Connect) -> None:
    published(connect, 10)
    client = attached(connect)
    client.subscribe(b"b.", 0)
    assert client.hear() == Said(Client.SUBSCRIBE_OK)
    client.credit(1)
    assert client.hear() == Said(Client.DELIVER, (2, b"b.x", b"2"))
    client.ping()
    assert client.hear() == Said(Client.PING_OK)
    client.credit(2 * 20)
    assert [client.hear().fields[0] for _ in range(2)] == [4, 6]
    client.close()


def test_a_version_that_nobody_speaks_is_answered_invalid(connect: Connect) -> None:
    client = connect()
    client.attach("prices", version=9)
    said = client.hear()
    assert said.command == Client.INVALID
    assert b"version_9" in bytes(said.fields[0])  # type: ignore[arg-type]
    client.close()


def test_a_client_on_each_door_shares_one_stream(serving: Serving) -> None:
    over_one, over_other = connecting(serving, "tcp"), connecting(serving, "zeromq")
    reader = attached(over_other)
    reader.credit(MUCH)
    reader.subscribe(b"", 0)
    assert reader.hear() == Said(Client.SUBSCRIBE_OK)
    published(over_one, 3)
    assert [reader.hear().fields[0] for _ in range(3)] == [1, 2, 3]
    reader.close()


def test_what_was_published_is_there_after_a_restart(tmp_path: Path) -> None:
    first = Serving(tmp_path / "node")
    published(connecting(first, "tcp"), 20)
    first.stop()
    second = Serving(tmp_path / "node")
    client = attached(connecting(second, "tcp"))
    client.subscribe(b"", 0)
    client.credit(MUCH)
    assert client.hear() == Said(Client.SUBSCRIBE_OK)
    assert [client.hear().fields[0] for _ in range(20)] == list(range(1, 21))
    client.close()
    second.stop()


class Gathering:
    """A way that sends nothing yet."""

    def __init__(self) -> None:
        self.gathered: list[bytes] = []

    def send(self, octets: bytes) -> None:
        self.gathered.append(octets)

    def take(self, size: int) -> bytes:
        raise AssertionError("nothing was sent")

    def close(self) -> None:
        pass


def published_at_once(serving: Serving, count: int) -> None:
    """As `published`, in one piece, so that many of them are pushed together."""
    client = attached(connecting(serving, "tcp"))
    way, gathering = client.way, Gathering()
    client.way = gathering
    for number in range(1, count + 1):
        client.publish(b"a.x" if number % 2 else b"b.x", b"%d" % number)
    client.detach()
    way.send(b"".join(gathering.gathered))
    client.way = way
    assert client.hear() == Said(Client.DETACH_OK)
    client.close()


@pytest.mark.parametrize("count", [40, 4000])
@pytest.mark.parametrize("is_first_delivered", [False, True])
def test_what_an_older_subscription_brings_comes_in_front_of_what_credit_had_not_reached(
    connect: Connect, serving: Serving, count: int, is_first_delivered: bool
) -> None:
    published_at_once(serving, count)
    client = attached(connect)
    client.subscribe(b"a.", 0)
    assert client.hear() == Said(Client.SUBSCRIBE_OK)
    heard = []
    if is_first_delivered:
        client.credit(1)
        heard.append(client.hear().fields[0])
    client.subscribe(b"b.", 0)
    assert client.hear() == Said(Client.SUBSCRIBE_OK)
    client.credit(MUCH)
    while len(heard) < count:
        heard.append(client.hear().fields[0])
    assert heard == list(range(1, count + 1))
    client.close()
