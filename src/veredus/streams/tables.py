"""The tables of the streams floor: what a snapshot holds and what facts change.

Every change of a table is a fact (veredus.streams.facts), journaled before anything that rests on it is said.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

import msgspec

from veredus.kernel.deadlines import Deadlines
from veredus.kernel.errors import Refused

from .ahead import Ahead
from .by_stream import ByStream
from .departures import Departures
from .facts import Contents, LeftAhead, StreamConfig
from .left import LeftSinks
from .listing import InOrder
from .places import Places
from .removed import Removed, lives_in
from .rights import Rights
from .shares import SOURCES, TOKENS, Shares
from .sinks import Sinks
from .stream import Stream
from .tail import TailBudget


class StreamsLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of the streams floor; sizes in bytes."""

    streams_max: int = 40_000
    tail_size_max: int = 64 << 20
    unsettled_max: int = 16_384
    push_size_max: int = 1 << 20
    """A push is not made any larger once it holds this much."""
    streams_per_principal_max: int = 20_000
    sources_per_principal_max: int = 20_000
    """Those that are attached."""
    kept_sources_per_principal_max: int = 200_000
    """Those that streams know, whether or not anybody is there. All peers that prove nothing count as one."""
    tokens_size_per_principal_max: int = 64 << 20
    """Of their resume tokens."""
    token_size_max: int = 4096
    """Of a resume token that comes by itself; one in a batch is measured where the batch is checked."""
    subscriptions_max: int = 40_000
    subscriptions_per_principal_max: int = 20_000
    """Durable ones, whether or not anybody is there. All peers that prove nothing count as one."""
    ephemeral_subscriptions_per_principal_max: int = 5_000
    """Those that are open. All peers that prove nothing count as one."""
    filters_size_per_principal_max: int = 16 << 20
    """Of their filters, as they are written."""
    cursor_ranges_per_principal_max: int = 1_000_000
    """Of their cursors together."""
    departures_per_creator_max: int = 50_000
    """Of removed subscriptions, that the streams of one creator remember together."""
    stages_max: int = 20_000
    stages_per_principal_max: int = 10_000
    filter_terms_per_principal_max: int = 20_000
    """Key patterns and operations in the filters of one principal's subscribers at once."""
    sinks_max: int = 20_000
    sinks_per_principal_max: int = 10_000
    """All peers that prove nothing count as one."""
    committed_streams_per_principal_max: int = 100_000
    """That the last commits of these name together: each is kept with its name and digest."""
    stage_lease_ns: int = 3600 * 1_000_000_000
    """How long open stages, and ephemeral sinks, stay when no channel of their run is open."""
    creates_on_use: bool = True
    """Whether a stream that does not exist comes into being when a permitted peer first publishes or subscribes to
    it."""
    snapshot_rows_max: int = 1_000
    """Of a snapshot, so many rows are taken in one turn: of sources, subscriptions, streams, sinks and stages."""
    snapshot_size_max: int = 512 << 10
    """No more of them are, once they have this much."""
    config: StreamConfig = StreamConfig()
    """How a stream that comes into being on first use is configured."""


PAST_RUNS_MAX = 16


@dataclass(slots=True)
class Stage:
    """Rows on their way to a stream, durable and invisible."""

    stage: int
    sink: str
    run_epoch: int
    stream_id: int
    stage_key: bytes
    count_assigned: int = 0
    count_durable: int = 0
    is_committing: bool = False
    session: int = 0
    """Who writes it now, 0 for nobody."""
    commit_id: int = -1
    """The commit that it is for, -1 where its sink does not say."""
    owner: str = ""
    """Whose room it takes: the owner of its sink when it was opened."""

    @property
    def attempt(self) -> tuple[bytes, int, int]:
        """What an attempt to write it names: who does so again gets the same stage."""
        return self.stage_key, self.run_epoch, self.stream_id


