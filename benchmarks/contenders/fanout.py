"""Fan-out: one stream to a hundred subscribers in two processes."""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

from benchmarks.contender import IDLE_LIMIT_S, Effort
from benchmarks.contenders import serving

PROCESSES_COUNT: Final = 2
SUBSCRIBERS_COUNT: Final = 50
"""In each process."""
BATCH_COUNT: Final = 500
_COUNT_PER_SECOND: Final = 50_000
_PROCESSES: Final = multiprocessing.get_context("spawn")


@dataclass(frozen=True, slots=True)
class Fanout:
    """One publisher, a hundred ephemeral subscribers, batches of 500 taken whole."""

    name: str = "veredus-fanout"
    mode: str = (
        f"one publisher of batches of {BATCH_COUNT} (100-byte bodies), {PROCESSES_COUNT} × {SUBSCRIBERS_COUNT} "
        "subscribers in two processes, one connection each process, batches verified and not decoded"
    )
    rounds_max: int = 3
    timeout_s: float = 120.0

    def missing(self) -> str | None:
        """Nothing: it is what is measured."""
        return None

    def versions(self) -> Mapping[str, str]:
        """The version of the node and its client, which are one package."""
        return serving.versions()

    def measure(self, workdir: Path, effort: Effort) -> Mapping[str, float]:
        """Deliveries, one publication to one subscriber each, a second."""
        import veredus

        count = round(_COUNT_PER_SECOND * effort.seconds) // BATCH_COUNT * BATCH_COUNT
        node = serving.start_node(workdir, workdir / "journal", {})
        processes = []
        try:
            with veredus.connect(serving.url(node.address)) as connection:
                connection.streams.create("bench")
                channels = []
                for _ in range(PROCESSES_COUNT):
                    ours, theirs = _PROCESSES.Pipe()
                    process = _PROCESSES.Process(target=_subscribe, args=(theirs, node.address, count))
                    process.start()
                    processes.append(process)
                    channels.append(ours)
                for channel in channels:
                    channel.recv()
                batch = serving.table(BATCH_COUNT, [b"bench.key"])
                start_s = time.perf_counter()
                with connection.publisher("bench") as publisher:
                    for _ in range(count // BATCH_COUNT):
                        publisher.publish_table(batch, key="key", body="body")
                received_count = sum(channel.recv() for channel in channels)
                seconds = time.perf_counter() - start_s
        finally:
            for process in processes:
                process.kill()
            node.stop()
        wanted_count = count * PROCESSES_COUNT * SUBSCRIBERS_COUNT
        if received_count != wanted_count:
            raise RuntimeError(f"{received_count} deliveries, {wanted_count} expected")
        return {"deliveries_hz": received_count / seconds}


def _subscribe(channel: Connection, address: str, count: int) -> None:
    import veredus

    async def take(subscription: veredus.AsyncSubscription) -> int:
        received_count = 0
        while received_count < count and (batch := await subscription.next_batch(IDLE_LIMIT_S)) is not None:
            received_count += len(batch)
        return received_count

    async def run() -> None:
        async with veredus.connect_async(serving.url(address)) as node:
            subscriptions = [await node.subscribe("bench") for _ in range(SUBSCRIBERS_COUNT)]
            channel.send("ready")
            channel.send(sum(await asyncio.gather(*map(take, subscriptions))))

    asyncio.run(run())
