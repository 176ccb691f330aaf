"""The way out: subscribers attach, are fed by credit, settle, and leave.

Source: the design, sections 2 and 4; guarantees 1, 5 and 7.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cursus.journal.exchange import PlacedRecord
from cursus.kernel.engine import Now
from cursus.kernel.errors import Refused
from cursus.kernel.names import INCARNATION_SIZE, checked_name

from .cursors import Cursors
from .examine import Examiner, Wanted, wanted_by
from .exchange import (
    EVERYTHING,
    AdminRequested,
    ConfirmFilter,
    CreditGranted,
    Durability,
    EndSubscription,
    Fence,
    FilterChangeRequested,
    GrantSubscription,
    PushGap,
    PushProgress,
    Refuse,
    SettleRequested,
    StartKind,
    SubscribeRequested,
)
from .facts import SubscriptionOpened, SubscriptionRemoved
from .flow import FRAME_SIZE_MAX, READ_SIZE_MAX, Flow
from .orders import Orders
from .parking import Parking
from .stream import Stream
from .subscription import Subscription
from .tables import Tables

PROGRESS_COUNT = 100_000
"""A subscriber is told of this many examined sequences that brought it nothing."""


class Subscribing:
    """Owns the flows of all sessions."""

    __slots__ = ("_asking", "_cursors", "_examiner", "_orders", "_parking", "_tables", "flows")

    def __init__(self, tables: Tables, orders: Orders, cursors: Cursors, parking: Parking) -> None:
        self._tables = tables
        self._orders = orders
        self._asking: dict[int, None] = {}
        self._examiner = Examiner()
        self._cursors = cursors
        self._parking = parking
        self.flows: dict[int, Flow] = {}

    # ── attach ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def subscribe(self, event: SubscribeRequested, stream: Stream, now: Now) -> None:
        """Find out where to begin, then `begin`; by time it takes the journal to tell."""
        if event.stream_incarnation and event.stream_incarnation != stream.incarnation:
            raise Refused(
                "stream-replaced",
                f"stream {stream.name!r} was deleted and created again: its sequences mean something else; start anew",
                incarnation=stream.incarnation,
            )
        wanted = wanted_by(event.filter or EVERYTHING)
        if bool(event.subscriber) != bool(event.name):
            raise Refused("bad-name", "a durable subscription has a subscriber and a name, an ephemeral one neither")
        known = stream.subscriptions.get((event.subscriber, event.name)) if event.subscriber else None
        if event.attempts_max:
            self._check_parking(event)
        if event.subscriber:
            checked_name("subscriber", event.subscriber)
            checked_name("subscription", event.name)
            if len(event.incarnation) != INCARNATION_SIZE:
                raise Refused(
                    "bad-incarnation", f"an incarnation has {INCARNATION_SIZE} bytes, this has {len(event.incarnation)}"
                )
        self._asking[event.session] = None
        if known is not None:
            self._take_over(event, stream, known, now)
        elif event.start.kind is StartKind.TIME:
            self._orders.locate(stream.stream_id, event.start.value, _Place(self, event, stream, wanted))
        else:
            self.begin(event, stream, wanted, _start_of(event, stream), now)

    def _check_parking(self, event: SubscribeRequested) -> None:
        if not event.subscriber or event.parked_to not in self._tables.streams or event.parked_to == event.stream:
            message = "attempts_max needs a durable subscription, and a parked_to that names another stream that exists"
            raise Refused("bad-parking", message, parked_to=event.parked_to)
        self._tables.check_may(event.principal, "publish", event.parked_to)

    def begin(self, event: SubscribeRequested, stream: Stream, wanted: Wanted, position: int, now: Now) -> None:
        """Start a subscription that has no cursor at `position`."""
        if event.session not in self._asking:
            return
        if stream.is_deleted:
            raise Refused("stream-deleted", f"stream {stream.name!r} was deleted")
        if not event.subscriber:
            self._start_flow(event, stream, wanted, position, None, now)
            return
        known = stream.subscriptions.get((event.subscriber, event.name))
        if known is not None:
            # It came into being while the journal looked for the place to begin at.
            self._take_over(event, stream, known, now)
            return
        if event.epoch:
            message = (
                f"stream {stream.name!r} has no subscription {event.subscriber}/{event.name} with epoch {event.epoch}"
            )
            raise Refused("unknown-subscription", message + ": subscribe with epoch 0")
        count = len(stream.subscriptions)
        if count >= self._tables.limits.subscriptions_max:
            raise Refused(
                "too-many-subscriptions", f"stream {stream.name!r} has {count} subscriptions, its limit: remove one"
            )
        fact = SubscriptionOpened(
            stream_id=stream.stream_id,
            subscriber=event.subscriber,
            name=event.name,
            epoch=1,
            incarnation=event.incarnation,
            filter=wanted.filter,
            filter_sequence=position,
            mode=int(event.mode),
            floor=position - 1,
            settled=(),
            pushed_to=position - 1,
            pushed_known=position - 1,
            attempts_max=event.attempts_max,
            parked_to=event.parked_to,
        )
        subscription = Subscription(fact, self._tables.limits.unsettled_max)
        stream.subscriptions[event.subscriber, event.name] = subscription
        subscription.session = event.session
        self._orders.append_fact(fact, _Opened(self, event, stream, wanted, subscription, is_new=True), now)

    def _take_over(self, event: SubscribeRequested, stream: Stream, known: Subscription, now: Now) -> None:
        if event.epoch and event.epoch != known.epoch:
            self._orders.say(Fence(event.session, known.epoch, _fenced(known)))
            return
        if known.is_leaving:
            message = f"subscription {known.subscriber}/{known.name} is being removed: subscribe again"
            raise Refused("subscription-removed", message)
        is_same = event.incarnation == known.incarnation and known.epoch > 0
        if known.session and known.session != event.session:
            self._put_out(known, is_fenced=not is_same)
        known.session = event.session
        known.count_attempts()
        known.rewind(self._tables.limits.unsettled_max)
        known.attempts_max, known.parked_to = event.attempts_max, event.parked_to
        changed = event.filter is not None and event.filter != known.filter
        wanted = wanted_by(event.filter if event.filter is not None else known.filter)
        if not is_same:
            known.epoch += 1
            known.incarnation = event.incarnation
        if changed:
            known.filter = wanted.filter
            known.filter_sequence = known.floor + 1
        known.mode = int(event.mode)
        known.rewind(self._tables.limits.unsettled_max)
        known.is_attached = True
        self._orders.append_fact(known.opened(), _Opened(self, event, stream, wanted, known, is_new=False), now)

    def _put_out(self, known: Subscription, is_fenced: bool) -> None:
        """Whoever owns the subscription, or is about to, owns it no longer."""
        was_asking = known.session in self._asking
        self._asking.pop(known.session, None)
        flow = self._drop_flow(known.session)
        if is_fenced and (was_asking or flow is not None):
            self._orders.say(Fence(known.session, known.epoch + 1, _fenced(known)))

    def opened(
        self, event: SubscribeRequested, stream: Stream, wanted: Wanted, subscription: Subscription, now: Now
    ) -> None:
        """The owner's epoch is in the journal."""
        if stream.is_deleted:
            self._asking.pop(event.session, None)
            self._orders.refuse(event.session, "stream-deleted", f"stream {stream.name!r} was deleted")
        elif subscription.session == event.session and event.session in self._asking:
            self._start_flow(event, stream, wanted, subscription.floor + 1, subscription, now)

    def open_failed(
        self, session: int, subscription: Subscription, stream: Stream, is_new: bool, code: str, reason: str
    ) -> None:
        """The owner's epoch could not be journaled."""
        if subscription.session == session:
            subscription.session = 0
            if is_new:
                stream.subscriptions.pop((subscription.subscriber, subscription.name), None)
        self._asking.pop(session, None)
        self._orders.refuse(session, code, f"the node could not store the subscription ({reason}): try again later")

    def _start_flow(
        self,
        event: SubscribeRequested,
        stream: Stream,
        wanted: Wanted,
        position: int,
        subscription: Subscription | None,
        now: Now,
    ) -> None:
        del self._asking[event.session]
        flow = Flow(event.session, stream, wanted, position, event.until, event.credit)
        flow.subscription = subscription
        epoch = 0
        if subscription is not None:
            flow.redelivered_to = subscription.pushed_to
            epoch = subscription.epoch
        self.flows[event.session] = flow
        stream.flows[event.session] = flow
        self._orders.say(
            GrantSubscription(
                event.session,
                stream.stream_id,
                stream.incarnation,
                stream.term,
                epoch,
                position,
                stream.floor,
                stream.head_durable,
            )
        )
        self.pump(flow, now)

    # ── feed ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def pump(self, flow: Flow, now: Now) -> None:
        """Push what may be pushed now; ask the journal for what is not in memory; end what is at its end."""
        while not flow.waits_for:
            if flow.position < flow.stream.floor:
                self._skip(flow, flow.stream.floor, "trimmed")
                continue
            records = flow.stream.tail.read(flow.position, FRAME_SIZE_MAX)
            if records is None:
                flow.is_reading = True
                self._orders.read(flow.stream.stream_id, flow.position, READ_SIZE_MAX, _Read(self, flow))
                break
            self._push(flow, records, now)
        if flow.is_ended and not flow.is_reading and not flow.is_end_told:
            flow.is_end_told = True
            is_final = flow.subscription is None
            if is_final:
                self._drop_flow(flow.session)
            self._orders.say(EndSubscription(flow.session, flow.position, is_final))

    def _push(self, flow: Flow, records: Sequence[PlacedRecord], now: Now) -> int:
        push, examined_count, parcels = flow.take(records, self._examiner)
        if parcels:
            self._parking.park(flow, parcels, self._examiner, now)
        if push is not None:
            self._orders.say(push)
            self._orders.counts.pushed_size += push.size
            flow.progress_told = flow.position
        elif flow.position - flow.progress_told >= PROGRESS_COUNT:
            flow.progress_told = flow.position
            self._orders.say(PushProgress(flow.session, flow.position))
        self._cursors.note_moved(flow.subscription)
        return examined_count

    def take_records(self, flow: Flow, records: Sequence[PlacedRecord], now: Now) -> None:
        """The journal's records from the flow's position on."""
        flow.is_reading = False
        if self.flows.get(flow.session) is not flow:
            return
        if not records and flow.position < flow.end:
            # It was durable and the journal has nothing there: damage took the end of the stream.
            self._skip(flow, flow.stream.head_durable + 1, "damaged")
        rest = records
        while rest and not flow.waits_for and (examined := self._push(flow, rest, now)):
            rest = rest[examined:]
        self.pump(flow, now)

    def miss_range(self, flow: Flow, code: str, next_sequence: int, now: Now) -> None:
        """What lies below `next_sequence` cannot be had."""
        flow.is_reading = False
        if self.flows.get(flow.session) is flow:
            self._skip(flow, next_sequence, code)
            self.pump(flow, now)

    def _skip(self, flow: Flow, next_sequence: int, code: str) -> None:
        if next_sequence > flow.position:
            self._orders.say(PushGap(flow.session, flow.position, next_sequence, code))
            flow.skip_to(next_sequence, is_trimmed=code == "trimmed")
            self._cursors.note_moved(flow.subscription)

    def pump_stream(self, stream: Stream, now: Now) -> None:
        """The stream's durable head has moved: feed whoever waited for that."""
        for flow in list(stream.flows.values()):
            self.pump(flow, now)

    def settle(self, event: SettleRequested, now: Now) -> None:
        """Settle what a session was pushed; feed it again if it waited for that."""
        flow = self.flows.get(event.session)
        subscription = None if flow is None else flow.subscription
        if flow is None or subscription is None:
            self._orders.refuse(event.session, "not-durable", "only a durable subscription settles", is_final=False)
            return
        was_full = subscription.ledger.is_full
        self._cursors.settle(event, subscription, now)
        if was_full:
            self.pump(flow, now)

    def grant_credit(self, event: CreditGranted, now: Now) -> None:
        """More bytes may be pushed."""
        flow = self.flows.get(event.session)
        if flow is not None:
            flow.credit = min(flow.credit + event.size, 1 << 62)
            self.pump(flow, now)

    def set_congested(self, session: int, is_congested: bool, now: Now) -> None:
        """The session's link cannot take more for now, or can again."""
        flow = self.flows.get(session)
        if flow is not None:
            flow.is_congested = is_congested
            self.pump(flow, now)

    # ── filter, leave ────────────────────────────────────────────────────────────────────────────────────────────────

    def change_filter(self, event: FilterChangeRequested, now: Now) -> None:
        """Another filter from the flow's position on; journaled first where the subscription is durable."""
        flow = self.flows.get(event.session)
        if flow is None:
            self._orders.refuse(event.session, "not-subscribed", "subscribe before changing the filter")
            return
        flow.wanted = wanted_by(event.filter)
        subscription = flow.subscription
        if subscription is None:
            self._orders.say(ConfirmFilter(event.session, flow.position))
            self.pump(flow, now)
            return
        subscription.filter = event.filter
        subscription.filter_sequence = flow.position
        self._orders.append_fact(subscription.opened(), _FilterChanged(self, event.session, flow.position), now)

    def filter_changed(self, session: int, position: int) -> None:
        """The new filter is in the journal."""
        if session in self.flows:
            self._orders.say(ConfirmFilter(session, position))

    def refuse(self, session: int, refused: Refused) -> None:
        """A session that waited for the journal is not granted what it asked for."""
        self._asking.pop(session, None)
        self._orders.say(Refuse(session, refused.code, refused.message, refused.details))

    def close(self, session: int, now: Now) -> None:
        """The session is over; a durable cursor stays where it is, and says so in the journal."""
        flow = self._drop_flow(session)
        self._asking.pop(session, None)
        subscription = None if flow is None else flow.subscription
        if subscription is not None and subscription.session == session:
            subscription.session = 0
            subscription.is_attached = False
            self._cursors.journal(subscription, now)

    def remove(
        self,
        fact: SubscriptionRemoved,
        stream: Stream,
        subscription: Subscription,
        then: Callable[[], None],
        event: AdminRequested,
        now: Now,
    ) -> None:
        """Remove a durable subscription once that is journaled; its owner is told, then `then` is called."""
        subscription.is_leaving = True
        self._orders.append_fact(fact, _Removed(self, stream, subscription, then, event), now)

    def removed(self, stream: Stream, subscription: Subscription) -> None:
        """The removal is in the journal."""
        key = (subscription.subscriber, subscription.name)
        if stream.subscriptions.get(key) is subscription:
            del stream.subscriptions[key]
        self._cursors.forget(subscription)
        was_asking = subscription.session in self._asking
        self._asking.pop(subscription.session, None)
        if self._drop_flow(subscription.session) is not None or was_asking:
            message = f"subscription {key[0]}/{key[1]} was removed"
            self._orders.refuse(subscription.session, "subscription-removed", message)

    def end_stream(self, stream: Stream) -> None:
        """The stream was deleted: everybody who hung on it is told."""
        for flow in list(stream.flows.values()):
            self._drop_flow(flow.session)
            self._orders.refuse(flow.session, "stream-deleted", f"stream {stream.name!r} was deleted")
        for subscription in stream.subscriptions.values():
            self._cursors.forget(subscription)

    def _drop_flow(self, session: int) -> Flow | None:
        flow = self.flows.pop(session, None)
        if flow is not None:
            flow.stream.flows.pop(session, None)
        return flow


