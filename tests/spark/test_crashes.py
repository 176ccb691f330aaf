"""The driver dies at each boundary of the sink, and the node with it once; every row is in the target once.

Each death is a Spark of its own, which takes its time: in short runs only the boundaries that nothing else crosses.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import veredus
from veredus import Embedded

DRIVER = Path(__file__).with_name("dying_driver.py")
IS_FULL = os.environ.get("ATTACK_FULL") == "1"
BOUNDARIES = ("staging", "staged", "committing", "committed") if IS_FULL else ("staged", "committed")
NAMELESS = ("planned", *BOUNDARIES) if IS_FULL else ("staged",)
NAMED = ("staging", "committing", "committed")
ROWS_COUNT = 5000
LEASE_S = 20

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.attack]


def run_driver(node: Embedded, directory: Path, kind: str, boundary: str) -> int:
    """One run of the driver in a process group of its own; its exit code."""
    arguments = [kind, node.served.address, "source", "target", str(directory), boundary]
    with (directory / f"driver-{kind}-{boundary}.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, str(DRIVER), *arguments], stdout=log, stderr=log, start_new_session=True
        )
        try:
            return process.wait(240)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def publish(node: Embedded, count: int, source: str = "desk", first: int = 0) -> None:
    with node.publisher("source", source=source) as publisher:
        for number in range(first, first + count):
            publisher.publish("k", str(number))


def numbers(node: Embedded) -> list[int]:
    """What is visible in the target, sorted."""
    head = node.streams.show("target")["head"]
    with node.subscribe("target", start=veredus.beginning(), until=head + 1) as subscription:
        return sorted(int(publication.body) for publication in subscription)


def leftovers(node: Embedded) -> list[str]:
    """Sinks without a name, and those that have stages."""
    nameless = [shown["sink"] for shown in node.sinks.list() if shown["sink"].startswith("spark-batch/target/")]
    return nameless + [shown["sink"] for shown in node.sinks.stages()]


@pytest.mark.timeout(420)
def test_a_driver_killed_at_every_boundary_writes_each_row_once(tmp_path: Path) -> None:
    with veredus.embedded(tmp_path / "node") as node:
        for index, boundary in enumerate(BOUNDARIES):
            publish(node, ROWS_COUNT, boundary, index * ROWS_COUNT)
            assert run_driver(node, tmp_path, "stream", boundary) == -signal.SIGKILL, boundary
            if boundary == "staged":
                node.served.stop()
                node.served.start()
        assert run_driver(node, tmp_path, "stream", "none") == 0, (tmp_path / "driver-stream-none.log").read_text()
        assert numbers(node) == list(range(ROWS_COUNT * len(BOUNDARIES)))


@pytest.mark.timeout(800)
def test_a_plain_write_that_is_killed_shows_all_or_nothing_and_leaves_nothing_after_its_lease(tmp_path: Path) -> None:
    with veredus.embedded(tmp_path / "node", limits={"stage_lease_ns": LEASE_S * 1_000_000_000}) as node:
        publish(node, ROWS_COUNT)
        node.streams.create("target")
        for boundary in NAMELESS:
            assert run_driver(node, tmp_path, "nameless", boundary) == -signal.SIGKILL
            assert leftovers(node)
            assert numbers(node) == list(range(ROWS_COUNT if boundary == "committed" else 0)), boundary
        deadline = time.monotonic() + 3 * LEASE_S
        while leftovers(node) and time.monotonic() < deadline:
            time.sleep(0.5)
        assert leftovers(node) == []
        assert numbers(node) == list(range(ROWS_COUNT if "committed" in NAMELESS else 0))


@pytest.mark.skipif(not IS_FULL, reason="a streaming query crosses the same boundaries: make attack")
@pytest.mark.timeout(400)
@pytest.mark.parametrize("boundary", NAMED)
def test_a_named_write_that_is_killed_is_there_once_when_it_is_tried_again(tmp_path: Path, boundary: str) -> None:
    with veredus.embedded(tmp_path / "node") as node:
        publish(node, ROWS_COUNT)
        node.streams.create("target")
        assert run_driver(node, tmp_path, "named", boundary) == -signal.SIGKILL
        assert numbers(node) == list(range(ROWS_COUNT if boundary == "committed" else 0))
        assert run_driver(node, tmp_path, "named", boundary) == 0, (
            tmp_path / f"driver-named-{boundary}.log"
        ).read_text()
        assert numbers(node) == list(range(ROWS_COUNT))
        assert leftovers(node) == []
