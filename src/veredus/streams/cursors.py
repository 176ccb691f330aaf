"""Cursors: settlements and attempts on their way into the journal, and what a filter's rejections move without anybody.

A settlement, or an attempt that has begun or ended, is journaled at once, confirmed when it is durable, and joined with
others while one is on its way, or while the subscription itself changes: a cursor's facts never speak of an owner that
may not come to be. What the journal does not take stands in memory, and the next fact carries it.
Source: docs/internals/DESIGN.md, "Cursors".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from veredus.delivery.settlement import Range
from veredus.kernel.deadlines import Deadlines
from veredus.kernel.engine import Now
from veredus.kernel.turns import Turns

from .audience import Audience
from .exchange import (
    ConfirmHanded,
    ConfirmReturned,
    ConfirmSettled,
    Durability,
    HandedOut,
    ReturnRequested,
    SettleRequested,
)
from .facts import SubscriptionOpened, SubscriptionSettled
from .orders import Orders
from .ranges import is_in, joined, raised, touched
from .spread import Spread
from .subscription import Awaited, Subscription
from .tables import StreamsLimits

CURSOR_INTERVAL_NS = 1_000_000_000
"""How long a cursor that moved over what its filter rejected, or what nobody waits for, may wait for the journal."""


FACT_NS = 40_000
"""What it costs to journal a cursor and to answer, roughly."""
RANGE_NS = 2_000
"""What each settled range, or count, adds to that."""
Key: TypeAlias = tuple[int, str, str]


class Cursors:
    """Owns the cursors that have moved since they were last journaled."""

    __slots__ = ("_moved", "_orders", "_passed", "_waiting", "deadlines", "ended", "spread", "turns")

    def __init__(self, orders: Orders, limits: StreamsLimits) -> None:
        self._orders = orders
        self.spread = Spread(limits)
        self._moved: dict[Key, Subscription] = {}
        self._passed: dict[Audience, None] = {}
        """Whose members' cursors have moved since, those of all together."""
        self._waiting: dict[Key, Subscription] = {}
        self.turns: Turns[str, Key] = Turns()
        """By owner: one may have very many cursors, or some of very many ranges, which are written as a whole."""
        self.deadlines: Deadlines[str] = Deadlines()
        self.ended: set[int] = set()
        """The ids of deleted streams whose cursors are still known: they are journaled no more."""

    def settle(self, event: SettleRequested, subscription: Subscription, now: Now) -> None:
        """Move the cursor; nothing above what was pushed can be settled."""
        ledger = subscription.ledger
        for first, last in event.ranges:
            if not 0 <= first <= last or last > subscription.pushed_to:
                message = f"{first} to {last} cannot be settled: the last pushed sequence is {subscription.pushed_to}"
                self._orders.refuse(
                    event.session, "not-pushed", message, is_final=False, pushed_to=subscription.pushed_to
                )
                return
        self.spread.make_room(subscription)
        kept_back = 0
        ahead: list[Range] = []
        for first, last in event.ranges:
            kept_back += not ledger.settle(0 if ledger.is_ordered else first, last)
            if last >= ledger.position:
                ahead.append((ledger.position if ledger.is_ordered else max(first, ledger.position), last))
        if ahead:
            kept_back += subscription.exclude(ahead)
        if kept_back:
            message = (
                f"{kept_back} settlements would leave more ranges of unsettled publications than the limit,"
                f" {ledger.ranges_max}: settle the publications between them, then retry"
            )
            self._orders.refuse(event.session, "too-many-ranges", message, is_final=False)
        else:
            settled = joined((0 if ledger.is_ordered else first, last) for first, last in event.ranges)
            subscription.tries.drop_all(settled)
            subscription.wait(event)
        self.spread.count(subscription)
        self.journal(subscription, now)

    def count(self, event: ReturnRequested | HandedOut, subscription: Subscription, now: Now) -> None:
        """Journal what has changed of its attempts, and answer this when it is there."""
        subscription.wait(event)
        self.spread.count(subscription)
        self.journal(subscription, now)

    def count_later(self, event: HandedOut, subscription: Subscription) -> None:
        """As `count`, with the next that is journaled, or in `CURSOR_INTERVAL_NS`."""
        subscription.wait(event)
        self._moved[key_of(subscription)] = subscription

    def journal(self, subscription: Subscription, now: Now, *, has_turn: bool = False) -> None:
        """Journal where the cursor stands, once what is on its way to the journal has arrived."""
        if subscription.is_removed or subscription.stream_id in self.ended:
            return
        if subscription.is_journaling or subscription.is_changing or not (has_turn or self._may_go(subscription, now)):
            subscription.is_stale = True
            return
        self.turns.charge(subscription.owner, _cost_of(subscription), now)
        subscription.is_journaling = True
        subscription.is_stale = False
        told = subscription.take_waiting()
        self.forget(subscription)
        attempts = subscription.tries.tell(is_limited=subscription.attempts_max > 0)
        fact = subscription.settled(is_detached=not subscription.is_attached, attempts=attempts)
        self._orders.append_fact(fact, _CursorMoved(self, subscription, fact, told), now, payer=subscription.owner)

    def charge(self, subscription: Subscription, now: Now) -> None:
        """A fact that names all ranges of the cursor is made for its owner, who pays for these beside it."""
        self.turns.charge(subscription.owner, _ranges_of(subscription) * RANGE_NS, now)

    def may_change(self, subscription: Subscription, now: Now) -> bool:
        """Whether it is changed now: what is to change waits otherwise, as its cursor does, for `make_changes`."""
        return subscription.is_removed or self._may_go(subscription, now)

    def make_changes(self, subscription: Subscription, now: Now, *, has_turn: bool = False) -> bool:
        """Make the changes that wait, until one is on its way or the owner has had its share; whether none is left."""
        while subscription.changes and not subscription.is_changing:
            if not (has_turn or self.may_change(subscription, now)):
                break
            has_turn = False
            subscription.changes.pop(0)(now)
        return not subscription.changes

    def _may_go(self, subscription: Subscription, now: Now) -> bool:
        """Whether the cursor is written now: it waits where its owner has had its share of this turn."""
        if self.turns.may_go(subscription.owner, now):
            return True
        self._waiting[key_of(subscription)] = subscription
        self.turns.wait(subscription.owner, key_of(subscription))
        return False

    def give_turns(self, now: Now) -> None:
        """Change subscriptions, or journal cursors, whose turn it is: of each owner, until it has had its share."""
        for key in self.turns.rounds(now):
            subscription = self._waiting.pop(key)
            if subscription.changes:
                self.make_changes(subscription, now, has_turn=True)
                self.go_on(subscription, now)
            elif subscription.is_stale:
                self.journal(subscription, now, has_turn=True)

    def cursor_durable(
        self, subscription: Subscription, fact: SubscriptionSettled, told: tuple[Awaited, ...], now: Now
    ) -> None:
        """What was settled, given back or taken again is in the journal."""
        subscription.is_journaling = False
        subscription.floor_durable = max(subscription.floor_durable, fact.floor)
        self.confirm(subscription, fact, told)
        self.go_on(subscription, now)

    def confirm(
        self, subscription: Subscription, fact: SubscriptionSettled | SubscriptionOpened, told: Iterable[Awaited]
    ) -> None:
        """Answer the owner what this fact, which is in the journal, holds; nobody else has asked, or is there."""
        for event in told:
            if event.session == subscription.session:
                self._confirm(event, subscription, fact)

    def _confirm(
        self, event: Awaited, subscription: Subscription, fact: SubscriptionSettled | SubscriptionOpened
    ) -> None:
        match event:
            case SettleRequested(session, ranges):
                floor, settled = raised(fact.floor, fact.settled)
                self._orders.say(ConfirmSettled(session, floor, touched(settled, ranges)))
            case ReturnRequested(session, sequence):
                is_settled = sequence <= fact.floor or is_in(sequence, fact.settled)
                if not is_settled:
                    subscription.note_taken_back(sequence)
                self._orders.say(ConfirmReturned(session, sequence, is_parked=is_settled))
            case HandedOut(session, sequence):
                self._orders.say(ConfirmHanded(session, sequence))

    def go_on(self, subscription: Subscription, now: Now) -> None:
        """What was on its way is answered: make what waits for that, and journal what has come about since."""
        if self.make_changes(subscription, now) and subscription.is_stale:
            self.journal(subscription, now)

    def cursor_failed(
        self,
        subscription: Subscription,
        fact: SubscriptionSettled,
        told: tuple[Awaited, ...],
        code: str,
        reason: str,
        now: Now,
    ) -> None:
        """It could not be journaled; it stands in memory, and the next fact carries it."""
        subscription.is_journaling = False
        subscription.tries.tell_again(fact.attempts)
        for event in told:
            if event.session == subscription.session:
                self._refuse(event, subscription, code, reason)
        self.go_on(subscription, now)

    def _refuse(self, event: Awaited, subscription: Subscription, code: str, reason: str) -> None:
        match event:
            case SettleRequested(session):
                message = f"the node could not store the settlement ({reason}): settle again later"
                self._orders.refuse(session, code, message, is_final=False)
            case ReturnRequested(session, sequence):
                message = f"the node could not store the attempt ({reason}): return the publication again later"
                self._orders.refuse(session, code, message, is_final=False, returned=sequence)
            case HandedOut():
                # There is no word to refuse it with: its client waits until it counts.
                self.count_later(event, subscription)

    def journal_moved(self, now: Now) -> None:
        """Journal the cursors that moved over what their filters rejected; due each `CURSOR_INTERVAL_NS`."""
        for audience in self._passed:
            for flow in audience.durable:
                self.note_moved(flow.subscription)
        self._passed.clear()
        moved, self._moved = self._moved, {}
        for subscription in moved.values():
            self.journal(subscription, now)

    def arm(self, now: Now) -> None:
        """See that cursors which moved are journaled in time."""
        if (self._moved or self._passed) and not self.deadlines.is_set("cursors"):
            self.deadlines.set("cursors", now.monotonic_ns + CURSOR_INTERVAL_NS)

    def note_moved(self, subscription: Subscription | None) -> None:
        """The subscription's flow went on; its cursor may have."""
        if subscription is None:
            return
        self.spread.count(subscription)
        if subscription.floor > subscription.floor_durable:
            self._moved[key_of(subscription)] = subscription

    def note_passed(self, audience: Audience) -> None:
        """Those that wait together have passed what none of them wanted."""
        if audience.durable:
            self._passed[audience] = None

    def drop(self, subscription: Subscription) -> None:
        """The subscription is gone; what is to change of it is told so in its turn."""
        if subscription.changes:
            self._moved.pop(key_of(subscription), None)
        else:
            self.forget(subscription)
        self.spread.forget(subscription)

    def forget(self, subscription: Subscription) -> None:
        """The cursor need not be journaled any more."""
        key = key_of(subscription)
        self._moved.pop(key, None)
        self._waiting.pop(key, None)
        self.turns.forget(key)


def _cost_of(subscription: Subscription) -> int:
    return FACT_NS + (_ranges_of(subscription) + subscription.tries.changed_count) * RANGE_NS


def _ranges_of(subscription: Subscription) -> int:
    return subscription.ledger.unsettled_count + len(subscription.excluded)


def key_of(subscription: Subscription) -> Key:
    """What a durable subscription is known by."""
    return subscription.stream_id, subscription.subscriber, subscription.name


@dataclass(slots=True)
class _CursorMoved:
    cursors: Cursors
    subscription: Subscription
    fact: SubscriptionSettled
    told: tuple[Awaited, ...]

    def become_durable(self, durability: Durability, now: Now) -> None:
        self.cursors.cursor_durable(self.subscription, self.fact, self.told, now)

    def fail(self, code: str, reason: str, now: Now) -> None:
        self.cursors.cursor_failed(self.subscription, self.fact, self.told, code, reason, now)
