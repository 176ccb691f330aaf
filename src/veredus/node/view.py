"""What a node looks like from outside: its figures, read from numbers that the parts keep anyway."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from .admission import Admission
from .engine import NodeEngine
from .figures import LABELLED_STREAMS_MAX, Reading


def readings(engine: NodeEngine) -> Iterator[Reading]:
    """The values of all figures, each when it is asked for; those of single streams and subscriptions up to a bound.

    Streams and subscriptions may come and go between two of them.
    """
    yield from _sums(engine)
    yield from _streams(engine)
    yield from _subscriptions(engine)


def admission_readings(admission: Admission) -> Iterator[Reading]:
    """The values of the figures about the places of connections."""
    yield Reading("veredus_connections_unproven", admission.unproven_count)
    yield Reading("veredus_connections_refused", admission.refused_count)
    yield Reading("veredus_connections_displaced", admission.displaced_count)
    yield Reading("veredus_connections_late", admission.late_count)


def _sums(engine: NodeEngine) -> Iterator[Reading]:
    tables, log, counts = engine.floor.tables, engine.log, engine.floor.counts
    streams = tables.streams.values()
    flows = engine.floor.flows.values()
    live_count = sum(flow.is_live for flow in flows)
    yield Reading("veredus_connections", len(engine.links))
    yield Reading("veredus_connections_opened", engine.connections.opened_count)
    yield Reading("veredus_streams", len(tables.streams))
    yield Reading("veredus_sources", sum(len(stream.sources) for stream in streams))
    yield Reading("veredus_sources_attached", engine.floor.attached_count)
    yield Reading("veredus_subscriptions", sum(len(stream.subscriptions) for stream in streams))
    yield Reading("veredus_sessions_live", live_count)
    yield Reading("veredus_sessions_historical", len(flows) - live_count)
    yield Reading("veredus_stages", len(tables.stages))
    yield Reading("veredus_publications", counts.publications)
    yield Reading("veredus_duplicates", counts.duplicate_batches)
    yield Reading("veredus_batches_refused", counts.refused_batches)
    yield Reading("veredus_dead_letters", counts.dead_letters)
    yield Reading("veredus_pushed_bytes", counts.pushed_size)
    yield Reading("veredus_peer_faults", engine.fault_count)
    yield Reading("veredus_tail_bytes", tables.budget.size)
    yield Reading("veredus_unfinished_bytes", engine.receiving.size)
    yield Reading("veredus_unread_bytes", engine.backlog.size)
    yield Reading("veredus_unfinished_refused", engine.receiving.refused_count)
    yield Reading("veredus_journal_bytes", log.size)
    yield Reading("veredus_journal_unsynced_bytes", log.unsynced_size)
    yield Reading("veredus_journal_segments", log.segment_count)
    yield Reading("veredus_journal_space", log.has_space)
    yield Reading("veredus_clock_behind_seconds", counts.clock_behind_us / 1e6)
    yield Reading("veredus_principals_slowed", engine.quotas.received.slowed_count, ("received",))
    yield Reading("veredus_principals_slowed", engine.quotas.sent.slowed_count, ("sent",))
    yield Reading("veredus_principals_behind", engine.disk_share.waiting_count)
    yield Reading("veredus_ready", log.has_space)


def _streams(engine: NodeEngine) -> Iterator[Reading]:
    for stream in list(islice(engine.floor.tables.streams.values(), LABELLED_STREAMS_MAX)):
        labels = (stream.name,)
        yield Reading("veredus_stream_head", stream.head_durable, labels)
        yield Reading("veredus_stream_floor", stream.floor, labels)
        yield Reading("veredus_stream_bytes", engine.log.extent(stream.stream_id).size, labels)


def _subscriptions(engine: NodeEngine) -> Iterator[Reading]:
    known = (
        (stream, subscription)
        for stream in engine.floor.tables.streams.values()
        for subscription in stream.subscriptions.values()
    )
    for stream, subscription in list(islice(known, LABELLED_STREAMS_MAX)):
        labels = (stream.name, subscription.subscriber, subscription.name)
        flow = engine.floor.flows.get(subscription.session)
        unsettled_count = sum(last - first + 1 for first, last in subscription.ledger.unsettled)
        yield Reading("veredus_subscription_lag", stream.head_durable - subscription.done_to, labels)
        yield Reading("veredus_subscription_unsettled", unsettled_count, labels)
        yield Reading("veredus_subscription_credit_bytes", 0 if flow is None else max(flow.credit, 0), labels)
        yield Reading("veredus_subscription_live", flow is not None and flow.is_live, labels)
