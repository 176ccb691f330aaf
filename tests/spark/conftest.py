"""A Spark session and a node inside the tests' process; every test has streams of its own."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import veredus
from veredus import Embedded

_numbers = count(1)
PATIENCE_SECONDS = 180


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Two cores, and three attempts for each task."""
    session = (
        SparkSession.builder.master("local[2,3]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.memory", "1g")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(scope="module")
def node() -> Iterator[Embedded]:
    with veredus.embedded(journal={"sync": "none"}) as node:
        yield node


@pytest.fixture
def stream() -> str:
    """The name of a stream that no other test knows."""
    return f"stream-{next(_numbers)}"


class SparkEnd:
    """What a test does with one stream from Spark's end."""

    def __init__(self, spark: SparkSession, address: str, stream: str, directory: Path) -> None:
        self.spark = spark
        self.address = address
        self.stream = stream
        self.directory = directory

    def options(self, **options: object) -> dict[str, str]:
        """These options, and where the stream is."""
        return {"address": self.address, "stream": self.stream} | {name: str(value) for name, value in options.items()}

    def read(self, schema: str | None = None, **options: object) -> DataFrame:
        """The stream as a DataFrame."""
        reader = self.spark.read.format("veredus").options(**self.options(**options))
        return (reader if schema is None else reader.schema(schema)).load()

    def read_stream(self, schema: str | None = None, **options: object) -> DataFrame:
        """The stream as a streaming DataFrame."""
        reader = self.spark.readStream.format("veredus").options(**self.options(**options))
        return (reader if schema is None else reader.schema(schema)).load()

    def write(self, rows: DataFrame, stream: str | None = None, mode: str = "append", **options: object) -> None:
        """Write a DataFrame to a stream."""
        given = self.options(**({"stream": stream or self.stream} | options))
        rows.write.format("veredus").mode(mode).options(**given).save()

    def start(
        self, rows: DataFrame, to: str | None = None, checkpoint: str = "checkpoint", **options: object
    ) -> StreamingQuery:
        """Start a query that writes to stream `to`, or to Parquet, what there is now, and then ends."""
        writer = rows.writeStream.option("checkpointLocation", str(self.directory / checkpoint)).trigger(
            availableNow=True
        )
        if to is None:
            return writer.format("parquet").start(str(self.directory / "parquet"))
        return writer.format("veredus").options(**self.options(**({"stream": to} | options))).start()

    def run(self, rows: DataFrame, to: str | None = None, **options: object) -> StreamingQuery:
        """As `start`, and wait for its end. Raises what ended it."""
        query = self.start(rows, to, **options)
        if not query.awaitTermination(PATIENCE_SECONDS):
            query.stop()
            raise AssertionError("the query did not end")
        return query

    def parquet(self) -> DataFrame:
        """What a query wrote to Parquet."""
        return self.spark.read.parquet(str(self.directory / "parquet"))


class Rig(SparkEnd):
    """What a test does with one stream from both ends."""

    def __init__(self, spark: SparkSession, node: Embedded, stream: str, directory: Path) -> None:
        super().__init__(spark, node.served.address, stream, directory)
        self.node = node

    def publish(self, count: int, source: str = "desk", first: int = 0, **attributes: list[object]) -> None:
        """Publish bodies `first` and so on, keys `k0` to `k9` in turn."""
        with self.node.publisher(self.stream, source=source) as publisher:
            for index in range(count):
                values = {name: column[index] for name, column in attributes.items()}
                publisher.publish(f"k{index % 10}", str(first + index), attributes=values or None)

    def bodies(self, stream: str | None = None) -> list[str]:
        """The bodies of a stream, read by the client, in order."""
        name = stream or self.stream
        head = self.node.streams.show(name)["head"]
        with self.node.subscribe(name, start=veredus.beginning(), until=head + 1) as subscription:
            return [publication.body.decode() for publication in subscription]


def numbered(end: SparkEnd, count: int, parts: int = 2) -> DataFrame:
    """`count` rows whose bodies are their numbers, in so many partitions."""
    return end.spark.range(0, count, 1, parts).selectExpr("cast(id as string) as body", "concat('k', id % 10) as key")


@pytest.fixture
def rig(spark: SparkSession, node: Embedded, stream: str, tmp_path: Path) -> Rig:
    return Rig(spark, node, stream, tmp_path)
