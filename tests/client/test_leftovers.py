"""What an embedded node left in the temporary directory, because its process was killed, the next one removes."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.processes import Child
from veredus import embedded

SCRIPT = """
import sys, time, veredus
with veredus.embedded() as node:
    with node.publisher("s") as publisher:
        publisher.wait(publisher.publish("k", b"x"))
    print(node.served.directory, flush=True)
    time.sleep(60)
"""


def begun(place: Path) -> tuple[Child, Path]:
    """A program with an embedded node, and the directory of that node's journal."""
    child = Child([sys.executable, "-c", SCRIPT], stdout=-1, env={**os.environ, "TMPDIR": str(place)})
    assert child.stdout is not None
    return child, Path(child.stdout.readline().decode().strip())


def age(place: Path) -> None:
    """As if what lies there had been made an hour ago."""
    for path in place.iterdir():
        os.utime(path, (time.time() - 3600,) * 2)


def test_what_a_killed_program_left_goes_at_the_next_start_and_what_is_in_use_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    other = tmp_path / "veredus-embedded"
    other.mkdir()
    (other / "lock").touch()
    killed, of_killed = begun(tmp_path)
    with killed:
        killed.send_signal(signal.SIGKILL)
        killed.wait()
    alive, of_alive = begun(tmp_path)
    with alive:
        embedded().close()
        assert of_killed.exists(), "it is too young to be told from one that is being made"
        age(tmp_path)
        with embedded() as node:
            assert set(tmp_path.iterdir()) == {other, of_alive.parent, Path(node.served.directory).parent}
    assert set(tmp_path.iterdir()) == {other, of_alive.parent}
