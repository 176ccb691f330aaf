"""`veredus stage`: the rows that sinks have written and not committed."""

from __future__ import annotations

import click

from veredus.cli.link import Target, node_options
from veredus.cli.streams import confirm
from veredus.cli.terminal import CommandGroup, note, output_option, write_rows

COLUMNS = ("stage", "sink", "epoch", "stream", "count", "is_attached")


@click.group(cls=CommandGroup)
def stages() -> None:
    """List and drop the open stages of sinks."""


@stages.command("ls", short_help="List the open stages.")
@output_option
@node_options
def list_(target: Target, output: str) -> None:
    """List the open stages: rows of sinks that are not yet committed, and not visible."""
    with target.connect() as node:
        write_rows(node.sinks.stages(), output, COLUMNS)


@stages.command("drop")
@click.argument("sink")
@click.option("--yes", is_flag=True, help="Do not ask.")
@node_options
def drop(sink: str, yes: bool, target: Target) -> None:
    """Drop all open stages of SINK. Committed rows stay. The node refuses programs that still write these stages."""
    confirm(f"drop what sink {sink} has written and not committed?", yes)
    with target.connect() as node:
        dropped = node.sinks.drop_stages(sink)
    note(f"stages of sink {sink} dropped: {len(dropped)}" if dropped else f"sink {sink} has no open stages")
