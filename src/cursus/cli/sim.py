"""`cursus sim`: simulated worlds, each drawn from a seed, in which every guarantee is held against crash and damage."""

from __future__ import annotations

import click

from cursus.cli.exits import Ended, Exit


@click.group()
def sim() -> None:
    """Draw simulated worlds, and hold every guarantee against them."""


@sim.command("run", context_settings={"ignore_unknown_options": True, "help_option_names": []})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def run(arguments: tuple[str, ...]) -> None:
    """Run many seeds, or tell the story of one: `cursus sim run --help` says more."""
    from cursus.sim.campaign import main

    code = main(list(arguments))
    if code:
        raise Ended(Exit(code))
