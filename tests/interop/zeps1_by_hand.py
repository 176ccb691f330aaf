"""A ZEPS version 1 client that was written from the protocol's page alone: `struct`, sockets, and nothing of Veredus.

Over TCP commands follow one another; over ZeroMQ each is one message of a DEALER.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping
from typing import NamedTuple, Protocol

TIMEOUT_S = 10.0


class Said(NamedTuple):
    """What the server said: the number of the command, and its fields in order."""

    command: int
    fields: tuple[int | bytes, ...] = ()


class Way(Protocol):
    """How octets get to the server and back."""

    def send(self, octets: bytes) -> None: ...

    def take(self, size: int) -> bytes: ...

    def close(self) -> None: ...


class StreamWay:
    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        connected.settimeout(TIMEOUT_S)

    def send(self, octets: bytes) -> None:
        self.socket.sendall(octets)

    def take(self, size: int) -> bytes:
        taken = b""
        while len(taken) < size:
            piece = self.socket.recv(size - len(taken))
            if not piece:
                raise ConnectionError("the server closed the connection")
            taken += piece
        return taken

    def close(self) -> None:
        self.socket.close()


class ZeroMqWay:
    def __init__(self, endpoint: str, options: Mapping[str, bytes | int] | None = None) -> None:
        import zmq

        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.DEALER)
        self.socket.setsockopt(zmq.LINGER, 1000)
        self.socket.setsockopt(zmq.RCVTIMEO, int(TIMEOUT_S * 1000))
        for name, value in (options or {}).items():
            self.socket.setsockopt(getattr(zmq, name), value)
        self.socket.connect(endpoint)
        self.frame = b""

    def send(self, octets: bytes) -> None:
        self.socket.send(octets)

    def take(self, size: int) -> bytes:
        if not self.frame:
            self.frame = self.socket.recv()
        taken, self.frame = self.frame[:size], self.frame[size:]
        if len(taken) < size:
            raise ConnectionError("a frame ends within its command")
        return taken

    def close(self) -> None:
        self.socket.close()
        self.context.term()


class Client:
    """Speaks the grammar's commands, one method each."""

    ATTACH_OK, SUBSCRIBE_OK, DELIVER, PING_OK, DETACH, DETACH_OK, INVALID = 2, 4, 7, 9, 10, 11, 12

    def __init__(self, way: Way) -> None:
        self.way = way

    # attach = signature %d1 protocol version stream
    def attach(self, stream: str, version: int = 1) -> None:
        self.way.send(b"\xaa\xa5\x01" + string(b"ZEPS") + struct.pack(">H", version) + string(stream.encode()))

    # subscribe = signature %d3 pattern latest
    def subscribe(self, pattern: bytes, latest: int) -> None:
        self.way.send(b"\xaa\xa5\x03" + string(pattern) + struct.pack(">Q", latest))

    # credit = signature %d5 credit
    def credit(self, size: int) -> None:
        self.way.send(b"\xaa\xa5\x05" + struct.pack(">Q", size))

    # publish = signature %d6 key body
    def publish(self, key: bytes, body: bytes) -> None:
        self.way.send(b"\xaa\xa5\x06" + string(key) + struct.pack(">L", len(body)) + body)

    def ping(self) -> None:
        self.way.send(b"\xaa\xa5\x08")

    def detach(self) -> None:
        self.way.send(b"\xaa\xa5\x0a")

    def hear(self) -> Said:
        """The next command of the server."""
        signature, command = self.way.take(2), self.way.take(1)[0]
        assert signature == b"\xaa\xa5", signature
        if command == self.DELIVER:
            (sequence,) = struct.unpack(">Q", self.way.take(8))
            key = self._string()
            (size,) = struct.unpack(">L", self.way.take(4))
            return Said(command, (sequence, key, self.way.take(size) if size else b""))
        if command == self.INVALID:
            return Said(command, (self._string(),))
        assert command in (self.ATTACH_OK, self.SUBSCRIBE_OK, self.PING_OK, self.DETACH, self.DETACH_OK), command
        return Said(command)

    def _string(self) -> bytes:
        size = self.way.take(1)[0]
        return self.way.take(size) if size else b""

    def close(self) -> None:
        self.way.close()


def string(octets: bytes) -> bytes:
    return bytes([len(octets)]) + octets


def over_tcp(host: str, port: int) -> Client:
    return Client(StreamWay(socket.create_connection((host, port), TIMEOUT_S)))


def over_unix(path: str) -> Client:
    connected = socket.socket(socket.AF_UNIX)
    connected.connect(path)
    return Client(StreamWay(connected))


def over_zeromq(endpoint: str, options: Mapping[str, bytes | int] | None = None) -> Client:
    """`options` say by which mechanism it comes."""
    return Client(ZeroMqWay(endpoint, options))
