"""From sources into the journal: buckets of numbers are compared, and rows are read again only where they differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from veredus.recording import Kind

from .evidence import Side
from .findings import found_in, violation
from .ordering import bucket_of, cut_by_bucket, each_of, small

_SOURCE = ("stream", "source")
_BUCKET = (*_SOURCE, "bucket")


@dataclass(frozen=True)
class Incoming:
    """What came of the comparison: findings, counts by source, and what is in doubt."""

    findings: DataFrame | None
    counts: DataFrame
    in_doubt: DataFrame | None
    """stream, source, number, is_taken; None where a side that it takes is missing."""
    differing_count: int


def incoming_of(sides: Mapping[Kind, Side], summaries: Mapping[Kind, DataFrame]) -> Incoming:
    """Compare what was offered, acknowledged and journaled, as far as each is there."""
    there = [kind for kind in (Kind.OFFERED, Kind.ACKNOWLEDGED, Kind.JOURNAL) if kind in sides]
    buckets = _compared(there, summaries).localCheckpoint()
    differing = buckets.where(_differs(there)).select(*_BUCKET)
    differing_count = differing.count()
    counts = _counts(buckets)
    if not differing_count:
        return Incoming(None, counts, None, 0)
    extent = buckets.groupBy(*_SOURCE).agg(
        f.min("journal_first").alias("first_known"), f.max("journal_last").alias("last_known")
    )
    numbers = _numbers(there, sides, small(differing, differing_count))
    numbers = numbers.join(extent, [*_SOURCE], "left").localCheckpoint()
    in_doubt = None
    if len(there) == len(_READ):
        in_doubt = numbers.where("offered > 0 AND acknowledged = 0").select(
            *_SOURCE, "number", (f.col("journal") > 0).alias("is_taken")
        )
        doubts = in_doubt.groupBy(*_SOURCE).agg(
            f.count("*").alias("in_doubt"), f.sum(f.col("is_taken").cast("bigint")).alias("in_doubt_taken")
        )
        counts = counts.join(doubts, [*_SOURCE], "left").na.fill(0)
    return Incoming(_findings(there, numbers), counts, in_doubt, differing_count)


def _compared(there: list[Kind], summaries: Mapping[Kind, DataFrame]) -> DataFrame:
    """One row a bucket: what each side has in it."""
    tagged = [
        summaries[kind].where("what = 'numbers' AND source <> ''").withColumn("side", f.lit(kind.value))
        for kind in there
    ]
    sums = ("count", "sequenced", *(f"by_{name}_{half}" for name in _HASHES for half in _HALVES))
    totals: list[Column] = []
    for kind in (Kind.OFFERED, Kind.ACKNOWLEDGED, Kind.JOURNAL):
        is_side = f.col("side") == kind.value
        totals += [f.coalesce(f.sum(f.when(is_side, f.col(name))), f.lit(0)).alias(f"{kind}_{name}") for name in sums]
    is_journal = f.col("side") == Kind.JOURNAL.value
    totals += [
        f.min(f.when(is_journal, f.col("first_number"))).alias("journal_first"),
        f.max(f.when(is_journal, f.col("last_number"))).alias("journal_last"),
    ]
    return reduce(DataFrame.unionByName, tagged).groupBy(*_BUCKET).agg(*totals)


_HASHES = ("content", "sequence", "number")
_HALVES = ("low", "high")


def _unlike(one: Kind, other: Kind, name: str) -> Column:
    unlike = [f.col(f"{one}_by_{name}_{half}") != f.col(f"{other}_by_{name}_{half}") for half in _HALVES]
    return unlike[0] | unlike[1]


def _differs(there: list[Kind]) -> Column:
    differs = f.lit(False)
    offered, acknowledged, journal = Kind.OFFERED, Kind.ACKNOWLEDGED, Kind.JOURNAL
    if offered in there and journal in there:
        differs |= (f.col("offered_count") != f.col("journal_count")) | _unlike(offered, journal, "content")
    if acknowledged in there and journal in there:
        # Receipts that know no sequence can only be compared by number, and a mixture only row by row.
        all_known = f.col("acknowledged_sequenced") == f.col("acknowledged_count")
        differs |= f.col("acknowledged_count") != f.col("journal_count")
        differs |= _unlike(acknowledged, journal, "number")
        differs |= all_known & _unlike(acknowledged, journal, "sequence")
        differs |= ~all_known & (f.col("acknowledged_sequenced") > 0)
    if journal not in there and offered in there and acknowledged in there:
        differs |= f.col("acknowledged_count") != f.col("offered_count")
    return differs


def _counts(buckets: DataFrame) -> DataFrame:
    sides = (Kind.OFFERED, Kind.ACKNOWLEDGED, Kind.JOURNAL)
    return buckets.groupBy(*_SOURCE).agg(*(f.sum(f"{kind}_count").alias(str(kind)) for kind in sides))


def _numbers(there: list[Kind], sides: Mapping[Kind, Side], differing: DataFrame) -> DataFrame:
    """One row a number of the differing buckets: how often each side has it, and with which bytes and sequences."""
    read = [_READ[kind](sides[kind].rows, differing).withColumn("side", f.lit(kind.value)) for kind in there]
    rows = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), [*read, _no_rows(read[0])])
    count = {kind: f.count(f.when(f.col("side") == kind.value, 1)).alias(str(kind)) for kind in _READ}
    return rows.groupBy(*_SOURCE, "number").agg(
        *count.values(),
        f.collect_set("offered_digest").alias("offered_digests"),
        f.collect_set("journal_digest").alias("journal_digests"),
        f.array_sort(f.collect_set("journal_sequence")).alias("journal_sequences"),
        f.array_sort(f.collect_set("told_sequence")).alias("told_sequences"),
    )


def _no_rows(like: DataFrame) -> DataFrame:
    """No row, and all the columns: a side that is missing brings none of its own."""
    wanted = ("offered_digest", "journal_digest", "journal_sequence", "told_sequence")
    return like.limit(0).select(
        *_SOURCE, "number", "side", *(f.lit(None).cast("bigint").alias(name) for name in wanted)
    )


def _offered_rows(rows: DataFrame, differing: DataFrame) -> DataFrame:
    found = rows.withColumn("bucket", bucket_of("number")).join(differing, [*_BUCKET], "left_semi")
    return found.select(*_SOURCE, "number", f.col("digest").alias("offered_digest"))


def _acknowledged_rows(rows: DataFrame, differing: DataFrame) -> DataFrame:
    cut = cut_by_bucket(rows, "first_number", "last_number").join(differing, [*_BUCKET], "left_semi")
    told = f.when(f.col("first_sequence") > 0, f.col("first_sequence") + f.col("number") - f.col("first_number"))
    numbers = each_of(cut, "first_number", "last_number", "number")
    return numbers.select(*_SOURCE, "number", told.alias("told_sequence"))


def _journal_rows(rows: DataFrame, differing: DataFrame) -> DataFrame:
    found = rows.withColumn("bucket", bucket_of("number")).join(differing, [*_BUCKET], "left_semi")
    return found.select(
        *_SOURCE, "number", f.col("digest").alias("journal_digest"), f.col("sequence").alias("journal_sequence")
    )


_READ = {Kind.OFFERED: _offered_rows, Kind.ACKNOWLEDGED: _acknowledged_rows, Kind.JOURNAL: _journal_rows}


def _findings(there: list[Kind], numbers: DataFrame) -> DataFrame | None:
    has_offered, has_acknowledged, has_journal = (kind in there for kind in _READ)
    journaled, told = _first("journal_sequences"), _first("told_sequences")
    found: list[Column] = []
    if has_acknowledged and has_journal:
        found += [
            violation("lost", "acknowledged > 0 AND journal = 0", f.lit("acknowledged, not in the journal"), told),
            violation(
                "other-sequence",
                "journal > 0 AND size(array_except(told_sequences, journal_sequences)) > 0",
                f.concat(f.lit("acknowledged at "), _listed("told_sequences")),
                journaled,
            ),
        ]
    if has_offered:
        where = f.when(f.col("journal") > 0, "in the journal").otherwise("acknowledged")
        found.append(violation("unoffered", "offered = 0", where, f.coalesce(journaled, told)))
    if has_offered and has_journal:
        differ = "offered > 0 AND journal > 0 AND size(array_except(journal_digests, offered_digests)) > 0"
        detail = f.format_string(
            "offered with digest %s, in the journal with %s", _listed("offered_digests"), _listed("journal_digests")
        )
        found.append(violation("other-bytes", differ, detail, journaled))
    if has_offered and has_acknowledged and has_journal:
        in_doubt = "offered > 0 AND acknowledged = 0"
        goes_on = f.concat(f.lit("the journal goes on to number "), f.col("last_known"))
        taken = f.concat(f.lit("in the journal at "), _listed("journal_sequences"))
        found += [
            violation("hole", f"{in_doubt} AND journal = 0 AND number < last_known", goes_on, f.lit(None)),
            violation("two-outcomes", f"{in_doubt} AND journal > 1", taken, journaled),
        ]
    return found_in(numbers, *found, first_known=f.col("first_known")) if found else None


def _first(name: str) -> Column:
    return f.try_element_at(f.col(name), f.lit(1))


def _listed(name: str) -> Column:
    return f.array_join(name, ", ")
