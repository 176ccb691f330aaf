"""Why a node refused, or ended, something: as callers see it, and whether to ask again."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress

from veredus.kernel.errors import UNSTORED, Fenced, Refused, Unavailable, VeredusError
from veredus.protocols.zeps import messages as m

PROVED_NO_MORE = frozenset(("revoked", "unauthenticated"))
"""Codes that end a connection for good, whenever they come: the same proof proves nothing at the next one either."""
_UNREAD = (SystemExit, asyncio.CancelledError, GeneratorExit)
"""They end a program, a task or a generator without a traceback."""
TRANSIENT = UNSTORED | frozenset(
    (
        "link-lost",
        "draining",
        "leaving",
        "silent",
        "too-slow",
        "greeting-timeout",
        "too-busy",
        "too-many-connections",
        "too-many-ranges",
        "attached-again",
    )
)
"""Codes after which it is right to ask again by oneself."""


def error_of(cause: m.Refusal | m.Fencing) -> VeredusError:
    """What callers see of a refusal or a fencing."""
    if isinstance(cause, m.Fencing):
        return Fenced("fenced", cause.message, epoch=cause.epoch)
    kind = Unavailable if cause.code in TRANSIENT else Refused
    return kind(cause.code, cause.message, **{str(name): value for name, value in cause.details.items()})


def tell_with(error: BaseException, failure: VeredusError) -> None:
    """Let an exception that ends a `with` block say as well what could not be done at its end; where nobody reads what
    such an exception says, as that of `sys.exit`, it is said on stderr.
    """
    said = f"veredus, at the end of the `with` block: {failure.message} [{failure.code}]"
    error.add_note(said)
    if isinstance(error, _UNREAD):
        say(said)


def say(said: str) -> None:
    """Say it on stderr, where a program has one that can be written: there is nobody else to be told, and what cannot
    be said breaks nothing.
    """
    # It may be None, as with pythonw, or closed, or a pipe without a reader.
    with suppress(AttributeError, ValueError, OSError):
        sys.stderr.write(f"{said}\n")
