"""What must be done whole or not at all, though Ctrl-C may come at any moment of it.

Python calls the handlers of signals in the main thread, between any two steps of whatever that does. What is done in
another thread they do not break: they end the wait for it.
"""

from __future__ import annotations

from _thread import allocate_lock, start_new_thread
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_LOOK_S = 0.2
"""For how long a wait may overlook a signal."""


def unbroken(act: Callable[[], T], undo: Callable[[T], object] = lambda _: None) -> T:
    """What `act` gives, done to its end whatever a signal's handler raises in the thread that asks for it.

    Raises what `act` raises, and what a handler raises meanwhile: then `undo` is given what `act` gives.
    """
    found: list[T] = []
    errors: list[BaseException] = []
    given_up: list[bool] = []
    over = allocate_lock()
    over.acquire()

    def work() -> None:
        try:
            found.append(act())
        except BaseException as error:  # noqa: BLE001 it is raised where it is waited for
            errors.append(error)
        finally:
            over.release()
        if given_up:
            _undo(found, undo)

    try:
        start_new_thread(work, ())
    except RuntimeError:  # this process can have no further one, or is about to end
        return act()
    try:
        while not over.acquire(timeout=_LOOK_S):
            pass
    except BaseException:
        given_up.append(True)
        _undo(found, undo)
        raise
    if errors:
        raise errors[0]
    return found[0]


def _undo(found: list[T], undo: Callable[[T], object]) -> None:
    """Both threads may come to this: one of them takes what was found."""
    try:
        taken = found.pop()
    except IndexError:
        return
    undo(taken)
