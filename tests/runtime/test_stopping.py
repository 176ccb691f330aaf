"""Signals in any number, and at any moment, end a process that stops in its own way alone."""

from __future__ import annotations

import sys

import pytest

from tests.processes import ended

STOPPED = """
import asyncio, os, signal, subprocess, sys
from veredus.runtime.stopping import hear, ignore_signals, stop_asked

number = signal.Signals[sys.argv[1]]
HAMMER = "import os, sys\\nwhile os.getppid() == int(sys.argv[1]): os.kill(int(sys.argv[1]), int(sys.argv[2]))"
hammer = None

async def live():
    loop = asyncio.get_running_loop()
    asked, heard = stop_asked(loop, lambda: None), asyncio.Event()
    hear(loop, signal.SIGHUP, heard.set)
    global hammer
    hammer = subprocess.Popen([sys.executable, "-c", HAMMER, str(os.getpid()), str(int(number))])
    for _ in range(1000):
        await asyncio.wait_for((heard if number == signal.SIGHUP else asked).wait(), 10)
        ignore_signals()
        again = stop_asked(loop, lambda: None)
        hear(loop, signal.SIGHUP, heard.set)
    ignore_signals()

if sys.argv[2] == "uvloop":
    import uvloop
    loop_of = uvloop.new_event_loop
else:
    loop_of = asyncio.new_event_loop
with asyncio.Runner(loop_factory=loop_of) as runner:
    runner.run(live())
hammer.kill()
hammer.wait()
print("ended")
"""


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
@pytest.mark.parametrize("number", ["SIGTERM", "SIGINT", "SIGHUP"])
def test_a_process_that_stops_is_ended_by_no_signal_that_comes_as_it_does(number: str, loop: str) -> None:
    done = ended([sys.executable, "-c", STOPPED, number, loop])
    assert (done.returncode, done.stdout) == (0, "ended\n"), done.stderr
