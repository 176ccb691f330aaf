"""A Spark driver that is killed at a boundary of the sink, once: run as a process by test_crashes.

    python dying_driver.py KIND ADDRESS STREAM TARGET DIRECTORY BOUNDARY

KIND: `stream` (a streaming query), `nameless` (a plain write) or `named` (a plain write with a sink and a commit id).
BOUNDARY: `planned` (a plain write has its run, and no task has begun), `staging` (a task has staged half of its rows),
`staged` (a task is done), `committing` (before the node is asked to commit), `committed` (before Spark hears that the
node has), or `none`. A file in DIRECTORY remembers that it was reached, so that the next run gets past it.
"""

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from veredus.spark.options import write_options
from veredus.spark.source import VeredusDataSource
from veredus.spark.writer import StageStreamWriter, StageWriter


@dataclass
class Killer:
    """Kills the driver, and the process that reaches the boundary, which Spark put into a group of its own."""

    driver: int
    kind: str
    directory: str
    boundary: str

    def reach(self, boundary: str) -> None:
        marker = Path(self.directory) / f"reached-{self.kind}-{boundary}"
        if boundary == self.boundary and not marker.exists():
            marker.touch()
            os.killpg(self.driver, signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)

    def halved(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            half = batch.num_rows // 2
            yield batch.slice(0, half)
            self.reach("staging")
            yield batch.slice(half)


class DyingWriter(DataSourceStreamArrowWriter, DataSourceArrowWriter):
    """The sink's writer, with a killer at its boundaries."""

    def __init__(self, writer: StageWriter | StageStreamWriter, killer: Killer) -> None:
        self._writer = writer
        self._killer = killer

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        staged = self._writer.write(chain(self._killer.halved(iterator)))
        self._killer.reach("staged")
        return staged

    def commit(self, messages: Sequence[WriterCommitMessage | None], *batch_id: int) -> None:
        self._killer.reach("committing")
        if isinstance(self._writer, StageWriter):
            # A plain write removes its sink, where that has no name, once it is committed: it is killed before.
            be_done = self._writer._be_done
            self._writer._be_done = lambda: (self._killer.reach("committed"), be_done())  # type: ignore[method-assign, assignment]
        self._writer.commit(messages, *batch_id)
        self._killer.reach("committed")

    def abort(self, messages: Sequence[WriterCommitMessage | None], *batch_id: int) -> None:
        self._writer.abort(messages, *batch_id)


class DyingSource(VeredusDataSource):
    """The data source, with such writers."""

    @classmethod
    def name(cls) -> str:
        return "dying"

    def writer(self, schema: StructType, overwrite: bool) -> DyingWriter:  # type: ignore[override]
        killer, given = self._parted()
        writer = StageWriter.opened(write_options(given))
        killer.reach("planned")
        return DyingWriter(writer, killer)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DyingWriter:  # type: ignore[override]  # noqa: N802
        killer, given = self._parted()
        return DyingWriter(StageStreamWriter(write_options(given)), killer)

    def _parted(self) -> tuple[Killer, dict[str, str]]:
        given = dict(self.options)
        kind, directory, boundary = (given.pop(name) for name in ("kind", "directory", "boundary"))
        return Killer(int(given.pop("driver")), kind, directory, boundary), given


def write_as_stream(rows: DataFrame, options: dict[str, str]) -> None:
    """Everything that is there now, micro-batch by micro-batch."""
    writer = rows.writeStream.format("dying").option("checkpointLocation", f"{options['directory']}/checkpoint")
    writer.options(**options).trigger(availableNow=True).start().awaitTermination()


def main() -> None:
    """One run."""
    kind, address, stream, target, directory, boundary = sys.argv[1:]
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    spark.dataSource.register(DyingSource)
    reader = spark.readStream if kind == "stream" else spark.read
    limit = {"maxRowsPerTrigger": "2048"} if kind == "stream" else {}
    reader = reader.format("veredus").options(address=address, stream=stream, rowsPerPartition="1024", **limit)
    rows = reader.schema("key string, body string").load()
    options = {"address": address, "stream": target, "driver": str(os.getpid()), "kind": kind}
    options |= {"directory": directory, "boundary": boundary}
    if kind == "stream":
        write_as_stream(rows, options)
    else:
        named = {"sink": "nightly", "commitId": "1"} if kind == "named" else {}
        rows.write.format("dying").mode("append").options(**options, **named).save()
    spark.stop()


if __name__ == "__main__":
    main()
