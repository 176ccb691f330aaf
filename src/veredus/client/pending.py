"""What a program leaves behind: the connections that nobody has closed, and what was pending on them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .connection import Connection

connections: set[Connection] = set()
"""All that are open in this process, also those that the program has forgotten: something may be pending."""


def say_pending(pending: list[str], why: str = "the program ends") -> None:
    """Tell whoever runs the program what it lost by ending."""
    for words in pending:
        said = f"{why}, and the node has not confirmed {words}. Close what you open, e.g. by `with`."
        sys.stderr.write(f"veredus: {said}\n")


def let_go_of_lost() -> None:
    """Say what was pending in loops that were closed, and let go of their connections."""
    for connection in list(connections):
        if connection.loop.is_closed():
            connections.discard(connection)
            say_pending(connection.left(), "an event loop was closed")
