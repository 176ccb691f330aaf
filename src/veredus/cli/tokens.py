"""`veredus token`: the file of salted hashes by which a node knows its peers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from veredus.cli.terminal import TABLE, note, output_option, write_one, write_rows

if TYPE_CHECKING:
    from veredus.runtime.security import TokenLine

_file_option = click.option(
    "--file",
    type=click.Path(dir_okay=False, path_type=Path),
    default="veredus-tokens",
    envvar="VEREDUS_SECURITY_TOKENS",
    show_default=True,
    help="The file of tokens; security.tokens in the settings names it to the node.",
)


@click.group()
def tokens() -> None:
    """Make, list and remove the tokens by which peers prove who they are."""


@tokens.command("add")
@click.argument("principal")
@click.option("--expires", metavar="DURATION", help="How long it may be used: 90d, 12h.  [default: for ever]")
@_file_option
@output_option
def add(principal: str, expires: str | None, file: Path, output: str) -> None:
    """Make a token for PRINCIPAL and print it: this once, for only its hash is kept."""
    from datetime import timedelta

    from veredus.cli.link import seconds_of
    from veredus.runtime.security import add_token

    try:
        life = None if expires is None else timedelta(seconds=seconds_of(expires, "--expires"))
        token, line = add_token(file, principal, life)
    except OverflowError:
        raise click.BadParameter(f"{expires} is longer than the calendar", param_hint="--expires") from None
    if output == TABLE:
        click.echo(token)
    else:
        write_one({"token": token, **_shown(line)}, output)
    note(f"token {line.id} of {principal}: it is not kept, write it down; `veredus token rm {line.id}` revokes it")


@tokens.command("ls")
@_file_option
@output_option
def list_(file: Path, output: str) -> None:
    """List the tokens: their ids, principals, ages, and when they expire."""
    from veredus.runtime.security import read_tokens

    write_rows([_shown(line) for line in read_tokens(file)], output, ("id", "principal", "created", "expires"))


@tokens.command("rm")
@click.argument("id")
@_file_option
def remove(id: str, file: Path) -> None:  # noqa: A002 - click names the argument as people see it
    """Remove the token ID: no further connection is opened with it."""
    from veredus.runtime.security import remove_token

    note(f"token {id} of {remove_token(file, id).principal} is revoked")


def _shown(line: TokenLine) -> dict[str, object]:
    return {"id": line.id, "principal": line.principal, "created": line.created, "expires": line.expires}
