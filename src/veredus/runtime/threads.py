"""What a loop has done by a thread, also while the interpreter ends, when executors take nothing any more."""

from __future__ import annotations

import asyncio
from _thread import start_new_thread
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from typing import TypeVar

T = TypeVar("T")


async def in_thread(act: Callable[[], T]) -> T:
    """What `act` gives, done in a thread, or here where the process can have no further one. Raises what it raises."""
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()
    found: list[T] = []
    errors: list[BaseException] = []
    context = copy_context()

    def work() -> None:
        try:
            found.append(context.run(act))
        except BaseException as error:  # noqa: BLE001 it is raised where it is waited for
            errors.append(error)
        with suppress(RuntimeError):  # the loop is closed: nobody waits
            loop.call_soon_threadsafe(tell)

    def tell() -> None:
        if not over.done():
            over.set_result(None)

    try:
        start_new_thread(work, ())
    except RuntimeError:
        return act()
    await over
    if errors:
        raise errors[0]
    return found[0]
