"""A log that cannot be written costs a node lines, and nothing else: it serves, stops, and says what is missing."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.processes import Child, free_port
from tests.system.serving import ServedNode
from veredus.cli.exits import Exit
from veredus.client.blocking import connect
from veredus.kernel.errors import Unavailable

pytestmark = [
    pytest.mark.slow,
    pytest.mark.attack,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/dev/full is Linux's"),
]


def greet_badly(port: int, count: int) -> None:
    """Break the protocol `count` times, from as many addresses, so that each time is worth a line."""
    for number in range(count):
        with socket.create_connection(("127.0.0.1", port), 10, (f"127.0.1.{number + 1}", 0)) as peer:
            peer.sendall(b"GET / HTTP/1.1\r\n\r\n")
            with suppress(ConnectionError):
                while peer.recv(4096):
                    pass


def wait_lost(metrics: str, count: int) -> None:
    """Wait until the node has lost so many lines of its log."""
    deadline = time.monotonic() + 20
    while f"veredus_log_lines_lost_total {count}.0" not in (
        said := urlopen(f"http://{metrics}/metrics").read().decode()
    ):
        assert time.monotonic() < deadline, said
        time.sleep(0.02)


@contextmanager
def unwritable(kind: str) -> Iterator[int]:
    """A descriptor that takes no line: of a full disk, of a pipe whose reader has gone, or of one that nobody reads."""
    if kind == "full disk":
        descriptors = [os.open("/dev/full", os.O_WRONLY)]
    else:
        reading, writing = os.pipe()
        descriptors = [writing, reading]
        if kind == "closed pipe":
            os.close(descriptors.pop())
        else:
            os.set_blocking(writing, False)
            with suppress(BlockingIOError):
                while os.write(writing, b"." * 4096):
                    pass
            os.set_blocking(writing, True)
    try:
        yield descriptors[0]
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


@pytest.mark.parametrize("kind", ["full disk", "closed pipe", "unread pipe"])
def test_a_node_whose_log_takes_no_line_serves_and_heeds_sigterm(tmp_path: Path, kind: str) -> None:
    served = ServedNode(tmp_path / "journal", {"LOG_LEVEL": "debug"})
    with unwritable(kind) as descriptor:
        try:
            process = served.spawn(descriptor)
            with connect(served.address, timeout_s=20, refused_s=20) as node:
                greet_badly(served.port, 30)
                with node.publisher("s", source="p") as publisher:
                    publisher.wait(publisher.publish("k", b"1"), timeout_s=20)
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0
        finally:
            served.kill()


def test_a_node_that_fails_says_so_by_its_code_also_where_its_log_is_full(tmp_path: Path, failing_disk: Path) -> None:
    switch = tmp_path / "switch"
    environment = {"LD_PRELOAD": str(failing_disk), "FAILING_DISK": str(switch)}
    served = ServedNode(tmp_path / "journal", environment=environment)
    with unwritable("full disk") as descriptor:
        try:
            process = served.spawn(descriptor)
            node = connect(served.address, timeout_s=20, refused_s=20)
            publisher = node.publisher("s", source="p")
            publisher.wait(publisher.publish("k", b"1"), timeout_s=20)
            switch.write_text("sync")
            publisher.publish("k", b"2")
            assert process.wait(20) == Exit.UNAVAILABLE
            with pytest.raises(Unavailable, match="not confirmed 1"):
                node.close()
        finally:
            served.kill()


def test_lines_lost_to_a_full_disk_are_counted_and_said_when_there_is_space_again(
    tmp_path: Path, failing_disk: Path
) -> None:
    switch = tmp_path / "switch"
    environment = {"LD_PRELOAD": str(failing_disk), "FAILING_DISK": str(switch)}
    metrics = f"127.0.0.1:{free_port()}"
    served = ServedNode(tmp_path / "journal", {"LISTEN_METRICS": metrics}, environment=environment)
    try:
        with served.start():
            switch.write_text("log")
            greet_badly(served.port, 3)
            wait_lost(metrics, 3)
            with connect(served.address):
                switch.unlink()
                greet_badly(served.port, 1)
        deadline = time.monotonic() + 20
        while "log-lines-lost" not in served.said():
            assert time.monotonic() < deadline, served.said()
            time.sleep(0.02)
        assert served.stop() == 0
        lines = [json.loads(line) for line in served.said().splitlines()]
        lost = next(line for line in lines if line["event"] == "log-lines-lost")
        assert (lost["count"], lost["level"]) == (3, "warning")
        assert "No space left" in lost["reason"]
        assert lines[-1]["event"] == "node-stopped"
    finally:
        served.kill()


@pytest.mark.parametrize("kind", ["full disk", "closed pipe", "unread pipe"])
def test_a_proxy_of_topics_whose_log_takes_no_line_serves_and_heeds_sigterm(kind: str) -> None:
    port = free_port()
    command = [sys.executable, "-m", "veredus", "proxy", "--listen", f"127.0.0.1:{port}", "--set", "log.level=debug"]
    with unwritable(kind) as descriptor, Child(command, stdout=descriptor, stderr=descriptor) as process:
        deadline = time.monotonic() + 20
        while True:
            try:
                greet_badly(port, 30)
                break
            except ConnectionRefusedError:
                assert time.monotonic() < deadline
                time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
