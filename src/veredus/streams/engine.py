"""The streams floor as one engine: it routes requests to the part that owns them, and the journal's answers to whoever
waits.

    dialects ──requests──► StreamsEngine ──appends, reads──► journal
             ◄──answers───               ◄──durable, records──

It holds no protocol state of its own beside which streams have new durable rows.
Source: docs/internals/DESIGN.md, "Engines" and "Exchange".
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from veredus.delivery.record import RecordView
from veredus.journal.exchange import Appended, AppendFailed, Located, RangeMissing, RecordsRead
from veredus.kernel.engine import Now
from veredus.kernel.errors import InvariantBroken, Refused
from veredus.kernel.events import DeadlineReached
from veredus.kernel.gathered import Gathered
from veredus.kernel.names import checked_name

from .administration import Administration
from .committing import Committing
from .creating import Creating
from .cursors import Cursors
from .exchange import (
    AdminRequested,
    BatchOffered,
    BatchUnfit,
    CommitRequested,
    CreditGranted,
    Durability,
    FilterChangeRequested,
    HandedOut,
    Refuse,
    ReturnRequested,
    RunOpenRequested,
    SessionClosed,
    SettleRequested,
    SourceAttachRequested,
    StageOpenRequested,
    StagesDropRequested,
    SubscribeRequested,
    TokenStoreRequested,
)
from .facts import StreamConfig, StreamConfigured, StreamTrimmed
from .flow import Flow
from .leases import Leases
from .moving import Moving
from .orders import Counts, Orders, Then
from .parking import Parking
from .publishing import Publishing
from .refiltering import Refiltering
from .remains import Remains
from .replay import Replay
from .returning import Returning
from .rights import PUBLISH, SUBSCRIBE, May, Rights, on_sink, on_stream
from .runs import Runs
from .snapshot import Taking
from .storing import Storing
from .stream import Stream
from .subscribing import Subscribing
from .tables import StreamsLimits, Tables
from .wishes import Wishes


class StreamsEngine:
    """Owns the tables and the parts that change them; see the module for the picture.

    Invariants
        (1) Every request is answered once, or refused.
        (2) Flows are pumped after the confirmations of the same event were said: a source hears first.
    """

    def __init__(
        self,
        limits: StreamsLimits,
        durability: Durability,
        ids: Callable[[], bytes],
        may: May,
        size_of: Callable[[int], int],
    ) -> None:
        """An empty floor; `ids` and `size_of` as in `Tables`; `may` is what the rules say."""
        self._orders = Orders()
        self._rights = Rights(may, self._orders.say)
        self.tables = Tables(limits, ids, self._rights, size_of)
        self._creating = Creating(self.tables, self._orders)
        self._publishing = Publishing(self.tables, self._orders, durability)
        self._storing = Storing(self.tables, self._orders, self._publishing)
        self._cursors = Cursors(self._orders, limits)
        parking = Parking(self.tables, self._orders, self._publishing)
        self._subscribing = Subscribing(self.tables, self._orders, self._cursors, parking)
        self._refiltering = Refiltering(self._orders, self._subscribing)
        self._returning = Returning(self._orders, self._subscribing.feeding, parking, self._cursors)
        moving = Moving(self.tables, self._orders, self._cursors, self._subscribing)
        self._runs = Runs(self.tables, self._orders)
        self._leases = Leases(self.tables, self._orders, self._runs)
        self.remains = Remains(self.tables, self._cursors, self._publishing, self._subscribing.feeding)
        self._committing = Committing(self.tables, self._orders, self._publishing, moving, self._runs)
        self._administration = Administration(
            self.tables, self._orders, self._creating, self._publishing, self._subscribing, self._runs,
            Wishes(self._orders, self._cursors, self._subscribing, self.tables), self._leases, self.remains,
        )  # fmt: skip
        self._replay = Replay(self.tables, self._orders, self._creating, self._committing, self._runs)

    def handle(self, event: object, now: Now) -> Sequence[object]:
        """Take one fact, give the orders that follow. Facts are those of `streams.exchange` and the answers of
        `journal.exchange`.
        """
        return self.handle_all((event,), now)

    def handle_all(self, events: Iterable[object], now: Now) -> Sequence[object]:
        """Take facts that came together, such as all that one group made durable, and feed the subscribers once."""
        for event in events:
            handler = _HANDLERS.get(type(event))
            if handler is None:
                raise InvariantBroken(f"the streams floor was told {event!r}")
            self._orders.asker = getattr(event, "principal", None)
            try:
                handler(self, event, now)
            except Refused as refused:
                request = getattr(event, "request", 0)
                session = getattr(event, "session", 0)
                self._orders.say(
                    Refuse(session, refused.code, refused.message, refused.details, request, is_final=not request)
                )
        self._orders.asker = None
        self._pump_touched(now)
        self._cursors.arm(now)
        return self._orders.take_effects()

    def deadline(self) -> int | None:
        """When cursors that moved must be journaled, the next flows have their turn, or a lease is over."""
        feeding, cursors = self._subscribing.feeding, self._cursors
        earliest = cursors.deadlines.next_ns()
        for at in (
            cursors.turns.deadline(),
            feeding.asking.deadline(),
            feeding.turns.deadline(),
            feeding.sending.deadline(),
            self._returning.turns.deadline(),
            self._leases.next_ns(),
            self.remains.next_ns(),
        ):
            if at is not None and (earliest is None or at < earliest):
                earliest = at
        return earliest

    # ── recovery ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def load(self, state: bytes) -> None:
        """Take a snapshot; before anything else."""
        self._replay.load(state)

    def replay(self, view: RecordView) -> None:
        """Take the next record behind the snapshot."""
        self._replay.take(view)

    def finish_recovery(self, is_clean: bool) -> Sequence[object]:
        """All was taken; what the journal must know of stages and trims that the records showed."""
        self._replay.finish(is_clean)
        for stream in self.tables.streams.values():
            for subscription in stream.subscriptions.values():
                self._cursors.spread.count(subscription)
        self._publishing.touched.clear()
        return self._orders.take_effects()

    def take_snapshot(self) -> Taking:
        """Begin to take the durable part of all tables."""
        return Taking(self.tables)

    def snapshot(self) -> Gathered:
        """The durable part of all tables, at once."""
        taking = self.take_snapshot()
        taking.go_on(sys.maxsize, sys.maxsize)
        return taking.state

    # ── what the node asks for itself ────────────────────────────────────────────────────────────────────────────────

    def trim(self, stream: Stream, floor: int, now: Now) -> Sequence[object]:
        """Retention: let go of everything below `floor`."""
        fact = StreamTrimmed(stream.stream_id, min(floor, stream.head_durable + 1))
        self._creating.change(fact, 0, 0, _go_on, now)
        return self._orders.take_effects()

    def configure(self, name: str, config: StreamConfig, now: Now) -> Sequence[object]:
        """The settings name a stream: make it, or give the one that is there this configuration."""
        stream = self.tables.streams.get(name)
        if stream is None:
            self._creating.create(0, "", name, config, _go_on, now)
        elif stream.config != config:
            self._creating.change(StreamConfigured(stream.stream_id, config), 0, 0, _go_on, now)
        return self._orders.take_effects()

    @property
    def counts(self) -> Counts:
        """What happened since the process began."""
        return self._orders.counts

    @property
    def flows(self) -> Mapping[int, Flow]:
        """The flows of all sessions that subscribe."""
        return self._subscribing.flows

    @property
    def attached_count(self) -> int:
        """How many sessions publish, anonymous ones and stages included."""
        return len(self._publishing.attachments)

    def raise_terms(self, now: Now) -> Sequence[object]:
        """After an unclean stop under weak durability, damage, or a return to an older copy: a new term for every
        stream.

        What was lost may have had later terms than the last one that is known: the time gives none of them again.
        """
        for stream in self.tables.streams.values():
            term = now.number_after(stream.term)
            stream.raise_term(term, stream.head_durable + 1)
            stream.is_term_durable = False
            # Where the journal refuses it, whoever subscribes sends it there again.
            kept = Then(partial(_keep_term, stream), _tell_nobody)
            self._orders.append_fact(stream.term_raised(), kept, now, is_synced=True)
        return self._orders.take_effects()

    def renew_rights(self, now: Now) -> Sequence[object]:
        """The rules have changed: end the sessions that may not go on with what they were granted."""
        self._administration.naming.forget()
        for session, refused in self._rights.lost():
            self._orders.say(Refuse(session, refused.code, refused.message, refused.details, 0, is_final=True))
            self._close(SessionClosed(session), now)
        return self._orders.take_effects()

    def set_congested(self, session: int, is_congested: bool, now: Now) -> Sequence[object]:
        """A session's link cannot take more, or can again."""
        self._subscribing.set_congested(session, is_congested, now)
        return self._orders.take_effects()

    # ── handlers ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _attach_source(self, event: SourceAttachRequested, now: Now) -> None:
        as_source = on_stream(event.stream, source=event.source)
        self._rights.hold(event.session, event.principal, PUBLISH, as_source, is_noted=not event.is_inquiry)
        if event.source:
            checked_name("source", event.source)
        if event.epoch or event.stream_incarnation:
            self._creating.check_there(event.stream, event.stream_incarnation)
        then = partial(self._attach_to, event)
        self._creating.use(event.session, event.principal, event.stream, then, now, is_noted=not event.is_inquiry)

    def _attach_to(self, event: SourceAttachRequested, stream: Stream, now: Now) -> None:
        self._publishing.attach(event, stream, now)

    def _offer(self, event: BatchOffered, now: Now) -> None:
        self._publishing.offer(event, now)

    def _refuse_unfit(self, event: BatchUnfit, now: Now) -> None:
        attachment = self._publishing.attachment_of(event.session)
        if attachment is not None:
            source = attachment.source
            last = source.last_assigned if source else attachment.number
            self._publishing.refuse_batch(event.session, event.code, event.message, event.first_number, last)

    def _store_token(self, event: TokenStoreRequested, now: Now) -> None:
        self._storing.store(event, now)

    def _subscribe(self, event: SubscribeRequested, now: Now) -> None:
        as_subscriber = on_stream(event.stream, subscriber=event.subscriber)
        self._rights.hold(event.session, event.principal, SUBSCRIBE, as_subscriber)
        if event.subscriber:
            checked_name("subscriber", event.subscriber)
        if event.epoch or event.stream_incarnation:
            self._creating.check_there(event.stream, event.stream_incarnation)
        then = partial(self._subscribe_to, event)
        self._creating.use(event.session, event.principal, event.stream, then, now)

    def _subscribe_to(self, event: SubscribeRequested, stream: Stream, now: Now) -> None:
        self._subscribing.subscribe(event, stream, now)

    def _credit(self, event: CreditGranted, now: Now) -> None:
        self._subscribing.grant_credit(event, now)

    def _hand_out(self, event: HandedOut, now: Now) -> None:
        self._subscribing.hand_out(event, now)

    def _take_back(self, event: ReturnRequested, now: Now) -> None:
        self._returning.take_back(event, now)

    def _settle(self, event: SettleRequested, now: Now) -> None:
        self._subscribing.settle(event, now)

    def _change_filter(self, event: FilterChangeRequested, now: Now) -> None:
        self._refiltering.change(event, now)

    def _close(self, event: SessionClosed, now: Now) -> None:
        self._rights.release(event.session)
        self._creating.forget(event.session)
        self._publishing.close(event.session)
        self._runs.close(event.session, now)
        self._subscribing.close(event.session, now)

    def _open_run(self, event: RunOpenRequested, now: Now) -> None:
        self._rights.hold(event.session, event.principal, PUBLISH, on_sink(event.sink))
        self._runs.open(event, now)

    def _open_stage(self, event: StageOpenRequested, now: Now) -> None:
        self._rights.hold(event.session, event.principal, PUBLISH, on_sink(event.sink))
        self._rights.hold(event.session, event.principal, PUBLISH, on_stream(event.stream, source=""))
        if self._committing.is_kept(event):
            then = partial(self._open_stage_in, event)
            self._creating.use(event.session, event.principal, event.stream, then, now)

    def _open_stage_in(self, event: StageOpenRequested, stream: Stream, now: Now) -> None:
        self._committing.open_stage(event, stream, now)

    def _commit(self, event: CommitRequested, now: Now) -> None:
        self._rights.check(event.session, event.principal, PUBLISH, on_sink(event.sink))
        self._committing.commit(event, now)

    def _drop_stages(self, event: StagesDropRequested, now: Now) -> None:
        self._rights.check(event.session, event.principal, PUBLISH, on_sink(event.sink))
        self._committing.drop_stages(event, now)

    def _administer(self, event: AdminRequested, now: Now) -> None:
        self._administration.handle(event, now)

    def _appended(self, event: Appended, now: Now) -> None:
        self._orders.waiters.pop(event.token).become_durable(Durability(event.durability), now)

    def _append_failed(self, event: AppendFailed, now: Now) -> None:
        self._orders.waiters.pop(event.token).fail(event.code, event.reason, now)

    def _records_read(self, event: RecordsRead, now: Now) -> None:
        self._orders.readers.pop(event.token).take_records(event.records, now)

    def _range_missing(self, event: RangeMissing, now: Now) -> None:
        self._orders.readers.pop(event.token).miss_range(event.code, event.next_sequence, now)

    def _located(self, event: Located, now: Now) -> None:
        self._orders.locators.pop(event.token).take_place(event.sequence, now)

    def _deadline_reached(self, event: DeadlineReached, now: Now) -> None:
        for _ in self._cursors.deadlines.due(now.monotonic_ns):
            self._cursors.journal_moved(now)
        self._cursors.give_turns(now)
        self._subscribing.feeding.give_turns(now)
        self._returning.give_turns(now)
        self._leases.look(now)
        self.remains.give_turn(now)

    def _pump_touched(self, now: Now) -> None:
        touched = self._publishing.touched
        while touched:
            _, stream = touched.popitem()
            self._subscribing.feeding.pump_stream(stream, now)


