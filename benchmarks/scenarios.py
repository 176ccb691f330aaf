"""The loads that every contender may be given."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Final


@dataclass(frozen=True, slots=True)
class Scenario:
    """One load: bodies of one size, as fast as they are taken or one at a time at a given rate.

    `attributes_count` asks for typed attributes beside the body; a contender that has none does not take part.
    """

    name: str
    title: str
    body_size: int
    rate_hz: int | None = None
    attributes_count: int = 0

    @property
    def is_paced(self) -> bool:
        """Whether publications leave one at a time at a given rate, so that latency is what is measured."""
        return self.rate_hz is not None


SCENARIOS: Final = MappingProxyType(
    {
        scenario.name: scenario
        for scenario in (
            Scenario("throughput-100", "Throughput, 100-byte bodies", body_size=100),
            Scenario(
                "throughput-100-attributes",
                "Throughput, 100-byte bodies and three attributes",
                body_size=100,
                attributes_count=3,
            ),
            Scenario("throughput-1k", "Throughput, 1 KiB bodies", body_size=1024),
            Scenario("latency-100", "Latency at 1,000/s, 100-byte bodies", body_size=100, rate_hz=1000),
        )
    }
)
