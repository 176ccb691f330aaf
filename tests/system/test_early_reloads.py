"""SIGHUP before a process serves ends nothing, and the settings are read once more as soon as it serves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes import Child, free_port, wait_until

pytestmark = pytest.mark.slow
CLOSED = ("--set", "listen.zeromq=", "--set", "listen.metrics=")


def command_of(kind: str, directory: Path) -> tuple[str, ...]:
    if kind == "node":
        return (
            "serve",
            "--directory",
            str(directory),
            "--tcp",
            f"127.0.0.1:{free_port()}",
            "--set",
            "log.format=json",
            *CLOSED,
        )
    address = f"127.0.0.1:{free_port()}"
    if kind == "server":
        return ("topics", "serve", address, "--set", f"node.directory={directory}", "--set", "log.format=json", *CLOSED)
    return ("proxy", "--listen", address, "--set", "log.format=json")


@pytest.fixture(params=["node", "server", "proxy"])
def starting(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Child, Path]]:
    """A process that has begun to start, and its log."""
    log = tmp_path / "log"
    with log.open("wb") as out:
        command = [sys.executable, "-m", "veredus", *command_of(request.param, tmp_path / "node")]
        child = Child(command, cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    with child:
        yield child, log


def catches_hang_ups(process: int) -> bool:
    """Whether SIGHUP has a handler there: before, it ends Python as it ends anything."""
    status = Path(f"/proc/{process}/status").read_text()
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) >> signal.SIGHUP - 1 & 1)


def events(log: Path) -> list[str]:
    return [json.loads(line)["event"] for line in log.read_text().splitlines() if line.startswith("{")]


def test_a_hang_up_while_a_process_starts_is_taken_up_when_it_serves(starting: tuple[Child, Path]) -> None:
    child, log = starting
    wait_until(lambda: catches_hang_ups(child.pid))
    assert events(log) == []
    while not (has_reloaded := "settings-reloaded" in events(log)) and child.poll() is None:
        if not any(event.endswith("ready") for event in events(log)):
            os.kill(child.pid, signal.SIGHUP)
        time.sleep(0.02)
    assert (has_reloaded, child.poll()) == (True, None), log.read_text()
    child.send_signal(signal.SIGTERM)
    assert child.wait(20) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_between_the_listeners_and_the_end_of_a_process_is_an_orderly_stop(
    starting: tuple[Child, Path], number: signal.Signals
) -> None:
    child, log = starting
    wait_until(lambda: any(event.endswith("ready") for event in events(log)))
    child.send_signal(signal.SIGTERM)
    while child.poll() is None:
        child.send_signal(number)
        time.sleep(0.002)
    assert (child.returncode, events(log)[-1]) == (
        0,
        "proxy-stopped" if "proxy-ready" in events(log) else "node-stopped",
    )
