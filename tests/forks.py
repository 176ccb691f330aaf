"""Work that a child of a fork does, and what it tells of that."""

from __future__ import annotations

import os
import pickle
import signal
import traceback
from collections.abc import Callable

CHILD_LIFE_S = 30


def told_by_child(work: Callable[[], object]) -> object:
    """What `work` gives in a child of this process; the traceback of what it raises."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(CHILD_LIFE_S)  # it has the pipes of the tests' own process, which would wait for it for ever
        try:
            told = work()
        except BaseException:  # noqa: BLE001
            told = traceback.format_exc()
        os.write(writing, pickle.dumps(told))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return pickle.loads(said)
