"""How far a zstd frame goes, by the heads of its blocks alone: some libraries join the frames that follow one another,
others stop behind the first one.

    magic u32 | descriptor u8 | window u8? | dictionary id, 0 to 4 | content size, 0 to 8 | blocks | checksum u32?
    a block: u24 of last 1, type 2, size 21 bits | as many bytes

Source: RFC 8878, sections 3.1.1 and 3.1.2.
"""

from __future__ import annotations

from veredus.kernel.octets import Octets

ZSTD_BLOCKS_MAX = 16_384
"""The most blocks of a frame: the smallest has three bytes, a usual one stands for 128 KiB."""
ZSTD_WINDOW_MAX = 128 << 20
"""The largest window in bytes: what decoders that read a stream take by themselves."""
_MAGIC = (0xFD2FB528).to_bytes(4, "little")
_HEAD_SIZE = 5
_CHECKSUM, _SINGLE_SEGMENT = 0x04, 0x20
_DICTIONARY_ID_SIZES = (0, 1, 2, 4)
_CONTENT_SIZES = (0, 2, 4, 8)
_REPEATED = 1
_WINDOW_DESCRIPTOR_MAX = 17 << 3
"""Of `ZSTD_WINDOW_MAX`: ten less than the binary logarithm, and in the low bits no eighth more."""


def zstd_frame_size(data: Octets) -> int:
    """The bytes of the frame with which `data` begins; 0 where there is none, or one of too many blocks or too large a
    window.

    What the blocks hold is not looked at: the size may be more than there is where they do not decompress.
    """
    if len(data) <= _HEAD_SIZE or data[:4] != _MAGIC:
        return 0
    descriptor = data[4]
    is_single = descriptor & _SINGLE_SEGMENT
    at = _HEAD_SIZE + _DICTIONARY_ID_SIZES[descriptor & 3]
    at += _CONTENT_SIZES[descriptor >> 6] or (1 if is_single else 0)
    if not is_single:
        if data[_HEAD_SIZE] > _WINDOW_DESCRIPTOR_MAX:
            return 0
        at += 1
    for _ in range(ZSTD_BLOCKS_MAX):
        head = int.from_bytes(data[at : at + 3], "little")
        at += 3 + (1 if head >> 1 & 3 == _REPEATED else head >> 3)
        if head & 1:
            return at + (4 if descriptor & _CHECKSUM else 0)
        if at >= len(data):
            return 0
    return 0
