"""`veredus topics serve` reads its settings again, as `veredus serve` does."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from tests.processes import Child, free_port, wait_until, whole_lines
from tests.system.serving_topics import ANSWER_MS, said
from veredus.runtime.security import add_token

pytestmark = [pytest.mark.slow, pytest.mark.attack]

SETTINGS = """
[security]
tokens = "{tokens}"
[[security.rules]]
principal = "alice"
may = {may}
"""
ALL, NOTHING = '["*"]', '["describe"]'


class Serving:
    """Owns one `veredus topics serve`, its settings and its log."""

    def __init__(self, directory: Path) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        self.config, self._log = directory / "veredus.toml", directory / "log"
        self._tokens = directory / "tokens"
        self.token, _ = add_token(self._tokens, "alice")
        self.allow(ALL)
        command = [sys.executable, "-m", "veredus", "topics", "--config", str(self.config), "serve", self.address]
        with self._log.open("wb") as log:
            self.process = Child(
                [*command, "--set", "log.format=json"], cwd=directory, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self.wait("node-ready")

    def allow(self, may: str) -> None:
        self.config.write_text(SETTINGS.format(tokens=self._tokens, may=may))

    def said(self, event: str) -> list[dict[str, object]]:
        return [line for line in map(json.loads, whole_lines(self._log)) if line["event"] == event]

    def wait(self, event: str, count: int = 1) -> dict[str, object]:
        wait_until(lambda: len(self.said(event)) >= count, self._log.read_text)
        return self.said(event)[-1]

    def reload(self) -> None:
        self.process.send_signal(signal.SIGHUP)

    def put(self, counter: int) -> str:
        """The status of a PUT by alice."""
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        with context, context.socket(zmq.REQ) as asking:
            asking.linger = 0
            asking.plain_username, asking.plain_password = b"anybody", self.token.encode()
            asking.connect(f"tcp://{self.address}")
            asking.send(f"PUT alice t {counter}\r\n\r\n".encode() + b"body")
            assert asking.poll(ANSWER_MS), self._log.read_text()
            return said(asking.recv()).status


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    serving = Serving(tmp_path)
    with serving.process:
        yield serving
        serving.process.kill()


def test_a_right_that_is_taken_away_is_taken_away_without_a_restart(serving: Serving) -> None:
    assert serving.put(1) == "OK"
    serving.allow(NOTHING)
    serving.reload()
    assert serving.wait("settings-reloaded")["changed"] == ["security.rules"]
    assert serving.put(2) == "REFUSED"


def test_settings_that_cannot_be_read_change_nothing_and_are_told_of(serving: Serving) -> None:
    serving.config.write_text("no [toml")
    serving.reload()
    assert serving.wait("settings-not-read")["code"]
    assert serving.put(1) == "OK"
    assert serving.said("settings-reloaded") == []
