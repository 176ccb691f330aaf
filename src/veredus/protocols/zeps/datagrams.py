"""The datagrams of a multicast stream, both ways: a head that says where the stream is, then DELIVER commands, whole.

Source: docs/reference/wire/zeps-1-multicast.md ("Datagram").
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from veredus.kernel.errors import PeerFault

from .frames import CommandParser, Deliver

MAGIC = b"VMC1"
_HEAD = struct.Struct(">4s16sQQB")
_SEQUENCE_AT = 3


class Datagram(NamedTuple):
    """What one datagram says; `next` is the sequence behind the last one that the group was sent or told of."""

    incarnation: bytes
    term: int
    next: int
    stream: bytes
    delivered: Sequence[Deliver]


def head_size_of(stream: bytes) -> int:
    """How many bytes of a datagram are no commands."""
    return _HEAD.size + len(stream)


def sequence_of(deliver: bytes) -> int:
    """The sequence that an encoded DELIVER carries."""
    return int.from_bytes(deliver[_SEQUENCE_AT : _SEQUENCE_AT + 8], "big")


def encode_datagram(incarnation: bytes, term: int, following: int, stream: bytes, delivers: Sequence[bytes]) -> bytes:
    """A datagram of encoded DELIVER commands."""
    return b"".join((_HEAD.pack(MAGIC, incarnation, term, following, len(stream)), stream, *delivers))


def decode_datagram(octets: bytes) -> Datagram:
    """What a datagram says. Raises `PeerFault("bad-frame")` for one that is none: anybody may send to a group."""
    if len(octets) < _HEAD.size or not octets.startswith(MAGIC):
        raise PeerFault("bad-frame", "no datagram of a stream begins like this")
    _, incarnation, term, following, size = _HEAD.unpack_from(octets)
    start = _HEAD.size + size
    if len(octets) < start:
        raise PeerFault("bad-frame", "the datagram ends within the name of its stream")
    parser = CommandParser(len(octets))
    commands = parser.feed(octets[start:])
    delivered = [command for command in commands if isinstance(command, Deliver)]
    sequences = [deliver.sequence for deliver in delivered]
    is_sound = parser.fault is None and not parser.waiting_size and len(delivered) == len(commands)
    if not is_sound or sequences != sorted(set(sequences)) or any(sequence >= following for sequence in sequences):
        raise PeerFault("bad-frame", "a datagram holds whole DELIVER commands in order, all of them below its next")
    return Datagram(incarnation, term, following, octets[_HEAD.size : start], delivered)
