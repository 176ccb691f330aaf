"""What an append is made of: requests that wait, the group that is under way, and the segment that is made ahead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .catalogue import Segment
from .exchange import Entry


@dataclass(slots=True)
class Append:
    """One request that waits; `size`, and by how much it makes the state larger, in bytes; facts alone may use the
    reserve.
    """

    token: int
    entries: Sequence[Entry]
    size: int
    growth: int
    is_facts: bool
    is_synced: bool
    payer: str | None
    is_freeing: bool


@dataclass(slots=True)
class Group:
    """What is under way to the disk: `placed` are (entry, offset) of its records."""

    token: int
    segment: Segment
    end: int
    size: int
    appends: Sequence[Append]
    placed: Sequence[tuple[Entry, int]]
    is_synced: bool


@dataclass(slots=True)
class NextSegment:
    """The segment that is made ahead; `token` is 0 once the disk has answered."""

    number: int
    size: int
    recycles: int | None
    token: int
    has_failed: bool = False

    @property
    def is_ready(self) -> bool:
        """Whether groups can be written to it."""
        return self.token == 0 and not self.has_failed
