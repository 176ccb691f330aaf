"""Topics are streams: Spark reads what clients put through a proxy, and what Spark writes reaches those that get."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Event

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StreamingQuery

from tests.processes import beside, free_port
from tests.system.serving_topics import ServedProxy, Server
from tests.transcripts.pages import blocks_in
from veredus.kernel.errors import Unavailable
from veredus.topics import Client

from .conftest import PATIENCE_SECONDS, SparkEnd, numbered

pytestmark = pytest.mark.spark

PAGE, DOOR = "docs/how-to/topics.md", "veredus://127.0.0.1:46361"
LIFE_S = 300.0
COUNTER = re.compile(r"\b\d{16}\b")
BUNDLE = 650
"""Two of them are more than fit into one of Spark's partitions here."""


class Service:
    """Owns a server of topics behind a proxy, and a second server of which the proxy knows nothing."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        # A topic is given to the server with the lower id.
        first, second = sorted(f"127.0.0.1:{free_port()}" for _ in range(2))
        options = ("--set", "topics.period=100ms", "--set", f"topics.servers={first}")
        self.proxy = ServedProxy(directory, *options, life_s=LIFE_S)
        settings = {"TOPICS_LISTEN": first, "TOPICS_PROXIES": self.proxy.address}
        self.server = Server(directory / "first", settings, life_s=LIFE_S)
        self.other = Server(directory / "second", {"TOPICS_LISTEN": second}, life_s=LIFE_S)

    def start(self) -> None:
        for served in (self.server.served, self.other.served):
            served.spawn()
        self.proxy.start()
        for server in (self.server, self.other):
            server.wait()
        with self.client("first", self._directory) as first:
            self.proxy.wait_for(lambda: self._is_known_to(first))

    def _is_known_to(self, client: Client) -> bool:
        """Whether the proxy has heard of the server."""
        with suppress(Unavailable):
            client.subscribe("known")
            return True
        return False

    def end(self) -> None:
        self.proxy.end()
        self.server.end()
        self.other.end()

    def client(self, name: str, directory: Path) -> Client:
        return Client(name, proxies=[self.proxy.address], directory=directory, answer_s=1)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    service = Service(tmp_path_factory.mktemp("service"))
    try:
        service.start()
        yield service
    finally:
        service.end()


@pytest.fixture
def end(spark: SparkSession, service: Service, stream: str, tmp_path: Path) -> SparkEnd:
    """Spark's end of a topic that no other test knows."""
    return SparkEnd(spark, service.server.served.address, stream, tmp_path)


def got_by(client: Client, topic: str) -> list[str]:
    """The bodies of all that there is to get, one alone and then as many as come at once; each under its own id."""
    first = client.get(topic, wait_s=PATIENCE_SECONDS)
    assert first is not None
    messages = [first]
    while more := client.get_many(topic):
        messages += more
    assert len({message.id for message in messages}) == len(messages)
    return [message.body.decode() for message in messages]


def wait_for_batches(query: StreamingQuery, count: int) -> None:
    """Until so many batches with rows are done."""
    while sum(progress["numInputRows"] > 0 for progress in query.recentProgress) < count:
        assert not query.awaitTermination(0.05), "it ended"


def test_a_batch_read_has_each_put_once_in_order_with_its_client_and_its_counter(
    service: Service, end: SparkEnd, tmp_path: Path
) -> None:
    told: list[tuple[str, int, str]] = []
    with service.client("bob", tmp_path) as bob, service.client("carol", tmp_path) as carol:
        for client in (bob, carol, bob, carol):
            last = max((counter for name, counter, _ in told if name == client.id), default=0)
            bodies = [f"{client.id} {counter}" for counter in range(last + 1, last + 1 + BUNDLE)]
            client.put_many(end.stream, [body.encode() for body in bodies[:-1]])
            client.put(end.stream, bodies[-1].encode())
            told += [(client.id, counter, body) for counter, body in enumerate(bodies, last + 1)]
    rows = end.read(
        "sequence bigint, source string, number bigint, key string, body string, append_time timestamp,"
        " `put-client` string, `put-counter` bigint",
        rowsPerPartition=1024,
    )
    read = rows.withColumn("partition", f.spark_partition_id()).collect()
    assert len({row.partition for row in read}) > 2
    assert [row.sequence for row in read] == list(range(1, 4 * BUNDLE + 1))
    firsts = {name: min(row.number for row in read if row.source == name) for name in ("bob", "carol")}
    assert [(row.source, row.number - firsts[row.source] + 1, row.body) for row in read] == told
    assert min(firsts.values()) > 10**15, "the first counter is the time, in microseconds"
    assert {(row.key, row["put-client"], row["put-counter"]) for row in read} == {("", None, None)}
    assert all(row.append_time is not None for row in read)


