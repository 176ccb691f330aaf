"""One thread with one loop in it, where the blocking library does its waiting; started when it is first needed."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from _thread import start_new_thread
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, Generic, NoReturn, TypeAlias, TypeVar

from veredus.kernel.errors import Misuse
from veredus.kernel.last import is_no_thread_any_more, is_over
from veredus.kernel.unbroken import begin_fork, end_fork
from veredus.runtime.threads import in_thread

from .replaced import check_threads, entered_again
from .times import end_of

SIGNALS_S = 0.2
"""For how long a wait may overlook a signal: CPython's main thread does until it has the lock that it waits for, if the
signal comes just before."""
_TURN_S = 0.001
"""So long a parked loop goes on at a time."""
_PARKED_S = 5.0
"""For how long the end of a loop's thread is waited for."""
_PAUSE_S = 0.0001
"""Behind its turn a thread leaves the loop to others for so long: who waits for a lock does not get it otherwise."""
T = TypeVar("T")
Work: TypeAlias = Callable[[], Coroutine[Any, Any, T]]
"""What makes the coroutine that is to be done in a loop, once it is begun there: Python tells of each coroutine that
nobody began."""
_running: set[LoopThread] = set()
_undone: set[asyncio.Task[object]] = set()
"""A loop holds no task."""


def check_loop(loop: asyncio.AbstractEventLoop | None, what: str, cure: str) -> None:
    """Raise `Misuse("other-loop")` in any loop but this one, and in a thread that runs none.

    Nobody would be woken there. `what` was opened in that loop; `cure` says how it is opened in another one.
    """
    try:
        running = asyncio.get_running_loop()
    except RuntimeError:
        message = (
            f"{what} belongs to an event loop, and this thread runs none: call it in that loop, from here by"
            " asyncio.run_coroutine_threadsafe or loop.call_soon_threadsafe, or use the blocking library"
        )
        raise Misuse("other-loop", message) from None
    if running is not loop:
        message = (
            f"{what} was opened in another event loop, and works in that one alone (each asyncio.run and each thread"
            f" has a loop of its own): {cure} in the loop that uses it"
        )
        raise Misuse("other-loop", message)


class Signal:
    """Wakes one thread that waits, from another; what was told before it waited counts."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        """Nothing has been told yet."""
        self._lock = threading.Lock()
        self._lock.acquire()

    def tell(self) -> None:
        """Let the one who waits go on."""
        try:
            self._lock.release()
        except RuntimeError:
            # It was told already.
            return

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until told; whether it was, in time."""
        end_s = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            left_s = SIGNALS_S if end_s is None else max(0.0, end_s - time.monotonic())
            if self._lock.acquire(timeout=min(SIGNALS_S, left_s)):
                return True
            if end_s is not None and left_s <= SIGNALS_S:
                return False


class Begun(Generic[T]):
    """Work that was begun in a loop, and what became of it, for who waits in another thread.

    No `concurrent.futures.Future`: that takes its locks in Python, and what a signal's handler raises meanwhile leaves
    them taken for ever, by the loop's thread as well.
    """

    __slots__ = ("_error", "_is_cancelled", "_is_over", "_loop", "_result", "_signal", "_task", "_work")

    def __init__(self, loop: asyncio.AbstractEventLoop, work: Work[T]) -> None:
        """Nothing is done yet; `start` is to be called in the loop, once at least."""
        self._loop = loop
        self._work = work
        self._signal = Signal()
        self._task: asyncio.Task[T] | None = None
        self._is_cancelled = False
        self._is_over = False
        self._result: T | None = None
        self._error: BaseException | None = None

    def start(self) -> None:
        """Do the work, in the loop."""
        if self._task is None and not self._is_cancelled:
            self._task = self._loop.create_task(self._made())
            self._task.add_done_callback(self.end)

    async def _made(self) -> T:
        # What raises as it makes the coroutine raises in the task.
        return await self._work()

    def end(self, task: asyncio.Task[T]) -> None:
        """The work is over, in the loop."""
        self._error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if self._error is None:
            self._result = task.result()
        self._is_over = True
        self._signal.tell()

    @property
    def is_over(self) -> bool:
        """Whether it is over."""
        return self._is_over

    @property
    def has_failed(self) -> bool:
        """Whether it is over, and raised."""
        return self._is_over and self._error is not None

    def then(self, act: Callable[[], object]) -> None:
        """Do something in the loop as soon as it is over; nothing where the loop is closed."""

        def go_on() -> None:
            if self._task is not None:
                self._task.add_done_callback(lambda _: act())

        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(go_on)

    async def is_well(self) -> bool:
        """Wait until it is over, in the loop; whether it was started, and has raised nothing."""
        if self._task is None:
            self._is_cancelled = True
            return False
        await asyncio.wait((self._task,))
        return not self._task.cancelled() and self._task.exception() is None

    def wait(self, timeout_s: float | None = None, by: LoopThread | None = None) -> bool:
        """Wait until it is over; whether it is, in time. `by` may be a loop that goes on where somebody waits."""
        if self._is_over:
            return True
        is_told = self._signal.wait(timeout_s) if by is None else by.wait(self._signal, timeout_s)
        if is_told:
            self._signal.tell()  # another thread may wait as well
        return is_told

    def result(self) -> T:
        """What came of it, once it is over. Raises what the work raised."""
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]

    def cancel(self, undo: Callable[[T], Coroutine[Any, Any, object]] | None = None) -> None:
        """Nobody waits any more, and nobody has what came of it all the same: `undo` lets go of it, in the loop."""
        self._is_cancelled = True
        if self._loop.is_closed():
            if self._task is not None and not self._is_over:
                _leave(self._task)
        elif undo is not None or not self._is_over:
            self._loop.call_soon_threadsafe(self._cancel, undo)

    def _cancel(self, undo: Callable[[T], Coroutine[Any, Any, object]] | None) -> None:
        if self._task is not None:
            self._task.cancel()
            if undo is not None:
                self._task.add_done_callback(partial(self._undo, undo))

    def _undo(self, undo: Callable[[T], Coroutine[Any, Any, object]], task: asyncio.Task[T]) -> None:
        if not task.cancelled() and task.exception() is None:
            undone = self._loop.create_task(undo(task.result()))
            _undone.add(undone)
            undone.add_done_callback(_undone.discard)


