"""A streaming query reads every row once, through restarts, and knows when its stream is another."""

import time
import venv
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from veredus.spark import lag_of, read_to_of, register

from .conftest import PATIENCE_SECONDS, Rig

pytestmark = pytest.mark.spark


def rows_of(rig: Rig) -> list[int]:
    return sorted(row.sequence for row in rig.parquet().select("sequence").collect())


def run_failing(rig: Rig, rows: DataFrame) -> None:
    """Run a query whose first batch is read, and never gets through."""

    def fail(batch: DataFrame, _: int) -> None:
        batch.count()
        raise RuntimeError("not this time")

    writer = rows.writeStream.option("checkpointLocation", str(rig.directory / "checkpoint"))
    query = writer.foreachBatch(fail).trigger(availableNow=True).start()
    with pytest.raises(StreamingQueryException, match="not this time"):
        query.awaitTermination(PATIENCE_SECONDS)


def test_each_row_is_read_once_over_several_batches_and_a_restart(rig: Rig) -> None:
    rig.publish(5000)
    rows = rig.read_stream(rowsPerPartition=1024, maxRowsPerTrigger=2048)
    query = rig.run(rows)
    assert [progress["numInputRows"] for progress in query.recentProgress] == [2048, 2048, 904]
    assert rows_of(rig) == list(range(1, 5001))
    rig.publish(1000, source="later")
    query = rig.run(rows)
    assert sum(progress["numInputRows"] for progress in query.recentProgress) == 1000
    assert rows_of(rig) == list(range(1, 6001))


def test_several_streams_are_one_source_and_the_progress_says_how_far_it_is_behind(rig: Rig) -> None:
    names = [f"{rig.stream}/{letter}" for letter in "ab"]
    for name, count in zip(names, (300, 100), strict=True):
        with rig.node.publisher(name, source="desk") as publisher:
            publisher.publish_many(["k"] * count, [str(index) for index in range(count)])
    rows = rig.read_stream(stream="", streams=f"{rig.stream}/*", maxRowsPerTrigger=200)
    query = rig.run(rows)
    found = rig.parquet().groupBy("stream").agg(f.count("*"), f.min("sequence"), f.max("sequence")).collect()
    assert sorted(map(tuple, found)) == [(names[0], 300, 1, 300), (names[1], 100, 1, 100)]
    assert [lag_of(progress) for progress in query.recentProgress] == [
        {names[0]: 150, names[1]: 50},
        {names[0]: 0, names[1]: 0},
    ]
    assert read_to_of(query.lastProgress) == {names[0]: 300, names[1]: 100}


def test_a_token_stands_in_no_plan(rig: Rig) -> None:
    for rows in (rig.read("key string", token="s3cret"), rig.read_stream("key string", token="s3cret")):
        plan = rows._jdf.queryExecution().analyzed().treeString()  # type: ignore[attr-defined]
        assert "s3cret" not in plan
        assert "veredus" in plan.lower()


def test_a_filter_counts_in_every_batch(rig: Rig) -> None:
    rig.publish(3000, size=list(range(3000)))
    rig.run(rig.read_stream(keys="literal:k1", where="size < 2000", maxRowsPerTrigger=1024, rowsPerPartition=1024))
    assert rig.parquet().count() == 200


def test_latest_stays_where_it_was_when_the_first_batch_fails(rig: Rig) -> None:
    rig.publish(100)
    rows = rig.read_stream(startingSequence="latest", subscriber="risk")
    run_empty = rig.run(rows)
    assert run_empty.lastProgress is None or run_empty.lastProgress["numInputRows"] == 0
    rig.publish(50, source="early")
    run_failing(rig, rows)
    rig.publish(50, source="late")
    rig.run(rows)
    assert rows_of(rig) == list(range(101, 201))


def test_a_subscriber_lets_go_of_what_the_query_is_through_with(rig: Rig) -> None:
    rig.publish(3000)
    rig.run(rig.read_stream(subscriber="risk", maxRowsPerTrigger=1024, rowsPerPartition=1024))
    floor = rig.node.subscriptions.show(rig.stream, "risk", "spark")["floor"]
    assert 1024 <= floor <= 3000, "Spark commits a batch when it plans the next: all but the last one"


def test_a_live_query_takes_what_comes(rig: Rig) -> None:
    rig.publish(10)
    writer = rig.read_stream().writeStream.option("checkpointLocation", str(rig.directory / "checkpoint"))
    query = writer.format("memory").queryName(f"live_{rig.stream.replace('-', '_')}").start()
    try:
        query.processAllAvailable()
        rig.publish(10, source="later")
        query.processAllAvailable()
        assert rig.spark.table(query.name).count() == 20
    finally:
        query.stop()


