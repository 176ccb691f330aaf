"""Runs worlds, one seed after the other or several at once, and reports; a failing one is cut down to what its failure
needs.

    python -m veredus.sim --seeds 200            seeds 1 to 200
    python -m veredus.sim --seed 7 --trace       one seed, with its story
    python -m veredus.sim --topology FILE        worlds within what a file says, see `topology`
    python -m veredus.sim --scene topics         worlds of topics alone, which one in eight is where nobody says so
    python -m veredus.sim --seed 7 --without sink-1 --strikes 3,17 --publications 5 --trace
                                                a part of one, with its story

Exit code 9 when a guarantee was broken, 0 when none was.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import parent_process
from os import cpu_count
from pathlib import Path

from .nemesis import FAULTS
from .running import KINDS, Outcome, run_seed
from .shrinking import Shrinking
from .topology import DRAWN, SCENES, Topology, read_topology
from .witnesses import EVENTS
from .workloads import WHOLE, Part
from .world import SECOND

EXIT_VIOLATED = 9
_ENDING = (signal.SIGINT, signal.SIGTERM)
Say = Callable[[str], object]
Watch = Callable[[Iterator[Outcome], int], Iterable[Outcome]]
"""Passes on what comes of worlds, one by one as each ends, and how many there will be."""


def run_seeds(seeds: Iterable[int], topology: Topology = DRAWN, worker_count: int = 0) -> Iterator[Outcome]:
    """Many worlds, in the order of their seeds; `worker_count` 0 takes all processors."""
    workers = worker_count or cpu_count() or 1
    if workers == 1:
        yield from (run_seed(seed, topology) for seed in seeds)
        return
    pool = ProcessPoolExecutor(workers, initializer=_end_with_the_parent)
    try:
        # The workers begin with what is blocked here, and so leave signals that a terminal sends to all to us.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
        try:
            outcomes = pool.map(partial(run_seed, topology=topology), seeds)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        yield from outcomes
    finally:
        # Who was interrupted waits for the worlds under way, not for all that were asked for.
        pool.shutdown(cancel_futures=True)


def _end_with_the_parent() -> None:
    """Have this worker end when who began it was killed: it would wait for a next seed for ever."""
    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def report(outcomes: Sequence[Outcome]) -> str:
    """What a campaign found, as text."""
    counts: Counter[str] = Counter()
    for outcome in outcomes:
        counts.update(outcome.counts)
    kinds = Counter(outcome.kind for outcome in outcomes)
    faults = {name.removeprefix("fault."): count for name, count in counts.items() if name.startswith("fault.")}
    simulated_s = sum(outcome.simulated_ns for outcome in outcomes) / SECOND
    lines = [
        f"{'seeds':<16}{len(outcomes):>12,}",
        f"{'simulated':<16}{simulated_s:>12,.0f} s",
        f"{'publications':<16}{counts['taken']:>12,} times taken, {counts['pushed']:,} times pushed",
        f"{EVENTS:<16}{counts[EVENTS]:>12,}",
        f"{'faults':<16}{sum(faults.values()):>12,}",
        *(f"  {name:<22}{faults[name]:>12,}" for name in sorted(faults)),
        f"{'topics':<16}{counts['topics.worlds']:>12,} worlds, {counts['topics.topic-merged']:,} merges",
        *(f"{kind:<16}{kinds[kind]:>12,}" for kind in (*dict.fromkeys(KINDS.values()), "other")),
        *(f"seed {outcome.seed}: {outcome.violation}" for outcome in outcomes if outcome.violation),
    ]
    return "\n".join(lines)


def _unseen(outcomes: Iterator[Outcome], _count: int) -> Iterable[Outcome]:
    return outcomes


def main(
    argv: Sequence[str] | None = None,
    say: Say | None = None,
    watch: Watch = _unseen,
    parser_kind: type[argparse.ArgumentParser] = argparse.ArgumentParser,
) -> int:
    """The command; returns its exit code. What it says goes to standard output unless `say` takes it.

    Many worlds pass through `watch`. A `parser_kind` says what is wrong in `argv`. Raises `Refused("bad-topology")`.
    """
    say = say or sys.stdout.write
    options, begun_s = _options(argv, parser_kind), time.monotonic()
    topology = read_topology(Path(options.topology)) if options.topology else DRAWN
    if options.faults is not None:
        topology = replace(topology, faults=options.faults)
    if options.scene is not None:
        topology = replace(topology, scene=options.scene)
    if options.seed is None:
        seeds = range(options.first, options.first + options.seeds)
        outcomes = list(watch(run_seeds(seeds, topology, options.workers), len(seeds)))
        failed = next((outcome for outcome in outcomes if outcome.violation), None)
    else:
        part = Part(options.without, options.strikes, options.publications)
        listen = (lambda line: _say_line(say, line)) if options.trace else None
        outcomes = [run_seed(options.seed, topology, listen, part)]
        failed = outcomes[0] if outcomes[0].violation and part == WHOLE and not options.trace else None
    say(report(outcomes) + "\n")
    workers = 1 if options.seed is not None else options.workers or cpu_count() or 1
    events = sum(outcome.counts[EVENTS] for outcome in outcomes)
    say(f"{events / (time.monotonic() - begun_s) / workers:,.0f} {EVENTS} a second on each of {workers} processes\n")
    if failed is not None and not options.whole:
        _show_shrunk(failed, topology, options, say)
    if len(outcomes) == 1:
        say(f"digest {outcomes[0].digest}\n")
    return EXIT_VIOLATED if any(outcome.violation for outcome in outcomes) else 0


def _options(argv: Sequence[str] | None, parser_kind: type[argparse.ArgumentParser]) -> argparse.Namespace:
    parser = parser_kind(prog="veredus sim run", description="Run simulated worlds and check every guarantee in them.")
    parser.add_argument("--seeds", type=_count, default=200, help="number of worlds (default: 200)")
    parser.add_argument("--first", type=int, default=1, help="the first seed (default: 1)")
    parser.add_argument("--seed", type=int, help="run only this seed")
    parser.add_argument("--trace", action="store_true", help="print each step of --seed")
    parser.add_argument("--whole", action="store_true", help="do not reduce the first failing seed")
    parser.add_argument("--without", type=_names, default=frozenset(), help="leave these parties out of --seed: names")
    parser.add_argument("--strikes", type=_numbers, help="inject only these faults in --seed: numbers")
    parser.add_argument(
        "--publications", type=int, default=Part().publications, help="the most publications of a source in --seed"
    )
    parser.add_argument("--topology", metavar="FILE", help="a TOML file with the parties and the ranges of the faults")
    parser.add_argument(
        "--faults", type=_faults, help=f"some of {', '.join(FAULTS)}, with commas between (default: all)"
    )
    parser.add_argument(
        "--scene", choices=SCENES, help="what the worlds test (default: any; one in eight tests topics)"
    )
    parser.add_argument("--workers", type=int, default=0, help="number of processes (default: one for each processor)")
    return parser.parse_args(argv)


def _count(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of worlds: it must be at least 1")
    return int(text)


def _names(text: str) -> frozenset[str]:
    return frozenset(name for name in text.split(",") if name)


def _numbers(text: str) -> frozenset[int]:
    return frozenset(int(number) for number in text.split(",") if number)


def _faults(text: str) -> tuple[str, ...]:
    faults = tuple(fault for fault in text.split(",") if fault)
    unknown = [fault for fault in faults if fault not in FAULTS]
    if unknown:
        raise argparse.ArgumentTypeError(f"there is no fault {unknown[0]!r}; known: {', '.join(FAULTS)}")
    return faults


def _show_shrunk(failed: Outcome, topology: Topology, options: argparse.Namespace, say: Say) -> None:
    """The smallest part of a failing world that still fails, and how to run it again."""
    shrinking = Shrinking(lambda part: run_seed(failed.seed, topology, part=part), failed)
    shrinking.shrink()
    part, smallest = shrinking.part, shrinking.outcome
    again = ["veredus", "sim", "run", "--seed", str(failed.seed), "--trace"]
    if options.topology:
        again += ["--topology", options.topology]
    if options.faults is not None:
        again += ["--faults", ",".join(options.faults)]
    if options.scene is not None:
        again += ["--scene", options.scene]
    if part.without:
        again += ["--without", ",".join(sorted(part.without))]
    if part.strikes is not None:
        again += ["--strikes", ",".join(map(str, sorted(part.strikes))) or "0"]
    if part.publications != Part().publications:
        again += ["--publications", str(part.publications)]
    strikes = ", ".join(f"{fault} ({number})" for number, fault in smallest.strikes)
    say(f"seed {failed.seed}, reduced: {smallest.violation}\n")
    say(f"parties: {', '.join(smallest.names) or 'none'}; faults: {strikes or 'none'}\n")
    say(f"repeat: {shlex.join(again)}\n")


def _say_line(say: Say, line: str) -> None:
    say(line + "\n")
