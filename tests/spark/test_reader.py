"""The streaming reader's own promises, without a Spark session: offsets, blocks, limits, patience."""

import gc
import json
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

import veredus
from veredus import Embedded
from veredus.kernel.errors import Refused
from veredus.spark.reader import BlockPartition, BlockReader, BlockStreamReader
from veredus.spark.source import VeredusDataSource

SCHEMA = StructType([StructField("sequence", LongType()), StructField("body", BinaryType())])
Open = Callable[..., BlockStreamReader]


@pytest.fixture
def reader(node: Embedded, stream: str) -> Open:
    """Makes streaming readers of the test's stream."""

    def opened(**options: object) -> BlockStreamReader:
        given = {"address": node.served.address, "stream": stream}
        given |= {name.lower(): str(value) for name, value in options.items()}
        return VeredusDataSource(given).streamReader(SCHEMA)

    return opened


def publish(node: Embedded, stream: str, count: int, source: str = "desk") -> None:
    with node.publisher(stream, source=source) as publisher:
        for index in range(count):
            publisher.publish("k", str(index))


def sequences(reader: BlockStreamReader, start: dict[str, object], end: dict[str, object]) -> list[int]:
    batches = (batch for partition in reader.partitions(start, end) for batch in reader.read(partition))
    return [sequence for batch in batches for sequence in batch["sequence"].to_pylist()]


def test_a_range_gives_each_of_its_rows_once_and_in_order(node: Embedded, stream: str, reader: Open) -> None:
    publish(node, stream, 5000)
    one = reader(rowsPerPartition=1024)
    start = one.initialOffset()
    end = one.latestOffset(start, ReadAllAvailable())
    assert len(one.partitions(start, end)) == 5
    assert sequences(one, start, end) == list(range(1, 5001))


def test_offsets_are_texts_that_repeat(node: Embedded, stream: str, reader: Open) -> None:
    publish(node, stream, 3)
    incarnation = node.streams.show(stream)["incarnation"].hex()
    one, another = reader(), reader()
    start = one.initialOffset()
    assert json.dumps(start) == json.dumps(another.initialOffset())
    end = json.dumps(one.latestOffset(start, ReadAllAvailable()))
    assert end == f'{{"incarnation": "{incarnation}", "sequence": 4, "stream": "{stream}"}}'


def test_an_idle_stream_gives_the_start_itself_back(node: Embedded, stream: str, reader: Open) -> None:
    publish(node, stream, 3)
    one = reader()
    end = one.latestOffset(one.initialOffset(), ReadMaxRows(100))
    assert one.latestOffset(end, ReadMaxRows(100)) is end


def test_a_micro_batch_is_limited_and_ends_at_a_blocks_edge(node: Embedded, stream: str, reader: Open) -> None:
    publish(node, stream, 6000)
    one = reader(rowsPerPartition=1024, maxRowsPerTrigger=3000)
    limit = one.getDefaultReadLimit()
    assert limit == ReadMaxRows(3000)
    start = one.initialOffset()
    first = one.latestOffset(start, limit)
    second = one.latestOffset(first, limit)
    assert (first["sequence"], second["sequence"]) == (2049, 4097)


def test_what_comes_after_available_now_was_said_is_left_for_the_next_time(
    node: Embedded, stream: str, reader: Open
) -> None:
    publish(node, stream, 100)
    one = reader(maxRowsPerTrigger=60)
    one.prepareForTriggerAvailableNow()
    publish(node, stream, 100, source="later")
    first = one.latestOffset(one.initialOffset(), ReadMaxRows(60))
    second = one.latestOffset(first, ReadMaxRows(60))
    assert (first["sequence"], second["sequence"]) == (61, 101)
    assert one.latestOffset(second, ReadMaxRows(60)) is second


def test_blocks_are_the_same_whatever_the_stream_has_become(node: Embedded, stream: str, reader: Open) -> None:
    publish(node, stream, 3000)
    one = reader(rowsPerPartition=1024)
    start = one.initialOffset()
    end = one.latestOffset(start, ReadAllAvailable())
    before = [partition.value for partition in one.partitions(start, end)]
    publish(node, stream, 3000, source="later")
    assert [partition.value for partition in reader(rowsPerPartition=1024).partitions(start, end)] == before


def test_the_newest_row_is_reported_for_metrics(node: Embedded, stream: str, reader: Open) -> None:
    publish(node, stream, 7)
    assert reader().reportLatestOffset()["sequence"] == 8


def test_latest_is_remembered_by_the_node_under_the_subscribers_name(node: Embedded, stream: str, reader: Open) -> None:
    publish(node, stream, 10)
    first = reader(startingSequence="latest", subscriber="risk")
    assert first.initialOffset()["sequence"] == 11
    first.stop()
    publish(node, stream, 10, source="later")
    again = reader(startingSequence="latest", subscriber="risk")
    assert again.initialOffset()["sequence"] == 11
    again.stop()


def test_a_subscriber_pins_what_was_not_committed(node: Embedded, stream: str, reader: Open) -> None:
    publish(node, stream, 10)
    one = reader(subscriber="risk")
    start = one.initialOffset()
    end = one.latestOffset(start, ReadMaxRows(6))
    shown = node.subscriptions.show(stream, "risk", "spark")
    assert shown["floor"] == 0
    one.commit(end)
    one.stop()
    assert node.subscriptions.show(stream, "risk", "spark")["floor"] == 6


