"""The node that uses a directory of this machine, to be sent a signal.

Whoever may write to a directory may put any number in its lock. So that number alone means nothing: the process must
hold the lock, which the system knows; it must run as the user to whom the lock file belongs, who could send the signal
too; and it must heed the signal, which ends a program that has a node or a client of topics in itself.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from veredus.kernel.errors import Refused

from .directory import LOCK_NAME, holder_of, is_held
from .failures import reason_of
from .regular_files import FILE_SIZE_MAX, opened_regular
from .users import name_of_user

_PROCESSES = Path("/proc")
_WRITE_LOCK = ["FLOCK", "ADVISORY", "WRITE"]


def running_node(path: Path) -> int:
    """The process of the node that has the journal in the directory, of this user, or of any for root.

    Raises `Refused("no-node")` where there is none, or it must not be sent a signal.
    """
    said = f"no node uses the directory {str(path)!r}"
    try:
        with opened_regular(path / LOCK_NAME, FILE_SIZE_MAX) as (lock, found):
            # Who only looks shares the lock, and leaves the name of another process in the file.
            process = holder_of(lock) if is_held(lock) else None
    except FileNotFoundError:
        raise _no_node(path, f"{said}: there is no journal") from None
    except OSError as error:
        raise _no_node(path, f"{said}, as far as can be seen: its lock cannot be read: {reason_of(error)}") from None
    if process is None:
        raise _no_node(path, f"{said}: start a node, or name the directory of a running node")
    fault = _fault(path, process, found)
    if fault:
        raise _no_node(path, f"no signal was sent to the node of {str(path)!r}: {fault}")
    return process


def _no_node(path: Path, message: str) -> Refused:
    return Refused("no-node", message, path=str(path))


def _fault(path: Path, process: int, lock: os.stat_result) -> str:
    """Why this process, which holds the lock as the lock says, must not be sent a signal; "" where it may be."""
    owner = f"the lock file {str(path / LOCK_NAME)!r} belongs to user {name_of_user(lock.st_uid)}"
    if os.geteuid() not in (0, lock.st_uid):
        return f"{owner}: run this command as that user, or as root"
    unnamed = (
        f"the lock file {str(path / LOCK_NAME)!r} does not name the process that holds it: `fuser -v {path}`, as root,"
        " does; send that process SIGHUP if it is a node"
    )
    if process <= 0:
        return unnamed
    if not (_PROCESSES / "self").exists():
        return "" if os.geteuid() == lock.st_uid else f"{owner}: run this command as that user"
    status = _status_of(process)
    if not status or not _holds(process, lock.st_ino):
        return unnamed
    user = int(status["Uid"].split()[1])
    if user != lock.st_uid:
        return (
            f"process {process} runs as user {name_of_user(user)}, and {owner}: if it is the node,"
            f" `kill -HUP {process}`, and give the file to the user of the node"
        )
    if not int(status["SigCgt"], 16) >> signal.SIGHUP - 1 & 1:
        return f"process {process} does not read settings again, and SIGHUP would end it: it is no `veredus serve`"
    return ""


def _status_of(process: int) -> dict[str, str]:
    """What the system says of a process, by name; nothing where there is none."""
    try:
        lines = (_PROCESSES / str(process) / "status").read_text(errors="replace").splitlines()
    except OSError:
        return {}
    return dict(line.split(":", 1) for line in lines if ":" in line)


def _holds(process: int, inode: int) -> bool:
    """Whether the process holds a lock for itself on the file with this number."""
    for line in _locks(process):
        _, _, held = line.partition(": ")
        fields = held.split()
        if fields[:3] == _WRITE_LOCK and fields[3] == str(process) and fields[4].endswith(f":{inode}"):
            return True
    return False


def _locks(process: int) -> Iterator[str]:
    """The locks of all processes; where the system does not show them all, those of this one."""
    with suppress(OSError):
        yield from (_PROCESSES / "locks").read_text().splitlines()
        return
    with suppress(OSError):
        for descriptor in (_PROCESSES / str(process) / "fdinfo").iterdir():
            for line in descriptor.read_text().splitlines():
                yield line.removeprefix("lock:").lstrip()
