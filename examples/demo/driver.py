"""The Spark driver: one session, two streaming queries on one stream, each exactly once through any crash.

*archive* writes every flight to Parquet. *statistics* counts flights, cancellations and delays per hour and origin and
writes them, once an hour is closed by the watermark, to a second stream.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from board import AGGREGATED, ARCHIVED, FINISH_AT, FINISHED, Board
from flights import CLOSING_TIME, WATERMARK, carriers_of, open_flights
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StreamingQuery

from veredus.spark import read_to_of, register

FLIGHT = """
    source string, number bigint, sequence bigint, key string, body string, event_time timestamp,
    origin string, dest string, carrier string, flight bigint, dep_delay bigint, arr_delay bigint, distance bigint,
    is_cancelled boolean
"""
POLL_SECONDS = 0.25


def new_session(directory: Path) -> SparkSession:
    """A session for two small queries on two cores."""
    return (
        SparkSession.builder.master("local[2]")
        .appName("flights")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "1g")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.streaming.stateStore.minDeltasForSnapshot", "20")
        .config("spark.sql.warehouse.dir", str(directory / "warehouse"))
        .getOrCreate()
    )


def flights(spark: SparkSession, arguments: argparse.Namespace, columns: str) -> DataFrame:
    """The stream of flights, with the columns of the DDL `columns`."""
    return (
        spark.readStream.format("veredus")
        .option("address", arguments.address)
        .option("stream", arguments.stream)
        .schema(columns)
        .load()
    )


def start_archive(spark: SparkSession, arguments: argparse.Namespace) -> StreamingQuery:
    """Every flight to Parquet."""
    return (
        flights(spark, arguments, FLIGHT)
        .where(f.col("event_time") < f.lit(CLOSING_TIME))
        .writeStream.format("parquet")
        .queryName("archive")
        .option("path", str(arguments.directory / "archive"))
        .option("checkpointLocation", str(arguments.directory / "checkpoints" / "archive"))
        .trigger(processingTime="1 second")
        .start()
    )


def start_statistics(spark: SparkSession, arguments: argparse.Namespace) -> StreamingQuery:
    """Delays per hour and origin to the second stream, each hour once the watermark has closed it."""
    hours = (
        flights(spark, arguments, "event_time timestamp, origin string, dep_delay bigint, is_cancelled boolean")
        .withWatermark("event_time", f"{WATERMARK.days} days")
        .where(f.col("event_time") < f.lit(CLOSING_TIME))
        .groupBy(f.window("event_time", "1 hour"), "origin")
        .agg(
            f.count("*").alias("flights"),
            f.sum(f.col("is_cancelled").cast("bigint")).alias("cancelled"),
            f.sum("dep_delay").alias("delay_sum"),
            f.max("dep_delay").alias("delay_max"),
        )
    )
    named = hours.select(
        f.concat_ws(".", "origin", f.date_format("window.start", "yyyy-MM-dd'T'HH")).alias("key"),
        f.to_json(f.struct("origin", "flights", "cancelled", "delay_sum", "delay_max")).alias("body"),
        f.col("window.start").alias("event_time"),
        "origin",
        "flights",
        "cancelled",
        "delay_sum",
        "delay_max",
    )
    return (
        named.writeStream.format("veredus")
        .queryName("statistics")
        .option("address", arguments.address)
        .option("stream", arguments.statistics)
        .option("checkpointLocation", str(arguments.directory / "checkpoints" / "statistics"))
        .trigger(processingTime="1 second")
        .start()
    )


def note(what: str) -> None:
    """A line in the driver's log."""
    print(f"{datetime.now(UTC):%H:%M:%S.%f} {what}", flush=True)


def note_batches(query: StreamingQuery, noted: dict[str, int]) -> None:
    """Lines in the log for the query's micro-batches since the last time."""
    for progress in query.recentProgress:
        if progress["batchId"] > noted.get(query.name, -1):
            noted[query.name] = progress["batchId"]
            rows, took_ms = progress["numInputRows"], progress["durationMs"]
            note(f"{query.name} batch {progress['batchId']}: {rows} rows, ms {took_ms}")


def check_alive(query: StreamingQuery) -> None:
    """Raise what ended the query, if anything did."""
    error = query.exception()
    if error is not None:
        raise error


def main() -> int:
    """Run both queries until the conductor names the last sequence and both are through with it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--address", required=True)
    parser.add_argument("--stream", required=True)
    parser.add_argument("--statistics", required=True)
    parser.add_argument("--directory", type=Path, required=True)
    arguments = parser.parse_args()
    board = Board(arguments.directory / "board", carriers_of(open_flights(arguments.directory / "flights.arrow")))
    note("starting")
    spark = new_session(arguments.directory)
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    note("session is there")
    noted: dict[str, int] = {}
    queries = {ARCHIVED: start_archive(spark, arguments), AGGREGATED: start_statistics(spark, arguments)}
    note("queries started")
    finish_at = 0

    def position_of(query: StreamingQuery) -> int:
        return read_to_of(query.lastProgress).get(arguments.stream, 0)

    while not finish_at or any(position_of(query) < finish_at for query in queries.values()):
        for field, query in queries.items():
            check_alive(query)
            note_batches(query, noted)
            board.write(field, max(board.read(field), position_of(query)))
        finish_at = board.read(FINISH_AT)
        time.sleep(POLL_SECONDS)
    for field, query in queries.items():
        query.processAllAvailable()
        board.write(field, position_of(query))
        note_batches(query, noted)
        query.stop()
    files = spark.read.parquet(str(arguments.directory / "archive")).inputFiles()
    (arguments.directory / "archive.json").write_text(json.dumps(sorted(files)))
    board.write(FINISHED, 1)
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
