"""What a ZEPS link asks of the node and is told by it, beside the exchange of the streams floor; and its limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from veredus.delivery.batch import BatchLimits

SECOND_NS = 1_000_000_000


class LinkLimits(NamedTuple):
    """What a node takes from one link, and how long it waits; sizes in bytes."""

    node: str = "veredus"
    """What the node calls itself."""
    batch: BatchLimits = BatchLimits()
    frame_size_max: int = 20 << 20
    channel_count_max: int = 1024
    greeting_timeout_ns: int = 5 * SECOND_NS
    greeting_size_max: int = 64 << 10
    """Bytes that are read before it is known who is there."""
    heartbeat_interval_ns: int = 10 * SECOND_NS
    silence_max_ns: int = 30 * SECOND_NS


@dataclass(frozen=True, slots=True)
class AskPrincipal:
    """Find out who the peer is, by a token or a key that it has proved to hold, or (None) by where it came in.

    Answered by one `PrincipalKnown`.
    """

    link: int
    token: str | None
    key: bytes = b""


@dataclass(frozen=True, slots=True)
class PrincipalKnown:
    """Who the peer is; None when it may not come in, with the reason as a sentence.

    Codes: `unauthenticated`, and `too-many-connections` or `too-busy` where it may try again.
    """

    link: int
    principal: str | None
    reason: str = ""
    code: str = "unauthenticated"


@dataclass(frozen=True, slots=True)
class SessionCongested:
    """A subscription's link cannot take more for now (for `StreamsEngine.set_congested`)."""

    session: int


@dataclass(frozen=True, slots=True)
class SessionDrained:
    """A subscription's link can take more again."""

    session: int
