"""A snapshot of the tables, and the facts and batches behind it: how a node knows again what it knew.

Invariants
    (1) What damage took from the tables is not given again: no id that a record or a fact names, no sequence that a
    cursor has passed.
    (2) What no table knows, since damage took the fact that made it, is named.
    (3) Sources may be known from behind the snapshot already: what is replayed of them says what they are, never what
    they have more.
Source: docs/internals/DESIGN.md, "Recovery" and "Checkpoints and space".
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import msgspec

from veredus.delivery.batch import BatchHeader, read_header
from veredus.delivery.record import RecordKind, RecordView
from veredus.journal.exchange import StreamDropped
from veredus.kernel.effects import Note
from veredus.kernel.errors import Refused
from veredus.kernel.octets import Octets

from .committing import Committing
from .creating import Creating
from .facts import (
    Committed,
    Fact,
    LeftAhead,
    SourceOpened,
    SourcesRaised,
    StagesDropped,
    StreamDeleted,
    StreamTrimmed,
    SubscriptionOpened,
    SubscriptionRemoved,
    SubscriptionRenewed,
    SubscriptionSettled,
    SubscriptionTold,
    TokenStored,
    decode_fact,
)
from .feeding import Change
from .moving import apply_move, apply_renewal
from .orders import Orders
from .publishing import record_batch
from .runs import Runs
from .snapshot import SNAPSHOT_VERSION, StreamRow, decode_snapshot, decode_sources
from .source import SourceState
from .stream import Stream
from .subscription import Subscription
from .tables import Run, Stage, Tables


@dataclass(slots=True)
class _Orphan:
    """What is lost with a stream, or nameless with a source, that no fact made; `records` are the batches of it, which
    the journal keeps.
    """

    records: int = 0
    publications: int = 0
    first_sequence: int = 0
    last_sequence: int = 0

    def take(self, first_sequence: int, count: int, records: int) -> None:
        self.records += records
        self.publications += count
        self.first_sequence = self.first_sequence or first_sequence
        self.last_sequence = first_sequence + count - 1


class Replay:
    """Fills the tables from a snapshot and from the records behind it, in their order."""

    __slots__ = ("_committing", "_creating", "_deleted", "_nameless", "_orders", "_orphans", "_runs", "_tables")

    def __init__(self, tables: Tables, orders: Orders, creating: Creating, committing: Committing, runs: Runs) -> None:
        self._tables = tables
        self._orders = orders
        self._creating = creating
        self._committing = committing
        self._runs = runs
        self._orphans: dict[int, _Orphan] = {}
        self._nameless: dict[tuple[Stream, int], tuple[_Orphan, BatchHeader]] = {}
        """By stream and id, sources that no fact made, and the last batch of each."""
        self._deleted: dict[int, None] = {}
        """Streams whose end was replayed: what was on its way to them then is no orphan."""

    def load(self, state: bytes) -> None:
        """Take a snapshot. Raises `Refused`: `newer-format` for one that a later version wrote, `wrong-journal`."""
        tables = self._tables
        try:
            taken = decode_snapshot(state)
            if taken.version != SNAPSHOT_VERSION:
                raise Refused(
                    "newer-format",
                    f"the snapshot has version {taken.version}, and this Veredus reads version {SNAPSHOT_VERSION}: use"
                    " a newer Veredus",
                )
            # Each row goes as what is made of it comes: of a hundred thousand, both would take twice the memory for
            # good.
            taken.streams.reverse()
            while taken.streams:
                self._load_stream(taken.streams.pop())
        except msgspec.DecodeError as error:
            raise _not_known("the snapshot", state, "version", error) from None
        tables.next_stream_id = taken.next_stream_id
        tables.next_stage = taken.next_stage
        for run in taken.runs:
            tables.runs[run.sink] = Run(
                run.sink,
                run.epoch,
                run.incarnation,
                run.commit_id,
                run.commit_streams,
                run.contents,
                past=run.past,
                owner=run.owner,
                is_durable=True,
                is_ephemeral=run.is_ephemeral,
            )
        for stage in taken.stages:
            tables.add_stage(
                Stage(
                    stage.stage,
                    stage.sink,
                    stage.run_epoch,
                    stage.stream_id,
                    stage.stage_key,
                    stage.count,
                    stage.count,
                    commit_id=stage.commit_id,
                )
            )
        creators = taken.removed_by or [""] * len(taken.removed)
        for (name, lives), creator in zip(taken.removed, creators, strict=True):
            tables.removed.note(name, lives, creator)
        for left in taken.ahead:
            tables.ahead.note(left)

    def _load_stream(self, row: StreamRow) -> None:
        created = row.created
        stream = Stream(created, self._tables.budget, self._tables.shares)
        stream.terms = row.terms or [(row.term, 1)]
        stream.floor = row.floor
        stream.become_durable(row.head)
        stream.append_time_us = row.append_time_us
        for source in decode_sources(row.sources):
            state = stream.add_source(source.source_id, source.name, source.is_sparse)
            state.open(source.epoch, source.incarnation, source.owner)
            state.become_granted(source.epoch, source.incarnation, source.owner)
            state.last_assigned = state.last_durable = source.last_number
            state.last_sequence = source.last_sequence
            state.keep_token(source.token_number, source.token)
        # Those that came while the snapshot was taken are among them.
        stream.next_source_id = max(stream.next_source_id, row.next_source_id)
        for subscription in row.subscriptions:
            self._open(stream, subscription.opened)
            stream.subscriptions[
                subscription.opened.subscriber, subscription.opened.name
            ].is_attached = subscription.is_attached
        for left, principal in zip(row.left, row.left_by, strict=True):
            known = left.subscriber, left.name, left.removed_us, left.wish
            self._tables.departures.note(stream, *known, principal, left.had)
        stream.weave, stream.gone, stream.merged = row.weave, row.gone, row.merged
        self._tables.add_stream(stream)

    def take(self, view: RecordView) -> None:
        """Take the next record. Records of streams that are gone are passed over."""
        kind = view.envelope.kind
        if kind == RecordKind.FACT:
            try:
                fact = decode_fact(view.payload)
            except msgspec.DecodeError as error:
                raise _not_known("a fact", view.payload, "type", error) from None
            self._apply(fact)
        elif kind == RecordKind.BATCH:
            self._take_batch(view)
        elif kind == RecordKind.STAGED:
            number, header = view.envelope.first_sequence, read_header(view.body)
            self._note_stage(number)
            self._note_stream_id(header.stream_id)
            stage = self._tables.stages.get(number)
            if stage is not None:
                stage.count_durable = max(stage.count_durable, header.first_number - 1) + header.count
                stage.count_assigned = stage.count_durable

    def _take_batch(self, view: RecordView) -> None:
        header = read_header(view.body)
        self._note_stream_id(header.stream_id)
        stream = self._tables.streams_by_id.get(header.stream_id)
        if stream is None:
            self._note_orphaned(header.stream_id, view.envelope.first_sequence, header.count, records=1)
            return
        stream.next_source_id = max(stream.next_source_id, header.source_id + 1)
        source = stream.source_at(header.source_id)
        first = view.envelope.first_sequence
        if source is not None:
            record_batch(source, header, view.memory, first)
        elif header.source_id:
            orphan, _ = self._nameless.get((stream, header.source_id), (_Orphan(), header))
            orphan.take(first, header.count, records=1)
            self._nameless[stream, header.source_id] = orphan, header
        stream.become_durable(first + header.count - 1)
        stream.append_time_us = max(stream.append_time_us, view.envelope.append_time_us)

    def _note_stream_id(self, stream_id: int) -> None:
        """The stream was there. Where damage took the fact that made it, its id must not come again: publications of
        another would seem to be its own.
        """
        self._tables.next_stream_id = max(self._tables.next_stream_id, stream_id + 1)

    def _note_stage(self, number: int) -> None:
        """The stage was there. Its number must not come again either: its rows would pass for those of another."""
        self._tables.next_stage = max(self._tables.next_stage, number + 1)

    def _note_orphaned(self, stream_id: int, first_sequence: int, count: int, records: int) -> None:
        if stream_id not in self._deleted:
            self._orphans.setdefault(stream_id, _Orphan()).take(first_sequence, count, records)

    def _apply(self, fact: Fact) -> None:
        self._note_stream_id(getattr(fact, "stream_id", 0))
        match fact:
            case SourceOpened(stream_id, source_id, name, epoch, incarnation, is_sparse, owner):
                stream = self._tables.streams_by_id.get(stream_id)
                if stream is not None:
                    source = stream.sources.get(name)
                    if source is None:
                        source = stream.add_source(source_id, name, is_sparse)
                        self._know_again(stream, source)
                    source.open(epoch, incarnation, owner)
                    source.become_granted(epoch, incarnation, owner)
            case TokenStored(stream_id, source_id, number, token):
                stream = self._tables.streams_by_id.get(stream_id)
                if stream is not None:
                    stream.next_source_id = max(stream.next_source_id, source_id + 1)
                    source = stream.source_at(source_id)
                    if source is not None:
                        source.store_token(number, token)
            case LeftAhead():
                self._tables.note_ahead(fact)
            case _ if isinstance(fact, Change):
                stream = self._tables.streams_by_id.get(fact.stream_id)
                if stream is not None:
                    self._apply_to_subscription(stream, fact)
            case StreamDeleted(stream_id):
                self._deleted[stream_id] = None
                if self._orphans.pop(stream_id, None) is not None:
                    self._orders.say(StreamDropped(stream_id))
                self._creating.apply(fact)
                self._tables.take_stages(list(self._tables.stages_of(stream_id)))
            case StreamTrimmed(stream_id, floor):
                stream = self._tables.streams_by_id.get(stream_id)
                if stream is not None:
                    self._reach(stream, floor - 1)
                self._creating.apply(fact)
            case StagesDropped(stages):
                for number in stages:
                    self._note_stage(number)
                self._committing.apply(fact)
            case Committed():
                for stage in fact.stages:
                    self._note_stage(stage.stage)
                    self._note_stream_id(stage.stream_id)
                    if stage.count and stage.stream_id not in self._tables.streams_by_id:
                        self._note_orphaned(stage.stream_id, stage.first_sequence, stage.count, records=0)
                self._committing.apply(fact)
                for move in fact.cursors:
                    stream = self._tables.streams_by_id.get(move.stream_id)
                    if stream is not None:
                        apply_move(self._tables, stream, move)
            case SourcesRaised(stream_id, sources):
                stream = self._tables.streams_by_id.get(stream_id)
                if stream is not None:
                    stream.raise_sources(sources)
            case _:
                self._creating.apply(fact)
                self._committing.apply(fact)

    def _know_again(self, stream: Stream, source: SourceState) -> None:
        """A later fact names a source of which batches were found: what it has published is known by them."""
        orphan, header = self._nameless.pop((stream, source.source_id), (None, None))
        if orphan is not None and header is not None:
            first_sequence = orphan.last_sequence - header.count + 1
            source.become_durable(header.first_number, header.last_number, first_sequence, header.count, None)

    def _apply_to_subscription(
        self,
        stream: Stream,
        fact: Change,
    ) -> None:
        known = stream.subscriptions.get((fact.subscriber, fact.name))
        match fact:
            case SubscriptionOpened():
                self._open(stream, fact)
            case SubscriptionSettled() if known is not None:
                self._pass(stream, fact)
                known.apply_settled(fact, self._tables.limits.unsettled_max)
            case SubscriptionRenewed() if known is not None:
                apply_renewal(self._tables, stream, known, fact)
            case SubscriptionTold() if known is not None:
                known.tell(fact)
            case SubscriptionRemoved(_, subscriber, name, removed_us, wish, principal, had):
                # Another principal's may have been on its way when this one left.
                if known is None or not known.owner or principal in ("", known.owner):
                    stream.subscriptions.take((subscriber, name))
                self._reach(stream, max((last for _, last in had.received), default=0))
                self._tables.departures.note(stream, subscriber, name, removed_us, wish, principal, had)

    def _pass(self, stream: Stream, fact: SubscriptionOpened | SubscriptionSettled) -> None:
        self._reach(stream, max(fact.floor, fact.pushed_known, *(last for _, last in fact.settled)))

    def _reach(self, stream: Stream, last: int) -> None:
        """What a cursor has passed, or what was trimmed, was there: its sequences must not come again where damage took
        them, for the cursor would pass over them, and nobody could read what lies below the floor.
        """
        if last > stream.head_durable:
            stream.become_durable(last)

    def _open(self, stream: Stream, fact: SubscriptionOpened) -> None:
        self._pass(stream, fact)
        unsettled_max = self._tables.limits.unsettled_max
        known = stream.subscriptions.get((fact.subscriber, fact.name))
        if known is None:
            stream.subscriptions[fact.subscriber, fact.name] = Subscription(fact, unsettled_max)
        else:
            known.apply_opened(fact, unsettled_max)

    def finish(self, is_clean: bool) -> None:
        """All records were taken. After a crash, whoever was attached may have been pushed all that was durable."""
        for stream_id, orphan in self._orphans.items():
            self._orders.say(Note("error", "stream-orphaned", {"stream_id": stream_id, **asdict(orphan)}))
        for (stream, source_id), (orphan, header) in self._nameless.items():
            if not stream.is_deleted:
                fields = {"stream": stream.name, "source_id": source_id, "last_number": header.last_number}
                self._orders.say(Note("error", "source-orphaned", {**fields, **asdict(orphan)}))
        for run in self._tables.runs.values():
            # Only now: what an older run was committing at a checkpoint may have been shown behind it, or lost.
            self._runs.drop_open_stages(run)
        if is_clean:
            return
        for stream in self._tables.streams.values():
            # Sources may know of more than was found, if damage took it from behind the snapshot.
            self._reach(stream, max((source.last_sequence for source in stream.sources.values()), default=0))
            for subscription in stream.subscriptions.values():
                subscription.note_maybe_pushed(stream.head_durable)


def _not_known(what: str, data: Octets, mark: str, error: msgspec.DecodeError) -> Refused:
    """Why a fact or snapshot cannot be taken: those of this floor are maps with a mark, in whichever version."""
    try:
        taken = msgspec.msgpack.decode(data)
    except msgspec.DecodeError:
        taken = {mark: None}
    if isinstance(taken, dict) and mark in taken:
        message = f"{what} in the journal is unknown to this version of Veredus ({error}): use a newer one"
        return Refused("newer-format", message)
    message = f"the journal holds no streams of a node, but what clients of topics remember: {what} in it is theirs"
    return Refused("wrong-journal", f"{message}; name another directory")
