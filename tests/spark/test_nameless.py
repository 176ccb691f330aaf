"""A write without the name of a sink leaves nothing at the node, once it has ended."""

import threading
import time
from collections.abc import Iterable, Iterator

import pyarrow as pa
import pytest
from pyspark.sql import functions as f
from pyspark.sql.types import StringType

import veredus
from veredus import Embedded
from veredus.spark.options import write_options
from veredus.spark.writer import StageWriter

from .conftest import Rig, numbered

LEASE_S = 10

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def node() -> Iterator[Embedded]:
    """A node that lets go soon, though not in the time that Spark takes from the last task to the commit."""
    with veredus.embedded(journal={"sync": "none"}, limits={"stage_lease_ns": LEASE_S * 1_000_000_000}) as node:
        yield node


def sinks(rig: Rig) -> list[str]:
    return [shown["sink"] for shown in rig.node.sinks.list()]


def test_a_write_that_succeeds_or_fails_leaves_no_sink(rig: Rig) -> None:
    rig.node.streams.create(rig.stream)
    rig.write(numbered(rig, 100))
    assert (sinks(rig), len(rig.bodies())) == ([], 100)
    broken = f.udf(lambda body: body if int(body) < 90 else 1 / 0, StringType())
    with pytest.raises(Exception, match="ZeroDivisionError"):
        rig.write(numbered(rig, 100).withColumn("body", broken("body")))
    assert (sinks(rig), rig.node.sinks.stages(), len(rig.bodies())) == ([], [], 100)


def broken_off(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches
    raise ValueError("broken off")


def sleeping(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        time.sleep(3)
        yield batch


def test_attempts_that_begin_behind_the_end_of_a_failed_or_cancelled_write_open_no_sink(rig: Rig) -> None:
    rows = numbered(rig, 100)
    for _ in range(2):
        with pytest.raises(Exception, match="broken off"):
            rig.write(rows.mapInArrow(broken_off, rows.schema))
    cancel = threading.Timer(2, rig.spark.sparkContext.cancelAllJobs)
    cancel.start()
    with pytest.raises(Exception, match=r"(?i)cancel"):
        rig.write(rows.mapInArrow(sleeping, rows.schema))
    cancel.join()
    time.sleep(LEASE_S / 2)
    assert (sinks(rig), rig.node.sinks.stages()) == ([], [])


def test_an_attempt_that_gets_no_rows_opens_nothing_again_that_the_driver_has_removed(rig: Rig) -> None:
    def given_up() -> Iterator[pa.RecordBatch]:
        raise ValueError("given up")
        yield

    writer = StageWriter.opened(write_options(rig.options()))
    writer.abort([None])
    with pytest.raises(ValueError, match="given up"):
        writer.write(given_up())
    assert sinks(rig) == []


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_an_attempt_with_rows_that_comes_behind_the_driver_s_end_is_refused(rig: Rig, end: str) -> None:
    writer = StageWriter.opened(write_options(rig.options()))
    getattr(writer, end)([])
    with pytest.raises(veredus.Refused, match="was removed"):
        writer.write(iter([pa.record_batch({"key": ["k"], "body": ["late"]})]))
    assert (sinks(rig), rig.node.sinks.stages()) == ([], [])


@pytest.mark.slow
def test_a_write_whose_job_does_other_work_for_longer_than_the_lease_succeeds(rig: Rig) -> None:
    slow = f.udf(lambda body: (time.sleep(LEASE_S + 2 if body == "0" else 0), body)[1], StringType())
    rig.write(numbered(rig, 10).withColumn("body", slow("body")).repartition(2, "body"))
    assert sorted(rig.bodies()) == [str(number) for number in range(10)]
    assert sinks(rig) == []
