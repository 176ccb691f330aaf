"""The tables as one snapshot, which is taken over several turns: there may be hundreds of thousands of sources.

    begun: the rows of all but the sources, of one moment ──► encoded row by row, and the sources with them, in turns

A source is taken as it is when its turn comes. What came to it since the beginning is in the journal behind the place
where recovery starts, and is replayed over it: each record says what the source is from then on.

Invariants
    (1) Only what is in the journal is taken.
    (2) A turn takes no more rows, and hardly more bytes, than it is told to: a single row may exceed that.
Source: docs/internals/DESIGN.md, "Checkpoints and space".
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import NamedTuple

import msgspec

from veredus.kernel.gathered import Gathered

from .facts import NOTHING_HAD, Contents, Gone, Had, LeftAhead, StreamCreated, SubscriptionOpened
from .reopening import Reopening
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


class _LeftRow(msgspec.Struct, array_like=True):
    subscriber: str
    name: str
    removed_us: int
    wish: int = 0
    had: Had = NOTHING_HAD


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
    left: list[_LeftRow] = []
    weave: tuple[tuple[int, int], ...] = ()
    left_by: list[str] = []
    """Whose each of `left` was."""
    gone: tuple[Gone, ...] = ()
    merged: tuple[bytes, ...] = ()


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
    commit_id: int = -1


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
    removed_by: list[str] = []
    """Who had created each of `removed`."""
    ahead: list[LeftAhead] = []
    """Who left streams that are not there; see `Ahead`."""


_encode = msgspec.msgpack.Encoder().encode
decode_snapshot = msgspec.msgpack.Decoder(Snapshot).decode
decode_sources = msgspec.msgpack.Decoder(list[SourceRow]).decode
_NOTHING = msgspec.Raw(_encode(()))
_LONG_LIST_HEAD = struct.Struct(">BI")
_LONG_LIST = 0xDD
_SHORT_LIST = 0x90
_SHORT_LIST_MAX = 15
_MAP = 0x80
"""How msgpack begins lists and small maps."""
_LOOKED_AT = 64
"""To look at so many sources takes as long as to take one."""
_RANGES = 16
"""To take so many ranges of a cursor takes as long as to take a row."""


class _StreamTaken(NamedTuple):
    """A stream as it was at the beginning, but for its sources; `row` has neither these nor the subscriptions."""

    row: StreamRow
    sources: tuple[SourceState, ...]
    subscriptions: list[tuple[Reopening, bool]]
    """Each with whether somebody is attached to it."""

    @classmethod
    def of(cls, stream: Stream) -> _StreamTaken:
        """As the stream is now."""
        subscriptions = [(Reopening.of(s), s.is_attached) for s in stream.subscriptions.values()]
        return cls(_stream_row(stream), tuple(stream.sources.values()), subscriptions)


class Taking:
    """Owns a snapshot that is being taken."""

    __slots__ = ("_steps", "state")

    def __init__(self, tables: Tables) -> None:
        """All but the sources is taken at once, as far as it is durable. What is on its way to the journal is behind
        the snapshot, and will be replayed.
        """
        self.state = Gathered()
        """The encoded snapshot, as far as it was taken."""
        streams = [_StreamTaken.of(stream) for stream in tables.streams.values()]
        removed = tables.removed.rows()
        snapshot = Snapshot(
            SNAPSHOT_VERSION,
            tables.next_stream_id,
            tables.next_stage,
            [],
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
                _StageRow(s.stage, s.sink, s.run_epoch, s.stream_id, s.stage_key, s.count_durable, s.commit_id)
                for s in tables.stages.values()
                if s.stream_id in tables.streams_by_id
            ],
            [(name, lives) for name, lives, _ in removed],
            [creator for _, _, creator in removed],
            list(tables.ahead.rows()),
        )
        self._steps = self._take(snapshot, streams)

    def go_on(self, count: int, size: int) -> bool:
        """Take up to `count` more rows, and no more once they have `size` bytes; returns whether all are taken."""
        size_then = self.state.size + size
        for _ in self._steps:
            count -= 1
            if count <= 0 or self.state.size >= size_then:
                return False
        return True

    # Each of these pauses after each row, as often as that counts for rows.

    def _take(self, snapshot: Snapshot, streams: Sequence[_StreamTaken]) -> Iterator[None]:
        fields = msgspec.structs.asdict(snapshot)
        self.state.add(bytes((_MAP | len(fields),)))
        for name, value in fields.items():
            self.state.add(_encode(name))
            if name == "streams":
                self.state.add(_list_head(len(streams)))
                for stream in streams:
                    yield from self._take_stream(stream)
            elif isinstance(value, list):
                yield from self._take_rows(value, len(value))
            else:
                self.state.add(_encode(value))

    def _take_stream(self, stream: _StreamTaken) -> Iterator[None]:
        fields = msgspec.structs.asdict(stream.row)
        self.state.add(_list_head(len(fields)))
        for name, value in fields.items():
            if name == "sources":
                yield from self._take_sources(stream.sources)
            elif name == "subscriptions":
                yield from self._take_subscriptions(stream.subscriptions)
            else:
                self.state.add(_encode(value))
        yield

    def _take_rows(self, rows: Iterable[object], count: int) -> Iterator[None]:
        self.state.add(_list_head(count))
        for row in rows:
            self.state.add(_encode(row))
            yield

    def _take_subscriptions(self, subscriptions: Sequence[tuple[Reopening, bool]]) -> Iterator[None]:
        self.state.add(_list_head(len(subscriptions)))
        for opened, is_attached in subscriptions:
            fact = opened.fact()
            self.state.add(_encode(_SubscriptionRow(fact, is_attached)))
            yield from repeat(None, 1 + len(fact.settled) // _RANGES)

    def _take_sources(self, sources: tuple[SourceState, ...]) -> Iterator[None]:
        granted: list[SourceState] = []
        for start in range(0, len(sources), _LOOKED_AT):
            granted += [source for source in sources[start : start + _LOOKED_AT] if source.granted[0]]
            yield
        self.state.add(_list_head(len(granted)))
        for source in granted:
            self.state.add(_encode(_source_row(source)))
            yield


def _list_head(count: int) -> bytes:
    return bytes((_SHORT_LIST | count,)) if count <= _SHORT_LIST_MAX else _LONG_LIST_HEAD.pack(_LONG_LIST, count)


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
        [],
        list(stream.terms),
        [_LeftRow(subscriber, name, *left) for (subscriber, name, _), left in stream.left.items()],
        stream.weave,
        [principal for _, _, principal in stream.left],
        stream.gone,
        stream.merged,
    )
