"""Writes a man page for each command, from the commands themselves: `man.py DIRECTORY`, which `make man` calls.

veredus.1, veredus-serve.1, veredus-stream-create.1, … Source: man(7), groff_man(7).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib.metadata import version
from inspect import cleandoc
from pathlib import Path

import click

from veredus.cli import veredus

VERBATIM = "\b"
"""Marks a paragraph whose lines stay as they are."""


def main() -> None:
    """Write all pages into the directory that is named."""
    directory = Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    for context in contexts_of(click.Context(veredus, info_name="veredus", **veredus.context_settings)):
        name = context.command_path.replace(" ", "-")
        (directory / f"{name}.1").write_text("\n".join(page_of(context)) + "\n", encoding="utf-8")


def contexts_of(context: click.Context) -> Iterator[click.Context]:
    """The command and all below it."""
    yield context
    for name, command in commands_of(context):
        yield from contexts_of(click.Context(command, parent=context, info_name=name))


def commands_of(context: click.Context) -> list[tuple[str, click.Command]]:
    """The commands of a group, by name."""
    group = context.command
    if not isinstance(group, click.Group):
        return []
    found = ((name, group.get_command(context, name)) for name in group.list_commands(context))
    return [(name, command) for name, command in found if command is not None]


def page_of(context: click.Context) -> Iterator[str]:
    """The lines of one page, in roff."""
    command = context.command
    name = context.command_path.replace(" ", "-")
    yield f'.TH "{escaped(name.upper())}" 1 "" "veredus {version("veredus")}" "Veredus"'
    yield ".SH NAME"
    yield f"{escaped(name)} \\- {escaped(command.get_short_help_str(200).rstrip('.'))}"
    yield ".SH SYNOPSIS"
    pieces = " ".join(command.collect_usage_pieces(context))
    yield f".B {escaped(context.command_path)}"
    yield escaped(pieces)
    yield ".SH DESCRIPTION"
    yield from text_of(command.help or "")
    params = [param for param in command.get_params(context) if isinstance(param, click.Option)]
    options = [param.get_help_record(context) for param in params]
    yield from listed("OPTIONS", [record for record in options if record is not None])
    below = commands_of(context)
    yield from listed("COMMANDS", [(each, command.get_short_help_str(200)) for each, command in below])
    if command.epilog:
        yield from text_of(command.epilog)
    above = [] if context.parent is None else [context.parent.command_path.replace(" ", "-")]
    related = [*above, *(f"{name}-{each}" for each, _ in below)]
    yield ".SH SEE ALSO"
    for each in related:
        yield f".BR {escaped(each)} (1){',' if each != related[-1] else ''}"


def listed(title: str, rows: list[tuple[str, str]]) -> Iterator[str]:
    """A section of names and what they mean; nothing where there are none."""
    if rows:
        yield f".SH {title}"
    for name, meaning in rows:
        yield ".TP"
        yield f".B {escaped(name)}"
        yield from text_of(meaning)


def text_of(text: str) -> Iterator[str]:
    """Paragraphs; one that begins with a mark stays line by line, and its title becomes that of a section."""
    for number, paragraph in enumerate(re.split(r"\n\s*\n", cleandoc(text))):
        lines = paragraph.splitlines()
        if lines and lines[0] == VERBATIM:
            lines = lines[1:]
            if lines and lines[0].endswith(":"):
                yield f".SH {escaped(lines.pop(0).rstrip(':').upper())}"
            yield from (".PP", ".nf", *map(escaped, lines), ".fi")
        else:
            if number:
                yield ".PP"
            yield escaped(" ".join(line.strip() for line in lines))


def escaped(text: str) -> str:
    """Text that roff prints as it is."""
    plain = (
        text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga").replace("^", "\\(ha")
    )
    plain = plain.replace("~", "\\(ti").replace('"', "\\(dq")
    return f"\\&{plain}" if plain.startswith(".") else plain


if __name__ == "__main__":
    main()
