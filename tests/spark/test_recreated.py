"""A stream of several is deleted and created again: its loss is accepted once, and nothing comes twice."""

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import LongType, StringType, StructField, StructType

from veredus import Embedded
from veredus.kernel.errors import Refused
from veredus.spark import reader
from veredus.spark.offsets import offsets_of
from veredus.spark.reader import BlockStreamReader
from veredus.spark.source import VeredusDataSource

from .conftest import Rig

SCHEMA = StructType([StructField("stream", StringType()), StructField("sequence", LongType())])
ALL = ReadAllAvailable()
Open = Callable[..., BlockStreamReader]


@pytest.fixture
def several(node: Embedded, stream: str, monkeypatch: pytest.MonkeyPatch) -> Open:
    """Makes streaming readers of the streams below the test's, which look for new ones at once; not strict: lenient."""
    monkeypatch.setattr(reader, "LOOK_SECONDS", 0.0)

    def opened(is_strict: bool = True, streams: str = "*", **options: str) -> BlockStreamReader:
        given = {"address": node.served.address, "streams": f"{stream}/{streams}"}
        return VeredusDataSource(given | {"failondataloss": str(is_strict)} | options).streamReader(SCHEMA)

    return opened


@pytest.fixture
def names(node: Embedded, stream: str) -> tuple[str, str]:
    """Two streams with some rows."""
    publish(node, f"{stream}/a", 3)
    publish(node, f"{stream}/b", 5)
    return f"{stream}/a", f"{stream}/b"


@pytest.fixture
def end(several: Open, names: tuple[str, str]) -> Any:
    """Behind all rows of both."""
    return several().latestOffset(several().initialOffset(), ALL)


def publish(node: Embedded, stream: str, count: int) -> None:
    with node.publisher(stream) as publisher:
        publisher.publish_many(["k"] * count, ["b"] * count)


def rows(one: BlockStreamReader, start: Any, end: Any) -> list[tuple[str, int]]:
    batches = (batch for partition in one.partitions(start, end) for batch in one.read(partition))
    return [(row["stream"], row["sequence"]) for batch in batches for row in batch.to_pylist()]


def refusal(ask: Callable[[], object]) -> Refused:
    with pytest.raises(Refused) as caught:
        ask()
    return caught.value


def test_a_stream_that_is_made_again_behind_an_accepted_loss_is_read_from_its_beginning(
    node: Embedded, several: Open, names: tuple[str, str], end: Any
) -> None:
    a, b = names
    node.streams.delete(b)
    assert refusal(lambda: several().latestOffset(end, ALL)).code == "data-loss"
    passed = several(is_strict=False).latestOffset(end, ALL)
    assert passed != end, "it is in the checkpoint, though there is nothing to read"
    assert rows(several(), end, passed) == []
    for is_strict in (True, False):
        assert several(is_strict).latestOffset(passed, ALL) is passed
    publish(node, b, 2)
    more = several().latestOffset(passed, ALL)
    assert rows(several(), passed, more) == [(b, 1), (b, 2)]
    publish(node, a, 1)
    publish(node, b, 1)
    assert rows(several(), more, several().latestOffset(more, ALL)) == [(a, 4), (b, 3)]


def test_a_stream_that_is_made_again_stops_the_query_until_its_loss_is_accepted_once(
    node: Embedded, several: Open, names: tuple[str, str], end: Any
) -> None:
    a, b = names
    node.streams.delete(b)
    node.streams.create(b)
    refused = refusal(lambda: several().latestOffset(end, ALL))
    assert refused.code == "stream-replaced"
    assert "start the query once with the option `failOnDataLoss` set to false" in refused.message
    assert "checkpointLocation" not in refused.message, "it would write what was read of the others again"
    accepted = several(is_strict=False).latestOffset(end, ALL)
    assert rows(several(), end, accepted) == []
    publish(node, a, 1)
    publish(node, b, 2)
    assert rows(several(), accepted, several().latestOffset(accepted, ALL)) == [(a, 4), (b, 1), (b, 2)]


