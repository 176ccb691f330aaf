"""Sockets of libzmq before a whole node: DEALER, REQ and ROUTER, and what they do that a stream of octets does not."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

import veredus
from tests.interop.serving import Serving
from tests.interop.zeps1_by_hand import string

pytestmark = pytest.mark.interop

ATTACH = b"\xaa\xa5\x01" + string(b"ZEPS") + b"\x00\x01" + string(b"prices")
ATTACH_OK, SUBSCRIBE_OK, PING, PING_OK = b"\xaa\xa5\x02", b"\xaa\xa5\x04", b"\xaa\xa5\x08", b"\xaa\xa5\x09"
SUBSCRIBE, DELIVER = b"\xaa\xa5\x03\x00" + bytes(8), b"\xaa\xa5\x07"
MUCH = b"\xaa\xa5\x05" + struct.pack(">Q", 1 << 40)


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    serving = Serving(tmp_path / "node")
    yield serving
    serving.stop()


class Sockets:
    """Owns sockets that are closed, and linger not, when a test is over."""

    def __init__(self) -> None:
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._sockets: list[zmq.Socket[bytes]] = []

    def connect(self, kind: int, endpoint: str, identity: bytes = b"", **options: int) -> zmq.Socket[bytes]:
        socket = self.make(kind, **options)
        if identity:
            socket.setsockopt(zmq.CONNECT_ROUTING_ID if kind == zmq.ROUTER else zmq.IDENTITY, identity)
        socket.connect(endpoint)
        return socket

    def make(self, kind: int, **options: int) -> zmq.Socket[bytes]:
        socket = self.context.socket(kind)
        self._sockets.append(socket)
        for name, value in {"RCVTIMEO": 10_000, "LINGER": 0, **options}.items():
            socket.setsockopt(getattr(zmq, name), value)
        return socket

    def close(self) -> None:
        for socket in self._sockets:
            socket.close()
        self.context.term()


@pytest.fixture
def sockets() -> Iterator[Sockets]:
    sockets = Sockets()
    yield sockets
    sockets.close()


def published(serving: Serving, count: int, body: bytes) -> None:
    host, port = serving.tcp
    with veredus.connect(f"veredus://{host}:{port}") as node, node.publisher("prices", source="s") as publisher:
        for _ in range(count):
            last = publisher.publish("k", body)
        publisher.wait(last)


def test_a_req_socket_is_answered_one_command_at_a_time(serving: Serving, sockets: Sockets) -> None:
    socket = sockets.connect(zmq.REQ, serving.addresses["zeromq"], REQ_RELAXED=1)
    # A REQ wants the delimiter back that it sends: the node's frames have none, so nothing is heard, and nobody harmed.
    socket.send(ATTACH)
    assert not socket.poll(100)
    other = sockets.connect(zmq.DEALER, serving.addresses["zeromq"])
    other.send_multipart([b"", ATTACH])
    assert other.recv() == ATTACH_OK


def test_a_router_socket_may_be_a_client(serving: Serving, sockets: Sockets) -> None:
    socket = sockets.connect(zmq.ROUTER, serving.addresses["zeromq"], b"node")
    socket.send_multipart([b"node", ATTACH])
    assert socket.recv_multipart() == [b"node", ATTACH_OK]


def test_a_peer_that_heartbeats_with_a_time_to_live_stays(serving: Serving, sockets: Sockets) -> None:
    socket = sockets.connect(
        zmq.DEALER, serving.addresses["zeromq"], HEARTBEAT_IVL=20, HEARTBEAT_TTL=200, HEARTBEAT_TIMEOUT=500
    )
    socket.send(ATTACH)
    assert socket.recv() == ATTACH_OK
    with socket.get_monitor_socket(zmq.EVENT_DISCONNECTED) as gone:
        assert not gone.poll(700)
    socket.disable_monitor()
    socket.send(PING)
    assert socket.recv() == PING_OK


def test_a_subscriber_that_does_not_read_for_a_while_gets_all_of_60_000(serving: Serving, sockets: Sockets) -> None:
    published(serving, 1, b"first")
    socket = sockets.connect(zmq.DEALER, serving.addresses["zeromq"], RCVHWM=10)
    for command, answer in ((ATTACH, ATTACH_OK), (SUBSCRIBE, SUBSCRIBE_OK)):
        socket.send(command)
        assert socket.recv() == answer
    socket.send(MUCH)
    published(serving, 60_000, bytes(250))
    for sequence in range(1, 60_002):
        frame = socket.recv()
        assert frame[:11] == DELIVER + struct.pack(">Q", sequence)


def test_a_routing_identity_that_comes_back_hears_nothing_of_its_former_life(
    serving: Serving, sockets: Sockets
) -> None:
    published(serving, 20_000, bytes(250))
    endpoint = serving.addresses["zeromq"]
    former = sockets.connect(zmq.DEALER, endpoint, b"me", RCVHWM=10, RECONNECT_IVL=-1)
    for command, answer in ((ATTACH, ATTACH_OK), (SUBSCRIBE, SUBSCRIBE_OK)):
        former.send(command)
        assert former.recv() == answer
    former.send(MUCH)
    assert former.recv()[:3] == DELIVER
    latter = sockets.connect(zmq.DEALER, endpoint, b"me")
    for command, answer in ((ATTACH, ATTACH_OK), (PING, PING_OK), (SUBSCRIBE, SUBSCRIBE_OK), (PING, PING_OK)):
        latter.send(command)
        assert latter.recv() == answer


def test_an_ipc_endpoint_is_served(tmp_path: Path, sockets: Sockets) -> None:
    endpoint = f"ipc://{tmp_path}/zmq"
    serving = Serving(tmp_path / "node", endpoint)
    socket = sockets.connect(zmq.DEALER, endpoint)
    socket.send(ATTACH)
    assert socket.recv() == ATTACH_OK
    serving.stop()
    assert not Path(f"{tmp_path}/zmq").exists()
