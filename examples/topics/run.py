"""The topic service at work, with kills: clients → proxies → servers and back, exactly once; topics of two are merged.

    python examples/topics/run.py [--seed N]

Starts three servers, two proxies and fifty clients, which exchange flights by topics; kills and stops all of them at
moments that the seed decides, has topics made at two servers at once, and starts everybody again; then holds what each
client was given against what was put, and what the servers hold against both.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import checker
import strikes
from accounts import GOT, PUT, SUBSCRIBED, body_of, digest_of, read_account
from cluster import CONFLICT, GIVEN, MERGED, lay_out
from first_demo import Member, load_flights
from progress import Progress
from rich.console import Console
from rich.table import Table
from scene import END, OPEN, Scene, deal, store_flights
from strikes import KILL, MEND, PROXY, SERVER, STOP, WORKER, Act, acts_of, plan_mending, plan_strikes

import veredus

CLIENTS_COUNT, WORKERS_COUNT = 50, 10
FLIGHTS_COUNT = 4_334
"""Those of the first five days of the year."""
TOPICS_EACH_COUNT = 3
SECONDS = 60.0
TICK_SECONDS = 0.05
LOOK_SECONDS = 0.5
LIMIT_SECONDS = 120.0
"""So long may nothing come of anything that is waited for: a busy machine is only slow."""
DONE = {KILL: "killed", STOP: "stopped", MEND: "killed, then heard by all"}
MARKER = ".veredus-demo-topics"
WORKER_SCRIPT = Path(__file__).with_name("worker.py")


@dataclass
class Demo:
    """Owns the cast and the clock of one run."""

    seed: int
    directory: Path
    console: Console
    seconds: float = SECONDS
    flights_count: int = FLIGHTS_COUNT
    clients_count: int = CLIENTS_COUNT
    workers_count: int = WORKERS_COUNT
    done: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By what was done to which kind of victim."""
    cast: dict[str, Member] = field(default_factory=dict)
    away: set[str] = field(default_factory=set)

    def prepare(self) -> None:
        """Lay out the directory, the flights, the scene and the cast."""
        if self.directory.exists():
            if any(self.directory.iterdir()) and not (self.directory / MARKER).exists():
                raise SystemExit(f"demo: {self.directory} is not empty and was not made by the demo: name another")
            shutil.rmtree(self.directory)
        (self.directory / "accounts").mkdir(parents=True)
        (self.directory / MARKER).touch()
        table = load_flights().slice(0, self.flights_count)
        lines = [body.decode() for body in table["body"].to_pylist()]
        names = zip(table["origin"].to_pylist(), table["carrier"].to_pylist(), strict=True)
        self.flights = [(f"{origin}.{carrier}", line) for (origin, carrier), line in zip(names, lines, strict=True)]
        store_flights(self.directory, self.flights)
        self.cluster = lay_out(self.directory)
        topics = sorted({topic for topic, _ in self.flights})
        subscriptions = deal(self.seed, topics, self.clients_count, min(TOPICS_EACH_COUNT, len(topics)))
        proxies = list(self.cluster.proxies.values())
        self.scene = Scene(self.seed, self.seconds, proxies, subscriptions, self.workers_count)
        self.scene.store(self.directory)
        self.kinds = self._make_cast()
        self.strikes = plan_strikes(self.seed, self.seconds, self.kinds)
        counts = Counter(topic for topic, _ in self.flights)
        expected = {
            SUBSCRIBED: sum(map(len, subscriptions.values())),
            PUT: len(self.flights),
            GOT: sum(counts[topic] for topics in subscriptions.values() for topic in topics),
        }
        self.accounts = {client: self.directory / "accounts" / client for client in subscriptions}
        self.progress = Progress(self.console, list(self.accounts.values()), expected)

    def _make_cast(self) -> dict[str, list[str]]:
        """Everybody, by kind. At first each proxy has heard of one server of which the other one has not."""
        cluster = self.cluster
        first, second = cluster.proxies
        hearers = dict(zip(cluster.servers, ([first], [second], [first, second]), strict=True))
        for proxy in cluster.proxies:
            self.cast[proxy] = cluster.proxy(proxy)
        for server in cluster.servers:
            self.cast[server] = cluster.server(server, hearers[server])
        workers = [f"clients-{number}" for number in range(self.workers_count)]
        for number, worker in enumerate(workers):
            arguments = ["--directory", str(self.directory), "--worker", str(number)]
            command = [sys.executable, str(WORKER_SCRIPT), *arguments]
            self.cast[worker] = Member(worker, command, self.directory / f"{worker}.log")
        return {SERVER: list(cluster.servers), PROXY: list(cluster.proxies), WORKER: workers}

    # ── the run ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def perform(self) -> None:
        """Subscribe, put and get under strikes, and wait until nothing more can come."""
        for player in self.cast.values():
            player.start()
        with self.progress:
            self.wait_until(lambda: self.progress.is_complete(SUBSCRIBED), "all to be subscribed")
            began = time.monotonic()
            self.sign(OPEN, str(began))
            self.conduct(began)
            self.wait_until(lambda: self.progress.is_complete(PUT), "all to be put")
            self.wait_until(self.is_merged, "each topic to be at one server")
            self.sign(END, "")
            workers = [self.cast[worker] for worker in self.kinds[WORKER]]
            self.wait_until(lambda: not any(worker.is_running for worker in workers), "all to be got")
        for player in self.cast.values():
            player.check()

    def sign(self, name: str, text: str) -> None:
        """Tell all clients, at once or not at all."""
        made = self.directory / f"{name}.new"
        made.write_text(text)
        made.rename(self.directory / name)

    def conduct(self, began: float) -> None:
        """The strikes, each when it is due, until the last one is over."""
        mended = list(self.cluster.servers)[:2]
        acts = sorted([*acts_of(self.strikes), *plan_mending(self.seed, self.seconds, mended)])
        while acts or time.monotonic() - began < self.seconds:
            while acts and acts[0].at_seconds <= time.monotonic() - began:
                self.carry_out(acts.pop(0))
            self.look()
            time.sleep(TICK_SECONDS)

    def carry_out(self, act: Act) -> None:
        """Do one thing to one of the cast."""
        player = self.cast[act.victim]
        match act.what:
            case strikes.KILL:
                self.away.add(act.victim)
                player.kill()
            case strikes.START:
                player.start()
                self.away.discard(act.victim)
            case strikes.STOP:
                player.send(signal.SIGSTOP)
            case strikes.CONT:
                player.send(signal.SIGCONT)
            case strikes.MEND:
                self.mend(act.victim)
        if act.what in (KILL, STOP, MEND):
            kind = next(kind for kind, names in self.kinds.items() if act.victim in names)
            self.done[act.what, kind] += 1
            self.progress.tell(f"{act.at_seconds:5.1f} s  {act.what:4} {act.victim}")

    def mend(self, name: str) -> None:
        """Kill a server, and start it so that every proxy hears of it."""
        former = self.cast[name]
        former.kill()
        self.cast[name] = self.cluster.server(name, list(self.cluster.proxies))
        if name not in self.away:
            self.cast[name].start()

    def is_merged(self) -> bool:
        """Whether no topic is at several servers."""
        try:
            return max(self.cluster.topics().values()) == 1
        except veredus.Unavailable:
            return False

    def wait_until(self, is_so: Callable[[], bool], what: str) -> None:
        """Wait for the cast to come that far."""
        came_at, count = time.monotonic(), 0
        while not is_so():
            self.look()
            if self.progress.counts.total() > count:
                came_at, count = time.monotonic(), self.progress.counts.total()
            if time.monotonic() - came_at > LIMIT_SECONDS:
                message = f"waited for {what}, and nothing came for {LIMIT_SECONDS:.0f} s"
                raise SystemExit(f"demo: {message}; see the logs in {self.directory}")
            time.sleep(LOOK_SECONDS)

    def look(self) -> None:
        """Show how far it is; stop the demo when one of the cast ended badly."""
        self.progress.look()
        for name, player in self.cast.items():
            if name not in self.away:
                player.check()

    # ── what came of it ──────────────────────────────────────────────────────────────────────────────────────────────

    def judge(self, seconds: float) -> bool:
        """Hold all accounts and streams against one another, print the table, and say whether all agrees."""
        accounts = {client: read_account(path) for client, path in self.accounts.items()}
        rows = self.cluster.rows()
        shared = {note["topic"] for event in (CONFLICT, MERGED, GIVEN) for note in self.cluster.said(event)}
        shared |= {topic for topic, held in rows.items() if any(row.was_moved for row in held)}
        flights: dict[str, dict[int, str]] = {}
        for index, (topic, line) in enumerate(self.flights):
            flights.setdefault(topic, {})[index] = digest_of(body_of(index, line))
        opinions = {
            "puts told to be taken": checker.judge_puts(accounts, flights),
            "gets, by the clients": checker.judge_gets(accounts, self.scene.subscriptions, shared),
            "puts, in the servers": checker.judge_streams(rows, accounts, self.scene.subscriptions, shared),
        }
        table = Table(title=f"flights of 2013 by topics, seed {self.seed}")
        for column in ("", "rows", "expected", "lost", "doubled", "out of order", "wrong", "agrees"):
            table.add_column(column, justify="right" if column else "left", no_wrap=True)
        for name, opinion in opinions.items():
            tally = opinion.tally
            figures = (tally.rows, opinion.expected, tally.lost, tally.doubled, tally.out_of_order, tally.wrong)
            table.add_row(name, *(f"{figure:,}" for figure in figures), mark(opinion.is_clean))
        verdicts = [opinion.is_clean for opinion in opinions.values()]
        lag, merges = self.cluster.lags(), len(self.cluster.said(MERGED))
        verdicts += [not lag, bool(merges)]
        table.add_row("left unsettled", f"{lag:,}", "0", *[""] * 4, mark(not lag))
        table.add_row("merges", f"{merges:,}", "> 0", *[""] * 4, mark(bool(merges)))
        table.add_section()
        for (what, kind), count in sorted(self.done.items()):
            table.add_row(f"{kind} {DONE[what]}", f"{count:,}")
        splits = sum(bool(strike.proxy) for strike in self.strikes)
        table.add_row("of these a server, and a proxy beside", f"{splits:,}")
        table.add_row("merges asked for by proxies", f"{len(self.cluster.said(CONFLICT)):,}")
        table.add_row("topics at several servers", f"{len(shared):,}", f"of {len(flights):,}")
        table.add_section()
        for what, count in sorted(opinions["gets, by the clients"].beside.items()):
            table.add_row(what, f"{count:,}")
        for what, count in sorted(checker.failures_in(accounts).items()):
            table.add_row(f"told: {what}", f"{count:,}")
        table.add_row("seconds", f"{seconds:.0f}")
        self.console.print(table)
        for fault in [fault for opinion in opinions.values() for fault in opinion.faults][: checker.FAULTS_SHOWN_MAX]:
            self.console.print(f"[red]{fault}[/red]")
        return all(verdicts)

    def end(self) -> None:
        """Leave no process behind."""
        for player in self.cast.values():
            player.kill()


