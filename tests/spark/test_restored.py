"""A streaming query goes on against a node that was restored from an older copy: nothing is passed over in silence."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

import veredus
from veredus import Embedded
from veredus.kernel.errors import Refused
from veredus.runtime.directory import open_directory
from veredus.spark.options import write_options
from veredus.spark.reader import BlockStreamReader
from veredus.spark.source import VeredusDataSource
from veredus.spark.staging import digested, sink_of, stage_rows
from veredus.spark.writer import StageStreamWriter

SCHEMA = StructType([StructField("sequence", LongType()), StructField("body", BinaryType())])
ALL = ReadAllAvailable()
OLD, LATER = 4, 6
SINK = sink_of(UUID(int=7))


def publish(node: Embedded, word: str, count: int) -> None:
    with node.publisher("s") as publisher:
        for number in range(count):
            publisher.publish("k", f"{word} {number}")


def reader(node: Embedded, **options: object) -> BlockStreamReader:
    given = {"address": node.served.address, "stream": "s", **{name: str(value) for name, value in options.items()}}
    return VeredusDataSource(given).streamReader(SCHEMA)


def rows(one: BlockStreamReader, start: Any, end: Any) -> list[str]:
    batches = (batch for partition in one.partitions(start, end) for batch in one.read(partition))
    return [body.decode() for batch in batches for body in batch["body"].to_pylist()]


def words(word: str, count: int) -> list[str]:
    return [f"{word} {number}" for number in range(count)]


@pytest.fixture
def planned(tmp_path: Path) -> tuple[Any, Any]:
    """Where a query began and how far its first batch went; the node was put back to a copy of before its last rows."""
    with veredus.embedded(tmp_path / "journal") as node:
        publish(node, "old", OLD)
    shutil.copytree(tmp_path / "journal", tmp_path / "copy")
    with veredus.embedded(tmp_path / "journal") as node:
        publish(node, "later", LATER)
        one = reader(node)
        start = one.initialOffset()
        end = one.latestOffset(start, ALL)
        assert rows(one, start, end) == words("old", OLD) + words("later", LATER)
    directory = open_directory(tmp_path / "copy")
    directory.mark_restored()
    directory.close()
    return start, end


def lost(call: Callable[[], object]) -> tuple[object, object, object]:
    with pytest.raises(Refused, match=r"lost sequences 5 to 10, which this query has read or planned") as caught:
        call()
    assert caught.value.code == "data-loss"
    return tuple(caught.value.details[name] for name in ("first", "kept", "cause"))  # type: ignore[return-value]


@pytest.mark.parametrize("new", [0, LATER - 1, LATER, LATER + 5])
def test_a_query_stops_that_has_read_what_is_gone_however_many_rows_took_its_place(
    tmp_path: Path, planned: tuple[Any, Any], new: int
) -> None:
    start, end = planned
    with veredus.embedded(tmp_path / "copy") as node:
        publish(node, "new", new)
        told = OLD + 1, OLD + LATER + 1, "restored"
        assert lost(lambda: reader(node).latestOffset(end, ALL)) == told, "the batch was committed"
        assert lost(lambda: reader(node).partitions(start, end)) == told, "it is done again"


@pytest.mark.parametrize("is_done_again", [False, True])
@pytest.mark.parametrize("new", [1, LATER - 1, LATER, LATER + 5])
def test_a_query_that_does_not_mind_reads_once_what_took_the_place_of_the_lost(
    tmp_path: Path, planned: tuple[Any, Any], new: int, is_done_again: bool
) -> None:
    start, end = planned
    with veredus.embedded(tmp_path / "copy") as node:
        publish(node, "new", new)
        one = reader(node, failOnDataLoss="false")
        if is_done_again:
            assert rows(one, start, end) == words("old", OLD)
        after = one.latestOffset(end, ALL)
        assert rows(one, end, after) == words("new", new)
        publish(node, "newer", 2)
        assert rows(one, after, one.latestOffset(after, ALL)) == words("newer", 2)


def test_a_query_that_has_read_nothing_of_what_is_gone_goes_on(tmp_path: Path, planned: tuple[Any, Any]) -> None:
    with veredus.embedded(tmp_path / "copy") as node:
        one = reader(node)
        begun = one.initialOffset()
        first = one.latestOffset(begun, ALL)
        publish(node, "new", 3)
        assert rows(one, first, one.latestOffset(first, ALL)) == words("new", 3)


def test_a_checkpoint_of_a_version_that_knew_no_terms_is_read_as_before(
    tmp_path: Path, planned: tuple[Any, Any]
) -> None:
    _, end = planned
    (at,) = end["streams"].values()
    del at["terms"]
    with veredus.embedded(tmp_path / "copy") as node:
        publish(node, "new", LATER + 5)
        one = reader(node)
        assert rows(one, end, one.latestOffset(end, ALL)) == words("new", LATER + 5)[LATER:]


@pytest.mark.parametrize("new", [0, LATER - 1, LATER + 5])
def test_a_batch_that_was_written_and_whose_input_was_put_back_is_refused_with_that_cause_or_kept_and_gone_on_with(
    tmp_path: Path, planned: tuple[Any, Any], new: int
) -> None:
    start, end = planned
    with veredus.embedded(tmp_path / "copy") as node, veredus.embedded(tmp_path / "output") as output:
        publish(node, "new", new)

        def write(batch_id: int, bodies: list[str], **given: str) -> None:
            options = write_options({"address": output.served.address, "stream": "out", **given})
            batch = [pa.RecordBatch.from_pydict({"body": bodies})]
            with output.sink(SINK).open_run(bytes(16)) as run:
                if run.commit_id >= batch_id:
                    staged = digested(options, SINK, run, batch)
                else:
                    staged = stage_rows(options, SINK, run, batch_id, batch)
            StageStreamWriter(options).commit([staged], batch_id)

        write(0, words("old", OLD) + words("later", LATER))
        one = reader(node, failOnDataLoss="false")
        with pytest.raises(Refused, match=r"same option helps if the input was put back to an older copy") as caught:
            write(0, rows(one, start, end))
        assert caught.value.code == "commit-other-rows"
        advice = [one for one in caught.value.message.split(". ") if "keep" in one and "not set" not in one]
        assert not [one for one in advice if "checkpoint" in one], "to keep after one was put back would lose rows"
        with pytest.warns(UserWarning, match="onOtherRows=keep"):
            write(0, rows(one, start, end), onOtherRows="keep")
        write(1, rows(one, end, one.latestOffset(end, ALL)))
        head = output.streams.show("out")["head"]
        with output.subscribe("out", start=veredus.beginning(), until=head + 1) as subscription:
            written = [publication.body.decode() for publication in subscription]
        assert written == words("old", OLD) + words("later", LATER) + words("new", new)
