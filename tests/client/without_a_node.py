"""The scene in which what a program leaves behind is lost: its node is cut off, and what it says is read."""

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable

from tests.client.cutter import Cutter
from tests.processes import Child
from veredus.client.embedded import Embedded

LIFE_S = 20.0


def named_in(told: str) -> list[str]:
    """What was said to be lost."""
    return [line for line in told.splitlines() if re.search("the node at .* has not confirmed", line)]


def cut_off(cutter: Cutter) -> None:
    """Let the node be gone."""
    cutter.is_open = False
    cutter.cut()


def read_line(child: Child) -> str:
    """The next line that a program prints."""
    assert child.stdout is not None
    return child.stdout.readline().decode().removesuffix("\n")


def signalled(
    number: signal.Signals = signal.SIGINT, count: int = 1, each_s: float = 0.5
) -> Callable[[Child, Cutter], None]:
    """Signals a program a moment after it has printed another line."""

    def send(child: Child, _: Cutter) -> None:
        read_line(child)
        for _ in range(count):
            time.sleep(each_s)
            child.send_signal(number)

    return send


def told_without_a_node(
    node: Embedded,
    program: str,
    stream: str,
    *arguments: str,
    lose: Callable[[Cutter], object] = cut_off,
    then: Callable[[Child, Cutter], object] = lambda *_: None,
    status: int = 0,
) -> tuple[str, str]:
    """What a program says that loses its node as soon as it is ready. It goes on by a line of its input; `then` is done
    meanwhile.
    """
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with (
        Cutter(node.served.address) as cutter,
        Child([sys.executable, "-c", program, cutter.address, stream, *arguments], life_s=LIFE_S, **pipes) as child,
    ):
        assert child.stdin is not None
        assert read_line(child) == "ready"
        lose(cutter)
        child.stdin.write(b"\n")
        child.stdin.flush()
        then(child, cutter)
        said, told = (out.decode() for out in child.communicate())
    assert child.returncode == status, told
    return said, told
