"""The processes of the demo: started, killed, started again, and watched meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
LOG_TAIL_COUNT = 150
"""Spark tells the reason first, and then its plan. The next run begins with the log's removal."""


@dataclass
class Player:
    """One process of the cast, leader of a process group of its own, so that all it started dies with it."""

    name: str
    arguments: list[str]
    log: Path
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)
    start_count: int = 0

    def start(self) -> None:
        """Start it; what it says goes to its log."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.arguments, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        self.start_count += 1

    @property
    def is_running(self) -> bool:
        """Whether the process is there."""
        return self.process is not None and self.process.poll() is None

    def kill(self) -> None:
        """SIGKILL to the whole group: no handler runs, nothing is flushed, nobody is told."""
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def stop(self) -> None:
        """Ask it to end, and see that it does."""
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()

    def check(self) -> None:
        """Raise `SystemExit` with the end of its log when it ended by itself, and not well."""
        code = self.process.poll() if self.process is not None else None
        if code:
            tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-LOG_TAIL_COUNT:])
            raise SystemExit(f"demo: {self.name} ended by itself with exit code {code}; the end of {self.log}:\n{tail}")


def script(name: str, *arguments: str) -> list[str]:
    """The command that runs one of the demo's own files."""
    return [sys.executable, str(HERE / name), *arguments]
