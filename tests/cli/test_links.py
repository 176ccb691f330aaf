"""Commands that run for long start beside the variables that Kubernetes injects for a Service named `veredus`."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from tests.processes import Child, free_port

LINKS = {
    "VEREDUS_PORT": "tcp://10.0.0.1:7070",
    "VEREDUS_SERVICE_HOST": "10.0.0.1",
    "VEREDUS_PORT_7070_TCP_ADDR": "10.0.0.1",
}
CLOSED = ("--set", "listen.tcp=127.0.0.1:0", "--set", "listen.zeromq=", "--set", "listen.metrics=")
COMMANDS = {
    "node-ready": ("serve", "--directory", "{directory}/journal", *CLOSED),
    "proxy-ready": ("proxy", "--listen", "127.0.0.1:0"),
    "topics": ("topics", "serve", "127.0.0.1:{port}", "--set", "node.directory={directory}/journal", *CLOSED),
}


@pytest.mark.parametrize("kind", COMMANDS)
def test_what_a_service_of_our_name_injects_keeps_nothing_from_starting_and_is_noted(kind: str, tmp_path: Path) -> None:
    words = [word.format(directory=tmp_path, port=free_port()) for word in COMMANDS[kind]]
    ready = "proxy-ready" if kind == "proxy-ready" else "node-ready"
    said = []
    environment = {**os.environ, **LINKS, "VEREDUS_LOG_FORMAT": "json"}
    with Child([sys.executable, "-m", "veredus", *words], stderr=-1, env=environment) as process:
        assert process.stderr is not None
        for line in process.stderr:
            said.append(line.decode() if isinstance(line, bytes) else line)
            if f'"event":"{ready}"' in said[-1]:
                break
        else:
            raise AssertionError(f"it did not start: {said}")
        process.send_signal(signal.SIGTERM)
        process.stderr.read()
        assert process.wait(30) == 0
    notes = [line.split(" ")[:3] for line in said if not line.startswith("{")]
    assert sorted(notes) == [[name, "is", "ignored:"] for name in sorted(LINKS)]
    assert [json.loads(line)["event"] for line in said if line.startswith("{")][-1] == ready
