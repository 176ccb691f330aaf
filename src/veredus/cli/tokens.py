"""`veredus token`: the file of salted hashes with which a node authenticates its peers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from veredus.cli.terminal import TABLE, CommandGroup, Naming, note, output_option, write_one, write_rows

if TYPE_CHECKING:
    from datetime import timedelta

    from veredus.runtime.security import TokenLine

_file_option = click.option(
    "--file",
    cls=Naming,
    type=click.Path(dir_okay=False, path_type=Path),
    default="veredus-tokens",
    envvar="VEREDUS_SECURITY_TOKENS",
    show_default=True,
    help="The token file. In the node's settings it is security.tokens.",
)


def _life_of(expires: str | None) -> timedelta | None:
    """How long what is made is valid, None for without end. Raises `click.BadParameter`, and `OverflowError`."""
    from datetime import timedelta

    from veredus.cli.link import seconds_of

    if expires is None:
        return None
    life_s = seconds_of(expires, "--expires")
    if not life_s:
        said = f"with {expires} it would never be valid: leave --expires out for one without end"
        raise click.BadParameter(said, param_hint="--expires")
    return timedelta(seconds=life_s)


@click.group(cls=CommandGroup)
def tokens() -> None:
    """Make, list and remove access tokens, which authenticate peers."""


@tokens.command("add")
@click.argument("principal")
@click.option("--expires", metavar="DURATION", help="How long the token is valid: 90d, 12h.  [default: without end]")
@_file_option
@output_option
def add(principal: str, expires: str | None, file: Path, output: str) -> None:
    """Make a token for PRINCIPAL and print it. It is printed only once: the file holds only its hash."""
    from veredus.runtime.security import add_token

    try:
        token, line = add_token(file, principal, _life_of(expires))
    except OverflowError:
        raise click.BadParameter(
            f"{expires} is too long: it ends after the year 9999", param_hint="--expires"
        ) from None
    if output == TABLE:
        click.echo(token)
    else:
        write_one({"token": token, **_shown(line)}, output)
    revoke = f"`veredus token rm {line.id} --file {file}` revokes it"
    note(f"token {line.id} of {principal}: store it now, it is not shown again; {revoke}")


@tokens.command("add-key", short_help="Let a client with a CURVE key authenticate.")
@click.argument("principal")
@click.argument("public", required=False)
@click.option("--expires", metavar="DURATION", help="How long the key is valid: 90d, 12h.  [default: without end]")
@_file_option
@output_option
def add_key(principal: str, public: str | None, expires: str | None, file: Path, output: str) -> None:
    """Let a ZeroMQ client with a CURVE key authenticate as PRINCIPAL.

    PUBLIC is its public key, 40 characters of Z85. Without it, the command makes and prints a
    pair of keys; it shows the secret key only once.
    """
    import os

    from veredus.protocols.zmtp.curve import KeyPair
    from veredus.protocols.zmtp.z85 import KEY_SIZE, decode_z85, encode_z85
    from veredus.runtime.security import add_key as keep_key

    made = None if public else KeyPair(os.urandom(KEY_SIZE))
    try:
        key = decode_z85(public) if made is None and public else made.public if made else b""
        life = _life_of(expires)
        if len(key) != KEY_SIZE:
            raise ValueError("a public key has 40 characters of Z85")
    except OverflowError:
        raise click.BadParameter(f"{expires} is longer than the calendar", param_hint="--expires") from None
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="PUBLIC") from None
    line = keep_key(file, principal, key, life)
    row = _shown(line) if made is None else {**_shown(line), "secret": encode_z85(made.secret)}
    if output == TABLE:
        for name in ("key", "secret"):
            if name in row:
                click.echo(f"{'public' if name == 'key' else name} {row[name]}")
    else:
        write_one(row, output)
    note(f"key {line.id} of {principal}; `veredus token rm {line.id} --file {file}` revokes it")


@tokens.command("node-key", short_help="Make the key of a node's ZeroMQ listener.")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
def node_key(file: Path) -> None:
    """Make the secret key of a node's ZeroMQ listener, store it in FILE, and print the public key for its clients."""
    from veredus.protocols.zmtp.z85 import encode_z85
    from veredus.runtime.curve_keys import make_server_key

    click.echo(encode_z85(make_server_key(file).public))
    note(f"set security.zeromq_key in the node's settings to {file}; clients need the public key above")


@tokens.command("ls", short_help="List the tokens.")
@_file_option
@output_option
def list_(file: Path, output: str) -> None:
    """List the tokens: their ids, principals, ages, and when they expire."""
    from veredus.runtime.files import check_tokens
    from veredus.runtime.security import read_tokens

    check_tokens(str(file))
    write_rows([_shown(line) for line in read_tokens(file)], output, ("id", "principal", "created", "expires"))


@tokens.command("rm")
@click.argument("id")
@_file_option
def remove(id: str, file: Path) -> None:  # noqa: A002 - click names the argument as people see it
    """Remove the token ID: it opens no more connections."""
    from veredus.runtime.files import check_tokens
    from veredus.runtime.security import remove_token

    check_tokens(str(file))

    note(f"token {id} of {remove_token(file, id).principal} is revoked")


def _shown(line: TokenLine) -> dict[str, object]:
    from veredus.protocols.zmtp.z85 import encode_z85

    shown: dict[str, object] = {
        "id": line.id,
        "principal": line.principal,
        "created": line.created,
        "expires": line.expires,
    }
    return {**shown, "key": encode_z85(line.key)} if line.key else shown
