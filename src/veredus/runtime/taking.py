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
from collections import deque
from collections.abc import Sequence

from veredus.kernel.octets import Octets
from veredus.node.sending import SHARED_SIZE_MIN

_ANSWER = bytes(4)


def _name_of(buffer: Octets) -> int:
    """The id of the memory in which a buffer lies."""
    return id(buffer.obj) if isinstance(buffer, memoryview) else id(buffer)


class Taking:
    """Owns how much was written to one connection, and how far its peer was when it was looked last."""

    __slots__ = ("_descriptor", "_large", "_looked", "_transport", "_written_size")

    def __init__(self, transport: asyncio.Transport) -> None:
        """Nothing was written yet; not to be asked once the connection is lost."""
        sock = transport.get_extra_info("socket")
        self._transport = transport
        self._descriptor = -1 if sock is None else int(sock.fileno())
        self._written_size = 0
        self._looked = 0, 0
        self._large: deque[tuple[int, int, int]] | None = None
        """Of each buffer that may be waiting, and is large: with how much it will be written, its size, its name."""
        if type(transport).__module__.startswith("uvloop"):
            # Others copy what they are given: what they hold for two connections is there twice.
            self._large = deque()

    def note(self, buffers: Sequence[Octets]) -> None:
        """These were written to the transport."""
        large = self._large
        for buffer in buffers:
            self._written_size += len(buffer)
            if large is not None and len(buffer) >= SHARED_SIZE_MIN:
                large.append((self._written_size, len(buffer), _name_of(buffer)))
        if large:
            self._forget_written(large)

    def _forget_written(self, large: deque[tuple[int, int, int]]) -> int:
        """How much the transport has written; what it has not, it holds, so that its id is nobody else's."""
        written = self._written_size - int(self._transport.get_write_buffer_size())
        while large and large[0][0] <= written:
            large.popleft()
        return written

    @property
    def shared(self) -> dict[int, int]:
        """The memory of large buffers that wait in the transport, by its id, and how much of each does: others may hold
        the same.
        """
        if not self._large:
            return {}
        written = self._forget_written(self._large)
        shared: dict[int, int] = {}
        for end, size, buffer in self._large:
            shared[buffer] = shared.get(buffer, 0) + min(size, end - written)
        return shared

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
