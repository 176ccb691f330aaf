"""A broker under measurement: its address, its processes, and a way to be sure that they end."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

LOOPBACK: Final = "127.0.0.1"
_START_TIMEOUT_S: Final = 20
_STOP_TIMEOUT_S: Final = 10


class Broker:
    """Owns the processes of a broker; one without processes (two peers that talk to each other) is a bare address."""

    def __init__(self, address: str, processes: Sequence[subprocess.Popen[bytes]] = ()) -> None:
        """Take over `processes`, which serve at `address`."""
        self.address = address
        self._processes = tuple(processes)

    def cpu_s(self) -> float:
        """CPU seconds, user and system, that the broker's processes have used so far."""
        ticks_per_s = os.sysconf("SC_CLK_TCK")
        total = 0
        for process in self._processes:
            # The command's name, in parentheses, may hold spaces; the 14th and 15th fields are counted from its end.
            fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])
        return total / ticks_per_s

    @property
    def processes(self) -> Sequence[subprocess.Popen[bytes]]:
        """The processes, for whoever makes one broker out of several."""
        return self._processes

    @property
    def pid(self) -> int:
        """The broker's first process."""
        return self._processes[0].pid

    def stop(self) -> None:
        """Stop every process, with SIGKILL where SIGTERM does not do."""
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            try:
                process.wait(_STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def free_port() -> int:
    """A TCP port of the loopback interface that nobody uses at the moment."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port = probe.getsockname()[1]
    assert isinstance(port, int)
    return port


def serve(argv: Sequence[str], port: int, workdir: Path, timeout_s: float = _START_TIMEOUT_S) -> Broker:
    """Start `argv` in `workdir` with its output in `broker.log`, and wait until it listens on `port`.

    Raises RuntimeError, with the end of what it printed, if it ends or stays deaf.
    """
    output = workdir / "broker.log"
    # A process of a trial leads a session, whose end is the end of all in it; at a terminal, Ctrl-C is not for brokers.
    is_alone = os.getsid(0) != os.getpid()
    with output.open("wb") as sink:
        process = subprocess.Popen(
            argv, cwd=workdir, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, start_new_session=is_alone
        )
    broker = Broker(f"{LOOPBACK}:{port}", (process,))
    deadline = time.monotonic() + timeout_s
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection((LOOPBACK, port), timeout=1):
            return broker
        time.sleep(0.02)
    broker.stop()
    raise RuntimeError(f"{argv[0]} does not listen on port {port}: {output.read_text(errors='replace')[-2000:]}")
