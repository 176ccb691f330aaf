"""A program that ends without closing its connections: what is pending is sent first, and what could not be is told.

Then nodes of its own are stopped, and no thread of ours runs any more while the interpreter goes.
"""

from __future__ import annotations

import asyncio
import atexit
from collections.abc import Callable
from contextlib import suppress
from itertools import chain

from .connection import FINISH_TIMEOUT_S, connections, say_pending
from .loops import known_loop, park_all

_watches: list[bool] = []
to_stop: dict[Callable[[], None], None] = {}
"""What stops the nodes of this process that are not stopped yet."""


def watch_end() -> None:
    """See to the end of this process. Once for a process; a child of a fork inherits it."""
    if not _watches:
        _watches.append(True)
        atexit.register(_finish)


def _finish() -> None:
    thread = known_loop()
    try:
        if thread is not None:
            say_pending(thread.run(_finish_all))
    finally:
        for stop in list(to_stop):
            with suppress(Exception):  # the next one is to be stopped, too
                stop()
        park_all()


async def _finish_all() -> list[str]:
    loop = asyncio.get_running_loop()
    mine = [connection for connection in list(connections) if connection.lives_in(loop)]
    return list(chain.from_iterable(await asyncio.gather(*(each.finish(FINISH_TIMEOUT_S) for each in mine))))
