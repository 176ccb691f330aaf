"""What the sink does at the node, without a Spark session: stages, commits, aborts, claims, and who is fenced."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pyarrow as pa
import pytest

import veredus
from veredus import Embedded
from veredus.kernel.errors import Fenced, Refused, Unavailable
from veredus.spark.connections import node_of, patiently
from veredus.spark.options import WriteOptions, write_options
from veredus.spark.staging import StagedRows, claim_place, commit_stages, digested, sink_of, stage_rows
from veredus.spark.writer import StageStreamWriter

QUERY, ANOTHER = UUID(int=1 << 127), UUID(int=3 << 126)
START, RESTART = bytes(15) + b"\x01", bytes(15) + b"\x02"


@pytest.fixture
def options(node: Embedded, stream: str) -> WriteOptions:
    return write_options({"address": node.served.address, "stream": stream, "checkpointlocation": f"/data/{stream}"})


@pytest.fixture
def sink(stream: str) -> str:
    """A sink that no other test knows."""
    return f"sink-of-{stream}"


def rows(*bodies: str) -> list[pa.RecordBatch]:
    return [pa.RecordBatch.from_pydict({"body": [body]}) for body in bodies]


def staged(node: Embedded, options: WriteOptions, sink: str, *bodies: str, start: bytes = START) -> StagedRows:
    with node.sink(sink).open_run(start) as run:
        if run.commit_id >= 0:
            return digested(options, sink, run, rows(*bodies))
        return stage_rows(options, sink, run, 0, rows(*bodies))


def bodies(node: Embedded, stream: str) -> list[bytes]:
    head = node.streams.show(stream)["head"]
    with node.subscribe(stream, start=veredus.beginning(), until=head + 1) as subscription:
        return [publication.body for publication in subscription]


def test_what_is_staged_is_seen_with_its_commit_and_in_its_order(
    node: Embedded, stream: str, options: WriteOptions, sink: str
) -> None:
    first, second = staged(node, options, sink, "a", "b"), staged(node, options, sink, "c")
    assert bodies(node, stream) == []
    commit_stages(options, [second, first], 0)
    assert bodies(node, stream) == [b"c", b"a", b"b"]


def test_a_commit_that_is_asked_for_again_does_nothing(
    node: Embedded, stream: str, options: WriteOptions, sink: str
) -> None:
    commit_stages(options, [staged(node, options, sink, "a")], 0)
    commit_stages(options, [staged(node, options, sink, "a", start=RESTART)], 0)
    assert bodies(node, stream) == [b"a"]


def test_a_refusal_for_a_sink_names_the_stream_that_the_user_named_or_says_that_the_rows_name_them(
    options: WriteOptions, stream: str
) -> None:
    def refused(_: veredus.Node) -> None:
        raise Refused("forbidden", "spark may not publish on sink 'spark/1'", kind="sink", name="spark/1")

    for named, said in ((stream, f"stream '{stream}'"), ("", "the streams that are named in the rows")):
        with pytest.raises(Refused, match=rf"^{said}: spark may not publish") as caught:
            patiently(replace(options.node, stream=named), refused)
        assert caught.value.details == {"kind": "sink", "name": "spark/1"}


def test_a_batch_that_comes_again_with_other_rows_is_refused_by_what_its_tasks_saw(
    node: Embedded, stream: str, options: WriteOptions, sink: str
) -> None:
    first, second = staged(node, options, sink, "a", "b"), staged(node, options, sink, "c")
    commit_stages(options, [first, second], 0)
    with node.sink(sink).open_run(RESTART) as run:
        seen = [digested(options, sink, run, rows("c", "a")), digested(options, sink, run, rows("b"))]
        other = [digested(options, sink, run, rows("c", "a")), digested(options, sink, run, rows("B"))]
        more = [*seen, digested(options, sink, run, rows("d"))]
    commit_stages(options, seen, 0)
    for wrong in (other, more):
        with pytest.raises(Refused) as caught:
            commit_stages(options, wrong, 0)
        assert caught.value.code == "commit-other-rows"
    with pytest.warns(UserWarning, match=r"3 rows.*4 rows.*the rows of this run are dropped"):
        commit_stages(replace(options, keeps_other_rows=True), more, 0)
    assert bodies(node, stream) == [b"a", b"b", b"c"]


def test_a_task_fails_when_the_node_takes_nothing_of_more_than_its_outbox_holds(
    node: Embedded, stream: str, sink: str, tmp_path: Path
) -> None:
    with veredus.embedded(tmp_path / "node") as away:
        options = write_options({"address": away.served.address, "stream": stream, "timeoutSeconds": "1"})

        def many() -> Iterator[pa.RecordBatch]:
            yield from rows("a")
            away.served.stop()
            for _ in range(8):
                yield pa.RecordBatch.from_pydict({"body": [b"x" * (1 << 20)] * 8})

        with node_of(options.node).sink(sink).open_run(START) as run, pytest.raises(Unavailable):
            stage_rows(options, sink, run, 0, many())


def test_an_abort_after_the_commit_does_nothing(node: Embedded, stream: str, options: WriteOptions, sink: str) -> None:
    message = staged(node, options, sink, "a")
    commit_stages(options, [message], 0)
    StageStreamWriter(options).abort([message, None], 0)
    assert bodies(node, stream) == [b"a"]


def test_an_abort_before_the_commit_leaves_nothing_to_commit(
    node: Embedded, stream: str, options: WriteOptions, sink: str
) -> None:
    message = staged(node, options, sink, "a")
    StageStreamWriter(options).abort([None, message], 0)
    with pytest.raises(Refused) as caught:
        commit_stages(options, [message], 0)
    assert caught.value.code == "unknown-stage"
    assert bodies(node, stream) == []


def test_an_attempt_that_fails_leaves_no_stage(node: Embedded, stream: str, options: WriteOptions, sink: str) -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        yield from rows("a")
        raise ValueError("the task fails")

    with node.sink(sink).open_run(START) as run:
        with pytest.raises(ValueError, match="the task fails"):
            stage_rows(options, sink, run, 0, failing())
        with pytest.raises(Refused, match="not an open stage"):
            run.commit(0, [1])


def test_an_attempt_without_rows_opens_no_stage(node: Embedded, options: WriteOptions, sink: str) -> None:
    message = staged(node, options, sink)
    assert message.parts == ()
    commit_stages(options, [message], 0)


def test_a_task_of_an_older_start_is_fenced_and_stays_so(
    node: Embedded, stream: str, options: WriteOptions, sink: str
) -> None:
    old = staged(node, options, sink, "old")
    new = staged(node, options, sink, "new", start=RESTART)
    with pytest.raises(Fenced):
        commit_stages(options, [old], 0)
    with pytest.raises(Fenced):
        node.sink(sink).open_run(START)
    commit_stages(options, [new], 0)
    assert bodies(node, stream) == [b"new"]


def test_a_place_belongs_to_the_first_query_that_claims_it(node: Embedded, stream: str, options: WriteOptions) -> None:
    node.streams.create(stream)
    for _ in range(2):
        claim_place(options, QUERY, "/ck")
    with pytest.raises(Refused) as caught:
        claim_place(options, ANOTHER, "/ck")
    assert caught.value.code == "checkpoint-deleted"
    claim_place(options, QUERY, "/ck")
    claim_place(options, ANOTHER, "/another")


def test_a_place_that_spark_does_not_name_cannot_be_claimed(node: Embedded, stream: str) -> None:
    options = write_options({"address": node.served.address, "stream": stream})
    for query in (QUERY, ANOTHER):
        claim_place(options, query, "")


def test_a_querys_sink_is_named_by_its_id() -> None:
    assert sink_of(QUERY) == "spark/80000000-0000-0000-0000-000000000000"


def test_rows_for_more_streams_than_a_task_can_write_to_are_refused_with_what_to_do_and_what_stays(sink: str) -> None:
    with veredus.embedded(limits={"channels_max": 8}) as small:
        options = write_options({"address": small.served.address})
        names = [f"stream-{index}" for index in range(9)]
        with (
            small.sink(sink).open_run(START) as run,
            pytest.raises(Refused, match=r"more than 7 streams: repart.*new streams have been created") as caught,
        ):
            stage_rows(options, sink, run, 0, [pa.RecordBatch.from_pydict({"stream": names, "body": names})])
        assert caught.value.code == "too-many-channels"
        assert small.sinks.stages() == []
        assert [(shown["name"], shown["head"]) for shown in small.streams.list()] == [(name, 0) for name in names[:7]]
