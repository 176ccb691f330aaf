"""What the audit says: an outcome for each claim, with the reasons, the counts and the first violations.

No outcome is better than the evidence: a claim holds if every side that it needs is there and whole and nothing speaks
against it; it is refuted by one violation that rests on nothing missing; else it is not proved. What the node itself
reported as gone is neither held against it nor proved.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from veredus.recording import Kind

from .guarantees import CLAIMS, VIOLATIONS, Claim, Outcome

_WORST_FIRST = (Outcome.REFUTED, Outcome.NOT_PROVED, Outcome.REPORTED, Outcome.HOLDS)

type_of_value = str | int | None


@dataclass(frozen=True)
class Count:
    """How many violations of one kind were found, and how many of them count for what."""

    certain: int = 0
    """Speak against the claim."""
    reported: int = 0
    """The node had reported them by name."""
    uncertain: int = 0
    """Rest on what the evidence does not hold."""


@dataclass(frozen=True)
class Judged:
    """One claim's outcome, and why it is no better."""

    claim: Claim
    outcome: Outcome
    violations: Mapping[str, Count]
    reasons: tuple[str, ...] = ()

    @property
    def violation_count(self) -> int:
        """Violations that speak against it."""
        return sum(count.certain for count in self.violations.values())

    @property
    def reported_count(self) -> int:
        """What would violate it, had the node not reported it by name."""
        return sum(count.reported for count in self.violations.values())


@dataclass(frozen=True)
class Verdict:
    """The outcome of every claim that was asked about, and what it rests on."""

    judged: tuple[Judged, ...]
    samples: tuple[Mapping[str, type_of_value], ...] = ()
    """The first violations of each kind: what, where, and whether it counts."""
    rows: Mapping[Kind, int] = field(default_factory=dict)
    """How many rows each side has."""
    sources: tuple[Mapping[str, type_of_value], ...] = ()
    """The first sources of each stream, with what was counted of them; all are in the report."""
    subscriptions: tuple[Mapping[str, type_of_value], ...] = ()
    places: tuple[Mapping[str, type_of_value], ...] = ()
    """Where violations lie: how many of each kind in each bin of a stream's sequences (of its numbers, if unknown)."""
    seconds: float = 0.0
    about: Mapping[str, str] = field(default_factory=dict)
    """When it was judged (UTC), by which version, and what: for each side its directory, or the node and streams."""

    @property
    def outcome(self) -> Outcome:
        """The worst of all: refuted, not proved, holding but for what was reported, holding."""
        outcomes = {judged.outcome for judged in self.judged}
        return next(outcome for outcome in _WORST_FIRST if outcome in outcomes)

    def of(self, claim: str) -> Judged:
        """The judgement of one claim: `kept/journal`."""
        return next(judged for judged in self.judged if judged.claim.name == claim)


def judge(
    asked: Collection[str], counts: Mapping[str, Count], doubts: Mapping[Kind, tuple[str, ...]]
) -> tuple[Judged, ...]:
    """The outcome of each claim that was asked about. `doubts` has each side that is there: why it is not whole."""
    return tuple(_judged(CLAIMS[name], counts, doubts) for name in CLAIMS if name in asked)


def _judged(claim: Claim, counts: Mapping[str, Count], doubts: Mapping[Kind, tuple[str, ...]]) -> Judged:
    found = {name: counts[name] for name, kind in VIOLATIONS.items() if kind.claim == claim.name and name in counts}
    reasons = [_missing(kind) for kind in claim.needs if kind not in doubts]
    reasons += [doubt for kind in claim.needs for doubt in doubts.get(kind, ())]
    reasons += [
        f"{count.uncertain:,} {VIOLATIONS[name].words}, according to incomplete evidence"
        for name, count in found.items()
        if count.uncertain
    ]
    if any(count.certain for count in found.values()):
        return Judged(claim, Outcome.REFUTED, found, tuple(reasons))
    if reasons:
        return Judged(claim, Outcome.NOT_PROVED, found, tuple(reasons))
    is_reported = any(count.reported for count in found.values())
    return Judged(claim, Outcome.REPORTED if is_reported else Outcome.HOLDS, found)


def _missing(kind: Kind) -> str:
    return f"the side {kind} was not given"
