"""The way in: sources attach, offer batches, and hear what became of them.

A batch is sequenced when it is offered and told to nobody before the journal has it.
Source: docs/internals/DESIGN.md, "Sources"; guarantees 2, 3, 4 and 7.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial

from veredus.delivery.batch import BatchHeader, token_of
from veredus.delivery.record import ENVELOPE_SIZE, RecordKind
from veredus.journal.exchange import Entry, PlacedRecord
from veredus.kernel.effects import Note
from veredus.kernel.engine import Now
from veredus.kernel.errors import Refused
from veredus.kernel.names import check_incarnation, checked_name

from .by_stream import ByStream
from .exchange import (
    BatchOffered,
    ConfirmTaken,
    Durability,
    Fence,
    GrantSource,
    Refuse,
    RefuseBatch,
    SourceAttachRequested,
)
from .facts import SourceOpened
from .fencing import fenced_run, fenced_source
from .offered import OfferedAgain, OfferedBatch, OfferedStaged, OpenedSource
from .orders import Orders, Then
from .rights import next_owner, on_stream
from .shares import ATTACHED_SOURCES
from .source import SourceState, Verdict
from .stream import Stream
from .tables import Stage, Tables


@dataclass(slots=True)
class Attachment:
    """One session's right to publish: to `stream` as `source` (None when anonymous), or into `stage`."""

    session: int
    stream: Stream
    source: SourceState | None
    epoch: int
    stage: Stage | None = None
    is_granted: bool = False
    principal: str = ""
    number: int = 0
    """The last number offered, for anonymous sources and stages."""


CLOCK_SLACK_US = 60_000_000
"""A clock that lies farther behind the append times that it gave is told of."""


