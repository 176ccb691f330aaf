"""A program that ends without closing its connections: what is pending is sent first, and what could not be is told.

Then nodes of its own are stopped, and no thread of ours runs any more while the interpreter goes; `late` has what is
published even then. An interrupt ends the wait for what is pending, and nothing else: what it raised in here, or what
another handler of a signal does to end the program, would be a traceback to nobody's use.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from _thread import start_new_thread
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeAlias

from veredus.kernel.errors import Misuse
from veredus.kernel.last import act_last, end

from .children import end_behind_threads, is_forked_child
from .loops import Begun, Work, known_loop, park_all
from .pending import connections, finished, patience, say_lost

if TYPE_CHECKING:
    from .connection import Connection

Finishing: TypeAlias = "set[asyncio.Task[object]]"
"""What connections still have to send and to hear."""
_LOOK_S = 0.05
_LATE_S = 1.0
"""So much longer than it may take a loop of the program's own may need, which does other things as well."""
_LAST = -1_000_000
"""Behind all that others have `multiprocessing` do at the end of its children."""
_watched: set[int] = set()
"""The processes whose end is seen to: this one, and perhaps those that it was forked from."""
_interrupts: list[int] = []
"""Those that came while the program ended."""
_heard: list[tuple[int, FrameType | None]] = []
"""All signals that came then, and were not handled yet."""
_handlers: dict[int, Any] = {}
"""What each signal's handler was."""
_afterwards: dict[int, Any] = {}
"""How each signal is to be handled when this is done."""
to_stop: dict[Callable[[], None], None] = {}
"""What stops the nodes of this process that are not stopped yet."""


def watch_end() -> None:
    """See to the end of this process, once."""
    if os.getpid() not in _watched:
        if is_forked_child():
            if sys.version_info >= (3, 13):
                sys.modules["multiprocessing.util"].Finalize(None, end, exitpriority=_LAST)
        elif not isinstance(threading.main_thread(), threading._MainThread):  # type: ignore[attr-defined]
            start_new_thread(_end_forked_thread, ())
        _watched.add(os.getpid())


def hear_interrupts(afterwards: Any = signal.default_int_handler) -> None:
    """Let no handler of a signal end this program any more: it is about to end. `afterwards`: how what raises
    `KeyboardInterrupt` is to be handled once the connections are closed.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    for number in signal.valid_signals():
        handler = signal.getsignal(number)
        if callable(handler) and handler is not _hear:
            _handlers[number] = handler
            _afterwards[number] = afterwards if handler is signal.default_int_handler else handler
            signal.signal(number, _hear)


def _hear(number: int, frame: FrameType | None) -> None:
    _heard.append((number, frame))


def _handle_heard() -> None:
    """Call the handlers of the signals that came, where no loop runs in this thread: they may publish."""
    while _heard:
        number, frame = _heard.pop(0)
        try:
            _handlers[number](number, frame)
        except (KeyboardInterrupt, SystemExit):
            _interrupts.append(number)
        except Exception:  # noqa: BLE001 it is the handler's own, and the end goes on
            sys.excepthook(*sys.exc_info())


def _end_forked_thread() -> None:
    """End this child, which was forked in a thread, as Python ends a program: nobody else does when that thread ends,
    and any other, also of a library, would keep the process for ever.
    """
    threading.main_thread().join()
    executors = sys.modules.get("concurrent.futures.thread")
    if executors is not None:
        executors._python_exit()
    try:
        end_behind_threads()
    finally:
        os._exit(0)  # what Python's own threads leave it with


def _end() -> None:
    hear_interrupts()
    late = sys.modules.get(f"{__package__}.late")  # nobody publishes where it is not there
    if late is not None:
        late.confirm_from_now_on()
    thread = known_loop()
    # What other threads publish from now on is refused: it would be sent, and named as well.
    is_parked = thread is not None and thread.park()
    if late is not None:
        late.wait_free()
    _handle_heard()
    mine: dict[asyncio.AbstractEventLoop, list[Connection]] = {}
    for connection in connections.copy():
        if connection.failure is None:
            mine.setdefault(connection.loop, []).append(connection)
    try:
        for loop, those in mine.items():
            if thread is None or loop is not thread.loop:
                _finish_in(loop, those)
            elif is_parked:
                _finish_here(thread.run, those, is_shared=True)
    finally:
        _handle_heard()
        say_lost()
        for stop in list(to_stop):
            with suppress(Exception):  # the next one is to be stopped, too
                stop()
        park_all()
        for number, handler in _afterwards.items():
            signal.signal(number, handler)


act_last(_end)


def _finish_in(loop: asyncio.AbstractEventLoop, mine: list[Connection]) -> None:
    """Finish what hangs on these connections of one of the program's own loops, whose tasks go on meanwhile."""
    for connection in mine:
        connection.bar(_closed_at_end())
    with suppress(RuntimeError):  # another thread has closed it meanwhile, or begun to run it
        if loop.is_running():
            _finish_there(loop, mine)
        left = [connection for connection in mine if connection.failure is None]
        if left and not (loop.is_running() or loop.is_closed()):
            _finish_here(lambda work: loop.run_until_complete(work()), left, is_shared=False)


def _finish_there(loop: asyncio.AbstractEventLoop, mine: list[Connection]) -> None:
    """Finish what hangs on these in a loop that another thread runs, while it does."""
    begun = Begun(loop, partial(_finish_all, mine))
    loop.call_soon_threadsafe(begun.start)
    end_s = time.monotonic() + patience.left_s + _LATE_S
    is_run = True
    # Between the work that it is given and the end of its tasks a loop stands still for a moment.
    while not begun.wait(_LOOK_S) and (is_run or loop.is_running()) and time.monotonic() < end_s:
        is_run = loop.is_running()
        _handle_heard()
    # A loop that cancels all its tasks is about to end, and connections finish by themselves there.
    while begun.has_failed and loop.is_running() and not _interrupts and time.monotonic() < end_s:
        time.sleep(_LOOK_S)
        _handle_heard()
    begun.cancel()


def _finish_here(run: Callable[[Work[Finishing]], Finishing], mine: list[Connection], is_shared: bool) -> None:
    """Finish what hangs on these in a loop that goes on in this thread, which handles signals meanwhile; `run` does
    some work in it.
    """
    finishing = run(partial(_begun, mine))
    while finishing and not _interrupts:
        finishing = run(partial(_waited, finishing, _heard))
        _handle_heard()
    run(partial(_closed, mine, finishing, is_shared))


async def _finish_all(mine: list[Connection]) -> None:
    await finished(lambda: [] if _interrupts else [each for connection in mine for each in connection.unfinished()])
    await _closed(mine, set(), is_shared=False)


async def _begun(mine: list[Connection]) -> Finishing:
    return {asyncio.ensure_future(finished(connection.unfinished)) for connection in mine}


async def _waited(finishing: Finishing, heard: Sequence[object]) -> Finishing:
    """Those that are not done when something is heard."""
    while finishing and not heard:
        finishing = (await asyncio.wait(finishing, timeout=_LOOK_S))[1]
    return finishing


async def _closed(mine: list[Connection], finishing: Finishing, is_shared: bool) -> Finishing:
    """Those that nobody can use any more are closed: to nodes of this process, and of the program's own loops."""
    for each in finishing:
        each.cancel()
    for connection in mine:
        if connection.is_inside or not is_shared:
            await connection.close(_closed_at_end())
    return set()


def _closed_at_end() -> Misuse:
    return Misuse("closed", "the program has come to its end, and this was closed")
