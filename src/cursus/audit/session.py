"""A Spark session for an audit that brings none of its own."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from cursus.kernel.errors import Unavailable

_OPTIONS: dict[str, bool | float | int | str | None] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    # The passes work on columns: the larger a batch, the less of their time is Python's.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.shuffle.partitions": "8",
}


@contextmanager
def session(master: str, memory: str) -> Iterator[SparkSession]:
    """A session at `master`, its driver with so much memory, stopped at the end. Raises `Unavailable`."""
    # Where nobody says otherwise, Spark's Python is this one: another one may lack what the passes need.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(master).appName("cursus audit").config("spark.driver.memory", memory)
    try:
        spark = builder.config(map=_OPTIONS).getOrCreate()
    except (PySparkException, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise Unavailable("unreachable", f"Spark does not start at {master}, is Java 17 there? {reason}") from error
    spark.sparkContext.setLogLevel("OFF")
    try:
        yield spark
    finally:
        spark.stop()
