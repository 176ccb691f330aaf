"""RabbitMQ with durable queues, persistent messages and publisher confirms, beside the topic service."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.broker import LOOPBACK, Broker, free_port, serve
from benchmarks.contender import Effort
from benchmarks.contenders import topics_many
from benchmarks.contenders.topics_one import Trips, trips_count_of

PERSISTENT: Final = 2
_PROGRAM: Final = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
"""The program itself: what is on PATH asks for a user of its own."""
_QUEUE: Final = "bench"
_READY_TIMEOUT_S: Final = 60.0
_DURABLE: Final = (
    "durable classic queues, persistent messages, publisher confirms (a confirm comes behind an fsync); basic.get and "
    "basic.ack, which is neither answered nor synced"
)


def start(workdir: Path) -> Broker:
    """Start a server with nothing in it, with a port mapper and a cookie of its own, and wait until it takes logins."""
    port, mapper_port = free_port(), free_port()
    environment = {
        "HOME": str(workdir),
        "ERL_EPMD_PORT": str(mapper_port),
        "ERL_EPMD_ADDRESS": LOOPBACK,
        "RABBITMQ_NODENAME": "bench@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": LOOPBACK,
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_MNESIA_BASE": str(workdir / "mnesia"),
        "RABBITMQ_LOG_BASE": str(workdir / "log"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(workdir / "plugins"),
        "RABBITMQ_CONF_ENV_FILE": os.devnull,
        "RABBITMQ_CONFIG_FILE": str(workdir / "none"),
        # The shell script becomes the server, which ends by SIGTERM and whose CPU time is counted.
        "RUNNING_UNDER_SYSTEMD": "1",
    }
    # It would start one of its own that stays when it goes.
    mapper = serve(["epmd", "-port", str(mapper_port), "-address", LOOPBACK], mapper_port, workdir)
    try:
        argv = ["env", *(f"{name}={value}" for name, value in environment.items()), str(_PROGRAM)]
        server = serve(argv, port, workdir, _READY_TIMEOUT_S)
    except BaseException:
        mapper.stop()
        raise
    broker = Broker(server.address, (*server.processes, *mapper.processes))
    try:
        _wait_for_login(broker.address)
    except BaseException:
        broker.stop()
        raise
    return broker


def missing() -> str | None:
    """What is not installed, with what to do about it, or None."""
    if not _PROGRAM.exists():
        return f"the program {_PROGRAM} (make bench-peers)"
    for package in ("pika", "aio_pika"):
        if not importlib.util.find_spec(package):
            return f"the Python package {package.replace('_', '-')} (pip install pika aio-pika)"
    return None


def versions() -> Mapping[str, str]:
    """The versions of the server and of the clients."""
    reply = subprocess.run(["dpkg-query", "-W", "-f=${Version}", "rabbitmq-server"], capture_output=True, text=True)
    found = {"rabbitmq-server": reply.stdout or "unknown"}
    return found | {name: importlib.metadata.version(name) for name in ("pika", "aio-pika")}


@dataclass(frozen=True, slots=True)
class OneClient:
    """A blocking client: what it puts it gets, one after the other."""

    name: str = "rabbitmq-one-client"
    mode: str = f"pika, blocking: basic.publish of 100 bytes, confirmed, and then basic.get and basic.ack; {_DURABLE}"
    rounds_max: int = 3
    timeout_s: float = 120.0

    def missing(self) -> str | None:
        """What is not installed, with what to do about it, or None."""
        return missing()

    def versions(self) -> Mapping[str, str]:
        """The versions of the server and of the clients."""
        return versions()

    def measure(self, workdir: Path, effort: Effort) -> Mapping[str, float]:
        """Nanoseconds of a put and a get, and of each."""
        import pika

        broker = start(workdir)
        try:
            connection = pika.BlockingConnection(_parameters(broker.address))
            channel = connection.channel()
            channel.queue_declare(_QUEUE, durable=True)
            channel.confirm_delivery()
            kept = pika.BasicProperties(delivery_mode=PERSISTENT)

            def get() -> bytes | None:
                found, _, body = channel.basic_get(_QUEUE)
                if found is not None:
                    channel.basic_ack(found.delivery_tag)
                return body

            trips = Trips()
            # It raises where it is not confirmed.
            trips.time(lambda body: channel.basic_publish("", _QUEUE, body, kept), get, trips_count_of(effort))
            connection.close()
        finally:
            broker.stop()
        return trips.metrics()


class Member:
    """One of many clients, with a connection and a channel of its own."""

    def __init__(self, address: str, place: topics_many.Place) -> None:
        """Connect later to the server at `address`."""
        self._address = address
        self._place = place
        self.refused_count = 0

    async def open(self) -> None:
        """Connect, and make the queue that stands for a subscription."""
        import aio_pika

        self._connection = await aio_pika.connect(f"amqp://{self._address}/")
        self._channel = await self._connection.channel(publisher_confirms=True)
        self._queue = await self._channel.declare_queue(self._place.own, durable=True)
        self._exchange = self._channel.default_exchange

    async def put(self, body: bytes) -> None:
        """Publish, and wait for the confirm; it raises where there is none."""
        import aio_pika

        message = aio_pika.Message(body, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
        await self._exchange.publish(message, self._place.other)

    async def get(self) -> bytes | None:
        """Take a message, if there is one, and acknowledge it."""
        message: Any = await self._queue.get(fail=False)
        if message is None:
            return None
        await message.ack()
        body: bytes = message.body
        return body

    async def close(self) -> None:
        """Disconnect."""
        await self._connection.close()


@dataclass(frozen=True, slots=True)
class ManyClients:
    """The load of `topics-many-clients`, on queues."""

    name: str = "rabbitmq-many-clients"
    mode: str = f"{topics_many.LOAD}, each by aio-pika with a connection and a channel of its own; {_DURABLE}"
    rounds_max: int = 3
    timeout_s: float = 120.0

    def missing(self) -> str | None:
        """What is not installed, with what to do about it, or None."""
        return missing()

    def versions(self) -> Mapping[str, str]:
        """The versions of the server and of the clients."""
        return versions()

    def measure(self, workdir: Path, effort: Effort) -> Mapping[str, float]:
        """Operations a second, and how long one took."""
        broker = start(workdir)
        try:
            cpu_s = broker.cpu_s()
            metrics = topics_many.run("benchmarks.peers.rabbitmq:Member", broker.address, effort.seconds)
            return metrics | {"broker_cpu_us_per_operation": (broker.cpu_s() - cpu_s) * 1e6 / metrics["count"]}
        finally:
            broker.stop()


def _wait_for_login(address: str) -> None:
    import pika
    import pika.exceptions

    deadline_s = time.monotonic() + _READY_TIMEOUT_S
    while time.monotonic() < deadline_s:
        with suppress(pika.exceptions.AMQPError, OSError):
            pika.BlockingConnection(_parameters(address)).close()
            return
        time.sleep(0.1)
    raise RuntimeError(f"RabbitMQ at {address} takes no login")


def _parameters(address: str) -> Any:
    import pika

    host, _, port = address.partition(":")
    return pika.ConnectionParameters(host, int(port))
