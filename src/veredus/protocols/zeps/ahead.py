"""Times to come, for those who cannot begin there: a message that says no append time cannot be left out."""

from __future__ import annotations

from veredus.delivery.publication import datetime_of
from veredus.kernel.errors import Refused

AHEAD_MAX_US = 60_000_000
"""By so much clocks may differ."""


def check_not_ahead(time_us: int, wall_us: int, clock: str) -> None:
    """Raise `Refused("start-in-the-future")` for a time that is to come, unless clocks may differ by as much."""
    if time_us > wall_us + AHEAD_MAX_US:
        message = (
            f"delivery cannot begin at {datetime_of(time_us).isoformat()}, which is to come: {clock} says"
            f" {datetime_of(wall_us).isoformat()}; begin with what comes, and leave out what is too early"
        )
        raise Refused("start-in-the-future", message)
