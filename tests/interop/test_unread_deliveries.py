"""What a client does not read keeps nobody from hearing what it says: real processes, at each listener."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

import veredus
from tests.attack.by_hand import Peer
from tests.certificates import CERTIFICATES
from tests.interop.ears import over_tls
from tests.interop.zeps1_by_hand import Client, Said, StreamWay, over_tcp, over_unix, over_zeromq
from tests.processes import free_port
from tests.system.serving import ServedNode
from veredus.protocols.zeps import messages as m
from veredus.protocols.zeps.native import Kind

pytestmark = pytest.mark.interop

LONG_COUNT, BODY = 1_600, bytes(16 << 10)
"""More than this machine's systems and the node together keep of it for one that reads nothing."""
MUCH = 1 << 40
PUBLISHED_COUNT, PAUSE_S = 32, 0.15
SILENCE_S = 3.0
WAYS = ["TCP", "TLS", "Unix", "ZeroMQ"]


class Scene:
    """A node with a long stream, that lets go of who is silent for `SILENCE_S`."""

    def __init__(self, directory: Path) -> None:
        tls, zeromq, unix = f"127.0.0.1:{free_port()}", f"tcp://127.0.0.1:{free_port()}", str(directory / "socket")
        settings = {
            "LISTEN_TLS": tls,
            "LISTEN_UNIX": unix,
            "LISTEN_ZEROMQ": zeromq,
            "TLS_CERTIFICATE": str(CERTIFICATES / "node.pem"),
            "TLS_KEY": str(CERTIFICATES / "node.key"),
            "LIMITS_HEARTBEAT_INTERVAL": "1s",
            "LIMITS_SILENCE_MAX": f"{SILENCE_S:g}s",
        }
        self.served = ServedNode(directory / "journal", settings, life_s=180)
        with self.served.start() as node, node.publisher("long") as publisher:
            for _ in range(LONG_COUNT):
                publisher.publish("k", BODY)
            publisher.flush()
        self.ways: dict[str, Callable[[], Client]] = {
            "TCP": lambda: over_tcp("127.0.0.1", self.served.port),
            "TLS": lambda: Client(StreamWay(over_tls(tls, CERTIFICATES / "authority.pem"))),
            "Unix": lambda: over_unix(unix),
            "ZeroMQ": lambda: over_zeromq(zeromq, {"RCVHWM": 10}),
        }


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    scene = Scene(tmp_path_factory.mktemp("unread"))
    yield scene
    scene.served.kill()


@pytest.mark.parametrize("way", WAYS)
def test_a_client_that_reads_nothing_is_heard_at_once_and_stays_as_long_as_it_sends(scene: Scene, way: str) -> None:
    key, latencies = f"of {way}", list[float]()
    with (
        closing(scene.ways[way]()) as deaf,
        veredus.connect(scene.served.address) as node,
        node.subscribe("long", keys=f"literal:{key}", start=veredus.head()) as watched,
    ):
        deaf.attach("long")
        assert deaf.hear() == Said(Client.ATTACH_OK)
        deaf.subscribe(b"", 0)
        assert deaf.hear() == Said(Client.SUBSCRIBE_OK)
        deaf.credit(MUCH)
        # Until what the systems on the way keep is full.
        time.sleep(1)
        for number in range(PUBLISHED_COUNT):
            deaf.publish(key.encode(), b"%d" % number)
            sent_s = time.monotonic()
            batch = watched.next_batch(timeout_s=5)
            assert batch is not None, f"PUBLISH {number} was not heard"
            assert [publication.body for publication in batch] == [b"%d" % number]
            latencies.append(time.monotonic() - sent_s)
            time.sleep(PAUSE_S)
        assert PUBLISHED_COUNT * PAUSE_S > 1.5 * SILENCE_S
        assert sorted(latencies)[PUBLISHED_COUNT // 2] < 1
        deaf.ping()
        heard = [deaf.hear()]
        while heard[-1] != Said(Client.PING_OK):
            heard.append(deaf.hear())
    sequences = [said.fields[0] for said in heard if said.command == Client.DELIVER]
    assert sequences == list(range(1, len(sequences) + 1)), "nothing is lost on the way to it"


def test_a_native_client_that_reads_nothing_is_heard_at_once_and_stays_as_long_as_it_asks(scene: Scene) -> None:
    with Peer(scene.served.port) as deaf, veredus.connect(scene.served.address) as node:
        deaf.send(1, m.Subscribe("long", credit=MUCH))
        time.sleep(1)
        for number in range(PUBLISHED_COUNT):
            name = f"asked-{number}"
            deaf.send(0, m.Request(1 + number, "stream.create", {"name": name}))
            end_s = time.monotonic() + 5
            while name not in {stream["name"] for stream in node.streams.list()}:
                assert time.monotonic() < end_s
                time.sleep(0.01)
            time.sleep(PAUSE_S)
        answer_count = 0
        while answer_count < PUBLISHED_COUNT:
            answer_count += deaf.hear_kind() == Kind.REPLY
