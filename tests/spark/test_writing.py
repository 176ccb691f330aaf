"""What Spark writes is in the stream once and as a whole, or not at all and with a reason."""

import re
import shutil

import pytest
from pyspark import TaskContext
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import StringType

import veredus

from .conftest import PATIENCE_SECONDS, Rig, numbered

pytestmark = pytest.mark.spark

DIGEST = re.compile(r"digest ([0-9a-f]+)")


def once(bodies: list[str], count: int) -> bool:
    return sorted(bodies, key=int) == [str(n) for n in range(count)]


def test_columns_become_key_body_time_and_attributes(rig: Rig) -> None:
    rows = rig.spark.sql(
        "select 'k' as key, 'b' as body, timestamp '2024-05-01 12:00:00' as event_time, 7 as size, 1.5d as quote,"
        " true as firm, cast(null as string) as venue, cast(2.5 as float) as ratio"
    )
    rig.write(rows)
    with rig.node.subscribe(rig.stream, start=veredus.beginning(), until=2) as subscription:
        (publication,) = subscription
    assert (publication.key, publication.body) == (b"k", b"b")
    assert publication.event_time.isoformat() == "2024-05-01T12:00:00+00:00"
    assert publication.attributes == {"size": 7, "quote": 1.5, "firm": True, "ratio": 2.5}


def test_columns_are_known_whatever_their_case(rig: Rig) -> None:
    rig.write(rig.spark.sql("select 'k' as KEY, 'b' as Body, 7 as Size"))
    assert rig.bodies() == ["b"]
    (row,) = rig.read("Key string, BODY string, sIZE bigint").collect()
    assert row.asDict() == {"Key": "k", "BODY": "b", "sIZE": 7}


def test_a_case_that_counts_is_refused_rather_than_written_as_an_attribute(rig: Rig) -> None:
    rig.publish(1)
    rig.spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        with pytest.raises(Exception, match="column KEY differs from key by its case"):
            rig.write(rig.spark.sql("select 'k' as KEY, 'b' as body"))
        with pytest.raises(Exception, match="column Body differs from body by its case"):
            rig.read("Body string").collect()
        rig.write(rig.spark.sql("select 'b' as body, 1 as Size, 2 as size"))
    finally:
        rig.spark.conf.unset("spark.sql.caseSensitive")
    assert rig.bodies() == ["0", "b"]


def test_a_write_of_many_partitions_is_in_the_stream_as_a_whole(rig: Rig) -> None:
    rig.write(numbered(rig, 30_000, parts=5))
    assert once(rig.bodies(), 30_000)


def test_an_empty_write_leaves_the_stream_empty(rig: Rig) -> None:
    rig.node.streams.create(rig.stream)
    rig.write(numbered(rig, 0))
    assert rig.bodies() == []


def test_a_commit_id_is_written_once_and_a_smaller_one_refused(rig: Rig) -> None:
    for _ in range(2):
        rig.write(numbered(rig, 100), sink="nightly", commitId=20240501)
    assert once(rig.bodies(), 100)
    with pytest.raises(AnalysisException, match=r"20240501.*20240430 is smaller"):
        rig.write(numbered(rig, 100), sink="nightly", commitId=20240430)
    rig.write(numbered(rig, 100), sink="nightly", commitId=20240502)
    assert len(rig.bodies()) == 200


def test_a_commit_id_for_another_stream_is_refused(rig: Rig) -> None:
    rig.write(numbered(rig, 10), sink="nightly-of-two", commitId=1)
    with pytest.raises(Exception, match="commit-other-streams") as caught:
        rig.write(numbered(rig, 10), stream=f"{rig.stream}-other", sink="nightly-of-two", commitId=1)
    assert f"'{rig.stream}'" in str(caught.value)
    assert f"'{rig.stream}-other'" in str(caught.value)


