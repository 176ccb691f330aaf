"""Ten thousand streams, each published to once a second."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from benchmarks.contender import Effort
from benchmarks.contenders import serving

if TYPE_CHECKING:
    import veredus

STREAMS_COUNT: Final = 10_000
_CONNECTIONS_COUNT: Final = 10
_TICK_S: Final = 0.005
_BODY: Final = bytes(100)


@dataclass(frozen=True, slots=True)
class ManyStreams:
    """One process with a source on each stream; a receipt is waited for behind every publication."""

    name: str = "veredus-many-streams"
    mode: str = (
        f"{STREAMS_COUNT:,} streams, one source on each, {_CONNECTIONS_COUNT} connections of one asyncio process; one "
        "100-byte publication a stream and second, evenly spread; `sync group`, every receipt waited for; that "
        "process's garbage collector is frozen once all sources are attached"
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
        """Receipts a second, and how long a publication waited for its own."""
        import uvloop

        node = serving.start_node(workdir, workdir / "journal", {})
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                return runner.run(_measure(node.address, max(2, round(effort.seconds))))
        finally:
            node.stop()


async def _measure(address: str, rounds_count: int) -> Mapping[str, float]:
    import veredus

    nodes = [await veredus.connect_async(serving.url(address), timeout_s=60) for _ in range(_CONNECTIONS_COUNT)]
    publishers: list[veredus.AsyncPublisher] = []
    for start in range(0, STREAMS_COUNT, _CONNECTIONS_COUNT * 20):
        indices = range(start, start + _CONNECTIONS_COUNT * 20)
        publishers += await asyncio.gather(*[_attached(nodes[i % _CONNECTIONS_COUNT], i) for i in indices])
    # As the node does: the collector does not go through ten thousand publishers again and again.
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 50, 100)
    loop = asyncio.get_running_loop()
    latencies_s: list[float] = []
    count = STREAMS_COUNT * rounds_count
    start_s, published_count = loop.time(), 0
    async with asyncio.TaskGroup() as waiting:
        while published_count < count:
            due_count = min(count, int((loop.time() - start_s) * STREAMS_COUNT))
            for index in range(published_count, due_count):
                due_s = start_s + index / STREAMS_COUNT
                waiting.create_task(_published(publishers[index % STREAMS_COUNT], due_s, latencies_s))
            published_count = due_count
            await asyncio.sleep(_TICK_S)
    seconds = loop.time() - start_s
    for node in nodes:
        await node.close()
    # The tick in which the last ones left, and their way to the disk, come on top of the seconds that were planned.
    allowed_s = rounds_count + 0.1
    p50, p99 = np.percentile(latencies_s, (50, 99))
    rate_hz = count / (rounds_count if seconds <= allowed_s else seconds)
    return {"rate_hz": rate_hz, "receipt_p50_s": float(p50), "receipt_p99_s": float(p99), "seconds": seconds}


async def _attached(node: veredus.AsyncNode, index: int) -> veredus.AsyncPublisher:
    return await node.publisher(f"stream-{index:05}", source="bench")


async def _published(publisher: veredus.AsyncPublisher, due_s: float, latencies_s: list[float]) -> None:
    await publisher.wait(publisher.publish_nowait(b"key", _BODY))
    latencies_s.append(asyncio.get_running_loop().time() - due_s)
