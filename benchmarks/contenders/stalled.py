"""A stalled subscriber beside a live one: what it costs the live one, and the node's memory."""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.broker import Broker
from benchmarks.contender import IDLE_LIMIT_S, Effort
from benchmarks.contenders import serving

_COUNT_PER_SECOND = 1_000_000
_ORDER = (False, True, True, False, False, True)
"""Whether somebody stalls, run by run: neither kind has the better places."""


@dataclass(frozen=True, slots=True)
class Stalled:
    """The same load six times, each time to a new node: to the live subscriber alone, and beside a stalled one."""

    name: str = "veredus-stalled"
    mode: str = (
        "Arrow batches of 100-byte bodies to one durable subscriber that settles; three times without and three times "
        "with a second durable subscriber that takes nothing, in turn; rate: the one median in parts of the other; "
        "growth: of the node's greatest peak memory from the one to the other"
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
        """The live subscriber's rate beside the stalled one in parts of that without, and the growth in bytes."""
        count = round(_COUNT_PER_SECOND * effort.seconds)
        runs: dict[bool, list[tuple[float, int]]] = {False: [], True: []}
        for number, is_beside_stalled in enumerate(_ORDER):
            run = _run(workdir, f"journal-{number}", count, is_beside_stalled=is_beside_stalled)
            runs[is_beside_stalled].append(run)
        alone_hz, beside_hz = (statistics.median(hz for hz, _ in runs[kind]) for kind in (False, True))
        alone_size, beside_size = (max(size for _, size in runs[kind]) for kind in (False, True))
        growth_size = float(max(beside_size - alone_size, 0))
        return {"rate_kept": beside_hz / alone_hz, "growth_size": growth_size, "alone_hz": alone_hz}


def _run(workdir: Path, name: str, count: int, *, is_beside_stalled: bool) -> tuple[float, int]:
    directory = workdir / name
    node = serving.start_node(workdir, directory, {})
    try:
        return _live_rate_hz(node, count, is_beside_stalled), serving.memory(node.pid, "VmHWM")
    finally:
        node.stop()
        shutil.rmtree(directory)


def _live_rate_hz(node: Broker, count: int, is_beside_stalled: bool) -> float:
    import veredus

    rows = serving.table(8_192, [b"bench.key"])
    url = serving.url(node.address)
    with veredus.connect(url) as connection, veredus.connect(url) as other:
        live = connection.subscribe("bench", subscriber="live")
        if is_beside_stalled:
            other.subscribe("bench", subscriber="stalled")
        start_s, published_count, received_count = time.perf_counter(), 0, 0
        publisher = connection.publisher("bench")
        while received_count < count:
            # One thread does both, a bounded way ahead, so that the rates do not depend on who gets the interpreter.
            while published_count < min(count, received_count + 16 * len(rows)):
                publisher.publish_table(rows, key="key", body="body")
                published_count += len(rows)
            batch = live.next_batch(IDLE_LIMIT_S)
            if batch is None:
                raise RuntimeError(f"{received_count} publications received, {published_count} published")
            received_count += len(batch)
            batch.settle()
        seconds = time.perf_counter() - start_s
        publisher.close()
        live.close()
    return received_count / seconds
