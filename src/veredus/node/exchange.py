"""What the join is told beside facts of links and disks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DrainRequested:
    """The node is to stop: peers are told, what is on its way to the disk arrives, nothing new is taken."""


@dataclass(frozen=True, slots=True)
class FloorOrdered:
    """What the streams floor ordered outside of an event: from what it recovered, or because it was configured.

    One fact, whatever is in it: a checkpoint between two of these orders would keep the floor's tables and only a part
    of what they say that the journal has.
    """

    orders: Sequence[object]


@dataclass(frozen=True, slots=True)
class PrincipalRevoked:
    """What proved the principal of a link proves it no more: the link is ended with this code and sentence."""

    link: int
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class RightsChanged:
    """The rules are others now: what they do not allow any more ends."""


@dataclass(frozen=True, slots=True)
class RecordAwaited:
    """Say when what was noted before is in the audit log."""

    token: int


@dataclass(frozen=True, slots=True)
class RecordWritten:
    """What was noted before is in the audit log, or was waited for too long; or is not though it must be, and why."""

    token: int
    why_not: str = ""
