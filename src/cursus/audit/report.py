"""The report: everything as Parquet for programs, and one page for people."""

from __future__ import annotations

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


def write_report(verdict: Verdict, tables: Tables, into: Path) -> None:
    """Write `report.html`, and beside it claims, samples, violations, sources and subscriptions as Parquet."""
    into.mkdir(parents=True, exist_ok=True)
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
