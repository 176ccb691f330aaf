"""The layer under a real process: its writes are logged, its disk can be full, its clock can be off."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest

from veredus.chaos.layer import Switches, write_switches
from veredus.chaos.platter import cut_power

BEGINNING = """
import errno, json, os, sys, time
from pathlib import Path
from veredus.chaos.layer import Layer
from veredus.chaos.platter import Platter
place = Path(sys.argv[1])
root = place / "root"
layer = Layer(root, Platter(root, place / "undo.log", place / "kept"))
layer.install()
from veredus.runtime.directory import open_directory, replace_file, sync_data, sync_directory, write_at
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    return tmp_path


def run_in(place: Path, story: str) -> str:
    """What a process wrote that did this above the layer, and died of it."""
    ended = subprocess.run(
        [sys.executable, "-c", BEGINNING + story, str(place)], capture_output=True, text=True, check=False, timeout=40
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def cut(place: Path) -> None:
    cut_power(place / "root", place / "undo.log", place / "kept", Random(1), 0.0)


def test_what_the_node_s_own_functions_sync_survives_and_what_they_do_not_is_gone(place: Path) -> None:
    run_in(
        place,
        """
replace_file(root, "replaced", [b"once"])
replace_file(root, "replaced", [b"again"])
file = os.open(root / "written", os.O_WRONLY | os.O_CREAT, 0o600)
sync_directory(root)
write_at(file, 0, [b"s" * 1000])
sync_data(file)
write_at(file, 0, [b"u" * 2000])
os.posix_fallocate(file, 0, 50_000)
os.ftruncate(file, 40_000)
os._exit(0)
""",
    )
    assert (place / "root" / "written").stat().st_size == 40_000
    cut(place)
    files = {path.name: path.read_bytes() for path in (place / "root").iterdir()}
    assert files == {"replaced": b"again", "written": b"s" * 1_000}


def test_a_removal_and_a_new_name_are_lost_where_the_directory_was_not_synced(place: Path) -> None:
    (place / "root" / "old").write_bytes(b"old")
    run_in(place, '(root / "old").unlink(); os._exit(0)')
    assert not (place / "root" / "old").exists()
    cut_power(place / "root", place / "undo.log", place / "kept", _NoNames(1), 0.0)
    assert (place / "root" / "old").read_bytes() == b"old"


class _NoNames(Random):
    def randint(self, a: int, b: int) -> int:
        return a


def test_a_full_disk_refuses_growth_and_gives_back_what_is_removed(place: Path) -> None:
    write_switches(place / "switches", Switches(space=8_192))
    said = run_in(
        place,
        """
said = []
def tried(call, *arguments):
    try:
        call(*arguments)
        said.append("done")
    except OSError as error:
        said.append(errno.errorcode[error.errno])
file = os.open(root / "f", os.O_RDWR | os.O_CREAT, 0o600)
layer.heed(place / "switches")
tried(os.pwritev, file, [b"a" * 8000], 0)
tried(os.pwritev, file, [b"b" * 8000], 0)
tried(os.pwrite, file, b"c" * 300, 8000)
tried(os.posix_fallocate, file, 0, 9000)
tried(os.ftruncate, file, 10)
other = os.open(root / "g", os.O_RDWR | os.O_CREAT, 0o600)
tried(os.pwrite, other, b"d" * 4096, 0)
tried(os.pwrite, other, b"e", 4096)
tried((root / "f").unlink)
tried(os.pwrite, other, b"e", 4096)
print(json.dumps(said), flush=True)
""",
    )
    assert json.loads(said) == ["done", "done", "ENOSPC", "ENOSPC", "done", "done", "ENOSPC", "done", "done"]


def test_the_wall_clock_steps_and_comes_back_and_no_other_clock_does(place: Path) -> None:
    said = run_in(
        place,
        """
from veredus.chaos.layer import Switches, write_switches
switches = place / "switches"
before, steady = time.time(), time.monotonic()
layer.follow(switches)
write_switches(switches, Switches(clock_ms=-86_400_000))
while time.time() > before - 1000:
    time.sleep(0.005)
off = time.time_ns() / 1e9 - before
write_switches(switches, Switches())
while time.time() < before:
    time.sleep(0.005)
print(json.dumps([off, time.monotonic() - steady]), flush=True)
os._exit(0)
""",
    )
    off, steady = json.loads(said)
    assert off == pytest.approx(-86_400, abs=20)
    assert 0 < steady < 20


def test_files_elsewhere_are_let_be(place: Path, tmp_path: Path) -> None:
    run_in(place, '(place / "elsewhere").write_bytes(b"x"); (place / "elsewhere").rename(place / "there"); os._exit(0)')
    cut(place)
    assert (tmp_path / "there").read_bytes() == b"x"


def test_a_node_whose_conductor_is_gone_ends_too(place: Path) -> None:
    story = (
        BEGINNING + 'layer.follow(place / "switches")\n(place / "pid").write_text(str(os.getpid()))\ntime.sleep(60)\n'
    )
    parent = (
        "import subprocess, sys, time, pathlib\n"
        "subprocess.Popen([sys.executable, '-c', sys.argv[1], sys.argv[2]])\n"
        "while not (pathlib.Path(sys.argv[2]) / 'pid').exists(): time.sleep(0.01)\n"
    )
    subprocess.run([sys.executable, "-c", parent, story, str(place)], check=True, timeout=40)
    pid = int((place / "pid").read_text() or 0)
    until = time.monotonic() + 10
    while time.monotonic() < until and _lives(pid):
        time.sleep(0.02)
    assert not _lives(pid)


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
