"""Content-based routing: a stream with thousands of subscriptions, each of which filters by a predicate of its own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from benchmarks.broker import Broker
from benchmarks.contender import Effort
from benchmarks.contenders import serving

if TYPE_CHECKING:
    import pyarrow as pa

    import veredus

PREDICATES: Final = (0, 1_000, 10_000)
BATCH_COUNT: Final = 1_000
_QUOTE_MAX: Final = 1_000
_COUNT_PER_SECOND: Final = 100_000
_LONE_COUNT: Final = 500
_AT_ONCE: Final = 100
_SETTINGS: Final = {
    "limits.channels_max": "20000",
    "limits.ephemeral_subscriptions_per_principal_max": "20000",
    "limits.filter_terms_per_principal_max": "1000000",
}


@dataclass(frozen=True, slots=True)
class Predicates:
    """One publisher; subscriptions that want none of it, each by another predicate, and one that wants all."""

    name: str = "veredus-predicates"
    mode: str = (
        f"0, 1,000 and 10,000 ephemeral subscriptions `quote > N`, each with another N that no publication exceeds, on"
        f" one connection, and one subscription without a filter; batches of {BATCH_COUNT} (100-byte bodies, one"
        " attribute), then lone publications, one at a time; processor time of the node"
    )
    rounds_max: int = 3
    timeout_s: float = 300.0

    def missing(self) -> str | None:
        """Nothing: it is what is measured."""
        return None

    def versions(self) -> Mapping[str, str]:
        """The version of the node and its client, which are one package."""
        return serving.versions()

    def measure(self, workdir: Path, effort: Effort) -> Mapping[str, float]:
        """By the number of predicates: what a publication of a batch costs the node, and how long a lone one takes."""
        figures: dict[str, float] = {}
        for count in PREDICATES:
            node = serving.start_node(workdir, workdir / f"journal-{count}", _SETTINGS)
            try:
                found = asyncio.run(_measure(node, count, effort.seconds))
            finally:
                node.stop()
            figures |= {f"{name}_{count}": value for name, value in found.items()}
        most = figures["batch_cpu_s_0"]
        figures["added_1000_s"] = figures["batch_cpu_s_1000"] - most
        figures["added_10000_s"] = figures["batch_cpu_s_10000"] - most
        figures["lone_ratio_1000"] = figures["lone_p50_s_1000"] / figures["lone_p50_s_0"]
        figures["lone_ratio_10000"] = figures["lone_p50_s_10000"] / figures["lone_p50_s_0"]
        return figures


async def _measure(broker: Broker, predicate_count: int, seconds: float) -> Mapping[str, float]:
    import veredus

    async with veredus.connect_async(serving.url(broker.address), timeout_s=60) as node:
        await node.streams.create("bench")
        filtering: list[veredus.AsyncSubscription] = []
        for first in range(0, predicate_count, _AT_ONCE):
            wheres = [f"quote > {_QUOTE_MAX + place}" for place in range(first, first + _AT_ONCE)]
            filtering += await asyncio.gather(*(node.subscribe("bench", where=where) for where in wheres))
        probe = await node.subscribe("bench")
        async with await node.publisher("bench", source="bench") as publisher:
            batch = _batch()
            rounds = max(2, round(_COUNT_PER_SECOND * seconds / BATCH_COUNT))
            await publisher.publish_table(batch, key="key", body="body")
            await publisher.flush()
            before_s = broker.cpu_s()
            for _ in range(rounds):
                await publisher.publish_table(batch, key="key", body="body")
            await publisher.flush()
            got = 0
            while got < (rounds + 1) * BATCH_COUNT:
                taken = await probe.next_batch(timeout_s=60)
                got += 0 if taken is None else len(taken)
            cpu_s = broker.cpu_s() - before_s
            taken_s: list[float] = []
            for _ in range(_LONE_COUNT):
                began_s = time.perf_counter()
                publisher.publish_nowait(b"key", bytes(100), {"quote": 1})
                await probe.next_batch(timeout_s=60)
                taken_s.append(time.perf_counter() - began_s)
    return {"batch_cpu_s": cpu_s / (rounds * BATCH_COUNT), "lone_p50_s": float(np.median(taken_s))}


def _batch() -> pa.RecordBatch:
    import pyarrow as pa

    batch = serving.table(BATCH_COUNT, [b"bench.key"])
    quotes = np.random.default_rng(0).integers(0, _QUOTE_MAX, BATCH_COUNT)
    return batch.append_column("quote", pa.array(quotes, pa.int64()))
