"""Lines for a file or a pipe that may not take them: nobody waits, what is lost is counted and said."""

import errno
import os
import sys
import threading
import time

import pytest

from tests.processes import ended
from veredus.runtime import lines
from veredus.runtime.lines import LineWriter


class Place:
    """Keeps lines; fails, or takes its time, as it is told."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.error: Exception | None = None
        self.may_go = threading.Event()
        self.may_go.set()
        self.finished_count = 0

    def write(self, line: bytes) -> None:
        self.may_go.wait(10)
        if self.error is not None:
            raise self.error
        self.lines.append(line)

    def finish(self) -> None:
        self.finished_count += 1


def lost_line(count: int, reason: str) -> bytes:
    return b"lost %d: %s" % (count, reason.encode())


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left"), ValueError("closed"), RuntimeError("odd")])
def test_lines_that_cannot_be_written_are_counted_and_said_once_it_goes_again(error: Exception) -> None:
    place, told = Place(), list[str]()
    writer = LineWriter(place, lost_line, "test", tell=told.append)
    place.error = error
    for number in range(3):
        assert writer.put(b"%d" % number)
        assert writer.wait_written(10)
    assert (writer.lost_count, place.lines) == (3, [])
    assert writer.failure
    place.error = None
    writer.put(b"on")
    writer.put(b"and on")
    assert writer.wait_written(10)
    assert [line[:6] for line in place.lines] == [b"lost 3", b"on", b"and on"]
    assert writer.lost_count == 3
    assert not writer.failure
    assert (len(told), told[-1]) == (2, ""), "once that it fails, once that it goes again"


def test_a_line_that_takes_too_long_is_behind_though_none_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "SLOW_S", 0.05)
    place = Place()
    writer = LineWriter(place, lost_line, "test")
    place.may_go.clear()
    writer.put(b"on")
    while not writer.is_behind:
        time.sleep(0.01)
    place.may_go.set()
    assert writer.wait_written(10)
    assert not writer.is_behind
    assert writer.lost_count == 0


def test_a_place_that_takes_nothing_holds_nobody_and_the_queue_keeps_its_bound() -> None:
    place = Place()
    writer = LineWriter(place, lost_line, "test", size_max=1000)
    place.may_go.clear()
    given = [writer.put(b"x" * 100) for _ in range(50)]
    assert given.count(True) == 10
    assert not writer.wait_written(0)
    place.may_go.set()
    assert writer.wait_written(10)
    writer.put(b"on")
    assert writer.wait_written(10)
    assert writer.lost_count == 40
    # It may be said as soon as any line goes: what counts is that all were said.
    said = [line for line in place.lines if line.startswith(b"lost")]
    assert sum(int(line.split()[1].rstrip(b":")) for line in said) == 40
    assert len(place.lines) - len(said) == 11


def test_the_child_of_a_fork_writes_by_a_thread_of_its_own() -> None:
    reading, writing = os.pipe()

    class Pipe(Place):
        def write(self, line: bytes) -> None:
            os.write(writing, line)

    writer = LineWriter(Pipe(), lost_line, "test")
    writer.put(b"parent\n")
    assert writer.wait_written(10)
    child = os.fork()
    if not child:
        writer.put(b"child\n")
        os._exit(0 if writer.wait_written(10) else 1)
    assert os.waitpid(child, 0)[1] == 0
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        assert file.read() == b"parent\nchild\n"


ENDS = """
import multiprocessing, sys, time, veredus
from veredus.runtime.lines import LineWriter
from veredus.client import endings

class Slow:
    def write(self, line):
        time.sleep(0.2)
        sys.stdout.write(line.decode())

    def finish(self):
        sys.stdout.flush()

writer = LineWriter(Slow(), lambda count, reason: b"", "test")

def put():
    writer.put(b"one\\n")
    endings.watch_end()
    endings.to_stop[lambda: writer.put(b"two\\n")] = None

{runs}
"""


@pytest.mark.parametrize(
    "runs", ["put()", "child = multiprocessing.get_context('fork').Process(target=put)\nchild.start()\nchild.join()"]
)
def test_a_program_ends_behind_the_lines_that_the_end_of_its_nodes_has_given(runs: str) -> None:
    done = ended([sys.executable, "-c", ENDS.replace("{runs}", runs)], life_s=10.0)
    assert (done.returncode, done.stdout, done.stderr) == (0, "one\ntwo\n", "")
