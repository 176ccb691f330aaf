"""A node at rest: what a large journal, many streams and many subscriptions cost when nothing happens."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from benchmarks.contender import Effort
from benchmarks.contenders import serving

if TYPE_CHECKING:
    import veredus

JOURNAL_SIZE: Final = 10 * 10**9
STREAMS_COUNT: Final = 10_000
SUBSCRIPTIONS_COUNT: Final = 1_000
_SECONDS_WHOLE: Final = 4.0
_BODY_SIZE: Final = 256 << 10
_AT_ONCE_COUNT: Final = 200


@dataclass(frozen=True, slots=True)
class AtRest:
    """Fills a journal, and starts a node on it after a clean stop and after SIGKILL."""

    name: str = "veredus-at-rest"
    mode: str = (
        f"{STREAMS_COUNT:,} streams, {SUBSCRIPTIONS_COUNT:,} durable subscriptions, a journal of 10 GB (scaled down "
        "where the effort is); a start is from the start of the process until it listens"
    )
    rounds_max: int = 1
    timeout_s: float = 240.0

    def missing(self) -> str | None:
        """Nothing: it is what is measured."""
        return None

    def versions(self) -> Mapping[str, str]:
        """The version of the node and its client, which are one package."""
        return serving.versions()

    def measure(self, workdir: Path, effort: Effort) -> Mapping[str, float]:
        """Bytes resident, and seconds of the two kinds of start."""
        journal = workdir / "journal"
        size = round(JOURNAL_SIZE * min(effort.seconds / _SECONDS_WHOLE, 1.0))
        node = serving.start_node(workdir, journal, {})
        try:
            asyncio.run(_populate(node.address))
            _fill(node.address, size)
        finally:
            node.stop()
        start_s = time.perf_counter()
        node = serving.start_node(workdir, journal, {})
        clean_start_s = time.perf_counter() - start_s
        try:
            time.sleep(1)
            resident_size = serving.memory(node.pid, "VmRSS")
            # What a start after a kill has to read: close to a whole interval between checkpoints.
            _fill(node.address, 200 << 20)
            os.kill(node.pid, signal.SIGKILL)
        finally:
            node.stop()
        start_s = time.perf_counter()
        node = serving.start_node(workdir, journal, {})
        killed_start_s = time.perf_counter() - start_s
        node.stop()
        return {
            "resident_size": float(resident_size),
            "clean_start_s": clean_start_s,
            "killed_start_s": killed_start_s,
            "journal_size": float(sum(file.stat().st_size for file in journal.iterdir())),
        }


async def _populate(address: str) -> None:
    import veredus

    async with veredus.connect_async(serving.url(address), timeout_s=60) as node:
        names = [f"stream-{index:05}" for index in range(STREAMS_COUNT)]
        for start in range(0, STREAMS_COUNT, _AT_ONCE_COUNT):
            await asyncio.gather(*[node.streams.create(name) for name in names[start : start + _AT_ONCE_COUNT]])
        for start in range(0, SUBSCRIPTIONS_COUNT, _AT_ONCE_COUNT):
            chosen = names[start : start + _AT_ONCE_COUNT]
            opened = await asyncio.gather(*[_subscribed(node, name) for name in chosen])
            await asyncio.gather(*[subscription.close() for subscription in opened])


async def _subscribed(node: veredus.AsyncNode, stream: str) -> veredus.AsyncSubscription:
    return await node.subscribe(stream, subscriber="resting")


def _fill(address: str, size: int) -> None:
    import veredus

    body = np.random.default_rng(0).bytes(_BODY_SIZE)
    with veredus.connect(serving.url(address)) as connection:
        publishers = [connection.publisher(f"stream-{index:05}") for index in range(16)]
        for index in range(size // len(body)):
            publishers[index % len(publishers)].publish(b"key", body)
        for publisher in publishers:
            publisher.close()
