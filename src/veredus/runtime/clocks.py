"""The clocks of the machine, for engines that may not look at them."""

from __future__ import annotations

import time

from veredus.kernel.engine import Now


def read_clocks() -> Now:
    """What both clocks say at this moment; before 1970, which a machine without a battery may say, it is 1970."""
    return Now(time.monotonic_ns(), max(0, time.time_ns()))
