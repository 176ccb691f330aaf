"""The end of a plain connection by this side: the peer hears why, also where it goes on writing.

    close ──► what waits is written ──► our end of it (FIN) ──► what comes is thrown away ──► the peer ends it, or
                                                                                     it was long enough, or too much

A system that closes a socket with bytes in it that nobody has read resets the connection, and answers what comes later
with a reset, too: whoever is still writing finds that its write fails, and many libraries do not read any more then.
So the last word would reach those alone who listen as they speak. What is thrown away costs the loop, and its peers
nothing: it is read in turns of a line. Where there is TLS, that does the same by itself.
Source: RFC 9293, 3.6 and RFC 1122, 4.2.2.13.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from .taking import Taking
from .waiting_line import WaitingLine

LINGER_S = 5.0
"""How long a link that is closed waits for a peer that reads nothing of what is still to be written to it."""
REST_S = 1.0
"""How long it waits, when all was written, for a peer that does not end it, and takes nothing any more."""
THROWN_SIZE_MAX = 16 << 20
"""So much is thrown away: more than two systems hold of one connection."""
THROWS_MAX = 4
"""So much of it is read in a turn of the loop, a read of each connection: some 20 µs each."""
_LOOK_S = 0.25
_MEMORY = memoryview(bytearray(64 << 10))
"""What is thrown away is read into it, whoever sent it."""


class Parting(asyncio.BufferedProtocol):
    """Owns a connection that is over for whoever had it, until it is lost."""

    def __init__(
        self, transport: asyncio.Transport, taking: Taking, on_lost: Callable[[None], object], line: WaitingLine
    ) -> None:
        """End this connection, which is not closing yet; `on_lost` hears when it is gone, by whomever.

        All that end wait in `line`, of `THROWS_MAX`, until they are read from.
        """
        self._transport = transport
        self._line = line
        self._taking = taking
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._thrown_size = 0
        self._taken_size = taking.taken_size
        self._moved_s = self._loop.time()
        """When the peer was seen to take something."""
        self._timer = self._loop.call_later(_LOOK_S, self._look)
        transport.set_protocol(self)
        transport.write_eof()
        transport.resume_reading()

    def _look(self) -> None:
        now_s, taken_size = self._loop.time(), self._taking.taken_size
        if taken_size > self._taken_size:
            self._taken_size, self._moved_s = taken_size, now_s
        if now_s - self._moved_s >= (LINGER_S if self._transport.get_write_buffer_size() else REST_S):
            self._transport.abort()
        else:
            self._timer = self._loop.call_later(_LOOK_S, self._look)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Memory that nobody reads."""
        return _MEMORY

    def buffer_updated(self, nbytes: int) -> None:
        """So much came that nobody wants."""
        self._thrown_size += nbytes
        if self._thrown_size > THROWN_SIZE_MAX:
            self._transport.abort()
        else:
            self._transport.pause_reading()
            self._line.wait(self)

    def take_turn(self) -> None:
        """Read once more."""
        if not self._transport.is_closing():
            self._line.spend(1)
            self._transport.resume_reading()

    def eof_received(self) -> bool:
        """The peer has ended it, too."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone; how is nothing to those who had closed it."""
        self._timer.cancel()
        self._on_lost(None)
