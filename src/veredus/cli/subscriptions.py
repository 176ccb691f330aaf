"""`veredus subscription`: where durable subscriptions stand, and what they are waiting for."""

from __future__ import annotations

import click

from veredus.cli.link import Target, node_options
from veredus.cli.streams import confirm
from veredus.cli.terminal import note, output_option, write_one, write_rows

COLUMNS = ("stream", "subscriber", "name", "floor", "lag", "unsettled", "flow", "credit", "waits_for")


@click.group()
def subscriptions() -> None:
    """List, show and remove durable subscriptions."""


@subscriptions.command("ls")
@click.argument("stream", required=False)
@output_option
@node_options
def list_(stream: str | None, target: Target, output: str) -> None:
    """List the durable subscriptions of STREAM, or of all streams that you may describe."""
    with target.connect() as node:
        write_rows(node.subscriptions.list(stream), output, COLUMNS)


@subscriptions.command("show")
@click.argument("stream")
@click.argument("subscriber")
@click.argument("name")
@output_option
@node_options
def show(stream: str, subscriber: str, name: str, target: Target, output: str) -> None:
    """Show where a subscription stands: its cursor, flow, credit, lag, and what it is waiting for."""
    with target.connect() as node:
        write_one(node.subscriptions.show(stream, subscriber, name), output)


@subscriptions.command("rm")
@click.argument("stream")
@click.argument("subscriber")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@node_options
def remove(stream: str, subscriber: str, name: str, yes: bool, target: Target) -> None:
    """Remove a subscription: its cursor is gone, and its owner is told."""
    confirm(f"remove subscription {subscriber}/{name} of {stream}, and forget what it has settled?", yes)
    with target.connect() as node:
        node.subscriptions.remove(stream, subscriber, name)
    note(f"subscription {subscriber}/{name} of {stream} is removed")
