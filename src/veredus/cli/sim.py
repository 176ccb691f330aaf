"""`veredus sim`: simulated worlds, each drawn from a seed, in which guarantees are held against crash and damage."""

from __future__ import annotations

import time
from pathlib import Path

import click

from veredus.cli.exits import Ended, Exit
from veredus.cli.interrupts import Interrupts
from veredus.cli.terminal import note


@click.group()
def sim() -> None:
    """Check every guarantee in simulated worlds, each drawn from a seed."""


@sim.command("run", context_settings={"ignore_unknown_options": True, "help_option_names": []})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def run(arguments: tuple[str, ...]) -> None:
    """Run many seeds, or trace one of them."""
    from veredus.sim.campaign import main

    code = main(list(arguments))
    if code:
        raise Ended(Exit(code))


@sim.command("campaign")
@click.option(
    "--ledger", type=click.Path(path_type=Path), required=True, help="The file that records which seeds were run."
)
@click.option("--page", type=click.Path(path_type=Path, exists=True), help="A page to update with the results.")
@click.option("--seeds", type=click.IntRange(1), default=1_000_000, help="The last seed.  [1000000]")
@click.option("--hours", type=click.FloatRange(0), default=0.0, help="The most hours to run; 0 for no limit.")
@click.option(
    "--workers", type=click.IntRange(0), default=0, help="The number of processes; 0 for one for each processor."
)
def campaign(ledger: Path, page: Path | None, seeds: int, hours: float, workers: int) -> None:
    """Run seeds for hours. A campaign that was interrupted continues where it stopped."""
    from veredus.sim.ledger import go_on, read_ledger, show

    end_s = time.monotonic() + hours * 3600 if hours else float("inf")
    if page is not None:
        # A page that cannot be written is better told now than after hours.
        show(read_ledger(ledger), page)
    try:
        with Interrupts() as interrupts, interrupts.waiting():
            done = go_on(ledger, seeds, workers, lambda: time.monotonic() < end_s, note)
    finally:
        if page is not None:
            show(read_ledger(ledger), page)
    if done.failed:
        raise Ended(Exit.VIOLATED)
