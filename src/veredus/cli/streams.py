"""`veredus stream`: what streams a node has, and how they are kept."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from veredus.cli.link import Target, node_options
from veredus.cli.terminal import CommandGroup, note, output_option, time_text, write_one, write_rows
from veredus.kernel.words import counted, were

F = TypeVar("F", bound=Callable[..., Any])

COLUMNS = ("name", "floor", "head", "size", "sources", "subscriptions", "last")


@click.group(cls=CommandGroup)
def streams() -> None:
    """List, show, create, alter, trim and remove streams."""


_CONFIG = (
    ("--retention-age", "parse_duration", "DURATION", "Publications older than this may be deleted: 7d."),
    ("--retention-size", "parse_size", "SIZE", "Above this size, the oldest publications are deleted: 10 GiB."),
    ("--retention-count", "parse_count", "COUNT", "Above this number, the oldest publications are deleted."),
    (
        "--lag-size-max",
        "parse_size",
        "SIZE",
        "A durable subscription keeps at most this much from deletion: 1 GiB. Farther behind, it gets a gap.",
    ),
    ("--sources-max", "parse_count", "COUNT", "The most sources that the stream can have."),
)


@streams.command("ls")
@output_option
@node_options
def list_(target: Target, output: str) -> None:
    """List the streams that you may describe."""
    with target.connect() as node:
        write_rows([shown(stream) for stream in node.streams.list()], output, COLUMNS)


@streams.command("show")
@click.argument("name")
@output_option
@node_options
def show(name: str, target: Target, output: str) -> None:
    """Show the stream NAME with its sources and its subscriptions."""
    with target.connect() as node:
        write_one(shown(node.streams.show(name)), output)


def quantity(parse: str) -> Callable[[click.Context, click.Parameter, str | None], int | None]:
    """A callback that reads an option's text with one of the parsers of `veredus.node.quantities`."""

    def convert(_context: click.Context, _parameter: click.Parameter, text: str | None) -> int | None:
        from veredus.node import quantities

        try:
            return None if text is None else int(getattr(quantities, parse)(text))
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    return convert


def configured(command: F) -> F:
    """Give a command the options that say how a stream is kept."""
    for name, parse, metavar, means in reversed(_CONFIG):
        command = click.option(name, callback=quantity(parse), metavar=metavar, help=means)(command)
    return command


@streams.command("create")
@click.argument("name")
@configured
@output_option
@node_options
def create(name: str, target: Target, output: str, **options: int | None) -> None:
    """Create the stream NAME. If it exists with the same configuration, nothing changes."""
    with target.connect() as node:
        write_one(shown(node.streams.create(name, **_config_of(options))), output)


@streams.command("alter")
@click.argument("name")
@configured
@output_option
@node_options
def alter(name: str, target: Target, output: str, **options: int | None) -> None:
    """Change the retention and limits of the stream NAME. Other options keep their values; 0 removes a limit."""
    config = _config_of(options)
    if not config:
        raise click.UsageError("name at least one option to change: --retention-age, --retention-size, …")
    with target.connect() as node:
        write_one(shown(node.streams.alter(name, **config)), output)


def _config_of(options: dict[str, int | None]) -> dict[str, Any]:
    """The configuration that options name, as the node takes it."""
    given: dict[str, Any] = {field: value for field, value in options.items() if value is not None}
    if "retention_age" in given:
        given["retention_age_s"] = given.pop("retention_age") / 1e9
    return given


@streams.command("rm", short_help="Remove the stream NAME with everything in it.")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@node_options
def remove(name: str, yes: bool, target: Target) -> None:
    """Remove the stream NAME with all its publications, sources and subscriptions."""
    with target.connect() as node:
        count = counted(int(node.streams.show(name)["head"]), "publication")
        confirm(f"remove stream {name} and its {count}?", yes)
        node.streams.delete(name)
    note(f"stream {name} was removed")


@streams.command("trim")
@click.argument("name")
@click.option("--before", type=click.IntRange(1), help="Delete all publications below this sequence.")
@click.option("--keep", type=click.IntRange(0), help="Keep this many of the newest publications.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@output_option
@node_options
def trim(name: str, before: int | None, keep: int | None, yes: bool, target: Target, output: str) -> None:
    """Delete the oldest publications of the stream NAME, settled or not. Subscriptions that lack them get a gap."""
    if (before is None) == (keep is None):
        raise click.UsageError("use either --before SEQUENCE or --keep COUNT")
    with target.connect() as node:
        described = node.streams.show(name)
        floor, head = int(described["floor"]), int(described["head"])
        if before is None:
            before = max(1, head - int(keep or 0) + 1)
        if before > head + 1:
            said = f"stream {name} ends at sequence {head}: {head + 1} at most, which deletes all of it"
            raise click.BadParameter(said, param_hint="--before")
        count = max(0, before - floor)
        if count:
            confirm(f"delete {count} of the {counted(head + 1 - floor, 'publication')} of stream {name}?", yes)
        trimmed = node.streams.trim(name, before)
        write_one(shown(trimmed), output)
    count = int(trimmed["floor"]) - floor
    note(f"{counted(count, 'publication')} of stream {name} {were(count)} deleted")


def confirm(question: str, is_sure: bool) -> None:
    """Ask, unless `is_sure`; without a terminal nobody can be asked, and that is a usage error."""
    if is_sure:
        return
    if not sys.stdin.isatty():
        raise click.UsageError("this cannot be undone: confirm with --yes")
    click.confirm(question, abort=True, err=True)


def shown(description: Mapping[str, Any]) -> dict[str, object]:
    """A stream's description as people and programs want it."""
    row = dict(description)
    append_time_us, created_us = row.pop("append_time_us", 0), row.pop("created_us", 0)
    if isinstance(row.get("incarnation"), bytes):
        row["incarnation"] = row["incarnation"].hex()
    row["last"] = time_text(append_time_us) if append_time_us else None
    row["created"] = time_text(created_us) if created_us else None
    return row