def _leave(task: asyncio.Task[Any]) -> None:
    """Nobody ends this task, whose loop is closed, and Python is not to tell of it."""
    loop = task.get_loop()
    tell = loop.get_exception_handler() or (lambda _, context: loop.default_exception_handler(context))
    loop.set_exception_handler(lambda _, context: None if context.get("task") is task else tell(loop, context))
    if (work := task.get_coro()) is not None:
        with suppress(RuntimeError):  # it waits for something more, in vain
            work.close()  # Python tells of a coroutine that nobody has begun, too


class LoopThread:
    """Owns a daemon thread that runs an event loop, uvloop's where that is installed."""

    def __init__(self) -> None:
        """Start the thread. Where none can be started any more the loop is parked: whoever waits for it lets it go on.

        Raises `RuntimeError` where this process can have no further one, and `Misuse("replaced-threads")`.
        """
        check_threads()
        self._process = os.getpid()
        self._ident = threading.get_ident() if is_over() else 0
        """The thread in which the loop runs; behind the end of the program, the one that ends it."""
        self._is_over = self._is_given_up = False
        self._over = Signal()
        self._is_parked = True
        self._turn = threading.Lock()
        """Taken where a parked loop goes on: in one thread at a time."""
        self.loop = new_loop()
        _running.add(self)
        if is_over():
            return
        # No `threading.Thread`: to start it and to wait for its end take locks in Python, as a future does, and what a
        # signal's handler raises meanwhile leaves them taken for ever. Between these two steps none is noticed.
        self._is_parked = False
        try:
            start_new_thread(self._run, ())
        except RuntimeError as error:
            self._is_parked = True
            if not is_no_thread_any_more(error):
                self.stop()
                raise

    def _run(self) -> None:
        self._ident = threading.get_ident()
        try:
            asyncio.set_event_loop(self.loop)
            self.loop.run_forever()
        finally:
            self._is_over = True
            self._over.tell()

    def run(self, work: Work[T], undo: Callable[[T], Coroutine[Any, Any, object]] | None = None) -> T:
        """The result of `work`, done in the loop, waited for here. Not to be called in the loop's own thread.

        What comes of it though an exception has ended the wait nobody has: `undo` lets go of it, in the loop.
        """
        self.check_caller()
        begun = Begun(self.loop, work)
        try:
            self.start(begun)
            begun.wait(by=self)
            return begun.result()
        except BaseException:
            begun.cancel(undo)
            raise

    def check_caller(self) -> None:
        """Raise `Misuse` in the loop's own thread and behind a fork."""
        if self.is_forked:
            raise forked()
        self.check_outside()

    def start(self, begun: Begun[Any]) -> None:
        """Have it done in the loop, once."""
        self.call(begun.start)

    def see_to(self, begun: Begun[Any]) -> None:
        """Have it done in the loop, and wait until it is over; what breaks the wait off does not break it off."""
        if begun.is_over:
            return
        self.check_caller()
        self.start(begun)
        begun.wait(by=self)

    def check_outside(self) -> None:
        """Raise `Misuse("in-loop")` in the loop's own thread, where nobody can wait for the loop.

        Behind the end of the program the loop goes on in the thread that ends it: raise `Misuse("closed")` elsewhere.
        """
        is_here = threading.get_ident() == self._ident
        if self._is_parked and is_over() and not is_here:
            raise Misuse("closed", "the program has come to its end: only the thread that ends it can go on")
        if asyncio._get_running_loop() is not None if self._is_parked else is_here:
            raise Misuse(
                "in-loop", "the blocking library cannot be called inside its own event loop: use connect_async there"
            )

    @property
    def is_parked(self) -> bool:
        """Whether there is no thread that runs it."""
        return self._is_parked

    @property
    def is_forked(self) -> bool:
        """Whether this is a child of a fork, which has no such thread."""
        return os.getpid() != self._process

    def call(self, then: Callable[[], object]) -> None:
        """Call `then` in the loop, soon. Raises `Misuse`: `forked` behind a fork, where nobody runs it, and `closed` in
        other threads where the program has ended.
        """
        if self.is_forked:
            raise forked()
        self.loop.call_soon_threadsafe(then)
        if self._is_parked and asyncio._get_running_loop() is not self.loop:
            self._go_on()

    def wait(self, signal: Signal, timeout_s: float | None = None) -> bool:
        """Wait until `signal` is told, in the loop or elsewhere; whether it was, in time."""
        if not self._is_parked:
            return signal.wait(timeout_s)
        end_s = end_of(timeout_s)
        while not signal.wait(0.0):
            if time.monotonic() >= end_s:
                return False
            self._go_on()
        return True

    def _go_on(self) -> None:
        """Let the parked loop go on for a moment, in this thread."""
        self.check_outside()
        with self._turn:
            self.check_outside()  # the program may have come to its end meanwhile
            self.loop.run_until_complete(asyncio.sleep(_TURN_S))
        time.sleep(_PAUSE_S)

    def park(self) -> bool:
        """End the thread. From now on the loop goes on in this one, while it waits for something; False where something
        has held the thread for so long that nobody can wait for it.

        A thread that runs while the interpreter goes takes the process down with it, by SIGSEGV.
        """
        if self.is_forked:
            return True
        if not self._is_parked:
            self.call(self.loop.stop)
            if not self._is_over and (self._is_given_up or not self._over.wait(_PARKED_S)):
                self._is_given_up = True
                return False
        self._ident, self._is_parked = threading.get_ident(), True
        return True

    def stop(self) -> None:
        """Stop the loop and wait for the thread; it may have been stopped before."""
        if self.loop.is_closed():
            return
        if self.park():
            self.loop.close()
            _running.discard(self)


