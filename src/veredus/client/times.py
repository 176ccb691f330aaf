"""When a time that somebody gives for waiting is over."""

from __future__ import annotations

import time
from math import inf


def end_of(timeout_s: float | None) -> float:
    """When such a time is over that begins now, by the monotonic clock."""
    return inf if timeout_s is None else time.monotonic() + timeout_s


def left_until(end_s: float) -> float | None:
    """What is left of it, in seconds; None for a time without end."""
    return None if end_s == inf else max(0.0, end_s - time.monotonic())
