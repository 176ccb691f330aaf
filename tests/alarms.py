"""An alarm that interrupts what a program does, at any moment, as Ctrl-C does."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

interrupting = pytest.mark.filterwarnings(
    "ignore:Exception ignored in. <function WeakSet:pytest.PytestUnraisableExceptionWarning"
)
"""For tests with an alarm: what it raises in the callback of a weak reference is printed by Python, and gone."""


class Interrupted(BaseException):
    """What the signal's handler raises."""


class Alarm:
    """Raises `Interrupted` once in the main thread, `seconds` after `ring_in`."""

    def __init__(self) -> None:
        self.is_armed = False
        """Cleared by an assignment, without a call: it would ring as that begins."""

    def ring_in(self, seconds: float) -> None:
        self.is_armed = True
        signal.setitimer(signal.ITIMER_REAL, seconds)

    def ring(self, _number: int, _frame: object) -> None:
        if self.is_armed:
            self.is_armed = False
            raise Interrupted


@contextmanager
def alarm_set() -> Iterator[Alarm]:
    """An alarm that may ring until the block ends."""
    alarm = Alarm()
    before = signal.signal(signal.SIGALRM, alarm.ring)
    try:
        yield alarm
    finally:
        alarm.is_armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
