"""The tables as one snapshot, which is taken over several turns: there may be hundreds of thousands of sources.

    begun: all but the sources, of one moment ──► sources, some in each turn ──► encoded

A source is taken as it is when its turn comes. What came to it since the beginning is in the journal behind the place
where recovery starts, and is replayed over it: each record says what the source is from then on.

Invariant: only what is in the journal is taken.
Source: docs/internals/DESIGN.md, "Checkpoints and space".
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterator
from itertools import islice

import msgspec

from .facts import Contents, StreamCreated, SubscriptionOpened
from .source import SourceState
from .stream import Stream
from .tables import Tables

SNAPSHOT_VERSION = 1


class SourceRow(msgspec.Struct, array_like=True):
    """What a stream knows of a source."""

    source_id: int
    name: str
    is_sparse: bool
    epoch: int
    incarnation: bytes
    last_number: int
    last_sequence: int
    token: bytes
    token_number: int
    owner: str = ""


class _SubscriptionRow(msgspec.Struct, array_like=True):
    opened: SubscriptionOpened
    is_attached: bool


class StreamRow(msgspec.Struct, array_like=True):
    """A stream, with its sources and subscriptions."""

    created: StreamCreated
    term: int
    floor: int
    head: int
    append_time_us: int
    next_source_id: int
    sources: msgspec.Raw
    """A list of `SourceRow`, which may be long."""
    subscriptions: list[_SubscriptionRow]
    terms: list[tuple[int, int]] = []
    left: list[tuple[str, str, int, int]] = []
    weave: tuple[tuple[int, int], ...] = ()
    left_by: list[str] = []
    """Whose each of `left` was."""


class _RunRow(msgspec.Struct, array_like=True):
    sink: str
    epoch: int
    incarnation: bytes
    commit_id: int
    commit_streams: tuple[tuple[str, int, int], ...]
    past: tuple[bytes, ...] = ()
    contents: tuple[Contents, ...] = ()
    owner: str = ""
    is_ephemeral: bool = False


class _StageRow(msgspec.Struct, array_like=True):
    stage: int
    sink: str
    run_epoch: int
    stream_id: int
    stage_key: bytes
    count: int


class Snapshot(msgspec.Struct):
    """All tables."""

    version: int
    next_stream_id: int
    next_stage: int
    streams: list[StreamRow]
    runs: list[_RunRow]
    stages: list[_StageRow]
    removed: list[tuple[str, tuple[bytes, ...]]] = []
    """By name, the lives of streams that were removed; see `Removed`."""


_encode = msgspec.msgpack.Encoder().encode
decode_snapshot = msgspec.msgpack.Decoder(Snapshot).decode
decode_sources = msgspec.msgpack.Decoder(list[SourceRow]).decode
_NOTHING = msgspec.Raw(_encode(()))
_LIST_HEAD = struct.Struct(">BI")
_LIST_32 = 0xDD
"""How msgpack begins a list of any length, which four bytes then say."""


class Taking:
    """Owns a snapshot that is being taken."""

    __slots__ = ("_left", "_snapshot")

    def __init__(self, tables: Tables) -> None:
        """All but the sources is taken at once, as far as it is durable. What is on its way to the journal is behind
        the snapshot, and will be replayed.
        """
        self._snapshot = Snapshot(
            SNAPSHOT_VERSION,
            tables.next_stream_id,
            tables.next_stage,
            [_stream_row(stream) for stream in tables.streams.values()],
            [
                _RunRow(
                    r.sink,
                    r.epoch,
                    r.incarnation,
                    r.commit_id,
                    r.commit_streams,
                    r.past,
                    r.contents,
                    r.owner,
                    r.is_ephemeral,
                )
                for r in tables.runs.values()
            ],
            [
                _StageRow(s.stage, s.sink, s.run_epoch, s.stream_id, s.stage_key, s.count_durable)
                for s in tables.stages.values()
            ],
            tables.removed.rows(),
        )
        streams = zip(tables.streams.values(), self._snapshot.streams, strict=True)
        self._left = deque(_Sources(stream, row) for stream, row in streams if stream.sources)

    def go_on(self, count: int) -> bool:
        """Take up to `count` more sources; returns whether all are taken."""
        while self._left and count:
            count -= self._left[0].take(count)
            if count:
                self._left.popleft().finish()
        return not self._left

    def encoded(self) -> bytes:
        """The snapshot, once all is taken."""
        assert not self._left, "sources are left"
        return _encode(self._snapshot)


class _Sources:
    """The sources of one stream, on their way to its row."""

    __slots__ = ("_count", "_left", "_parts", "_row")

    def __init__(self, stream: Stream, row: StreamRow) -> None:
        self._row = row
        self._left: Iterator[SourceState] = iter(tuple(stream.sources.values()))
        self._parts: list[bytes] = []
        self._count = 0

    def take(self, count: int) -> int:
        """Take up to `count` more; returns how many there were."""
        taken = tuple(islice(self._left, count))
        rows = [_encode(_source_row(source)) for source in taken if source.granted[0]]
        self._parts.append(b"".join(rows))
        self._count += len(rows)
        return len(taken)

    def finish(self) -> None:
        """All were taken."""
        self._row.sources = msgspec.Raw(b"".join((_LIST_HEAD.pack(_LIST_32, self._count), *self._parts)))


def _source_row(source: SourceState) -> SourceRow:
    epoch, incarnation, owner = source.granted
    return SourceRow(
        source.source_id,
        source.name,
        source.is_sparse,
        epoch,
        incarnation,
        source.last_durable,
        source.last_sequence,
        source.token,
        source.token_number,
        owner,
    )


def _stream_row(stream: Stream) -> StreamRow:
    return StreamRow(
        stream.created(),
        stream.term,
        stream.floor,
        stream.head_durable,
        stream.append_time_us,
        stream.next_source_id,
        _NOTHING,
        [_SubscriptionRow(s.opened(), s.is_attached) for s in stream.subscriptions.values()],
        list(stream.terms),
        [(subscriber, name, *left) for (subscriber, name, _), left in stream.left.items()],
        stream.weave,
        [principal for _, _, principal in stream.left],
    )
