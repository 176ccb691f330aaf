"""Parking: what was pushed again and again and never settled moves to a stream of its own, so that it holds up nobody.

The parked rows and the cursor that counts them as done with are one append to the journal: both are there, or neither.
Parked rows keep key, body, event time and attributes, and say where they came from: `veredus.stream`,
`veredus.sequence` and
`veredus.subscription`. Source: the design, section 4 ("attempts_max").
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from veredus.delivery.arrays import constant_octets, numbers_array, numbers_of
from veredus.delivery.batch import BatchHeader, Layout, signed_record
from veredus.delivery.columns import encode_columns
from veredus.delivery.record import RecordKind
from veredus.journal.exchange import Entry, PlacedRecord, fact_entry
from veredus.kernel.engine import Now
from veredus.kernel.errors import Refused

from .examine import Examiner
from .exchange import Durability, SubscribeRequested
from .facts import encode_fact
from .flow import Flow, Parcel
from .orders import Orders
from .publishing import Publishing
from .stream import Stream
from .subscription import Subscription
from .tables import Tables


class Parking:
    """Moves exhausted publications to the streams that their subscriptions name."""

    __slots__ = ("_orders", "_publishing", "_tables")

    def __init__(self, tables: Tables, orders: Orders, publishing: Publishing) -> None:
        self._tables = tables
        self._orders = orders
        self._publishing = publishing

    def park(self, flow: Flow, parcels: list[Parcel], examiner: Examiner, now: Now) -> None:
        """Order the move of these rows; the ledger counts them as done with unless the journal refuses it."""
        subscription = flow.subscription
        assert subscription is not None
        target = self._tables.streams.get(subscription.parked_to)
        runs = tuple(run for parcel in parcels for run in parcel.runs)
        if target is None:
            message = f"the stream {subscription.parked_to!r} that {len(runs)} ranges are to be parked in is gone"
            self._reopen(subscription, runs)
            self._orders.refuse(flow.session, "unknown-stream", message, stream=subscription.parked_to)
            return
        entries = [self._entry(flow.stream, subscription, target, parcel, examiner, now) for parcel in parcels]
        settled = subscription.settled(is_detached=False)
        fact = fact_entry(encode_fact(settled), now.wall_us)
        waiter = _Parked(self, flow.session, subscription, target, tuple(entries), runs, settled.floor)
        self._orders.append((*entries, fact), waiter)

    def _entry(
        self, stream: Stream, subscription: Subscription, target: Stream, parcel: Parcel, examiner: Examiner, now: Now
    ) -> Entry:
        record = parcel.record
        columns, header = examiner.columns_of(record)
        rows = np.concatenate([np.arange(first, last + 1) for first, last in parcel.runs]) - record.first_sequence
        indices = numbers_array(rows, pa.int64())
        count = len(rows)
        times = columns.event_times_us
        parked_by = f"{subscription.subscriber}/{subscription.name}"
        origin = {
            "veredus.stream": constant_octets(stream.name.encode(), count, pa.string()),
            "veredus.sequence": numbers_array(rows + record.first_sequence, pa.int64()),
            "veredus.subscription": constant_octets(parked_by.encode(), count, pa.string()),
        }
        kept_times = None if times is None else times.take(indices)
        moved = columns._replace(
            keys=columns.keys.take(indices),
            bodies=columns.bodies.take(indices),
            event_times_us=kept_times,
            attributes={**{name: array.take(indices) for name, array in columns.attributes.items()}, **origin},
            rows=None,
        )
        low = header.event_time_min_us if kept_times is None else int(numbers_of(kept_times).min())
        high = low if kept_times is None else int(numbers_of(kept_times).max())
        signed = BatchHeader(int(Layout.COLUMNS), 0, 0, 0, count, target.stream_id, 0, 0, count, 1, low, high)
        sequence, append_time_us = target.assign(count, now.wall_us)
        data = signed_record(signed, encode_columns(moved))
        return Entry(data, RecordKind.BATCH, target.stream_id, sequence, count, append_time_us)

    def parked(self, target: Stream, entries: tuple[Entry, ...]) -> None:
        """The move is in the journal: the target's readers may have the rows."""
        for entry in entries:
            target.become_durable(entry.first_sequence + entry.count - 1)
            memory = memoryview(entry.record)
            target.tail.add(PlacedRecord(entry.first_sequence, entry.count, entry.append_time_us, memory))
        self._publishing.touched[target.stream_id] = target

    def park_failed(self, waiter: _Parked, code: str, reason: str) -> None:
        """The move could not be journaled: nothing is done with, and the session must begin again."""
        waiter.target.unassign(waiter.entries[0].first_sequence)
        self._reopen(waiter.subscription, waiter.runs)
        message = f"the node could not park what was pushed too often ({reason}): subscribe again later"
        self._orders.refuse(waiter.session, code, message)

    def _reopen(self, subscription: Subscription, runs: tuple[tuple[int, int], ...]) -> None:
        for first, last in runs:
            subscription.ledger.reopen(first, last)


@dataclass(slots=True)
class _Parked:
    parking: Parking
    session: int
    subscription: Subscription
    target: Stream
    entries: tuple[Entry, ...]
    runs: tuple[tuple[int, int], ...]
    floor: int

    def become_durable(self, durability: Durability, now: Now) -> None:
        self.subscription.floor_durable = max(self.subscription.floor_durable, self.floor)
        self.parking.parked(self.target, self.entries)

    def fail(self, code: str, reason: str, now: Now) -> None:
        self.parking.park_failed(self, code, reason)


def check_parking(tables: Tables, event: SubscribeRequested) -> None:
    """Raise `Refused` where what is tried too often cannot go to where the subscriber wants it."""
    if not event.subscriber or event.parked_to not in tables.streams or event.parked_to == event.stream:
        message = "attempts_max needs a durable subscription, and a parked_to that names another stream that exists"
        raise Refused("bad-parking", message, parked_to=event.parked_to)
    tables.check_may(event.principal, "publish", event.parked_to)
