"""What the connections by TLS of one listener share: memory to read into, and turns in which their records are opened.

In a turn of the loop `TURN_COUNT` records are opened, `GO_COUNT` of each connection before the next has its go. Whoever
comes then waits in the line, and has read little. A record is opened for 1 µs where it brings little, and for 12 µs
where it brings new keys and asks for as many.
"""

from __future__ import annotations

import asyncio
from typing import Final

from .checks import Checks
from .waiting_line import WaitingLine

READ_SIZE_MAX: Final = 32 << 10
READ_SIZE_MIN: Final = 2 << 10
"""What is read at a time until something was opened, while what comes brings nothing, and once the turn is spent."""
TURN_COUNT: Final = 128
"""So many records are opened in a turn of the loop, for all: 1.5 ms where each brings new keys and asks for as many."""
GO_COUNT: Final = 16
"""And so many of one connection at a time: what another one waits for each connection that is before it."""


class Shared:
    """Owns what all connections of one listener share."""

    def __init__(self, loop: asyncio.AbstractEventLoop, steps: Checks) -> None:
        """Used on `loop` only; nobody waits. `steps` does the steps of handshakes."""
        self.steps = steps
        self.memory = memoryview(bytearray(READ_SIZE_MAX))
        self.line = WaitingLine(loop, TURN_COUNT)
        """Where records wait that are not opened in this turn."""
