"""The end of a plain connection by this side: the peer hears why, also where it goes on writing.

    close ──► what waits is written ──► our end of it (FIN) ──► what comes is thrown away ──► the peer ends it, or
                                                                                              it was long enough

A system that closes a socket with bytes in it that nobody has read resets the connection, and answers what comes later
with a reset, too: whoever is still writing finds that its write fails, and many libraries do not read any more then.
So the last word would reach those alone who listen as they speak. What is thrown away costs the loop, and its peers
nothing: it is read in turns of a line. For whoever had it, a connection is over once all was written, and its place is
free before. Where there is TLS, that does the same by itself.
Source: RFC 9293, 3.6 and RFC 1122, 4.2.2.13.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from .taking import Taking
from .waiting_line import WaitingLine

LOOK_S = 0.25
LINGER_LOOKS = 20
"""So many looks, which is 5 s, are waited for a peer that takes nothing of what is still to be written to it."""
REST_LOOKS = 4
"""And so many, 1 s, when all was written, for a peer that does not end it, and takes nothing any more."""
THROWS_MAX = 4
"""So much of it is read in a turn of the loop, a read of each connection: some 20 µs each."""
PARTINGS_MAX = 256
"""Whoever is ending has no place any more; so many may end at once, for a second as a rule."""
_MEMORY = memoryview(bytearray(64 << 10))
"""What is thrown away is read into it, whoever sent it."""


class Lingering:
    """Owns for how long a connection that ends is waited for.

    Looks are counted, and not time: while this process is stopped, no peer is slow.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        taking: Taking,
        on_written: Callable[[], object] = lambda: None,
        rest_looks: int = LINGER_LOOKS,
    ) -> None:
        """Close it when its peer takes nothing for too long; `on_written` hears when all was written, also again.

        `rest_looks`: how many looks are waited then.
        """
        self._transport = transport
        self._taking = taking
        self._on_written = on_written
        self._rest_looks = rest_looks
        self._taken_size = taking.taken_size
        self._idle_looks = -1
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.Handle = self._loop.call_soon(self._look)

    def cancel(self) -> None:
        """It is gone."""
        self._timer.cancel()

    def _look(self) -> None:
        is_written = not self._transport.get_write_buffer_size()
        taken_size = self._taking.taken_size
        self._idle_looks = 0 if taken_size > self._taken_size else self._idle_looks + 1
        self._taken_size = taken_size
        if self._idle_looks >= (self._rest_looks if is_written else LINGER_LOOKS):
            self._transport.abort()
        else:
            self._timer = self._loop.call_later(LOOK_S, self._look)
        if is_written:
            self._on_written()


class Partings:
    """Owns the connections of one owner that are ending, at most `PARTINGS_MAX` beside those that have a place."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Used on `loop` only; none ends."""
        self.line = WaitingLine(loop, THROWS_MAX)
        self._ending: dict[Parting, None] = {}

    def __len__(self) -> int:
        return len(self._ending)

    def begin(self, transport: asyncio.Transport, taking: Taking, on_lost: Callable[[None], object]) -> Parting:
        """End this connection, which is not closing yet; `on_lost` hears when all was written, or it is gone.

        Where too many are ending, the one that has been for the longest time is closed at once.
        """
        while len(self._ending) >= PARTINGS_MAX:
            first = next(iter(self._ending))
            self.forget(first)
            first.abandon()
        parting = Parting(transport, taking, on_lost, self)
        self._ending[parting] = None
        return parting

    def close(self) -> None:
        """Wait for nobody any more."""
        for parting in list(self._ending):
            parting.abandon()

    def forget(self, parting: Parting) -> None:
        """It has ended."""
        self._ending.pop(parting, None)


class Parting(asyncio.BufferedProtocol):
    """Owns a connection that is over for whoever had it, until it is lost."""

    def __init__(
        self, transport: asyncio.Transport, taking: Taking, on_lost: Callable[[None], object], partings: Partings
    ) -> None:
        """As `Partings.begin`."""
        self._transport = transport
        self._partings = partings
        self._on_lost: Callable[[None], object] | None = on_lost
        transport.set_protocol(self)
        with suppress(OSError):
            # Where the peer has reset it, to read from it says so.
            transport.write_eof()
        transport.resume_reading()
        self._lingering = Lingering(transport, taking, self._be_over, REST_LOOKS)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Memory that nobody reads."""
        return _MEMORY

    def buffer_updated(self, nbytes: int) -> None:
        """So much came that nobody wants."""
        self._transport.pause_reading()
        self._partings.line.wait(self)

    def take_turn(self) -> None:
        """Read once more."""
        if not self._transport.is_closing():
            self._partings.line.spend(1)
            self._transport.resume_reading()

    def abandon(self) -> None:
        """Close it now, whatever waits."""
        self._transport.abort()

    def eof_received(self) -> bool:
        """The peer has ended it, too."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone; how is nothing to those who had closed it."""
        self._lingering.cancel()
        self._partings.forget(self)
        self._be_over()

    def _be_over(self) -> None:
        on_lost, self._on_lost = self._on_lost, None
        if on_lost is not None:
            on_lost(None)
