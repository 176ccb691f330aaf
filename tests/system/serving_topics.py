"""Servers and proxies of topics as processes of their own, for tests that ask, kill and stop them."""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import zmq

from tests.processes import LIFE_S, Child, free_port, whole_lines
from tests.system.serving import START_TIMEOUT_S, ServedNode
from veredus.client.blocking import connect

ANSWER_MS = 10_000
WAIT_MS = 10_000
PROXY_COMMAND = [sys.executable, "-m", "veredus", "proxy"]
QUICK = ("--set", "topics.answer=50ms", "--set", "topics.period=10ms")
"""A proxy that waits neither long for answers nor for servers."""


class Said(NamedTuple):
    """A STATUS, taken apart as the page has it."""

    server: str
    status: str
    message_id: str
    body: bytes


def said(data: bytes) -> Said:
    header, separator, body = data.partition(b"\r\n\r\n")
    assert separator, data
    name, server, status, *more = header.decode().split(" ")
    assert name == "STATUS"
    return Said(server, status, more[0] if more else "", body)


class Server:
    """A node that serves topics, and the sockets of those that ask it."""

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        life_s: float = LIFE_S,
    ) -> None:
        """A server over `directory`, not started yet; `settings` are VEREDUS_* variables without the prefix."""
        given = {"TOPICS_LISTEN": "127.0.0.1:0", "TOPICS_PROXIES": "", "TOPICS_PERIOD": "100ms", **(settings or {})}
        self.served = ServedNode(directory, given, environment=environment, life_s=life_s)
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.address = ""

    def start(self) -> None:
        self.served.spawn()
        self.wait()

    def wait(self) -> None:
        """Until the process that was started answers."""
        connect(self.served.address, timeout_s=START_TIMEOUT_S, refused_s=START_TIMEOUT_S).close()
        ready = [json.loads(line) for line in self.served.said().splitlines() if '"node-ready"' in line]
        self.address = ready[-1]["topics"]

    def end(self) -> None:
        self.served.kill()
        self.context.destroy(linger=0)

    def kill(self) -> None:
        """SIGKILL, and another process over the same journal."""
        self.served.kill()
        self.start()

    def socket(self, kind: int = zmq.REQ) -> zmq.Socket[bytes]:
        opened = self.context.socket(kind)
        opened.linger = 0
        opened.connect(f"tcp://{self.address}")
        return opened

    def ask(self, question: str, body: bytes = b"") -> Said:
        """Ask on a REQ socket of its own."""
        with self.socket() as asking:
            asking.send(question.encode() + b"\r\n\r\n" + body)
            return self.hear(asking)

    def hear(self, asked: zmq.Socket[bytes]) -> Said:
        assert asked.poll(ANSWER_MS), "no answer"
        return said(asked.recv())

    def get_all(self, client: str, topic: str) -> list[bytes]:
        """GET until there are no messages, each naming the one before."""
        bodies: list[bytes] = []
        last = "-1"
        while (told := self.ask(f"GET {client} {topic} {last}")).status == "OK":
            assert told.message_id not in ("", "-1", last)
            last = told.message_id
            bodies.append(told.body)
        assert told.status == "NO_MESSAGES", told
        return bodies


class ServedProxy:
    """Owns one `veredus proxy` process, and its log."""

    def __init__(self, directory: Path, *arguments: str, descriptors_max: int = 0, life_s: float = LIFE_S) -> None:
        """A proxy that is started with these arguments too, and not started yet."""
        self.address = f"127.0.0.1:{free_port()}"
        self.process: Child | None = None
        self._log = directory / f"{self.address}.log"
        self._arguments = arguments
        self._descriptors_max = descriptors_max
        self._life_s = life_s

    def start(self) -> None:
        """Start the process, and wait until it is ready."""

        def limit() -> None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (self._descriptors_max, self._descriptors_max))

        said = len(self.said())
        with self._log.open("ab") as log:
            self.process = Child(
                [*PROXY_COMMAND, "--listen", self.address, "--set", "log.format=json", *self._arguments],
                life_s=self._life_s,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=limit if self._descriptors_max else None,
            )
        self.wait_for(lambda: any(line["event"] == "proxy-ready" for line in self.said()[said:]))

    def said(self) -> list[dict[str, object]]:
        """The lines of its log."""
        return [json.loads(line) for line in whole_lines(self._log)] if self._log.exists() else []

    def wait_for(self, is_so: Callable[[], bool]) -> None:
        """Until something is so, while the process lives."""
        assert self.process is not None
        deadline = time.monotonic() + WAIT_MS / 1000
        while not is_so():
            assert self.process.poll() is None, self.said()
            assert time.monotonic() < deadline, self.said()
            time.sleep(0.01)

    def stop(self) -> None:
        """SIGTERM, and wait until it is seen."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        self.wait_for(lambda: any(line["event"] == "proxy-stopping" for line in self.said()))

    def end(self) -> None:
        """SIGKILL."""
        if self.process is not None:
            self.process.end()
