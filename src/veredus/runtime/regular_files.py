"""Files that settings, options and people name by their path, read in one way and opened to be written in one.

What stands in the place of such a file may be anything: a pipe would be waited for, for ever, and a device or a file of
many gigabytes would take all memory. So nothing but a regular file is read, and no more of it than fits its kind; and
nothing else is written to, nor what a link leads to. Who owns a file decides what is in it, whatever its permissions
say: so settings, keys, tokens, and whom a node believes, are taken from files of this user and of root alone.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from .users import name_of_user

FILE_SIZE_MAX: Final = 1 << 20
"""Of settings, a certificate, a key, a token: bytes."""
LIST_SIZE_MAX: Final = 16 << 20
"""Of the hashes of tokens, of authorities, of revoked certificates: bytes. There is room for 40,000 tokens or more."""
_CURE = "put the right file there, or name another one"
_CURE_OF_WRITTEN = "move it away, or name another path"
_KINDS = (
    (stat.S_ISLNK, "a symbolic link"),
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def read_regular(path: str | Path, size_max: int) -> bytes:
    """What a file holds, of at most `size_max` bytes.

    Raises `OSError`, at once, also for what is no regular file or too large; its `strerror` says what to do then.
    """
    return _read(path, size_max)[1]


def read_own(path: str | Path, size_max: int) -> tuple[int, bytes]:
    """The permissions of a file that decides what this process is or does, and what it holds.

    Raises `OSError` as `read_regular` does, and for a file of another user than this one and root.
    """
    found, content = _read(path, size_max)
    _check_owner(path, found)
    return stat.S_IMODE(found.st_mode), content


def _read(path: str | Path, size_max: int) -> tuple[os.stat_result, bytes]:
    with opened_regular(path, size_max) as (descriptor, found), os.fdopen(descriptor, "rb", closefd=False) as file:
        content = file.read(size_max + 1)
    if len(content) > size_max:
        # Some that are not on a disk have no size, and it may have grown.
        raise _too_large(f"more than {size_max}", size_max)
    return found, content


def check_regular(path: str | Path, size_max: int) -> None:
    """What has to hold before a library reads the file by its path. Raises `OSError` as `read_regular` does."""
    with opened_regular(path, size_max):
        return


def check_own(path: str | Path, size_max: int) -> None:
    """As `check_regular`, for a file that decides what this process is or does. Raises `OSError` as `read_own` does."""
    with opened_regular(path, size_max) as (_, found):
        _check_owner(path, found)


def _check_owner(path: str | Path, found: os.stat_result) -> None:
    own = os.geteuid()
    if found.st_uid not in (own, 0):
        user, least = name_of_user(own), "" if own == 0 else " or to root"
        said = f"it belongs to user {name_of_user(found.st_uid)}, and must belong to user {user}{least}"
        raise OSError(errno.EPERM, f"{said}: `chown {user} {path}`, or run this as its owner")


def open_to_write(path: Path, flags: int) -> int:
    """The descriptor of a regular file, made for its owner alone where there is none; `flags` say how it is opened.

    Raises `OSError`, at once, also for what is no regular file.
    """
    check_to_write(path)
    always = os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    descriptor = os.open(path, flags | always, 0o600)
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        # It took the place of the one that was looked at.
        os.close(descriptor)
        raise _not_regular(_kind_of(mode), _CURE_OF_WRITTEN, path)
    return descriptor


def check_to_write(path: Path) -> None:
    """Raise `OSError` where something stands that is no regular file."""
    try:
        mode = path.lstat().st_mode
    except OSError:
        # There is nothing yet, or whoever opens it hears why that cannot be known.
        return
    if not stat.S_ISREG(mode):
        raise _not_regular(_kind_of(mode), _CURE_OF_WRITTEN, path)


@contextmanager
def opened_regular(path: str | Path, size_max: int) -> Iterator[tuple[int, os.stat_result]]:
    """The descriptor of a regular file that is no larger than `size_max`, and what it is. Raises `OSError`."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError as error:
        if error.errno == errno.ENXIO:
            raise _not_regular("a socket, or a device that is not there") from None
        raise
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise _not_regular(_kind_of(found.st_mode))
        if found.st_size > size_max:
            raise _too_large(str(found.st_size), size_max)
        yield descriptor, found
    finally:
        os.close(descriptor)


def _kind_of(mode: int) -> str:
    return next((kind for is_kind, kind in _KINDS if is_kind(mode)), "something else")


def _not_regular(kind: str, cure: str = _CURE, path: Path | None = None) -> OSError:
    return OSError(errno.EINVAL, f"there is {kind} in place of a regular file: {cure}", path and str(path))


def _too_large(size: str, size_max: int) -> OSError:
    return OSError(errno.EINVAL, f"it has {size} bytes, and may have at most {size_max}: {_CURE}")
