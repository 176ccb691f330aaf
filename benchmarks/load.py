"""What a publisher publishes: numbered bodies, made before the clock runs, in bulk or one at a time at a given rate.

A body starts with its number modulo `POOL_COUNT` and with the time at which it was handed to the client (both
unsigned 64-bit, little-endian; the time is zero in bulk), and is filled up with bytes that do not compress. Bulk bodies
come from a pool that is gone through again and again, so that making them costs the publisher nothing.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import AsyncIterator, Iterator
from typing import Final

import numpy as np

from benchmarks.scenarios import Scenario

POOL_COUNT: Final = 65_536
"""Bodies that differ; numbers wrap here."""

STAMP: Final = struct.Struct("<QQ")
"""Number, and nanoseconds of the monotonic clock that all processes of a machine share."""


class Load:
    """The bodies of one run, each to be published once and in order."""

    def __init__(self, scenario: Scenario, count: int) -> None:
        """Make the pool for `count` publications of `scenario`."""
        if scenario.body_size < STAMP.size:
            raise ValueError(f"a body needs at least {STAMP.size} bytes for its stamp, not {scenario.body_size}")
        self.scenario = scenario
        self.count = count
        self.late_ns: list[int] = []
        """How long after its due time each paced body left."""
        self._pool = [] if scenario.is_paced else _pool(scenario.body_size, min(count, POOL_COUNT))
        self._filler = _filler(scenario.body_size - STAMP.size)

    def chunks(self, count_max: int) -> Iterator[list[bytes]]:
        """Everything, in lists of at most `count_max` bodies; a list may be shorter where the pool wraps."""
        return (self.chunk(start, count) for start, count in self.places(count_max))

    def chunk(self, start: int, count: int) -> list[bytes]:
        """`count` bodies of the pool, from `start` on."""
        return self._pool[start : start + count]

    def places(self, count_max: int) -> Iterator[tuple[int, int]]:
        """Where in the pool each list of `chunks` lies: its first body, and how many."""
        remaining_count = self.count
        start = 0
        while remaining_count:
            count = min(count_max, remaining_count, len(self._pool) - start)
            yield start, count
            remaining_count -= count
            start = (start + count) % POOL_COUNT

    def paced(self) -> Iterator[bytes]:
        """Each body when it is due, at once if that has passed."""
        start_ns = time.perf_counter_ns()
        for number in range(self.count):
            due_ns = start_ns + self._after_ns(number)
            delay_ns = due_ns - time.perf_counter_ns()
            if delay_ns > 0:
                time.sleep(delay_ns / 1e9)
            yield self._stamped(number, due_ns)

    async def paced_async(self) -> AsyncIterator[bytes]:
        """Each body when it is due, at once if that has passed, without blocking the loop."""
        start_ns = time.perf_counter_ns()
        for number in range(self.count):
            due_ns = start_ns + self._after_ns(number)
            delay_ns = due_ns - time.perf_counter_ns()
            if delay_ns > 0:
                await asyncio.sleep(delay_ns / 1e9)
            yield self._stamped(number, due_ns)

    def _after_ns(self, number: int) -> int:
        assert self.scenario.rate_hz is not None
        return number * 1_000_000_000 // self.scenario.rate_hz

    def _stamped(self, number: int, due_ns: int) -> bytes:
        sent_ns = time.perf_counter_ns()
        self.late_ns.append(sent_ns - due_ns)
        return STAMP.pack(number % POOL_COUNT, sent_ns) + self._filler


def _filler(size: int) -> bytes:
    return np.random.default_rng(size).bytes(size)


def _pool(body_size: int, count: int) -> list[bytes]:
    rows = np.random.default_rng(body_size).integers(0, 256, (count, body_size), dtype=np.uint8)
    rows[:, : STAMP.size] = 0
    rows[:, :8] = np.arange(count, dtype="<u8").view(np.uint8).reshape(count, 8)
    octets = rows.tobytes()
    return [octets[start : start + body_size] for start in range(0, len(octets), body_size)]
