"""How many bytes an LZ4 block stands for, by the heads of its sequences.

A library that is given more room than a block fills does not say so, and what memory held before would pass for data.

    token u8: literals 4 bits, match 4 bits | more of the literals' length | literals | offset u16 | more of the match's

Source: https://github.com/lz4/lz4/blob/dev/doc/lz4_Block_format.md
"""

from __future__ import annotations

SEQUENCES_MAX = 1 << 20
"""The most sequences of a block: to go through so many takes a quarter of a second."""
_MORE, _MATCH_MIN = 15, 4


def lz4_raw_size(block: bytes) -> int:
    """The bytes that the block decompresses to; 0 for one that is not sound, or has too many sequences."""
    at = size = 0
    try:
        for _ in range(SEQUENCES_MAX):
            token = block[at]
            at += 1
            length = token >> 4
            if length == _MORE:
                while block[at] == 0xFF:
                    length += 0xFF
                    at += 1
                length += block[at]
                at += 1
            at += length
            size += length
            if at >= len(block):
                return size if at == len(block) else 0
            offset = block[at] | block[at + 1] << 8
            if not 0 < offset <= size:
                return 0
            at += 2
            length = token & 0x0F
            if length == _MORE:
                while block[at] == 0xFF:
                    length += 0xFF
                    at += 1
                length += block[at]
                at += 1
            size += length + _MATCH_MIN
    except IndexError:
        return 0
    return 0
