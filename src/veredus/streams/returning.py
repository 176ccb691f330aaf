"""Returning: what an application gives back is tried again, or becomes a dead letter when it is its principal's turn.

What a session gives back meanwhile is moved together, as far as it lies in one record: one append for all of it.
Source: docs/internals/DESIGN.md, "Attempts".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from veredus.journal.exchange import PlacedRecord
from veredus.kernel.effects import Note
from veredus.kernel.engine import Now
from veredus.kernel.errors import Refused
from veredus.kernel.turns import QUANTUM_NS, Turns

from .attempts import ConfirmReturned, ReturnRequested
from .cursors import Cursors
from .examine import ATTEMPTS, Examiner
from .exchange import Durability, Refuse
from .feeding import Feeding
from .flow import Flow
from .orders import Orders
from .parking import Parking
from .ranges import is_in, joined
from .subscription import Subscription

READ_NS = QUANTUM_NS // 4
"""What it costs to read a record from the journal, roughly."""
MOVED_MAX = 256
"""How many publications are moved at once."""
REASONS_MAX = 16
"""For so many reasons: those that are moved for one are cut out of their record, and written, together."""


class Returning:
    """Answers those who give something back."""

    __slots__ = ("_cursors", "_examiner", "_feeding", "_given", "_orders", "_parking", "turns")

    def __init__(self, orders: Orders, feeding: Feeding, parking: Parking, cursors: Cursors) -> None:
        """Parks by `parking` what came back for good, or too often; `cursors` journal how often the rest was tried."""
        self._cursors = cursors
        self._orders = orders
        self._feeding = feeding
        self._parking = parking
        self._examiner = Examiner()
        self._given: dict[Flow, dict[int, ReturnRequested]] = {}
        """What is to be parked, by flow and sequence, until its answer is said."""
        self.turns: Turns[str, Flow] = Turns()
        """Of the flows with something to be read and moved, by principal: a small record may hold a large row."""

    def take_back(self, event: ReturnRequested, now: Now) -> None:
        """Count the attempt; read and park the publication, where that was the last one or it is rejected."""
        flow = self._feeding.flow_of(event.session)
        subscription = None if flow is None else flow.subscription
        if flow is None or subscription is None or subscription.ledger.is_ordered:
            self._refuse(
                event, "not-individual", "retry and reject need a durable subscription whose mode is individual"
            )
        elif event.sequence < 1:
            self._refuse(event, "not-pushed", f"{event.sequence} was never pushed: sequences begin at 1")
        elif event.sequence > subscription.pushed_to:
            self._refuse(event, "not-pushed", f"{event.sequence} was not pushed yet")
        elif event.sequence in self._given.get(flow, ()):
            # It is on its way to the dead letters already, and answered when it is known to be one.
            return
        elif not subscription.is_unsettled(event.sequence):
            self._await_settlement(event, subscription, now)
        elif not event.is_retry and not subscription.parked_to:
            self._refuse(
                event, "no-dead-letters", "this subscription has no stream for dead letters: subscribe with parked_to"
            )
        elif event.is_taken:
            subscription.tries.begin(event.sequence)
            self._cursors.count(event, subscription, now)
        elif self._has_no_room(subscription, event.sequence):
            self._refuse(
                event,
                "too-many-ranges",
                f"this subscription counts attempts at {subscription.ledger.ranges_max} ranges, its limit: settle some"
                " of what it has tried, then retry",
            )
        elif event.is_retry and not subscription.take_back(event.sequence):
            self._cursors.count(event, subscription, now)
        else:
            given = self._given.setdefault(flow, {})
            given[event.sequence] = event
            if len(given) == 1:
                self._feeding.in_turn(subscription, partial(self._begin, flow), now)

    def _await_settlement(self, event: ReturnRequested, subscription: Subscription, now: Now) -> None:
        """It is done with already, as far as this node knows: say so when the journal knows it, too."""
        if event.sequence <= subscription.floor_durable:
            self._orders.say(ConfirmReturned(event.session, event.sequence, is_parked=True))
        elif is_in(event.sequence, subscription.leaving):
            # It is unsettled again where the journal does not take the dead letter.
            self._feeding.in_turn(subscription, partial(self._take_back_now, event), now)
        else:
            self._cursors.count(event, subscription, now)

    def _take_back_now(self, event: ReturnRequested, now: Now) -> None:
        if self._feeding.flow_of(event.session) is not None:
            self.take_back(event, now)

    def _has_no_room(self, subscription: Subscription, sequence: int) -> bool:
        self._cursors.spread.make_room(subscription)
        return subscription.has_tried_enough and not subscription.tries.at(sequence)

    def _refuse(self, event: ReturnRequested, code: str, message: str) -> None:
        self._orders.say(_refusal(event, code, message))

    # ── one move at a time ───────────────────────────────────────────────────────────────────────────────────────────

    def give_turns(self, now: Now) -> None:
        """Move what is next of each principal."""
        for flow in self.turns.each(now):
            self._feeding.in_turn(_subscription_of(flow), partial(self._begin, flow, has_turn=True), now)

    def _begin(self, flow: Flow, now: Now, *, has_turn: bool = False) -> None:
        """Move the first of what was given back, while nothing else changes the subscription."""
        if not self._feeding.is_there(flow):
            self._given.pop(flow, None)
            return
        while given := self._given.get(flow):
            if not (self.turns.has_share(flow.payer, now) if has_turn else self.turns.may_go(flow.payer, now)):
                self.turns.wait(flow.payer, flow)
                return
            sequence = next(iter(given))
            records = flow.stream.tail.read(sequence, 1)
            if records is None:
                _subscription_of(flow).is_changing = True
                self.turns.charge(flow.payer, READ_NS, now)
                self._orders.read(flow.stream.stream_id, sequence, 1, _Read(self, flow, sequence))
                return
            if self._park(flow, sequence, records, now):
                return
        subscription = _subscription_of(flow)
        if subscription.is_stale:
            self._cursors.journal(subscription, now)

    def _end(self, flow: Flow, now: Now) -> None:
        """The subscription may change again: what was given back meanwhile takes its turn behind what waits."""
        subscription = _subscription_of(flow)
        if flow in self._given:
            self._feeding.in_turn(subscription, partial(self._begin, flow), now)
        self._feeding.go_on(subscription, now)

    def take_records(self, flow: Flow, sequence: int, records: Sequence[PlacedRecord], now: Now) -> None:
        """The journal's records from the publication on; too much may have been read for one turn."""
        is_here = self._feeding.is_there(flow)
        if is_here and not self.turns.has_share(flow.payer, now):
            # It is read once more: what waits holds no records.
            self.turns.wait(flow.payer, flow)
            self._feeding.go_on(_subscription_of(flow), now)
        elif not is_here or not self._park(flow, sequence, records, now):
            self._end(flow, now)

    def _park(self, flow: Flow, sequence: int, records: Sequence[PlacedRecord], now: Now) -> bool:
        """Order the move of what was given back of the record that holds the publication; whether there is any."""
        holds = bool(records) and records[0].first_sequence <= sequence < records[0].first_sequence + records[0].count
        if not holds:
            return self._miss(flow, sequence, "damaged", now)
        record, subscription = records[0], _subscription_of(flow)
        last = record.first_sequence + record.count - 1
        given = self._given[flow]
        by_reason: dict[str, list[int]] = {}
        moved: list[int] = []
        for place in [place for place in given if record.first_sequence <= place <= last][:MOVED_MAX]:
            reason = ATTEMPTS if given[place].is_retry else given[place].reason
            if reason not in by_reason and len(by_reason) == REASONS_MAX:
                break
            if self._settle(flow, subscription, place):
                by_reason.setdefault(reason, []).append(place)
                moved.append(place)
        parcels = [
            self._examiner.parcel_of(record, joined((place, place) for place in found), reason)
            for reason, found in by_reason.items()
        ]
        if parcels:
            self._cursors.charge(subscription, now)
            try:
                self._parking.park(flow, parcels, self._examiner, now, _Moved(self, flow, moved))
            except Refused as refused:
                for place in moved:
                    self._deny(flow, place, refused.code, refused.message)
                parcels = []
            self.turns.charge(flow.payer, self._examiner.take_cost(), now)
        return bool(parcels)

    def _miss(self, flow: Flow, sequence: int, code: str, now: Now) -> bool:
        """It is not kept any more, so it can be no dead letter: order that it is settled; whether that is needed."""
        subscription = _subscription_of(flow)
        if not self._settle(flow, subscription, sequence):
            return False
        fact = subscription.settled(is_detached=not subscription.is_attached)
        self._feeding.change(subscription, fact, _Gone(self, flow, sequence, fact.floor, code), now)
        return True

    def _settle(self, flow: Flow, subscription: Subscription, sequence: int) -> bool:
        """Count it as done with: where that cannot be, answer at once; where it is so already, once that is stored."""
        if not subscription.is_unsettled(sequence):
            # The cursor is not journaled here: others that are moved with this one count as done with by now.
            subscription.wait(self._drop(flow, sequence))
            subscription.is_stale = True
        elif not subscription.settle_one(sequence):
            message = (
                "the subscription would have more ranges of unsettled publications than the limit,"
                f" {subscription.ledger.ranges_max}: settle the publications before it first"
            )
            self._deny(flow, sequence, "too-many-ranges", message)
        else:
            if not self._given[flow][sequence].is_retry:
                subscription.take_back(sequence)
            return True
        return False

    # ── answers ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _confirm(self, flow: Flow, sequence: int) -> None:
        self._answer(flow, sequence, ConfirmReturned(flow.session, sequence, is_parked=True))

    def _deny(self, flow: Flow, sequence: int, code: str, message: str) -> None:
        self._answer(flow, sequence, _refusal(self._given[flow][sequence], code, message))

    def _answer(self, flow: Flow, sequence: int, answer: ConfirmReturned | Refuse) -> None:
        self._drop(flow, sequence)
        if self._feeding.is_there(flow):
            self._orders.say(answer)

    def _drop(self, flow: Flow, sequence: int) -> ReturnRequested:
        given = self._given[flow]
        event = given.pop(sequence)
        if not given:
            del self._given[flow]
        return event

    def missed(self, flow: Flow, sequence: int, code: str, now: Now) -> None:
        """The journal cannot read it."""
        if not self._feeding.is_there(flow) or not self._miss(flow, sequence, code, now):
            self._end(flow, now)

    def gone(self, flow: Flow, sequence: int, code: str, now: Now) -> None:
        """That it is settled is in the journal."""
        subscription = _subscription_of(flow)
        fields = {
            "stream": flow.stream.name,
            "sequence": sequence,
            "subscription": f"{subscription.subscriber}/{subscription.name}",
            "parked_to": subscription.parked_to,
            "cause": code,
        }
        self._orders.say(Note("warning", "letter-gone", fields))
        self.parked(flow, [sequence], now)

    def parked(self, flow: Flow, moved: Sequence[int], now: Now) -> None:
        """The move is in the journal; a flow that waited for settlements may go on."""
        for sequence in moved:
            self._confirm(flow, sequence)
        self._end(flow, now)

    def park_failed(self, flow: Flow, moved: Sequence[int], code: str, reason: str, now: Now) -> None:
        """The move is not in the journal: all of it is unsettled again."""
        message = f"the node could not store the dead letter ({reason}): reject it again later"
        for sequence in moved:
            self._deny(flow, sequence, code, message)
        self._end(flow, now)


