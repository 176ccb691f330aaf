"""Cursors: settlements on their way into the journal, and what a filter's rejections move without anybody's settling.

A settlement is journaled at once, confirmed when it is durable, and joined with others while one is on its way, or
while the subscription itself changes: a cursor's facts never speak of an owner that may not come to be.
Source: the design, sections 2 ("cursor") and 4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from veredus.delivery.settlement import Range
from veredus.kernel.deadlines import Deadlines
from veredus.kernel.engine import Now
from veredus.kernel.turns import QUANTUM_NS, Turns

from .exchange import ConfirmSettled, Durability, SettleRequested
from .orders import Orders
from .spread import Spread
from .subscription import Subscription
from .tables import StreamsLimits

CURSOR_INTERVAL_NS = 1_000_000_000
"""How long a cursor that moved over what its filter rejected may wait for the journal."""


RANGE_NS = 2_000
"""What it costs to journal one settled range, roughly."""
LONG_NS = QUANTUM_NS // 8
"""A cursor that costs less is journaled at once."""
Key: TypeAlias = tuple[int, str, str]


class Cursors:
    """Owns the cursors that have moved since they were last journaled."""

    __slots__ = ("_moved", "_orders", "_waiting", "deadlines", "spread", "turns")

    def __init__(self, orders: Orders, limits: StreamsLimits) -> None:
        self._orders = orders
        self.spread = Spread(limits)
        self._moved: dict[Key, Subscription] = {}
        self._waiting: dict[Key, Subscription] = {}
        self.turns: Turns[str, Key] = Turns()
        """Of the cursors with many ranges, by owner: each is written as a whole."""
        self.deadlines: Deadlines[str] = Deadlines()

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
                f"{kept_back} ranges would exceed the limit of {ledger.ranges_max} settled ranges above the floor:"
                " settle the publications between them, then retry"
            )
            self._orders.refuse(event.session, "too-many-ranges", message, is_final=False)
        else:
            for first, last in event.ranges:
                subscription.forget_tried(0 if ledger.is_ordered else first, last)
            subscription.waiting.append(event.session)
        self.spread.count(subscription)
        self.journal(subscription, now)

    def journal(self, subscription: Subscription, now: Now, *, has_turn: bool = False) -> None:
        """Journal where the cursor stands, once what is on its way to the journal has arrived."""
        if subscription.is_removed:
            return
        if subscription.is_journaling or subscription.is_changing or not (has_turn or self._may_go(subscription, now)):
            subscription.is_stale = True
            return
        self.turns.charge(subscription.owner, _cost_of(subscription), now)
        subscription.is_journaling = True
        subscription.is_stale = False
        told, subscription.waiting = subscription.waiting, []
        self.forget(subscription)
        fact = subscription.settled(is_detached=not subscription.is_attached)
        self._orders.append_fact(
            fact, _CursorMoved(self, subscription, fact.floor, fact.settled, tuple(dict.fromkeys(told))), now
        )

    def _may_go(self, subscription: Subscription, now: Now) -> bool:
        """Whether the cursor is written now; one with many ranges may have to wait for its owner's turn."""
        if _cost_of(subscription) < LONG_NS or self.turns.may_go(subscription.owner, now):
            return True
        self._waiting[key_of(subscription)] = subscription
        self.turns.wait(subscription.owner, key_of(subscription))
        return False

    def give_turns(self, now: Now) -> None:
        """Journal the cursors whose turn it is."""
        for key in self.turns.due(now):
            subscription = self._waiting.pop(key)
            if subscription.is_stale:
                self.journal(subscription, now, has_turn=True)

    def cursor_durable(
        self,
        subscription: Subscription,
        floor: int,
        ranges: tuple[tuple[int, int], ...],
        told: tuple[int, ...],
        now: Now,
    ) -> None:
        """A settlement is in the journal."""
        subscription.is_journaling = False
        subscription.floor_durable = max(subscription.floor_durable, floor)
        for session in told:
            if session == subscription.session:
                self._orders.say(ConfirmSettled(session, floor, ranges))
        self.go_on(subscription, now)

    def go_on(self, subscription: Subscription, now: Now) -> None:
        """What was on its way is answered: journal what has come about since."""
        if subscription.is_stale:
            self.journal(subscription, now)

    def cursor_failed(
        self, subscription: Subscription, told: tuple[int, ...], code: str, reason: str, now: Now
    ) -> None:
        """A settlement could not be journaled; it stands in memory, and the next one carries it."""
        subscription.is_journaling = False
        for session in told:
            if session == subscription.session:
                message = f"the node could not store the settlement ({reason}): settle again later"
                self._orders.refuse(session, code, message, is_final=False)
        self.go_on(subscription, now)

    def journal_moved(self, now: Now) -> None:
        """Journal the cursors that moved over what their filters rejected; due each `CURSOR_INTERVAL_NS`."""
        moved, self._moved = self._moved, {}
        for subscription in moved.values():
            if not subscription.is_journaling:
                self.journal(subscription, now)

    def arm(self, now: Now) -> None:
        """See that cursors which moved are journaled in time."""
        if self._moved and not self.deadlines.is_set("cursors"):
            self.deadlines.set("cursors", now.monotonic_ns + CURSOR_INTERVAL_NS)

    def note_moved(self, subscription: Subscription | None) -> None:
        """The subscription's flow went on; its cursor may have."""
        if subscription is None:
            return
        self.spread.count(subscription)
        if subscription.floor > subscription.floor_durable:
            self._moved[key_of(subscription)] = subscription

    def drop(self, subscription: Subscription) -> None:
        """The subscription is gone."""
        self.forget(subscription)
        self.spread.forget(subscription)

    def forget(self, subscription: Subscription) -> None:
        """The cursor need not be journaled any more."""
        key = key_of(subscription)
        self._moved.pop(key, None)
        self._waiting.pop(key, None)
        self.turns.forget(key)


def _cost_of(subscription: Subscription) -> int:
    return (subscription.ledger.unsettled_count + len(subscription.excluded)) * RANGE_NS


def key_of(subscription: Subscription) -> Key:
    """What a durable subscription is known by."""
    return subscription.stream_id, subscription.subscriber, subscription.name


@dataclass(slots=True)
class _CursorMoved:
    cursors: Cursors
    subscription: Subscription
    floor: int
    ranges: tuple[tuple[int, int], ...]
    told: tuple[int, ...]

    def become_durable(self, durability: Durability, now: Now) -> None:
        self.cursors.cursor_durable(self.subscription, self.floor, self.ranges, self.told, now)

    def fail(self, code: str, reason: str, now: Now) -> None:
        self.cursors.cursor_failed(self.subscription, self.told, code, reason, now)
