"""A node of the test's own, and the command line run against it inside the test's process."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from veredus.cli import veredus
from veredus.cli.exits import run
from veredus.client.embedded import Embedded, embedded


@dataclass(frozen=True)
class Ran:
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        """The lines on standard output."""
        return self.out.splitlines()


Veredus = Callable[..., Ran]


def ran(capfd: pytest.CaptureFixture[str], *arguments: str | Path) -> Ran:
    """Run a command of this process, and say how it ended."""
    capfd.readouterr()
    code = run(veredus, [str(argument) for argument in arguments])
    shown = capfd.readouterr()
    return Ran(code, shown.out, shown.err)


@pytest.fixture
def node() -> Iterator[Embedded]:
    """A node, and a connection to it."""
    with embedded() as own:
        yield own


@pytest.fixture
def run_veredus(node: Embedded, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Veredus:
    """Runs a command against the node."""
    monkeypatch.setenv("VEREDUS_ADDRESS", node.served.address)
    return partial(ran, capfd)
