"""Places in a stream as Spark keeps them, and the blocks that a range of them is read in.

Spark compares offsets as text and writes them to its checkpoint, so they have one fixed form, and say which incarnation
of which stream they belong to. A range is cut at fixed sequences: the same two offsets always give the same blocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from veredus.kernel.errors import Refused


@dataclass(frozen=True)
class StreamOffset:
    """Everything before `sequence` has been read, in this incarnation (hexadecimal) of this stream."""

    stream: str
    incarnation: str
    sequence: int

    def to_json(self) -> dict[str, str | int]:
        """The offset as Spark stores it, keys sorted: equal offsets give equal text."""
        return {"incarnation": self.incarnation, "sequence": self.sequence, "stream": self.stream}


@dataclass(frozen=True)
class Block:
    """Sequences from `first` to before `until`, which one task reads."""

    first: int
    until: int


def offset_of(stored: Mapping[str, object]) -> StreamOffset:
    """The offset that Spark hands back. Raises `Refused("bad-offset")` when it is none of ours."""
    stream, incarnation, sequence = (stored.get(name) for name in ("stream", "incarnation", "sequence"))
    if not (isinstance(stream, str) and isinstance(incarnation, str) and isinstance(sequence, int)):
        raise Refused("bad-offset", f"the checkpoint holds {dict(stored)!r}, which is no offset of a Veredus stream")
    return StreamOffset(stream, incarnation, sequence)


def check_range(start: StreamOffset, end: StreamOffset, stream: str, incarnation: str, head: int) -> None:
    """Raise `Refused` unless the range can be read from the stream as it is now.

    Codes: `stream-replaced` for another stream or incarnation than the checkpoint's, `bad-offset` for an end below the
    start or beyond the newest row, which a node that lost its journal would have.
    """
    for offset in (start, end):
        if offset.stream != stream:
            raise Refused(
                "stream-replaced",
                f"the checkpoint was written by a query that read stream {offset.stream!r}, this one reads {stream!r}:"
                " take another checkpointLocation",
                stream=offset.stream,
            )
        if offset.incarnation != incarnation:
            raise Refused(
                "stream-replaced",
                f"stream {stream!r} was deleted and created again since the checkpoint was written: its rows are"
                " others now; take another checkpointLocation to read them",
                stream=stream,
            )
    if end.sequence < start.sequence:
        raise Refused("bad-offset", f"the range to read ends at {end.sequence}, before its start {start.sequence}")
    if end.sequence > head + 1:
        raise Refused(
            "bad-offset",
            f"the checkpoint speaks of sequence {end.sequence - 1} of stream {stream!r}, the node knows none"
            f" above {head}: has its journal been put back to an earlier state?",
            head=head,
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
