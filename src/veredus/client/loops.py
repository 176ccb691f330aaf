"""One thread with one loop in it, where the blocking library does its waiting; started when it is first needed."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import Any, NoReturn, TypeVar

from veredus.kernel.errors import Misuse

SIGNALS_S = 0.2
"""For how long a wait may overlook a signal: CPython's main thread does until it has the lock that it waits for, if the
signal comes just before."""
T = TypeVar("T")
_running: set[LoopThread] = set()


class LoopThread:
    """Owns a daemon thread that runs an event loop, uvloop's where that is installed."""

    def __init__(self, name: str) -> None:
        """Start the thread."""
        self._process = os.getpid()
        self._is_parked = False
        self.loop = new_loop()
        _running.add(self)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`, done in the loop, waited for here. Not to be called in the loop's own thread."""
        task = self.begin(work)
        try:
            while not wait((task,), SIGNALS_S).done:
                pass
            return task.result()
        except BaseException:
            task.cancel()
            raise

    def begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Let `work` be done in the loop; its outcome. Raises `Misuse` in the loop's own thread and behind a fork."""
        if self.is_forked:
            work.close()
            raise forked()
        if self._is_parked:
            return self._done_here(work)
        if threading.current_thread() is self._thread:
            work.close()
            raise Misuse(
                "in-loop", "the blocking library cannot be called inside its own event loop: use connect_async there"
            )
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    @property
    def is_forked(self) -> bool:
        """Whether this is a child of a fork, which has no such thread."""
        return os.getpid() != self._process

    def call(self, then: Callable[[], object]) -> None:
        """Call `then` in the loop, soon."""
        self.loop.call_soon_threadsafe(then)

    def park(self) -> None:
        """End the thread. What is begun from now on is done at once, by whoever begins it.

        A thread that runs while the interpreter goes takes the process down with it, by SIGSEGV.
        """
        if not self.is_forked and not self._is_parked:
            self.call(self.loop.stop)
            self._thread.join()
            self._is_parked = True

    def _done_here(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        done: Future[T] = Future()
        try:
            done.set_result(self.loop.run_until_complete(work))
        except BaseException as error:  # noqa: BLE001 - whoever waits for it is told
            done.set_exception(error)
        return done

    def stop(self) -> None:
        """Stop the loop and wait for the thread; it may have been stopped before."""
        if self.loop.is_closed():
            return
        self.park()
        self.loop.close()
        _running.discard(self)


async def opened_in_thread(open_: Callable[[], T], let_go: Callable[[T], object]) -> T:
    """What `open_` opens, in a thread. Nothing stops a thread: who is cancelled lets go of what it has opened."""
    opening = asyncio.ensure_future(asyncio.to_thread(open_))
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        undone = asyncio.ensure_future(_undo(opening, let_go))
        await asyncio.wait((undone,))
        raise


async def closed_in_thread(close: Callable[[], object]) -> None:
    """Do what `close` does, in a thread. Who is cancelled meanwhile waits for its end all the same."""
    closing = asyncio.ensure_future(asyncio.to_thread(close))
    try:
        await asyncio.shield(closing)
    except asyncio.CancelledError:
        await asyncio.wait((closing,))
        raise


async def _undo(opening: asyncio.Future[T], let_go: Callable[[T], object]) -> None:
    with suppress(Exception):
        await asyncio.to_thread(let_go, await opening)


def new_loop() -> asyncio.AbstractEventLoop:
    """A fresh event loop: uvloop's where that is installed, else asyncio's own."""
    try:
        import uvloop
    except ImportError:
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


def shared_loop() -> LoopThread:
    """The loop that all blocking connections of this process share."""
    global _shared
    with _shared_lock:
        if _shared is None:
            _shared = LoopThread("veredus")
        return _shared


def known_loop() -> LoopThread | None:
    """That loop, if this process has needed one."""
    return _shared


def forget_shared_loop() -> LoopThread | None:
    """After a fork there is no thread in the child: let the next one who asks start another. Returns what was there."""
    global _shared, _shared_lock
    gone, _shared = _shared, None
    _shared_lock = threading.Lock()
    return gone
