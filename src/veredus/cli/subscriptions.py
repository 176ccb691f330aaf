"""`veredus subscription`: the position of durable subscriptions, and what each waits for."""

from __future__ import annotations

import click

from veredus.cli.link import Target, node_options
from veredus.cli.streams import confirm
from veredus.cli.terminal import CommandGroup, note, output_option, time_text, write_one, write_rows

COLUMNS = ("stream", "subscriber", "name", "floor", "lag", "unsettled", "flow", "credit", "waits_for")


@click.group(cls=CommandGroup)
def subscriptions() -> None:
    """List, show and remove durable subscriptions, and move dead letters back."""


@subscriptions.command("ls", short_help="List the durable subscriptions.")
@click.argument("stream", required=False)
@output_option
@node_options
def list_(stream: str | None, target: Target, output: str) -> None:
    """List the durable subscriptions of STREAM, or of all streams that you may describe."""
    with target.connect() as node:
        write_rows(node.subscriptions.list(stream), output, COLUMNS)


@subscriptions.command("show", short_help="Show where a subscription stands.")
@click.argument("stream")
@click.argument("subscriber")
@click.argument("name", default="main")
@output_option
@node_options
def show(stream: str, subscriber: str, name: str, target: Target, output: str) -> None:
    """Show the position of a subscription: its cursor, flow, credit, lag, and what it waits for.

    NAME is needed if the subscriber has several subscriptions. The default is main.
    """
    with target.connect() as node:
        shown = node.subscriptions.show(stream, subscriber, name)
    moments = {"opened_us": "opened", "renewed_us": "renewed"}
    row = {moments.get(key, key): _time(value) if key in moments else value for key, value in shown.items()}
    write_one(row, output)


def _time(at_us: int) -> str | None:
    return time_text(at_us) if at_us else None


@subscriptions.command("rm")
@click.argument("stream")
@click.argument("subscriber")
@click.argument("name", default="main")
@click.option("--yes", is_flag=True, help="Do not ask.")
@node_options
def remove(stream: str, subscriber: str, name: str, yes: bool, target: Target) -> None:
    """Remove a subscription and its cursor. The node informs its subscriber.

    NAME is needed if the subscriber has several subscriptions. The default is main.
    """
    confirm(f"remove subscription {subscriber}/{name} of {stream}, and forget what it has settled?", yes)
    with target.connect() as node:
        node.subscriptions.remove(stream, subscriber, name)
    note(f"subscription {subscriber}/{name} of {stream} was removed")


@subscriptions.command("redrive", short_help="Move dead letters back to their streams.")
@click.argument("letters")
@output_option
@node_options
def redrive(letters: str, target: Target, output: str) -> None:
    """Move the dead letters in the stream LETTERS back to the streams that they came from, each exactly once.

    The command publishes them again, so every subscription of these streams gets them. The moved letters stay in
    LETTERS. Run the command again to move only new letters.
    """
    with target.connect() as node:
        moved = node.redrive(letters)
    write_rows([{"stream": stream, "moved": count} for stream, count in moved.items()], output, ("stream", "moved"))
    if not moved:
        note(f"stream {letters} has no dead letters")
