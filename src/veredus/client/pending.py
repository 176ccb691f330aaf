"""What a program leaves behind: the connections that nobody has closed, and what was pending on them."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from types import ModuleType
from typing import TYPE_CHECKING

from veredus.kernel.last import is_over

if TYPE_CHECKING:
    from .connection import Connection
    from .loops import Begun

FINISH_TIMEOUT_S = 5.0
"""So long what is pending may take when a connection is closed; from the end of the program on, all that is in vain."""
FINISH_STEP_S = 0.01

connections: set[Connection] = set()
"""All that are open in this process, also those that the program has forgotten: something may be pending."""
untold: dict[Begun[None], Connection] = {}
"""What is being closed: whoever waits for it may be torn out of that by a signal's handler, and hear nothing."""


class Patience:
    """For how long the node is waited for."""

    def __init__(self) -> None:
        """Nobody has waited in vain yet."""
        self._spent_s = 0.0

    @property
    def left_s(self) -> float:
        """For how long whoever ends may wait."""
        return max(0.0, FINISH_TIMEOUT_S - self._spent_s)

    def spend(self, since_s: float) -> None:
        """Somebody has waited in vain since then, by the monotonic clock. Where the program ends that counts, and where
        it goes on it does not.
        """
        if is_over():
            self._spent_s += time.monotonic() - since_s


patience = Patience()


def say_pending(pending: Iterable[str], why: str) -> None:
    """Tell whoever runs the program what it lost by ending."""
    for words in pending:
        said = f"{why}, and the node has not confirmed {words}. Close what you open, e.g. by `with`."
        sys.stderr.write(f"veredus: {said}\n")


def say_lost(closed: Iterable[Connection] = ()) -> None:
    """Say what was lost as the program ends, and was not said yet; `closed` are some that are not open any more."""
    for connection in dict.fromkeys((*closed, *connections)):
        connection.say_lost("the program ends")


def let_go_of_lost() -> None:
    """Say what was pending in loops that were closed, and let go of their connections."""
    for connection in list(connections):
        if connection.loop.is_closed():
            connections.discard(connection)
            connection.say_lost("an event loop was closed")


class _LastWord(ModuleType):
    """Says what was lost in handlers of `atexit` behind which nothing of ours is called any more."""

    def __del__(self) -> None:
        say_lost()


# The interpreter lets go of modules behind all handlers, and of one that nobody else holds before it empties any.
sys.modules[f"{__name__}.last_word"] = _LastWord("last_word")
