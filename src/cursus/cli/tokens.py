"""`cursus token`: the file of salted hashes by which a node knows its peers."""

from __future__ import annotations

from pathlib import Path

import click

from cursus.cli.terminal import TABLE, note, output_option, write_one, write_rows

_file_option = click.option(
    "--file",
    type=click.Path(dir_okay=False, path_type=Path),
    default="cursus-tokens",
    envvar="CURSUS_SECURITY_TOKENS",
    show_default=True,
    help="The file of tokens; security.tokens in the settings names it to the node.",
)


@click.group()
def tokens() -> None:
    """Make, list and remove the tokens by which peers prove who they are."""


@tokens.command("add")
@click.argument("principal")
@_file_option
@output_option
def add(principal: str, file: Path, output: str) -> None:
    """Make a token for PRINCIPAL and print it: this once, for only its hash is kept."""
    from cursus.runtime.security import add_token

    token, line = add_token(file, principal)
    if output == TABLE:
        click.echo(token)
    else:
        write_one({"token": token, "id": line.id, "principal": principal, "created": line.created}, output)
    note(f"token {line.id} of {principal}: it is not kept, write it down; `cursus token rm {line.id}` revokes it")


@tokens.command("ls")
@_file_option
@output_option
def list_(file: Path, output: str) -> None:
    """List the tokens: their ids, principals and ages."""
    from cursus.runtime.security import read_tokens

    rows = [{"id": line.id, "principal": line.principal, "created": line.created} for line in read_tokens(file)]
    write_rows(rows, output, ("id", "principal", "created"))


@tokens.command("rm")
@click.argument("id")
@_file_option
def remove(id: str, file: Path) -> None:  # noqa: A002 - click names the argument as people see it
    """Remove the token ID: no further connection is opened with it."""
    from cursus.runtime.security import remove_token

    note(f"token {id} of {remove_token(file, id).principal} is revoked")
