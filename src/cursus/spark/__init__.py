"""Cursus as a data source of Spark: `format("cursus")`, batch and streaming, reading and writing.

Spark finds it by itself where the package is installed; `register(spark)` makes it known to one session in any case.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from .source import CursusDataSource

__all__ = ["CursusDataSource", "register"]


def register(spark: SparkSession) -> None:
    """Make the format `cursus` known to this session."""
    spark.dataSource.register(CursusDataSource)
