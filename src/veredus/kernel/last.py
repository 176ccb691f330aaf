"""The end of the program. `import veredus` registers it, so that handlers of `atexit` that are registered later run
before, and find everything as it was.
"""

from __future__ import annotations

from collections.abc import Callable

from .errors import Misuse

_acts: list[Callable[[], object]] = []
_over: list[bool] = []


def act_last(act: Callable[[], object]) -> None:
    """Have it done when the program ends."""
    _acts.append(act)


def is_over() -> bool:
    """Whether the program has come to its end: what still runs is what was registered before `import veredus`."""
    return bool(_over)


def be_over() -> None:
    """From now on it has."""
    _over.append(True)


def is_no_thread_any_more(error: RuntimeError) -> bool:
    """Whether this is what Python says to who starts a thread in a handler of `atexit`."""
    return "at interpreter shutdown" in str(error)


def too_late(what: str) -> Misuse:
    """What is said to who wants to open what needs threads, when none can be started any more."""
    return Misuse("closed", f"the main thread has ended: it is too late to open {what}, which needs threads")


def end() -> None:
    """The program comes to its end: do what was asked for."""
    be_over()
    for act in _acts:
        act()
