"""What the page on topics types, typed by a new user: three servers, two proxies, and the paper's own commands."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes import Child, ended, free_port
from tests.transcripts.pages import blocks_in, exchanges_in, is_as_shown
from tests.transcripts.shell import typed

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

PAGE = "docs/how-to/topics.md"
READY_S = 100.0
LIFE_S = 150.0
_PORT = re.compile(r"127\.0\.0\.1:(70[89][0-9])")


class Town:
    """The page's directory, with ports that are free here."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._ports: dict[str, str] = {}
        self.running: list[Child] = []
        (settings,) = blocks_in(PAGE, "toml")
        (directory / "topics.toml").write_text(self.here(settings), encoding="utf-8")
        (directory / "quote.txt").write_text("EWR 12.5\n", encoding="utf-8")

    def here(self, text: str) -> str:
        """The text, with this town's ports."""
        return _PORT.sub(lambda found: f"127.0.0.1:{self._ports.setdefault(found[1], str(free_port()))}", text)

    def spawn(self, command: str) -> None:
        """Type a command that runs for long."""
        path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
        with (self.directory / f"log-{len(self.running)}").open("wb") as log:
            self.running.append(
                Child(
                    ["bash", "-c", f"exec {self.here(command)}"],
                    life_s=LIFE_S, cwd=self.directory, env={**os.environ, "PATH": path}, stdout=log, stderr=log,
                )
            )  # fmt: skip

    def logs(self) -> str:
        """What all of them have logged, one behind the other."""
        return "".join((self.directory / f"log-{n}").read_text(encoding="utf-8") for n in range(len(self.running)))

    def doors(self) -> list[str]:
        """The servers' native doors, as their logs name them."""
        lines = [json.loads(line) for line in self.logs().splitlines() if '"node-ready"' in line]
        return [f"veredus://{line['tcp']}" for line in lines]


@pytest.fixture
def town(tmp_path: Path) -> Iterator[Town]:
    made = Town(tmp_path)
    for exchange in exchanges_in(blocks_in(PAGE, "console")[0]):
        made.spawn(exchange.command)
    yield made
    for process in made.running:
        process.send_signal(signal.SIGTERM)
    codes = [process.wait(20) for process in made.running]
    for process in made.running:
        process.end()
    assert codes == [0] * len(made.running)


def test_the_commands_of_the_page_on_topics_do_what_it_shows(town: Town) -> None:
    subscribe, *others = exchanges_in(blocks_in(PAGE, "console")[1])
    command = ["bash", "-c", f"PATH={Path(sys.executable).parent}:$PATH {town.here(subscribe.command)}"]
    until = time.monotonic() + READY_S
    while (asked := ended(command, cwd=town.directory)).returncode:
        assert time.monotonic() < until, f"{asked.returncode}: {asked.stderr}\n{town.logs()}"
    for exchange in others:
        wanted = exchange.command.replace("--loop", "--loop --wait 200ms")
        assert is_as_shown(typed(town.here(wanted), town.directory), exchange.shown), wanted
    addresses = " ".join(f"-a {door}" for door in town.doors())
    shown = typed(f"veredus topics show {addresses} -o json", town.directory)
    (row,) = json.loads(shown)
    assert (row["topic"], row["messages"], row["subscribers"], row["waiting"]) == ("prices", 1, 1, 0)
    header = blocks_in(PAGE, "console")[2].splitlines()[1].split()
    assert typed(f"veredus topics show {addresses}", town.directory).split()[: len(header)] == header
