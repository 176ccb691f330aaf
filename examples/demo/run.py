"""The main job, on real input, with kills: flights → node → Spark → Parquet and a second stream, exactly once.

    python examples/demo/run.py [--seed N]

Starts a node, three publishers (one source per carrier) and a Spark driver with two queries; kills them by SIGKILL at
moments that the seed decides, and starts them again; then counts what was stored against the data set itself.
"""

from __future__ import annotations

import argparse
import random
import shutil
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from board import AGGREGATED, ARCHIVED, FINISH_AT, FINISHED, GATE, Board
from cast import Player, script
from flights import CLOSING_TIME, LEAD, RESTART_SECONDS, WATERMARK, carriers_of, load_flights, store_flights
from kills import Kill, plan_kills
from plot import Timeline, draw
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

import audit
import veredus

STREAM, STATISTICS = "flights", "flight-delays"
PUBLISH_SECONDS = 60.0
WARM_UP = timedelta(days=1)
"""Of the year: what is published while Spark starts, so that its queries are at work when the minute begins."""
CLOSING_EVENT_TIME = CLOSING_TIME + 2 * WATERMARK
PUBLISHERS_COUNT = 3
POLL_SECONDS = 0.1
LIMIT_SECONDS = 300.0
MARKER = ".veredus-demo"
MICROSECOND = timedelta(microseconds=1)


