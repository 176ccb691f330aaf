"""When a process of ours is asked to stop: by the first SIGTERM or SIGINT, and to hurry by a later one."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from types import FrameType

SAME_SIGNAL_S = 0.5
"""Some senders signal a process and its group: what comes so soon behind a signal is the same one."""


def stop_asked(loop: asyncio.AbstractEventLoop, hurry: Callable[[], None]) -> asyncio.Event:
    """Set once a signal asks to stop; `hurry` is called by each one that comes later."""
    asked = asyncio.Event()
    asked_s = 0.0

    def ask() -> None:
        nonlocal asked_s
        if not asked.is_set():
            asked_s = loop.time()
            asked.set()
        elif loop.time() - asked_s >= SAME_SIGNAL_S:
            hurry()

    for number in (signal.SIGTERM, signal.SIGINT):
        hear(loop, number, ask)
    return asked


def hear(loop: asyncio.AbstractEventLoop, number: signal.Signals, then: Callable[[], object]) -> None:
    """Call `then` in the loop at each such signal; to be called in the main thread.

    Not by a handler of the loop: to take one away, as a loop does that is closed, lets the signal end the process.
    """

    def take(_number: int, _frame: FrameType | None) -> None:
        if loop.is_closed():
            raise KeyboardInterrupt
        loop.call_soon_threadsafe(then)

    signal.signal(number, take)


def ignore_signals() -> None:
    """All is done, and the process is about to end: what comes now ends it no other way than it ends by itself."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
