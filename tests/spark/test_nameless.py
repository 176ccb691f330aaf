"""A write without the name of a sink leaves nothing at the node, once it has ended."""

import time
from collections.abc import Iterator

import pytest
from pyspark.sql import functions as f
from pyspark.sql.types import StringType

import veredus
from veredus import Embedded

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
    # A task that Spark had begun may join the write once more behind the driver's end of it: then the lease ends that.
    until_s = time.monotonic() + 3 * LEASE_S
    while sinks(rig) and time.monotonic() < until_s:
        time.sleep(0.1)
    assert (sinks(rig), rig.node.sinks.stages(), len(rig.bodies())) == ([], [], 100)


@pytest.mark.slow
def test_a_write_whose_job_does_other_work_for_longer_than_the_lease_succeeds(rig: Rig) -> None:
    slow = f.udf(lambda body: (time.sleep(LEASE_S + 2 if body == "0" else 0), body)[1], StringType())
    rig.write(numbered(rig, 10).withColumn("body", slow("body")).repartition(2, "body"))
    assert sorted(rig.bodies()) == [str(number) for number in range(10)]
    assert sinks(rig) == []