async def opened_in_thread(open_: Callable[[], T], let_go: Callable[[T], object]) -> T:
    """What `open_` opens, in a thread. Nothing stops a thread: who is cancelled lets go of what it has opened."""
    opening = asyncio.ensure_future(in_thread(open_))
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        undone = asyncio.ensure_future(_undo(opening, let_go))
        await asyncio.wait((undone,))
        raise


async def closed_in_thread(close: Callable[[], object]) -> None:
    """Do what `close` does, in a thread. Who is cancelled meanwhile waits for its end all the same."""
    closing = asyncio.ensure_future(in_thread(close))
    try:
        await asyncio.shield(closing)
    except asyncio.CancelledError:
        await asyncio.wait((closing,))
        raise


async def _undo(opening: asyncio.Future[T], let_go: Callable[[T], object]) -> None:
    with suppress(Exception):
        opened = await opening
        await in_thread(lambda: let_go(opened))


def new_loop() -> asyncio.AbstractEventLoop:
    """A fresh event loop: uvloop's where that is installed, else asyncio's own.

    The latter, too, where uvloop is imported first while the interpreter ends: it raises `RuntimeError` then.
    """
    try:
        import uvloop
    except (ImportError, RuntimeError):
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def forked() -> Misuse:
    """What a child of a fork is told of everything that it inherited."""
    return Misuse("forked", "this was opened before the process forked: connect again in the child")


def refuse_pickling(thing: object) -> NoReturn:
    """Stands for `__reduce__` of what hangs on the threads and sockets of this process."""
    name = type(thing).__name__
    raise TypeError(f"{name} belongs to this process and cannot be sent to another one: connect there")


def park_all() -> None:
    """Park every loop of this process."""
    for thread in list(_running):
        thread.park()


_shared: LoopThread | None = None
_shared_lock = threading.Lock()
_starter = 0
"""The thread that starts the shared loop, and imports what that needs."""
_of_parents: list[LoopThread] = []
"""The shared loops of processes that this one was forked from: they stay untouched, and are never let go of."""


def shared_loop() -> LoopThread:
    """The loop that all blocking connections of this process share.

    Raises `Misuse("shadowed-module")` where the start of the loop has led here again: it would wait for itself.
    """
    global _shared, _starter
    if _starter == threading.get_ident():
        raise entered_again()
    with _shared_lock:
        if _shared is None:
            _starter = threading.get_ident()
            try:
                _shared = LoopThread()
            finally:
                _starter = 0
        return _shared


def known_loop() -> LoopThread | None:
    """That loop, if this process has needed one."""
    return _shared


def _forget_shared_loop() -> None:
    """After a fork there is no thread in the child: let the next one who asks start another."""
    global _shared, _shared_lock, _starter
    if _shared is not None:
        _of_parents.append(_shared)
    _shared, _shared_lock, _starter = None, threading.Lock(), 0


os.register_at_fork(after_in_child=_forget_shared_loop)
# Threads of ours import what they need first, whatever the program does meanwhile.
os.register_at_fork(before=begin_fork, after_in_parent=end_fork, after_in_child=end_fork)
