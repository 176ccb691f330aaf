"""Frames: flags, a size in one octet or eight, and so many octets; commands and properties, which are held by frames.

Source: RFC 37 of ZeroMQ, "Framing", "Commands", "The NULL Security Mechanism" and "Connection Heartbeating".
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Final

from veredus.kernel.errors import PeerFault
from veredus.kernel.octets import Octets, OctetsReader

MORE: Final = 1
LONG: Final = 2
COMMAND: Final = 4
SHORT_SIZE_MAX: Final = 255
PING_CONTEXT_SIZE_MAX: Final = 16
REASON_SIZE_MAX: Final = 255
_LONG_HEAD = struct.Struct(">BQ")
_SHORT_LAST = tuple(bytes((0, size)) for size in range(SHORT_SIZE_MAX + 1))


def encode_frame(flags: int, body: Octets) -> list[Octets]:
    """A frame as buffers: the body is not copied."""
    return [_head(flags, len(body)), body]


def _head(flags: int, size: int) -> bytes:
    return bytes((flags, size)) if size <= SHORT_SIZE_MAX else _LONG_HEAD.pack(flags | LONG, size)


def encode_message(parts: Sequence[Octets]) -> list[Octets]:
    """A message of one part or more as buffers."""
    *others, last = parts
    buffers: list[Octets] = []
    for part in others:
        buffers += (_head(MORE, len(part)), part)
    buffers += (_head(0, len(last)), last)
    return buffers


def encode_single(bodies: Iterable[Octets]) -> bytes:
    """Messages of one part each, one behind the other."""
    buffers: list[Octets] = []
    for body in bodies:
        size = len(body)
        buffers.append(_SHORT_LAST[size] if size <= SHORT_SIZE_MAX else _LONG_HEAD.pack(LONG, size))
        buffers.append(body)
    return b"".join(buffers)


def encode_whole(pieces: Sequence[Octets]) -> list[Octets]:
    """A message of one part that is given in pieces, as buffers: no piece is copied."""
    return [_head(0, sum(map(len, pieces))), *pieces]


def encode_command(body: bytes) -> bytes:
    """A command's frame."""
    return _head(COMMAND, len(body)) + body


def command_body(name: bytes, data: bytes = b"") -> bytes:
    """What a command's frame holds: its name, and what belongs to it."""
    return bytes((len(name),)) + name + data


def split_command(body: Octets) -> tuple[bytes, bytes]:
    """A command's name and data. Raises `PeerFault`."""
    reader = OctetsReader(body)
    size = reader.number(1)
    if not size:
        raise PeerFault("bad-frame", "a command must have a name")
    name = bytes(reader.take(size))
    return name, bytes(body[1 + size :])


def error_body(reason: str) -> bytes:
    """ERROR with a reason of VCHAR: blanks become underlines, and what else is none, question marks."""
    text = "".join("_" if c == " " else c if "!" <= c <= "~" else "?" for c in reason[:REASON_SIZE_MAX])
    return command_body(b"ERROR", bytes((len(text),)) + text.encode("ascii"))


def reason_of(data: bytes) -> str:
    """What an ERROR's data say, as far as it can be read."""
    return data[1 : 1 + data[0]].decode("ascii", "replace") if data else ""


def encode_properties(properties: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Metadata of a connection."""
    return b"".join(bytes((len(name),)) + name + len(value).to_bytes(4, "big") + value for name, value in properties)


def decode_properties(data: Octets) -> dict[bytes, bytes]:
    """Metadata by name in lower case; of a name that comes twice, the last. Raises `PeerFault`."""
    reader = OctetsReader(data)
    properties: dict[bytes, bytes] = {}
    while reader.offset < len(data):
        size = reader.number(1)
        if not size:
            raise PeerFault("bad-frame", "a property must have a name")
        name = bytes(reader.take(size)).lower()
        properties[name] = bytes(reader.take(reader.number(4)))
    return properties
