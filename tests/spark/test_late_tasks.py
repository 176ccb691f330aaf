"""Tasks that still run though Spark waits for them no more: a straggler, or the second copy of one, leaves nothing."""

from collections.abc import Callable, Iterator
from uuid import UUID

import pyarrow as pa
import pytest

import veredus
from veredus import Embedded
from veredus.kernel.errors import Refused
from veredus.spark import writer as writers
from veredus.spark.options import write_options
from veredus.spark.staging import sink_of
from veredus.spark.writer import StageStreamWriter, StageWriter

QUERY, START = UUID(int=1), UUID(int=2)
ENDS = ["commit", "abort"]
WHEN = ["before its first row", "among its rows"]


def rows(*bodies: str) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"body": list(bodies)}, schema=pa.schema({"body": pa.string()}))


def straggling(when: str, end: Callable[[], None]) -> Iterator[pa.RecordBatch]:
    """Rows of a task that has joined its run, and goes on when the driver is done."""
    yield rows(*(["late"] if when == WHEN[1] else []))
    end()
    for _ in range(100):
        yield rows(*["late"] * 1000)


def bodies(node: Embedded, stream: str) -> list[str]:
    head = node.streams.show(stream)["head"]
    with node.subscribe(stream, start=veredus.beginning(), until=head + 1) as subscription:
        return [publication.body.decode() for publication in subscription]


def batch_of(monkeypatch: pytest.MonkeyPatch, batch_id: int) -> None:
    """From now on tasks write this batch of the query."""
    batch = writers.MicroBatch(QUERY, batch_id, START, "", "")
    monkeypatch.setattr(writers, "micro_batch_of", lambda context: batch)


@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize("end", ENDS)
def test_a_late_task_of_a_named_write_leaves_no_stage(node: Embedded, stream: str, end: str, when: str) -> None:
    given = {"address": node.served.address, "stream": stream, "sink": f"report-{stream}", "commitid": "7"}
    writer = StageWriter.opened(write_options(given))
    winner = writer.write(iter([rows("a", "b")]))
    with pytest.raises(Refused) as caught:
        writer.write(straggling(when, lambda: getattr(writer, end)([winner])))
    assert caught.value.code == "stage-closed"
    assert node.sinks.stages() == []
    again = StageWriter.opened(write_options(given))
    again.commit([again.write(iter([rows("a", "b")]))])
    assert (bodies(node, stream), node.sinks.stages()) == (["a", "b"], [])


@pytest.mark.parametrize("when", WHEN)
def test_a_late_task_of_a_write_of_which_no_task_could_tell_leaves_no_stage(
    node: Embedded, stream: str, when: str
) -> None:
    given = {"address": node.served.address, "stream": stream, "sink": f"report-{stream}", "commitid": "7"}
    writer = StageWriter.opened(write_options(given))
    with pytest.raises(Refused) as caught:
        writer.write(straggling(when, lambda: writer.abort([None])))
    assert (caught.value.code, node.sinks.stages()) == ("stage-closed", [])


@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize("end", ENDS)
def test_a_late_task_of_a_query_leaves_no_stage_and_hurts_no_later_batch(
    monkeypatch: pytest.MonkeyPatch, end: str, when: str
) -> None:
    with veredus.embedded() as node:
        options = {"address": node.served.address, "stream": "s", "checkpointlocation": "/data/late"}
        writer = StageStreamWriter(write_options(options))
        batch_of(monkeypatch, 0)
        winner = writer.write(iter([rows("a", "b")]))
        with pytest.raises(Refused) as caught:
            writer.write(straggling(when, lambda: getattr(writer, end)([winner], 0)))
        assert (caught.value.code, node.sinks.stages()) == ("stage-closed", [])
        if end == "commit":
            batch_of(monkeypatch, 1)
            next_one = writer.write(iter([rows("c")]))
            writer.abort([winner, None], 0)
            writer.commit([winner], 0)
            writer.commit([next_one], 1)
        assert bodies(node, "s") == (["a", "b", "c"] if end == "commit" else [])
        assert node.sinks.stages() == []
        assert sink_of(QUERY) in [shown["sink"] for shown in node.sinks.list()]
