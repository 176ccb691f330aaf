"""Clients of ZEPS 1 before a node that is killed: what PING-OK confirmed is there, and nobody hears a false word."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.zeps1_by_hand import Client, Said, over_tcp, over_zeromq
from tests.processes import free_port
from tests.system.serving import ServedNode

pytestmark = pytest.mark.slow

COUNT = 3_000


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServedNode]:
    served = ServedNode(tmp_path / "journal", {"LISTEN_ZEROMQ": f"tcp://127.0.0.1:{free_port()}"})
    served.start().close()
    yield served
    served.kill()


def attached(served: ServedNode, door: str) -> Client:
    client = over_tcp("127.0.0.1", served.port) if door == "tcp" else over_zeromq(served.setting("LISTEN_ZEROMQ"))
    client.attach("orders")
    assert client.hear() == Said(Client.ATTACH_OK)
    return client


@pytest.mark.parametrize("door", ["tcp", "zeromq"])
def test_what_was_published_before_a_ping_that_was_answered_survives_a_kill(served: ServedNode, door: str) -> None:
    client = attached(served, door)
    for number in range(1, COUNT + 1):
        client.publish(b"k", b"%d" % number + bytes(200))
    client.ping()
    assert client.hear() == Said(Client.PING_OK)
    served.kill()
    client.close()
    served.start().close()
    reader = attached(served, door)
    reader.subscribe(b"", 0)
    assert reader.hear() == Said(Client.SUBSCRIBE_OK)
    reader.credit(1 << 40)
    heard = [reader.hear().fields for _ in range(COUNT)]
    assert [(sequence, int(bytes(body).rstrip(b"\0"))) for sequence, _, body in heard] == [  # type: ignore[arg-type]
        (number, number) for number in range(1, COUNT + 1)
    ]
    reader.close()


@pytest.mark.parametrize("stream", ["orders", "other"])
def test_what_was_published_before_another_attach_on_the_same_socket_survives_a_kill_behind_its_ping_ok(
    served: ServedNode, stream: str
) -> None:
    client = attached(served, "zeromq")
    for number in range(1, COUNT + 1):
        client.publish(b"k", b"%d" % number + bytes(2000))
    client.attach(stream)
    client.ping()
    assert [client.hear() for _ in range(2)] == [Said(Client.ATTACH_OK), Said(Client.PING_OK)]
    served.kill()
    client.close()
    served.start().close()
    reader = attached(served, "tcp")
    reader.subscribe(b"", 0)
    assert reader.hear() == Said(Client.SUBSCRIBE_OK)
    reader.credit(1 << 40)
    assert [reader.hear().fields[0] for _ in range(COUNT)] == list(range(1, COUNT + 1))
    reader.close()


def test_a_client_over_zeromq_hears_after_a_restart_that_its_stream_is_not_open(served: ServedNode) -> None:
    client = attached(served, "zeromq")
    client.publish(b"k", b"1")
    client.ping()
    assert client.hear() == Said(Client.PING_OK)
    served.kill()
    served.start().close()
    client.ping()
    assert client.hear() == Said(Client.INVALID, (b"unexpected:_the_first_command_must_be_ATTACH",))
    client.detach()
    client.attach("orders")
    assert client.hear() == Said(Client.ATTACH_OK), "the next answer is that to ATTACH"
    client.close()
