"""The streaming reader's own promises, without a Spark session: offsets, blocks, limits, patience."""

import gc
import json
import pickle
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

import veredus
from veredus import Embedded
from veredus.kernel.errors import Refused
from veredus.node.rules import Rule
from veredus.runtime.security import add_token
from veredus.spark import blocks
from veredus.spark.offsets import offsets_of
from veredus.spark.reader import BlockPartition, BlockReader, BlockStreamReader
from veredus.spark.source import VeredusDataSource
from veredus.streams.rights import LOCAL

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


def place(offset: Any, **changed: object) -> int:
    """Where the one stream of an offset stands; with `changed` in it."""
    (at,) = offset["streams"].values()
    at |= changed
    return int(at["sequence"])


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
    at = f'"began": 1, "incarnation": "{incarnation}", "sequence": 4, "terms": [[1, 1]]'
    assert end == f'{{"streams": {{"{stream}": {{{at}}}}}}}'


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
    assert (place(first), place(second)) == (2049, 4097)


def test_what_comes_after_available_now_was_said_is_left_for_the_next_time(
    node: Embedded, stream: str, reader: Open
) -> None:
    publish(node, stream, 100)
    one = reader(maxRowsPerTrigger=60)
    one.prepareForTriggerAvailableNow()
    publish(node, stream, 100, source="later")
    first = one.latestOffset(one.initialOffset(), ReadMaxRows(60))
    second = one.latestOffset(first, ReadMaxRows(60))
    assert (place(first), place(second)) == (61, 101)
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
    assert place(reader().reportLatestOffset()) == 8
    node.streams.trim(stream, 5)
    assert offsets_of(reader().reportLatestOffset())[stream].began == 5, "the oldest row that is kept"


def test_latest_is_remembered_by_the_node_under_the_subscribers_name(node: Embedded, stream: str, reader: Open) -> None:
    publish(node, stream, 10)
    first = reader(startingSequence="latest", subscriber="risk")
    assert place(first.initialOffset()) == 11
    first.stop()
    publish(node, stream, 10, source="later")
    again = reader(startingSequence="latest", subscriber="risk")
    assert place(again.initialOffset()) == 11
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
    foreign = {"streams": {"another": {"began": 1, "incarnation": "00", "sequence": 1}}}
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
    ahead = one.initialOffset()
    place(ahead, sequence=100)
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


def test_a_stream_that_is_deleted_meanwhile_is_missed_or_gone_on_without(
    node: Embedded, stream: str, reader: Open
) -> None:
    publish(node, stream, 10)
    strict = reader()
    start = strict.initialOffset()
    end = strict.latestOffset(start, ReadAllAvailable())
    (partition,) = strict.partitions(start, end)
    node.streams.delete(stream)
    for ask in (
        lambda: strict.latestOffset(end, ReadAllAvailable()),
        lambda: strict.partitions(start, end),
        lambda: list(strict.read(partition)),
    ):
        with pytest.raises(Refused, match="no longer exists") as caught:
            ask()
        assert caught.value.code == "data-loss"
    lenient = reader(failOnDataLoss="false", subscriber="risk")
    assert lenient.latestOffset(end, ReadAllAvailable()) is end
    assert sequences(lenient, start, end) == []
    assert list(lenient.read(partition)) == []
    lenient.commit(end)
    lenient.prepareForTriggerAvailableNow()
    assert lenient.latestOffset(end, ReadAllAvailable()) is end


def test_a_stream_that_is_deleted_while_it_is_read_is_missed_or_gone_on_without(own_node: Embedded) -> None:
    for is_lenient in (False, True):
        publish(own_node, "trades", 50_000)
        options = {"address": own_node.served.address, "stream": "trades"}
        one = VeredusDataSource(options | {"failondataloss": str(not is_lenient)}).streamReader(SCHEMA)
        start = one.initialOffset()
        (partition,) = one.partitions(start, one.latestOffset(start, ReadAllAvailable()))
        with patch.object(blocks, "WINDOW_SIZE", 64 << 10):
            batches = one.read(partition)
            found = next(batches)["sequence"].to_pylist()
            own_node.streams.delete("trades")
            with nullcontext() if is_lenient else pytest.raises(Refused, match="no longer exists"):
                for batch in batches:
                    found += batch["sequence"].to_pylist()
        assert found == list(range(1, len(found) + 1))
        assert len(found) < 50_000


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
    context = TaskContext()
    context._localProperties = {}
    TaskContext._setTaskContext(context)
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
    assert place(one.reportLatestOffset()) == 50_001


