"""What the harness asks of whoever is measured.

A *contender* is one product in one mode, and carries publications from a publisher process through a broker to a
subscriber process. A *trial* is any other measurement, made in a process of its own. Both are named in `registry.py`;
each process imports only the module of the one that it measures.

    harness        Contender.start -> Broker ............................................ Broker.stop
    publisher      Contender.publisher -> open | ready, wait for go | run -> receipts | close
    subscriber     Contender.subscriber -> open | ready, wait for go | run            | close

The clock runs from the publisher's go until `Publisher.run` and `Subscriber.run` have both come to their end, so
connecting, subscribing and closing are outside it. Both `open` calls happen at the same time, after `start`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from benchmarks.broker import Broker
from benchmarks.load import Load
from benchmarks.scenarios import Scenario
from benchmarks.witness import Witness

IDLE_LIMIT_S = 5
"""A subscriber that got nothing for so long ends its run, and what is missing counts as lost."""


class Publisher(Protocol):
    """The publishing end, in a process of its own."""

    def open(self) -> None:
        """Connect, and whatever else comes before the first publication."""

    def run(self, load: Load) -> int | None:
        """Publish the whole load; return the count of receipts once all are in, or None where there are none."""

    def close(self) -> None:
        """Let go of the connection."""


class Subscriber(Protocol):
    """The subscribing end, in a process of its own."""

    def open(self) -> None:
        """Connect and subscribe, so that nothing published from now on is missed."""

    def run(self, witness: Witness) -> None:
        """Show every body to the witness, in order, until it is complete or `IDLE_LIMIT_S` passed in silence."""

    def close(self) -> None:
        """Let go of the connection."""


class Contender(Protocol):
    """One product in one mode."""

    @property
    def name(self) -> str:
        """The name in the registry, in tables and after `--only`."""

    @property
    def mode(self) -> str:
        """Durability, batch sizes and settlement in a sentence: what one must know to read the figures."""

    @property
    def scenarios(self) -> tuple[str, ...]:
        """The names of the scenarios that it takes part in."""

    def missing(self) -> str | None:
        """What is not installed, with what to do about it, or None."""

    def versions(self) -> Mapping[str, str]:
        """The versions of the broker and of the client library; asked only when nothing is missing."""

    def start(self, workdir: Path, scenario: Scenario) -> Broker:
        """Start an empty broker that keeps its data in `workdir`, ready for both ends to connect."""

    def publisher(self, address: str, scenario: Scenario) -> Publisher:
        """The publishing end for a broker at `address`."""

    def subscriber(self, address: str, scenario: Scenario) -> Subscriber:
        """The subscribing end for a broker at `address`."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How long to measure.

    `seconds` is what one measured run aims at, `latency_count` the publications of a paced one, and `rounds_count`
    the number of times that everything is measured.
    """

    rounds_count: int
    seconds: float
    latency_count: int


class Trial(Protocol):
    """A measurement that is not one publisher, one broker and one subscriber."""

    @property
    def name(self) -> str:
        """The name in the registry, in tables and after `--only`."""

    @property
    def mode(self) -> str:
        """What is measured, in a sentence."""

    @property
    def rounds_max(self) -> int:
        """The number of rounds that it takes part in; below three only for what takes very long."""

    @property
    def timeout_s(self) -> float:
        """When to give up on one run."""

    def missing(self) -> str | None:
        """What is not installed, with what to do about it, or None."""

    def versions(self) -> Mapping[str, str]:
        """The versions of what is measured; asked only when nothing is missing."""

    def measure(self, workdir: Path, effort: Effort) -> Mapping[str, float]:
        """Measure once, in a process of its own, with files in `workdir`; return metrics, units last in their names."""
