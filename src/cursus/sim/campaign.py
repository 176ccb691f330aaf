"""Runs worlds, one seed after the other or several at once, and reports; a failing seed tells its number, and its
story if asked.

    python -m cursus.sim --seeds 200            seeds 1 to 200
    python -m cursus.sim --seed 7 --trace       one seed, with its story
    python -m cursus.sim --seed 7 --shrink      one that fails, cut down to what its failure needs
    python -m cursus.sim --seed 7 --without sink-1 --strikes 3,17 --trace
                                                that part of it, with its story

Exit code 9 when a guarantee was broken, 0 when none was.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from os import cpu_count

from .nemesis import FAULTS
from .running import Outcome, run_seed
from .shrinking import Shrinking
from .workloads import Part
from .world import SECOND

EXIT_VIOLATED = 9


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
    parser.add_argument("--shrink", action="store_true", help="cut --seed down to what its failure needs")
    parser.add_argument("--without", default="", help="who is left out of --seed, by name")
    parser.add_argument("--strikes", help="the strikes that are carried out in --seed, by number")
    parser.add_argument("--workers", type=int, default=0, help="processes (default: one for each processor)")
    parser.add_argument("--faults", default=",".join(FAULTS), help=f"out of {','.join(FAULTS)}")
    options = parser.parse_args(argv)
    faults = [fault for fault in options.faults.split(",") if fault]
    unknown = [fault for fault in faults if fault not in FAULTS]
    if unknown:
        parser.error(f"--faults: there is no {unknown[0]!r}; there are {', '.join(FAULTS)}")
    if options.seed is not None:
        part = Part(frozenset(options.without.split(",")), _numbers(options.strikes))
        listen = (lambda line: _say_line(say, line)) if options.trace else None
        outcomes = [run_seed(options.seed, faults, listen, part)]
        if options.shrink and outcomes[0].violation:
            outcomes = [_shrunk(options.seed, faults, outcomes[0], say)]
    else:
        outcomes = list(run_seeds(range(options.first, options.first + options.seeds), faults, options.workers))
    say(report(outcomes) + "\n")
    if len(outcomes) == 1:
        say(f"digest {outcomes[0].digest}\n")
    return EXIT_VIOLATED if any(outcome.violation for outcome in outcomes) else 0


def _numbers(text: str | None) -> frozenset[int] | None:
    return None if text is None else frozenset(int(number) for number in text.split(",") if number)


def _shrunk(seed: int, faults: Sequence[str], outcome: Outcome, say: Callable[[str], object]) -> Outcome:
    """The smallest part of a failing world that still fails; says how to run it again."""
    shrinking = Shrinking(lambda part: run_seed(seed, faults, part=part), outcome)
    shrinking.shrink()
    part, smallest = shrinking.part, shrinking.outcome
    again = f"--seed {seed} --faults {','.join(faults)}"
    again += f" --without {','.join(sorted(part.without))}" if part.without else ""
    if part.strikes is not None:
        again += f" --strikes {','.join(map(str, sorted(part.strikes))) or '0'}"
    strikes = ", ".join(f"{fault} ({number})" for number, fault in smallest.strikes)
    say(f"left: {', '.join(smallest.names) or 'nobody'}; strikes: {strikes or 'none'}\n")
    say(f"again: cursus sim run {again}\n")
    return smallest


def _say_line(say: Callable[[str], object], line: str) -> None:
    say(line + "\n")
