"""What the links of all dialects share: how their sessions are numbered, and what the node says to them."""

from __future__ import annotations

from dataclasses import dataclass

SESSION_BITS = 32
"""A session is `link << SESSION_BITS | channel`: the join finds the link of an answer without a table."""


def session_of(link: int, channel: int) -> int:
    """The session that a channel of a link is to the streams floor."""
    return link << SESSION_BITS | channel


@dataclass(frozen=True, slots=True)
class DrainRequested:
    """The node stops: say goodbye to whoever is there and close the link."""

    link: int
    message: str = ""


@dataclass(frozen=True, slots=True)
class ReadingPaused:
    """The node has stopped reading from the link: its silence is not the peer's."""

    link: int


@dataclass(frozen=True, slots=True)
class ReadingResumed:
    """The node reads from the link again."""

    link: int
