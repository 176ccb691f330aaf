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
    Figure("veredus_streams", Kind.GAUGE, "Streams of the node"),
    Figure("veredus_sources", Kind.GAUGE, "Sources that the streams know"),
    Figure("veredus_sources_attached", Kind.GAUGE, "Sources that somebody publishes as just now"),
    Figure("veredus_subscriptions", Kind.GAUGE, "Durable subscriptions"),
    Figure("veredus_sessions_live", Kind.GAUGE, "Subscribers in live flow"),
    Figure("veredus_sessions_historical", Kind.GAUGE, "Subscribers in historical flow"),
    Figure("veredus_stages", Kind.GAUGE, "Stages that are open: rows of sinks, not yet visible"),
    Figure("veredus_publications", Kind.COUNTER, "Publications that entered streams"),
    Figure("veredus_duplicates", Kind.COUNTER, "Batches that were offered again and were there already"),
    Figure("veredus_batches_refused", Kind.COUNTER, "Batches that were refused"),
    Figure("veredus_pushed_bytes", Kind.COUNTER, "Bytes of records pushed to subscribers"),
    Figure("veredus_peer_faults", Kind.COUNTER, "Connections that were closed because the peer broke the protocol"),
    Figure("veredus_tail_bytes", Kind.GAUGE, "Memory that holds the tails of streams"),
    Figure("veredus_journal_bytes", Kind.GAUGE, "Bytes that the journal keeps"),
    Figure("veredus_journal_unsynced_bytes", Kind.GAUGE, "Bytes taken and not yet durable"),
    Figure("veredus_journal_segments", Kind.GAUGE, "Segment files in use"),
    Figure("veredus_journal_space", Kind.GAUGE, "1 while the journal has room to grow, 0 while the disk is full"),
    Figure("veredus_ready", Kind.GAUGE, "1 while the node takes publications"),
    Figure("veredus_stream_head", Kind.GAUGE, "The newest durable sequence of a stream", _STREAM),
    Figure("veredus_stream_floor", Kind.GAUGE, "The least sequence that a stream keeps", _STREAM),
    Figure("veredus_stream_bytes", Kind.GAUGE, "Bytes that the journal keeps of a stream", _STREAM),
    Figure("veredus_subscription_lag", Kind.GAUGE, "Publications between a cursor and the head", _SUBSCRIPTION),
    Figure("veredus_subscription_unsettled", Kind.GAUGE, "Publications pushed and not yet settled", _SUBSCRIPTION),
    Figure("veredus_subscription_credit_bytes", Kind.GAUGE, "Credit that the subscriber has given", _SUBSCRIPTION),
    Figure("veredus_subscription_live", Kind.GAUGE, "1 in live flow, 0 in historical flow", _SUBSCRIPTION),
)
