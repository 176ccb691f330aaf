"""Sources, durable subscriptions and sinks as plain data, as whoever looks at them is shown them."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from .facts import Contents
from .flow import Flow
from .kept import size_of_filter
from .listing import PAGE_COUNT, PART_SIZE, first_of
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
    """Its run and last commit, of which streams that may not be described are left out; of many, the first are shown,
    and `is_whole` says so.
    """
    streams, contents = _first_streams(run)
    return {
        "sink": run.sink,
        "owner": run.owner,
        "epoch": run.epoch,
        "commit_id": run.commit_id,
        "streams": [row for row in streams if may_describe(row[0])],
        "incarnations": {one.stream: one.incarnation for one in contents if may_describe(one.stream)},
        "is_whole": len(streams) == len(run.commit_streams) and len(contents) == len(run.contents),
    }


def part_count_of_sink(run: Run) -> int:
    """The streams that it is shown with, and their names as so many parts as they are long."""
    streams, contents = _first_streams(run)
    return sum(_parts_of(name) for name, _, _ in streams) + sum(_parts_of(one.stream) for one in contents)


def _first_streams(run: Run) -> tuple[list[tuple[str, int, int]], list[Contents]]:
    streams = first_of(run.commit_streams, PAGE_COUNT, lambda row: _parts_of(row[0]))
    return streams, first_of(run.contents, PAGE_COUNT, lambda one: _parts_of(one.stream))


def _parts_of(name: str) -> int:
    return 1 + len(name) // PART_SIZE


def part_count_of(subscription: Subscription) -> int:
    """The ranges and runs that it is shown with, roughly, and its filter as so many as it is long."""
    origins = sum(len(origin.runs) for origin in subscription.origins)
    ranges = subscription.ledger.unsettled_count + len(subscription.excluded) + len(subscription.unwanted)
    ranges += len(subscription.lost)
    return ranges + origins + size_of_filter(subscription.filter) // PART_SIZE