def test_a_batch_that_is_planned_again_reads_what_its_offsets_say(
    node: Embedded, several: Open, names: tuple[str, str], end: Any
) -> None:
    a, b = names
    start = several().initialOffset()
    node.streams.delete(b)
    publish(node, b, 2)
    accepted = several(is_strict=False).latestOffset(end, ALL)
    for one in (several(), several(is_strict=False)):
        assert rows(one, end, accepted) == [(b, 1), (b, 2)]
        assert refusal(lambda: several().partitions(start, end)).code == "stream-replaced"
    assert rows(several(is_strict=False), start, end) == [(a, 1), (a, 2), (a, 3)]
    assert rows(several(is_strict=False), several().initialOffset(), end) == [(a, 1), (a, 2), (a, 3)], "the first one"
    node.streams.delete(b)
    publish(node, b, 7)
    assert refusal(lambda: several().partitions(end, accepted)).code == "stream-replaced"
    assert rows(several(is_strict=False), end, accepted) == []


def test_a_stream_that_is_made_again_before_a_task_reads_it_is_refused_or_passed_over(
    node: Embedded, several: Open, names: tuple[str, str], end: Any
) -> None:
    _, b = names
    parts = several().partitions(several().initialOffset(), end)
    node.streams.delete(b)
    publish(node, b, 2)
    (former,) = (part for part in parts if part.stream == b)  # type: ignore[attr-defined]
    assert refusal(lambda: list(several().read(former))).code == "stream-replaced"
    assert list(several(is_strict=False).read(former)) == []


def test_a_stream_that_comes_back_itself_is_read_on_where_it_was_left(
    node: Embedded, several: Open, names: tuple[str, str], end: Any
) -> None:
    _, b = names
    without = several(is_strict=False, streams="a").latestOffset(end, ALL)
    assert offsets_of(without)[b].is_passed
    assert several(streams="a").latestOffset(without, ALL) is without
    publish(node, b, 2)
    more = several().latestOffset(without, ALL)
    assert rows(several(), without, more) == [(b, 6), (b, 7)]
    assert refusal(lambda: several(streams="a").latestOffset(more, ALL)).code == "data-loss", "another loss"


def test_a_subscriber_lets_go_of_nothing_of_the_stream_that_has_the_name_now(
    node: Embedded, several: Open, names: tuple[str, str], end: Any
) -> None:
    _, b = names
    node.streams.delete(b)
    publish(node, b, 7)
    one = several(is_strict=False, subscriber="risk")
    more = one.latestOffset(end, ALL)
    one.commit(end)
    assert node.subscriptions.show(b, "risk", "spark")["floor"] == 0
    assert rows(one, end, more) == [(b, number) for number in range(1, 8)]
    one.commit(more)
    assert node.subscriptions.show(b, "risk", "spark")["floor"] == 7


@pytest.mark.spark
def test_a_query_that_accepted_the_loss_of_a_stream_writes_each_row_once(rig: Rig) -> None:
    a, b = f"{rig.stream}/a", f"{rig.stream}/b"

    def run(is_strict: bool) -> list[str]:
        rows = rig.read_stream("body string", stream="", streams=f"{rig.stream}/*", failOnDataLoss=is_strict)
        rig.run(rows, to=f"copy-of-{rig.stream}")
        return rig.bodies(f"copy-of-{rig.stream}")

    def publish_to(name: str, *bodies: str) -> None:
        with rig.node.publisher(name) as publisher:
            publisher.publish_many(["k"] * len(bodies), list(bodies))

    publish_to(a, "a1")
    publish_to(b, "b1")
    assert sorted(run(is_strict=True)) == ["a1", "b1"]
    rig.node.streams.delete(b)
    with pytest.raises(Exception, match="no longer exists"):
        run(is_strict=True)
    run(is_strict=False)
    publish_to(b, "new1", "new2")
    publish_to(a, "a2")
    assert sorted(run(is_strict=True)) == ["a1", "a2", "b1", "new1", "new2"]
