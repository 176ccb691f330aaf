"""How a command finds its node and says who it is: options that every such command has."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

if TYPE_CHECKING:
    from veredus.client.blocking import Node

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_ADDRESS = "veredus://127.0.0.1:7071"


class Target(NamedTuple):
    """Where the node is, and who asks."""

    addresses: tuple[str, ...]
    token: str
    authorities: str
    certificate: str
    key: str
    timeout_s: float

    def connect(self) -> AbstractContextManager[Node]:
        """A connection, closed at the end of its block. Raises `Unavailable`, `Refused` or `Misuse`."""
        import veredus

        return veredus.connect(
            *self.addresses,
            token=self.token or None,
            tls=self._tls(),
            timeout_s=self.timeout_s,
            client=f"veredus-cli-{os.getpid()}",
        )

    def _tls(self) -> Any:
        if not (self.authorities or self.certificate):
            return None
        from veredus.runtime.security import client_context

        return client_context(self.authorities, self.certificate, self.key)


def seconds_of(text: str, option: str = "--timeout") -> float:
    """The seconds of a duration as people write it. Raises `click.BadParameter`."""
    from veredus.node.quantities import parse_duration

    try:
        return parse_duration(text) / 1e9
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=option) from None


def node_options(command: F) -> F:
    """Give a command the options that lead to a node, as its argument `target`."""

    @click.option(
        "-a",
        "--address",
        "addresses",
        multiple=True,
        envvar="VEREDUS_ADDRESS",
        help=f"Where the node is; several may be given.  [default: {DEFAULT_ADDRESS}]",
    )
    @click.option(
        "--token-file",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="A file that holds the token; VEREDUS_TOKEN holds the token itself.",
    )
    @click.option("--authorities", envvar="VEREDUS_AUTHORITIES", default="", help="Authorities to believe, PEM.")
    @click.option("--certificate", default="", help="The client's certificate, PEM.")
    @click.option("--certificate-key", default="", help="Its private key, PEM.")
    @click.option("--timeout", default="10s", show_default=True, help="How long to wait for the node's answers.")
    @wraps(command)
    def with_target(
        *arguments: Any,
        addresses: tuple[str, ...],
        token_file: Path | None,
        authorities: str,
        certificate: str,
        certificate_key: str,
        timeout: str,
        **options: Any,
    ) -> Any:
        token = token_file.read_text(encoding="ascii").strip() if token_file else os.environ.get("VEREDUS_TOKEN", "")
        target = Target(
            addresses or (DEFAULT_ADDRESS,), token, authorities, certificate, certificate_key, seconds_of(timeout)
        )
        return command(*arguments, target=target, **options)

    return with_target  # type: ignore[return-value]
