"""Veredus: one node, one publisher and one durable subscription, through the blocking client library.

A journal's segments are *recycled* where they are written over instead of made anew. A node in service comes to that by
retention; here the journal is handed from run to run: the earlier run's stream is deleted, and the node started again,
before the next one is measured. The first run writes and deletes a stream of its own to have something to recycle.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from benchmarks.broker import Broker
from benchmarks.contender import IDLE_LIMIT_S
from benchmarks.contenders import serving
from benchmarks.load import Load
from benchmarks.scenarios import Scenario
from benchmarks.witness import Witness

if TYPE_CHECKING:
    import veredus

KEY: Final = b"bench.key"
SETTLE_COUNT: Final = 4_096
TABLE_COUNT: Final = 8_192
AGED_SIZE: Final = 4 << 30
_SEGMENT_SIZE: Final = 128 << 20
_AGED_NAME: Final = "aged-journal"
_STREAM: Final = "bench"


@dataclass(frozen=True, slots=True)
class Veredus:
    """One node in one mode of durability, and one of two ways to publish and to subscribe."""

    name: str
    mode: str
    scenarios: tuple[str, ...]
    sync: str = "group"
    is_recycled: bool = True
    is_arrow: bool = False

    def missing(self) -> str | None:
        """Nothing: it is what is measured."""
        return None

    def versions(self) -> Mapping[str, str]:
        """The version of the node and its client, which are one package."""
        return serving.versions()

    def start(self, workdir: Path, scenario: Scenario) -> Broker:
        """Start a node whose journal holds nothing, in new files or in ones that can be written over."""
        settings = {
            "journal.sync": self.sync,
            "journal.segment_size": str(_SEGMENT_SIZE),
            "journal.free_segments_max": str(AGED_SIZE // _SEGMENT_SIZE),
        }
        if not self.is_recycled:
            return serving.start_node(workdir, workdir / "journal", settings)
        directory = workdir.parent / _AGED_NAME
        _age(workdir, directory, settings)
        return serving.start_node(workdir, directory, settings)

    def publisher(self, address: str, scenario: Scenario) -> PacedPublisher | RowPublisher | TablePublisher:
        """The publishing end."""
        if scenario.is_paced:
            return PacedPublisher(address)
        return TablePublisher(address) if self.is_arrow else RowPublisher(address, scenario.attributes_count)

    def subscriber(self, address: str, scenario: Scenario) -> PacedSubscriber | RowSubscriber | BatchSubscriber:
        """The subscribing end."""
        if scenario.is_paced:
            return PacedSubscriber(address)
        return BatchSubscriber(address) if self.is_arrow else RowSubscriber(address, scenario.attributes_count)


def _age(workdir: Path, directory: Path, settings: Mapping[str, str]) -> None:
    """Leave a journal in `directory` that holds nothing, and the segments of what it held."""
    import veredus

    is_new = not directory.exists()
    node = serving.start_node(workdir, directory, settings)
    try:
        with veredus.connect(serving.url(node.address)) as connection:
            if is_new:
                body = np.random.default_rng(0).bytes(512 << 10)
                with connection.publisher(_STREAM) as publisher:
                    for _ in range(AGED_SIZE // len(body)):
                        publisher.publish(KEY, body)
            if any(stream["name"] == _STREAM for stream in connection.streams.list()):
                connection.streams.delete(_STREAM)
    finally:
        node.stop()
    _warm(directory)


def _warm(directory: Path) -> None:
    """Have the segments' pages in memory, as the name says of those that are written over.

    A virtual machine may give pages back to its host that nobody has looked at for a minute; to be given new ones then
    costs more than all that is copied.
    """
    memory = bytearray(1 << 20)
    for file in sorted(directory.iterdir()):
        with file.open("rb", buffering=0) as pages:
            while pages.readinto(memory):
                pass


class _End:
    """A connection to the node, opened and closed."""

    def __init__(self, address: str) -> None:
        """Connect to the node at `address`, once asked to."""
        self._address = address

    def _connect(self) -> veredus.Node:
        import veredus

        self._node = veredus.connect(serving.url(self._address), timeout_s=serving.TIMEOUT_S)
        return self._node


class RowPublisher(_End):
    """Publishes with one call a publication; waits for all receipts at the end."""

    def __init__(self, address: str, attributes_count: int) -> None:
        """Publish with none or with three attributes."""
        super().__init__(address)
        if attributes_count not in (0, 3):
            raise ValueError(f"three attributes are published, or none, not {attributes_count}")
        self._has_attributes = attributes_count > 0

    def open(self) -> None:
        """Connect, and attach the source."""
        self._publisher = self._connect().publisher(_STREAM, source="bench")

    def run(self, load: Load) -> int | None:
        """Publish everything; what the stream has taken when all was waited for are the receipts."""
        publisher = self._publisher
        publish = publisher.publish
        before = publisher.taken_number
        if self._has_attributes:
            for chunk in load.chunks(4096):
                for body in chunk:
                    publish(KEY, body, {"symbol": "SUN", "price": 31.25, "size": len(body)})
        else:
            for chunk in load.chunks(4096):
                for body in chunk:
                    publish(KEY, body)
        publisher.flush()
        return publisher.taken_number - before

    def close(self) -> None:
        """Detach, and leave the node."""
        self._publisher.close()
        self._node.close()


class RowSubscriber(_End):
    """Iterates over publications, and settles up to the one it has seen last."""

    def __init__(self, address: str, attributes_count: int) -> None:
        """Look at every publication's body, and at its attributes where it has some."""
        super().__init__(address)
        self._has_attributes = attributes_count > 0

    def open(self) -> None:
        """Connect and subscribe durably."""
        self._subscription = self._connect().subscribe(_STREAM, subscriber="bench")

    def run(self, witness: Witness) -> None:
        """Iterate until all came."""
        publications = iter(self._subscription)
        settled_at_count = SETTLE_COUNT
        while not witness.is_complete:
            bodies: list[bytes] = []
            for publication in islice(publications, witness.chunk_count):
                bodies.append(publication.body)
                if self._has_attributes and publication.attributes["size"] != len(publication.body):
                    raise ValueError(f"these are not the attributes that were published: {publication.attributes}")
            witness.take(bodies)
            if witness.received_count >= settled_at_count or witness.is_complete:
                settled_at_count += SETTLE_COUNT
                self._subscription.settle(publication)

    def close(self) -> None:
        """Wait for the settlements, and leave the node."""
        self._subscription.close()
        self._node.close()


