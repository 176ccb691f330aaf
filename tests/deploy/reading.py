"""What the files in deploy/ name, held against what the project has: commands, settings, and files of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from veredus.cli import veredus
from veredus.runtime.configuration import CLIENT_VARIABLES, read_configuration

DEPLOY = Path(__file__).parent.parent.parent / "deploy"


def check_command(words: Sequence[str]) -> None:
    """Parse `veredus` and what follows as the command line does. Raises `click.UsageError` where it cannot."""
    assert words[0].rpartition("/")[2] == "veredus", words
    command: click.Command | None = veredus
    rest = list(words[1:])
    while isinstance(command, click.Group):
        _, command, rest = command.resolve_command(click.Context(command), rest)
    assert command is not None, words
    command.make_context(command.name, rest)


def faults_of_environment(environment: Mapping[str, str]) -> list[str]:
    """What is not known, or not right, in variables of a node. Raises `Refused` with what a node would not start with.

    The file that VEREDUS_SETTINGS names is not looked for.
    """
    others = {name: value for name, value in environment.items() if name not in CLIENT_VARIABLES}
    return list(read_configuration(None, others).notes)
