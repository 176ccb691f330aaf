"""A node that multicasts a stream on the loopback interface, and receivers that lose datagrams."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.multicast_by_hand import Receiver
from tests.interop.zeps1_by_hand import Client, Said, over_tcp
from tests.processes import free_port
from tests.system.serving import ServedNode

pytestmark = pytest.mark.slow

GROUP = "239.195.7.1"
COUNT = 4_000


class Fed:
    """A served node whose stream `prices` goes to a group."""

    def __init__(self, directory: Path) -> None:
        self.port = free_port()
        settings = {
            "MULTICAST_GROUP": f"{GROUP}:{self.port}",
            "MULTICAST_STREAMS": "prices",
            "MULTICAST_ANNOUNCE_INTERVAL": "100ms",
        }
        self.served = ServedNode(directory, settings)
        self.served.start().close()

    def receiver(self, loss: float) -> Receiver:
        return Receiver(GROUP, self.port, b"prices", self.client, loss)

    def client(self) -> Client:
        return over_tcp("127.0.0.1", self.served.port)

    def publish(self, first: int, last: int) -> None:
        client = self.client()
        client.attach("prices")
        assert client.hear() == Said(Client.ATTACH_OK)
        for number in range(first, last + 1):
            client.publish(b"k.%d" % (number % 7), body_of(number))
            if number % 100 == 0:
                client.ping()
                assert client.hear() == Said(Client.PING_OK)
        client.detach()
        assert client.hear() == Said(Client.DETACH_OK)
        client.close()


def body_of(number: int) -> bytes:
    """Some are larger than any datagram of the node's."""
    return b"%d:" % number + bytes(5_000 if number % 500 == 0 else 20)


@pytest.fixture
def fed(tmp_path: Path) -> Iterator[Fed]:
    fed = Fed(tmp_path / "journal")
    yield fed
    fed.served.kill()


def received(receiver: Receiver, last: int) -> list[tuple[int, bytes]]:
    messages = []
    while receiver.expected <= last:
        messages += receiver.take()
    return [(message.sequence, message.body) for message in messages]


@pytest.mark.parametrize("loss", [0.0, 0.2])
def test_a_receiver_that_loses_datagrams_gets_everything_once_and_in_order(fed: Fed, loss: float) -> None:
    receiver = fed.receiver(loss)
    fed.publish(1, COUNT)
    assert received(receiver, COUNT) == [(number, body_of(number)) for number in range(1, COUNT + 1)]
    assert (receiver.lost_count > 0) == (loss > 0)
    assert 0 < receiver.repaired_count < COUNT, "some by a connection, and not all"
    receiver.close()


def test_the_last_publication_is_announced_when_its_datagram_is_lost(fed: Fed) -> None:
    receiver = fed.receiver(0.0)
    fed.publish(1, 1)
    while not receiver.hear().messages:
        pass
    assert received(receiver, 1) == [(1, body_of(1))]
    assert receiver.repaired_count == 1
    receiver.close()


def test_a_feed_goes_on_after_a_restart_of_the_node_where_the_stream_goes_on(fed: Fed) -> None:
    receiver = fed.receiver(0.0)
    fed.publish(1, 10)
    before = receiver.hear()
    fed.served.kill()
    fed.served.start().close()
    fed.publish(11, 20)
    after = receiver.hear()
    assert (after.incarnation, after.term) == (before.incarnation, before.term)
    assert received(receiver, 20) == [(number, body_of(number)) for number in range(1, 21)]
    receiver.close()