class TablePublisher(_End):
    """Publishes Arrow tables, which exist before they are published."""

    def open(self) -> None:
        """Connect, and attach the source."""
        self._publisher = self._connect().publisher(_STREAM, source="bench")

    def run(self, load: Load) -> int | None:
        """Publish everything; what the stream has taken when all was waited for are the receipts."""
        publisher = self._publisher
        before = publisher.taken_number
        for table in _tables(load):
            publisher.publish_table(table, key="key", body="body")
        publisher.flush()
        return publisher.taken_number - before

    def close(self) -> None:
        """Detach, and leave the node."""
        self._publisher.close()
        self._node.close()


def _tables(load: Load) -> Iterator[object]:
    """The load as tables; one is made the first time that the pool comes by it."""
    import pyarrow as pa

    made: dict[tuple[int, int], pa.RecordBatch] = {}
    for place in load.places(TABLE_COUNT):
        if place not in made:
            bodies = load.chunk(*place)
            keys = pa.array([KEY] * len(bodies), pa.binary())
            made[place] = pa.RecordBatch.from_arrays([keys, pa.array(bodies, pa.binary())], names=["key", "body"])
        yield made[place]


class BatchSubscriber(_End):
    """Iterates over batches as Arrow columns, and settles each."""

    def open(self) -> None:
        """Connect and subscribe durably."""
        self._subscription = self._connect().subscribe(_STREAM, subscriber="bench")

    def run(self, witness: Witness) -> None:
        """Take batches until all came, or nothing more does."""
        while not witness.is_complete:
            batch = self._subscription.next_batch(IDLE_LIMIT_S)
            if batch is None:
                return
            bodies = batch.to_arrow()["body"]
            _, offsets, octets = bodies.buffers()
            first, last = np.frombuffer(offsets, np.int32)[[bodies.offset, bodies.offset + len(bodies)]]
            witness.take_block(memoryview(octets)[first:last], len(bodies))
            batch.settle()

    def close(self) -> None:
        """Wait for the settlements, and leave the node."""
        self._subscription.close()
        self._node.close()


