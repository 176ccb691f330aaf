"""What a subscriber received: verified for count and order at a cost of tens of nanoseconds a body.

The cost is the same for every contender; it is part of what is measured.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from benchmarks.load import POOL_COUNT, STAMP
from benchmarks.scenarios import Scenario


class Witness:
    """Sees every body that a subscriber received, and says what was wrong with them.

    Owns the count, the breaks of order (a body that does not follow the one before it: after a loss, a duplicate or
    a swap) and, for a paced scenario, the latencies in nanoseconds.
    """

    def __init__(self, scenario: Scenario, count: int) -> None:
        """Expect `count` bodies of `scenario`."""
        self.scenario = scenario
        self.count = count
        self.received_count = 0
        self.breaks_count = 0
        self.last_ns = 0
        self.latencies_ns: list[int] = []
        self._expected_number = 0
        self._ramp = np.arange(2 * POOL_COUNT, dtype=np.uint64) % POOL_COUNT

    @property
    def is_complete(self) -> bool:
        """Whether as many bodies came as were expected."""
        return self.received_count >= self.count

    @property
    def missing_count(self) -> int:
        """The number of bodies still to come."""
        return self.count - self.received_count

    @property
    def chunk_count(self) -> int:
        """How many bodies to collect before they are shown: one where latency counts."""
        return min(1 if self.scenario.is_paced else 512, max(self.missing_count, 1))

    def take(self, bodies: Sequence[bytes]) -> None:
        """Look at bodies in the order in which they came."""
        if self.scenario.is_paced:
            self._take_paced(bodies)
        else:
            self.take_block(b"".join(bodies), len(bodies))

    def take_block(self, octets: bytes | memoryview, count: int) -> None:
        """Look at `count` bodies that lie one behind the other; the fast way for those who have them so."""
        self.last_ns = time.perf_counter_ns()
        size = self.scenario.body_size
        if len(octets) != count * size:
            raise ValueError(f"{count} bodies of {size} bytes expected, {len(octets)} bytes received")
        rows = np.frombuffer(octets, dtype=np.uint8).reshape(count, size)
        for start in range(0, count, POOL_COUNT):
            self._follow(rows[start : start + POOL_COUNT, :8].copy().view("<u8").ravel())

    def _take_paced(self, bodies: Sequence[bytes]) -> None:
        self.last_ns = time.perf_counter_ns()
        for body in bodies:
            number, sent_ns = STAMP.unpack_from(body)
            self.latencies_ns.append(self.last_ns - sent_ns)
            self.breaks_count += number != self._expected_number
            self._expected_number = (number + 1) % POOL_COUNT
        self.received_count += len(bodies)

    def _follow(self, numbers: npt.NDArray[np.uint64]) -> None:
        if not len(numbers):
            return
        first = self._expected_number
        if not np.array_equal(numbers, self._ramp[first : first + len(numbers)]):
            predecessors = np.empty_like(numbers)
            predecessors[0] = (first - 1) % POOL_COUNT
            predecessors[1:] = numbers[:-1]
            self.breaks_count += int(np.count_nonzero((predecessors + np.uint64(1)) % np.uint64(POOL_COUNT) != numbers))
        self._expected_number = (int(numbers[-1]) + 1) % POOL_COUNT
        self.received_count += len(numbers)