class Publishing:
    """Owns the attachments of sources; changes streams and sources as batches come in."""

    __slots__ = (
        "_attached", "_attached_to", "_durability", "_is_clock_told", "_orders", "_tables", "attachments", "touched",
    )  # fmt: skip

    def __init__(self, tables: Tables, orders: Orders, durability: Durability) -> None:
        self._tables = tables
        self._orders = orders
        self._durability = durability
        self.attachments: dict[int, Attachment] = {}
        self._attached: dict[str, int] = {}
        self._attached_to: ByStream[int, Attachment] = ByStream()
        """By session."""
        self._is_clock_told = False
        self.touched: dict[int, Stream] = {}
        """Streams whose durable head has moved since the flows were last pumped, by id."""

    # ── attach ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def attach(self, event: SourceAttachRequested, stream: Stream, now: Now) -> None:
        """Grant, fence or refuse; a grant under a new epoch is journaled first.

        Whoever is taken over from is fenced behind that: it hears first of all that it offered before.
        """
        self._check_attached(event.principal)
        if not event.source:
            attachment = Attachment(event.session, stream, None, 0, is_granted=True, principal=event.principal)
            self._add(attachment)
            self._grant(attachment, self._durability)
            return
        checked_name("source", event.source)
        check_incarnation(event.incarnation)
        source = stream.sources.get(event.source)
        if source is not None:
            named = on_stream(stream.name, source=source.name)
            self._tables.rights.check_owner(event.session, event.principal, source.owner, named)
        if source is None:
            source = self._new_source(stream, event)
        elif source.is_past(event.epoch, event.incarnation):
            if source.is_opening:
                self._attach_later(event, stream, source)
            else:
                why = fenced_source(source.name, source.epoch, event.epoch)
                self._orders.say(Fence(event.session, source.epoch, why))
            return
        elif (owner := next_owner(event.principal, source.owner)) != source.owner:
            self._tables.check_share(owner, 1, len(source.token))
        attachment = Attachment(event.session, stream, source, source.epoch, principal=event.principal)
        is_known = event.incarnation == source.incarnation and source.epoch > 0
        self._add(attachment)
        if is_known:
            if (former := self._former(attachment, source)) is not None and former.epoch == source.epoch:
                self._end(former, source, source.epoch)
            again = Then(lambda _: self._come_back(attachment, source), partial(self.attach_failed, attachment))
            self._orders.append((), again)
            return
        before = source.owner
        source.open(source.epoch + 1, event.incarnation, next_owner(event.principal, before))
        attachment.epoch = source.epoch
        self._orders.note_owner(event, "source", source.name, stream.name, source.epoch, before)
        fact = SourceOpened(
            stream.stream_id, source.source_id, source.name, source.epoch, source.incarnation, source.is_sparse,
            source.owner,
        )  # fmt: skip
        opened = OpenedSource(self, attachment, source, event.incarnation, source.owner)
        self._orders.append_fact(fact, opened, now, payer=event.principal)

    def _attach_later(self, event: SourceAttachRequested, stream: Stream, source: SourceState) -> None:
        """Somebody is taking `source` over from this one: attach when that is decided."""
        attachment = Attachment(event.session, stream, source, source.granted[0], principal=event.principal)
        self._add(attachment)

        def decided(now: Now) -> None:
            if self.is_there(attachment):
                self._remove(event.session)
                try:
                    self.attach(event, stream, now)
                except Refused as refused:
                    self._orders.say(Refuse(event.session, refused.code, refused.message, refused.details))

        self._orders.append((), Then(decided, partial(self.attach_failed, attachment)))

    def _check_attached(self, principal: str) -> None:
        most = self._tables.limits.sources_per_principal_max
        ATTACHED_SOURCES.check(principal, 1, most - self._attached.get(principal, 0), most)

    def _add(self, attachment: Attachment) -> None:
        self._remove(attachment.session)
        self.attachments[attachment.session] = attachment
        self._attached_to.put(attachment.stream.stream_id, attachment.session, attachment)
        self._attached[attachment.principal] = self._attached.get(attachment.principal, 0) + 1

    def _remove(self, session: int) -> Attachment | None:
        attachment = self.attachments.pop(session, None)
        if attachment is not None:
            self._attached_to.take(attachment.stream.stream_id, session)
            if attachment.stage is not None and attachment.stage.session == session:
                self._tables.write_stage(attachment.stage, 0)
                self._tables.note_left(attachment.stage.sink)
            count = self._attached[attachment.principal] - 1
            if count:
                self._attached[attachment.principal] = count
            else:
                del self._attached[attachment.principal]
        return attachment

    def put_off(self, attachment: Attachment, source: SourceState, refuse: Callable[[str, str], None]) -> None:
        """Somebody is taking `source` over from this one: answer when that is decided, by the fence, or by `refuse`
        with code and reason where the journal refused it.
        """

        def decided(code: str, reason: str) -> None:
            if self.is_there(attachment) and source.granted[0] > attachment.epoch:
                self._end(attachment, source, source.granted[0])
            elif self.is_there(attachment):
                refuse(code, reason)

        is_back = "another publisher was to take over, and its epoch could not be stored"
        self._orders.append((), Then(lambda _: decided("disk-full", is_back), decided))

    def _former(self, attachment: Attachment, source: SourceState) -> Attachment | None:
        """Who else publishes as `source`, under the epoch that the journal has."""
        former = self.attachments.get(source.session)
        is_other = former is not None and former is not attachment and former.source is source
        return former if is_other and not attachment.stream.is_deleted else None

    def _end(self, former: Attachment, source: SourceState, epoch: int) -> None:
        """Another session has the source under this epoch, and the former one has it no more."""
        self._remove(former.session)
        if former.epoch == epoch:
            self._orders.end_former(former.session, f"source {source.name!r}")
        else:
            self._orders.say(Fence(former.session, epoch, fenced_source(source.name, epoch)))

    def _new_source(self, stream: Stream, event: SourceAttachRequested) -> SourceState:
        stream.check_sources(1)
        self._tables.check_share(next_owner(event.principal, ""), 1, 0)
        if event.epoch:
            raise Refused(
                "unknown-source",
                f"stream {stream.name!r} has no source {event.source!r} of epoch {event.epoch} any more: was the stream"
                " created again? Open a new publisher (epoch 0)",
            )
        return stream.add_source(stream.next_source_id, event.source, event.is_sparse)

    def _grant(self, attachment: Attachment, durability: Durability) -> None:
        stream, source = attachment.stream, attachment.source
        attachment.is_granted = True
        if source is None:
            said = GrantSource(attachment.session, stream.stream_id, stream.incarnation, 0, 0, 0, b"", 0, durability)
        else:
            said = GrantSource(
                attachment.session,
                stream.stream_id,
                stream.incarnation,
                source.source_id,
                attachment.epoch,
                source.last_durable,
                source.token,
                source.token_number,
                durability,
            )
        self._orders.say(said)

    def open_stage(self, session: int, stream: Stream, stage: Stage) -> None:
        """Let `session`, and nobody else, write under `stage` once that is granted."""
        self.leave_stage(stage)
        self._add(Attachment(session, stream, None, 0, stage))
        self._tables.write_stage(stage, session)

    def grant_stage(self, session: int, stage: Stage) -> bool:
        """Let `session` write behind the rows that `stage` has; whether it still is the one that may."""
        attachment = self.attachment_of(session)
        if attachment is None or attachment.stage is not stage:
            return False
        attachment.is_granted, attachment.number = True, stage.count_durable
        return True

    def end_stage(self, session: int, stage: Stage, how: str) -> None:
        """Nobody writes under `stage` any more: who does is fenced by a newer run, or is told how it ended."""
        newer = self._tables.newer_run(stage.sink, stage.run_epoch)
        if newer is None:
            self._orders.refuse(session, "stage-closed", f"stage {stage.stage} was {how}")
        else:
            self._orders.say(Fence(session, newer.epoch, fenced_run(newer.sink, newer.epoch)))

    def leave_stage(self, stage: Stage) -> None:
        """Let nobody write under `stage` any more: whoever did has lost its link, and goes on by another session."""
        if stage.session:
            self._remove(stage.session)

    def close(self, session: int) -> None:
        """The session is over; what it offered goes on its way."""
        attachment = self._remove(session)
        if attachment is not None and attachment.source is not None and attachment.source.session == session:
            attachment.source.session = 0

    def attachment_of(self, session: int) -> Attachment | None:
        """What the session has attached; where that stream was deleted, it is told so, and has nothing any more."""
        attachment = self.attachments.get(session)
        if attachment is not None and attachment.stream.is_deleted:
            self._remove(session)
            self._orders.tell_deleted(session, attachment.stream.name)
            return None
        return attachment

    def attached_to(self, stream: Stream) -> Collection[int]:
        """The sessions that publish to a stream, or did when it was deleted and were not told so yet."""
        return self._attached_to.of(stream.stream_id).keys()

    # ── offer ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def offer(self, event: BatchOffered, now: Now) -> None:
        """Sequence and append the batch, or say that it was there before, or refuse it."""
        attachment = self.attachment_of(event.session)
        header = event.header
        if attachment is None or not attachment.is_granted:
            self._orders.refuse(event.session, "not-attached", "attach as a source before offering batches")
            return
        stream, source = attachment.stream, attachment.source
        if source is not None and attachment.epoch != source.epoch:
            refuse = partial(self.tell_failed, attachment, header.first_number)
            self.put_off(attachment, source, refuse)
            return
        if source is not None and header.epoch < source.epoch:
            self._orders.say(Fence(event.session, source.epoch, fenced_source(source.name, source.epoch)))
            return
        granted = stream.stream_id, source.source_id if source else 0, attachment.epoch
        if (header.stream_id, header.source_id, header.epoch) != granted:
            said = "the batch has the id of another stream or source, or a higher epoch, than the granted one"
            self._orders.refuse(event.session, "wrong-ids", said)
            return
        if source is None:
            self._offer_unnamed(attachment, event, now)
            return
        first, last = header.first_number, header.last_number
        verdict = source.judge(first, last)
        if verdict is Verdict.NEXT:
            try:
                self._tables.check_share(source.owner, 0, header.token_size - len(source.token))
            except Refused as refused:
                self.refuse_batch(event.session, refused.code, refused.message, first, source.last_assigned)
                return
            self._append(attachment, event, now)
        elif verdict is Verdict.DUPLICATE:
            self._orders.append((), OfferedAgain(self, attachment, last, header.count))
        else:
            self._refuse_place(event.session, verdict, first, source.last_assigned)

    def _offer_unnamed(self, attachment: Attachment, event: BatchOffered, now: Now) -> None:
        first = event.header.first_number
        if first != attachment.number + 1:
            self._refuse_place(event.session, Verdict.GAP, first, attachment.number)
            return
        stage = attachment.stage
        if stage is None:
            self._append(attachment, event, now)
        elif self._tables.open_stage(stage.stage) is not stage or stage.is_committing:
            self.end_stage(event.session, stage, "committed or dropped")
        else:
            self._append_staged(attachment, stage, event, now)

    def _refuse_place(self, session: int, verdict: Verdict, first: int, last: int) -> None:
        if verdict is Verdict.GAP:
            message = f"number {first} does not follow {last}: offer {last + 1} next"
        else:
            message = (
                f"the batch starts at {first} and ends after the last number {last}: send only the numbers from"
                f" {last + 1} on"
            )
        self.refuse_batch(session, verdict.value, message, first, last)

    def refuse_batch(self, session: int, code: str, message: str, first: int, last: int) -> None:
        """Say that the batch that begins at number `first` was not taken, and what the last number is."""
        self._orders.counts.refused_batches += 1
        self._orders.say(RefuseBatch(session, first, code, message, last))

    def _append(self, attachment: Attachment, event: BatchOffered, now: Now) -> None:
        stream, header = attachment.stream, event.header
        sequence, append_time_us = stream.assign(header.count, now.wall_us)
        self._orders.counts.clock_behind_us = behind_us = append_time_us - now.wall_us
        if behind_us > CLOCK_SLACK_US:
            self._tell_clock(stream, behind_us)
        before = 0
        if attachment.source is not None:
            before = attachment.source.last_assigned
            attachment.source.assign(header.last_number)
        attachment.number = header.last_number
        entry = Entry(event.record, RecordKind.BATCH, stream.stream_id, sequence, header.count, append_time_us)
        waiter = OfferedBatch(self, attachment, header, entry, before)
        self._orders.append((entry,), waiter, payer=attachment.principal)

    def _tell_clock(self, stream: Stream, behind_us: int) -> None:
        """The clock lies behind what it said before: append times stand still until it is there again. Said once."""
        if not self._is_clock_told:
            self._is_clock_told = True
            fields: dict[str, object] = {"stream": stream.name, "behind_s": round(behind_us / 1e6, 1)}
            self._orders.say(Note("warning", "clock-behind", fields))

    def _append_staged(self, attachment: Attachment, stage: Stage, event: BatchOffered, now: Now) -> None:
        header = event.header
        attachment.number = header.last_number
        stage.count_assigned += header.count
        entry = Entry(
            event.record, RecordKind.STAGED, attachment.stream.stream_id, stage.stage, header.count, now.wall_us
        )
        self._orders.append((entry,), OfferedStaged(self, attachment, stage, header), payer=attachment.principal)

    # ── what the journal said ────────────────────────────────────────────────────────────────────────────────────────

    def is_there(self, attachment: Attachment) -> bool:
        """Whether nobody has closed its session meanwhile, and perhaps opened it anew, nor deleted its stream."""
        return self.attachments.get(attachment.session) is attachment and not attachment.stream.is_deleted

    def batch_durable(self, attachment: Attachment, header: BatchHeader, entry: Entry, durability: Durability) -> None:
        """A batch is in the journal: it may be pushed, and its source hears of it."""
        stream, source = attachment.stream, attachment.source
        if stream.is_deleted:
            return
        if source is not None:
            record_batch(source, header, entry.record, entry.first_sequence)
        stream.become_durable(entry.first_sequence + header.count - 1)
        memory = memoryview(entry.record)
        stream.tail.add(PlacedRecord(entry.first_sequence, header.count, entry.append_time_us, memory))
        self.touched[stream.stream_id] = stream
        self._orders.counts.publications += header.count
        if self.is_there(attachment):
            self._orders.say(
                ConfirmTaken(attachment.session, header.last_number, entry.first_sequence, False, durability)
            )

    def batch_failed(
        self, attachment: Attachment, header: BatchHeader, entry: Entry, before: int, code: str, reason: str
    ) -> None:
        """The journal refused a batch: as if it had never been offered."""
        attachment.stream.unassign(entry.first_sequence)
        source = attachment.source
        if source is not None:
            source.unassign(before)
        attachment.number = min(attachment.number, header.first_number - 1)
        self.tell_failed(attachment, header.first_number, code, reason)

    def tell_failed(self, attachment: Attachment, first_number: int, code: str, reason: str) -> None:
        """Tell a source that is still there that its batch was not taken."""
        self._orders.counts.refused_batches += 1
        if self.is_there(attachment):
            last = attachment.source.last_durable if attachment.source else attachment.number
            message = f"the node could not store the batch ({reason}): try again later"
            self._orders.say(RefuseBatch(attachment.session, first_number, code, message, last))

    def count_duplicate(self) -> None:
        """A batch was there already."""
        self._orders.counts.duplicate_batches += 1

    def tell_taken(
        self, attachment: Attachment, last: int, sequence: int, is_duplicate: bool, durability: Durability
    ) -> None:
        """Tell a source that is still there that its batch is in the stream."""
        if self.is_there(attachment):
            self._orders.say(ConfirmTaken(attachment.session, last, sequence, is_duplicate, durability))

    def granted(self, attachment: Attachment, source: SourceState, durability: Durability) -> None:
        """The attachment's epoch is in the journal: who had the source before has it no more."""
        if (former := self._former(attachment, source)) is not None:
            self._end(former, source, attachment.epoch)
        source.session = 0
        if self.is_there(attachment):
            source.session = attachment.session
            self._grant(attachment, durability)

    def _come_back(self, attachment: Attachment, source: SourceState) -> None:
        if source.granted[0] < attachment.epoch:
            self.attach_failed(attachment, "disk-full", "its epoch was not stored")
        else:
            self.granted(attachment, source, self._durability)

    def attach_failed(self, attachment: Attachment, code: str, reason: str) -> None:
        """The attachment's epoch could not be journaled: whoever had the source has it still."""
        source = attachment.source
        if self.is_there(attachment):
            self.close(attachment.session)
            self._orders.refuse(
                attachment.session, code, f"the node could not store the attachment ({reason}): try again later"
            )
        if source is not None:
            attachment.stream.forget_unmade(source)


def record_batch(source: SourceState, header: BatchHeader, record: bytearray | memoryview, first_sequence: int) -> None:
    """Let a source know its durable batch, live or in a replay."""
    token = None
    if header.token_size:
        batch = memoryview(record)[ENVELOPE_SIZE : ENVELOPE_SIZE + header.size]
        token = token_of(batch, header)
    source.become_durable(header.first_number, header.last_number, first_sequence, header.count, token)
