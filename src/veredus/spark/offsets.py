"""Places in streams as Spark keeps them, and the blocks that a range of them is read in.

Spark compares offsets as text and writes them to its checkpoint, so they have one fixed form, and say for each stream
which incarnation of it they belong to. It keeps no start of the first batch: each offset says where its query began.
A range is cut at fixed sequences: the same two offsets always give the same blocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeAlias

import msgspec

from veredus.kernel.errors import Refused
from veredus.kernel.terms import Terms


@dataclass(frozen=True)
class StreamOffset:
    """Everything from `began` to before `sequence` has been read, in this incarnation (hexadecimal) of this stream."""

    stream: str
    incarnation: str
    sequence: int
    began: int
    terms: Terms = ()
    """Those of the stream when this was planned, for what was read may be lost since; none where they are not known."""
    is_passed: bool = False
    """Whether the stream was gone, or another one had its name, and the query was allowed to go on without it."""

    @property
    def is_initial(self) -> bool:
        """Whether nothing has been read yet."""
        return self.sequence == self.began


Offsets: TypeAlias = dict[str, StreamOffset]
"""For each stream that a query reads where it stands."""
Stored: TypeAlias = dict[str, object]
"""Offsets as Spark keeps them."""


@dataclass(frozen=True)
class Block:
    """Sequences from `first` to before `until`, which one task reads."""

    first: int
    until: int


class _StoredOffset(msgspec.Struct, forbid_unknown_fields=True):
    began: int
    incarnation: str
    sequence: int
    terms: Terms = ()
    passed: bool = False


class _StoredOffsets(msgspec.Struct, forbid_unknown_fields=True):
    streams: dict[str, _StoredOffset]


def stored_of(offsets: Offsets) -> Stored:
    """Offsets as Spark stores them, in the order of their names: equal offsets give equal text."""
    return {"streams": {name: _stored(at) for name, at in sorted(offsets.items())}}


def _stored(at: StreamOffset) -> Stored:
    stored: Stored = {"began": at.began, "incarnation": at.incarnation, "sequence": at.sequence}
    # As versions stored it that knew no terms, and passed over no stream.
    stored |= {"terms": [list(term) for term in at.terms]} if at.terms else {}
    return stored | ({"passed": True} if at.is_passed else {})


def offsets_of(stored: Mapping[str, object]) -> Offsets:
    """The offsets that Spark hands back. Raises `Refused("bad-offset")` when they are none of ours."""
    try:
        found = msgspec.convert(stored, _StoredOffsets)
    except msgspec.ValidationError:
        message = f"the checkpoint holds {dict(stored)!r}, which is not an offset of a Veredus stream"
        raise Refused("bad-offset", message) from None
    return {
        name: StreamOffset(name, at.incarnation, at.sequence, at.began, at.terms, at.passed)
        for name, at in found.streams.items()
    }


def started_as(start: StreamOffset | None, end: StreamOffset) -> StreamOffset:
    """Where a range really begins that Spark says goes from `start` to `end`.

    Spark asks anew where a query begins whose first batch was not committed, and the answer may have changed: by what
    was trimmed or appended meanwhile. The end of that batch was kept, and says where it began. So it is too with a
    stream that was not there before, also where another one had its name.
    """
    if start is None or start.is_initial or start.incarnation != end.incarnation:
        return replace(end, sequence=end.began)
    return start


def check_range(start: StreamOffset, end: StreamOffset, head: int) -> None:
    """Raise `Refused("bad-offset")` for an end below the start or beyond the newest row, which a node that lost its
    journal would have.
    """
    if end.sequence < start.sequence:
        raise Refused("bad-offset", f"the range to read ends at {end.sequence}, before its start {start.sequence}")
    if end.sequence > head + 1:
        raise Refused(
            "bad-offset",
            f"the checkpoint contains sequence {end.sequence - 1} of stream {end.stream!r}, but the newest one of the"
            f" node is {head}: was its journal put back to an earlier state?",
            head=head,
        )


def other_stream(stored: str, wanted: str) -> Refused:
    """What is said when a checkpoint is of a stream that the query does not read."""
    return Refused(
        "stream-replaced",
        f"the checkpoint was written by a query that read stream {stored!r}, and this query reads {wanted!r}:"
        " use another checkpointLocation",
        stream=stored,
    )


def blocks_of(first: int, until: int, size: int) -> list[Block]:
    """The blocks of `first` to before `until`, cut behind every sequence that `size` divides."""
    cuts = range((first - 1) // size * size + 1 + size, until, size)
    edges = [first, *cuts, until]
    return [Block(low, high) for low, high in pairwise(edges) if low < high]


def limited_end(first: int, until: int, count_max: int, block_size: int) -> int:
    """Where a range from `first` of at most `count_max` rows ends: at `until`, or else at a block's edge if it can."""
    if until - first <= count_max:
        return max(first, until)
    end = first + count_max
    edge = (end - 1) // block_size * block_size + 1
    return edge if edge > first else end


def shares_of(backlogs: Mapping[str, int], count_max: int) -> dict[str, int]:
    """How many rows of each stream a batch of at most `count_max` takes: by what each has waiting, at least one.

    So it may be more than `count_max`, by one for each stream that has little.
    """
    total = sum(backlogs.values())
    if total <= count_max:
        return dict(backlogs)
    return {name: max(1, count_max * backlog // total) for name, backlog in backlogs.items() if backlog}
