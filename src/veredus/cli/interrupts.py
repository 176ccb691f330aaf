"""Ctrl-C and SIGTERM end a command between two records, never within one; so does a reader that has gone.

The second one ends it wherever it is. A command that has something to say then gives its last words: they are said, and
the process is over, since all that it opened would wait for a node that may be the reason for the haste.

Some senders signal a process and its group, so what comes right behind the first signal is the same one. A command that
waits for its input would never learn that its pipe is closed, or that nobody takes any more what it reads: it looks,
woken by a timer.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from veredus.cli.exits import SAME_S, Exit, Hurried, leave_at_once

LOOK_S = 0.5
"""A command that waits notices so late that there is nothing to wait for any more."""


class Interrupts:
    """While it is entered, a signal raises `KeyboardInterrupt` inside `waiting()` only; a second one anywhere."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, *, watches_output: bool = False) -> None:
        """Nothing is changed before it is entered, in the main thread. `clock` gives seconds.

        With `watches_output`, a pipe at standard output that is closed raises `BrokenPipeError` inside `waiting()`.
        """
        self._clock = clock
        self._looks: list[Callable[[], object]] = [_look_at_output] if watches_output else []
        self._asked_at: float | None = None
        self._is_waiting = False
        self._is_hurried = False
        self._last_words: Callable[[], Exit] | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._take)
        if self._looks:
            self._begin_to_look()
        return self

    def __exit__(self, *_: object) -> None:
        if signal.SIGALRM in self._before:
            signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _take(self, _number: int, _frame: FrameType | None) -> None:
        now = self._clock()
        if self._asked_at is None:
            self._asked_at = now
            if self._is_waiting:
                raise KeyboardInterrupt
        elif now - self._asked_at >= SAME_S:
            self._is_hurried = True
            if self._last_words is not None:
                leave_at_once(self._last_words())
            raise Hurried

    def end_with(self, last_words: Callable[[], Exit]) -> None:
        """From now on, and at once where it has come already, a second signal ends the process: `last_words` say what
        is left undone, and give the exit code.
        """
        self._last_words = last_words
        if self._is_hurried:
            leave_at_once(last_words())

    def watch(self, look: Callable[[], object]) -> None:
        """From now on, while it is entered, see what `look` raises inside `waiting()`, soon."""
        self._looks.append(look)
        if signal.SIGALRM not in self._before:
            self._begin_to_look()

    def _begin_to_look(self) -> None:
        self._before[signal.SIGALRM] = signal.signal(signal.SIGALRM, self._look)
        signal.setitimer(signal.ITIMER_REAL, LOOK_S, LOOK_S)

    def _look(self, _number: int, _frame: FrameType | None) -> None:
        if self._is_waiting:
            for look in self._looks:
                look()

    @property
    def is_asked(self) -> bool:
        """Whether a signal has come: for a command that has to finish what it has in hands first."""
        return self._asked_at is not None

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


def _look_at_output() -> None:
    if is_abandoned(sys.stdout.fileno()):
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def is_abandoned(output: int) -> bool:
    """Whether this file descriptor is a pipe or a terminal that has no other end any more."""
    poll = select.poll()
    poll.register(output, 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))
