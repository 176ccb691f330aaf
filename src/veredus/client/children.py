"""Forked children of `multiprocessing`. Python 3.11 and 3.12 leave them by `os._exit`, and run no handlers of `atexit`
there: such a child ends behind its threads, where Python waits for them, and whatever ends that wait.
"""

from __future__ import annotations

import sys
import threading

from veredus.kernel.last import end


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
    if threading._SHUTTING_DOWN:  # type: ignore[attr-defined]
        if is_forked_child():
            # Its main thread waits for its threads already, and for this one with them.
            threading.Thread(target=end_behind_threads, name="veredus-end", daemon=False).start()
    else:
        # Behind all that others have done there: it may end threads.
        threading._threading_atexits.insert(0, _end)  # type: ignore[attr-defined]


def _end() -> None:
    if is_forked_child():
        end_behind_threads()


def end_behind_threads() -> None:
    """End this process when all its other threads are over."""
    ours = (threading.current_thread(), threading.main_thread())
    try:
        while others := [thread for thread in threading.enumerate() if not (thread.daemon or thread in ours)]:
            for thread in others:
                thread.join()
    finally:
        end()
