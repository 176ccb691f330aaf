"""Runs, one after the other, each judged by the audit: the only judge."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import msgspec

from .conductor import Outcome, run
from .evidence import READER
from .layout import Layout
from .plan import SUBSCRIBERS, Plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from veredus.audit import Verdict

LOST = ("lost", "missing", "hole")
DOUBLED = ("doubled", "two-outcomes", "pushed-twice", "pushed-though-settled")
DISORDERED = ("overtaken-in-journal", "overtaken")
"""The audit's violations, as the summary counts them; all others count as wrong."""
EVEN, ANY, NOTHING = "number % 2 = 0", "true", "false"
"""What a subscription should get, as the audit is told: with a filter, without, or where it writes down gaps alone."""
_MEMORY = "1g"


@dataclass(slots=True)
class Judged:
    """What became of one run, and what the audit says of it."""

    outcome: Outcome
    verdict: Verdict

    @property
    def broken(self) -> list[str]:
        """What no run may show: stuck members, surprises, and claims that are refuted."""
        refuted = [
            f"{judged.claim.words}: {judged.violation_count} violations"
            for judged in self.verdict.judged
            if judged.violation_count
        ]
        samples = [
            ", ".join(f"{name} {value}" for name, value in sample.items() if value not in (None, ""))
            for sample in self.verdict.samples
            if sample["counts_as"] == "violation"
        ]
        return [*self.outcome.stuck, *self.outcome.surprises, *refuted, *samples]

    @property
    def unproved(self) -> list[str]:
        """Claims for which the evidence is not enough, and why."""
        return [
            f"{judged.claim.words}: {reason}"
            for judged in self.verdict.judged
            if not judged.violation_count
            for reason in judged.reasons
        ]

    def summary(self) -> dict[str, object]:
        """The run in one row."""
        counts: dict[str, int] = {}
        reported = 0
        for judged in self.verdict.judged:
            for name, count in judged.violations.items():
                counts[name] = count.certain
                reported += count.reported
        known = (*LOST, *DOUBLED, *DISORDERED)
        return {
            "seed": self.outcome.plan.seed,
            "verdict": "broken" if self.broken else "not proved" if self.unproved else "holds",
            "publications": self.outcome.publication_count,
            "pushed": self.verdict.rows["pushed"],  # type: ignore[index]
            "faults": self.outcome.strikes,
            "lives": self.outcome.life_count,
            "lost": sum(counts.get(name, 0) for name in LOST),
            "doubled": sum(counts.get(name, 0) for name in DOUBLED),
            "out_of_order": sum(counts.get(name, 0) for name in DISORDERED),
            "wrong": sum(count for name, count in counts.items() if name not in known),
            "reported": reported,
            "stuck": len(self.outcome.stuck),
            "surprises": len(self.outcome.surprises),
            "seconds": round(self.outcome.seconds, 1),
            "audit_seconds": round(self.verdict.seconds, 1),
        }


class Judge:
    """Owns the Spark session in which runs are audited; it starts with the first."""

    def __init__(self, master: str) -> None:
        """Where Spark runs: `local[2]`, or a cluster's address."""
        self._master = master
        self._stack = ExitStack()
        self._spark: SparkSession | None = None

    def judge(self, plan: Plan, layout: Layout, tell: Callable[[str], None]) -> Verdict:
        """The audit's verdict on what a run left."""
        from veredus.audit import Evidence, audit

        covers = {
            (member.stream, member.name): EVEN if member.covers else ANY
            for member in plan.members
            if member.role in SUBSCRIBERS
        } | {(stream, READER): NOTHING for stream in plan.streams}
        evidence = Evidence.in_directory(layout.evidence, covers)
        return audit(self._session(), evidence, into=layout.report, progress=tell)

    def _session(self) -> SparkSession:
        if self._spark is None:
            from veredus.audit.session import session

            self._spark = self._stack.enter_context(session(self._master, _MEMORY))
            # What a run leaves is small: a task costs more than its rows.
            self._spark.conf.set("spark.sql.shuffle.partitions", "2")
        return self._spark

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()


async def _run_until_told(plan: Plan, layout: Layout, tell: Callable[[str], None]) -> Outcome:
    """A run; SIGTERM ends it as Ctrl-C does, so that no process and no mount is left behind."""
    running = asyncio.ensure_future(run(plan, layout, tell))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
    return await running


def run_and_judge(plan: Plan, directory: Path, judge: Judge, tell: Callable[[str], None]) -> Judged:
    """Carry out a plan in an empty directory and judge it; the summary is written there too."""
    layout = Layout(directory)
    try:
        outcome = asyncio.run(_run_until_told(plan, layout, tell))
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    # The loop, which is over, has given this signal back.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    judged = Judged(outcome, judge.judge(plan, layout, tell))
    found = {**judged.summary(), "broken": judged.broken, "unproved": judged.unproved}
    layout.summary.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n")
    return judged
