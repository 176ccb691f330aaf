"""A write without the name of a sink leaves nothing: at its end at once, and when it is killed with its lease."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import functions as f
from pyspark.sql.types import StringType

import veredus
from veredus import Embedded

from .conftest import PATIENCE_SECONDS, Rig, numbered

KILLED = Path(__file__).with_name("killed_write.py")

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def node() -> Iterator[Embedded]:
    """A node that lets go after a second."""
    with veredus.embedded(journal={"sync": "none"}, limits={"stage_lease_ns": 1_000_000_000}) as node:
        yield node


def wait_until(is_so: Callable[[], bool]) -> None:
    end_s = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        assert time.monotonic() < end_s
        time.sleep(0.05)


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


def test_a_write_whose_job_does_other_work_for_longer_than_the_lease_succeeds(rig: Rig) -> None:
    def slow(body: str) -> str:
        time.sleep(4 if body == "0" else 0)
        return body

    rig.write(numbered(rig, 10).withColumn("body", f.udf(slow, StringType())("body")).repartition(2, "body"))
    assert sorted(rig.bodies()) == [str(number) for number in range(10)]
    assert sinks(rig) == []


@pytest.mark.slow
def test_a_killed_write_leaves_nothing_once_its_lease_is_over(rig: Rig, tmp_path: Path) -> None:
    with (tmp_path / "driver.log").open("wb") as log:
        command = [sys.executable, str(KILLED), rig.address, rig.stream]
        driver = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        try:
            wait_until(lambda: len(rig.node.sinks.stages()) == 2)
            assert len(sinks(rig)) == 1
        finally:
            os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()
    wait_until(lambda: not (rig.node.sinks.stages() or sinks(rig)))
    rig.write(numbered(rig, 10))
    assert len(rig.bodies()) == 10
