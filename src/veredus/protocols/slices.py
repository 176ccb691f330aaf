"""Octets that wait for their turn: cut so that a piece costs its reader about a turn's work, whatever it holds."""

from __future__ import annotations

from collections import deque

from veredus.kernel.octets import Octets

SLICE_SIZE = 16 << 10
OCTET_NS = 100
"""What an octet costs of a protocol whose commands are small, in nanoseconds; measured, roughly: 10 octets of PING cost
3 us, 120 of a PUBLISH 6 us."""


class Slices:
    """Owns what was received and is not read yet, in order."""

    __slots__ = ("_waiting", "size")

    def __init__(self) -> None:
        self.size = 0
        """How much waits, in bytes."""
        self._waiting: deque[memoryview] = deque()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, data: Octets) -> None:
        """More was received."""
        if len(data):
            self._waiting.append(memoryview(data))
            self.size += len(data)

    def take(self) -> memoryview:
        """The next piece: at most `SLICE_SIZE` octets, at least one."""
        first = self._waiting.popleft()
        if len(first) > SLICE_SIZE:
            self._waiting.appendleft(first[SLICE_SIZE:])
        piece = first[:SLICE_SIZE]
        self.size -= len(piece)
        return piece

    def forget(self) -> None:
        """Nobody reads what is left."""
        self._waiting.clear()
        self.size = 0
