"""The Python of the page on Spark runs, block after block, and does what the page says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from tests.spark.conftest import node as node
from tests.spark.conftest import spark as spark
from tests.transcripts.pages import ROOT, blocks_in
from veredus import Embedded

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PAGE = "docs/how-to/spark.md"
FORMAT, ADDRESS = '.format("veredus")', "veredus://127.0.0.1:7071"


class Shell:
    """What a reader has typed so far; the page's node and the page's directory are the test's."""

    def __init__(self, spark: SparkSession, node: Embedded, directory: Path) -> None:
        self.names: dict[str, Any] = {"spark": spark}
        self.address = node.served.address
        self.directory = directory

    def type(self, block: str) -> None:
        """Run a block; one that begins with a dot belongs into a read."""
        if block.startswith("."):
            of_stream = "" if '"streams"' in block else '.option("stream", "trades")'
            block = f"rows = spark.read{FORMAT}{of_stream}{block.rstrip()}.load()"
        assert FORMAT in block
        block = block.replace(ADDRESS, self.address).replace("/data/", f"{self.directory}/")
        exec(block.replace(FORMAT, f'{FORMAT}.option("address", "{self.address}")'), self.names)


def bodies_of(node: Embedded, stream: str) -> list[bytes]:
    with node.subscribe(stream, until=node.streams.show(stream)["head"] + 1) as subscription:
        return [publication.body for publication in subscription]


def finish_queries(spark: SparkSession) -> None:
    (query,) = spark.streams.active
    query.processAllAvailable()
    query.stop()


def columns_on_page() -> list[str]:
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    table = text[text.index("| column | type |") :].partition("\n\n")[0]
    cells = re.findall(r"^\| (`[^|]*) \|", table, re.MULTILINE)
    return [name for cell in cells for name in re.findall(r"`(\w+)`", cell)]


def test_what_the_page_on_spark_types_does_what_it_says(
    spark: SparkSession, node: Embedded, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with node.publisher("trades", source="desk") as publisher:
        for number in range(1, 4):
            publisher.publish("k", b"%d" % number, attributes={"quote": number / 2, "venue": "EWR"})
        publisher.publish("k", b"4")
    reads, attributes, schema, several, streams, lag, writes, names_it = blocks_in(PAGE, "python")
    shell = Shell(spark, node, tmp_path)

    shell.type(reads)
    assert ["stream", *shell.names["trades"].columns] == columns_on_page(), "`stream` is there for several streams"
    assert re.search(r"\|\s*desk\|\s*4\|", capsys.readouterr().out)
    shell.type(attributes)
    found = shell.names["rows"].select("sequence", "quote", "venue").collect()
    assert [tuple(row) for row in found] == [(1, 0.5, "EWR"), (2, 1.0, "EWR"), (3, 1.5, "EWR"), (4, None, None)]
    shell.type(schema)
    assert shell.names["rows"].columns == ["key", "event_time", "quote"]

    for name in ("trades.eu", "quotes"):
        with node.publisher(name) as publisher:
            publisher.publish("k", name.encode())
    shell.type(several)
    assert sorted(row.stream for row in shell.names["rows"].collect()) == ["quotes", "trades.eu"]

    shell.type(streams)
    finish_queries(spark)
    exec(lag, shell.names)
    assert sorted(row.body for row in spark.read.parquet(str(tmp_path / "trades")).collect()) == ["1", "2", "3", "4"]

    of_node = spark.readStream.format("veredus").options(address=shell.address, stream="trades")
    shell.names["delays"] = of_node.schema("key string, body string").load()
    shell.type(writes)
    finish_queries(spark)
    assert sorted(bodies_of(node, "delays")) == [b"1", b"2", b"3", b"4"]

    shell.names["day"] = spark.createDataFrame([("k", "the day")], "key string, body string")
    for _ in range(2):
        shell.type(names_it)
    assert bodies_of(node, "daily") == [b"the day"]
    with pytest.raises(AnalysisException, match="commit-id-behind"):
        shell.type(re.sub(r"\d{8}", "20240430", names_it))
    assert bodies_of(node, "daily") == [b"the day"]
