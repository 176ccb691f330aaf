"""Bytes that are gathered bit by bit, and never joined: everybody would wait while hundreds of megabytes are copied.

add, add, add … ──► parts of about PART_SIZE ──► buffers: written one behind the other
                    └─ each is summed as it becomes full, so the sum of all is there at once
"""

from __future__ import annotations

from .octets import Octets, crc32c

PART_SIZE = 1 << 20


class Gathered:
    """Owns the parts; `buffers` ends them."""

    __slots__ = ("_crc", "_last", "_parts", "size")

    def __init__(self, data: Octets = b"") -> None:
        """Begin with these bytes."""
        self._parts: list[Octets] = []
        self._last = bytearray(data)
        self._crc = 0
        self.size = len(data)
        """Of all that was added, in bytes."""

    def add(self, data: Octets) -> None:
        """These bytes come next."""
        self._last += data
        self.size += len(data)
        if len(self._last) >= PART_SIZE:
            self._end_part()

    def buffers(self) -> list[Octets]:
        """All that was added, in order."""
        self._end_part()
        return self._parts

    @property
    def crc(self) -> int:
        """The CRC-32C of all that was added."""
        return crc32c(self._last, self._crc)

    def _end_part(self) -> None:
        if self._last:
            self._crc = crc32c(self._last, self._crc)
            self._parts.append(self._last)
            self._last = bytearray()


_POLYNOMIAL = 0x82F63B78
_ONE = 1 << 31
"""Polynomials are as a CRC has them: the highest bit is the coefficient of 1."""


def crc_of_both(first: int, second: int, second_size: int) -> int:
    """The CRC-32C of some bytes with the CRC `first` and, behind them, of `second_size` ones with the CRC `second`.

    Takes well below a millisecond, however many these are: n bytes multiply what is before them by x to the power of
    8 n.
    """
    factor, power, count = _ONE, _ONE >> 8, second_size
    while count:
        if count & 1:
            factor = _product(factor, power)
        power = _product(power, power)
        count >>= 1
    return _product(factor, first) ^ second


def _product(a: int, b: int) -> int:
    product = 0
    while a:
        if a & _ONE:
            product ^= b
        a = a << 1 & 0xFFFFFFFF
        b = b >> 1 ^ (_POLYNOMIAL if b & 1 else 0)
    return product
