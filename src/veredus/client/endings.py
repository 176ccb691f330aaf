"""A program that ends without closing its connections: what is pending is sent first, and what could not be is told.

Then nodes of its own are stopped, and no thread of ours runs any more while the interpreter goes. An interrupt ends the
wait for what is pending, and nothing else: what it raised in here would be a traceback to nobody's use.
"""

from __future__ import annotations

import asyncio
import atexit
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from itertools import chain
from types import FrameType
from typing import Any

from .connection import FINISH_TIMEOUT_S, Connection, connections, say_pending
from .loops import known_loop, park_all

_LOOK_S = 0.05
_watches: list[bool] = []
_interrupts: list[int] = []
"""Those that came while the program ended."""
_afterwards: dict[int, Any] = {}
"""How each signal is to be handled when this is done."""
to_stop: dict[Callable[[], None], None] = {}
"""What stops the nodes of this process that are not stopped yet."""


def watch_end() -> None:
    """See to the end of this process. Once for a process; a child of a fork inherits it."""
    if not _watches:
        _watches.append(True)
        atexit.register(_finish)


def hear_interrupts(afterwards: Any = signal.default_int_handler) -> None:
    """Let Ctrl-C raise nothing any more, nor what is handled as it: this program is about to end.

    `afterwards`: how it is to be handled once the connections are closed.
    """
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) is signal.default_int_handler:
                signal.signal(number, _hear)
                _afterwards[number] = afterwards


def _hear(number: int, _frame: FrameType | None) -> None:
    _interrupts.append(number)


def _finish() -> None:
    hear_interrupts()
    thread = known_loop()
    try:
        if thread is not None:
            say_pending(thread.run(_finish_all))
    finally:
        for stop in list(to_stop):
            with suppress(Exception):  # the next one is to be stopped, too
                stop()
        park_all()
        for number, handler in _afterwards.items():
            signal.signal(number, handler)


async def _finish_all() -> list[str]:
    loop = asyncio.get_running_loop()
    mine = [connection for connection in list(connections) if connection.lives_in(loop)]
    finishing = loop.create_task(_finished(mine, FINISH_TIMEOUT_S))
    while not (finishing.done() or _interrupts):
        await asyncio.wait((finishing,), timeout=_LOOK_S)
    if finishing.done():
        return finishing.result()
    finishing.cancel()
    await asyncio.wait((finishing,))
    return await _finished(mine, 0.0)


async def _finished(mine: list[Connection], timeout_s: float) -> list[str]:
    return list(chain.from_iterable(await asyncio.gather(*(each.finish(timeout_s) for each in mine))))
