"""NATS JetStream with a file store, which answers before it syncs."""

from __future__ import annotations

import asyncio
import importlib.metadata
import importlib.util
import shutil
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.broker import Broker, free_port, serve
from benchmarks.contender import IDLE_LIMIT_S
from benchmarks.load import Load
from benchmarks.scenarios import Scenario
from benchmarks.witness import Witness

PENDING_MAX: Final = 4_000
ACK_COUNT: Final = 500
FETCH_COUNT: Final = 500
_UNSETTLED_MAX: Final = 20_000
_STREAM: Final = "BENCH"
_SUBJECT: Final = "bench.all"
_CONSUMER: Final = "bench"


@dataclass(frozen=True, slots=True)
class JetStream:
    """One `nats-server`, asynchronous publishing, and a durable consumer of one of two kinds."""

    name: str
    mode: str
    is_pushed: bool
    scenarios: tuple[str, ...] = ("throughput-100", "throughput-1k", "latency-100")

    def missing(self) -> str | None:
        """What is not installed, with what to do about it, or None."""
        if shutil.which("nats-server") is None:
            return "the program nats-server (make bench-peers)"
        return None if importlib.util.find_spec("nats") else "the Python package nats-py (pip install nats-py)"

    def versions(self) -> Mapping[str, str]:
        """The versions of the server and of the client."""
        reply = subprocess.run(["nats-server", "--version"], capture_output=True, text=True, check=True)
        words = (reply.stdout or reply.stderr).split()
        return {"nats-server": words[-1].lstrip("v"), "nats-py": importlib.metadata.version("nats-py")}

    def start(self, workdir: Path, scenario: Scenario) -> Broker:
        """Start a server and make the stream and its durable consumer."""
        port = free_port()
        store = workdir / "jetstream"
        broker = serve(
            ["nats-server", "--addr", "127.0.0.1", "--port", str(port), "--jetstream", "--store_dir", str(store)],
            port,
            workdir,
        )
        try:
            _run(self._prepare(broker.address))
        except BaseException:
            broker.stop()
            raise
        return broker

    async def _prepare(self, address: str) -> None:
        from nats.js.api import StorageType, StreamConfig

        connection = await _connect(address)
        config = StreamConfig(name=_STREAM, subjects=["bench.>"], storage=StorageType.FILE)
        await connection.jetstream().add_stream(config)
        await connection.close()

    def publisher(self, address: str, scenario: Scenario) -> JetStreamPublisher:
        """The end that publishes."""
        return JetStreamPublisher(address)

    def subscriber(self, address: str, scenario: Scenario) -> PushSubscriber | PullSubscriber:
        """The end that consumes."""
        return PushSubscriber(address) if self.is_pushed else PullSubscriber(address)


class _End:
    """Owns an event loop and a connection that lives on it."""

    def __init__(self, address: str) -> None:
        """Connect later to the server at `address`."""
        self._address = address
        self._runner = _runner()

    def open(self) -> None:
        """Connect."""
        self._runner.run(self._open())

    async def _open(self) -> None:
        self._connection = await _connect(self._address)
        self._jetstream = self._connection.jetstream(publish_async_max_pending=PENDING_MAX)

    def close(self) -> None:
        """Disconnect."""
        self._runner.run(self._connection.close())
        self._runner.close()


class JetStreamPublisher(_End):
    """Publishes with up to `PENDING_MAX` receipts outstanding."""

    def run(self, load: Load) -> int | None:
        """Publish everything and wait for every receipt."""
        return self._runner.run(self._publish(load))

    async def _publish(self, load: Load) -> int:
        publish = self._jetstream.publish_async
        receipts: list[asyncio.Future[Any]] = []
        if load.scenario.is_paced:
            async for body in load.paced_async():
                receipts.append(await publish(_SUBJECT, body))
        else:
            for chunk in load.chunks(4096):
                for body in chunk:
                    receipts.append(await publish(_SUBJECT, body))
        await self._jetstream.publish_async_completed()
        for receipt in receipts:
            receipt.result()
        return len(receipts)


