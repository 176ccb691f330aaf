"""How a command finds its node and authenticates: options that every such command has."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from veredus.cli.terminal import Naming, note

if TYPE_CHECKING:
    from veredus.client.blocking import Node

F = TypeVar("F", bound=Callable[..., Any])

SILENCE_S = 2.0
"""A command that has waited so long for a node says so."""
TIMEOUT_S = 10.0
REFUSED_S = 5.0
"""As long as a command waits where no process listens: a node that is started in the same script may come up."""
DEFAULT_ADDRESS = "veredus://127.0.0.1:7071"
ADDRESSES_HELP = (
    f"The address of the node. With several, the command uses one that answers.  [default: {DEFAULT_ADDRESS}]"
)


class Target(NamedTuple):
    """Where the node is, and who asks."""

    addresses: tuple[str, ...]
    token: str
    authorities: str
    certificate: str
    key: str
    timeout_s: float = TIMEOUT_S
    refused_s: float = REFUSED_S

    @contextmanager
    def connect(self, answers_s: float = inf) -> Iterator[Node]:
        """A connection, closed at the end of its block. Raises `Unavailable`, `Refused` or `Misuse`.

        `answers_s`: how long to wait for each answer, if that is less than for the connection.
        """
        where = ", ".join(self.addresses)
        absence = _Absence(where)
        try:
            with self._connected(where) as node:
                connection = node._node.connection
                connection.tell_link = absence.tell
                connection.settings.timeout_s = min(self.timeout_s, answers_s)
                yield node
        finally:
            absence.forget()

    def _connected(self, where: str) -> Node:
        import veredus

        connect, tls = veredus.connect, self._tls()
        waiting = threading.Timer(SILENCE_S, note, (f"no answer from {where} yet: still trying",))
        waiting.daemon = True
        waiting.start()
        try:
            return connect(
                *self.addresses,
                token=self.token or None,
                tls=tls,
                timeout_s=self.timeout_s,
                refused_s=self.refused_s,
                client=f"veredus-cli-{os.getpid()}",
            )
        finally:
            waiting.cancel()

    def _tls(self) -> Any:
        if not (self.authorities or self.certificate):
            return None
        from veredus.runtime.security import client_context

        return client_context(self.authorities, self.certificate, self.key)


class _Absence:
    """Says that a node has gone, if it stays away, and that it is back; once each time.

    It is told in the loop of the connection, and says it in a thread: whoever reads what it says may be slow.
    """

    def __init__(self, where: str) -> None:
        """The node is there."""
        self._where = where
        self._lock = threading.Lock()
        self._waiting: threading.Timer | None = None
        self._is_said = self._is_over = False

    def tell(self, is_there: bool) -> None:
        """The node is there, or not any more."""
        with self._lock:
            if self._is_over:
                return
            if not is_there and self._waiting is None and not self._is_said:
                self._waiting = self._begin(SILENCE_S, self._say_gone)
            elif is_there:
                self._stop_waiting()
                if self._is_said:
                    self._is_said = False
                    self._begin(0.0, lambda: note(f"connected to {self._where} again"))

    def forget(self) -> None:
        """Nobody uses the connection any more, nor waits for its end."""
        with self._lock:
            self._is_over = True
            self._stop_waiting()

    def _begin(self, delay_s: float, say: Callable[[], None]) -> threading.Timer:
        timer = threading.Timer(delay_s, say)
        timer.daemon = True
        timer.start()
        return timer

    def _say_gone(self) -> None:
        with self._lock:
            if self._waiting is not threading.current_thread():
                return
            self._waiting, self._is_said = None, True
        note(f"the connection to {self._where} is lost: trying again")

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None


def seconds_of(text: str, option: str = "--timeout") -> float:
    """The seconds of a duration as people write it. Raises `click.BadParameter`."""
    from veredus.node.quantities import parse_duration

    try:
        return parse_duration(text) / 1e9
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=option) from None


def _token_in(file: Path) -> str:
    """The token in a file. Raises `click.BadParameter` for what is no token, such as the node's file of hashes."""
    from veredus.runtime.regular_files import FILE_SIZE_MAX, read_own

    try:
        words = read_own(file, FILE_SIZE_MAX)[1].decode(errors="replace").split()
    except OSError as error:
        raise click.BadParameter(f"{file} cannot be read: {error.strerror}", param_hint="--token-file") from None
    if len(words) != 1:
        raise click.BadParameter(f"{file} must hold one token and nothing else: veredus_…", param_hint="--token-file")
    return words[0]


def node_options(command: F, addresses_help: str = ADDRESSES_HELP) -> F:
    """Give a command the options that lead to a node, as its argument `target`."""

    @click.option(
        "-a",
        "--address",
        "addresses",
        cls=Naming,
        metavar="ADDRESS",
        multiple=True,
        envvar="VEREDUS_ADDRESS",
        help=addresses_help,
    )
    @click.option(
        "--token-file",
        cls=Naming,
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="A file with the token. The variable VEREDUS_TOKEN holds the token itself.",
    )
    @click.option(
        "--authorities",
        cls=Naming,
        metavar="FILE",
        envvar="VEREDUS_AUTHORITIES",
        default="",
        help="Certificate authorities to trust, PEM.",
    )
    @click.option("--certificate", cls=Naming, metavar="FILE", default="", help="The client's certificate, PEM.")
    @click.option(
        "--certificate-key", cls=Naming, metavar="FILE", default="", help="The private key of that certificate, PEM."
    )
    @click.option(
        "--timeout",
        metavar="DURATION",
        help="How long to wait for a node that is not there yet, and for each answer."
        f"  [default: {REFUSED_S:g}s, and {TIMEOUT_S:g}s]",
    )
    @wraps(command)
    def with_target(
        *arguments: Any,
        addresses: tuple[str, ...],
        token_file: Path | None,
        authorities: str,
        certificate: str,
        certificate_key: str,
        timeout: str | None,
        **options: Any,
    ) -> Any:
        if certificate_key and not certificate:
            raise click.UsageError("--certificate-key goes with --certificate: name the client's certificate, too")
        token = os.environ.get("VEREDUS_TOKEN", "").strip() if token_file is None else _token_in(token_file)
        target = Target(addresses or (DEFAULT_ADDRESS,), token, authorities, certificate, certificate_key)
        if timeout is not None:
            timeout_s = seconds_of(timeout)
            target = target._replace(timeout_s=timeout_s, refused_s=timeout_s)
        return command(*arguments, target=target, **options)

    return with_target  # type: ignore[return-value]
