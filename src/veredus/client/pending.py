"""What a program leaves behind: the connections that nobody has closed, and what was pending on them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from veredus.kernel.errors import VeredusError

if TYPE_CHECKING:
    from .connection import Connection
    from .loops import Begun

FINISH_TIMEOUT_S = 5.0
"""So long what is pending may take when a connection is closed, or its program ends."""
FINISH_STEP_S = 0.01
UNTOLD_S = 6.0
"""A closing sends what is pending for 5 s."""

connections: set[Connection] = set()
"""All that are open in this process, also those that the program has forgotten: something may be pending."""
untold: dict[Begun[None], None] = {}
"""Closings that a signal's handler has torn their callers out of: nobody has heard yet what came of them."""


def say_pending(pending: list[str], why: str = "the program ends") -> None:
    """Tell whoever runs the program what it lost by ending."""
    for words in pending:
        said = f"{why}, and the node has not confirmed {words}. Close what you open, e.g. by `with`."
        sys.stderr.write(f"veredus: {said}\n")


def say_untold() -> None:
    """Say what came of each closing that nobody was told of."""
    for closing in list(untold):
        del untold[closing]
        closing.wait(UNTOLD_S)
        if closing.is_over and closing.has_failed:
            try:
                closing.result()
            except VeredusError as error:
                sys.stderr.write(f"veredus: {error.message}\n")


def let_go_of_lost() -> None:
    """Say what was pending in loops that were closed, and let go of their connections."""
    for connection in list(connections):
        if connection.loop.is_closed():
            connections.discard(connection)
            say_pending(connection.left(), "an event loop was closed")
