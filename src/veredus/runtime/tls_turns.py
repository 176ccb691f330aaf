"""What the connections by TLS of one listener share: memory to read into, and turns in which their records are opened.

    come in a turn ──► opened, `GO_COUNT` of each connection, until `TURN_COUNT` were ──► the line ──► the next turn

A record is opened for 1 µs where it brings little, and for 12 µs where it brings new keys and asks for as many.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from .checks import Checks

READ_SIZE_MAX: Final = 32 << 10
READ_SIZE_MIN: Final = 2 << 10
"""What is read at a time until something was opened, while what comes brings nothing, and once the turn is spent."""
TURN_COUNT: Final = 128
"""So many records are opened in a turn of the loop, for all: 1.5 ms where each brings new keys and asks for as many."""
GO_COUNT: Final = 16
"""And so many of one connection at a time: what another one waits for each connection that is before it."""


class HasTurns(Protocol):
    """A connection."""

    def take_turn(self) -> None:
        """It is first in the line: have a go."""
        ...


class Shared:
    """Owns what all connections of one listener share: memory to read into, and the turns in which records are opened.

    Invariants
        (1) In a turn of the loop, connections have a go at records until `TURN_COUNT` were opened. Whoever comes then
            waits behind the others, and has read little.
        (2) Those that wait go before those that come, in the order in which they came to wait.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, steps: Checks) -> None:
        """Used on `loop` only; nobody waits. `steps` does the steps of handshakes."""
        self.steps = steps
        self.memory = memoryview(bytearray(READ_SIZE_MAX))
        self._loop = loop
        self._line: dict[HasTurns, None] = {}
        self._count = 0
        """What was opened in this turn."""
        self._is_counting = False
        """Whether the next turn is asked for."""

    @property
    def is_spent(self) -> bool:
        """Whether nothing more is opened in this turn."""
        return self._count >= TURN_COUNT

    def spend(self, count: int) -> None:
        """So many records are opened, or what costs as much is done."""
        self._count += count
        self._count_turn()

    def wait(self, transport: HasTurns) -> None:
        """Have a connection wait in the line for its go."""
        self._line[transport] = None
        self._count_turn()

    def _count_turn(self) -> None:
        if not self._is_counting:
            self._is_counting = True
            self._loop.call_soon(self._begin_turn)

    def _begin_turn(self) -> None:
        self._count, self._is_counting = 0, False
        while self._line and not self.is_spent:
            first = next(iter(self._line))
            del self._line[first]
            first.take_turn()
