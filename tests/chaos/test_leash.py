"""Whoever is on the leash ends with who began it: killed, stopped or busy."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from veredus.chaos.leash import PARENT

BEGINS = """
import os, subprocess, sys, time
from veredus.chaos.leash import PARENT
os.environ[PARENT] = str(os.getpid())
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
time.sleep(60)
"""
LIVES = """
import time
from veredus.chaos.leash import end_with_parent
end_with_parent()
print("lives", flush=True)
time.sleep(60)
"""


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere who is stopped cannot end")
@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_process_ends_with_the_one_that_began_it_though_it_is_stopped(is_stopped: bool) -> None:
    with subprocess.Popen([sys.executable, "-c", BEGINS, LIVES], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        if is_stopped:
            os.kill(child, signal.SIGSTOP)
        parent.kill()
    until = time.monotonic() + 20
    while is_alive(child) and time.monotonic() < until:
        time.sleep(0.02)
    assert not is_alive(child)


def test_a_process_whose_parent_was_gone_before_it_asked_ends_too() -> None:
    with subprocess.Popen([sys.executable, "-c", "pass"]) as gone:
        pass
    environment = os.environ | {PARENT: str(gone.pid)}
    done = subprocess.run([sys.executable, "-c", LIVES], env=environment, stdout=subprocess.DEVNULL, check=False)
    assert done.returncode == 1