def test_a_node_that_stays_away_is_said_to_in_time(own_node: Embedded) -> None:
    options = {"address": own_node.served.address, "stream": "trades", "timeoutseconds": "1"}
    own_node.served.stop()
    one = VeredusDataSource(options).streamReader(SCHEMA)
    with pytest.raises(veredus.Unavailable):
        one.initialOffset()


# ── where a query begins ─────────────────────────────────────────────────────────────────────────────────────────────


def test_rows_trimmed_before_the_first_batch_is_committed_are_missed_and_not_passed_over(
    node: Embedded, stream: str, reader: Open
) -> None:
    publish(node, stream, 10)
    one = reader()
    end = one.latestOffset(one.initialOffset(), ReadAllAvailable())
    for floor in (6, 11):
        publish(node, stream, 10, source=f"later-{floor}")
        node.streams.trim(stream, floor)
        strict, lenient = reader(), reader(failOnDataLoss="false")
        with pytest.raises(Refused) as caught:
            strict.partitions(strict.initialOffset(), end)
        assert caught.value.code == "data-loss"
        assert sequences(lenient, lenient.initialOffset(), end) == list(range(floor, 11))


def test_a_first_batch_that_is_planned_again_begins_where_it_began(node: Embedded, stream: str, reader: Open) -> None:
    publish(node, stream, 10)
    one = reader(startingTimestamp="2000-01-01T00:00:00Z")
    end = one.latestOffset(one.initialOffset(), ReadMaxRows(4))
    again = reader(startingSequence="3")
    assert sequences(again, again.initialOffset(), end) == [1, 2, 3, 4]


def test_a_start_in_the_future_gives_nothing_that_was_appended_before_it(
    node: Embedded, stream: str, reader: Open
) -> None:
    publish(node, stream, 3)
    start = datetime.now(UTC) + timedelta(seconds=1.5)
    one = reader(startingTimestamp=start.isoformat())
    begin = one.initialOffset()
    publish(node, stream, 4, source="early")
    assert one.latestOffset(begin, ReadAllAvailable()) is begin
    deadline = time.monotonic() + 30
    with node.publisher(stream, source="clock") as clock:
        while (end := one.latestOffset(begin, ReadAllAvailable())) is begin:
            assert time.monotonic() < deadline
            clock.publish("k", "tick")
            clock.flush()
    found = sequences(one, begin, end)
    with node.subscribe(stream, start=veredus.since(start)) as subscription:
        assert found[0] == subscription.position > 7


def test_a_subscriber_that_stands_elsewhere_is_not_made_to_start_again_without_a_word(
    node: Embedded, stream: str, reader: Open
) -> None:
    publish(node, stream, 10)
    one = reader(subscriber="risk", startingSequence="2")
    end = one.latestOffset(one.initialOffset(), ReadMaxRows(5))
    one.stop()
    assert place(reader(subscriber="risk", startingSequence="2").initialOffset()) == 2, "nothing was settled yet"
    one.commit(end)
    one.stop()
    for given in ({"startingSequence": "2"}, {"startingSequence": "earliest"}, {"startingTimestamp": "2000-01-01T00Z"}):
        with pytest.raises(Refused, match="is already at 7") as caught:
            reader(subscriber="risk", **given).initialOffset()
        assert caught.value.code == "bad-option"
    assert place(reader(subscriber="risk").initialOffset()) == 7
    assert place(reader(subscriber="risk", startingSequence="9").initialOffset()) == 9


# ── several streams, and how much of them ────────────────────────────────────────────────────────────────────────────


def several(node: Embedded, stream: str, **options: object) -> BlockStreamReader:
    """A reader of all streams of the test."""
    given = {"address": node.served.address, "streams": f"{stream}/*"} | {n.lower(): str(v) for n, v in options.items()}
    return VeredusDataSource(given).streamReader(StructType([*SCHEMA.fields, StructField("stream", StringType())]))


def rows_of(reader: BlockStreamReader, start: Any, end: Any) -> list[tuple[str, int]]:
    batches = (batch for partition in reader.partitions(start, end) for batch in reader.read(partition))
    return [(row["stream"], row["sequence"]) for batch in batches for row in batch.to_pylist()]


