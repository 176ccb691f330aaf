"""Numbers that must not be mixed up, and the rules for names that people give to things.

Source: docs/internals/DESIGN.md, "Words"; docs/internals/GLOSSARY.md.
"""

from __future__ import annotations

import re
from typing import NewType

from veredus.kernel.errors import Refused

Sequence = NewType("Sequence", int)
"""A place in a stream, from 1; 0 means "from everything kept"."""

Number = NewType("Number", int)
"""A publication's place in its source, from 1, dense per (stream, source)."""

Epoch = NewType("Epoch", int)
"""Fences, and does nothing else; from 1."""

NAME_SIZE_MAX = 255
KEY_SIZE_MAX = 255
INCARNATION_SIZE = 16
U63_MAX = (1 << 63) - 1

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@/+=-]*", re.ASCII)


def check_incarnation(incarnation: bytes) -> None:
    """Raise `Refused("bad-incarnation")` for one that is too short or too long."""
    if len(incarnation) != INCARNATION_SIZE:
        raise Refused(
            "bad-incarnation", f"an incarnation must have {INCARNATION_SIZE} bytes, this one has {len(incarnation)}"
        )


def is_name(name: str) -> bool:
    """Whether `checked_name` takes it."""
    return len(name) <= NAME_SIZE_MAX and _NAME.fullmatch(name) is not None


def checked_name(kind: str, name: str) -> str:
    """`name`, if it can name a stream, source, subscriber, subscription or sink.

    A name has 1 to 255 characters out of A-Z, a-z, 0-9 and `_ . : @ / + = -`, and starts with none of the last seven.
    Raises `Refused("bad-name")`, which says which character is wrong and where.
    """
    if not name:
        raise Refused("bad-name", f"the name of a {kind} must have at least one character", kind=kind, name=name)
    if len(name) > NAME_SIZE_MAX:
        raise Refused(
            "bad-name",
            f"the name of a {kind} may have at most {NAME_SIZE_MAX} characters, this one has {len(name)}",
            kind=kind,
        )
    match = _NAME.match(name)
    end = match.end() if match else 0
    if end != len(name):
        raise Refused(
            "bad-name",
            f"{kind} name {name!r}: character {name[end]!r} at position {end} is not allowed"
            " (allowed: A-Z, a-z, 0-9 and _.:@/+=-; the first is one of A-Z, a-z, 0-9 and _)",
            kind=kind,
            name=name,
            position=end,
        )
    return name
