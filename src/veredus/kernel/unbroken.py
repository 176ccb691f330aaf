"""What must be done whole or not at all, though Ctrl-C may come at any moment of it.

Python calls the handlers of signals in the main thread, between any two steps of whatever that does. What is done in
another thread they do not break: they end the wait for it.

A fork breaks off what other threads do: in the child, nobody ends it. So whoever is about to fork waits for its end.
"""

from __future__ import annotations

from _thread import RLock, allocate_lock, start_new_thread
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_LOOK_S = 0.2
"""For how long a wait may overlook a signal."""
_FORK_S = 5.0
"""For how long a fork waits at most."""
_undivided = RLock()
_is_held = False
"""Whether a fork holds it."""


def unbroken(act: Callable[[], T], undo: Callable[[T], object] = lambda _: None, end_s: float = 0.0) -> T:
    """What `act` gives, done to its end whatever a signal's handler raises in the thread that asks for it.

    Raises what `act` raises, and what a handler raises meanwhile, at once or when `act` has ended, for which it waits
    `end_s` at most. Then `undo` is given what `act` gives, in a thread of its own too, and nobody waits for that.
    """
    found: list[T] = []
    errors: list[BaseException] = []
    is_given_up = is_alone = False
    over = allocate_lock()
    over.acquire()

    def work() -> None:
        try:
            found.append(act())
        except BaseException as error:  # noqa: BLE001 it is raised where it is waited for
            errors.append(error)
        finally:
            over.release()
        if is_given_up:
            _undo(found, undo)

    try:
        try:
            start_new_thread(work, ())
        except RuntimeError as error:
            if error.__traceback__ is None or error.__traceback__.tb_next is not None:
                raise  # by a handler, right behind the start
            is_alone = True  # this process can have no further thread, or is about to end
        while not is_alone and not over.acquire(timeout=_LOOK_S):
            pass
    except BaseException:
        # However many signals there are: none is noticed between these two, for each looks behind a call.
        is_given_up = True
        try:
            start_new_thread(_undo, (found, undo))
        except RuntimeError:
            _undo(found, undo)
        if end_s and not (found or errors):
            over.acquire(timeout=end_s)
        raise
    if is_alone:
        return act()
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


def undivided(act: Callable[[], T]) -> T:
    """What `act` gives; no fork comes into the middle of it, in whatever thread."""
    with _undivided:
        return act()


def begin_fork() -> None:
    """Wait until nothing is in the middle of what a fork would break off, and let nothing of that begin."""
    global _is_held
    _is_held = _undivided.acquire(timeout=_FORK_S)


def end_fork() -> None:
    """This process has forked, or is the child."""
    global _is_held
    if _is_held:
        _is_held = False
        _undivided.release()
