"""Reads a ZeroMQ socket on an asyncio loop, and sends on it, without waiting.

The socket's descriptor is edge-triggered: it becomes readable once whenever something happens to the socket, and to
send may swallow that. So whoever reads goes on until nothing is there, and whoever has sent looks again.
`zmq.asyncio` would cost several times as much. Source: zmq_getsockopt(3), ZMQ_FD.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import zmq

NOT_WAITING = int(zmq.NOBLOCK)
_MORE = int(zmq.NOBLOCK | zmq.SNDMORE)
_EVENTS, _POLLIN = int(zmq.EVENTS), int(zmq.POLLIN)
"""As plain numbers: enumerations cost more to join than a part costs to send."""
_MESSAGES_PER_TURN_MAX = 256
PARTS_MAX = 8
"""No message that anybody waits for has as many parts; what is behind them is not kept."""


class SocketReader:
    """Owns a socket's place on the running loop, where it was made; the socket itself is its owner's."""

    def __init__(self, socket: zmq.Socket[bytes], read: Callable[[], bool]) -> None:
        """`read` takes one message, if there is any and one is wanted, and says whether there was."""
        self._socket = socket
        self._read = read
        self._loop = asyncio.get_running_loop()
        self._descriptor = int(socket.getsockopt(zmq.FD))
        self._is_looking = self._is_closed = False
        self._loop.add_reader(self._descriptor, self._read_all)
        self.look()

    def close(self) -> None:
        """Read no more; to be called before the socket is closed."""
        self._is_closed = True
        self._loop.remove_reader(self._descriptor)

    def look(self) -> None:
        """Look soon whether something is there: something was sent, or messages are wanted again."""
        if not self._is_looking:
            self._is_looking = True
            self._loop.call_soon(self._look)

    def _look(self) -> None:
        self._is_looking = False
        if not self._is_closed and int(self._socket.getsockopt(_EVENTS)) & _POLLIN:
            self._read_all()

    def _read_all(self) -> None:
        for _ in range(_MESSAGES_PER_TURN_MAX):
            if self._is_closed or not self._read():
                return
        self.look()


def receive(socket: zmq.Socket[bytes]) -> list[bytes] | None:
    """The parts of the next message, the first `PARTS_MAX` at most; None where there is none. Raises `zmq.ZMQError`.

    libzmq itself keeps a message until it is whole, however many parts it has: who receives can bound the size of each
    part, and not their number.
    """
    try:
        # A frame says whether another follows; to ask the socket costs as much as to receive three.
        frame = socket.recv(NOT_WAITING, False)
    except zmq.Again:
        return None
    parts = [frame.bytes]
    while frame.more:
        frame = socket.recv(NOT_WAITING, False)
        if len(parts) < PARTS_MAX:
            parts.append(frame.bytes)
    return parts


def send(socket: zmq.Socket[bytes], *parts: bytes) -> None:
    """Send a message of these parts. Raises `zmq.Again` where the peer takes no more, and `zmq.ZMQError`."""
    *others, last = parts
    for part in others:
        socket.send(part, _MORE)
    socket.send(last, NOT_WAITING)