class PushSubscriber(_End):
    """A durable push consumer: the server sends, one acknowledgement settles all up to it."""

    async def _open(self) -> None:
        from nats.js.api import AckPolicy, ConsumerConfig

        await super()._open()
        self._bodies: list[bytes] = []
        self._unsettled_count = 0
        self._done = asyncio.Event()
        config = ConsumerConfig(ack_policy=AckPolicy.ALL, max_ack_pending=_UNSETTLED_MAX, ack_wait=60)
        # A callback is the client's fastest way to receive: a quarter more than `next_msg`.
        await self._jetstream.subscribe(
            _SUBJECT, durable=_CONSUMER, stream=_STREAM, config=config, manual_ack=True, cb=self._receive
        )

    def run(self, witness: Witness) -> None:
        """Receive until all came, or nothing more does."""
        self._witness = witness
        self._chunk_count = witness.chunk_count
        self._runner.run(self._wait())

    async def _receive(self, message: Any) -> None:
        self._bodies.append(message.data)
        self._unsettled_count += 1
        if len(self._bodies) >= self._chunk_count:
            self._show()
        if self._unsettled_count >= ACK_COUNT or self._witness.is_complete:
            await message.ack()
            self._unsettled_count = 0
        if self._witness.is_complete:
            self._done.set()

    def _show(self) -> None:
        self._witness.take(self._bodies)
        self._bodies = []
        self._chunk_count = self._witness.chunk_count

    async def _wait(self) -> None:
        seen_count = -1
        while not self._done.is_set() and seen_count != (seen_now_count := self._witness.received_count):
            seen_count = seen_now_count
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._done.wait(), IDLE_LIMIT_S)
        if self._bodies:
            self._show()
        await self._connection.flush()


class PullSubscriber(_End):
    """A durable pull consumer: the client fetches, and acknowledges each."""

    async def _open(self) -> None:
        from nats.js.api import ConsumerConfig

        await super()._open()
        config = ConsumerConfig(max_ack_pending=_UNSETTLED_MAX, ack_wait=60)
        self._subscription = await self._jetstream.pull_subscribe(
            _SUBJECT, durable=_CONSUMER, stream=_STREAM, config=config
        )

    def run(self, witness: Witness) -> None:
        """Fetch until all came, or nothing more does."""
        self._runner.run(self._receive(witness))

    async def _receive(self, witness: Witness) -> None:
        import nats.errors

        while not witness.is_complete:
            try:
                messages = await self._subscription.fetch(min(FETCH_COUNT, witness.missing_count), timeout=IDLE_LIMIT_S)
            except nats.errors.TimeoutError:
                return
            witness.take([message.data for message in messages])
            for message in messages:
                await message.ack()
        await self._connection.flush()


async def _connect(address: str) -> Any:
    import nats

    return await nats.connect(f"nats://{address}")


def _runner() -> asyncio.Runner:
    if importlib.util.find_spec("uvloop"):
        import uvloop

        return asyncio.Runner(loop_factory=uvloop.new_event_loop)
    return asyncio.Runner()


def _run(work: Any) -> None:
    with _runner() as runner:
        runner.run(work)


def push_consumer() -> JetStream:
    """The server pushes."""
    return JetStream(
        "nats-jetstream",
        f"file store, not synced before the receipt; `publish_async` with up to {PENDING_MAX} receipts outstanding; "
        f"durable push consumer, acknowledging every {ACK_COUNT} at once",
        is_pushed=True,
    )


def pull_consumer() -> JetStream:
    """The client fetches."""
    return JetStream(
        "nats-jetstream-pull",
        f"file store, not synced before the receipt; `publish_async` with up to {PENDING_MAX} receipts outstanding; "
        f"durable pull consumer, fetching up to {FETCH_COUNT} and acknowledging each",
        is_pushed=False,
    )
