"""What a SUBSCRIBE of version 1 asks for: a pattern, and where to begin, both in the two fields that the grammar has.

The grammar's `latest` is the last known sequence. Sequences stay below 2^62, so that the two highest bits are free to
say where else to begin: see docs/decisions/0013 and docs/reference/wire/zeps-1.md ("Where delivery begins").
Source: seed 004, "Overall Design" ("a certain past point (a time period, or a message sequence)").
"""

from __future__ import annotations

from typing import NamedTuple

from veredus.kernel.errors import Refused
from veredus.matching import Pattern, compile_pattern, prefix_text
from veredus.streams.exchange import Refuse, Start, StartKind

from .ahead import check_not_ahead

LATEST_LIVE = (1 << 64) - 1
"""Everything there is is known: only what comes."""
FROM_TIME = 2 << 62
"""With microseconds since 1970 added: from the first publication that was appended then, or later.

A time a little ahead is now: clocks differ. One that is further ahead is refused: a sequence tells where an interest
is, and what is appended before that time has sequences that nobody knows yet."""
FROM_PERIOD = 3 << 62
"""With microseconds added: from the first publication that was appended in so long a time before now."""
_REST = (1 << 62) - 1


class Asked(NamedTuple):
    """A pattern and where to begin; `latest` is the last known sequence where that says it."""

    pattern: Pattern
    start: Start
    latest: int
    behind: int = 0
    """How many publications of the client are in front of it."""


def asked_of(pattern: bytes, latest: int, wall_us: int) -> Asked:
    """What the two fields of a SUBSCRIBE ask for at `wall_us`, microseconds since 1970. Raises `Refused`."""
    compiled = _pattern_of(pattern)
    if latest == LATEST_LIVE:
        return Asked(compiled, Start(StartKind.HEAD), 0)
    if latest >= FROM_PERIOD:
        return Asked(compiled, Start(StartKind.TIME, max(0, wall_us - (latest & _REST))), 0)
    if latest >= FROM_TIME:
        check_not_ahead(latest & _REST, wall_us, "the node's clock")
        return Asked(compiled, Start(StartKind.TIME, min(latest & _REST, wall_us)), 0)
    if latest > _REST:
        raise Refused("bad-start", f"latest {latest} is neither a sequence nor a time: see the ZEPS 1 reference")
    return Asked(compiled, Start(StartKind.SEQUENCE, latest + 1 if latest else 0), latest)


def said_of_latest(said: Refuse) -> Refused:
    """A refusal in the words of version 1, whose clients name the last sequence that they know, and not the next."""
    floor, head = said.details.get("floor"), said.details.get("head")
    if said.code == "below-floor" and isinstance(floor, int):
        message = (
            f"what comes behind this `latest` is no longer kept up to sequence {floor - 1}: subscribe with latest"
            f" {floor - 1} to go on behind it"
        )
        return Refused(said.code, message)
    if said.code == "above-head" and isinstance(head, int):
        message = (
            f"the newest sequence of the stream is {head}, below this `latest`: subscribe with at most {head}."
            " A client that had more had it of a stream that was removed, or of a journal that was put back"
        )
        return Refused(said.code, message)
    return Refused(said.code, said.message)


def _pattern_of(octets: bytes) -> Pattern:
    """With a scheme as written, else a prefix, whatever octets it has. Raises `Refused`."""
    try:
        return compile_pattern(octets.decode())
    except UnicodeDecodeError:
        return compile_pattern(prefix_text(octets))
