"""Temporary directories of embedded nodes: gone at the end or, where the process was killed, when the next one starts.

Whoever made one holds its lock for as long as the process lives, so the next one sees which are nobody's any more. It
has another name until its lock is held.
"""

from __future__ import annotations

import fcntl
import io
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from veredus.runtime.directory import is_held

PREFIX = "veredus-embedded-"
LOCK_NAME = "lock"
_MAKING_PREFIX = "veredus-making-"
_MAKING_S = 60.0
"""Nobody takes so long to lock one that is being made."""


class TemporaryDirectory:
    """Owns a directory and its lock, until `remove`."""

    def __init__(self) -> None:
        """Make one. Raises `OSError`."""
        made = Path(tempfile.mkdtemp(prefix=_MAKING_PREFIX))
        # No bare descriptor: to close one and to forget its number are two steps, and what a signal's handler raises in
        # between lets the next close hit a file of somebody else.
        self._lock = io.FileIO(made / LOCK_NAME, "w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self.path = made.rename(made.with_name(PREFIX + made.name.removeprefix(_MAKING_PREFIX)))

    def remove(self) -> None:
        """Remove it with all that is in it; it may be gone already."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()


def remove_left_behind() -> None:
    """Remove those of processes of this user that are gone."""
    for left in _left_behind():
        shutil.rmtree(left, ignore_errors=True)


def _left_behind() -> Iterator[Path]:
    place = Path(tempfile.gettempdir())
    for path in (*place.glob(f"{PREFIX}*"), *place.glob(f"{_MAKING_PREFIX}*")):
        with suppress(OSError):
            found = path.lstat()
            is_ours = found.st_uid == os.geteuid() and path.is_dir() and not path.is_symlink()
            is_made = path.name.startswith(PREFIX) or time.time() - found.st_mtime > _MAKING_S
            if is_ours and is_made and not _is_locked(path / LOCK_NAME):
                yield path


def _is_locked(lock: Path) -> bool:
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return is_held(descriptor)
    finally:
        os.close(descriptor)