def test_a_commit_before_anything_else_opens_the_subscription(node: Embedded, stream: str, reader: Open) -> None:
    publish(node, stream, 10)
    one = reader(subscriber="risk")
    start = one.initialOffset()
    end = one.latestOffset(start, ReadMaxRows(6))
    one.stop()
    restarted = reader(subscriber="risk")
    restarted.commit(end)
    restarted.stop()
    assert node.subscriptions.show(stream, "risk", "spark")["floor"] == 6


def test_another_stream_than_the_checkpoints_is_refused(node: Embedded, stream: str, reader: Open) -> None:
    publish(node, stream, 3)
    one = reader()
    foreign = one.initialOffset() | {"stream": "another"}
    with pytest.raises(Refused) as caught:
        one.latestOffset(foreign, ReadAllAvailable())
    assert caught.value.code == "stream-replaced"


def test_a_stream_made_again_is_refused(node: Embedded, stream: str, reader: Open) -> None:
    publish(node, stream, 3)
    one = reader()
    start = one.initialOffset()
    end = one.latestOffset(start, ReadAllAvailable())
    (partition,) = one.partitions(start, end)
    node.streams.delete(stream)
    publish(node, stream, 3)
    for ask in (
        lambda: one.latestOffset(start, ReadAllAvailable()),
        lambda: one.partitions(start, end),
        lambda: list(one.read(partition)),
    ):
        with pytest.raises(Refused) as caught:
            ask()
        assert caught.value.code == "stream-replaced"


def test_a_checkpoint_beyond_the_newest_row_is_refused(node: Embedded, stream: str, reader: Open) -> None:
    publish(node, stream, 3)
    one = reader()
    ahead = one.initialOffset() | {"sequence": 100}
    with pytest.raises(Refused, match="put back to an earlier state"):
        one.latestOffset(ahead, ReadAllAvailable())


def test_rows_that_are_gone_before_they_were_planned_are_refused_or_passed_over(
    node: Embedded, stream: str, reader: Open
) -> None:
    publish(node, stream, 10)
    strict, lenient = reader(), reader(failOnDataLoss="false")
    start = strict.initialOffset()
    node.streams.trim(stream, 6)
    with pytest.raises(Refused) as caught:
        strict.latestOffset(start, ReadAllAvailable())
    assert caught.value.code == "data-loss"
    end = lenient.latestOffset(start, ReadAllAvailable())
    assert sequences(lenient, start, end) == [6, 7, 8, 9, 10]


def test_a_reader_travels_without_its_connection(node: Embedded, stream: str, reader: Open) -> None:
    publish(node, stream, 3)
    one = reader()
    start = one.initialOffset()
    end = one.latestOffset(start, ReadAllAvailable())
    (partition,) = one.partitions(start, end)
    sent, part = pickle.loads(pickle.dumps((reader(), partition)))
    assert sum(batch.num_rows for batch in sent.read(part)) == 3


def test_a_partition_that_spark_makes_up_has_no_rows(reader: Open) -> None:
    assert list(reader().read(BlockPartition.__base__(None))) == []  # type: ignore[misc, call-arg]


@pytest.fixture
def task() -> Iterator[None]:
    """What a reader sees inside of a task of Spark; what it froze there is thawed."""
    TaskContext._setTaskContext(TaskContext())
    yield
    TaskContext._setTaskContext(None)
    gc.unfreeze()


def rows_read(one: BlockStreamReader) -> int:
    start = one.initialOffset()
    return len(sequences(one, start, one.latestOffset(start, ReadAllAvailable())))


def test_what_a_tasks_process_has_loaded_is_no_more_searched_for_garbage(
    node: Embedded, stream: str, reader: Open, task: None
) -> None:
    publish(node, stream, 3)
    assert rows_read(reader()) == 3
    assert gc.get_freeze_count() > 0


def test_outside_of_a_task_the_garbage_collector_is_left_alone(node: Embedded, stream: str, reader: Open) -> None:
    publish(node, stream, 3)
    assert rows_read(reader()) == 3
    assert gc.get_freeze_count() == 0


def test_nobody_offers_to_push_filters_down() -> None:
    assert BlockReader.pushFilters is DataSourceReader.pushFilters


@pytest.fixture
def own_node(tmp_path: Path) -> Iterator[Embedded]:
    """A node that the test may stop and start."""
    with veredus.embedded(tmp_path / "node") as node:
        yield node


def test_a_reader_is_patient_with_a_node_that_is_away(own_node: Embedded) -> None:
    publish(own_node, "trades", 50_000)
    options = {"address": own_node.served.address, "stream": "trades"}
    one = VeredusDataSource(options).streamReader(SCHEMA)
    start = one.initialOffset()
    end = one.latestOffset(start, ReadAllAvailable())
    (partition,) = one.partitions(start, end)
    batches = one.read(partition)
    found = next(batches)["sequence"].to_pylist()
    own_node.served.stop()
    own_node.served.start()
    for batch in batches:
        found += batch["sequence"].to_pylist()
    assert found == list(range(1, 50_001))
    assert one.reportLatestOffset()["sequence"] == 50_001


def test_a_node_that_stays_away_is_said_to_in_time(own_node: Embedded) -> None:
    options = {"address": own_node.served.address, "stream": "trades", "timeoutseconds": "1"}
    own_node.served.stop()
    one = VeredusDataSource(options).streamReader(SCHEMA)
    with pytest.raises(veredus.Unavailable):
        one.initialOffset()
