"""Raw pyzmq sockets: no broker, no journal, no receipts; what the wire and the client alone can do."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.broker import LOOPBACK, Broker, free_port
from benchmarks.contender import IDLE_LIMIT_S
from benchmarks.load import Load
from benchmarks.scenarios import Scenario
from benchmarks.witness import Witness

if TYPE_CHECKING:
    import zmq


@dataclass(frozen=True, slots=True)
class ZmqSockets:
    """Two sockets over TCP on the loopback interface, one frame a publication."""

    name: str
    mode: str
    is_broadcast: bool
    scenarios: tuple[str, ...] = ("throughput-100", "throughput-1k", "latency-100")

    def missing(self) -> str | None:
        """What is not installed, with what to do about it, or None."""
        return None if importlib.util.find_spec("zmq") else "the Python package pyzmq (pip install pyzmq)"

    def versions(self) -> Mapping[str, str]:
        """The versions of libzmq and of pyzmq."""
        import zmq

        return {"libzmq": zmq.zmq_version(), "pyzmq": zmq.pyzmq_version()}

    def start(self, workdir: Path, scenario: Scenario) -> Broker:
        """An address: the two ends talk to each other."""
        return Broker(f"tcp://{LOOPBACK}:{free_port()}")

    def publisher(self, address: str, scenario: Scenario) -> ZmqPublisher:
        """The end that binds."""
        return ZmqPublisher(address, self.is_broadcast)

    def subscriber(self, address: str, scenario: Scenario) -> ZmqSubscriber:
        """The end that connects."""
        return ZmqSubscriber(address, self.is_broadcast)


class ZmqPublisher:
    """Sends every body with one blocking call."""

    def __init__(self, address: str, is_broadcast: bool) -> None:
        """Publish at `address`, to all or to one."""
        self._address = address
        self._is_broadcast = is_broadcast

    def open(self) -> None:
        """Bind, and wait until the subscriber is there."""
        import zmq

        self._context = zmq.Context()
        # An XPUB socket is a PUB socket that says who subscribed, so that nothing is published before.
        self._socket = _socket(self._context, zmq.XPUB if self._is_broadcast else zmq.PUSH)
        self._socket.bind(self._address)
        if self._is_broadcast:
            self._socket.recv()

    def run(self, load: Load) -> int | None:
        """Send everything; there are no receipts."""
        send = self._socket.send
        if load.scenario.is_paced:
            for body in load.paced():
                send(body)
        else:
            for chunk in load.chunks(4096):
                for body in chunk:
                    send(body)
        return None

    def close(self) -> None:
        """Send what is queued, and close."""
        self._socket.close()
        self._context.term()


class ZmqSubscriber:
    """Receives every body with one blocking call."""

    def __init__(self, address: str, is_broadcast: bool) -> None:
        """Subscribe at `address`."""
        self._address = address
        self._is_broadcast = is_broadcast

    def open(self) -> None:
        """Connect and subscribe to everything."""
        import zmq

        self._context = zmq.Context()
        self._socket = _socket(self._context, zmq.SUB if self._is_broadcast else zmq.PULL)
        self._socket.setsockopt(zmq.RCVTIMEO, IDLE_LIMIT_S * 1000)
        if self._is_broadcast:
            self._socket.setsockopt(zmq.SUBSCRIBE, b"")
        self._socket.connect(self._address)

    def run(self, witness: Witness) -> None:
        """Receive until all came, or nothing more does."""
        import zmq

        recv = self._socket.recv
        while not witness.is_complete:
            bodies: list[bytes] = []
            append = bodies.append
            try:
                for _ in range(witness.chunk_count):
                    append(recv())
            except zmq.Again:
                witness.take(bodies)
                return
            witness.take(bodies)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()
        self._context.term()


def _socket(context: zmq.Context[zmq.Socket[bytes]], kind: int) -> zmq.Socket[bytes]:
    import zmq

    socket = context.socket(kind)
    # Without a bound nothing is dropped for a slow subscriber; with one, PUB loses and PUSH waits on every few frames.
    socket.setsockopt(zmq.SNDHWM, 0)
    socket.setsockopt(zmq.RCVHWM, 0)
    return socket


def pub_sub() -> ZmqSockets:
    """PUB/SUB: every subscriber gets everything."""
    return ZmqSockets(
        "pyzmq-pubsub",
        "brokerless PUB/SUB over TCP, in memory, unbounded queues, one `send` and one `recv` a publication "
        "(libzmq batches below), no receipts",
        is_broadcast=True,
    )


def push_pull() -> ZmqSockets:
    """PUSH/PULL: one of the pullers gets it."""
    return ZmqSockets(
        "pyzmq-pushpull",
        "brokerless PUSH/PULL over TCP, in memory, unbounded queues, one `send` and one `recv` a publication "
        "(libzmq batches below), no receipts",
        is_broadcast=False,
    )
