"""What an append is made of: requests that wait, the group that is under way, and the segment that is made ahead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from veredus.delivery.record import RecordKind

from .catalogue import Segment
from .exchange import AppendRequested, Entry
from .layout import growth_of


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

    @property
    def facts_size(self) -> int:
        """Bytes of facts, where it carries nothing else."""
        return self.size if self.is_facts else 0


def append_of(event: AppendRequested) -> Append:
    """The request, measured."""
    size = growth = 0
    is_facts = True
    for entry in event.entries:
        size += len(entry.record)
        growth += growth_of(entry.kind, entry.record)
        is_facts = is_facts and entry.kind == RecordKind.FACT
    return Append(event.token, event.entries, size, growth, is_facts, event.is_synced, event.payer, event.is_freeing)


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
