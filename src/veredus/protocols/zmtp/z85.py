"""Z85: keys as text, five characters for four octets. Source: RFC 32 of ZeroMQ."""

from __future__ import annotations

from typing import Final

KEY_SIZE: Final = 32
"""Octets of a key of CURVE, which are 40 characters."""
_ALPHABET: Final = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_VALUES: Final = {character: value for value, character in enumerate(_ALPHABET)}


def encode_z85(octets: bytes) -> str:
    """The text of octets, whose count is a multiple of four."""
    text = []
    for start in range(0, len(octets), 4):
        value = int.from_bytes(octets[start : start + 4], "big")
        text.append("".join(_ALPHABET[value // 85**power % 85] for power in (4, 3, 2, 1, 0)))
    return "".join(text)


def decode_z85(text: str) -> bytes:
    """The octets of a text. Raises `ValueError`."""
    if len(text) % 5 or not all(character in _VALUES for character in text):
        raise ValueError("not Z85: its length must be a multiple of five, without blanks and quotes")
    octets = []
    for start in range(0, len(text), 5):
        value = 0
        for character in text[start : start + 5]:
            value = value * 85 + _VALUES[character]
        if value >> 32:
            raise ValueError("not Z85: five characters exceed four bytes")
        octets.append(value.to_bytes(4, "big"))
    return b"".join(octets)
