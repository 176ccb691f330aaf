"""Order and repeats, without sorting the rows: runs are compared, and only what they repeat or overtake is read again.

A group's runs in the order of their positions: where one begins at or below the greatest number before it, its rows up
to that number are suspects. Each of them was there before (a repeat), or comes after a greater one (out of order).
Where nothing is suspect, every number of the group is there once and in order.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from .summaries import BUCKET_BITS

GROUP: Final = ("stream", "subscription", "source")
_BROADCAST_MAX: Final = 200_000


def small(rows: DataFrame, count: int) -> DataFrame:
    """These rows, sent to every task where they are few: what they are joined with is not shuffled then."""
    return f.broadcast(rows) if count <= _BROADCAST_MAX else rows


def bucket_of(column: Column | str) -> Column:
    """The bucket of a number or a sequence."""
    return f.shiftright(f.col(column) if isinstance(column, str) else column, BUCKET_BITS)


def cut_by_bucket(ranges: DataFrame, first: str, last: str) -> DataFrame:
    """Each range once for every bucket that it touches, in the column `bucket`."""
    return ranges.withColumn("bucket", f.explode(f.sequence(bucket_of(first), bucket_of(last))))


def each_of(cut: DataFrame, first: str, last: str, name: str) -> DataFrame:
    """One row for each number that a cut range has in its bucket, in the column `name`."""
    low = f.greatest(first, f.shiftleft("bucket", BUCKET_BITS))
    high = f.least(last, f.shiftleft(f.col("bucket") + 1, BUCKET_BITS) - 1)
    return cut.withColumn(name, f.explode(f.sequence(low, high)))


def compared(runs: DataFrame) -> DataFrame:
    """Runs with `after`, the greatest number of their group before them, and whether one overlaps the one before it.

    Runs of one life overlap where rows of its file were not written in the order of their positions.
    """
    place = Window.partitionBy(*GROUP).orderBy("life", "first_position", "last_position")
    before = place.rowsBetween(Window.unboundedPreceding, -1)
    overlaps = (f.lag("life").over(place) == f.col("life")) & (
        f.lag("last_position").over(place) > f.col("first_position")
    )
    return runs.select(
        *GROUP,
        "life",
        "count",
        "first_number",
        "last_number",
        "first_position",
        "last_position",
        f.max("last_number").over(before).alias("after"),
        f.coalesce(overlaps, f.lit(False)).alias("overlaps"),
    )


def disorder_of(rows: DataFrame, suspects: DataFrame, suspect_count: int) -> DataFrame:
    """What the suspects and their likes are, with `occurrence`, from 1, and `after` where a greater number came before.

    `rows` have the columns of GROUP, life, position and number, and whatever else is wanted. Occurrence 1 with an
    `after` is out of order; every other occurrence is a repeat.
    """
    ranges = suspects.select(
        *GROUP,
        f.col("life").alias("run_life"),
        f.col("first_position").alias("run_first"),
        f.col("last_position").alias("run_last"),
        f.col("first_number").alias("low"),
        f.least("last_number", "after").alias("high"),
        "after",
    )
    # Two rows that are the same in every column are two all the same.
    numbered = rows.withColumns({"bucket": bucket_of("number"), "row": f.monotonically_increasing_id()})
    in_run = (f.col("life") == f.col("run_life")) & f.col("position").between(f.col("run_first"), f.col("run_last"))
    # A row is in one run at most: the greatest `after` is that of its own, or null where it is no suspect itself.
    read = (
        numbered.join(small(cut_by_bucket(ranges, "low", "high"), suspect_count), [*GROUP, "bucket"])
        .where(f.col("number").between(f.col("low"), f.col("high")))
        .groupBy(*rows.columns, "row")
        .agg(f.max(f.when(in_run, f.col("after"))).alias("after"))
    )
    occurrence = f.row_number().over(Window.partitionBy(*GROUP, "number").orderBy("life", "position"))
    return read.withColumn("occurrence", occurrence)


def sorted_rows(rows: DataFrame, *order: str) -> DataFrame:
    """A side that was not written in order, sorted."""
    return rows.repartitionByRange(*order).sortWithinPartitions(*order)
