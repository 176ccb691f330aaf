"""Spark beside a node: how fast it reads a stream, and how fast it writes one."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.contender import Effort
from benchmarks.contenders import serving

_ROWS_PER_SECOND: Final = 1_000_000
_KEYS: Final = [b"key.%02d" % index for index in range(100)]


@dataclass(frozen=True, slots=True)
class Spark:
    """Batch queries on `local[2]`, the second run of each, beside the node on the same cores."""

    name: str = "veredus-spark"
    mode: str = (
        "PySpark on `local[2]`, batch reads and a batch write, 100-byte bodies; each query once to warm up, and then "
        "measured; count and sum: of sequence numbers and sizes of bodies"
    )
    rounds_max: int = 3
    timeout_s: float = 240.0

    def missing(self) -> str | None:
        """What is not installed, with what to do about it, or None."""
        if importlib.util.find_spec("pyspark") is None:
            return "the Python package pyspark (make setup)"
        java = os.environ.get("JAVA_HOME")
        return None if java or shutil.which("java") else "a Java runtime (make setup; run it by make bench)"

    def versions(self) -> Mapping[str, str]:
        """The versions of Spark and of Veredus."""
        return {**serving.versions(), "pyspark": importlib.metadata.version("pyspark")}

    def measure(self, workdir: Path, effort: Effort) -> Mapping[str, float]:
        """Rows a second of each of three queries."""
        import veredus

        node = serving.start_node(workdir, workdir / "journal", {})
        try:
            with veredus.connect(serving.url(node.address)) as connection:
                count = serving.fill(connection, "bench", round(_ROWS_PER_SECOND * effort.seconds), _KEYS)
            return _measure(workdir, serving.url(node.address), count)
        finally:
            node.stop()


def _measure(workdir: Path, address: str, count: int) -> Mapping[str, float]:
    from pyspark.sql import SparkSession, functions

    from veredus.spark import register

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark: Any = builder.config("spark.local.dir", str(workdir / "spark")).getOrCreate()
    try:
        register(spark)

        def rows() -> Any:
            return spark.read.format("veredus").option("address", address).option("stream", "bench").load()

        def count_and_sum() -> None:
            sums = [functions.count("*"), functions.sum("sequence"), functions.sum(functions.length("body"))]
            found = rows().agg(*sums).first()
            if found[0] != count:
                raise RuntimeError(f"{found[0]} rows read, {count} expected")

        def to_parquet() -> None:
            rows().write.mode("overwrite").parquet(str(workdir / "parquet"))

        made = spark.range(count).selectExpr(
            "cast('key' as binary) as key", "cast(lpad(id, 100, 'x') as binary) as body"
        )

        def to_stream() -> None:
            made.write.format("veredus").mode("append").option("address", address).option("stream", "written").save()

        return {
            "count_rows_hz": count / _seconds(count_and_sum),
            "parquet_rows_hz": count / _seconds(to_parquet),
            "sink_rows_hz": count / _seconds(to_stream),
        }
    finally:
        spark.stop()


def _seconds(query: Callable[[], None]) -> float:
    query()
    start_s = time.perf_counter()
    query()
    return time.perf_counter() - start_s
