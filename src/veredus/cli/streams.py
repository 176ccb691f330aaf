"""`veredus stream`: what streams a node has, and how they are kept."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import click

from veredus.cli.link import Target, node_options
from veredus.cli.terminal import note, output_option, time_text, write_one, write_rows

COLUMNS = ("name", "floor", "head", "size", "sources", "subscriptions", "last")


@click.group()
def streams() -> None:
    """List, show, create, trim and remove streams."""


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


@streams.command("create")
@click.argument("name")
@click.option("--retention-age", callback=quantity("parse_duration"), help="Publications older than this may go: 7d.")
@click.option("--retention-size", callback=quantity("parse_size"), help="The oldest go above this size: 10 GiB.")
@click.option("--retention-count", callback=quantity("parse_count"), help="The oldest go above this many.")
@click.option("--lag-size-max", callback=quantity("parse_size"), help="A cursor farther behind is released: 1 GiB.")
@click.option("--sources-max", callback=quantity("parse_count"), help="Sources that the stream knows at once.")
@output_option
@node_options
def create(name: str, target: Target, output: str, retention_age: int | None, **config: int | None) -> None:
    """Create the stream NAME; nothing happens if it is there and equally configured."""
    given: dict[str, Any] = {field: value for field, value in config.items() if value is not None}
    if retention_age is not None:
        given["retention_age_s"] = retention_age / 1e9
    with target.connect() as node:
        write_one(shown(node.streams.create(name, **given)), output)


@streams.command("rm")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@node_options
def remove(name: str, yes: bool, target: Target) -> None:
    """Remove the stream NAME with all it holds: publications, sources, subscriptions."""
    with target.connect() as node:
        confirm(f"remove stream {name} and its {node.streams.show(name)['head']} publications?", yes)
        node.streams.delete(name)
    note(f"stream {name} is removed")


@streams.command("trim")
@click.argument("name")
@click.option("--before", type=click.IntRange(1), help="Keep nothing below this sequence.")
@click.option("--keep", type=click.IntRange(0), help="Keep the newest so many.")
@output_option
@node_options
def trim(name: str, before: int | None, keep: int | None, target: Target, output: str) -> None:
    """Let go of the oldest publications of the stream NAME; cursors that stand there meet a gap."""
    if (before is None) == (keep is None):
        raise click.UsageError("say either --before SEQUENCE or --keep COUNT")
    with target.connect() as node:
        if before is None:
            head = node.streams.show(name)["head"]
            before = max(1, int(head) - int(keep or 0) + 1)
        write_one(shown(node.streams.trim(name, before)), output)


def confirm(question: str, is_sure: bool) -> None:
    """Ask, unless `is_sure`; without a terminal nobody can be asked, and that is a usage error."""
    if is_sure:
        return
    if not sys.stdin.isatty():
        raise click.UsageError("this cannot be undone: say --yes")
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
