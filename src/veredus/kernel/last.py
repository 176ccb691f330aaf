"""The end of the program. `import veredus` registers it, so that handlers of `atexit` that are registered later run
before, and find everything as it was. It is the only handler of ours.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from .errors import Misuse

_acts = ExitStack()
_over: list[bool] = []


def act_last(act: Callable[[], object]) -> None:
    """Have it done when the program ends, before what was asked for earlier."""
    _acts.callback(act)


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
    """The program comes to its end: do what was asked for, once, though this may be called again."""
    be_over()
    _acts.close()
