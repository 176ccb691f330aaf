"""The driver dies at each boundary of the sink, and the node with it once; every row is in the target once."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import veredus
from veredus import Embedded

DRIVER = Path(__file__).with_name("dying_driver.py")
BOUNDARIES = ("staging", "staged", "committing", "committed")
ROWS_COUNT = 5000

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def run_driver(node: Embedded, directory: Path, boundary: str) -> int:
    """One run of the driver in a process group of its own; its exit code."""
    arguments = [node.served.address, "source", "target", str(directory), boundary]
    with (directory / f"driver-{boundary}.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, str(DRIVER), *arguments], stdout=log, stderr=log, start_new_session=True
        )
        try:
            return process.wait(120)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.timeout(420)
def test_a_driver_killed_at_every_boundary_writes_each_row_once(tmp_path: Path) -> None:
    with veredus.embedded(tmp_path / "node") as node:
        for index, boundary in enumerate(BOUNDARIES):
            with node.publisher("source", source=boundary) as publisher:
                for number in range(ROWS_COUNT):
                    publisher.publish("k", str(index * ROWS_COUNT + number))
            assert run_driver(node, tmp_path, boundary) == -signal.SIGKILL, boundary
            if boundary == "staged":
                node.served.stop()
                node.served.start()
        assert run_driver(node, tmp_path, "none") == 0, (tmp_path / "driver-none.log").read_text()
        head = node.streams.show("target")["head"]
        with node.subscribe("target", start=veredus.beginning(), until=head + 1) as subscription:
            bodies = sorted(int(publication.body) for publication in subscription)
    assert bodies == list(range(ROWS_COUNT * len(BOUNDARIES)))