class _PacedEnd:
    """A connection to the node in an event loop of asyncio, as uvloop has it."""

    def __init__(self, address: str) -> None:
        """Connect to the node at `address`, once asked to."""
        import uvloop

        self._address = address
        self._runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)

    async def _connect(self) -> veredus.AsyncNode:
        import veredus

        self._node = await veredus.connect_async(serving.url(self._address), timeout_s=serving.TIMEOUT_S)
        return self._node


class PacedPublisher(_PacedEnd):
    """Publishes one at a time, and waits for its receipt."""

    def open(self) -> None:
        """Connect, and attach the source."""
        self._runner.run(self._open())

    async def _open(self) -> None:
        self._publisher = await (await self._connect()).publisher(_STREAM, source="bench")

    def run(self, load: Load) -> int | None:
        """Publish everything; every receipt was waited for."""
        return self._runner.run(self._run(load))

    async def _run(self, load: Load) -> int:
        receipts_count = 0
        async for body in load.paced_async():
            receipt = await self._publisher.wait(await self._publisher.publish(KEY, body))
            receipts_count += receipt.sequence is not None
        return receipts_count

    def close(self) -> None:
        """Detach, and leave the node."""
        self._runner.run(self._close())
        self._runner.close()

    async def _close(self) -> None:
        await self._publisher.close()
        await self._node.close()


class PacedSubscriber(_PacedEnd):
    """Iterates over publications as they come, and settles now and then."""

    def open(self) -> None:
        """Connect and subscribe durably."""
        self._runner.run(self._open())

    async def _open(self) -> None:
        self._subscription = await (await self._connect()).subscribe(_STREAM, subscriber="bench")

    def run(self, witness: Witness) -> None:
        """Iterate until all came."""
        self._runner.run(self._run(witness))

    async def _run(self, witness: Witness) -> None:
        async for publication in self._subscription:
            witness.take([publication.body])
            if witness.received_count % SETTLE_COUNT == 0 or witness.is_complete:
                self._subscription.settle(publication)
            if witness.is_complete:
                return

    def close(self) -> None:
        """Wait for the settlements, and leave the node."""
        self._runner.run(self._close())
        self._runner.close()

    async def _close(self) -> None:
        await self._subscription.close()
        await self._node.close()


_ROWS: Final = (
    "one key for all (written once a batch), `publish` of one publication at a time, batches of up to 512 KiB, "
    "all receipts waited for (paced: by asyncio, "
    f"each receipt before the next); a durable subscription, iterated one by one, settled every {SETTLE_COUNT:,}"
)
_RECYCLED: Final = "recycled segments (those of an earlier, deleted stream are written over)"


def group() -> Veredus:
    """Group fdatasync on recycled segments."""
    return Veredus(
        "veredus",
        f"`sync group`, {_RECYCLED}; {_ROWS}",
        ("throughput-100", "throughput-100-attributes", "throughput-1k", "latency-100"),
    )


def arrow() -> Veredus:
    """The same by Arrow tables and batches."""
    return Veredus(
        "veredus-arrow",
        f"`sync group`, {_RECYCLED}; `publish_table` of {TABLE_COUNT:,} rows at a time, all receipts waited for; a "
        "durable subscription, taken as Arrow batches, each settled",
        ("throughput-100",),
        is_arrow=True,
    )


def fresh() -> Veredus:
    """Group fdatasync on a new journal."""
    return Veredus(
        "veredus-fresh",
        f"`sync group`, a new journal: every segment is a new file; {_ROWS}",
        ("throughput-100", "throughput-1k"),
        is_recycled=False,
    )


def none() -> Veredus:
    """Written, and left to the operating system to sync."""
    return Veredus(
        "veredus-none",
        f"`sync none`: written and not synced, as JetStream does; {_RECYCLED}; {_ROWS}",
        ("throughput-100", "latency-100"),
        sync="none",
    )
