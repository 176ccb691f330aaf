"""Many messages as one body, for those who put and get thousands at once: beyond the page, which has one at a time.

    u32 count | count times u32 length | contents | in an answer: count times u64 sequence        little-endian

What is put so is one put: taken as a whole or not at all, under as many counters as it has messages. What is got so has
one id, `<incarnation>-<first>..<last>`, and each message its own, as GET would give it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from veredus.kernel.errors import PeerFault

COUNT_MAX = 65_536
"""Messages in one body at most."""
LENGTH_SIZE = 4
SEQUENCE_SIZE = 8


def pack(bodies: Sequence[bytes]) -> bytes:
    """These messages as one body."""
    return b"".join((struct.pack(f"<{len(bodies) + 1}I", len(bodies), *map(len, bodies)), *bodies))


def pack_numbered(bodies: Sequence[bytes], sequences: Sequence[int]) -> bytes:
    """The same with a sequence each."""
    return pack(bodies) + struct.pack(f"<{len(sequences)}Q", *sequences)


class Many(NamedTuple):
    """Messages with a sequence each, as the body of an answer that is not packed yet."""

    bodies: Sequence[bytes]
    sequences: Sequence[int]

    @property
    def size(self) -> int:
        """How many bytes they have when they are packed."""
        return sum(map(len, self.bodies)) + LENGTH_SIZE * (len(self.bodies) + 1) + SEQUENCE_SIZE * len(self.sequences)

    def packed(self) -> bytes:
        """The body."""
        return pack_numbered(self.bodies, self.sequences)


def unpack(data: bytes) -> list[bytes]:
    """The messages in a whole body, with or without sequences."""
    count = int.from_bytes(data[:LENGTH_SIZE], "little")
    begin = LENGTH_SIZE * (count + 1)
    ends = accumulate(struct.unpack_from(f"<{count}I", data, LENGTH_SIZE), initial=begin)
    return [data[first:end] for first, end in pairwise(ends)]


def sequences_in(data: bytes) -> tuple[int, ...]:
    """The sequences in the whole body of an answer."""
    count = int.from_bytes(data[:LENGTH_SIZE], "little")
    return struct.unpack_from(f"<{count}Q", data, len(data) - SEQUENCE_SIZE * count)


def count_of(data: bytes, extra_size: int = 0) -> int:
    """How many messages a whole body holds, with so many bytes for each behind the last one.

    Raises `PeerFault("bad-message")`.
    """
    count = int.from_bytes(data[:LENGTH_SIZE], "little")
    begin = LENGTH_SIZE * (count + 1)
    if not 0 < count <= COUNT_MAX or begin > len(data):
        said = f"a body of many messages begins with their count, 1 to {COUNT_MAX}, and the length of each"
        raise PeerFault("bad-message", f"{said}; this one has {len(data)} bytes and announces {count}")
    end = begin + sum(struct.unpack_from(f"<{count}I", data, LENGTH_SIZE)) + extra_size * count
    if end != len(data):
        raise PeerFault(
            "bad-message", f"{count} messages with their lengths need {end} bytes, and the body has {len(data)}"
        )
    return count