def _keep_term(stream: Stream, now: Now) -> None:  # noqa: ARG001  # as whoever waits for the journal is told
    stream.is_term_durable = True


def _tell_nobody(code: str, reason: str) -> None:
    """Nobody knows of it yet."""


def _go_on(stream: Stream, now: Now) -> None:  # noqa: ARG001  # nobody waits for what the node does by itself
    return None


_HANDLERS: dict[type, Callable[[StreamsEngine, Any, Now], None]] = {
    SourceAttachRequested: StreamsEngine._attach_source,
    BatchOffered: StreamsEngine._offer,
    BatchUnfit: StreamsEngine._refuse_unfit,
    TokenStoreRequested: StreamsEngine._store_token,
    SessionClosed: StreamsEngine._close,
    SubscribeRequested: StreamsEngine._subscribe,
    CreditGranted: StreamsEngine._credit,
    HandedOut: StreamsEngine._hand_out,
    ReturnRequested: StreamsEngine._take_back,
    SettleRequested: StreamsEngine._settle,
    FilterChangeRequested: StreamsEngine._change_filter,
    RunOpenRequested: StreamsEngine._open_run,
    StageOpenRequested: StreamsEngine._open_stage,
    CommitRequested: StreamsEngine._commit,
    StagesDropRequested: StreamsEngine._drop_stages,
    AdminRequested: StreamsEngine._administer,
    Appended: StreamsEngine._appended,
    AppendFailed: StreamsEngine._append_failed,
    RecordsRead: StreamsEngine._records_read,
    RangeMissing: StreamsEngine._range_missing,
    Located: StreamsEngine._located,
    DeadlineReached: StreamsEngine._deadline_reached,
}
