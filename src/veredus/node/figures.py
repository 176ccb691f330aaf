"""What a node can be asked to count: every figure by name, kind and meaning, as docs/how-to/observe.md lists them.

A reading is taken when somebody asks, from numbers that the parts keep anyway: it costs the hot path nothing.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

LABELLED_STREAMS_MAX = 1_000
"""Streams, and subscriptions, that are shown one by one; the sums count all of them."""


class Kind(Enum):
    """How a figure moves."""

    COUNTER = "counter"
    """Only up, from 0 at the start of the process."""
    GAUGE = "gauge"
    """Up and down."""


class Figure(NamedTuple):
    """A figure that a node shows. `name` has its unit last; a counter's is shown with `_total` behind it."""

    name: str
    kind: Kind
    meaning: str
    labels: tuple[str, ...] = ()


class Reading(NamedTuple):
    """The value of a figure, for one set of its labels."""

    name: str
    value: float
    labels: tuple[str, ...] = ()


_STREAM = ("stream",)
_SUBSCRIPTION = ("stream", "subscriber", "name")
FIGURES = (
    Figure("veredus_connections", Kind.GAUGE, "Connections that are open"),
    Figure("veredus_connections_opened", Kind.COUNTER, "Connections that were opened"),
    Figure("veredus_connections_unproven", Kind.GAUGE, "Connections that are not authenticated"),
    Figure("veredus_connections_refused", Kind.COUNTER, "Connections that were refused because a limit was reached"),
    Figure(
        "veredus_connections_displaced",
        Kind.COUNTER,
        "Unauthenticated connections that were closed to make room for others",
    ),
    Figure("veredus_connections_late", Kind.COUNTER, "Connections that were not authenticated in time"),
    Figure("veredus_streams", Kind.GAUGE, "Streams of the node"),
    Figure("veredus_sources", Kind.GAUGE, "Sources of all streams"),
    Figure("veredus_sources_attached", Kind.GAUGE, "Sources with an attached publisher"),
    Figure("veredus_subscriptions", Kind.GAUGE, "Durable subscriptions"),
    Figure("veredus_sessions_live", Kind.GAUGE, "Subscribers in live flow"),
    Figure("veredus_sessions_historical", Kind.GAUGE, "Subscribers in historical flow"),
    Figure("veredus_stages", Kind.GAUGE, "Stages that are open: rows of sinks, not yet visible"),
    Figure("veredus_publications", Kind.COUNTER, "Publications appended to streams"),
    Figure("veredus_duplicates", Kind.COUNTER, "Batches that were sent again and were duplicates"),
    Figure("veredus_batches_refused", Kind.COUNTER, "Batches that were refused"),
    Figure("veredus_dead_letters", Kind.COUNTER, "Publications that became dead letters"),
    Figure("veredus_pushed_bytes", Kind.COUNTER, "Bytes of records pushed to subscribers"),
    Figure("veredus_peer_faults", Kind.COUNTER, "Connections that were closed because the peer broke the protocol"),
    Figure("veredus_tail_bytes", Kind.GAUGE, "Memory for the newest publications of all streams"),
    Figure("veredus_unfinished_bytes", Kind.GAUGE, "Memory for incomplete frames"),
    Figure("veredus_unread_bytes", Kind.GAUGE, "Memory for received data that waits for its turn"),
    Figure("veredus_unfinished_refused", Kind.COUNTER, "Connections that were closed because a frame took too long"),
    Figure("veredus_unwritten_bytes", Kind.GAUGE, "Memory for bytes that peers have not read yet"),
    Figure(
        "veredus_unwritten_abandoned", Kind.COUNTER, "Connections that were closed because their peers read nothing"
    ),
    Figure("veredus_journal_bytes", Kind.GAUGE, "Bytes that the journal keeps"),
    Figure("veredus_journal_unsynced_bytes", Kind.GAUGE, "Bytes received and not yet durable"),
    Figure("veredus_journal_segments", Kind.GAUGE, "Segment files in use"),
    Figure("veredus_journal_space", Kind.GAUGE, "1 while the journal has room to grow, 0 while the disk is full"),
    Figure("veredus_journal_free_bytes", Kind.GAUGE, "Bytes that are free on the disk of the journal"),
    Figure("veredus_datagrams_sent", Kind.COUNTER, "Datagrams sent to the multicast group"),
    Figure("veredus_datagrams_dropped", Kind.COUNTER, "Datagrams that the network did not take"),
    Figure("veredus_log_lines_lost", Kind.COUNTER, "Lines of the log that could not be written"),
    Figure("veredus_clock_behind_seconds", Kind.GAUGE, "How far the clock was behind the last append time"),
    Figure("veredus_audit_records_lost", Kind.COUNTER, "Records of the audit log that could not be written"),
    Figure("veredus_principals_slowed", Kind.GAUGE, "Principals that wait for their quota of bytes", ("direction",)),
    Figure("veredus_principals_behind", Kind.GAUGE, "Principals that wait for the disk"),
    Figure("veredus_ready", Kind.GAUGE, "1 while the node accepts publications"),
    Figure("veredus_stream_head", Kind.GAUGE, "The newest durable sequence of a stream", _STREAM),
    Figure("veredus_stream_floor", Kind.GAUGE, "The oldest sequence that a stream keeps", _STREAM),
    Figure("veredus_stream_bytes", Kind.GAUGE, "Bytes that the journal keeps of a stream", _STREAM),
    Figure("veredus_subscription_lag", Kind.GAUGE, "Publications between a cursor and the head", _SUBSCRIPTION),
    Figure(
        "veredus_subscription_unsettled",
        Kind.GAUGE,
        "Publications that were pushed and are not yet settled",
        _SUBSCRIPTION,
    ),
    Figure("veredus_subscription_credit_bytes", Kind.GAUGE, "Credit that the subscriber has granted", _SUBSCRIPTION),
    Figure("veredus_subscription_live", Kind.GAUGE, "1 in live flow, 0 in historical flow", _SUBSCRIPTION),
)
