"""What is published: all of it follows from who publishes it and its number, so that a new life says the same again.

A body begins with whose it is: rows of a sink carry no numbers of their own, and are known by this.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b

BEGINNINGS = ("even.", "odd.")
_FILLING = blake2b(b"veredus chaos", digest_size=64).digest() * 400
_SIZE_USUAL, _SIZE_LARGE = 300, 20_000


@lru_cache(4096)
def key_of(source: str, number: int) -> bytes:
    """One of fourteen keys; half of them begin with `even.`."""
    return f"{BEGINNINGS[number % 2]}{number % 7}.{source}".encode()


def body_of(source: str, number: int) -> bytes:
    """Says whose it is; a hundred bytes or so, rarely twenty thousand."""
    said = f"{source}|{number}|".encode()
    draw = int.from_bytes(blake2b(said, digest_size=4).digest(), "little")
    size = draw % (_SIZE_LARGE if draw % 211 == 0 else _SIZE_USUAL)
    start = draw % 64
    return said + _FILLING[start : start + size]


def identity_in(body: bytes) -> tuple[str, int]:
    """Whose a body says that it is; `("", 0)` where it says nothing."""
    parts = body.split(b"|", 2)
    return (parts[0].decode(errors="replace"), int(parts[1])) if len(parts) == 3 and parts[1].isdigit() else ("", 0)
