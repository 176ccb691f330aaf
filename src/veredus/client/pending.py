"""What a program leaves behind: the connections that nobody has closed, and what was pending on them."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from types import ModuleType
from typing import TYPE_CHECKING, TypeVar

from veredus.kernel.errors import Unavailable
from veredus.kernel.last import is_over

if TYPE_CHECKING:
    from .connection import Connection

FINISH_TIMEOUT_S = 5.0
"""So long what is pending may take when a connection is closed; from the end of the program on, all that is in vain."""
FINISH_STEP_S, FINISH_STEP_S_MAX = 0.0005, 0.01
"""How long is waited before it is looked again whether there is something left: twice as long each time."""
T = TypeVar("T")

connections: set[Connection] = set()
"""All of this process that are open, also those that the program has forgotten, for something may be pending; and those
that have lost something that nobody was told of.
"""


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


def limited(timeout_s: float | None) -> float | None:
    """How much of a time limit there is; behind the end of the program, no more than there is patience."""
    return min(inf if timeout_s is None else timeout_s, patience.left_s) if is_over() else timeout_s


@contextmanager
def in_time(timeout_s: float | None) -> Iterator[float | None]:
    """Gives what there is of a time limit for waiting for the node; `Unavailable` says that it was in vain."""
    began_s = time.monotonic()
    try:
        yield limited(timeout_s)
    except Unavailable:
        patience.spend(began_s)
        raise


async def finished(finish: Callable[[], T]) -> T:
    """What `finish` says is left, which sends what there is: nothing, or what there is as patience ends."""
    began_s, step_s = time.monotonic(), FINISH_STEP_S
    end_s = began_s + patience.left_s
    while left := finish():
        if time.monotonic() >= end_s:
            patience.spend(began_s)
            break
        await asyncio.sleep(step_s)
        step_s = min(2 * step_s, FINISH_STEP_S_MAX)
    return left


def say_lost() -> None:
    """Say what was lost as the program ends, and was not said yet."""
    for connection in list(connections):
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
