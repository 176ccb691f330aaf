"""Feeding: what may be pushed now is pushed, from memory or from the journal, and what cannot be had is said.

A durable subscription changes (its owner, its filter, whether it is there at all, what of it becomes a dead letter) by
one append at a time. Until the journal has answered, its flow is held: what is passed under a filter, and who is fenced
by an owner, is never more than a crash would remember. What is asked meanwhile waits for its turn, and so does its
cursor: no fact counts on another that may still fail.

Source: docs/internals/DESIGN.md, "Flow" and "Subscriptions"; guarantees 1, 5 and 6.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeAlias

from veredus.delivery.batch import raw_size_of, read_header
from veredus.delivery.record import ENVELOPE_SIZE, read_envelope
from veredus.journal.exchange import PlacedRecord
from veredus.kernel.engine import Now
from veredus.kernel.errors import Refused
from veredus.kernel.octets import Octets
from veredus.kernel.turns import Turns

from .audience import Audience
from .cursors import Cursors
from .examine import Examiner, Parcel, Wanted
from .exchange import EndSubscription, PushGap, PushProgress, Refuse
from .facts import SubscriptionOpened, SubscriptionRemoved, SubscriptionRenewed, SubscriptionSettled, SubscriptionTold
from .fanout import Fanout
from .flow import Flow
from .orders import Orders, Waiter
from .parking import Parking
from .shares import EPHEMERAL_SUBSCRIPTIONS, TERMS
from .stream import Stream
from .subscription import Subscription
from .tables import StreamsLimits

Change: TypeAlias = (
    SubscriptionOpened | SubscriptionSettled | SubscriptionRenewed | SubscriptionTold | SubscriptionRemoved
)

READ_COUNT = 2
"""The journal is read for so many pushes at once."""
READS_SIZE_MAX = 16 << 20
"""So many bytes are read from the journal for all flows at a time: what is read faster than it is pushed is held."""
PUSH_NS = 80_000
"""What it costs to push anything, all the way to the link; measured, roughly."""
RECORD_NS = 15_000
"""What it costs to push one record more with it."""
VISIT_NS = 4_000
"""What it costs to look at a flow that is due."""
PROGRESS_COUNT = 100_000
"""A subscriber is told of this many examined sequences that brought it nothing."""


class Feeding:
    """Owns the flows of all sessions."""

    __slots__ = (
        "_cursors", "_ephemeral", "_ephemeral_max", "_examiner", "_fanout", "_orders", "_parking", "_reads_size",
        "_size_max", "_term_count_max", "_terms", "_to_read", "asking", "flows", "sending", "turns",
    )  # fmt: skip

    def __init__(self, orders: Orders, cursors: Cursors, parking: Parking, limits: StreamsLimits) -> None:
        self._orders = orders
        self._cursors = cursors
        self._parking = parking
        self._examiner = Examiner()
        self._size_max = limits.push_size_max
        self._term_count_max = limits.filter_terms_per_principal_max
        self._terms: dict[str, int] = {}
        """By principal the terms of the filters of its flows."""
        self._ephemeral_max = limits.ephemeral_subscriptions_per_principal_max
        self._ephemeral: dict[str, int] = {}
        """By principal how many of its flows have no subscription that stays: nothing else bounds those."""
        self.flows: dict[int, Flow] = {}
        self._fanout = Fanout()
        self._reads_size = 0
        """How many bytes are on their way from the journal at most."""
        self._to_read: Turns[str, int] = Turns()
        """Flows that wait until there are fewer, by principal."""
        self.asking: Turns[str, Stream] = Turns()
        """Of the audiences of streams, by whoever has the most members there."""
        self.turns: Turns[str, int] = Turns()
        """Of the flows that ask for work, by principal: one that asks for much does not keep the others waiting."""
        self.sending: Turns[str, int | str] = Turns()
        """Of the flows that push, by principal, and of all those of one that publications have reached, as one item.
        What is pushed has a price by its frames and bytes, whatever credit there is: only once it was written is it
        known whether the peer reads, and so no more than a turn's share is pushed before."""

    def add(self, flow: Flow) -> None:
        """A session begins; `pump` feeds it."""
        self.flows[flow.session] = flow
        flow.stream.flows[flow.session] = flow
        self._count_ephemeral(flow, 1)
        self._count_terms(flow, flow.term_count)

    def is_there(self, flow: Flow) -> bool:
        """Whether nobody has closed its session meanwhile, and perhaps opened it anew, nor deleted its stream."""
        return self.flows.get(flow.session) is flow and not flow.stream.is_deleted

    def flow_of(self, session: int) -> Flow | None:
        """The session's flow; where its stream was deleted, it is told so, and has none any more."""
        flow = self.flows.get(session)
        if flow is not None and flow.stream.is_deleted:
            self.drop(session)
            self._orders.tell_deleted(session, flow.stream.name)
            return None
        return flow

    def drop(self, session: int) -> Flow | None:
        """A session is over; its flow, if it had one."""
        flow = self.flows.pop(session, None)
        if flow is not None:
            self.turns.forget(session)
            self.sending.forget(session)
            self._to_read.forget(session)
            self._fanout.leave(flow)
            if flow.stream.audience is not None:
                flow.stream.audience.forget(flow)
            self._count_ephemeral(flow, -1)
            self._count_terms(flow, 0)
            flow.stream.flows.pop(session, None)
        return flow

    def leave(self, session: int, now: Now) -> None:
        """A session is over; a durable cursor stays where it is, and says so in the journal."""
        flow = self.drop(session)
        subscription = None if flow is None else flow.subscription
        if subscription is not None and subscription.session == session:
            subscription.session = 0
            self.detach(subscription, now)

    def detach(self, subscription: Subscription, now: Now) -> None:
        """Nobody owns the subscription for now."""
        subscription.is_attached = False
        self._cursors.journal(subscription, now)

    def check_ephemeral(self, principal: str) -> None:
        """Raise `Refused("too-many-subscriptions")` where a principal has no room for one more ephemeral one."""
        most = self._ephemeral_max
        EPHEMERAL_SUBSCRIPTIONS.check(principal, 1, most - self._ephemeral.get(principal, 0), most)

    def _count_ephemeral(self, flow: Flow, more: int) -> None:
        if flow.subscription is None:
            left = self._ephemeral.get(flow.payer, 0) + more
            self._ephemeral[flow.payer] = left
            if not left:
                del self._ephemeral[flow.payer]

    # ── one change at a time ─────────────────────────────────────────────────────────────────────────────────────────

    def in_turn(self, subscription: Subscription, change: Callable[[Now], None], now: Now) -> None:
        """Make a change now, or once the one that is on its way to the journal is answered and its owner has a turn."""
        if subscription.is_changing or subscription.changes or not self._cursors.may_change(subscription, now):
            subscription.changes.append(change)
        else:
            change(now)

    def change(self, subscription: Subscription, fact: Change, waiter: Waiter, now: Now) -> None:
        """Let this be its next change; it is there when the journal has answered."""
        subscription.is_changing = True
        self._cursors.charge(subscription, now)
        self._orders.append_fact(fact, waiter, now, payer=subscription.owner)

    def go_on(self, subscription: Subscription, now: Now) -> None:
        """A change was answered: make those that waited, feed the owner, and journal what was settled meanwhile."""
        subscription.is_changing = False
        self._cursors.make_changes(subscription, now)
        flow = self.flows.get(subscription.session)
        if flow is not None:
            self.pump(flow, now)
        self._cursors.go_on(subscription, now)

    # ── filters ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def refilter(self, flow: Flow, sequence: int, wanted: Wanted) -> None:
        """The flow has another filter from `sequence` on."""
        waits = flow.audience is not None
        if waits:
            self._fanout.leave(flow)
        flow.filter_from(sequence, wanted)
        if waits:
            self._fanout.wait(flow)
        if self.is_there(flow):
            self._count_terms(flow, flow.term_count)

    def check_terms(self, principal: str, wanted: Wanted) -> None:
        """Raise `Refused("too-many-terms")` where a principal's filters have no room for this one."""
        if wanted.compiled.term_count:
            most = self._term_count_max
            TERMS.check(principal, wanted.compiled.size_in_terms, most - self._terms.get(principal, 0), most)

    def _count_terms(self, flow: Flow, count: int) -> None:
        if count != flow.terms_counted:
            left = self._terms.get(flow.payer, 0) + count - flow.terms_counted
            flow.terms_counted = count
            self._terms[flow.payer] = left
            if not left:
                del self._terms[flow.payer]

    # ── pushes ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def give_turns(self, now: Now) -> None:
        """Feed the flows whose turn it is; where they push little, many of one principal share a turn."""
        for stream in self.asking.each(now):
            self._reach(stream, now, has_turn=True)
        for item in chain(self.turns.each(now), self.sending.rounds(now)):
            if isinstance(item, str):
                self._feed_due(item, now)
            elif (flow := self.flows.get(item)) is not None:
                self._pump(flow, now, has_turn=True)

    def pump(self, flow: Flow, now: Now) -> None:
        """Push what may be pushed now; ask the journal for what is not in memory; end what is at its end."""
        self._pump(flow, now, has_turn=False)

    def pump_stream(self, stream: Stream, now: Now) -> None:
        """The stream's durable head has moved: feed whoever waited for that."""
        self._reach(stream, now, has_turn=False)

    def _reach(self, stream: Stream, now: Now, *, has_turn: bool) -> None:
        if stream.is_deleted:
            return
        reached = () if stream.audience is None else self._ask(stream.audience, stream, now, has_turn=has_turn)
        for payer in self._fanout.reach(stream, reached):
            if self.sending.may_go(payer, now):
                self._feed_due(payer, now)
            else:
                self.sending.wait(payer, payer)

    def _ask(self, audience: Audience, stream: Stream, now: Now, *, has_turn: bool) -> Sequence[Flow]:
        """Whom of those that wait together publications reach; the others have examined them, or wait for the turn of
        whoever has the most of them.
        """
        if not audience.lacks(stream):
            return ()
        payer, shares = audience.payer, audience.shares()
        if not has_turn and not self.asking.may_go(payer, now):
            self.asking.wait(payer, stream)
            return ()
        reached = audience.reach(stream, self._examiner, self._size_max)
        cost_ns = self._examiner.take_cost()
        self.asking.charge(payer, cost_ns, now)
        for each, share in shares.items() if cost_ns else ():
            self.turns.charge(each, int(cost_ns * share), now)
        if audience.lacks(stream):
            self.asking.wait(audience.payer, stream)
        self._cursors.note_passed(audience)
        for flow in audience.far_behind(PROGRESS_COUNT):
            flow.progress_told = flow.position
            self._orders.say(PushProgress(flow.session, flow.position))
        return reached

    def _feed_due(self, payer: str, now: Now) -> None:
        """Feed those of a payer that a publication has reached, as many as its share allows; the others wait."""
        while self.sending.has_share(payer, now):
            flow = self._fanout.next_of(payer)
            if flow is None:
                return
            self.sending.charge(payer, VISIT_NS, now)
            self._pump(flow, now, has_turn=flow.takes_no_work)
        self.sending.wait(payer, payer)

    def _pump(self, flow: Flow, now: Now, *, has_turn: bool) -> None:
        self._fanout.leave(flow)
        if flow.stream.is_deleted:
            return
        if flow.subscription is not None:
            self._cursors.spread.make_room(flow.subscription)
        while not flow.waits_for:
            if flow.position < flow.stream.floor:
                self._skip(flow, flow.stream.floor, "trimmed")
                continue
            if not has_turn and self._must_wait(flow, now):
                break
            has_turn = False
            records = flow.stream.tail.read(flow.position, min(self._size_max, self._reading_size(flow)))
            if records is None:
                self._read(flow)
                break
            self._push(flow, records, now)
            if not self.is_there(flow):
                return
        if flow.is_ended and not flow.is_reading and not flow.is_end_told:
            flow.is_end_told = True
            is_final = flow.subscription is None
            if is_final:
                self.drop(flow.session)
            self._orders.say(EndSubscription(flow.session, flow.position, is_final))
        if flow.is_for_publications:
            self._fanout.wait(flow)

    def _must_wait(self, flow: Flow, now: Now) -> bool:
        """Whether what the flow asks for has to wait for its turn; it does so from now on."""
        if not self.sending.may_go(flow.payer, now):
            self.sending.wait(flow.payer, flow.session)
            return True
        if flow.takes_no_work or self.turns.may_go(flow.payer, now):
            return False
        self.turns.wait(flow.payer, flow.session)
        return True

    def _read(self, flow: Flow) -> None:
        """Read what comes next from the journal, once there is room for it."""
        size, flow.is_reading = self._reading_size(flow), True
        if self._reads_size and self._reads_size + size > READS_SIZE_MAX:
            self._to_read.wait(flow.payer, flow.session)
        else:
            self._reads_size += size
            self._orders.read(flow.stream.stream_id, flow.position, size, _Read(self, flow, size))

    def end_read(self, size: int, now: Now) -> None:
        """So much that was on its way is here: others may read, one of each principal after the other."""
        self._reads_size -= size
        while not self._reads_size or self._reads_size + READ_COUNT * self._size_max <= READS_SIZE_MAX:
            sessions = self._to_read.due(now, 1)
            if not sessions:
                return
            flow = self.flows[sessions[0]]
            flow.is_reading = False
            self._pump(flow, now, has_turn=True)

    def _reading_size(self, flow: Flow) -> int:
        """How much to read ahead, in bytes: no more than there is credit for, where nothing will be left out."""
        size = READ_COUNT * self._size_max
        return min(size, flow.credit) if flow.wanted.compiled.is_everything else size

    def _push(self, flow: Flow, records: Sequence[PlacedRecord], now: Now) -> int:
        push, examined_count, parcels = flow.take(records, self._examiner, self._size_max)
        if flow.terms_counted:
            self._count_terms(flow, flow.term_count)
        if push is not None:
            self._orders.say(push)
            self._orders.counts.pushed_size += push.size
            size = push.size if flow.octet_ns == 1 else max(push.size, sum(map(_payload_size, push.buffers)))
            cost_ns = PUSH_NS + (len(push.buffers) - 1) * RECORD_NS + size * flow.octet_ns
            self.sending.charge(flow.payer, cost_ns, now)
            flow.progress_told = flow.position
        elif flow.position - flow.progress_told >= PROGRESS_COUNT:
            flow.progress_told = flow.position
            self._orders.say(PushProgress(flow.session, flow.position))
        self._cursors.note_moved(flow.subscription)
        if parcels:
            self._park(flow, parcels, now)
        self.turns.charge(flow.payer, self._examiner.take_cost(), now)
        return examined_count

    def _park(self, flow: Flow, parcels: list[Parcel], now: Now) -> None:
        assert flow.subscription is not None
        self._cursors.charge(flow.subscription, now)
        try:
            self._parking.park(flow, parcels, self._examiner, now, _Parked(self, flow))
        except Refused as refused:
            self.park_failed(flow, refused, now)

    def park_failed(self, flow: Flow, refused: Refused, now: Now) -> None:
        """What was to be parked is unsettled again, and the flow has passed it: its session must begin again."""
        if self.is_there(flow):
            self._orders.say(Refuse(flow.session, refused.code, refused.message, refused.details))
            self.leave(flow.session, now)

    def take_records(self, flow: Flow, records: Sequence[PlacedRecord], now: Now) -> None:
        """The journal's records from the flow's position on."""
        flow.is_reading = False
        if not self.is_there(flow):
            return
        if not records and flow.position < flow.end:
            # It was durable and the journal has nothing there: damage took the end of the stream.
            self._skip(flow, flow.stream.head_durable + 1, "damaged")
        rest, leg_count = records, len(flow.legs)
        while rest and not flow.waits_for:
            before = flow.position
            rest = rest[self._push(flow, rest, now) :]
            if not self.is_there(flow):
                return
            if len(flow.legs) != leg_count:
                # It goes on elsewhere.
                break
            if rest and not flow.takes_no_work and self._must_wait(flow, now):
                # What is left is read once more: a flow that waits holds no records.
                return
            if flow.position == before:
                break
        self.pump(flow, now)

    def miss_range(self, flow: Flow, code: str, next_sequence: int, now: Now) -> None:
        """What lies below `next_sequence` cannot be had."""
        flow.is_reading = False
        if self.is_there(flow):
            self._skip(flow, next_sequence, code)
            self.pump(flow, now)

    def _skip(self, flow: Flow, next_sequence: int, code: str) -> None:
        if flow.legs:
            next_sequence = min(next_sequence, flow.end)
        if next_sequence > flow.position:
            if flow.subscription is None or flow.subscription.lacks(flow.position, next_sequence - 1):
                self._orders.say(PushGap(flow.session, flow.position, next_sequence, code))
            flow.skip_to(next_sequence)
            self._cursors.note_moved(flow.subscription)


