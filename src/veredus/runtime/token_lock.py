"""The lock under which `veredus token` changes a file of tokens: one change at a time, and none that waits for ever.

Whoever can open a file can hold its lock, so this one is for its owner alone (mode 0600), as the tokens are. It is not
the directory, which a node may hold as long as it runs; nor the file of tokens itself, which is replaced.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from veredus.kernel.errors import Refused

from .failures import reason_of

WAIT_S = 10.0
"""How long another change is waited for, which takes milliseconds."""
_LOOK_S = 0.02


@contextlib.contextmanager
def locked_tokens(path: Path) -> Iterator[None]:
    """Keep other changes away from the file of tokens.

    Raises `Refused`: `tokens-locked` where another process has held the lock for `WAIT_S`, and `bad-tokens` for each
    `OSError` of this and of the change.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock_file = path.with_name(f".{path.name}.lock")
        lock = os.open(lock_file, os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
        try:
            _keep_to_owner(lock)
            if not _is_taken(lock):
                raise _held(path, lock_file)
            yield
        finally:
            os.close(lock)
    except OSError as error:
        raise Refused("bad-tokens", f"{path}: the token file cannot be written ({reason_of(error)})") from None


def _keep_to_owner(lock: int) -> None:
    """Let nobody else open a lock file of ours: versions before this one made it for all to read. Raises `OSError`."""
    found = os.fstat(lock)
    if found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) & 0o077:
        os.fchmod(lock, 0o600)


def _is_taken(lock: int) -> bool:
    """Take the lock as soon as it is free; whether it was within `WAIT_S`. Raises `OSError`."""
    until_s = time.monotonic() + WAIT_S
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until_s:
                return False
            time.sleep(_LOOK_S)
        else:
            return True


def _held(path: Path, lock_file: Path) -> Refused:
    said = (
        f"{path}: nothing was changed: another process has held the lock {str(lock_file)!r} for {WAIT_S:g} s, another"
        f" `veredus token` or whoever could open that file before; `fuser -v {lock_file}`, as root, names it: end it,"
        " and try again"
    )
    return Refused("tokens-locked", said, path=str(path))
