"""Paths of Unix sockets that are longer than the kernel takes in one name.

A socket's address has room for 108 octets, its end included (unix(7)); directories of users are often longer. The
directory is opened, and the socket is named by that descriptor.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_SIZE_MAX = 107


@contextmanager
def short_enough(path: str) -> Iterator[str]:
    """A name for the socket at `path` that is short enough for an address; it holds as long as the context does.

    Raises `OSError` where the directory of `path` cannot be opened.
    """
    if len(os.fsencode(path)) <= _SIZE_MAX or not hasattr(os, "O_PATH"):
        yield path
        return
    place = Path(path)
    directory = os.open(place.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{place.name}"
    finally:
        os.close(directory)
