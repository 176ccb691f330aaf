"""When a process of ours is asked to stop: by the first SIGTERM or SIGINT, and to hurry by a later one."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable

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
        loop.add_signal_handler(number, ask)
    return asked


def ignore_signals(loop: asyncio.AbstractEventLoop) -> None:
    """All is done, and the process is about to end: what comes now ends it no other way than it ends by itself."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.remove_signal_handler(number)
        signal.signal(number, signal.SIG_IGN)