def test_several_streams_are_read_as_one_and_a_new_one_from_its_beginning(node: Embedded, stream: str) -> None:
    a, b, c = (f"{stream}/{letter}" for letter in "abc")
    publish(node, a, 3)
    publish(node, b, 2)
    one = several(node, stream)
    start = one.initialOffset()
    end = one.latestOffset(start, ReadAllAvailable())
    assert rows_of(one, start, end) == [(a, 1), (a, 2), (a, 3), (b, 1), (b, 2)]
    assert one.latestOffset(end, ReadAllAvailable()) is end
    publish(node, c, 2)
    publish(node, a, 1, source="later")
    one = several(node, stream)
    more = one.latestOffset(end, ReadAllAvailable())
    assert rows_of(one, end, more) == [(a, 4), (c, 1), (c, 2)]
    lenient = several(node, stream, failOnDataLoss="false")
    assert lenient.latestOffset(more, ReadAllAvailable()) is more
    node.streams.delete(b)
    for strict in (one, several(node, stream)):
        with pytest.raises(Refused) as caught:
            strict.latestOffset(more, ReadAllAvailable())
        assert caught.value.code == "data-loss"
    passed = lenient.latestOffset(more, ReadAllAvailable())
    assert lenient.latestOffset(passed, ReadAllAvailable()) is passed
    assert rows_of(lenient, start, more) == [*((a, number) for number in (1, 2, 3, 4)), (c, 1), (c, 2)]


def test_a_batch_takes_of_each_stream_by_what_it_has_waiting(node: Embedded, stream: str) -> None:
    a, b = (f"{stream}/{letter}" for letter in "ab")
    publish(node, a, 300)
    publish(node, b, 100)
    one = several(node, stream)
    end = offsets_of(one.latestOffset(one.initialOffset(), ReadMaxRows(40)))
    assert (end[a].sequence, end[b].sequence) == (31, 11)


def test_a_micro_batch_is_limited_by_bytes_too(node: Embedded, stream: str, reader: Open) -> None:
    with node.publisher(stream) as publisher:
        publisher.publish_many(["k"] * 1000, [b"x" * 1000] * 1000)
    one = reader(maxBytesPerTrigger=100_000)
    limit = one.getDefaultReadLimit()
    first = place(one.latestOffset(one.initialOffset(), limit))
    assert 50 < first < 110
    assert place(one.latestOffset(one.initialOffset(), ReadAllAvailable())) == 1001


def test_few_rows_are_waited_for_but_not_for_ever(node: Embedded, stream: str, reader: Open) -> None:
    publish(node, stream, 3)
    one = reader(minRowsPerTrigger=5, maxTriggerDelaySeconds=600)
    start = one.initialOffset()
    assert one.latestOffset(start, ReadMaxRows(100)) is start
    publish(node, stream, 2, source="later")
    assert place(one.latestOffset(start, ReadMaxRows(100))) == 6
    hasty = reader(minRowsPerTrigger=50, maxTriggerDelaySeconds=1)
    deadline = time.monotonic() + 30
    while (end := hasty.latestOffset(start, ReadMaxRows(100))) is start:
        assert time.monotonic() < deadline
    assert place(end) == 6
    finishing = reader(minRowsPerTrigger=50)
    finishing.prepareForTriggerAvailableNow()
    assert place(finishing.latestOffset(start, ReadMaxRows(100))) == 6
    assert place(reader(minRowsPerTrigger=50).latestOffset(start, ReadAllAvailable())) == 6, "asked only once"


RULES = tuple(Rule(principal=who, may=("*",)) for who in ("spark", LOCAL))


def test_a_token_may_come_from_a_file_and_stands_in_no_text(tmp_path: Path) -> None:
    token, _ = add_token(tmp_path / "tokens", "spark")
    (tmp_path / "mine").write_text(f"{token}\n")
    security = {"tokens": str(tmp_path / "tokens"), "rules": RULES}
    with veredus.embedded(tmp_path / "node", security=security) as guarded:
        guarded.streams.create("trades")
        given = {"address": guarded.served.address, "stream": "trades"}
        by_file = VeredusDataSource(given | {"tokenfile": str(tmp_path / "mine")}).streamReader(SCHEMA)
        assert place(by_file.initialOffset()) == 1
        named = VeredusDataSource(given | {"token": token}).streamReader(SCHEMA)
        assert token not in repr((by_file._options, named._options))
        with pytest.raises(Refused, match="cannot be read here"):
            VeredusDataSource(given | {"tokenfile": "/nowhere"}).streamReader(SCHEMA).initialOffset()
