"""The way out: subscribers attach, are fed by credit, settle, and leave.

Source: docs/internals/DESIGN.md, "Subscriptions" and "Flow"; guarantees 1, 5 and 7.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from operator import itemgetter

from veredus.kernel.engine import Now
from veredus.kernel.errors import Refused
from veredus.kernel.names import check_incarnation, checked_name

from .by_stream import ByStream
from .cursors import Cursors
from .examine import Wanted, wanted_by
from .exchange import (
    EVERYTHING,
    ConfirmHanded,
    CreditGranted,
    Durability,
    Fence,
    GrantSubscription,
    HandedOut,
    Refuse,
    SettleRequested,
    StartKind,
    SubscribeRequested,
)
from .facts import SubscriptionOpened
from .feeding import Feeding
from .fencing import fenced
from .flow import Flow
from .kept import Kept, size_of_filter
from .orders import Orders, Then
from .parking import Parking, check_parking
from .removed import GIVEN
from .rights import next_owner, on_stream
from .stream import Stream
from .subscription import Awaited, Subscription
from .succession import handed_on
from .tables import Tables
from .weave import way_of


class Subscribing:
    """Owns who asks, who owns which subscription, and what is on its way to the journal."""

    __slots__ = ("_asking", "_cursors", "_orders", "_tables", "feeding", "flows", "kept", "opening")

    def __init__(self, tables: Tables, orders: Orders, cursors: Cursors, parking: Parking) -> None:
        self._tables = tables
        self._orders = orders
        self._asking: dict[int, SubscribeRequested] = {}
        self.opening: ByStream[tuple[str, str], Subscription] = ByStream()
        """New subscriptions on their way to the journal; they are in no table before they are there."""
        self.kept = Kept(tables, self.opening)
        self._cursors = cursors
        self.feeding = Feeding(orders, cursors, parking, tables.limits)
        self.flows = self.feeding.flows

    # ── attach ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def subscribe(self, event: SubscribeRequested, stream: Stream, now: Now) -> None:
        """Find out where to begin, then `begin`; by time it takes the journal to tell."""
        wanted = wanted_by(event.filter or EVERYTHING)
        self.feeding.check_terms(event.principal, wanted)
        if bool(event.subscriber) != bool(event.name):
            raise Refused(
                "no-subscriber",
                "a durable subscription needs a subscriber and a name, and an ephemeral one has neither",
            )
        check_parking(self._tables, event)
        if event.subscriber:
            checked_name("subscription", event.name)
            check_incarnation(event.incarnation)
        self._asking[event.session] = event
        if stream.is_term_durable:
            self._seek(event, stream, wanted, now)
        else:
            then = partial(self._seek_later, event, stream, wanted)
            behind = Then(then, partial(self._refuse_unstored, event))
            self._orders.append_fact(stream.term_raised(), behind, now, is_synced=True)

    def _seek_later(self, event: SubscribeRequested, stream: Stream, wanted: Wanted, now: Now) -> None:
        stream.is_term_durable = True
        self._seek_again(event, stream, wanted, now)

    def _seek(self, event: SubscribeRequested, stream: Stream, wanted: Wanted, now: Now) -> None:
        if not self._asks(event):
            return
        if self._has_cursor(event, stream) or event.start.kind is not StartKind.TIME:
            self.begin(event, stream, wanted, None, now)
        else:
            self._orders.locate(stream.stream_id, event.start.value, _Place(self, event, stream, wanted))

    def _has_cursor(self, event: SubscribeRequested, stream: Stream) -> bool:
        key = (event.subscriber, event.name)
        return key in stream.subscriptions or key in self.opening.of(stream.stream_id)

    def begin(self, event: SubscribeRequested, stream: Stream, wanted: Wanted, position: int | None, now: Now) -> None:
        """Go on where the subscription's cursor stands; without one at `position`, None for where it asked."""
        if not self._asks(event):
            return
        if stream.is_deleted:
            raise Refused("stream-deleted", f"stream {stream.name!r} was deleted")
        key = (event.subscriber, event.name)
        known = self.opening.of(stream.stream_id).get(key) or stream.subscriptions.get(key)
        if known is not None:
            self.feeding.in_turn(known, partial(self._take_over, event, stream, wanted, known), now)
            return
        if position is None:
            position = stream.place_of(event.start, event.term, event.terms)
        if not event.subscriber:
            self.feeding.check_ephemeral(event.principal)
            self.feeding.pump(self._start_flow(event, stream, wanted, position, None), now)
            return
        self._check_new(event, stream, now)
        stream.check_wish(key, event.wish, event.principal)
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
            handed_to=position - 1,
            attempts_max=event.attempts_max,
            parked_to=event.parked_to,
            opened_us=now.wall_us,
            start=position,
            renewed_us=now.wall_us,
            wish=event.wish,
            owner=next_owner(event.principal, ""),
            from_us=_from_us(event),
        )
        subscription = Subscription(fact, self._tables.limits.unsettled_max)
        self.opening.put(stream.stream_id, key, subscription)
        self.feeding.change(subscription, fact, _Opened(self, event, stream, wanted, subscription, fact), now)

    def _check_new(self, event: SubscribeRequested, stream: Stream, now: Now) -> None:
        if event.epoch:
            who = f"{event.subscriber}/{event.name}"
            message = (
                f"stream {stream.name!r} has no subscription {who} of epoch {event.epoch} any more: was it removed?"
                " Subscribe anew (epoch 0)"
            )
            raise Refused("unknown-subscription", message)
        count = len(stream.subscriptions) + len(self.opening.of(stream.stream_id))
        if count >= self._tables.limits.subscriptions_max:
            raise Refused(
                "too-many-subscriptions",
                f"stream {stream.name!r} has {count} subscriptions, its limit: remove some, or raise"
                " limits.subscriptions_max",
            )
        self.kept.take(next_owner(event.principal, ""), 1, size_of_filter(event.filter or EVERYTHING), now)

    def _take_over(
        self, event: SubscribeRequested, stream: Stream, wanted: Wanted, known: Subscription, now: Now
    ) -> None:
        """It is this one's turn to become the owner, if it is still there and so is what it wants to own."""
        if not self._asks(event):
            return
        if stream.subscriptions.get((known.subscriber, known.name)) is not known or stream.is_deleted:
            self._seek_again(event, stream, wanted, now)
            return
        try:
            named = on_stream(stream.name, subscriber=known.subscriber)
            self._tables.rights.check_owner(event.session, event.principal, known.owner, named)
        except Refused as refused:
            self.refuse(event.session, refused)
            return
        if known.is_past(event.epoch, event.incarnation):
            del self._asking[event.session]
            self._orders.say(Fence(event.session, known.epoch, _fenced(known, event.epoch)))
            return
        if event.filter is None:
            wanted = wanted_by(known.filter)
        owner = next_owner(event.principal, known.owner)
        try:
            if event.term and event.start.kind is StartKind.SEQUENCE:
                # Who has been here before names how far it is: behind the end, the journal is of an earlier time.
                stream.check_there(event.start.value, event.term, event.terms)
            self._check_filter(known, owner, wanted, now)
        except Refused as refused:
            self.refuse(event.session, refused)
            return
        fact = handed_on(
            known, event.incarnation, event.filter, int(event.mode), event.attempts_max, event.parked_to, owner
        )  # fmt: skip
        # What the one before has settled so far is in this fact, too.
        opening = _Opened(self, event, stream, wanted, known, fact, known.take_waiting())
        self.feeding.change(known, fact, opening, now)

    def _check_filter(self, known: Subscription, owner: str, wanted: Wanted, now: Now) -> None:
        """Raise `Refused` where what the owner keeps would be too much with this filter."""
        is_another = owner != known.owner
        before = 0 if is_another else size_of_filter(known.filter)
        self.kept.take(owner, int(is_another), max(0, size_of_filter(wanted.filter) - before), now)

    def _seek_again(self, event: SubscribeRequested, stream: Stream, wanted: Wanted, now: Now) -> None:
        """It has waited for something that is over now."""
        try:
            self._seek(event, stream, wanted, now)
        except Refused as refused:
            self.refuse(event.session, refused)

    def opened(self, opening: _Opened, now: Now) -> None:
        """The owner's epoch is in the journal: the one before is fenced, and the new one begins."""
        event, stream, subscription = opening.event, opening.stream, opening.subscription
        if self.opening.take(stream.stream_id, (subscription.subscriber, subscription.name)) is None:
            before, owner = subscription.session, subscription.owner
            is_fenced = subscription.epoch != opening.fact.epoch
            self._cursors.confirm(subscription, opening.fact, opening.told)
            # What was asked since is journaled next, and answered to nobody: who asked is over.
            subscription.take_waiting()
            subscription.hand_on(opening.fact, self._tables.limits.unsettled_max)
            who = f"{subscription.subscriber}/{subscription.name}"
            self._orders.note_owner(event, "cursor", who, stream.name, subscription.epoch, owner)
            if before != event.session and self.feeding.flow_of(before) is not None:
                self.feeding.drop(before)
                self._end_former(before, subscription, is_fenced)
        elif not stream.is_deleted:
            stream.subscriptions[subscription.subscriber, subscription.name] = subscription
        subscription.session = 0
        if stream.is_deleted and self._asks(event):
            self.refuse(event.session, Refused("stream-deleted", f"stream {stream.name!r} was deleted"))
        elif self._asks(event):
            subscription.session = event.session
            self._start_flow(event, stream, opening.wanted, subscription.floor + 1, subscription)
        else:
            self.feeding.detach(subscription, now)
        self.feeding.go_on(subscription, now)

    def _end_former(self, session: int, subscription: Subscription, is_fenced: bool) -> None:
        if is_fenced:
            self._orders.say(Fence(session, subscription.epoch, _fenced(subscription)))
        else:
            who = f"{subscription.subscriber}/{subscription.name}"
            self._orders.end_former(session, f"subscription {who}")

    def open_failed(self, opening: _Opened, code: str, reason: str, now: Now) -> None:
        """The owner's epoch could not be journaled: whoever owned it owns it still, and what was new is not there."""
        subscription = opening.subscription
        self.opening.take(subscription.stream_id, (subscription.subscriber, subscription.name))
        subscription.wait_again(opening.told)
        self._refuse_unstored(opening.event, code, reason)
        self.feeding.go_on(subscription, now)

    def _start_flow(
        self,
        event: SubscribeRequested,
        stream: Stream,
        wanted: Wanted,
        position: int,
        subscription: Subscription | None,
    ) -> Flow:
        del self._asking[event.session]
        flow = Flow(event.session, stream, wanted, position, event.until, event.credit, event.principal)
        flow.octet_ns = event.octet_ns
        flow.from_us = _from_us(event) if subscription is None else subscription.from_us
        flow.subscription = subscription
        flow.is_whole = event.is_whole and subscription is None
        epoch = 0
        if subscription is not None:
            flow.begin_under(subscription.before)
            flow.redelivered_to = subscription.pushed_to
            epoch = subscription.epoch
            way = way_of(stream.weave, subscription.floor) if event.is_woven else ()
            is_everything = flow.wanted.compiled.is_everything and not flow.later
            if way and not subscription.ledger.is_ordered and is_everything:
                flow.go_by(way)
        self.feeding.add(flow)
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
                stream.changed_from(event.term, event.terms),
                tuple(stream.terms),
                self._tables.removed.of(stream.name),
                stream.gone,
                stream.merged,
            )
        )
        return flow

    # ── feed ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def settle(self, event: SettleRequested, now: Now) -> None:
        """Settle what a session was pushed; feed it again if it waited for that."""
        flow = self.feeding.flow_of(event.session)
        if flow is None:
            message = "this subscription has ended: subscribe again, and settle what comes again"
            self._orders.refuse(event.session, "not-subscribed", message, is_final=False)
            return
        subscription = flow.subscription
        if subscription is None:
            self._orders.refuse(event.session, "not-durable", "only a durable subscription can settle", is_final=False)
            return
        was_full = subscription.ledger.is_full
        self._cursors.settle(event, subscription, now)
        if was_full:
            self.feeding.pump(flow, now)

    def hand_out(self, event: HandedOut, now: Now) -> None:
        """The application was handed what a session was pushed. Its client waits for the answer where that may have
        been tried before.
        """
        flow = self.feeding.flow_of(event.session)
        if flow is None:
            return
        # An earlier session may have been pushed more than this one has examined again.
        pushed_to = max(flow.position - 1, flow.subscription.pushed_to if flow.subscription is not None else 0)
        if event.sequence > pushed_to:
            # Who waits for the answer would wait for ever if only this were refused.
            message = f"{event.sequence} cannot have been handed out: the last pushed sequence is {pushed_to}"
            self._orders.refuse(event.session, "not-pushed", message, pushed_to=pushed_to)
            return
        if flow.subscription is None:
            self._orders.say(ConfirmHanded(event.session, event.sequence))
            return
        flow.subscription.note_handed(event.sequence)
        if event.sequence <= flow.redelivered_to:
            self._cursors.count(event, flow.subscription, now)
        else:
            self._cursors.count_later(event, flow.subscription)

    def grant_credit(self, event: CreditGranted, now: Now) -> None:
        """More bytes may be pushed."""
        flow = self.feeding.flow_of(event.session)
        if flow is not None:
            flow.credit = min(flow.credit + event.size, 1 << 62)
            self.feeding.pump(flow, now)

    def set_congested(self, session: int, is_congested: bool, now: Now) -> None:
        """The session's link cannot take more for now, or can again."""
        flow = self.feeding.flow_of(session)
        if flow is not None:
            flow.is_congested = is_congested
            self.feeding.pump(flow, now)

    # ── leave ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _asks(self, event: SubscribeRequested) -> bool:
        """Whether nobody has closed its session meanwhile, and perhaps opened it anew."""
        return self._asking.get(event.session) is event

    def _refuse_unstored(self, event: SubscribeRequested, code: str, reason: str) -> None:
        if self._asks(event):
            message = f"the node could not store the subscription ({reason}): try again later"
            self.refuse(event.session, Refused(code, message))

    def refuse(self, session: int, refused: Refused) -> None:
        """A session that waited for the journal is not granted what it asked for."""
        self._asking.pop(session, None)
        self._orders.say(Refuse(session, refused.code, refused.message, refused.details))

    def close(self, session: int, now: Now) -> None:
        """The session is over; a durable cursor stays where it is, and says so in the journal."""
        self._asking.pop(session, None)
        self.feeding.leave(session, now)

    def is_given(self, stream: Stream) -> bool:
        """Whether a stream bears the mark of one that may be another node's by now, or is about to."""
        on_their_way = self.opening.of(stream.stream_id)
        return stream.subscriptions.has_named(GIVEN) or GIVEN in map(itemgetter(1), on_their_way)


def _from_us(event: SubscribeRequested) -> int:
    """The append time before which nothing is wanted by who begins here; 0 where the start is no time."""
    return event.start.value if event.start.kind is StartKind.TIME else 0


def _fenced(subscription: Subscription, own: int = 0) -> str:
    return fenced("subscriber", f"subscription {subscription.subscriber}/{subscription.name}", subscription.epoch, own)


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
    fact: SubscriptionOpened
    told: tuple[Awaited, ...] = ()
    """What the owner before has asked for, and the fact holds."""

    def become_durable(self, durability: Durability, now: Now) -> None:
        self.subscribing.opened(self, now)

    def fail(self, code: str, reason: str, now: Now) -> None:
        self.subscribing.open_failed(self, code, reason, now)
