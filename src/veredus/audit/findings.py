"""Violations as rows: what breaks a claim, where, whether it was reported by name, and whether it is certain."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from veredus.recording import Kind

from .evidence import Side
from .guarantees import VIOLATIONS
from .ordering import bucket_of, cut_by_bucket

SCHEMA: Final = (
    "violation string, stream string, subscription string, source string, number bigint, sequence bigint,"
    " detail string, is_reported boolean, is_certain boolean"
)
REPORTED_CODES: Final = ("damaged", "trimmed", "lost")
"""What a node says by name of publications that cannot be had any more."""


def violation(name: str, is_so: Column | str, detail: Column, sequence: Column | None = None) -> Column:
    """What a row has violated if `is_so`, null if not; its sequence where that is not the column of this name."""
    assert name in VIOLATIONS
    at = f.col("sequence") if sequence is None else sequence
    found = f.struct(
        f.lit(name).alias("violation"), at.cast("bigint").alias("sequence"), detail.cast("string").alias("detail")
    )
    return f.when(f.expr(is_so) if isinstance(is_so, str) else is_so, found)


def found_in(rows: DataFrame, *violations: Column, first_known: Column | None = None) -> DataFrame:
    """A row for each violation. `first_known` is the least number of the source that the journal has."""
    known = f.lit(None).cast("bigint") if first_known is None else first_known
    subscription = f.col("subscription") if "subscription" in rows.columns else f.lit("")
    exploded = rows.withColumn("found", f.explode(f.array_compact(f.array(*violations))))
    return exploded.select(
        "found.violation",
        "stream",
        subscription.alias("subscription"),
        "source",
        "number",
        "found.sequence",
        "found.detail",
        known.alias("first_known"),
    )


def findings_of(
    spark: SparkSession, found: list[DataFrame], sides: Mapping[Kind, Side], floors: DataFrame | None
) -> DataFrame:
    """All findings, those marked that a gap has reported, and those that rest on what the evidence does not hold.

    `floors` has the first sequence of each stream's journal: what lies before may have been there.
    """
    if not found:
        return spark.createDataFrame([], SCHEMA)
    rows = _with_reports(reduce(DataFrame.unionByName, found), sides.get(Kind.GAPS))
    is_certain = f.lit(True)
    for side in sides.values():
        if side.doubts:
            is_certain &= ~f.col("violation").isin(_resting_on(side.kind))
    if floors is not None:
        rows = rows.join(f.broadcast(floors), "stream", "left")
        is_kept = (f.coalesce("floor", f.lit(1)) <= 1) | f.coalesce(
            f.col("sequence") >= f.col("floor"), f.col("number") > f.col("first_known"), f.lit(False)
        )
        is_certain &= ~f.col("violation").isin(_resting_on(Kind.JOURNAL)) | is_kept
    return rows.withColumn("is_certain", is_certain).select(*(part.split()[0] for part in SCHEMA.split(",")))


def _resting_on(kind: Kind) -> list[str]:
    return [name for name, violated in VIOLATIONS.items() if violated.rests_on is kind]


def _with_reports(rows: DataFrame, gaps: Side | None) -> DataFrame:
    """A gap speaks for its own subscription, and any of its stream's for the journal."""
    if gaps is None or not gaps.row_count:
        return rows.withColumn("is_reported", f.lit(False))
    told = gaps.rows.where(f.col("code").isin(*REPORTED_CODES) & (f.col("last_sequence") >= f.col("first_sequence")))
    ranges = told.select("stream", "subscription", "first_sequence", "last_sequence").distinct()
    cut = cut_by_bucket(ranges, "first_sequence", "last_sequence")
    cut = cut.unionByName(cut.withColumn("subscription", f.lit("")))
    told_names = {name: f"told_{name}" for name in ("stream", "subscription", "bucket")}
    # Of what has no sequence no gap speaks.
    keyed = rows.withColumns(
        {"bucket": bucket_of(f.coalesce("sequence", f.lit(-1))), "row": f.monotonically_increasing_id()}
    )
    # What is not in the journal has been named as such by any of the stream's gaps.
    is_of_journal = f.col("violation").isin(_resting_on(Kind.JOURNAL))
    keyed = keyed.withColumn("speaker", f.when(is_of_journal, f.lit("")).otherwise(f.col("subscription")))
    is_told = f.col("sequence").between(f.col("first_sequence"), f.col("last_sequence"))
    for name, told_name in zip(("stream", "speaker", "bucket"), told_names.values(), strict=True):
        is_told &= f.col(name) == f.col(told_name)
    joined = keyed.join(cut.withColumnsRenamed(told_names), is_told, "left")
    marked = joined.withColumn("is_reported", f.col("told_stream").isNotNull())
    return marked.dropDuplicates(["row"]).select(*rows.columns, "is_reported")
