"""What a program has put in the place of Python's own: then whoever connects would wait for ever.

Libraries such as gevent and eventlet put threads of their own in the place of the system's, in all of a program. Such a
thread runs only while the others wait by the library, and a loop of asyncio does not wait so. A file of the program
with the name of a module of the standard library, such as `queue.py`, is imported in its place, and connects meanwhile.
"""

from __future__ import annotations

import _thread
import sys

from veredus.kernel.errors import Misuse

_CURES = {"gevent": "gevent.monkey.patch_all(thread=False)", "eventlet": "eventlet.monkey_patch(thread=False)"}


def check_threads() -> None:
    """Raise `Misuse("replaced-threads")` where a thread that begins now would be none of the system's."""
    library = (getattr(_thread.start_new_thread, "__module__", None) or "").partition(".")[0]
    if library in _CURES:
        message = (
            f"{library} has replaced the threads of this program, and Veredus needs one of the system's: call"
            f" {_CURES[library]}, or leave the threads alone in the processes that use Veredus"
        )
        raise Misuse("replaced-threads", message)


def entered_again() -> Misuse:
    """Why a thread that connects cannot connect once more meanwhile: what it imports for that has led to it."""
    frame = sys._getframe(1)
    while frame.f_back is not None and (
        frame.f_code.co_name != "<module>" or frame.f_globals.get("__name__") not in sys.stdlib_module_names
    ):
        frame = frame.f_back
    name = frame.f_globals.get("__name__")
    cause = "what it imports, or the handler of a signal, has called it again"
    if name in sys.stdlib_module_names:
        file = frame.f_code.co_filename
        cause = (
            f"the import of {name!r} has run {file}, which hides that module of the standard library: rename the file"
        )
    return Misuse("shadowed-module", f"this thread is connecting already: {cause}")