def _start_of(event: SubscribeRequested, stream: Stream) -> int:
    start, head, floor = event.start, stream.head_durable, stream.floor
    if start.kind is StartKind.HEAD:
        return head + 1
    if start.kind is StartKind.TAIL:
        return max(floor, head - start.value + 1)
    if start.kind is StartKind.AFTER_MINE:
        source = stream.sources.get(start.source)
        return max(floor, source.last_sequence + 1) if source else floor
    if start.value == 0:
        return floor
    if start.value < floor:
        message = f"sequence {start.value} of stream {stream.name!r} is gone: {floor} is the first one kept"
        raise Refused("below-floor", message, floor=floor, head=head)
    if start.value > head + 1:
        message = f"sequence {start.value} of stream {stream.name!r} is not there yet: the newest is {head}"
        raise Refused("above-head", message, floor=floor, head=head)
    return start.value


def _fenced(subscription: Subscription) -> str:
    return (
        f"another owner has taken over subscription {subscription.subscriber}/{subscription.name}: this one must stop"
    )


@dataclass(slots=True)
class _Place:
    subscribing: Subscribing
    event: SubscribeRequested
    stream: Stream
    wanted: Wanted

    def take_place(self, sequence: int, now: Now) -> None:
        try:
            self.subscribing.begin(self.event, self.stream, self.wanted, max(self.stream.floor, sequence), now)
        except Refused as refused:
            self.subscribing.refuse(self.event.session, refused)


