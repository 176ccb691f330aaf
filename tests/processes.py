"""Processes, threads and ports of tests: each ends with its test, and nobody waits for one without a limit.

A child that outlives its time is killed, and with it whatever it started: its pipes close, so that whoever waits for it
or reads from it goes on, and the test fails instead of hanging.
"""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from itertools import count
from pathlib import Path
from typing import IO, Any, ClassVar
from weakref import WeakSet

LIFE_S = 45.0
"""Less than a test may take, so that the test itself says what did not end."""
END_S = 10.0
WAIT_S = 20.0
_PORT_FIRST, _PORT_COUNT, _BLOCK_COUNT = 15_000, 250, 50
"""Tests have the ports from 15,000 to 27,499; what examples take for themselves lies above."""


class Child(subprocess.Popen[bytes]):
    """A process in a group of its own, which is killed when its time is over or its `with` block is left."""

    begun: ClassVar[WeakSet[Child]] = WeakSet()
    """All of this process that somebody still holds."""

    def __init__(self, arguments: Sequence[str], *, life_s: float = LIFE_S, **options: Any) -> None:
        """Start it; `options` are those of `subprocess.Popen`."""
        super().__init__(arguments, start_new_session=True, **options)
        Child.begun.add(self)
        self._watch = threading.Timer(life_s, self.kill)
        self._watch.daemon = True
        self._watch.start()

    def kill(self) -> None:
        """SIGKILL to the process and to all that it started."""
        if self.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)

    def end(self) -> None:
        """Kill it where it still runs, and close its pipes."""
        self._watch.cancel()
        self.kill()
        for pipe in (self.stdin, self.stdout, self.stderr):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
        self.wait(END_S)

    def __exit__(self, *_: object) -> None:
        self.end()


def ended(arguments: Sequence[str], *, life_s: float = LIFE_S, **options: Any) -> subprocess.CompletedProcess[str]:
    """How a command ended, and what it said; -SIGKILL where it did not end in time."""
    with Child(arguments, life_s=life_s, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options) as child:
        out, err = child.communicate()
        return subprocess.CompletedProcess(list(arguments), child.returncode, out.decode(), err.decode())


@contextmanager
def beside(work: Callable[..., object], *arguments: object) -> Iterator[threading.Thread]:
    """`work` in a thread of its own while the block runs, then waited for; raises what it raised."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            work(*arguments)
        except BaseException as error:  # noqa: BLE001 it is raised again below
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    yield thread
    thread.join(LIFE_S)
    if raised:
        raise raised[0]
    assert not thread.is_alive(), f"{work} did not end"


def whole_lines(file: Path) -> list[str]:
    """The lines of a file that others write to: who reads meanwhile may see the beginning of one more."""
    return file.read_text().rpartition("\n")[0].splitlines()


def wait_until(is_so: Callable[[], bool], said: Callable[[], str] = lambda: "it did not come to be so") -> None:
    """Wait until something is so; `said` says what may tell why it does not come to be."""
    end_s = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < end_s, said()
        time.sleep(0.01)


def free_port() -> int:
    """A port that no other process of tests is given, that nobody has at this moment, and the system gives to nobody.

    A node that was killed has left its port free: whoever else listened there before it starts again would be taken
    for it. So each process of tests has a block of ports of its own, as long as it lives.
    """
    first, places, _ = _own_ports()
    while True:
        port = first + next(places) % _PORT_COUNT
        with socket.socket() as probe, suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return port


@cache
def _own_ports() -> tuple[int, Iterator[int], IO[bytes]]:
    """The first port of a block that is this process's own, a count, and the locked file that says whose it is."""
    for block in range(_BLOCK_COUNT):
        held = (Path(tempfile.gettempdir()) / f"veredus-tests-ports-{block}").open("ab")
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            held.close()
        else:
            return _PORT_FIRST + block * _PORT_COUNT, count(os.getpid()), held
    raise RuntimeError(f"{_BLOCK_COUNT} processes of tests have all ports")