def _payload_size(record: Octets) -> int:
    """What a record's payload takes once somebody has decompressed it, in bytes."""
    envelope = read_envelope(record)
    assert envelope is not None
    batch = memoryview(record)[ENVELOPE_SIZE : ENVELOPE_SIZE + envelope.size]
    header = read_header(batch)
    return raw_size_of(batch, header) or header.payload_size


@dataclass(slots=True)
class _Read:
    feeding: Feeding
    flow: Flow
    size: int

    def take_records(self, records: Sequence[PlacedRecord], now: Now) -> None:
        self.feeding.take_records(self.flow, records, now)
        self.feeding.end_read(self.size, now)

    def miss_range(self, code: str, next_sequence: int, now: Now) -> None:
        self.feeding.miss_range(self.flow, code, next_sequence, now)
        self.feeding.end_read(self.size, now)


@dataclass(slots=True)
class _Parked:
    feeding: Feeding
    flow: Flow

    def become_parked(self, now: Now) -> None:
        self._go_on(now)

    def fail(self, code: str, reason: str, now: Now) -> None:
        message = f"the node could not store the dead letters ({reason}): subscribe again later"
        self.feeding.park_failed(self.flow, Refused(code, message), now)
        self._go_on(now)

    def _go_on(self, now: Now) -> None:
        assert self.flow.subscription is not None
        self.feeding.go_on(self.flow.subscription, now)
