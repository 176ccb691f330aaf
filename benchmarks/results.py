"""What runs have measured, and what follows from it: medians, spread, ratios."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from benchmarks.contender import Effort


@dataclass(frozen=True, slots=True)
class Sample:
    """One run of one subject. One that failed has no metrics; one whose count or order was wrong is not verified."""

    subject: str
    scenario: str
    round_index: int
    metrics: Mapping[str, float]
    is_verified: bool
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class Summary:
    """The median and the spread of one metric over the runs that succeeded and were verified."""

    median: float
    least: float
    most: float
    count: int


@dataclass(slots=True)
class Results:
    """Everything that one run of the benchmarks found out."""

    machine: Mapping[str, str]
    effort: Effort
    modes: dict[str, str] = field(default_factory=dict)
    versions: dict[str, Mapping[str, str]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    elapsed_s: float = 0.0

    def summary(self, subject: str, scenario: str, metric: str) -> Summary | None:
        """Median, least and most of `metric`, or None where no good run has it."""
        values = [
            sample.metrics[metric]
            for sample in self.samples
            if (sample.subject, sample.scenario) == (subject, scenario)
            and sample.is_verified
            and metric in sample.metrics
        ]
        if not values:
            return None
        return Summary(statistics.median(values), min(values), max(values), len(values))

    def subjects(self, scenario: str) -> list[str]:
        """Who was measured in `scenario`, in the order of the first run."""
        return list(dict.fromkeys(sample.subject for sample in self.samples if sample.scenario == scenario))

    def bad(self, subject: str, scenario: str) -> list[Sample]:
        """The runs that failed or were not verified."""
        return [
            sample
            for sample in self.samples
            if (sample.subject, sample.scenario) == (subject, scenario) and not sample.is_verified
        ]

    def best(self, places: Iterable[tuple[str, str, str]], *, is_less_better: bool) -> float | None:
        """The best median among (subject, scenario, metric) places, or None where nothing was measured."""
        medians = [summary.median for place in places if (summary := self.summary(*place)) is not None]
        if not medians:
            return None
        return min(medians) if is_less_better else max(medians)
