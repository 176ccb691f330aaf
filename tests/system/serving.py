"""A node as a process of its own, for tests that kill it: by the command line, on a port that stays the same."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.processes import LIFE_S, Child, free_port
from veredus.client.blocking import Node, connect

START_TIMEOUT_S = 20.0


class ServedNode:
    """Owns one `veredus serve` process and what it is started with."""

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, str] | None = None,
        descriptors_max: int = 0,
        environment: Mapping[str, str] | None = None,
        life_s: float = LIFE_S,
    ) -> None:
        """A node over `directory`, not started yet; `settings` are VEREDUS_* variables without the prefix."""
        self.directory = directory
        self.port = free_port()
        self.address = f"veredus://127.0.0.1:{self.port}"
        self.process: Child | None = None
        self.log = directory.parent / f"{directory.name}.log"
        self._descriptors_max = descriptors_max
        self._life_s = life_s
        self._environment = {
            "VEREDUS_NODE_DIRECTORY": str(directory),
            "VEREDUS_LISTEN_TCP": f"127.0.0.1:{self.port}",
            "VEREDUS_LISTEN_ZEROMQ": "",
            "VEREDUS_LISTEN_METRICS": "",
            "VEREDUS_LOG_FORMAT": "json",
            **{f"VEREDUS_{name}": value for name, value in (settings or {}).items()},
            **(environment or {}),
        }

    def setting(self, name: str) -> str:
        """What it is started with: the VEREDUS_* variable without the prefix."""
        return self._environment[f"VEREDUS_{name}"]

    def start(self, token: str | None = None) -> Node:
        """Start the process, and connect to it once it answers."""
        self.spawn()
        return connect(self.address, token=token, timeout_s=START_TIMEOUT_S, refused_s=START_TIMEOUT_S)

    def spawn(self, stderr: int | None = None) -> Child:
        """Start the process without waiting for it; its standard error is its log, or the descriptor that is given."""

        def limit() -> None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (self._descriptors_max, self._descriptors_max))

        with self.log.open("ab") as log:
            self.process = Child(
                [sys.executable, "-m", "veredus", "serve"],
                life_s=self._life_s,
                env={**os.environ, **self._environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log if stderr is None else stderr,
                preexec_fn=limit if self._descriptors_max else None,
            )
        return self.process

    def kill(self) -> None:
        """SIGKILL: nothing is flushed, nobody is told."""
        assert self.process is not None
        self.process.end()

    def stop(self) -> int:
        """SIGTERM, and the exit code."""
        if self.process is None or self.process.poll() is not None:
            return 0
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)

    def said(self) -> str:
        """What the node wrote to its log."""
        return self.log.read_text(errors="replace")
