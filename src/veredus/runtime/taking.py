"""How far a peer has got with what was written to it: what this side's system still holds counts as not taken.

    written ──► transport ──► system's send buffer ──► peer's system ──► peer
                └──────────── not taken ─────────────┘

The system may hold some megabytes of a connection: whether room comes free in it says little about a slow peer.
Source: tcp(7), SIOCOUTQ; unix(7) has the same question by the same number.
"""

from __future__ import annotations

import asyncio
import fcntl
import termios
from collections.abc import Sequence

from veredus.kernel.octets import Octets

_ANSWER = bytes(4)


class Taking:
    """Owns how much was written to one connection, and how far its peer was when it was looked last."""

    __slots__ = ("_descriptor", "_looked", "_transport", "_written_size")

    def __init__(self, transport: asyncio.Transport) -> None:
        """Nothing was written yet; not to be asked once the connection is lost."""
        sock = transport.get_extra_info("socket")
        self._transport = transport
        self._descriptor = -1 if sock is None else int(sock.fileno())
        self._written_size = 0
        self._looked = 0, 0

    def note(self, buffers: Sequence[Octets]) -> None:
        """These were written to the transport."""
        self._written_size += sum(map(len, buffers))

    @property
    def untaken_size(self) -> int:
        """What the peer's system has not taken yet, in bytes."""
        return int(self._transport.get_write_buffer_size()) + self._held_size

    @property
    def taken_size(self) -> int:
        """What it has taken: this only grows, but for what TLS adds when it seals what was written."""
        return self._written_size - self.untaken_size

    def look(self) -> bool:
        """Whether the peer has taken some, and not all, of what waited for it when it was looked last.

        Who has taken all is not seen to read: a peer that hangs has a system that takes a PING all the same.
        """
        written_before, taken_before = self._looked
        taken = self.taken_size
        self._looked = self._written_size, taken
        return taken_before < taken < written_before

    @property
    def _held_size(self) -> int:
        try:
            return int.from_bytes(fcntl.ioctl(self._descriptor, termios.TIOCOUTQ, _ANSWER), "little")
        except OSError:
            # It was closed a moment ago.
            return 0
