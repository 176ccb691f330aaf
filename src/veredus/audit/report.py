"""The report: everything as Parquet for programs, and one page for people."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from .page import page_of
from .verdict import Verdict

_CLAIMS = pa.schema(
    [
        ("claim", pa.string()),
        ("words", pa.string()),
        ("outcome", pa.string()),
        ("violations", pa.int64()),
        ("reported", pa.int64()),
        ("reasons", pa.list_(pa.string())),
    ]
)
_SAMPLES = pa.schema(
    [
        ("violation", pa.string()),
        ("counts_as", pa.string()),
        ("stream", pa.string()),
        ("subscription", pa.string()),
        ("source", pa.string()),
        ("number", pa.int64()),
        ("sequence", pa.int64()),
        ("detail", pa.string()),
    ]
)


@dataclass(frozen=True)
class Tables:
    """What may be too large for one process: counts by source and by subscription, and all violations."""

    sources: DataFrame | None
    subscriptions: DataFrame | None
    violations: DataFrame


class NotWritten(OSError):
    """There is a verdict, and its report could not be written."""

    def __init__(self, verdict: Verdict, into: Path, reason: str) -> None:
        """`reason` says why, in one line."""
        super().__init__(errno.EIO, f"the report could not be written: {reason}", str(into))
        self.verdict = verdict


def write_report(verdict: Verdict, tables: Tables, into: Path) -> None:
    """Write `report.html` into a directory, and claims, samples, violations, sources, subscriptions as Parquet."""
    claims = [
        {
            "claim": judged.claim.name,
            "words": judged.claim.words,
            "outcome": str(judged.outcome),
            "violations": judged.violation_count,
            "reported": judged.reported_count,
            "reasons": list(judged.reasons),
        }
        for judged in verdict.judged
    ]
    pq.write_table(pa.Table.from_pylist(claims, _CLAIMS), into / "claims.parquet")
    pq.write_table(pa.Table.from_pylist([dict(row) for row in verdict.samples], _SAMPLES), into / "samples.parquet")
    for name, frame in (
        ("sources", tables.sources),
        ("subscriptions", tables.subscriptions),
        ("violations", tables.violations),
    ):
        if frame is not None:
            frame.write.parquet(str(into / name))
    (into / "report.html").write_text(page_of(verdict), encoding="utf-8")
