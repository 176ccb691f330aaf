"""`veredus sim`: simulated worlds, each drawn from a seed, in which guarantees are held against crash and damage."""

from __future__ import annotations

import time
from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from veredus.cli.exits import Ended, Exit
from veredus.cli.interrupts import Interrupts
from veredus.cli.terminal import FiniteRange, Naming, note, progress

if TYPE_CHECKING:
    from veredus.sim.running import Outcome


@click.group()
def sim() -> None:
    """Check every guarantee in simulated worlds, each drawn from a seed."""


class _Parser(ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """As any command says what is wrong."""
        raise click.UsageError(message, click.get_current_context())


@sim.command("run", context_settings={"ignore_unknown_options": True, "help_option_names": []})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def run(arguments: tuple[str, ...]) -> None:
    """Run many seeds, or trace one of them."""
    from veredus.sim.campaign import main

    code = main(list(arguments), watch=_shown, parser_kind=_Parser)
    if code:
        raise Ended(Exit(code))


def _shown(outcomes: Iterator[Outcome], count: int) -> Iterator[Outcome]:
    """Show how far it is, and name a seed that failed at once: the report comes when all have ended."""
    with progress() as bar:
        task = bar.add_task("worlds", total=count, figures="")
        for done, outcome in enumerate(outcomes, 1):
            if outcome.violation:
                note(f"seed {outcome.seed}: {outcome.violation}")
            bar.update(task, completed=done, figures=f"{done:,} of {count:,}")
            yield outcome


@sim.command("campaign")
@click.option(
    "--ledger",
    cls=Naming,
    type=click.Path(path_type=Path),
    required=True,
    help="The file that records which seeds were run.",
)
@click.option(
    "--page", cls=Naming, type=click.Path(path_type=Path, exists=True), help="A page to update with the results."
)
@click.option("--seeds", type=click.IntRange(1), default=1_000_000, help="The last seed.  [1000000]")
@click.option("--hours", type=FiniteRange(0), default=0.0, help="The most hours to run; 0 for no limit.")
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
