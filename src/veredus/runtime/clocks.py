"""The clocks of the machine, for engines that may not look at them."""

from __future__ import annotations

import time

from veredus.kernel.engine import Now


def read_clocks() -> Now:
    """What both clocks say at this moment."""
    return Now(time.monotonic_ns(), time.time_ns())
