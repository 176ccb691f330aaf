"""Ctrl-C and SIGTERM end a command between two records, never within one.

Some senders signal a process and its group, so what comes right behind the first signal is the same one.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

SAME_S = 0.5


class Interrupts:
    """While it is entered, a signal raises `KeyboardInterrupt` inside `waiting()` only; a second one anywhere."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Nothing is changed before it is entered, in the main thread. `clock` gives seconds."""
        self._clock = clock
        self._asked_at: float | None = None
        self._is_waiting = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._take)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _take(self, _number: int, _frame: FrameType | None) -> None:
        now = self._clock()
        if self._asked_at is None:
            self._asked_at = now
            if self._is_waiting:
                raise KeyboardInterrupt
        elif now - self._asked_at >= SAME_S:
            raise KeyboardInterrupt

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Where the command may be interrupted: what is done in here is lost without harm."""
        self._is_waiting = True
        try:
            if self._asked_at is not None:
                raise KeyboardInterrupt
            yield
        finally:
            self._is_waiting = False
