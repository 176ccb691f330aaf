"""A signal goes to the node of the directory, and to no other process that the directory's lock may name."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.processes import Child
from veredus.kernel.errors import Refused, Unavailable
from veredus.runtime import reloads
from veredus.runtime.directory import LOCK_NAME
from veredus.runtime.reloads import OUTCOME_NAME, wait_outcome
from veredus.runtime.running import running_node

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it takes Linux to see who holds a lock")
HOLDER = """
import fcntl, os, signal, sys
if sys.argv[2] == "hears":
    signal.signal(signal.SIGHUP, lambda *_: print("heard", flush=True))
lock = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.flock(lock, fcntl.LOCK_EX)
os.write(lock, b"%d" % os.getpid())
print("held", flush=True)
while True:
    signal.pause()
"""
Hold = Callable[[str], Child]


@pytest.fixture
def hold(tmp_path: Path) -> Iterator[Hold]:
    """Starts a process that holds the lock of the directory, and "hears" SIGHUP or does not."""
    children: list[Child] = []

    def start(does: str) -> Child:
        command = [sys.executable, "-c", HOLDER, str(tmp_path / LOCK_NAME), does]
        child = Child(command, stdout=subprocess.PIPE)
        children.append(child)
        assert child.stdout is not None
        assert child.stdout.readline() == b"held\n"
        return child

    yield start
    for child in children:
        child.end()


def refused(path: Path) -> str:
    with pytest.raises(Refused) as caught:
        running_node(path)
    assert caught.value.code == "no-node"
    return caught.value.message


def test_the_process_that_holds_the_lock_and_hears_the_signal_is_the_node(tmp_path: Path, hold: Hold) -> None:
    child = hold("hears")
    assert running_node(tmp_path) == child.pid


def test_a_process_that_would_end_at_the_signal_is_no_node(tmp_path: Path, hold: Hold) -> None:
    child = hold("ends")
    assert f"process {child.pid} does not read settings again" in refused(tmp_path)
    assert child.poll() is None


@pytest.mark.parametrize("named", ["12345678901234567890123", "4194305", "0", "1", "-1", "-5", "", "two", "\u0663"])
def test_a_lock_that_names_no_process_that_holds_it_is_refused(tmp_path: Path, named: str) -> None:
    (tmp_path / LOCK_NAME).write_text(named)
    with (tmp_path / LOCK_NAME).open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert "does not name the process that holds it" in refused(tmp_path)


def test_a_lock_that_names_another_process_than_its_holder_is_refused(tmp_path: Path, hold: Hold) -> None:
    hold("hears")
    with Child([sys.executable, "-c", "import time; time.sleep(60)"]) as other:
        (tmp_path / LOCK_NAME).write_text(f"{other.pid}\n")
        assert "does not name the process that holds it" in refused(tmp_path)


def test_who_only_shares_the_lock_is_no_node(tmp_path: Path) -> None:
    (tmp_path / LOCK_NAME).write_text(str(os.getpid()))
    with (tmp_path / LOCK_NAME).open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        assert "start a node, or name" in refused(tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a file to another user")
def test_a_process_of_another_user_than_the_owner_of_the_lock_is_refused(tmp_path: Path, hold: Hold) -> None:
    child = hold("hears")
    os.chown(tmp_path / LOCK_NAME, 65534, 65534)
    said = refused(tmp_path)
    assert f"process {child.pid} runs as user root" in said
    assert "belongs to user nobody" in said
    assert f"`kill -HUP {child.pid}`" in said


def test_a_caller_who_is_not_the_owner_of_the_lock_is_told_whose_it_is(
    tmp_path: Path, hold: Hold, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold("hears")
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert "run this command as that user, or as root" in refused(tmp_path)


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir, lambda path: path.symlink_to("/dev/zero")])
def test_what_is_no_file_in_the_place_of_the_lock_is_refused_at_once(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    make(tmp_path / LOCK_NAME)
    assert "in place of a regular file" in refused(tmp_path)


def test_a_directory_without_a_lock_has_no_journal(tmp_path: Path) -> None:
    assert refused(tmp_path).endswith("there is no journal")


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir, lambda path: path.symlink_to("/dev/zero")])
def test_what_is_no_file_in_the_place_of_an_outcome_is_waited_for_as_long_as_one_that_is_not_there(
    tmp_path: Path, make: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reloads, "WAIT_S", 0.2)
    make(tmp_path / OUTCOME_NAME)
    began_s = time.monotonic()
    with pytest.raises(Unavailable, match="has not read the settings"):
        wait_outcome(tmp_path, os.getpid(), 0)
    assert time.monotonic() - began_s < 5
