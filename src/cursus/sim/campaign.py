"""Runs worlds, one seed after the other or several at once, and reports; a failing seed tells its number, and its
story if asked.

    python -m cursus.sim --seeds 200            seeds 1 to 200
    python -m cursus.sim --seed 7 --trace       one seed, with its story

Exit code 9 when a guarantee was broken, 0 when none was.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from os import cpu_count
from typing import NamedTuple

from .nemesis import FAULTS
from .workloads import Scene
from .world import SECOND, Violation, World

EXIT_VIOLATED = 9


class Outcome(NamedTuple):
    """How one world ended; `violation` is "" when every guarantee held."""

    seed: int
    violation: str
    digest: str
    simulated_ns: int
    counts: Counter[str]


def run_seed(seed: int, faults: Sequence[str] = FAULTS, listen: Callable[[str], None] | None = None) -> Outcome:
    """One world, from its seed to its verdict."""
    world = World(seed, listen)
    violation = ""
    try:
        Scene(world, faults).run()
    except Violation as broken:
        violation = str(broken)
        if listen is not None and broken.__cause__ is not None:
            listen("".join(traceback.format_exception(broken.__cause__)))
    return Outcome(seed, violation, world.digest, world.now_ns, world.counts)


def run_seeds(seeds: Iterable[int], faults: Sequence[str] = FAULTS, worker_count: int = 0) -> Iterator[Outcome]:
    """Many worlds, in the order of their seeds; `worker_count` 0 takes all processors."""
    workers = worker_count or cpu_count() or 1
    if workers == 1:
        yield from (run_seed(seed, faults) for seed in seeds)
        return
    with ProcessPoolExecutor(workers) as pool:
        yield from pool.map(partial(run_seed, faults=faults), seeds, chunksize=4)


def report(outcomes: Sequence[Outcome]) -> str:
    """What a campaign found, as text."""
    counts: Counter[str] = Counter()
    for outcome in outcomes:
        counts.update(outcome.counts)
    failed = [outcome for outcome in outcomes if outcome.violation]
    simulated_s = sum(outcome.simulated_ns for outcome in outcomes) / SECOND
    lines = [f"seeds {len(outcomes)}, failed {len(failed)}, simulated {simulated_s:.0f} s"]
    lines += [f"  {name:<24} {counts[name]:>12,}" for name in sorted(counts)]
    lines += [f"seed {outcome.seed}: {outcome.violation}" for outcome in failed]
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None, say: Callable[[str], object] | None = None) -> int:
    """The command; returns its exit code. What it says goes to standard output unless `say` takes it."""
    say = say or sys.stdout.write
    parser = argparse.ArgumentParser(
        prog="cursus sim run", description="Draw worlds, and hold every guarantee against them."
    )
    parser.add_argument("--seeds", type=int, default=200, help="how many worlds (default: 200)")
    parser.add_argument("--first", type=int, default=1, help="the first seed (default: 1)")
    parser.add_argument("--seed", type=int, help="this one seed alone")
    parser.add_argument("--trace", action="store_true", help="tell the story of --seed")
    parser.add_argument("--workers", type=int, default=0, help="processes (default: one for each processor)")
    parser.add_argument("--faults", default=",".join(FAULTS), help=f"out of {','.join(FAULTS)}")
    options = parser.parse_args(argv)
    faults = [fault for fault in options.faults.split(",") if fault]
    unknown = [fault for fault in faults if fault not in FAULTS]
    if unknown:
        parser.error(f"--faults: there is no {unknown[0]!r}; there are {', '.join(FAULTS)}")
    if options.seed is not None:
        outcomes = [run_seed(options.seed, faults, (lambda line: _say_line(say, line)) if options.trace else None)]
    else:
        outcomes = list(run_seeds(range(options.first, options.first + options.seeds), faults, options.workers))
    say(report(outcomes) + "\n")
    if len(outcomes) == 1:
        say(f"digest {outcomes[0].digest}\n")
    return EXIT_VIOLATED if any(outcome.violation for outcome in outcomes) else 0


def _say_line(say: Callable[[str], object], line: str) -> None:
    say(line + "\n")
