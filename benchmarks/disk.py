"""What the disk alone can do: the floor under every durable figure of the same run."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.contender import Effort

BLOCK_SIZE: Final = 1 << 20
SYNC_SIZE: Final = 8 << 20
_SECONDS_PER_GIB: Final = 2.0
_SIZE_MIN: Final = 64 << 20
_SIZE_MAX: Final = 1 << 30
_SYNC_COUNT: Final = 500
_PAUSE_S: Final = 3.0


@dataclass(frozen=True, slots=True)
class RawDisk:
    """Writes 1 MiB blocks of bytes that do not compress, from one thread, to a fresh and to a recycled file."""

    name: str = "raw-disk"
    mode: str = (
        "`write` of 1 MiB blocks from one thread; one fdatasync at the end, or (grouped) one for every 8 MiB; "
        "fresh: appended to an empty file; recycled: written over a file whose pages are cached"
    )
    rounds_max: int = 9
    timeout_s: float = 120.0

    def missing(self) -> str | None:
        """Nothing: a disk is always there."""
        return None

    def versions(self) -> Mapping[str, str]:
        """None: the machine is described elsewhere."""
        return {}

    def measure(self, workdir: Path, effort: Effort) -> Mapping[str, float]:
        """Rates in bytes/s, and fdatasync's latency in nanoseconds after an append of 4 KiB."""
        size = round((1 << 30) * effort.seconds / _SECONDS_PER_GIB)
        size = min(max(size, _SIZE_MIN), _SIZE_MAX) // SYNC_SIZE * SYNC_SIZE
        file = workdir / "raw"
        rates = {
            "fresh_bytes_per_s": _write_rate(file, size, sync_size=size, is_fresh=True),
            "recycled_bytes_per_s": _write_rate(file, size, sync_size=size, is_fresh=False),
            "fresh_grouped_bytes_per_s": _write_rate(file, size, sync_size=SYNC_SIZE, is_fresh=True),
            "recycled_grouped_bytes_per_s": _write_rate(file, size, sync_size=SYNC_SIZE, is_fresh=False),
        }
        file.unlink()
        latencies_ns = np.array(_sync_latencies_ns(workdir / "synced"))
        p50, p99 = np.percentile(latencies_ns, (50, 99))
        return rates | {"size": float(size), "fdatasync_p50_ns": float(p50), "fdatasync_p99_ns": float(p99)}


def _write_rate(file: Path, size: int, *, sync_size: int, is_fresh: bool) -> float:
    block = np.random.default_rng(0).bytes(BLOCK_SIZE)
    flags = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if is_fresh else 0)
    descriptor = os.open(file, flags, 0o600)
    try:
        # A truncation or an earlier run that the disk still works on is not part of this one.
        os.fsync(descriptor)
        if is_fresh:
            # Where a virtual machine's free memory goes back to its host, pages that were freed a moment ago are had
            # ten times as fast as others: each fresh file begins without them, as a segment does.
            time.sleep(_PAUSE_S)
        start_ns = time.perf_counter_ns()
        for written_size in range(BLOCK_SIZE, size + 1, BLOCK_SIZE):
            os.write(descriptor, block)
            if written_size % sync_size == 0:
                os.fdatasync(descriptor)
        return size * 1e9 / (time.perf_counter_ns() - start_ns)
    finally:
        os.close(descriptor)


def _sync_latencies_ns(file: Path) -> list[int]:
    page = b"\xa5" * 4096
    latencies_ns = []
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        for _ in range(_SYNC_COUNT):
            os.write(descriptor, page)
            start_ns = time.perf_counter_ns()
            os.fdatasync(descriptor)
            latencies_ns.append(time.perf_counter_ns() - start_ns)
    finally:
        os.close(descriptor)
    file.unlink()
    return latencies_ns
