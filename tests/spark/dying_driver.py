"""A Spark driver that is killed at a boundary of the sink, once: run as a process by test_crashes.

    python dying_driver.py ADDRESS STREAM TARGET DIRECTORY BOUNDARY

BOUNDARY: `staging` (a task has staged half of its rows), `staged` (a task is done), `committing` (before the node is
asked to commit), `committed` (before Spark hears that the node has), or `none`. A file in DIRECTORY remembers that it
was reached, so that the next run gets past it.
"""

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from veredus.spark.options import WriteOptions, write_options
from veredus.spark.source import VeredusDataSource
from veredus.spark.staging import StagedRows
from veredus.spark.writer import StageStreamWriter


class DyingWriter(StageStreamWriter):
    """The sink's writer, with a killer at its boundaries."""

    def __init__(self, options: WriteOptions, driver: int, directory: str, boundary: str) -> None:
        super().__init__(options)
        self._driver = driver
        self._directory = directory
        self._boundary = boundary

    def _reach(self, boundary: str) -> None:
        marker = Path(self._directory) / f"reached-{boundary}"
        if boundary == self._boundary and not marker.exists():
            marker.touch()
            os.killpg(self._driver, signal.SIGKILL)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedRows:
        def halved() -> Iterator[pa.RecordBatch]:
            for batch in iterator:
                half = batch.num_rows // 2
                yield batch.slice(0, half)
                self._reach("staging")
                yield batch.slice(half)

        staged = super().write(chain(halved()))
        self._reach("staged")
        return staged

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        self._reach("committing")
        super().commit(messages, batchId)
        self._reach("committed")


class DyingSource(VeredusDataSource):
    """The data source, with such a writer."""

    @classmethod
    def name(cls) -> str:
        return "dying"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DyingWriter:  # noqa: N802 - Spark's name
        given = dict(self.options)
        driver, directory, boundary = int(given.pop("driver")), given.pop("directory"), given.pop("boundary")
        return DyingWriter(write_options(given), driver, directory, boundary)


def main() -> None:
    """One run: everything that is there now, three rows in a batch's hundred."""
    address, stream, target, directory, boundary = sys.argv[1:]
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    spark.dataSource.register(DyingSource)
    rows = (
        spark.readStream.format("veredus")
        .options(address=address, stream=stream, maxRowsPerTrigger=2048, rowsPerPartition=1024)
        .schema("key string, body string")
        .load()
    )
    writer = rows.writeStream.format("dying").option("checkpointLocation", f"{directory}/checkpoint")
    writer = writer.options(address=address, stream=target, driver=os.getpid(), directory=directory, boundary=boundary)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