def test_a_commit_id_that_comes_again_with_other_rows_is_refused_unless_it_may_be_passed_over(rig: Rig) -> None:
    sink = {"sink": f"of-{rig.stream}", "commitId": 7}
    rig.write(numbered(rig, 100), **sink)
    rig.write(numbered(rig, 100, parts=3).orderBy(f.desc("body")), **sink)
    with pytest.raises(Exception, match=r"(?s)100 rows.*110 rows.*commit-other-rows"):
        rig.write(numbered(rig, 110), **sink)
    changed = numbered(rig, 100).withColumn("key", f.when(f.col("body") == "5", "other").otherwise(f.col("key")))
    with pytest.raises(Exception, match=r"(?s)make the query deterministic.*commit-other-rows"):
        rig.write(changed, **sink)
    rig.write(changed, onOtherRows="keep", **sink)
    assert once(rig.bodies(), 100)


def test_other_batches_under_the_commit_ids_of_a_deleted_checkpoint_are_refused_and_not_taken_for_done(
    rig: Rig,
) -> None:
    rig.publish(2000)
    copy = f"{rig.stream}-copy"

    def write(batch: DataFrame, batch_id: int) -> None:
        rig.write(batch.select("key", "body"), stream=copy, sink=f"each-{copy}", commitId=batch_id)

    def copy_anew(size: int, **where: str) -> None:
        shutil.rmtree(rig.directory / "checkpoint", ignore_errors=True)
        rows = rig.read_stream(maxRowsPerTrigger=size, rowsPerPartition=1024, **where)
        writer = rows.writeStream.option("checkpointLocation", str(rig.directory / "checkpoint"))
        query = writer.foreachBatch(write).trigger(availableNow=True).start()
        assert query.awaitTermination(PATIENCE_SECONDS)

    copy_anew(2048)
    copy_anew(2048)
    assert once(rig.bodies(copy), 2000), "the same batch is the same commit"
    for size, where, other in ((1024, {}, "1024 rows"), (2048, {"keys": "literal:k1"}, "200 rows")):
        with pytest.raises(StreamingQueryException, match="commit-other-rows") as caught:
            copy_anew(size, **where)
        said = str(caught.value)
        assert "2000 rows" in said
        assert other in said
        assert len(set(DIGEST.findall(said))) == 2, said
    assert once(rig.bodies(copy), 2000)


def test_rows_go_to_the_streams_that_they_name(rig: Rig) -> None:
    names = [f"{rig.stream}-{letter}" for letter in "ab"]
    rows = numbered(rig, 100).withColumn("STREAM", f.when(f.col("key") == "k3", names[0]).otherwise(names[1]))
    given = {"address": rig.address, "sink": f"of-{rig.stream}", "commitId": "1"}
    for _ in range(2):
        rows.write.format("veredus").mode("append").options(**given).save()
    assert [len(rig.bodies(name)) for name in names] == [10, 90]
    with pytest.raises(AnalysisException, match="both name the stream of the rows"):
        rig.write(rows)
    with pytest.raises(AnalysisException, match="the stream of the rows is missing"):
        numbered(rig, 1).write.format("veredus").mode("append").options(address=rig.address).save()
    absent = rows.withColumn("STREAM", f.lit(None).cast("string"))
    with pytest.raises(Exception, match="column STREAM has"):
        absent.write.format("veredus").mode("append").options(address=rig.address).save()


def test_a_write_without_a_commit_id_writes_each_time(rig: Rig) -> None:
    for _ in range(2):
        rig.write(numbered(rig, 10))
    assert len(rig.bodies()) == 20


@pytest.mark.parametrize(
    ("mode", "columns", "options", "words"),
    [
        ("overwrite", "'b' as body", {}, "use append"),
        ("append", "current_date() as day", {}, "column day"),
        ("append", "1L as sequence", {}, "assigned by the node"),
        ("append", "'b' as Body, 'c' as BODY", {}, "columns Body and BODY differ only in case"),
        ("append", "1L as SEQUENCE", {}, "assigned by the node"),
        ("append", "'b' as body", {"commitId": 3}, "go together"),
        ("append", "'b' as body", {"colour": "red"}, "the option `colour`"),
    ],
)
def test_what_cannot_be_written_is_refused_before_a_row_is(
    rig: Rig, mode: str, columns: str, options: dict[str, object], words: str
) -> None:
    rig.node.streams.create(rig.stream)
    with pytest.raises(AnalysisException, match=words):
        rig.write(rig.spark.sql(f"select {columns}"), mode=mode, **options)
    assert rig.bodies() == []