@dataclass
class Demo:
    """Owns the cast and the clock of one run."""

    seed: int
    directory: Path
    console: Console
    timeline: Timeline = field(default_factory=Timeline)

    def prepare(self) -> None:
        """Lay out the directory, the data, the board and the cast."""
        if self.directory.exists():
            if any(self.directory.iterdir()) and not (self.directory / MARKER).exists():
                raise SystemExit(f"demo: {self.directory} is not empty and was not made by the demo: name another")
            shutil.rmtree(self.directory)
        self.directory.mkdir(parents=True)
        (self.directory / MARKER).touch()
        self.flights = load_flights()
        store_flights(self.directory / "flights.arrow", self.flights)
        self.carriers = carriers_of(self.flights)
        self.board = Board(self.directory / "board", self.carriers)
        first, last = (self.flights["event_time"][index].value for index in (0, -1))
        self.first_us, self.span_us = first, last - first
        for carrier in self.carriers:
            self.board.report(carrier, 0, first)
        self.address = f"veredus://127.0.0.1:{free_port()}"
        self.node = self.player("node", node_command(self.directory, self.address))
        self.driver = self.player(
            "driver", script("driver.py", *self.place(), "--stream", STREAM, "--statistics", STATISTICS)
        )
        # Dealt out in turn, the busiest first, so that every publisher has about as much to do.
        shares = [self.carriers[index::PUBLISHERS_COUNT] for index in range(PUBLISHERS_COUNT)]
        self.publishers = [
            self.player(
                f"publisher-{index}",
                script("publisher.py", *self.place(), "--stream", STREAM, "--carriers", ",".join(share)),
            )
            for index, share in enumerate(shares)
        ]
        self.cast = [self.node, self.driver, *self.publishers]

    def player(self, name: str, arguments: list[str]) -> Player:
        """A process of this run."""
        return Player(name, arguments, self.directory / f"{name}.log")

    def place(self) -> list[str]:
        """What every process must be told."""
        return ["--address", self.address, "--directory", str(self.directory)]

    def perform(self) -> None:
        """Publish the year, kill by plan, close the year, and wait until Spark is through."""
        began = time.monotonic()
        with progress_bar(self.console) as bars:
            waiting = bars.add_task("starting", total=None)
            self.node.start()
            create_streams(self.address)
            self.board.write(GATE, self.first_us + WARM_UP // MICROSECOND)
            for player in (self.driver, *self.publishers):
                player.start()
            self.wait_until(self.is_spark_at_work, "Spark to start", began)
            bars.remove_task(waiting)
            total = self.flights.num_rows
            tasks = {name: bars.add_task(name, total=total) for name in ("acknowledged", "archived", "aggregated")}
            self.conduct(bars, tasks)
            for task in tasks.values():
                bars.update(task, completed=total)
        for player in self.cast:
            if player is not self.node:
                player.stop()

    def conduct(self, bars: Progress, tasks: dict[str, TaskID]) -> None:
        """The minute of publishing and what follows, tick by tick."""
        kills = plan_kills(self.seed)
        began = time.monotonic()
        is_closed = False
        while not self.board.read(FINISHED):
            seconds = time.monotonic() - began
            self.open_gate(seconds)
            while kills and kills[0].at_seconds <= seconds:
                self.carry_out(kills.pop(0), seconds)
            if not is_closed and not kills and not any(publisher.is_running for publisher in self.publishers):
                self.board.write(FINISH_AT, self.close_year())
                is_closed = True
            counts = {
                "acknowledged": self.board.acknowledged,
                "archived": min(self.board.read(ARCHIVED), self.flights.num_rows),
                "aggregated": min(self.board.read(AGGREGATED), self.flights.num_rows),
            }
            self.timeline.sample(seconds, **counts)
            for name, count in counts.items():
                bars.update(tasks[name], completed=count)
            self.check(began, "Spark to finish")
            time.sleep(POLL_SECONDS)

    def open_gate(self, seconds: float) -> None:
        """Let the sources publish up to the clock of the run, but not far ahead of the slowest of them."""
        paced_us = self.first_us + int(self.span_us * min(1.0, seconds / PUBLISH_SECONDS))
        gate_us = min(paced_us, self.board.next_us + LEAD // MICROSECOND)
        self.board.write(GATE, max(self.board.read(GATE), gate_us))

    def carry_out(self, kill: Kill, seconds: float) -> None:
        """Kill, and start again at once."""
        victim = {"node": self.node, "driver": self.driver}.get(kill.victim)
        if victim is None:
            running = [publisher for publisher in self.publishers if publisher.is_running]
            if not running:
                raise SystemExit("demo: the publishers were done before all kills were: they are paced too fast")
            victim = running[kill.choice % len(running)]
        victim.kill()
        self.timeline.kills.append((seconds, kill.victim))
        self.console.print(f"[red]killed[/red] {victim.name} at {seconds:.1f} s")
        victim.start()

    def close_year(self) -> int:
        """Publish what tells the watermark that the year is over; its sequence is the last of the stream."""
        with (
            veredus.connect(self.address, refused_s=RESTART_SECONDS) as node,
            node.publisher(STREAM, source="closing") as publisher,
        ):
            number = publisher.publish(b"closing", b"", event_time=CLOSING_EVENT_TIME)
            return publisher.wait(number).sequence

    def is_spark_at_work(self) -> bool:
        """Whether both queries have made a micro-batch: before that, a kill would hit nothing but a start."""
        return bool(self.board.read(ARCHIVED) and self.board.read(AGGREGATED))

    def wait_until(self, is_so: Callable[[], bool], what: str, began: float) -> None:
        """Wait for the cast to come that far."""
        while not is_so():
            self.check(began, what)
            time.sleep(POLL_SECONDS)

    def check(self, began: float, what: str) -> None:
        """Stop the demo when one of the cast ended badly, or nothing comes of it."""
        for player in self.cast:
            player.check()
        if time.monotonic() - began > LIMIT_SECONDS:
            raise SystemExit(f"demo: waited {LIMIT_SECONDS:.0f} s for {what}; see the logs in {self.directory}")

    def judge(self, seconds: float) -> bool:
        """Count everything, print the table, and say whether all agrees."""
        total, kill_count = self.flights.num_rows, len(plan_kills(self.seed))
        with veredus.connect(self.address, refused_s=RESTART_SECONDS) as node:
            audited = audit.audit_all(node, STREAM, STATISTICS, self.directory, self.flights, self.carriers)
        table = Table(title=f"flights of 2013, seed {self.seed}")
        for column in ("", "rows", "expected", "lost", "doubled", "out of order", "wrong", "agrees"):
            table.add_column(column, justify="right" if column else "left", no_wrap=True)
        verdicts = [self.board.acknowledged == total]
        table.add_row("published", f"{total:,}", f"{total:,}")
        table.add_row("acknowledged", f"{self.board.acknowledged:,}", f"{total:,}", *[""] * 4, mark(verdicts[0]))
        for name, (tally, expected) in audited.items():
            verdicts.append(tally.is_clean and tally.rows == expected)
            figures = (tally.rows, expected, tally.lost, tally.doubled, tally.out_of_order, tally.wrong)
            table.add_row(name, *(f"{figure:,}" for figure in figures), mark(verdicts[-1]))
        survived = sum(player.start_count - 1 for player in self.cast)
        verdicts.append(survived == kill_count)
        table.add_row("kills survived", str(survived), str(kill_count), *[""] * 4, mark(verdicts[-1]))
        table.add_row("seconds", f"{seconds:.0f}")
        self.console.print(table)
        return all(verdicts)


def mark(is_right: bool) -> str:
    """A tick or a cross."""
    return "[green]✓[/green]" if is_right else "[red]✗[/red]"


def progress_bar(console: Console) -> Progress:
    """Bars on a terminal; nothing but lines elsewhere."""
    columns = (TextColumn("{task.description:>12}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console, disable=not console.is_terminal)


def free_port() -> int:
    """A TCP port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def node_command(directory: Path, address: str) -> list[str]:
    """How the node is started: its journal in the run's directory, one door."""
    doors = ["--tcp", address.removeprefix("veredus://"), "--set", "listen.zeromq=", "--set", "listen.metrics="]
    program = str(Path(sys.executable).with_name("veredus"))
    return [program, "serve", "--directory", str(directory / "node"), *doors]


def create_streams(address: str) -> None:
    """The two streams, so that Spark finds them before the first row does."""
    with veredus.connect(address, refused_s=RESTART_SECONDS) as node:
        for stream in (STREAM, STATISTICS):
            node.streams.create(stream)


def main() -> int:
    """Run the demo once; 0 when all agrees."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, help="repeats the kills of the run that had it")
    parser.add_argument("--directory", type=Path, default=Path("build") / "demo", help="for journal, files and logs")
    arguments = parser.parse_args()
    seed = random.SystemRandom().randrange(10_000) if arguments.seed is None else arguments.seed
    console = Console(width=None if sys.stdout.isatty() else 120)
    console.print(f"seed {seed}: " + ", ".join(map(str, plan_kills(seed))))
    began = time.monotonic()
    demo = Demo(seed, arguments.directory.resolve(), console)
    demo.prepare()
    try:
        demo.perform()
        agrees = demo.judge(time.monotonic() - began)
    finally:
        for player in demo.cast:
            player.kill()
    picture = demo.directory / "throughput.png"
    draw(
        demo.timeline,
        picture,
        f"Flights through Veredus and Spark, killed {len(demo.timeline.kills)} times (seed {seed})",
    )
    console.print(f"picture: {picture}\n" + ("all agree" if agrees else "[red]something does not agree[/red]"))
    return 0 if agrees else 1


if __name__ == "__main__":
    sys.exit(main())
