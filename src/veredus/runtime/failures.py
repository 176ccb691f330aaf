"""What a failure of the operating system is to users: a code, and what happened to which file."""

from __future__ import annotations

import errno
import os
import resource
from pathlib import Path

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_NO_DESCRIPTOR = {errno.EMFILE, errno.ENFILE}
MORE_FILES = "raise `ulimit -n` or LimitNOFILE, and start again"
"""What to do where a process may not open as many files as it needs."""


def code_of(error: OSError) -> str:
    """What kind of failure it was: `disk-full`, `too-many-files` or `io-error`."""
    if error.errno in _FULL:
        return "disk-full"
    return "too-many-files" if error.errno in _NO_DESCRIPTOR else "io-error"


def reason_of(error: OSError) -> str:
    """What happened, and to which file: where one was to take the place of another, to that."""
    file = error.filename2 or error.filename
    where = f" ({Path(os.fsdecode(file)).name})" if isinstance(file, str | bytes) else ""
    if error.errno == errno.EFBIG:
        limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
        return f"a limit lets this process write files of at most {limit} bytes{where}: raise `ulimit -f` or LimitFSIZE"
    return f"{error.strerror or error}{where}"
