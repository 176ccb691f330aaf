"""Bytes: the buffer type, CRC-32C, padding, and a bounds-checked reader for what came over a wire."""

from __future__ import annotations

from typing import Protocol, TypeAlias

from crc32c import crc32c as _crc32c

from veredus.kernel.errors import PeerFault

Octets: TypeAlias = bytes | bytearray | memoryview
"""Any contiguous run of bytes. A `memoryview` is always one-dimensional, of format "B"."""

ALIGNMENT = 8
KEPT_FACTOR = 4
"""What is kept for long keeps at most so many times its own size in memory."""
_ZEROS = bytes(ALIGNMENT)
_SMALL_MAP = 0x8
_MAP_SIZES = {0xDE: 2, 0xDF: 4}
"""By the first octet of a larger msgpack map, how many octets its count has."""


class _Checksum(Protocol):
    def __call__(self, data: Octets, value: int = 0, /) -> int: ...


crc32c: _Checksum = _crc32c
"""CRC-32C (Castagnoli, RFC 3720 appendix B.4) of some bytes, behind those of which it is `value`."""


def octets_of(value: Octets | str) -> bytes:
    """A copy of these bytes, or the text as UTF-8."""
    return value.encode() if isinstance(value, str) else bytes(memoryview(value))


def holds_little_else(view: memoryview) -> bool:
    """Whether the memory that the view keeps is no more than `KEPT_FACTOR` times what it shows."""
    return KEPT_FACTOR * len(view) >= memoryview(view.obj).nbytes


def aligned(size: int) -> int:
    """The smallest multiple of `ALIGNMENT` that holds `size` bytes."""
    return (size + ALIGNMENT - 1) & -ALIGNMENT


def padding(size: int) -> bytes:
    """The zero bytes that bring a run of `size` bytes to a multiple of `ALIGNMENT`."""
    return _ZEROS[: -size % ALIGNMENT]


def field_count_of(octets: memoryview) -> int:
    """The fields of the msgpack map that these bytes claim to begin with; 0 for anything else."""
    head = octets[0] if len(octets) else 0
    if head >> 4 == _SMALL_MAP:
        return head & 0x0F
    size = _MAP_SIZES.get(head, 0)
    return int.from_bytes(octets[1 : 1 + size], "big")


class OctetsReader:
    """Reads big-endian numbers and sized runs from bytes that came over a wire; raises `PeerFault` past the end.

    Owns nothing but its place; a claimed size is checked against what is there before anything is taken.
    """

    __slots__ = ("_data", "_offset")

    def __init__(self, data: Octets, offset: int = 0) -> None:
        self._data = memoryview(data)
        self._offset = offset

    @property
    def offset(self) -> int:
        """The place of the next byte to be read."""
        return self._offset

    def take(self, size: int) -> memoryview:
        """The next `size` bytes, uncopied."""
        end = self._offset + size
        if end > len(self._data):
            raise PeerFault(
                "truncated", f"{size} bytes expected at {self._offset}, {len(self._data) - self._offset} left"
            )
        taken = self._data[self._offset : end]
        self._offset = end
        return taken

    def number(self, size: int) -> int:
        """The next unsigned big-endian number of `size` bytes."""
        return int.from_bytes(self.take(size), "big")
