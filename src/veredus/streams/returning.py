"""Returning: what an application gives back is tried again, or becomes a dead letter when it is its principal's turn.

Source: the design, section 4 ("attempts_max").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from veredus.journal.exchange import PlacedRecord
from veredus.kernel.engine import Now
from veredus.kernel.turns import QUANTUM_NS, Turns

from .attempts import ConfirmReturned, ReturnRequested
from .examine import Examiner
from .feeding import Feeding
from .flow import Flow
from .orders import Orders
from .parking import ATTEMPTS, Parking

READ_NS = QUANTUM_NS // 4
"""What it costs to read a record from the journal, roughly."""
Key: TypeAlias = tuple[int, int]
"""The session that gives something back, and the sequence."""


class Returning:
    """Answers those who give something back."""

    __slots__ = ("_examiner", "_feeding", "_orders", "_parking", "_waiting", "turns")

    def __init__(self, orders: Orders, feeding: Feeding, parking: Parking) -> None:
        """Parks by `parking` what came back for good, or too often."""
        self._orders = orders
        self._feeding = feeding
        self._parking = parking
        self._examiner = Examiner()
        self._waiting: dict[Key, tuple[ReturnRequested, Flow]] = {}
        self.turns: Turns[str, Key] = Turns()
        """Of what is to be read and moved, by principal: a small record may hold a large publication."""

    def take_back(self, event: ReturnRequested, now: Now) -> None:
        """Count the attempt; read and park the publication, where that was the last one or it is rejected."""
        flow = self._feeding.flows.get(event.session)
        subscription = None if flow is None else flow.subscription
        if flow is None or subscription is None or subscription.ledger.is_ordered:
            self._refuse(
                event, "not-individual", "retry and reject need a durable subscription whose mode is individual"
            )
        elif event.sequence > subscription.pushed_to:
            self._refuse(event, "not-pushed", f"{event.sequence} was not pushed yet")
        elif not subscription.is_unsettled(event.sequence):
            self._orders.say(ConfirmReturned(event.session, event.sequence, is_parked=True))
        elif not event.is_retry and not subscription.parked_to:
            self._refuse(
                event, "no-dead-letters", "this subscription has no stream for dead letters: subscribe with parked_to"
            )
        elif event.is_taken:
            subscription.hand_again(event.sequence)
            self._orders.say(ConfirmReturned(event.session, event.sequence, is_parked=False))
        elif self.turns.is_waiting((event.session, event.sequence)):
            self._wait(event, flow)
        elif event.is_retry and not subscription.take_back(event.sequence):
            self._orders.say(ConfirmReturned(event.session, event.sequence, is_parked=False))
        elif self.turns.may_go(flow.payer, now):
            self._read(event, flow, now)
        else:
            self._wait(event, flow)

    def _wait(self, event: ReturnRequested, flow: Flow) -> None:
        key = event.session, event.sequence
        self._waiting[key] = event, flow
        self.turns.wait(flow.payer, key)

    def give_turns(self, now: Now) -> None:
        """Move what is next of each principal."""
        for key in self.turns.due(now):
            event, flow = self._waiting.pop(key)
            if self._feeding.flows.get(flow.session) is flow:
                self._read(event, flow, now)

    def _refuse(self, event: ReturnRequested, code: str, message: str) -> None:
        self._orders.refuse(event.session, code, message, is_final=False, returned=event.sequence)

    def _read(self, event: ReturnRequested, flow: Flow, now: Now) -> None:
        records = flow.stream.tail.read(event.sequence, 1)
        if records is None:
            self.turns.charge(flow.payer, READ_NS, now)
            self._orders.read(flow.stream.stream_id, event.sequence, 1, _Read(self, event, flow))
        else:
            self.park(event, flow, records, now)

    def take_records(self, event: ReturnRequested, flow: Flow, records: Sequence[PlacedRecord], now: Now) -> None:
        """The journal's records from the publication on; too much may have been read for one turn."""
        if self._feeding.flows.get(flow.session) is not flow:
            return
        if self.turns.has_share(flow.payer, now):
            self.park(event, flow, records, now)
        else:
            # It is read once more: what waits holds no records.
            self._wait(event, flow)

    def park(self, event: ReturnRequested, flow: Flow, records: Sequence[PlacedRecord], now: Now) -> None:
        """The record that holds the publication: move that row."""
        subscription = flow.subscription
        assert subscription is not None
        sequence = event.sequence
        holds = bool(records) and records[0].first_sequence <= sequence < records[0].first_sequence + records[0].count
        if not holds:
            self.miss(event, "damaged")
        elif not subscription.is_unsettled(sequence):
            self._orders.say(ConfirmReturned(event.session, sequence, is_parked=True))
        elif not subscription.settle_one(sequence):
            self._refuse(
                event,
                "too-many-ranges",
                "the subscription would have too many settled ranges: settle the publications between them first",
            )
        else:
            reason = ATTEMPTS if event.is_retry else event.reason
            if not event.is_retry:
                subscription.count_attempt(sequence)
            parcel = self._examiner.parcel_of(records[0], ((sequence, sequence),))
            self._parking.park(flow, [parcel], self._examiner, now, reason, _Parked(self, event))
            self.turns.charge(flow.payer, self._examiner.take_cost(), now)

    def miss(self, event: ReturnRequested, code: str) -> None:
        """It is not kept any more."""
        self._refuse(event, "unreadable", f"{event.sequence} can no longer be read ({code}): settle it")

    def parked(self, event: ReturnRequested, now: Now) -> None:
        """The move is in the journal; a flow that waited for settlements may go on."""
        self._orders.say(ConfirmReturned(event.session, event.sequence, is_parked=True))
        flow = self._feeding.flows.get(event.session)
        if flow is not None:
            self._feeding.pump(flow, now)

    def park_failed(self, event: ReturnRequested, code: str, reason: str) -> None:
        """The move is not in the journal: it is unsettled again."""
        self._refuse(event, code, f"the node could not store the dead letter ({reason}): reject it again later")


@dataclass(slots=True)
class _Read:
    returning: Returning
    event: ReturnRequested
    flow: Flow

    def take_records(self, records: Sequence[PlacedRecord], now: Now) -> None:
        self.returning.take_records(self.event, self.flow, records, now)

    def miss_range(self, code: str, next_sequence: int, now: Now) -> None:
        self.returning.miss(self.event, code)


@dataclass(slots=True)
class _Parked:
    returning: Returning
    event: ReturnRequested

    def become_parked(self, now: Now) -> None:
        self.returning.parked(self.event, now)

    def fail(self, code: str, reason: str) -> None:
        self.returning.park_failed(self.event, code, reason)
