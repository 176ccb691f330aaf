"""Which sources of a stream a subscriber was told of.

A bit for each, since anybody may open thousands of subscriptions to a stream of a hundred thousand sources.
"""

from __future__ import annotations


class Told:
    """Owns the numbers that were told; 0, which no source has, counts as told."""

    __slots__ = ("_bits",)

    def __init__(self) -> None:
        """No other number was told yet."""
        self._bits = bytearray((1,))

    def tell(self, number: int) -> bool:
        """The number is told from now on; whether it was not before. The memory that it takes grows with the number."""
        place, bit = number >> 3, 1 << (number & 7)
        bits = self._bits
        if place >= len(bits):
            bits.extend(bytes(place + 1 - len(bits)))
        if bits[place] & bit:
            return False
        bits[place] |= bit
        return True
