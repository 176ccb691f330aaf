"""Where a query of several streams begins in each of them, also in one that is new, without a Spark session."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import LongType, StringType, StructField, StructType

import veredus
from veredus import Embedded
from veredus.kernel.errors import Refused
from veredus.spark import connections, reader
from veredus.spark.reader import BlockStreamReader
from veredus.spark.source import VeredusDataSource

SCHEMA = StructType([StructField("stream", StringType()), StructField("sequence", LongType())])
Open = Callable[..., BlockStreamReader]


@pytest.fixture
def several(node: Embedded, stream: str, monkeypatch: pytest.MonkeyPatch) -> Open:
    """Makes streaming readers of the streams below the test's, which look for new ones at once."""
    monkeypatch.setattr(reader, "LOOK_SECONDS", 0.0)

    def opened(streams: str = "*", **options: object) -> BlockStreamReader:
        given = {"address": node.served.address, "streams": f"{stream}/{streams}"}
        return VeredusDataSource(given | {name.lower(): str(value) for name, value in options.items()}).streamReader(
            SCHEMA
        )

    return opened


def publish(node: Embedded, stream: str, count: int, source: str = "desk") -> None:
    with node.publisher(stream, source=source) as publisher:
        for index in range(count):
            publisher.publish("k", str(index))


def rows(one: BlockStreamReader, start: Any, end: Any) -> list[tuple[str, int]]:
    batches = (batch for partition in one.partitions(start, end) for batch in one.read(partition))
    return [(row["stream"], row["sequence"]) for batch in batches for row in batch.to_pylist()]


def test_a_new_stream_is_read_from_its_beginning_also_by_a_query_that_began_at_latest(
    node: Embedded, stream: str, several: Open
) -> None:
    a, b, c = (f"{stream}/{letter}" for letter in "abc")
    publish(node, a, 5)
    one = several(startingSequence="latest", subscriber="risk")
    start = one.initialOffset()
    publish(node, a, 1, "later")
    publish(node, b, 2)
    end = one.latestOffset(start, ReadAllAvailable())
    assert rows(one, start, end) == [(a, 6), (b, 1), (b, 2)]
    publish(node, c, 3)
    again = several(startingSequence="latest", subscriber="risk")
    assert rows(again, end, again.latestOffset(end, ReadAllAvailable())) == [(c, 1), (c, 2), (c, 3)]


def test_a_query_that_began_at_latest_and_has_no_batch_yet_reads_what_is_new_since_then(
    node: Embedded, stream: str, several: Open
) -> None:
    a, b, c = (f"{stream}/{letter}" for letter in "abc")
    publish(node, a, 5)
    publish(node, b, 5)
    several("a", startingSequence="latest", subscriber="risk").initialOffset()
    publish(node, c, 3)
    again = several(startingSequence="latest", subscriber="risk")
    start = again.initialOffset()
    assert rows(again, start, again.latestOffset(start, ReadAllAvailable())) == [(c, 1), (c, 2), (c, 3)]


def test_a_first_batch_that_is_planned_again_leaves_a_new_stream_to_the_next(
    node: Embedded, stream: str, several: Open
) -> None:
    a, b = (f"{stream}/{letter}" for letter in "ab")
    publish(node, b, 2)
    one = several()
    end = one.latestOffset(one.initialOffset(), ReadAllAvailable())
    publish(node, a, 3)
    again = several()
    assert rows(again, again.initialOffset(), end) == [(b, 1), (b, 2)]
    assert rows(again, end, again.latestOffset(end, ReadAllAvailable())) == [(a, 1), (a, 2), (a, 3)]


def test_an_idle_query_opens_the_subscription_of_a_new_stream_once(node: Embedded, stream: str, several: Open) -> None:
    publish(node, f"{stream}/a", 2)
    one = several(subscriber="risk")
    end = one.latestOffset(one.initialOffset(), ReadAllAvailable())
    node.streams.create(f"{stream}/b")
    for _ in range(3):
        assert one.latestOffset(end, ReadAllAvailable()) is end
    assert node.subscriptions.show(f"{stream}/b", "risk", "spark")["epoch"] == 1
    node.streams.delete(f"{stream}/b")
    publish(node, f"{stream}/b", 1)
    assert rows(one, end, one.latestOffset(end, ReadAllAvailable())) == [(f"{stream}/b", 1)]


def test_a_stream_that_the_options_no_longer_select_is_not_said_to_be_gone(
    node: Embedded, stream: str, several: Open
) -> None:
    a, b = (f"{stream}/{letter}" for letter in "ab")
    publish(node, a, 1)
    publish(node, b, 1)
    one = several()
    end = one.latestOffset(one.initialOffset(), ReadAllAvailable())
    with pytest.raises(Refused, match=f"the option `streams` does not select '{b}'") as caught:
        several("a").latestOffset(end, ReadAllAvailable())
    assert caught.value.code == "data-loss"
    passed = several("a", failOnDataLoss="false").latestOffset(end, ReadAllAvailable())
    assert rows(several("a"), end, passed) == []


@pytest.fixture
def attached(node: Embedded, stream: str) -> Iterator[veredus.Subscription]:
    """Somebody who is attached to the subscription of a query."""
    publish(node, stream, 10)
    with node.subscribe(stream, subscriber="risk", name="spark") as subscription:
        yield subscription


def test_a_query_waits_until_another_start_of_its_subscriber_lets_go(
    node: Embedded, stream: str, attached: veredus.Subscription, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"address": node.served.address, "stream": stream, "subscriber": "risk", "timeoutseconds": "1"}
    one = VeredusDataSource(given).streamReader(SCHEMA)
    end = one.latestOffset(
        VeredusDataSource(given | {"subscriber": ""}).streamReader(SCHEMA).initialOffset(), ReadAllAvailable()
    )
    with pytest.raises(Refused) as caught:
        one.commit(end)
    assert caught.value.code == "subscription-in-use"
    monkeypatch.setattr(connections.time, "sleep", lambda _: attached.close())
    one.commit(end)
    assert node.subscriptions.show(stream, "risk", "spark")["floor"] == 10


def test_a_batch_read_of_a_stream_that_is_named_and_not_there_is_refused(node: Embedded, stream: str) -> None:
    publish(node, f"{stream}/a", 1)
    for streams, count in ((f"{stream}/* {stream}/none/*", 1), (f"{stream}/a", 1), (f"{stream}/none/>", 0)):
        given = {"address": node.served.address, "streams": streams}
        assert len(VeredusDataSource(given).reader(SCHEMA).partitions()) == count
    given = {"address": node.served.address, "streams": f"{stream}/* {stream}/b"}
    with pytest.raises(Refused, match=f"there is no stream '{stream}/b'") as caught:
        VeredusDataSource(given).reader(SCHEMA).partitions()
    assert caught.value.code == "unknown-stream"
    assert VeredusDataSource(given).streamReader(SCHEMA).initialOffset()["streams"]


def test_an_idle_query_of_many_streams_asks_for_all_at_once(
    node: Embedded, stream: str, several: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    for index in range(20):
        publish(node, f"{stream}/{index}", 1)
    one = several()
    end = one.latestOffset(one.initialOffset(), ReadAllAvailable())
    monkeypatch.setattr(reader, "views_of", None)
    assert one.latestOffset(end, ReadAllAvailable()) is end