@dataclass(slots=True)
class Run:
    """The present run of a sink, and its last commit."""

    sink: str
    epoch: int = 0
    incarnation: bytes = b""
    commit_id: int = -1
    commit_streams: tuple[tuple[str, int, int], ...] = ()
    contents: tuple[Contents, ...] = ()
    """What the last commit put where: it belongs to its identity."""
    is_committing: bool = False
    coming_id: int = -1
    """The id of the commit that is on its way to the journal, while one is."""
    coming_count: int = 0
    """How many streams it names."""
    given_up_id: int = -1
    """The greatest commit that this run has given up, while this process remembers it."""
    past: tuple[bytes, ...] = ()
    """Incarnations of older runs, the newest last: a zombie must not take over again."""
    owner: str = ""
    """The principal whose sink it is, "" for nobody in particular."""
    is_durable: bool = False
    """Whether the journal has it."""
    is_ephemeral: bool = False
    """Whether it goes once nobody has been there for it for a while: nobody will ask for its commit again."""
    stages: dict[int, Stage] = field(default_factory=dict)
    """Those of the sink that are open, also of older runs while they are being committed."""
    attempts: dict[tuple[bytes, int, int], Stage] = field(default_factory=dict)
    """The last stage of each attempt; see `Stage.attempt`."""
    packed: bytes = b""
    """`commit_streams` as answers carry them, once one was asked for."""
    written: set[int] = field(default_factory=set)
    """Those of the open stages that somebody writes."""
    awaited: Deadlines[int] = field(default_factory=Deadlines)
    """The stages that are for a commit, by its id, until that is over."""

    @property
    def named_count(self) -> int:
        """How many streams the last commit names, or the one that is on its way if that is more."""
        return max(len(self.contents), len(self.commit_streams), self.coming_count)

    @property
    def detail(self) -> bytes:
        """Where the last commit lies, encoded once: all answers that say it share these bytes."""
        self.packed = self.packed or msgspec.msgpack.encode(self.commit_streams)
        return self.packed

    @property
    def over_id(self) -> int:
        """The greatest commit that is over, for which nothing is staged any more: it is done, or was given up."""
        return max(self.commit_id, self.given_up_id)

    def take_overdue(self) -> list[Stage]:
        """The open stages that are for commits which are over, each once; whoever takes them drops them."""
        due = (self.stages.get(number) for number in self.awaited.due(self.over_id))
        return [stage for stage in due if stage and not stage.is_committing]

    def await_commit(self, stage: Stage) -> None:
        """The stage is dropped once the commit is over that it is for, if it is for one."""
        if stage.commit_id >= 0:
            self.awaited.set(stage.stage, stage.commit_id)

    def forget(self, stage: Stage) -> None:
        """The stage is not open any more."""
        number, attempt = stage.stage, stage.attempt
        self.stages.pop(number, None)
        self.written.discard(number)
        self.awaited.clear(number)
        if self.attempts.get(attempt) is stage:
            del self.attempts[attempt]

    def begin(self, epoch: int, incarnation: bytes, owner: str) -> None:
        """A new run begins."""
        self.given_up_id = -1
        if self.incarnation:
            self.past = (*self.past, self.incarnation)[-PAST_RUNS_MAX:]
        self.epoch = epoch
        self.incarnation = incarnation
        self.owner = owner