@dataclass(slots=True)
class _Opened:
    subscribing: Subscribing
    event: SubscribeRequested
    stream: Stream
    wanted: Wanted
    subscription: Subscription
    is_new: bool

    def become_durable(self, durability: Durability, now: Now) -> None:
        self.subscribing.opened(self.event, self.stream, self.wanted, self.subscription, now)

    def fail(self, code: str, reason: str, now: Now) -> None:
        self.subscribing.open_failed(self.event.session, self.subscription, self.stream, self.is_new, code, reason)


@dataclass(slots=True)
class _Read:
    subscribing: Subscribing
    flow: Flow

    def take_records(self, records: Sequence[PlacedRecord], now: Now) -> None:
        self.subscribing.take_records(self.flow, records, now)

    def miss_range(self, code: str, next_sequence: int, now: Now) -> None:
        self.subscribing.miss_range(self.flow, code, next_sequence, now)


@dataclass(slots=True)
class _Removed:
    subscribing: Subscribing
    stream: Stream
    subscription: Subscription
    then: Callable[[], None]
    event: AdminRequested

    def become_durable(self, durability: Durability, now: Now) -> None:
        self.subscribing.removed(self.stream, self.subscription)
        self.then()

    def fail(self, code: str, reason: str, now: Now) -> None:
        self.subscription.is_leaving = False
        message = f"the node could not store the removal ({reason}): nothing has changed"
        self.subscribing._orders.refuse(self.event.session, code, message, self.event.request, is_final=False)


@dataclass(slots=True)
class _FilterChanged:
    subscribing: Subscribing
    session: int
    position: int

    def become_durable(self, durability: Durability, now: Now) -> None:
        self.subscribing.filter_changed(self.session, self.position)

    def fail(self, code: str, reason: str, now: Now) -> None:
        self.subscribing._orders.refuse(
            self.session, code, f"the node could not store the filter ({reason}): try again later"
        )
