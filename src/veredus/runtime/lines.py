"""Lines on their way to a file or a pipe that may be full, closed, or read by nobody: who gives one neither waits nor
fails.

    put ──► queue, bounded ──► a thread ──► write ──► finish
             │ full                          │ fails
             └──────────► counted ◄──────────┘  and said in a line of its own once a line is written again

The thread alone waits for the disk or the pipe, and the process ends without waiting for it.
"""

from __future__ import annotations

import os
import select
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from veredus.kernel.errors import words_of
from veredus.kernel.last import act_last

QUEUE_SIZE_MAX = 1 << 20
"""Bytes of lines that may wait."""
SLOW_S = 5.0
"""A line that takes longer to be written may be on its way for ever, for what anybody knows who waits for it."""
END_S = 1.0
"""How long an ending process waits for its last lines: a pipe that nobody reads must not hold it."""


class Target(Protocol):
    """Where lines go; called by one thread."""

    def write(self, line: bytes) -> None:
        """Write one line, its line feed included. Raises when it cannot."""
        ...

    def finish(self) -> None:
        """All lines that waited were given: make them as safe as is wanted. Raises when that fails."""
        ...


class LineWriter:
    """Owns the lines that wait, the thread that writes them, and the count of those that were lost."""

    def __init__(
        self,
        target: Target,
        lost_line: Callable[[int, str], bytes],
        name: str,
        size_max: int = QUEUE_SIZE_MAX,
        tell: Callable[[str], object] = len,
    ) -> None:
        """Write to `target`; `lost_line` makes the line that says how many were lost, and why.

        `tell` hears why lines cannot be written, once they cannot, and "" once they can; by the thread that writes.
        """
        self._target = target
        self._tell = tell
        self._lost_line = lost_line
        self._name = name
        self._size_max = size_max
        self.lost_count = 0
        """Lines that were never written."""
        self.failure = ""
        """Why the last line could not be written; "" once one could."""
        self._begin()
        _writers.add(self)

    def _begin(self) -> None:
        self._changed = threading.Condition()
        self._waiting: deque[bytes | Callable[[], None]] = deque()
        """Lines, and what is called behind those before it."""
        self._size = 0
        self._is_writing = False
        self._writes_since_s = 0.0
        """When the line that is being written was begun."""
        self._is_closed = False
        self._unsaid_count = 0
        self._unsaid_reason = ""
        self._thread: threading.Thread | None = None

    @property
    def is_behind(self) -> bool:
        """Whether lines were lost that no line says yet, or one takes longer than `SLOW_S`."""
        is_slow = self._is_writing and time.monotonic() - self._writes_since_s > SLOW_S
        return self._unsaid_count > 0 or is_slow

    def put(self, line: bytes) -> bool:
        """Have a line written; whether there was room for it. Waits for nobody, and raises nothing."""
        with self._changed:
            if self._size + len(line) > self._size_max or self._is_closed:
                self._lose("the lines are not read as fast as they are written")
                return False
            self._waiting.append(line)
            self._size += len(line)
            if self._thread is None:
                self._thread = threading.Thread(target=self._write_all, name=self._name, daemon=True)
                self._thread.start()
            self._changed.notify_all()
        return True

    def after(self, then: Callable[[], None]) -> None:
        """Call `then` once what was put so far is written or lost; by the thread that writes. Waits for nobody."""
        with self._changed:
            if not self._is_closed and (self._waiting or self._is_writing):
                self._waiting.append(then)
                return
        then()

    def wait_written(self, timeout_s: float = END_S) -> bool:
        """Wait until no line waits any more; whether that came in time."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting and not self._is_writing, timeout_s)

    def close(self, timeout_s: float = END_S) -> None:
        """Take no further line, and let those that wait be written, as far as that goes in time."""
        self.wait_written(timeout_s)
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def restart_after_fork(self) -> None:
        """In the child of a fork there is no thread, and what waits is the parent's."""
        self._begin()

    def _lose(self, reason: str, count: int = 1) -> None:
        self.lost_count += count
        self._unsaid_count += count
        self._unsaid_reason = reason

    def _write_all(self) -> None:
        changed = self._changed
        while True:
            with changed:
                self._is_writing = False
                changed.notify_all()
                changed.wait_for(lambda: self._waiting or self._is_closed)
                if not self._waiting:
                    return
                self._is_writing, self._writes_since_s = True, time.monotonic()
                waiting, self._waiting = self._waiting, deque()
            self._write_some(waiting)

    def _write_some(self, waiting: deque[bytes | Callable[[], None]]) -> None:
        for line in waiting:
            if not isinstance(line, bytes):
                continue
            self._writes_since_s = time.monotonic()
            try:
                self._say_lost()
                self._target.write(line)
                self._note_failure("")
            except Exception as error:  # noqa: BLE001 whatever stands behind the target, nobody hears of it by this way
                self._fail(error)
            # Only now is its room free: a queue that nobody empties stays within its bound.
            with self._changed:
                self._size -= len(line)
        try:
            self._target.finish()
        except Exception as error:  # noqa: BLE001 see above
            self._fail(error, 0)
        for then in waiting:
            if not isinstance(then, bytes):
                try:
                    then()
                except Exception as error:  # noqa: BLE001 those that wait behind it are told all the same
                    self._fail(error, 0)

    def _fail(self, error: Exception, count: int = 1) -> None:
        reason = getattr(error, "strerror", None) or words_of(error)
        with self._changed:
            self._lose(reason, count)
        self._note_failure(reason)

    def _note_failure(self, reason: str) -> None:
        was_failing, self.failure = bool(self.failure), reason
        if was_failing != bool(reason):
            self._tell(reason)

    def _say_lost(self) -> None:
        with self._changed:
            count, reason = self._unsaid_count, self._unsaid_reason
        if count:
            self._target.write(self._lost_line(count, reason))
            with self._changed:
                self._unsaid_count -= count


def say_last(text: str) -> None:
    """Write a line of text to standard error, behind what was logged; given up after a while where that is not read.

    For what a process says before it ends: a pipe that nobody reads must not hold it, nor a full disk change its code.
    """
    for writer in list(_writers):
        writer.wait_written()
    try:
        descriptor = sys.stderr.fileno()
    except (AttributeError, OSError, ValueError):
        # Closed, or no file of the system's: an object that somebody put there.
        with suppress(AttributeError, OSError, ValueError):
            sys.stderr.write(f"{text}\n")
        return
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    if poll.poll(END_S * 1000):
        try:
            sys.stderr.flush()
            # A pipe that can be written to takes this much at once.
            os.write(descriptor, f"{text}\n".encode(errors="backslashreplace")[: select.PIPE_BUF])
        except (OSError, ValueError):
            return


_writers: weakref.WeakSet[LineWriter] = weakref.WeakSet()


def _end_all() -> None:
    for writer in list(_writers):
        writer.wait_written()


def _forget_parents() -> None:
    for writer in list(_writers):
        writer.restart_after_fork()


act_last(_end_all)
os.register_at_fork(after_in_child=_forget_parents)