def test_a_null_body_fails_the_write_and_leaves_nothing(rig: Rig) -> None:
    rig.node.streams.create(rig.stream)
    rows = numbered(rig, 100).withColumn("body", f.when(f.col("key") != "k7", f.col("body")))
    with pytest.raises(Exception, match="column body has"):
        rig.write(rows)
    assert rig.bodies() == []


def test_a_task_that_fails_half_way_is_tried_again_and_counts_once(rig: Rig) -> None:
    @f.udf(returnType=StringType(), useArrow=False)
    def stumbling(body: str) -> str:
        context = TaskContext.get()
        if context is not None and context.attemptNumber() == 0 and body.endswith("777"):
            raise RuntimeError("stumbled")
        return body

    rig.write(numbered(rig, 20_000).withColumn("body", stumbling("body")))
    assert once(rig.bodies(), 20_000)


def test_a_write_that_fails_for_good_leaves_nothing(rig: Rig) -> None:
    @f.udf(returnType=StringType(), useArrow=False)
    def falling(body: str) -> str:
        if body.endswith("9777"):
            raise RuntimeError("fell")
        return body

    rig.node.streams.create(rig.stream)
    with pytest.raises(Exception, match="fell"):
        rig.write(numbered(rig, 20_000).withColumn("body", falling("body")))
    assert rig.bodies() == []


def test_a_streaming_query_writes_each_batch_once(rig: Rig) -> None:
    rig.publish(3000)
    rows = rig.read_stream("key string, body string", maxRowsPerTrigger=1024, rowsPerPartition=1024)
    rig.run(rows, to=f"{rig.stream}-out")
    assert once(rig.bodies(f"{rig.stream}-out"), 3000)
    rig.publish(1000, source="later", first=3000)
    rig.run(rows, to=f"{rig.stream}-out")
    assert once(rig.bodies(f"{rig.stream}-out"), 4000)


def test_a_batch_that_spark_forgot_to_have_committed_is_not_written_again(rig: Rig) -> None:
    rig.publish(3000)
    rows = rig.read_stream("key string, body string", maxRowsPerTrigger=1024, rowsPerPartition=1024)
    rig.run(rows, to=f"{rig.stream}-out")
    commits = rig.directory / "checkpoint" / "commits"
    for name in ("2", ".2.crc"):
        (commits / name).unlink()
    rig.run(rows, to=f"{rig.stream}-out")
    assert once(rig.bodies(f"{rig.stream}-out"), 3000)


def test_rows_dealt_otherwise_when_a_batch_is_replayed_are_written_once(rig: Rig) -> None:
    rig.publish(2000)
    rows = rig.read_stream("key string, body string")
    rig.run(rows.repartition(2), to=f"{rig.stream}-out")
    commits = rig.directory / "checkpoint" / "commits"
    for name in ("0", ".0.crc"):
        (commits / name).unlink()
    rig.publish(500, source="later", first=2000)
    rig.run(rows.repartition(3, "body"), to=f"{rig.stream}-out")
    assert once(rig.bodies(f"{rig.stream}-out"), 2500)


def test_a_checkpoint_put_back_too_far_is_refused(rig: Rig) -> None:
    rig.publish(3000)
    rows = rig.read_stream("key string, body string", maxRowsPerTrigger=1024, rowsPerPartition=1024)
    rig.run(rows, to=f"{rig.stream}-out")
    for part in ("commits", "offsets"):
        for name in ("1", ".1.crc", "2", ".2.crc"):
            (rig.directory / "checkpoint" / part / name).unlink()
    with pytest.raises(StreamingQueryException, match="commit-id-behind"):
        rig.run(rows, to=f"{rig.stream}-out")
    assert once(rig.bodies(f"{rig.stream}-out"), 3000)