def mark(is_right: bool) -> str:
    """A tick or a cross."""
    return "[green]✓[/green]" if is_right else "[red]✗[/red]"


def main() -> int:
    """Run the demo once; 0 when all agrees."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, help="repeats the strikes of the run that had it")
    default = Path("artifacts") / "demo-topics"
    parser.add_argument("--directory", type=Path, default=default, help="for journals, accounts and logs")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long flights are put")
    parser.add_argument("--flights", type=int, default=FLIGHTS_COUNT, help="how many of them")
    parser.add_argument("--clients", type=int, default=CLIENTS_COUNT, help="how many of them")
    parser.add_argument("--workers", type=int, default=WORKERS_COUNT, help="how many processes they live in")
    given = parser.parse_args()
    seed = random.SystemRandom().randrange(10_000) if given.seed is None else given.seed
    console = Console(width=None if sys.stdout.isatty() else 120)
    console.print(f"seed {seed}: {given.flights:,} flights, {given.clients} clients")
    # As Ctrl-C, so that nothing is left behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("demo: ended by SIGTERM"))
    began = time.monotonic()
    demo = Demo(seed, given.directory.resolve(), console, given.seconds, given.flights, given.clients, given.workers)
    try:
        demo.prepare()
        demo.perform()
        agrees = demo.judge(time.monotonic() - began)
    finally:
        demo.end()
    console.print("all agree" if agrees else "[red]something does not agree[/red]")
    return 0 if agrees else 1


if __name__ == "__main__":
    sys.exit(main())
