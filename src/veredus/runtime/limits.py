"""What the settings, and the process itself, allow the parts of a node."""

from __future__ import annotations

import contextlib
import resource

from veredus.delivery.batch import BatchLimits
from veredus.journal.exchange import SyncMode
from veredus.journal.settings import LogSettings
from veredus.kernel.errors import Unavailable
from veredus.node.admission import AdmissionLimits, limits_within
from veredus.node.exposure import access_of
from veredus.node.settings import SECOND, NodeSettings, StreamSection
from veredus.protocols.topics.server import ServerSettings
from veredus.protocols.zeps.orders import LinkLimits
from veredus.streams.exchange import Durability
from veredus.streams.facts import StreamConfig
from veredus.streams.rights import ANONYMOUS, LOCAL
from veredus.streams.tables import StreamsLimits

from .failures import MORE_FILES
from .telemetry import CONNECTIONS_MAX as METRICS_CONNECTIONS_MAX

DESCRIPTORS_RESERVED = 40
"""File descriptors that the journal, the listeners and the process itself may need at once, beside those for health."""
CONNECTIONS_MIN = 8
"""With places for fewer connections, nobody would reach a node that says it is ready."""


def descriptors_free() -> int:
    """How many connections the process may have: its descriptors, as many as it may have, less what it needs itself.

    Raises `Unavailable("too-many-files")` where that is next to none.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
    if soft == resource.RLIM_INFINITY:
        return 1 << 20
    if soft < DESCRIPTORS_RESERVED + CONNECTIONS_MIN:
        said = f"this process may open {soft} files, and needs at least {DESCRIPTORS_RESERVED + CONNECTIONS_MIN}"
        raise Unavailable("too-many-files", f"{said}: {MORE_FILES}")
    return soft - DESCRIPTORS_RESERVED


def metrics_places() -> int:
    """How many connections there may be for metrics and health: fewer where the process may open few files."""
    return min(METRICS_CONNECTIONS_MAX, max(1, descriptors_free() // 8))


def admission_limits_of(settings: NodeSettings) -> AdmissionLimits:
    """How many connections the node may have: as many as the settings and the process's descriptors allow.

    Raises `Unavailable("too-many-files")` where those allow next to none.
    """
    limits = settings.limits
    free = descriptors_free() - (metrics_places() if settings.listen.metrics else 0)
    return limits_within(
        max(1, min(limits.connections_max, free)),
        limits.connections_per_listener_max,
        limits.connections_unproven_max,
        limits.connections_unproven_per_address_max,
        limits.greeting_timeout_ns,
    )


def link_limits_of(settings: NodeSettings) -> LinkLimits:
    """What one connection may ask for."""
    limits = settings.limits
    return LinkLimits(
        settings.node.name,
        batch_limits_of(settings),
        limits.frame_size_max,
        limits.channels_max,
        limits.greeting_timeout_ns,
        limits.greeting_size_max,
        limits.heartbeat_interval_ns,
        limits.silence_max_ns,
    )


def server_settings_of(settings: NodeSettings, address: str) -> ServerSettings:
    """How the server of topics of a node is that others reach at `address`."""
    topics = settings.topics
    return ServerSettings(
        address,
        topics.proxies,
        topics.servers,
        topics.answer_ns,
        topics.retries_max,
        topics.period_ns,
        topics.body_size_max,
        topics.sessions_max,
        topics.requests_max,
        access_of(settings).unproven or ANONYMOUS,
        LOCAL if topics.members else "",
    )


def batch_limits_of(settings: NodeSettings) -> BatchLimits:
    """What is announced to sources."""
    limits = settings.limits
    return BatchLimits(
        limits.batch_size_max,
        limits.body_size_max,
        limits.batch_count_max,
        limits.attributes_max,
        limits.token_size_max,
    )


def log_settings_of(settings: NodeSettings) -> LogSettings:
    """How the journal's log keeps itself."""
    journal = settings.journal
    return LogSettings(
        segment_size=journal.segment_size,
        group_size_max=journal.group_size_max,
        sync=SyncMode[journal.sync.upper()],
        interval_ns=journal.sync_interval_ns,
        checkpoint_interval_size=journal.checkpoint_interval_size,
        free_count_max=journal.free_segments_max,
    )


def durability_of(settings: NodeSettings) -> Durability:
    """What an acknowledgement buys."""
    return Durability[settings.journal.sync.upper()]


def config_of(section: StreamSection) -> StreamConfig:
    """Retention and limits of a stream, as the streams floor has them."""
    return StreamConfig(
        retention_age_s=section.retention_age_ns / SECOND,
        retention_size=section.retention_size,
        retention_count=section.retention_count,
        lag_size_max=section.lag_size_max,
        sources_max=section.sources_max,
    )


def streams_limits_of(settings: NodeSettings) -> StreamsLimits:
    """The bounds of the streams floor."""
    limits = settings.limits
    return StreamsLimits(
        streams_max=limits.streams_max,
        streams_per_principal_max=limits.streams_per_principal_max,
        sources_per_principal_max=limits.sources_per_principal_max,
        kept_sources_per_principal_max=limits.kept_sources_per_principal_max,
        tokens_size_per_principal_max=limits.tokens_size_per_principal_max,
        token_size_max=limits.token_size_max,
        tail_size_max=limits.tail_size_max,
        unsettled_max=limits.unsettled_max,
        subscriptions_max=limits.subscriptions_max,
        subscriptions_per_principal_max=limits.subscriptions_per_principal_max,
        ephemeral_subscriptions_per_principal_max=limits.ephemeral_subscriptions_per_principal_max,
        filters_size_per_principal_max=limits.filters_size_per_principal_max,
        cursor_ranges_per_principal_max=limits.cursor_ranges_per_principal_max,
        stages_max=limits.stages_max,
        stages_per_principal_max=limits.stages_per_principal_max,
        filter_terms_per_principal_max=limits.filter_terms_per_principal_max,
        sinks_max=limits.sinks_max,
        sinks_per_principal_max=limits.sinks_per_principal_max,
        committed_streams_per_principal_max=limits.committed_streams_per_principal_max,
        stage_lease_ns=limits.stage_lease_ns,
        creates_on_use=settings.streams.create_on_use,
        config=config_of(settings.streams),
    )
