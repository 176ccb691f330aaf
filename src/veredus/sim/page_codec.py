"""The client's side of ZEPS 1, written from the grammar alone: it shares nothing with the node's codec.

A reading of the grammar that both sides shared would agree with itself, however wrong. So this one is made another way:
words are built from the productions, and what comes is read by a generator that asks for so many octets at a time.
Source: seed 004, "Protocol Specification".
"""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple, TypeAlias
from urllib.parse import unquote_to_bytes

Reading: TypeAlias = Generator[int, bytes, "Word"]


class Word(NamedTuple):
    """A command of the server: its name as the grammar has it, and its fields in order."""

    name: str
    fields: tuple[int | bytes, ...] = ()


def number(size: int, value: int) -> bytes:
    """number-1, number-2, number-4, number-8: unsigned, in network byte order."""
    return bytes(value >> 8 * place & 255 for place in reversed(range(size)))


def string(octets: bytes) -> bytes:
    """String = number-1 *VCHAR."""
    return number(1, len(octets)) + octets


def chunk(octets: bytes) -> bytes:
    """Chunk = number-4 *OCTET."""
    return number(4, len(octets)) + octets


def command(digit: int, *fields: bytes) -> bytes:
    """Signature %d<digit> and the fields."""
    return b"\xaa\xa5" + number(1, digit) + b"".join(fields)


def attach(stream: str) -> bytes:
    """Attach = signature %d1 protocol version stream."""
    return command(1, string(b"ZEPS"), number(2, 1), string(stream.encode()))


def subscribe(pattern: bytes, latest: int) -> bytes:
    """Subscribe = signature %d3 pattern latest."""
    return command(3, string(pattern), number(8, latest))


def credit(size: int) -> bytes:
    """Credit = signature %d5 credit."""
    return command(5, number(8, size))


def publish(key: bytes, body: bytes) -> bytes:
    """Publish = signature %d6 key body."""
    return command(6, string(key), chunk(body))


PING, PING_OK, DETACH = command(8), command(9), command(10)


def size_of_deliver(key: bytes, body: bytes) -> int:
    """The credit that a DELIVER takes: its octets."""
    return len(command(7, number(8, 0), string(key), chunk(body)))


def reason_of(octets: bytes) -> str:
    """The sentence of an INVALID."""
    return unquote_to_bytes(octets.replace(b"_", b" ")).decode("utf-8", "replace")


def _value() -> Generator[int, bytes, int]:
    return sum(octet << 8 * place for place, octet in enumerate(reversed((yield 8))))


def _string() -> Generator[int, bytes, bytes]:
    (size,) = yield 1
    return (yield size) if size else b""


def _chunk() -> Generator[int, bytes, bytes]:
    size = int((yield 4).hex(), 16)
    return (yield size) if size else b""


def _word() -> Reading:
    signature = yield 2
    if signature != b"\xaa\xa5":
        raise ValueError(f"{signature.hex()} is no signature")
    (digit,) = yield 1
    if digit == 7:
        sequence = yield from _value()
        key = yield from _string()
        return Word("deliver", (sequence, key, (yield from _chunk())))
    if digit == 12:
        return Word("invalid", ((yield from _string()),))
    names = {2: "attach_ok", 4: "subscribe_ok", 8: "ping", 9: "ping_ok", 10: "detach", 11: "detach_ok"}
    if digit not in names:
        raise ValueError(f"a server does not say %d{digit}")
    return Word(names[digit])


class Ear:
    """Owns what was heard of a word that is not whole yet."""

    def __init__(self) -> None:
        self._octets = b""
        self._reading: Reading | None = None
        self._needed = 0

    def hear(self, octets: bytes) -> list[Word]:
        """The words that are whole now, in order. Raises `ValueError` for what no server says."""
        self._octets += octets
        words: list[Word] = []
        at = 0
        while True:
            if self._reading is None:
                self._reading = _word()
                self._needed = next(self._reading)
            if len(self._octets) - at < self._needed:
                self._octets = self._octets[at:]
                return words
            taken, at = self._octets[at : at + self._needed], at + self._needed
            try:
                self._needed = self._reading.send(taken)
            except StopIteration as whole:
                words.append(whole.value)
                self._reading = None
