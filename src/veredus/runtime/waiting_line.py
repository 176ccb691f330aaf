"""A line of connections for what costs the loop, and costs their peers nothing: so much of it is done in each turn.

come in a turn ──► done, until the turn is spent ──► the line ──► the next turn
"""

from __future__ import annotations

import asyncio
from typing import Protocol


class HasTurns(Protocol):
    """A connection."""

    def take_turn(self) -> None:
        """It is first in the line: have a go, and spend what that costs."""
        ...


class WaitingLine:
    """Owns who waits, and what was spent in this turn of the loop.

    Invariants
        (1) Those that wait have a go until the turn is spent, in the order in which they came to wait.
        (2) They go before those that come in that turn.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, spent_max: int) -> None:
        """Used on `loop` only; nobody waits. With `spent_max` a turn is spent."""
        self._loop = loop
        self._spent_max = spent_max
        self._waiting: dict[HasTurns, None] = {}
        self._spent = 0
        self._is_counting = False
        """Whether the next turn is asked for."""

    @property
    def is_spent(self) -> bool:
        """Whether nobody has a go any more in this turn."""
        return self._spent >= self._spent_max

    def spend(self, count: int) -> None:
        """So much is done in this turn."""
        self._spent += count
        self._count_turn()

    def wait(self, connection: HasTurns) -> None:
        """Have it wait behind the others for its go."""
        self._waiting[connection] = None
        self._count_turn()

    def _count_turn(self) -> None:
        if not self._is_counting:
            self._is_counting = True
            self._loop.call_soon(self._begin_turn)

    def _begin_turn(self) -> None:
        self._spent, self._is_counting = 0, False
        try:
            while self._waiting and not self.is_spent:
                first = next(iter(self._waiting))
                del self._waiting[first]
                first.take_turn()
        finally:
            if self._waiting:
                self._count_turn()
