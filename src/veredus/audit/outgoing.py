"""From the journal to subscriptions: buckets of sequences are compared, and rows are read again where they differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from veredus.kernel.errors import Refused
from veredus.recording import Kind

from .evidence import Side
from .findings import found_in, violation
from .ordering import bucket_of, cut_by_bucket, each_of, small
from .passes import COVERED, summary_of
from .session import reason_of

_SUBSCRIPTION = ("stream", "subscription")
_BUCKET = (*_SUBSCRIPTION, "bucket")
_SUMS = ("count", "by_content_low", "by_content_high")

type_of_covers = Mapping[tuple[str, str], str]


@dataclass(frozen=True)
class Outgoing:
    """What came of the comparison: findings, and counts by subscription."""

    findings: DataFrame | None
    counts: DataFrame
    differing_count: int


def outgoing_of(
    spark: SparkSession,
    sides: Mapping[Kind, Side],
    summaries: Mapping[Kind, DataFrame],
    covers: type_of_covers,
) -> Outgoing:
    """Compare what the journal holds with what each subscription got. Both must be there."""
    journal = sides[Kind.JOURNAL].rows
    names = _subscriptions(spark, sides, summaries[Kind.PUSHED], covers)
    expected = _expected(journal, summaries[Kind.JOURNAL], names, covers)
    pushed = summaries[Kind.PUSHED].where("what = 'sequences'").select(*_BUCKET, *_SUMS)
    both = expected.withColumn("side", f.lit("expected")).unionByName(pushed.withColumn("side", f.lit("pushed")))
    totals = [
        f.coalesce(f.sum(f.when(f.col("side") == side, f.col(name))), f.lit(0)).alias(f"{side}_{name}")
        for side in ("expected", "pushed")
        for name in _SUMS
    ]
    buckets = both.groupBy(*_BUCKET).agg(*totals).localCheckpoint()
    differs = reduce(Column.__or__, [f.col(f"expected_{name}") != f.col(f"pushed_{name}") for name in _SUMS])
    differing = buckets.where(differs).select(*_BUCKET)
    differing_count = differing.count()
    counts = buckets.groupBy(*_SUBSCRIPTION).agg(
        f.sum("expected_count").alias("covered"), f.sum("pushed_count").alias("pushed")
    )
    if not differing_count:
        return Outgoing(None, counts, 0)
    few = small(differing, differing_count)
    sequences = _sequences(journal, sides[Kind.PUSHED].rows, few, covers).localCheckpoint()
    return Outgoing(_findings(sequences), counts, differing_count)


def check_covers(journal: Side | None, covers: type_of_covers) -> None:
    """Raises `Refused("bad-option")` for a condition that Spark cannot evaluate on the journal."""
    if journal is None:
        return
    for (stream, subscription), condition in covers.items():
        try:
            journal.rows.where(f.expr(condition)).schema  # noqa: B018 Spark looks at it when it is asked what it gives
        except AnalysisException as error:
            raise Refused(
                "bad-option", f"what {subscription} of {stream} covers, {condition!r}: {reason_of(error)}"
            ) from None


def settled_counts(settled: Side) -> DataFrame:
    """How many sequences each subscription was told are settled."""
    count = f.sum(f.col("last_sequence") - f.col("first_sequence") + 1)
    return settled.rows.groupBy(*_SUBSCRIPTION).agg(count.alias("settled"))


def settled_before(repeated: DataFrame, repeated_count: int, settled: DataFrame) -> DataFrame:
    """The rows that had been settled when they were pushed again: in an earlier life, or earlier in the same one."""
    wanted = repeated.select(*_SUBSCRIPTION, bucket_of("sequence").alias("bucket")).distinct()
    cut = cut_by_bucket(settled, "first_sequence", "last_sequence")
    near = cut.join(small(wanted, repeated_count), [*_BUCKET], "left_semi")
    first_settled = (
        each_of(near, "first_sequence", "last_sequence", "sequence")
        .groupBy(*_SUBSCRIPTION, "sequence")
        .agg(f.min(f.struct("life", "place")).alias("settled"))
    )
    joined = repeated.join(first_settled, [*_SUBSCRIPTION, "sequence"])
    return joined.where(f.col("settled") < f.struct(f.col("life"), f.col("position").alias("place")))


def _subscriptions(
    spark: SparkSession, sides: Mapping[Kind, Side], pushed: DataFrame, covers: type_of_covers
) -> DataFrame:
    """Every subscription that wrote down anything, or that is named."""
    told = [sides[kind].rows for kind in (Kind.SETTLED, Kind.GAPS) if kind in sides]
    named = spark.createDataFrame(list(covers) or [("", "")], "stream string, subscription string")
    rows = [pushed.where("what = 'sequences'"), *told, named.where("subscription <> ''")]
    return reduce(DataFrame.unionByName, [frame.select(*_SUBSCRIPTION) for frame in rows]).distinct()


def _expected(journal: DataFrame, summary: DataFrame, names: DataFrame, covers: type_of_covers) -> DataFrame:
    """By subscription, the buckets of what it covers."""
    whole = summary.where("what = 'sequences'").select("stream", "bucket", *_SUMS)
    is_named = f.lit(False)
    parts = []
    for (stream, subscription), condition in covers.items():
        is_named |= (f.col("stream") == stream) & (f.col("subscription") == subscription)
        part = summary_of(COVERED, journal.where((f.col("stream") == stream) & f.expr(condition)))
        parts.append(part.withColumn("subscription", f.lit(subscription)).select(*_BUCKET, *_SUMS))
    everything = whole.join(f.broadcast(names.where(~is_named)), "stream").select(*_BUCKET, *_SUMS)
    return reduce(DataFrame.unionByName, [everything, *parts])


def _sequences(journal: DataFrame, pushed: DataFrame, differing: DataFrame, covers: type_of_covers) -> DataFrame:
    """One row a sequence of the differing buckets and subscription: how often and as what each side has it."""
    is_covered = f.lit(True)
    for (stream, subscription), condition in covers.items():
        is_this = (f.col("stream") == stream) & (f.col("subscription") == subscription)
        is_covered = f.when(is_this, f.coalesce(f.expr(condition), f.lit(False))).otherwise(is_covered)
    identity = f.struct("source", "number", "digest")
    journaled = journal.withColumn("bucket", bucket_of("sequence")).join(differing, ["stream", "bucket"])
    there = journaled.select(*_SUBSCRIPTION, "sequence", identity.alias("kept"), is_covered.alias("is_covered"))
    came = pushed.withColumn("bucket", bucket_of("sequence")).join(differing, [*_BUCKET], "left_semi")
    rows = there.unionByName(came.select(*_SUBSCRIPTION, "sequence", identity.alias("came")), allowMissingColumns=True)
    return rows.groupBy(*_SUBSCRIPTION, "sequence").agg(
        f.coalesce(f.bool_or("is_covered"), f.lit(False)).alias("is_covered"),
        f.collect_set("kept").alias("kept"),
        f.collect_set("came").alias("came"),
    )


def _findings(sequences: DataFrame) -> DataFrame:
    first = f.coalesce(f.try_element_at("kept", f.lit(1)), f.try_element_at("came", f.lit(1)))
    changed = f.format_string(
        "the journal has %s, it got %s",
        f.to_json(f.try_element_at("kept", f.lit(1))),
        f.to_json(f.try_element_at(f.array_except("came", "kept"), f.lit(1))),
    )
    return found_in(
        sequences.withColumns({"source": first["source"], "number": first["number"]}),
        violation("missing", "is_covered AND size(came) = 0", f.lit("never pushed")),
        violation("phantom", "size(kept) = 0", f.lit("not in the journal")),
        violation("uncovered", "size(kept) > 0 AND NOT is_covered AND size(came) > 0", f.lit("not covered")),
        violation("changed", "size(kept) > 0 AND size(array_except(came, kept)) > 0", changed),
    )