def test_a_checkpoint_that_is_one_batch_old_is_refused_when_its_batch_comes_again_with_other_rows(rig: Rig) -> None:
    rig.publish(100)
    rows = rig.read_stream("key string, body string")
    rig.run(rows, to=f"{rig.stream}-out")
    shutil.copytree(rig.directory / "checkpoint", rig.directory / "copy")
    rig.publish(100, source="later", first=100)
    rig.run(rows, to=f"{rig.stream}-out")
    shutil.rmtree(rig.directory / "checkpoint")
    shutil.copytree(rig.directory / "copy", rig.directory / "checkpoint")
    rig.publish(100, source="latest", first=200)
    with pytest.raises(StreamingQueryException, match=r"(?s)100 rows.*200 rows.*commit-other-rows"):
        rig.run(rows, to=f"{rig.stream}-out")
    assert once(rig.bodies(f"{rig.stream}-out"), 200)


def test_a_checkpoint_is_known_as_deleted_however_its_place_is_written(rig: Rig) -> None:
    rig.publish(10)
    rows = rig.read_stream("key string, body string")
    name = f"daily_{rig.stream.replace('-', '_')}"

    def write(**options: str) -> None:
        writer = rows.writeStream.format("veredus").options(**rig.options(stream=f"{rig.stream}-out"), **options)
        writer.queryName(name).trigger(availableNow=True).start().awaitTermination(PATIENCE_SECONDS)

    write(checkpointLocation=str(rig.directory / name))
    rig.spark.conf.set("spark.sql.streaming.checkpointLocation", f"file:{rig.directory}/")
    try:
        for spelling in ({}, {"checkpointLocation": f"file:{rig.directory}/{name}/"}):
            shutil.rmtree(rig.directory / name)
            with pytest.raises(StreamingQueryException, match="checkpoint-deleted"):
                write(**spelling)
    finally:
        rig.spark.conf.unset("spark.sql.streaming.checkpointLocation")
    assert once(rig.bodies(f"{rig.stream}-out"), 10)


def test_a_deleted_checkpoint_is_noticed_before_anything_is_doubled(rig: Rig) -> None:
    rig.publish(100)
    rows = rig.read_stream("key string, body string")
    rig.run(rows, to=f"{rig.stream}-out")
    shutil.rmtree(rig.directory / "checkpoint")
    with pytest.raises(StreamingQueryException, match="was its checkpoint deleted"):
        rig.run(rows, to=f"{rig.stream}-out")
    assert once(rig.bodies(f"{rig.stream}-out"), 100)
    shutil.rmtree(rig.directory / "checkpoint")
    rig.run(rows, to=f"{rig.stream}-out", sink="once-more")
    assert len(rig.bodies(f"{rig.stream}-out")) == 200


def test_a_stream_made_again_may_be_written_under_a_new_checkpoint(rig: Rig) -> None:
    rig.publish(100)
    rows = rig.read_stream("key string, body string")
    rig.run(rows, to=f"{rig.stream}-out")
    shutil.rmtree(rig.directory / "checkpoint")
    rig.node.streams.delete(f"{rig.stream}-out")
    rig.run(rows, to=f"{rig.stream}-out")
    assert once(rig.bodies(f"{rig.stream}-out"), 100)


def test_two_queries_may_write_to_one_stream(rig: Rig) -> None:
    rig.publish(100)
    rows = rig.read_stream("key string, body string")
    for checkpoint in ("first", "second"):
        rig.run(rows, to=f"{rig.stream}-out", checkpoint=checkpoint)
    assert len(rig.bodies(f"{rig.stream}-out")) == 200


def test_complete_mode_is_refused(rig: Rig) -> None:
    rig.publish(10)
    counts = rig.read_stream("key string").groupBy("key").agg(f.count("*").cast("string").alias("body"))
    writer = counts.writeStream.outputMode("complete").format("veredus").options(**rig.options(stream="counts"))
    query = writer.option("checkpointLocation", str(rig.directory / "checkpoint")).trigger(availableNow=True).start()
    with pytest.raises(StreamingQueryException, match="use append"):
        query.awaitTermination()
