"""A ZeroMQ socket as its specification has it, by a raw socket: the handshake of NULL, and frames.

Source: ZMTP 3.0 (RFC 23).
"""

from __future__ import annotations

import select
import socket

ANSWER_S = 5.0
_READ_SIZE = 1 << 16
_GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
_MORE, _LONG, _COMMAND = 1, 2, 4


class Lost(Exception):
    """The connection is over, by whoever's doing."""


class Stream:
    """Owns a connection of octets."""

    def __init__(self, address: str) -> None:
        """Connect to `scheme://host:port`. Raises `OSError`."""
        host, _, port = address.rpartition("://")[2].rpartition(":")
        self._socket = socket.create_connection((host, int(port)), ANSWER_S)

    def say(self, octets: bytes) -> None:
        """Send them all. Raises `OSError`."""
        self._socket.sendall(octets)

    def hear(self, timeout_s: float) -> bytes:
        """What has come, after at most so long; nothing where nothing has. Raises `Lost` for an end, and `OSError`."""
        if not select.select([self._socket], [], [], timeout_s)[0]:
            return b""
        octets = self._socket.recv(_READ_SIZE)
        if not octets:
            raise Lost("closed")
        return octets

    def close(self) -> None:
        """Hang up."""
        self._socket.close()


class Framed:
    """Owns a connection of frames: those with the command bit are ZeroMQ's own, and are passed over."""

    def __init__(self, stream: Stream, kind: bytes) -> None:
        """Shake hands as such a socket: `DEALER`, `REQ`. Raises `Lost` and `OSError`."""
        self._stream = stream
        self._octets = b""
        ready = b"\x05READY\x0bSocket-Type" + len(kind).to_bytes(4, "big") + kind
        stream.say(_GREETING)
        self._await(64)
        self._octets = self._octets[64:]
        stream.say(bytes([_COMMAND, len(ready)]) + ready)
        self._await(2)
        self._await(2 + self._octets[1])
        self._octets = self._octets[2 + self._octets[1] :]

    def _await(self, size: int) -> None:
        while len(self._octets) < size:
            octets = self._stream.hear(ANSWER_S)
            if not octets:
                raise Lost("no handshake came in time")
            self._octets += octets

    def say(self, *messages: tuple[bytes, ...]) -> None:
        """Send messages, each of its frames. Raises `OSError`."""
        octets = b""
        for *before, last in messages:
            octets += b"".join(_framed(frame, _MORE) for frame in before) + _framed(last, 0)
        self._stream.say(octets)

    def hear(self, timeout_s: float) -> list[bytes]:
        """The whole frames that have come, after at most so long. Raises `Lost` for an end, and `OSError`."""
        self._octets += self._stream.hear(timeout_s)
        frames = []
        while len(self._octets) >= 2:
            flags = self._octets[0]
            start = 9 if flags & _LONG else 2
            if len(self._octets) < start:
                break
            size = int.from_bytes(self._octets[1:start], "big")
            if len(self._octets) < start + size:
                break
            if not flags & _COMMAND:
                frames.append(self._octets[start : start + size])
            self._octets = self._octets[start + size :]
        return frames


def _framed(frame: bytes, flag: int) -> bytes:
    if len(frame) < 256:
        return bytes([flag, len(frame)]) + frame
    return bytes([flag | _LONG]) + len(frame).to_bytes(8, "big") + frame