class Tables:
    """Owns all streams, runs and stages of a node, and the numbers that name the next ones."""

    __slots__ = (
        "_stages_of",
        "ahead",
        "budget",
        "created_by",
        "departures",
        "ids",
        "left",
        "left_with_stages",
        "limits",
        "next_stage",
        "next_stream_id",
        "places",
        "removed",
        "removed_count",
        "rights",
        "runs",
        "shares",
        "size_of",
        "stage_counts",
        "stages",
        "streams",
        "streams_by_id",
        "streams_version",
    )

    def __init__(
        self,
        limits: StreamsLimits,
        ids: Callable[[], bytes],
        rights: Rights,
        size_of: Callable[[int], int],
    ) -> None:
        """Empty tables.

        `ids` gives 16 random bytes at each call; `rights` guard every listener; `size_of(stream_id)` is what the
        journal keeps of a stream, in bytes.
        """
        self.size_of = size_of
        self.limits = limits
        self.ids = ids
        self.places = Places(ids)
        self.rights = rights
        self.budget = TailBudget(limits.tail_size_max)
        self.streams: InOrder[str, Stream] = InOrder()
        self.streams_by_id: dict[int, Stream] = {}
        self.runs = Sinks()
        self.stages: InOrder[int, Stage] = InOrder()
        self._stages_of: ByStream[int, Stage] = ByStream()
        """By number, those that are meant for a stream."""
        self.stage_counts: dict[str, int] = {}
        """How many of them take whose room."""
        self.left = LeftSinks()
        self.left_with_stages = LeftSinks()
        """No other is looked at for the room of its stages."""
        self.created_by: dict[str, int] = {}
        self.departures = Departures(limits.departures_per_creator_max)
        self.ahead = Ahead(limits.departures_per_creator_max)
        self.removed = Removed()
        self.shares = Shares()
        """What the sources of each owner keep, in all streams."""
        self.next_stream_id = 1
        self.next_stage = 1
        self.streams_version = 0
        """How often a stream came or went."""
        self.removed_count = 0
        """How often a stream, a subscription, a sink or a stage went: there may be room again."""

    def add_stream(self, stream: Stream) -> None:
        """Know a stream from now on."""
        self.streams_version += 1
        self.streams[stream.name] = stream
        self.created_by[stream.creator] = self.created_by.get(stream.creator, 0) + 1
        self.streams_by_id[stream.stream_id] = stream
        self.next_stream_id = max(self.next_stream_id, stream.stream_id + 1)
        for left in self.ahead.take(stream.name):
            self.note_ahead(left)

    def note_ahead(self, left: LeftAhead) -> None:
        """A principal has left a stream that was not here when it asked for that."""
        stream = self.streams.get(left.stream)
        if stream is None:
            self.ahead.note(left)
        else:
            key = left.subscriber, left.name
            self.departures.note(stream, *key, left.removed_us, left.wish, left.principal)

    def remove_stream(self, stream_id: int, is_removed: bool) -> None:
        """Forget a stream; `is_removed`: nothing of it is owed to anybody. What hung on it is not open any more, and is
        let go by whoever removes it.
        """
        self.streams_version += 1
        self.removed_count += 1
        stream = self.streams_by_id.pop(stream_id)
        if is_removed:
            self.removed.note(stream.name, lives_in(stream), stream.creator)
        del self.streams[stream.name]
        self.created_by[stream.creator] -= 1
        stream.is_deleted = True
        for (subscriber, key, principal), left in stream.left.items():
            if left.wish:
                self.ahead.note(LeftAhead(stream.name, subscriber, key, left.removed_us, left.wish, principal))
        stream.tail.forget()
        self.departures.forget(stream)
        stream.shares.forget()

    def add_stage(self, stage: Stage) -> None:
        """Know an open stage of a sink that is there."""
        run = self.runs[stage.sink]
        self.stages[stage.stage] = run.stages[stage.stage] = run.attempts[stage.attempt] = stage
        self._stages_of.put(stage.stream_id, stage.stage, stage)
        run.await_commit(stage)
        stage.owner = run.owner
        self.stage_counts[stage.owner] = self.stage_counts.get(stage.owner, 0) + 1

    def stages_of(self, stream_id: int) -> Collection[int]:
        """The numbers of those that are, or were, meant for a stream."""
        return self._stages_of.of(stream_id).keys()

    def open_stage(self, number: int) -> Stage | None:
        """The stage of this number; None where there is none, or its stream was deleted."""
        stage = self.stages.get(number)
        return None if stage is None or stage.stream_id not in self.streams_by_id else stage

    def newer_run(self, sink: str, epoch: int) -> Run | None:
        """The run that has fenced the one of this epoch; None where there is none."""
        run = self.runs.get(sink)
        return None if run is None or run.epoch <= epoch else run

    def take_stages(self, numbers: Iterable[int]) -> list[Stage]:
        """Forget open stages; those of these numbers that there were."""
        stages = self.stages.take_all(numbers)
        self.removed_count += len(stages)
        for owner, count in Counter(stage.owner for stage in stages).items():
            self.stage_counts[owner] -= count
            if not self.stage_counts[owner]:
                del self.stage_counts[owner]
        for stage in stages:
            self._stages_of.take(stage.stream_id, stage.stage)
            run = self.runs.get(stage.sink)
            if run is not None:
                run.forget(stage)
        return stages

    def write_stage(self, stage: Stage, session: int) -> None:
        """An open stage is written by this session, 0 for nobody."""
        stage.session = session
        run = self.runs.get(stage.sink)
        if run is not None and stage.stage in run.stages:
            (run.written.add if session else run.written.discard)(stage.stage)

    def note_left(self, sink: str) -> None:
        """Somebody is not there any more for the sink: if it is ephemeral, it may go when there is no room."""
        run = self.runs.get(sink)
        if run is not None and run.is_ephemeral:
            self.left.put(sink, run.owner)
            if run.stages:
                self.left_with_stages.put(sink, run.owner)

    def check_share(self, owner: str, count: int, size: int) -> None:
        """Raise `Refused` where an owner would keep too much with so many more sources, and bytes of their tokens.

        Its code is `too-many-sources` or `tokens-too-large`.
        """
        share, limits = self.shares.of(owner), self.limits
        most, size_max = limits.kept_sources_per_principal_max, limits.tokens_size_per_principal_max
        SOURCES.check(owner, count, most - share.count, most)
        TOKENS.check(owner, size, size_max - share.size, size_max)

    def existing(self, name: str) -> Stream:
        """The stream of this name. Raises `Refused("unknown-stream")`."""
        stream = self.streams.get(name)
        if stream is None:
            raise unknown_stream(name)
        return stream


def unknown_stream(name: str) -> Refused:
    """The refusal of what is asked of a stream that is not there."""
    said = f"there is no stream {name!r}: `veredus stream ls` lists the streams that you may describe"
    return Refused("unknown-stream", said, stream=name)
