"""A process of a run ends with the conductor that began it, whatever ended that, and also where it is stopped.

Source: prctl(2), PR_SET_PDEATHSIG.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time

PARENT = "CHAOS_PARENT"
"""The variable in which whoever begins a process tells its number: it may be gone before this asks for it."""
_PR_SET_PDEATHSIG = 1
_POLL_S = 0.5


def end_with_parent() -> None:
    """From now on. The kernel sees to it where it can; a thread does elsewhere, but not while this is stopped."""
    parent = int(os.environ[PARENT])
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_POLL_S)
    os._exit(1)
