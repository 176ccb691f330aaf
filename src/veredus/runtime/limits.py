"""What the settings, and the process itself, allow the parts of a node."""

from __future__ import annotations

import contextlib
import resource

from veredus.node.admission import AdmissionLimits, limits_within
from veredus.node.exposure import access_of
from veredus.node.settings import NodeSettings
from veredus.protocols.topics.server import ServerSettings
from veredus.protocols.zeps.orders import LinkLimits
from veredus.streams.rights import ANONYMOUS

from .telemetry import CONNECTIONS_MAX as METRICS_CONNECTIONS_MAX

DESCRIPTORS_RESERVED = 40
"""File descriptors that the journal, the listeners and the process itself may need at once, beside those for health."""


def descriptors_free() -> int:
    """How many connections the process may have: its descriptors, as many as it may have, less what it needs itself."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
    return max(1, soft - DESCRIPTORS_RESERVED) if soft != resource.RLIM_INFINITY else 1 << 20


def metrics_places() -> int:
    """How many connections there may be for metrics and health: fewer where the process may open few files."""
    return min(METRICS_CONNECTIONS_MAX, max(1, descriptors_free() // 8))


def admission_limits_of(settings: NodeSettings) -> AdmissionLimits:
    """How many connections the node may have: as many as the settings and the process's descriptors allow."""
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
        settings.batch_limits,
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
    )
