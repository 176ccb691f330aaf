"""Libraries that put threads of their own in the place of the system's, as gevent and eventlet do in all of a program.

Such a thread runs only while the others wait by the library, and a loop of asyncio does not wait so: whoever waited for
it would wait for ever.
"""

from __future__ import annotations

import _thread

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
