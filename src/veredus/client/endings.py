"""A program that ends without closing its connections: what is pending is sent first, and what could not be is told.

Then nodes of its own are stopped, and no thread of ours runs any more while the interpreter goes; `late` has what is
published even then. An interrupt ends the wait for what is pending, and nothing else: what it raised in here would be a
traceback to nobody's use.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import chain
from types import FrameType
from typing import TYPE_CHECKING, Any

from veredus.kernel.errors import Misuse
from veredus.kernel.last import act_last, be_over

from .loops import Begun, known_loop, park_all
from .pending import FINISH_TIMEOUT_S, connections, say_pending, say_untold

if TYPE_CHECKING:
    from .connection import Connection

_LOOK_S = 0.05
_LATE_S = 1.0
"""So much longer than it may take a loop of the program's own may need, which does other things as well."""
_LAST = -1_000_000
"""Behind all that others have `multiprocessing` do at the end of its children."""
_watched: set[int] = set()
"""The processes whose end is seen to: this one, and perhaps those that it was forked from."""
_interrupts: list[int] = []
"""Those that came while the program ended."""
_afterwards: dict[int, Any] = {}
"""How each signal is to be handled when this is done."""
to_stop: dict[Callable[[], None], None] = {}
"""What stops the nodes of this process that are not stopped yet."""


def watch_end() -> None:
    """See to the end of this process, once."""
    if os.getpid() not in _watched:
        act_last(_end)
        util = sys.modules.get("multiprocessing.util")
        if util is not None and _is_forked_child():
            util.Finalize(None, _end_child, exitpriority=_LAST)
        _watched.add(os.getpid())


def _is_forked_child() -> bool:
    """Whether this is a child of `multiprocessing` that ends by `os._exit`, behind what that finalizes alone."""
    multiprocessing = sys.modules["multiprocessing"]
    if multiprocessing.parent_process() is None:
        return False
    method = getattr(multiprocessing.current_process(), "_start_method", None) or multiprocessing.get_start_method()
    return bool(method != "spawn")


def hear_interrupts(afterwards: Any = signal.default_int_handler) -> None:
    """Let Ctrl-C raise nothing any more, nor what is handled as it: this program is about to end.

    `afterwards`: how it is to be handled once the connections are closed.
    """
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) is signal.default_int_handler:
                signal.signal(number, _hear)
                _afterwards[number] = afterwards


def _hear(number: int, _frame: FrameType | None) -> None:
    _interrupts.append(number)


def _end_child() -> None:
    be_over()
    _finish()


def _end() -> None:
    _finish(park_all)


def _finish(then: Callable[[], None] = lambda: None) -> None:
    hear_interrupts()
    late = sys.modules.get(f"{__package__}.late")  # nobody publishes where it is not there
    if late is not None:
        late.confirm_from_now_on()
    mine: dict[asyncio.AbstractEventLoop, list[Connection]] = {}
    for connection in list(connections):
        mine.setdefault(connection.loop, []).append(connection)
    try:
        while mine:
            loop = next(iter(mine))
            say_pending(_finish_in(loop, mine[loop]))
            del mine[loop]
        say_untold()
    except BaseException:
        # A handler of the program's has raised it, and nobody waits any more.
        say_pending([words for those in mine.values() for each in those for words in each.left()])
        raise
    finally:
        for stop in list(to_stop):
            with suppress(Exception):  # the next one is to be stopped, too
                stop()
        then()
        for number, handler in _afterwards.items():
            signal.signal(number, handler)


def _finish_in(loop: asyncio.AbstractEventLoop, mine: list[Connection]) -> list[str]:
    """Finish what hangs on these connections of one loop; what is pending then, in words."""
    thread = known_loop()
    if thread is not None and thread.loop is loop:
        return thread.run(partial(_finish_all, mine, is_inside_alone=True))
    begun = Begun(loop, partial(_finish_all, mine, is_inside_alone=loop.is_running()))
    with suppress(RuntimeError):  # another thread has closed it meanwhile, or begun to run it
        if loop.is_running():
            loop.call_soon_threadsafe(begun.start)
            begun.wait(FINISH_TIMEOUT_S + _LATE_S)
        elif not loop.is_closed():
            begun.start()
            loop.run_until_complete(begun.is_well())
    if begun.is_over and not begun.has_failed:
        return begun.result()
    return list(chain.from_iterable(each.left() for each in mine))


async def _finish_all(mine: list[Connection], is_inside_alone: bool) -> list[str]:
    """What is pending in the end, in words. Whoever nobody can use any more is closed: those to nodes of this process,
    and all of a loop that nobody runs.
    """
    pending = await _pending_of(mine)
    for connection in mine:
        if connection.is_inside or not is_inside_alone:
            await connection.close(Misuse("closed", "the program has come to its end, and this was closed"))
    return pending


async def _pending_of(mine: list[Connection]) -> list[str]:
    loop = asyncio.get_running_loop()
    finishing = loop.create_task(_finished(mine, FINISH_TIMEOUT_S))
    while not (finishing.done() or _interrupts):
        await asyncio.wait((finishing,), timeout=_LOOK_S)
    if finishing.done():
        return finishing.result()
    finishing.cancel()
    await asyncio.wait((finishing,))
    return await _finished(mine, 0.0)


async def _finished(mine: list[Connection], timeout_s: float) -> list[str]:
    return list(chain.from_iterable(await asyncio.gather(*(each.finish(timeout_s) for each in mine))))
