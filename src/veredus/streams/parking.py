"""Parking: what was pushed again and again and never settled moves to a stream of its own, so that it holds up nobody.

The parked rows and the cursor that counts them as done with are one append to the journal: both are there, or neither.
Parked rows keep key, body, event time and attributes, and say where they came from: `veredus.stream`,
`veredus.sequence`, `veredus.source`, `veredus.number` and `veredus.subscription`; why: `veredus.reason`, which is
"attempts" or what the application said; and how often they were tried: `veredus.attempts`.
Source: docs/internals/DESIGN.md, "Attempts".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from veredus.delivery.arrays import constant_octets, numbers_array, numbers_of
from veredus.delivery.batch import BatchFlags, BatchHeader, Layout, codec_of, packed, signed_record
from veredus.delivery.columns import encode_columns
from veredus.delivery.publication import in_dates
from veredus.delivery.record import RecordKind
from veredus.journal.exchange import Entry, PlacedRecord, fact_entry
from veredus.kernel.engine import Now
from veredus.kernel.errors import Refused

from .examine import Examiner, Parcel, source_id_of
from .exchange import Durability, SubscribeRequested
from .facts import encode_fact
from .flow import Flow
from .orders import Orders
from .publishing import Publishing
from .ranges import joined
from .rights import PUBLISH, on_stream
from .stream import Stream
from .subscription import Subscription
from .tables import Tables

PARKED = int(BatchFlags.PARKED)


class Outcome(Protocol):
    """Somebody waits to hear whether something was parked."""

    def become_parked(self, now: Now) -> None:
        """It is in the journal."""

    def fail(self, code: str, reason: str, now: Now) -> None:
        """It is not, and unsettled again."""


class Parking:
    """Moves exhausted publications to the streams that their subscriptions name."""

    __slots__ = ("_orders", "_publishing", "_tables")

    def __init__(self, tables: Tables, orders: Orders, publishing: Publishing) -> None:
        self._tables = tables
        self._orders = orders
        self._publishing = publishing

    def park(self, flow: Flow, parcels: list[Parcel], examiner: Examiner, now: Now, outcome: Outcome) -> None:
        """Order the move of these rows, which the ledger counts as done with already: not if the journal refuses it.

        Until the `outcome` has heard of it the subscription is changing, and no other fact speaks of its cursor: that
        one would have the rows done with, wherever they are. What was compressed stays so: a small record must not
        become a large one. Raises `Refused("unknown-stream")` where the stream of dead letters is gone.
        """
        subscription = flow.subscription
        assert subscription is not None
        target = self._tables.streams.get(subscription.parked_to)
        runs = tuple(run for parcel in parcels for run in parcel.runs)
        if target is None:
            reopen(subscription, runs)
            message = (
                f"the stream {subscription.parked_to!r} for dead letters no longer exists:"
                " create it again, then subscribe again"
            )
            raise Refused("unknown-stream", message, stream=subscription.parked_to)
        entries = [self._entry(flow.stream, subscription, target, parcel, examiner, now) for parcel in parcels]
        # Below them may lie what cannot be had and waits for settlement: an ordered floor alone would not tell of them.
        subscription.exclude(joined(runs))
        subscription.forget_passed()
        settled = subscription.settled(is_detached=not subscription.is_attached)
        fact = fact_entry(encode_fact(settled), now.wall_us)
        subscription.is_changing = True
        subscription.leaving = joined(runs)
        waiter = _Parked(self, subscription, target, tuple(entries), runs, settled.floor, outcome)
        self._orders.append((*entries, fact), waiter, payer=subscription.owner)

    def _entry(
        self,
        stream: Stream,
        subscription: Subscription,
        target: Stream,
        parcel: Parcel,
        examiner: Examiner,
        now: Now,
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
            "veredus.source": constant_octets(_source_of(stream, record).encode(), count, pa.string()),
            "veredus.number": numbers_array(rows + header.first_number, pa.int64()),
            "veredus.reason": constant_octets(parcel.reason.encode(), count, pa.string()),
            "veredus.attempts": numbers_array(_attempts_of(subscription, rows + record.first_sequence), pa.int64()),
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
        low = in_dates(header.event_time_min_us) if kept_times is None else int(numbers_of(kept_times).min())
        high = low if kept_times is None else int(numbers_of(kept_times).max())
        payload, flags = packed(encode_columns(moved), codec_of(header))
        signed = BatchHeader(
            int(Layout.COLUMNS), flags | PARKED, 0, 0, count, target.stream_id, 0, 0, count, 1, low, high
        )
        sequence, append_time_us = target.assign(count, now.wall_us)
        data = signed_record(signed, payload)
        return Entry(data, RecordKind.BATCH, target.stream_id, sequence, count, append_time_us)

    def parked(self, target: Stream, entries: tuple[Entry, ...]) -> None:
        """The move is in the journal: the target's readers may have the rows."""
        for entry in entries:
            target.become_durable(entry.first_sequence + entry.count - 1)
            memory = memoryview(entry.record)
            target.tail.add(PlacedRecord(entry.first_sequence, entry.count, entry.append_time_us, memory))
            self._orders.counts.dead_letters += entry.count
        self._publishing.touched[target.stream_id] = target


@dataclass(slots=True)
class _Parked:
    parking: Parking
    subscription: Subscription
    target: Stream
    entries: tuple[Entry, ...]
    runs: tuple[tuple[int, int], ...]
    floor: int
    outcome: Outcome

    def become_durable(self, durability: Durability, now: Now) -> None:
        self.subscription.leaving = ()
        self.subscription.floor_durable = max(self.subscription.floor_durable, self.floor)
        for run in self.runs:
            self.subscription.tries.drop(*run)
        self.parking.parked(self.target, self.entries)
        self.outcome.become_parked(now)

    def fail(self, code: str, reason: str, now: Now) -> None:
        self.subscription.leaving = ()
        self.target.unassign(self.entries[0].first_sequence)
        reopen(self.subscription, self.runs)
        self.outcome.fail(code, reason, now)


def reopen(subscription: Subscription, runs: tuple[tuple[int, int], ...]) -> None:
    """Nothing has moved: these rows are unsettled again."""
    for first, last in runs:
        subscription.reopen(first, last)


def _source_of(stream: Stream, record: PlacedRecord) -> str:
    return stream.source_names.get(source_id_of(record), "")


def _attempts_of(subscription: Subscription, sequences: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.array([subscription.tries.at(int(sequence)) for sequence in sequences], np.int64)


def check_parking(tables: Tables, event: SubscribeRequested) -> None:
    """Raise `Refused` where what is tried too often cannot go to where the subscriber wants it."""
    if not (event.attempts_max or event.parked_to):
        return
    tables.rights.hold(event.session, event.principal, PUBLISH, on_stream(event.parked_to, source=""))
    if not event.subscriber:
        message = "dead letters need a durable subscription: give it a subscriber"
    elif not event.parked_to:
        message = "a limit of attempts needs a stream for dead letters: name one"
    elif event.parked_to == event.stream:
        message = f"the dead letters of stream {event.stream!r} need another stream: name one"
    elif event.parked_to not in tables.streams:
        message = (
            f"there is no stream {event.parked_to!r} for dead letters: create it first,"
            f" with `veredus stream create {event.parked_to}`"
        )
    else:
        return
    raise Refused("bad-parking", message, parked_to=event.parked_to)
