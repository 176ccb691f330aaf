"""Octets of ZMTP, written from the grammar of RFC 37 alone, and a server's end that is told them."""

from __future__ import annotations

import struct

from veredus.kernel.engine import Now
from veredus.protocols.zmtp.connection import Bounds, Connection, Message
from veredus.protocols.zmtp.mechanisms import Local, Null

BOUNDS = Bounds(message_size_max=1000, parts_max=8)
START = Now(1_000_000_000_000, 1_700_000_000_000_000_000)
SECOND_NS = 1_000_000_000


def at(ns: int) -> Now:
    return Now(START.monotonic_ns + ns, START.wall_ns + ns)


def greeting(mechanism: bytes = b"NULL", version: bytes = b"\x03\x01", as_server: int = 0) -> bytes:
    return b"\xff" + bytes(8) + b"\x7f" + version + mechanism.ljust(20, b"\0") + bytes([as_server]) + bytes(31)


def frame(flags: int, body: bytes) -> bytes:
    if len(body) <= 255:
        return bytes([flags, len(body)]) + body
    return bytes([flags | 2]) + struct.pack(">Q", len(body)) + body


def command(name: bytes, data: bytes = b"") -> bytes:
    return frame(4, bytes([len(name)]) + name + data)


def message(*parts: bytes) -> bytes:
    return b"".join(frame(index < len(parts) - 1, part) for index, part in enumerate(parts))


def metadata(**properties: bytes) -> bytes:
    return b"".join(
        bytes([len(name)]) + name.replace("_", "-").encode() + struct.pack(">L", len(value)) + value
        for name, value in properties.items()
    )


def ready(socket_type: bytes = b"DEALER", identity: bytes = b"") -> bytes:
    return command(b"READY", metadata(Socket_Type=socket_type, Identity=identity))


OPENING = greeting() + ready()


def server(bounds: Bounds = BOUNDS, socket_type: bytes = b"ROUTER") -> Connection:
    connection = Connection({b"NULL": Null(Local(socket_type), is_server=True)}, bounds, is_server=True)
    connection.begin()
    return connection


def client(socket_type: bytes = b"DEALER", identity: bytes = b"") -> Connection:
    connection = Connection({b"NULL": Null(Local(socket_type, identity), is_server=False)}, BOUNDS, is_server=False)
    connection.begin()
    return connection


def told(connection: Connection, data: bytes) -> list[list[bytes]]:
    """The messages that these octets make, as plain bytes."""
    connection.receive(data)
    return heard(connection)


def heard(connection: Connection) -> list[list[bytes]]:
    messages: list[Message] = []
    while (more := connection.next_messages()) or connection.has_more:
        messages += more
    return [[bytes(part) for part in parts] for parts in messages]


def said(connection: Connection) -> bytes:
    return b"".join(connection.take_outgoing())


def opened(bounds: Bounds = BOUNDS) -> Connection:
    """A server's end in traffic, which has nothing left to say, and whose handshake was paid for."""
    connection = server(bounds)
    assert told(connection, OPENING) == []
    said(connection)
    connection.take_cost()
    return connection
