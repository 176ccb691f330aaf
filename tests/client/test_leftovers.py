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
    assert of_killed.exists()
    alive, of_alive = begun(tmp_path)
    with alive, embedded() as node:
        assert set(tmp_path.iterdir()) == {other, of_alive.parent, Path(node.served.directory).parent}
    assert set(tmp_path.iterdir()) == {other, of_alive.parent}


def test_what_was_being_made_when_its_program_was_killed_goes_once_it_is_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    making = [tmp_path / f"veredus-making-{name}" for name in ("old", "young")]
    for path in making:
        path.mkdir()
    os.utime(making[0], (time.time() - 3600,) * 2)
    embedded().close()
    assert set(tmp_path.iterdir()) == {making[1]}


@pytest.mark.parametrize(
    ("end", "code"),
    [("", 0), ("sys.exit(3)", 3), ("raise ValueError", 1), ("os.kill(os.getpid(), signal.SIGINT)", -signal.SIGINT)],
)
def test_a_program_that_ends_without_closing_its_node_leaves_nothing_and_what_it_published_is_there(
    tmp_path: Path, end: str, code: int
) -> None:
    begin = "import os, signal, sys, veredus\nkept, temporary = veredus.embedded('kept'), veredus.embedded()\n"
    work = "[node.publisher('s', source='a').publish('k', b'x') for node in (kept, temporary)]\n"
    place = tmp_path / "temporary"
    place.mkdir()
    with Child(
        [sys.executable, "-c", begin + work + end], env={**os.environ, "TMPDIR": str(place)}, cwd=tmp_path, stderr=-1
    ) as child:
        assert child.wait(30) == code
    assert list(place.iterdir()) == []
    with embedded(tmp_path / "kept") as node:
        assert node.streams.show("s")["head"] == 1
