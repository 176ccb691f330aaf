"""A node lacks batches that a streaming query has committed: the query says which, and goes on only if it may."""

import json
import re
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException

import veredus
from veredus import Embedded
from veredus.kernel.errors import Fenced, Refused
from veredus.runtime.directory import open_directory
from veredus.spark.options import WriteOptions, write_options
from veredus.spark.staging import StagedRows, digested, sink_of, stage_rows
from veredus.spark.writer import StageStreamWriter

from .conftest import Rig

SINK = sink_of(UUID(int=7))
START, RESTART, LAST_START = (bytes(15) + bytes([number]) for number in (1, 2, 3))


class Place:
    """A directory of a node that can be copied and put back to its copy."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.journal = directory / "journal"

    @contextmanager
    def node(self) -> Iterator[Embedded]:
        with veredus.embedded(self.journal) as node:
            yield node

    def copy(self) -> None:
        shutil.copytree(self.journal, self._directory / "copy")

    def put_back(self) -> None:
        shutil.rmtree(self.journal)
        shutil.copytree(self._directory / "copy", self.journal)
        directory = open_directory(self.journal)
        directory.mark_restored()
        directory.close()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def options(node: Embedded, **given: str) -> WriteOptions:
    return write_options({"address": node.served.address, "stream": "s", "checkpointlocation": "/data/ck", **given})


def task(node: Embedded, batch_id: int, *bodies: str, start: bytes = START) -> StagedRows:
    """What a task of the batch does: stage its rows, or only digest them where the batch is committed."""
    rows = [pa.RecordBatch.from_pydict({"body": [body]}) for body in bodies]
    with node.sink(SINK).open_run(start) as run:
        if run.commit_id >= batch_id:
            return digested(options(node), SINK, run, rows)
        return stage_rows(options(node), SINK, run, batch_id, rows)


def commit(node: Embedded, batch_id: int, *tasks: StagedRows, **given: str) -> None:
    """What the driver does, and Spark after it where that fails."""
    writer = StageStreamWriter(options(node, **given))
    try:
        writer.commit(tasks, batch_id)
    except Refused:
        writer.abort(tasks, batch_id)
        raise


def write(node: Embedded, batch_id: int, start: bytes = START, body: str = "", **given: str) -> None:
    commit(node, batch_id, task(node, batch_id, body or f"batch {batch_id}", start=start), **given)


def bodies(node: Embedded) -> list[str]:
    head = node.streams.show("s")["head"]
    with node.subscribe("s", start=veredus.beginning(), until=head + 1) as subscription:
        return [publication.body.decode() for publication in subscription]


def batches(*ids: int) -> list[str]:
    return [f"batch {number}" for number in ids]


def missing(first: int, last: int) -> "pytest.RaisesExc[Refused]":
    def is_told(error: Refused) -> bool:
        details = error.details
        return error.code == "data-loss" and (details["sink"], details["first"], details["last"]) == (SINK, first, last)

    said = f"commit {first}," if first == last else f"commits {first} to {last},"
    return pytest.raises(Refused, match=rf"lacks {said}.*put back to an older copy.*`failOnDataLoss`", check=is_told)


@contextmanager
def restored_behind(place: Place, kept: int, done: int, start: bytes = START) -> Iterator[Embedded]:
    """A node that was put back to a copy whose last commit is `kept`; the query had committed `done`."""
    with place.node() as node:
        for batch_id in range(kept + 1):
            write(node, batch_id)
    place.copy()
    with place.node() as node:
        for batch_id in range(kept + 1, done + 1):
            write(node, batch_id, start)
        assert bodies(node) == batches(*range(done + 1))
    place.put_back()
    with place.node() as node:
        yield node


@pytest.mark.parametrize("start", [START, RESTART], ids=["the-same-start", "another-start"])
def test_a_query_stops_whose_node_was_put_back_and_lacks_batches_and_leaves_nothing(place: Place, start: bytes) -> None:
    with restored_behind(place, 0, 3) as node:
        for start_of_query in (start, LAST_START):
            with missing(1, 3):
                write(node, 4, start_of_query)
        assert bodies(node) == batches(0)
        assert node.sinks.stages() == []


def test_a_query_that_does_not_mind_goes_on_with_a_warning_and_after_that_without(place: Place) -> None:
    with restored_behind(place, 0, 3) as node:
        with pytest.warns(UserWarning, match=r"lacks commits 1 to 3.*goes on without their rows"):
            write(node, 4, RESTART, failOnDataLoss="false")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            write(node, 5, RESTART)
        assert bodies(node) == batches(0, 4, 5)


def test_the_run_that_lived_on_over_a_restore_is_told_like_a_new_one(place: Place) -> None:
    with restored_behind(place, 1, 3, RESTART) as node, missing(2, 3):
        write(node, 4, RESTART)


@pytest.mark.parametrize("kept", [1, 2, 3])
def test_a_batch_that_spark_runs_again_on_a_node_that_was_put_back_is_there_once_or_what_lacks_is_told(
    place: Place, kept: int
) -> None:
    with restored_behind(place, kept, 3) as node:
        if kept < 2:
            with missing(2, 2):
                write(node, 3, RESTART)
            return
        write(node, 3, RESTART)
        write(node, 4, RESTART)
        assert bodies(node) == batches(0, 1, 2, 3, 4)


def test_a_node_that_was_put_back_to_before_the_first_batch_is_told_and_may_be_gone_on_with(place: Place) -> None:
    with place.node() as node:
        node.streams.create("s")
    place.copy()
    with place.node() as node:
        for batch_id in range(2):
            write(node, batch_id)
    place.put_back()
    with place.node() as node:
        with missing(0, 1):
            write(node, 2, RESTART)
        assert [shown["commit_id"] for shown in node.sinks.list()] == [-1], "no place was claimed"
        with pytest.warns(UserWarning, match="lacks commits 0 to 1"):
            write(node, 2, LAST_START, failOnDataLoss="false")
        assert sorted(shown["sink"].split("/")[0] for shown in node.sinks.list()) == ["spark", "spark-place"]


def test_a_first_batch_runs_again_on_a_node_that_was_put_back_to_before_it(place: Place) -> None:
    with place.node() as node:
        node.streams.create("s")
    place.copy()
    with place.node() as node:
        write(node, 0)
    place.put_back()
    with place.node() as node:
        write(node, 0, RESTART)
        assert bodies(node) == batches(0)


def test_a_sink_that_was_removed_is_told(place: Place) -> None:
    with place.node() as node:
        for batch_id in range(2):
            write(node, batch_id)
        node.sink(SINK).remove()
        with missing(0, 1):
            write(node, 2, RESTART)
        assert bodies(node) == batches(0, 1)


def task_before_batches_are_lost(place: Place) -> StagedRows:
    """What a task of batch 4 tells, behind which the node is put back to a copy without batches 1 to 3."""
    with place.node() as node:
        write(node, 0)
    place.copy()
    with place.node() as node:
        for batch_id in range(1, 4):
            write(node, batch_id)
        before = task(node, 4)
    place.put_back()
    return before


def test_a_node_that_was_put_back_between_two_tasks_is_told_by_the_later_one(place: Place) -> None:
    before = task_before_batches_are_lost(place)
    with place.node() as node:
        after = task(node, 4, "batch 4")
        with missing(1, 3):
            commit(node, 4, before, after)
        assert bodies(node) == batches(0)
        assert node.sinks.stages() == []


def test_a_node_that_was_put_back_after_all_tasks_of_a_batch_without_rows_is_told(place: Place) -> None:
    before = task_before_batches_are_lost(place)
    with place.node() as node:
        with missing(1, 3):
            commit(node, 4, before)
        assert [shown["commit_id"] for shown in node.sinks.list() if shown["sink"] == SINK] == [0]


def test_a_node_that_was_put_back_after_all_tasks_of_a_batch_commits_nothing_of_it(place: Place) -> None:
    with place.node() as node:
        write(node, 0)
    place.copy()
    with place.node() as node:
        before = task(node, 1, "batch 1")
    place.put_back()
    with place.node() as node:
        with pytest.raises(Refused, match="not an open stage"):
            commit(node, 1, before)
        write(node, 1, RESTART)
        assert bodies(node) == batches(0, 1)


def test_a_node_that_was_put_back_after_the_tasks_found_their_batch_done_takes_nothing_for_it(place: Place) -> None:
    with place.node() as node:
        write(node, 0)
    place.copy()
    with place.node() as node:
        write(node, 1)
        before = task(node, 1, "batch 1")
    place.put_back()
    with place.node() as node:
        with pytest.raises(Refused) as caught:
            commit(node, 1, before)
        assert caught.value.code == "bad-contents"
        write(node, 1, RESTART)
        assert bodies(node) == batches(0, 1)


def test_a_checkpoint_that_was_put_back_too_is_behind_or_goes_on_but_lacks_nothing(place: Place) -> None:
    with place.node() as node:
        for batch_id in range(4):
            write(node, batch_id)
        with pytest.raises(Refused) as caught:
            write(node, 2, RESTART)
        assert caught.value.code == "commit-id-behind"
        with pytest.raises(Refused) as caught:
            write(node, 3, RESTART, body="other")
        assert caught.value.code == "commit-other-rows"
        with pytest.warns(UserWarning, match="onOtherRows=keep"):
            write(node, 3, RESTART, body="other", onOtherRows="keep")
        write(node, 4, RESTART)
        assert bodies(node) == batches(0, 1, 2, 3, 4)


def test_a_query_that_comes_again_for_another_stream_is_told_what_helps_a_query(place: Place) -> None:
    with place.node() as node:
        write(node, 0)
        node.streams.create("other")
        with pytest.raises(Refused) as caught:
            commit(node, 0, task(node, 0, start=RESTART), stream="other")
        assert caught.value.code == "commit-other-streams"
        said = caught.value.message
        assert re.search(r"has done batch 0 already, into 's' \(incarnation \w{8}\), .* into 'other' \(inc", said), said
        assert "start it once with the former stream" in said
        assert "another `checkpointLocation`" in said
        assert "another sink" not in said
        assert caught.value.details["commit_id"] == 0


def test_the_older_of_two_drivers_is_fenced_and_the_newer_lacks_nothing(place: Place) -> None:
    with place.node() as node:
        write(node, 0)
        older = task(node, 1, "batch 1")
        write(node, 1, RESTART)
        with pytest.raises(Fenced):
            commit(node, 1, older)
        write(node, 2, RESTART)
        assert bodies(node) == batches(0, 1, 2)


@pytest.mark.spark
def test_spark_has_every_batch_committed_also_one_without_a_row_or_a_partition(rig: Rig) -> None:
    sink = {"sink": f"of-{rig.stream}", "commitId": 3}
    nothing = rig.spark.sql("select 'k' as key, 'b' as body where 1 = 0")
    assert nothing.rdd.getNumPartitions() == 0
    rig.write(nothing, **sink)
    assert {shown["sink"]: shown["commit_id"] for shown in rig.node.sinks.list()}[f"spark-batch/{sink['sink']}"] == 3
    rig.publish(2048)
    rows = rig.read_stream("key string, body string", maxRowsPerTrigger=1024, rowsPerPartition=1024)
    for name, none in (("constant", "1 = 0"), ("found", "body = 'none'")):
        query = rig.run(rows.where(none), to=f"{rig.stream}-{name}", checkpoint=name)
        (commit_id,) = (s["commit_id"] for s in rig.node.sinks.list() if s["sink"] == f"spark/{query.id}")
        assert commit_id == 1, name


def place_behind(rig: Rig, batch_id: int) -> int:
    """The sequence behind the last row of a batch, as the checkpoint has it."""
    offset = json.loads((rig.directory / "checkpoint" / "offsets" / str(batch_id)).read_text().splitlines()[-1])
    (stream,) = offset["streams"].values()
    sequence: int = stream["sequence"]
    return sequence


@pytest.mark.spark
def test_a_streaming_query_stops_before_it_writes_behind_batches_that_are_gone(rig: Rig) -> None:
    rows = rig.read_stream("key string, body string", maxRowsPerTrigger=1024, rowsPerPartition=1024)
    out = f"{rig.stream}-out"
    rig.publish(2048)
    query = rig.run(rows, to=out)
    rig.node.sink(f"spark/{query.id}").remove()
    rig.publish(10, source="later", first=2048)
    with pytest.raises(StreamingQueryException, match=r"(?s)lacks commits 0 to 1.*batch 2.*data-loss"):
        rig.run(rows, to=out)
    assert len(rig.bodies(out)) == 2048
    assert [shown for shown in rig.node.sinks.stages() if shown["sink"] == f"spark/{query.id}"] == []
    assert [place_behind(rig, batch_id) for batch_id in range(2)] == [1025, 2049], "the page says where the rows are"
    rig.run(rows, to=out, failOnDataLoss="false")
    rig.publish(10, source="latest", first=2058)
    rig.run(rows, to=out)
    assert sorted(map(int, rig.bodies(out))) == list(range(2068))