def test_a_live_query_waits_for_as_many_rows_as_it_is_told_and_one_that_ends_takes_the_rest(rig: Rig) -> None:
    rig.publish(3)
    rows = rig.read_stream(minRowsPerTrigger=5, maxTriggerDelaySeconds=600)
    writer = rows.writeStream.option("checkpointLocation", str(rig.directory / "checkpoint")).format("parquet")
    query = writer.start(str(rig.directory / "parquet"))
    try:
        query.processAllAvailable()
        assert query.recentProgress == [] or query.recentProgress[-1]["numInputRows"] == 0
        rig.publish(2, source="later")
        query.processAllAvailable()
        assert [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]] == [5]
        rig.publish(1, source="last")
        query.processAllAvailable()
        assert rows_of(rig) == list(range(1, 6))
    finally:
        query.stop()
    rig.run(rows)
    assert rows_of(rig) == list(range(1, 7))


def test_an_idle_query_asks_the_node_few_times_a_second(rig: Rig) -> None:
    rig.publish(10)
    writer = rig.read_stream().writeStream.option("checkpointLocation", str(rig.directory / "checkpoint"))
    query = writer.format("noop").start()
    try:
        query.processAllAvailable()
        began = time.monotonic()
        seen = query.recentProgress
        while time.monotonic() - began < 1.0:
            query.processAllAvailable()
        idle = [progress for progress in query.recentProgress if progress not in seen]
        assert len(idle) < 20
    finally:
        query.stop()


def test_a_checkpoint_of_another_stream_is_refused(rig: Rig) -> None:
    rig.publish(10)
    rig.run(rig.read_stream())
    rig.stream = f"{rig.stream}-other"
    rig.publish(10)
    with pytest.raises(StreamingQueryException, match="use another checkpointLocation"):
        rig.run(rig.read_stream())


def test_a_stream_made_again_is_refused_under_the_old_checkpoint(rig: Rig) -> None:
    rig.publish(10)
    rig.run(rig.read_stream())
    rig.node.streams.delete(rig.stream)
    rig.publish(20)
    with pytest.raises(StreamingQueryException, match="deleted and created again"):
        rig.run(rig.read_stream())


def test_rows_that_were_trimmed_before_they_were_read_stop_the_query_or_are_passed_over(rig: Rig) -> None:
    rig.publish(10)
    rig.run(rig.read_stream())
    rig.publish(20, source="later")
    rig.node.streams.trim(rig.stream, 21)
    with pytest.raises(StreamingQueryException, match="no longer holds sequences 11 to 20"):
        rig.run(rig.read_stream())
    rig.run(rig.read_stream(failOnDataLoss="false"))
    assert rows_of(rig) == [*range(1, 11), *range(21, 31)]


def test_a_replayed_batch_has_the_same_rows_though_the_stream_has_grown(rig: Rig) -> None:
    rig.publish(100)
    rows = rig.read_stream()
    run_failing(rig, rows)
    rig.publish(100, source="later")
    query = rig.run(rows)
    assert [progress["numInputRows"] for progress in query.recentProgress] == [100, 100]
    assert rows_of(rig) == list(range(1, 201))


def test_a_node_that_was_away_stops_no_query(rig: Rig, tmp_path: Path) -> None:
    rig.publish(10)
    writer = rig.read_stream().writeStream.option("checkpointLocation", str(rig.directory / "checkpoint"))
    query = writer.format("memory").queryName(f"away_{rig.stream.replace('-', '_')}").start()
    try:
        query.processAllAvailable()
        rig.node.served.stop()
        rig.node.served.start()
        rig.publish(10, source="later")
        query.processAllAvailable()
        assert rig.spark.table(query.name).count() == 20
    finally:
        query.stop()


def test_a_query_that_starts_inserts_nothing_into_the_map_that_it_shares_with_others(rig: Rig) -> None:
    given = dict(rig.spark.sparkContext.environment)
    register(rig.spark)
    assert dict(rig.spark.sparkContext.environment) == given
    manager = rig.spark._jsparkSession.sessionState().dataSourceManager()  # type: ignore[union-attr]
    shared = manager.lookupDataSource("veredus").dataSourceCls().envVars()
    names = set(shared)
    rig.publish(10)
    rig.run(rig.read_stream())
    assert rows_of(rig) == list(range(1, 11))
    assert set(shared) == names


def test_a_thread_that_registers_the_session_reads_and_writes_like_the_one_that_made_it(rig: Rig) -> None:
    rig.publish(10)
    given = dict(rig.spark.sparkContext.environment)

    def work(number: int) -> None:
        register(rig.spark)
        rig.write(rig.read("key string, body string"), stream=f"{rig.stream}-batch")
        rig.run(rig.read_stream("key string"), to=f"{rig.stream}-query", checkpoint=f"checkpoint-{number}")

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(work, range(2))) == [None, None]
    assert [len(rig.bodies(f"{rig.stream}-{kind}")) for kind in ("batch", "query")] == [20, 20]
    assert dict(rig.spark.sparkContext.environment) == given


def test_workers_without_the_package_are_warned_of_with_the_cure(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    register(rig.spark)
    assert not recwarn.list
    venv.create(rig.directory / "other", symlinks=True)
    python = rig.directory / "other" / "bin" / "python3"
    with monkeypatch.context() as patch:
        patch.setattr(rig.spark.sparkContext, "pythonExec", str(python))
        with pytest.warns(UserWarning, match=f"{python}, which has no package veredus.*set PYSPARK_PYTHON="):
            register(rig.spark)
    register(rig.spark)
