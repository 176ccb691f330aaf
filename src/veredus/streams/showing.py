"""Sources, durable subscriptions and sinks as plain data, as whoever looks at them is shown them."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from .flow import Flow
from .kept import size_of_filter
from .listing import PART_SIZE
from .source import SourceState
from .stream import Stream
from .subscription import Subscription
from .tables import Run
from .weave import next_of


def shown_source(source: SourceState) -> dict[str, object]:
    """How far it is, and whether somebody publishes as it."""
    return {
        "name": source.name,
        "owner": source.owner,
        "epoch": source.epoch,
        "last_number": source.last_durable,
        "last_sequence": source.last_sequence,
        "is_attached": bool(source.session),
    }


def shown_subscription(stream: Stream, subscription: Subscription, flow: Flow | None) -> dict[str, object]:
    """Where it stands; `flow` is that of its subscriber, None while nobody is attached."""
    ledger = subscription.ledger
    floor, settled = subscription.cursor
    shown: dict[str, object] = {
        "stream": stream.name,
        "subscriber": subscription.subscriber,
        "name": subscription.name,
        "owner": subscription.owner,
        "epoch": subscription.epoch,
        "mode": "in-order" if ledger.is_ordered else "individual",
        "filter": msgspec.to_builtins(subscription.filter),
        "floor": floor,
        "pushed_to": subscription.pushed_to,
        "unsettled": sum(last - first + 1 for first, last in ledger.unsettled),
        "lag": stream.head_durable - floor,
        "is_attached": flow is not None,
        "opened_us": subscription.opened_us,
        "start": subscription.start,
        "settled": settled,
        "origins": subscription.origins,
        "unwanted": subscription.unwanted,
        "next": next_of(stream.weave, floor, settled, stream.head_durable),
        "renewed_us": subscription.renewed_us,
        "wish": subscription.wish,
        "lost": subscription.lost,
    }
    if flow is not None:
        shown |= {
            "position": flow.position,
            "flow": "live" if flow.is_live else "historical",
            "credit": flow.credit,
            # Where no more can be settled either, that is what it waits for, though there is nothing to push.
            "waits_for": "settlement" if flow.waits_for == "publications" and ledger.is_full else flow.waits_for,
        }
    return shown


def shown_sink(run: Run, may_describe: Callable[[str], bool]) -> dict[str, object]:
    """Its run and last commit, of which streams that may not be described are left out."""
    return {
        "sink": run.sink,
        "owner": run.owner,
        "epoch": run.epoch,
        "commit_id": run.commit_id,
        "streams": [row for row in run.commit_streams if may_describe(row[0])],
        "incarnations": {one.stream: one.incarnation for one in run.contents if may_describe(one.stream)},
    }


def part_count_of(subscription: Subscription) -> int:
    """The ranges and runs that it is shown with, roughly, and its filter as so many as it is long."""
    origins = sum(len(origin.runs) for origin in subscription.origins)
    ranges = subscription.ledger.unsettled_count + len(subscription.excluded) + len(subscription.unwanted)
    ranges += len(subscription.lost)
    return ranges + origins + size_of_filter(subscription.filter) // PART_SIZE