def _subscription_of(flow: Flow) -> Subscription:
    assert flow.subscription is not None
    return flow.subscription


def _refusal(event: ReturnRequested, code: str, message: str) -> Refuse:
    return Refuse(event.session, code, message, {"returned": event.sequence}, is_final=False)


@dataclass(slots=True)
class _Read:
    returning: Returning
    flow: Flow
    sequence: int

    def take_records(self, records: Sequence[PlacedRecord], now: Now) -> None:
        self.returning.take_records(self.flow, self.sequence, records, now)

    def miss_range(self, code: str, next_sequence: int, now: Now) -> None:
        self.returning.missed(self.flow, self.sequence, code, now)


@dataclass(slots=True)
class _Moved:
    returning: Returning
    flow: Flow
    moved: Sequence[int]

    def become_parked(self, now: Now) -> None:
        self.returning.parked(self.flow, self.moved, now)

    def fail(self, code: str, reason: str, now: Now) -> None:
        self.returning.park_failed(self.flow, self.moved, code, reason, now)


@dataclass(slots=True)
class _Gone:
    returning: Returning
    flow: Flow
    sequence: int
    floor: int
    cause: str

    def become_durable(self, durability: Durability, now: Now) -> None:
        subscription = _subscription_of(self.flow)
        subscription.floor_durable = max(subscription.floor_durable, self.floor)
        subscription.tries.drop(self.sequence, self.sequence)
        self.returning.gone(self.flow, self.sequence, self.cause, now)

    def fail(self, code: str, reason: str, now: Now) -> None:
        _subscription_of(self.flow).reopen(self.sequence, self.sequence)
        self.returning.park_failed(self.flow, [self.sequence], code, reason, now)
