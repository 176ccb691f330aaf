"""Ctrl-C and SIGTERM end a command that measures or simulates as they end every other: cleaned up, and with 130."""

import os
import signal
import socket
import time
from pathlib import Path

import pytest

from tests.cli.test_pipes import COMMAND
from tests.processes import Child, wait_until
from veredus.cli.exits import Exit
from veredus.client.embedded import Embedded

PIPE = -1
SIGNALS = [signal.SIGINT, signal.SIGTERM]


def end_of(child: Child, number: int, *, with_group: bool) -> str:
    """Signal a command, alone or with all that it began, as a terminal does; what it said as it ended with 130."""
    (os.killpg if with_group else os.kill)(child.pid, number)
    _, err = child.communicate(timeout=30)
    said = err.decode()
    assert child.returncode == Exit.INTERRUPTED, said
    assert "Traceback" not in said
    return said


@pytest.mark.parametrize("with_group", [False, True], ids=["alone", "group"])
@pytest.mark.parametrize("number", SIGNALS)
def test_an_interrupted_bench_leaves_no_stream_behind(node: Embedded, number: int, with_group: bool) -> None:
    command = [*COMMAND, "bench", "--seconds", "60", "--address", node.served.address]
    with Child(command, stdout=PIPE, stderr=PIPE) as child:
        while not any(stream["head"] > 1_000 for stream in node.streams.list()):
            time.sleep(0.05)
        assert "interrupted" in end_of(child, number, with_group=with_group)
    assert node.streams.list() == []


@pytest.mark.parametrize("with_group", [False, True], ids=["alone", "group"])
@pytest.mark.parametrize("number", SIGNALS)
def test_an_interrupted_simulation_ends_with_its_workers(number: int, with_group: bool) -> None:
    command = [*COMMAND, "sim", "run", "--seeds", "100000", "--workers", "2"]
    with Child(command, stdout=PIPE, stderr=PIPE) as child:
        workers = Path(f"/proc/{child.pid}/task/{child.pid}/children")
        while len(workers.read_text().split()) < 2:
            time.sleep(0.05)
        assert "interrupted" in end_of(child, number, with_group=with_group)


@pytest.mark.parametrize("with_group", [False, True], ids=["alone", "group"])
@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("verb", [("pub", "s"), ("sub", "s"), ("verify",), ("stream", "ls")], ids=" ".join)
def test_a_command_that_waits_for_a_node_ends_at_once(verb: tuple[str, ...], number: int, with_group: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        command = [*COMMAND, *verb, "--address", address, "--timeout", "60s"]
        with Child(command, stdin=PIPE, stdout=PIPE, stderr=PIPE) as child:
            link, _ = silent.accept()
            with link:
                link.recv(100)
                asked_s = time.monotonic()
                assert "interrupted" in end_of(child, number, with_group=with_group)
                assert time.monotonic() - asked_s < 20


@pytest.mark.parametrize("verb", [("sub", "s"), ("pub", "s")], ids=" ".join)
def test_signals_that_come_almost_together_leave_no_traceback(node: Embedded, verb: tuple[str, ...]) -> None:
    with node.publisher("s") as publisher:
        publisher.publish("", "one")
    with Child([*COMMAND, *verb, "--address", node.served.address], stdin=PIPE, stdout=PIPE, stderr=PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(b"two\n")
        child.stdin.flush()
        if verb[0] == "sub":
            assert child.stdout.readline() == b"one\n"
        else:
            wait_until(lambda: node.streams.show("s")["head"] == 2)
        while child.poll() is None:
            child.send_signal(signal.SIGINT)
            time.sleep(0.002)
        assert child.stderr is not None
        said = child.stderr.read().decode()
    assert (child.returncode, "Traceback" in said) == (Exit.INTERRUPTED, False), said
