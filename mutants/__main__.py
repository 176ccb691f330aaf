"""Plants each bug in a copy of the sources and casts the nets: `python -m mutants --seeds 1000`.

    --only NAME             these alone, by the names of their patches
    --nets simulator        one net alone; the others are `properties` and `units`
    --workers 2             so many at once

A bug that is caught where none is planted means nothing: whatever a net catches, it must let pass without the bug.
Exit code 1 when fewer than 95 of 100 are caught by the simulator, 2 when a patch does not apply or a net is torn.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from mutants.nets import PROPERTIES, UNITS, Catch, NetTorn, simulated, tried
from mutants.pages import Result, kept_results, write_page, write_results
from mutants.patches import Mutant, PatchRefused, all_mutants, copied_sources, digest_of, planted

NETS = ("simulator", "properties", "units")
SHARE_MIN = 0.95


def try_mutant(mutant: Mutant, sources: Path, seeds: int, nets: Sequence[str]) -> Result:
    """What the nets catch of this bug, planted in these sources. Raises `PatchRefused`, `NetTorn`."""
    with planted(mutant, sources) as copy:
        result = Result(mutant.name, mutant.what, mutant.breaks, digest_of(copy))
        if "simulator" in nets:
            result.simulator, result.seeds = simulated(copy, mutant.scene, seeds), seeds
        if "properties" in nets:
            result.properties = tried(copy, PROPERTIES[mutant.floor])
        if "units" in nets:
            result.units = tried(copy, UNITS[mutant.floor], but=PROPERTIES[mutant.floor])
    _hold_against_honest(mutant, result, sources)
    return result


def _hold_against_honest(mutant: Mutant, result: Result, sources: Path) -> None:
    """What was caught must pass without the bug."""
    seen = result.simulator
    if seen is not None and seen.is_caught:
        honest = simulated(sources, mutant.scene, seen.seed, seen.seed)
        if honest.is_caught:
            raise NetTorn(f"{mutant.name}: seed {seen.seed} fails without the bug, too ({honest.message})")
    for failed in (result.properties, result.units):
        if failed is not None and "::" in failed.test:
            honest = tried(sources, (failed.test,))
            if honest.is_caught:
                raise NetTorn(f"{mutant.name}: {failed.test} fails without the bug, too ({honest.message})")


def _told(catch: Catch | None) -> str:
    if catch is None:
        return "not cast"
    if not catch.is_caught:
        return f"NOT CAUGHT ({catch.seconds:g} s)"
    where = catch.test or f"seed {catch.seed}, {catch.oracle}"
    return f"{where} ({catch.seconds:g} s)"


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m mutants", description="plant bugs, and see which net catches them")
    parser.add_argument("--seeds", type=int, default=1000, help="worlds a bug has to show itself (default: 1000)")
    parser.add_argument("--only", action="append", default=[], help="this one alone, by name; may be repeated")
    parser.add_argument("--workers", type=int, default=2, help="how many at once (default: 2)")
    parser.add_argument("--nets", default=",".join(NETS), help=f"out of {','.join(NETS)}")
    options = parser.parse_args(argv)
    nets = options.nets.split(",")
    unknown = [net for net in nets if net not in NETS]
    if unknown:
        parser.error(f"--nets: there is no {unknown[0]!r}; there are {', '.join(NETS)}")
    try:
        return _run(all_mutants(options.only), options.seeds, options.workers, nets)
    except (PatchRefused, NetTorn) as error:
        sys.stderr.write(f"{error}\n")
        return 2


def _run(mutants: Sequence[Mutant], seeds: int, workers: int, nets: Sequence[str]) -> int:
    results = kept_results()
    pool = ThreadPoolExecutor(workers)
    with copied_sources() as sources:
        trying = partial(try_mutant, sources=sources, seeds=seeds, nets=nets)
        try:
            for number, result in enumerate(pool.map(trying, mutants), 1):
                results[result.name] = result.beside(results.get(result.name))
                write_results(results)
                told = "; ".join(f"{net}: {_told(getattr(result, net))}" for net in nets)
                sys.stderr.write(f"{number}/{len(mutants)} {result.name}: {told}\n")
        finally:
            pool.shutdown(cancel_futures=True)
    known = {mutant.name for mutant in all_mutants()}
    shown = [results[name] for name in sorted(results) if name in known]
    write_results({result.name: result for result in shown})
    write_page(shown)
    judged = [result.simulator for result in shown if result.simulator is not None]
    caught = sum(catch.is_caught for catch in judged)
    sys.stdout.write(f"{caught} of {len(judged)} planted bugs were caught by the simulator\n")
    return 0 if caught >= SHARE_MIN * len(judged) else 1


if __name__ == "__main__":
    sys.exit(main())