def test_what_came_from_another_server_says_in_attributes_who_put_it_there(
    service: Service, end: SparkEnd, tmp_path: Path
) -> None:
    with service.client("alice", tmp_path) as alice:
        alice.subscribe(end.stream)
        assert service.other.ask(f"SUBSCRIBE alice {end.stream}").status == "OK"
        assert service.other.ask(f"PUT carol {end.stream} 7", b"elsewhere").status == "OK"
        alice.put(end.stream, b"here")
        merged = service.other.ask(f"MERGE {service.proxy.address} {end.stream} {service.server.address}")
        assert merged.status == "OK"
        got = [alice.get(end.stream, wait_s=PATIENCE_SECONDS) for _ in range(2)]
        assert [message.body for message in got if message is not None] == [b"here", b"elsewhere"]
    rows = end.read(attributes="`put-client` string, `put-counter` bigint, `appended-us` bigint")
    columns = rows.select("source", "number", "put-client", "put-counter", "body", f.col("appended-us").isNotNull())
    here, elsewhere = (tuple(row) for row in columns.collect())
    assert (here[0], *here[2:]) == ("alice", None, None, b"here", False)
    assert elsewhere == (None, None, "carol", 8, b"elsewhere", True), "a number is one more than the counter"
    assert end.read(attributes="`put-counter` bigint", where='"put-counter" = 8').count() == 1


def test_a_streaming_query_reads_each_put_once_though_the_server_is_killed_meanwhile(
    service: Service, end: SparkEnd, tmp_path: Path
) -> None:
    put: list[str] = []
    is_over = Event()

    def put_on(client: Client) -> None:
        is_in_doubt = False
        while is_in_doubt or not is_over.is_set():
            is_in_doubt = True
            with suppress(Unavailable):
                client.put(end.stream, str(len(put)).encode())
                put.append(str(len(put)))
                is_in_doubt = False

    writer = end.read_stream("sequence bigint, body string, source string").writeStream.format("parquet")
    with service.client("bob", tmp_path) as bob:
        bob.put(end.stream, b"0")
        put.append("0")
        writer = writer.option("checkpointLocation", str(end.directory / "checkpoint"))
        query = writer.start(str(end.directory / "parquet"))
        try:
            with beside(put_on, bob):
                wait_for_batches(query, 1)
                service.server.kill()
                wait_for_batches(query, 3)
                is_over.set()
            query.processAllAvailable()
        finally:
            is_over.set()
            query.stop()
    read = end.parquet().orderBy("sequence").collect()
    assert [row.sequence for row in read] == list(range(1, len(put) + 1))
    assert [row.body for row in read] == put
    assert {row.source for row in read} == {"bob"}


def test_what_spark_writes_to_a_topic_is_got_once_by_each_who_is_subscribed(
    service: Service, end: SparkEnd, tmp_path: Path
) -> None:
    with service.client("alice", tmp_path) as alice, service.client("dave", tmp_path) as dave:
        for client in (alice, dave):
            client.subscribe(end.stream)
        end.write(numbered(end, 3000, parts=4))
        got = got_by(alice, end.stream)
        assert sorted(got, key=int) == [str(number) for number in range(3000)]
        service.server.kill()
        assert got_by(dave, end.stream) == got
        alice.put(end.stream, b"put")
        assert got_by(alice, end.stream) == got_by(dave, end.stream) == ["put"]


def test_what_the_page_on_topics_types_for_spark_does_what_it_shows(
    service: Service, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    read, write = (block for block in blocks_in(PAGE, "python") if "spark" in block)
    names: dict[str, object] = {"spark": spark}
    with service.client("bob", tmp_path) as bob, service.client("alice", tmp_path) as alice:
        bob.put("prices", b"EWR 12.5")
        bob.put("prices", b"EWR 12.7")
        alice.subscribe("prices")
        exec(read.replace(DOOR, service.server.served.address), names)
        shown, on_page = capsys.readouterr().out, blocks_in(PAGE, "text")[0]
        first, second = (int(counter) for counter in COUNTER.findall(shown))
        assert second == first + 1
        assert COUNTER.sub("counter", shown).split() == COUNTER.sub("counter", on_page).split()
        exec(write.replace(DOOR, service.server.served.address), names)
        assert sorted(got_by(alice, "prices")) == ["EWR 13.0", "JFK 2"]
