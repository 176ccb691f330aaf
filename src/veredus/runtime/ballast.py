"""Space that is held back: for the checkpoint that lets segments go when the disk is full, and for what a start must
keep aside.

How much it has to be is known to the log (`veredus.journal.upkeep`). It is given up as a whole when it is needed, and
taken anew as soon as what needed it is done.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from .failures import code_of

BALLAST_NAME = "ballast"
_STEP_SIZE = 1 << 20


def hold(path: Path, size: int) -> None:
    """Hold back `size` bytes of the disk that the directory is on. Raises `OSError`; what could be had is held."""
    descriptor = os.open(path / BALLAST_NAME, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        held = os.fstat(descriptor).st_size
        if held > size:
            os.ftruncate(descriptor, size)
        while held < size:
            step = min(size - held, _STEP_SIZE)
            try:
                allocate(descriptor, held + step)
            except OSError as error:
                os.ftruncate(descriptor, held)
                error.filename = BALLAST_NAME
                raise
            held += step
    finally:
        os.close(descriptor)


def allocate(descriptor: int, size: int) -> None:
    """Make a file at least `size` bytes long, with space for all of it where that can be had. Raises `OSError`."""
    allocate = getattr(os, "posix_fallocate", None)
    if allocate is not None:
        allocate(descriptor, 0, size)
    elif os.fstat(descriptor).st_size < size:
        os.ftruncate(descriptor, size)


def with_ballast(path: Path, write: Callable[[], object]) -> None:
    """Write something; where there is no room for it, once more, in the space that is held back. Raises `OSError`."""
    try:
        write()
    except OSError as error:
        ballast = path / BALLAST_NAME
        if code_of(error) != "disk-full" or not ballast.is_file():
            raise
        ballast.unlink()
        write()
