"""Forked children of `multiprocessing`. Python 3.11 and 3.12 leave them by `os._exit`, and run no handlers of `atexit`
there: such a child ends behind its threads, where Python waits for them, and whatever ends that wait.
"""

from __future__ import annotations

import os
import sys
import threading

from veredus.kernel.last import end, is_over


def is_forked_child() -> bool:
    """Whether this is a child of `multiprocessing` that ends by `os._exit`."""
    multiprocessing = sys.modules.get("multiprocessing")
    if multiprocessing is None or multiprocessing.parent_process() is None:
        return False
    method = getattr(multiprocessing.current_process(), "_start_method", None) or multiprocessing.get_start_method()
    return bool(method != "spawn")


def watch_children() -> None:
    """See to the end of this process, and of those that are forked from it, where they are such children."""
    if sys.version_info >= (3, 13):
        return  # `endings` does, by what `multiprocessing` finalizes: that is behind the threads there
    if not is_forked_child():
        os.register_at_fork(after_in_child=_watch_start)
        _watch_start()  # a child of a fork server imports this before it is started
    elif threading._SHUTTING_DOWN:  # type: ignore[attr-defined]
        # Its main thread waits for its threads already, and for this one with them.
        threading.Thread(target=end_behind_threads, name="veredus-end", daemon=False).start()
    else:
        _watch_shutdown()


def _watch_start() -> None:
    """Have `multiprocessing` call us in what it starts, when it has forgotten what its parent had it do."""
    util = sys.modules.get("multiprocessing.util")
    if util is not None:
        util.register_after_fork(sys.modules[__name__], lambda _: _watch_shutdown())


def _watch_shutdown() -> None:
    """End this child behind its wait for its threads, also where that is broken off: `multiprocessing` waits by this
    function alone, and leaves the process then.
    """
    shut_down = threading._shutdown  # type: ignore[attr-defined]

    def shut_down_and_end() -> None:
        try:
            shut_down()
        finally:
            if not is_over():
                end()

    if is_forked_child():
        threading._shutdown = shut_down_and_end  # type: ignore[attr-defined]


def end_behind_threads() -> None:
    """End this process when all its other threads are over."""
    ours = (threading.current_thread(), threading.main_thread())
    try:
        while others := [thread for thread in threading.enumerate() if not (thread.daemon or thread in ours)]:
            for thread in others:
                thread.join()
    finally:
        end()
