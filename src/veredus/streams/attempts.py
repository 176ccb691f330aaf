"""What is said of attempts: what an application was handed, and what it gives back untried or for good.

A part of the exchange (`exchange.py`), which has its words; it lies here because it belongs together.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HandedOut:
    """The application was handed what this session was pushed up to `sequence`: that alone counts as tried."""

    session: int
    sequence: int


@dataclass(frozen=True, slots=True)
class ConfirmHanded:
    """What was handed out up to `sequence` counts, if the session ends now: it is as durable as a settlement."""

    session: int
    sequence: int


@dataclass(frozen=True, slots=True)
class ReturnRequested:
    """The application gives back what it was handed at `sequence`, and does not settle it.

    `is_retry`: it wants to be handed it again: that attempt has ended, and counts. Else it never wants it again, for
    this `reason`: it becomes a dead letter now. `is_taken`: it takes again what it gave back to be tried again; until
    then no attempt is under way. Each of these may be said more than once. Answered by `ConfirmReturned` once it is as
    durable as a settlement, or by a `Refuse` that names the sequence.
    """

    session: int
    sequence: int
    is_retry: bool
    reason: str = ""
    is_taken: bool = False


@dataclass(frozen=True, slots=True)
class ConfirmReturned:
    """`is_parked`: the publication at `sequence` is a dead letter, or settled. Else it may be handed out again."""

    session: int
    sequence: int
    is_parked: bool
