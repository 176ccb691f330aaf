"""A well-behaved neighbour of an attacker: publishes one publication at a time, and remembers how long each took."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import veredus
from benchmarks.contenders.serving import memory
from tests.processes import beside

PAUSE_S = 0.005


@dataclass
class Felt:
    """Round trips of the neighbour, from `publish` to the receipt, in milliseconds."""

    trips_ms: list[float] = field(default_factory=list)

    def percentile_ms(self, share: float) -> float:
        """The time that this share of the round trips did not exceed; infinite where there was none."""
        trips = sorted(self.trips_ms)
        return trips[min(len(trips) - 1, int(share * len(trips)))] if trips else float("inf")

    @property
    def p50_ms(self) -> float:
        """The median."""
        return self.percentile_ms(0.5)

    @property
    def p99_ms(self) -> float:
        """What 99 of 100 round trips did not exceed."""
        return self.percentile_ms(0.99)

    @property
    def worst_ms(self) -> float:
        """The longest round trip."""
        return self.percentile_ms(1.0)


@contextmanager
def neighbour(address: str, stream: str = "neighbour", token: str | None = None) -> Iterator[Felt]:
    """Publish to `stream` at `address` until the block is left; raises what the neighbour was refused."""
    felt, is_over = Felt(), threading.Event()
    with veredus.connect(address, token=token) as node, node.publisher(stream, source="neighbour") as publisher:
        publisher.wait(publisher.publish("k", b"first"))

        def publish() -> None:
            while not is_over.is_set():
                began = time.perf_counter()
                publisher.wait(publisher.publish("k", b"body"))
                felt.trips_ms.append((time.perf_counter() - began) * 1000)
                is_over.wait(PAUSE_S)

        with beside(publish):
            try:
                yield felt
            finally:
                is_over.set()


def resident_size(pid: int) -> int:
    """The bytes of a process that are in memory now."""
    return memory(pid, "VmRSS")


def resident_size_peak(pid: int) -> int:
    """The most bytes of a process that were in memory since it started, or since `forget_peak`."""
    return memory(pid, "VmHWM")


def forget_peak(pid: int) -> None:
    """From now on the peak is that of what is still to come."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")
