"""Ctrl-C and SIGTERM end a command that measures or simulates as they end every other: cleaned up, and with 130."""

import fcntl
import os
import signal
import socket
import struct
import termios
import time
from pathlib import Path

import pytest

from tests.cli.test_pipes import COMMAND, started
from tests.processes import Child, wait_until
from tests.system.serving import ServedNode
from veredus.cli.exits import SAME_S, Exit
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


def _waits_for_more(child: Child) -> bool:
    """Whether a command has taken all of its input, and has been asleep for a while."""
    assert child.stdin is not None
    unread = struct.unpack("i", fcntl.ioctl(child.stdin, termios.FIONREAD, b"\0" * 4))[0]
    for _ in range(20):
        state = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[0]
        if unread or state != "S":
            return False
        time.sleep(0.01)
    return True


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL], ids=lambda number: number.name)
def test_a_second_signal_ends_pub_at_once_and_it_says_what_is_in_doubt(tmp_path: Path, number: int) -> None:
    served = ServedNode(tmp_path / "node")
    command = [*COMMAND, "pub", "s", "--source", "c", "--address", served.address]
    with served.start() as node, Child(command, stdin=PIPE, stdout=PIPE, stderr=PIPE) as child:
        assert child.stdin is not None
        assert served.process is not None
        child.stdin.write(b"one\ntwo\n")
        child.stdin.flush()
        wait_until(lambda: node.streams.list()[0]["head"] == 2 if node.streams.list() else False)
        served.process.send_signal(number)
        child.stdin.write(b"three\nfour\n")
        child.stdin.flush()
        wait_until(lambda: _waits_for_more(child))
        child.send_signal(signal.SIGINT)
        err = bytearray()
        assert child.stderr is not None
        while b"Ctrl-C again" not in err:
            err += os.read(child.stderr.fileno(), 1 << 16)
        began_s = time.monotonic()
        child.send_signal(signal.SIGINT)
        _, rest = child.communicate(timeout=30)
        assert time.monotonic() - began_s < 10, "the patience was not waited for"
        assert child.returncode == Exit.IN_DOUBT
        assert "2 are in doubt: numbers 3 to 4\ncontinue with --from 3\n" in rest.decode()
        served.kill()


def _is_stuck(child: Child) -> bool:
    """Whether it waits for somebody to read what it writes."""
    return "pipe_write" in Path(f"/proc/{child.pid}/wchan").read_text()


@pytest.mark.skipif(not os.access("/proc/self/wchan", os.R_OK), reason="the system does not say what is waited for")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("count", [20_000, 100_000])
def test_a_second_signal_ends_a_command_whose_output_nobody_reads(node: Embedded, number: int, count: int) -> None:
    with node.publisher("s", source="a") as publisher:
        publisher.publish_many([""] * count, [b"%d" % n for n in range(count)])
    with started("sub", "s", "-a", node.served.address, "--format", "lines") as child:
        wait_until(lambda: _is_stuck(child))
        child.send_signal(number)
        time.sleep(2 * SAME_S)
        assert child.poll() is None
        child.send_signal(number)
        assert child.wait(5) == Exit.INTERRUPTED
