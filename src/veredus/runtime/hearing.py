"""What has arrived is read before anybody is called silent, however long this process itself was busy or stopped."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


def once_read(loop: asyncio.AbstractEventLoop, judge: Callable[[int], object]) -> None:
    """Call `judge` with the time that it is now, in monotonic nanoseconds, once what had arrived by then was read.

    A loop looks at its sockets between one turn and the next. What is called soon may run in front of the reading that
    follows; what is called soon by that runs behind it.
    """
    loop.call_soon(loop.call_soon, judge, time.monotonic_ns())
