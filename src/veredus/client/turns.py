"""Threads that share something take turns, without a lock on the short way.

The interpreter changes threads at calls and at jumps back, and between `while self._is_busy: …` and the assignment that
follows there is neither once nobody is busy. So one thread alone finds it free. It costs a load and two stores, 7 ns,
where a lock costs 110.

Invariants
    (1) At most one thread is in its turn.
    (2) Whoever waits for something within its turn says so before: it may take any time; nothing else takes long.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from math import inf
from typing import TypeVar

from veredus.kernel.errors import Misuse

TURN_S = 10.0
"""No turn takes longer than this but for one in which a thread waits for something."""
FREE_S = 0.1
WAITING_S = 0.001
"""How often it is looked again whether such a turn is over."""

T = TypeVar("T")


class TurnTakenError(Exception):
    """Another thread has had the turn for as long as this one may wait; no `TimeoutError`, which a signal's handler may
    raise meanwhile.
    """


class Turns:
    """Owns whose turn it is."""

    __slots__ = ("_is_busy", "_waiting_thread")

    def __init__(self) -> None:
        """It is nobody's turn."""
        self._is_busy = False
        self._waiting_thread = 0
        """Which thread waits for something, in its turn."""

    @property
    def is_free(self) -> bool:
        """Whether it is nobody's turn."""
        return not self._is_busy

    def _in_turn(self, act: Callable[[], T], end_s: float = inf) -> T:
        """Do something alone. Raises `TurnTakenError` where another thread keeps its turn until then."""
        while self._is_busy:
            self._wait_turn(end_s)
        self._is_busy = True
        try:
            return act()
        finally:
            self._is_busy = False

    def _wait_turn(self, end_s: float = inf) -> None:
        """Let another thread end its turn. Raises `Misuse("in-a-call")` where that cannot be: it is this thread's."""
        since = time.monotonic()
        while self._is_busy:
            time.sleep(WAITING_S if self._waiting_thread else 0)
            is_long = not self._waiting_thread and time.monotonic() - since > TURN_S
            if is_long or self._waiting_thread == threading.get_ident():
                message = "a signal handler has interrupted this publisher in the middle of a call: publish later"
                raise Misuse("in-a-call", message)
            if self._waiting_thread and time.monotonic() >= end_s:
                raise TurnTakenError

    def free(self) -> None:
        """It is nobody's turn any more: whoever had it is in another process."""
        self._is_busy, self._waiting_thread = False, 0

    def wait_free(self) -> None:
        """Let the turn end that a thread has at this moment, where it waits for nothing in it; not for long, for it may
        be this thread's, which a signal has interrupted.
        """
        end_s = time.monotonic() + FREE_S
        while self._is_busy and not self._waiting_thread and time.monotonic() < end_s:
            time.sleep(0)

    def _wait_in_turn(self, wait: Callable[[], None]) -> None:
        """Wait for something without giving the turn away."""
        self._waiting_thread = threading.get_ident()
        try:
            wait()
        finally:
            self._waiting_thread = 0
