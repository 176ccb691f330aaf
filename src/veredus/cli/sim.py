"""`veredus sim`: simulated worlds, drawn from seeds, in which every guarantee is held against crash and damage."""

from __future__ import annotations

import time
from pathlib import Path

import click

from veredus.cli.exits import Ended, Exit
from veredus.cli.interrupts import Interrupts
from veredus.cli.terminal import note


@click.group()
def sim() -> None:
    """Draw simulated worlds, and hold every guarantee against them."""


@sim.command("run", context_settings={"ignore_unknown_options": True, "help_option_names": []})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def run(arguments: tuple[str, ...]) -> None:
    """Run many seeds, or tell the story of one: `veredus sim run --help` says more."""
    from veredus.sim.campaign import main

    code = main(list(arguments))
    if code:
        raise Ended(Exit(code))


@sim.command("campaign")
@click.option("--ledger", type=click.Path(path_type=Path), required=True, help="The file that is kept.")
@click.option("--page", type=click.Path(path_type=Path, exists=True), help="A page that shows it, between its marks.")
@click.option("--seeds", type=click.IntRange(0), default=1_000_000, help="Up to which seed.  [1000000]")
@click.option("--hours", type=click.FloatRange(0), default=0.0, help="For how long at most; 0 for no limit.")
@click.option("--workers", type=click.IntRange(0), default=0, help="Processes; 0 for one a processor.")
def campaign(ledger: Path, page: Path | None, seeds: int, hours: float, workers: int) -> None:
    """Run seeds for hours, and keep a ledger; what is interrupted goes on where it ends."""
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
