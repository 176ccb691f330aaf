"""What a client writes down of what it was told, for good, before it does anything else: a line for each.

    life                            a process begins
    subscribed TOPIC
    put TOPIC INDEX DIGEST          it was told that this flight was taken
    got TOPIC ID INDEX DIGEST       it was given this flight, under this id
    failed OPERATION CODE           it was told that this cannot be had now

A line is one `write` to a file opened for appending, so a SIGKILL leaves whole lines, in the order of what happened.
"""

from __future__ import annotations

import os
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

LIFE, SUBSCRIBED, PUT, GOT, FAILED = "life", "subscribed", "put", "got", "failed"


class Line(NamedTuple):
    """One line, as far as its kind has these words."""

    kind: str
    topic: str = ""
    message_id: str = ""
    index: int = 0
    digest: str = ""


class Account:
    """Owns one client's file, for as long as its process lives."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self.write(LIFE)

    def write(self, *words: object) -> None:
        """Write a line; it is in the system's hands when this returns."""
        os.write(self._file, (" ".join(map(str, words)) + "\n").encode())

    def close(self) -> None:
        """Write no more."""
        os.close(self._file)


def read_account(path: Path) -> list[Line]:
    """All that was written down, in order."""
    return [parsed(text) for text in path.read_text().splitlines()] if path.exists() else []


def parsed(text: str) -> Line:
    """A line of an account."""
    match text.split(" "):
        case ["put", topic, index, digest]:
            return Line(PUT, topic, index=int(index), digest=digest)
        case ["got", topic, message_id, index, digest]:
            return Line(GOT, topic, message_id, int(index), digest)
        case ["subscribed", topic]:
            return Line(SUBSCRIBED, topic)
        case ["failed", operation, code]:
            return Line(FAILED, f"{operation} {code}")
        case ["life"]:
            return Line(LIFE)
    raise ValueError(f"{text!r} is no line of an account")


def body_of(index: int, flight: str) -> bytes:
    """A flight as it is put: with its place in the data set, so that no two are the same."""
    return f"{index} {flight}".encode()


def index_of(body: bytes) -> int:
    """The place in the data set that a body names."""
    return int(body.partition(b" ")[0])


def digest_of(body: bytes) -> str:
    """What tells a body from any other."""
    return blake2b(body, digest_size=8).hexdigest()
