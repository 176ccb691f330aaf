"""The directory of a journal: whose it is now, what lies in it, and how its files are read and replaced.

lock                  held by the one node that uses the directory; its contents name the process
checkpoint, …         veredus.journal.checkpoint
<number>.segment      veredus.journal.layout
<number>.index        veredus.journal.index
restored              the directory is an older copy of a journal that was used on: the next start begins new terms
aside/                what recovery cut off or found damaged; nothing deletes it

The directory itself is locked too: the lock file can be removed, and who comes next would make and lock another one.
Whoever can list a directory can hold that lock, so a directory of ours is closed to others: they may at most pass
through it, to a socket of the node.
"""

from __future__ import annotations

import fcntl
import math
import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from veredus.journal.beginning import is_own
from veredus.kernel.effects import Note
from veredus.kernel.errors import Refused, Unavailable, VeredusError
from veredus.kernel.octets import Octets

from .failures import MORE_FILES, code_of, reason_of
from .regular_files import open_to_write

LOCK_NAME = "lock"
RESTORED_NAME = "restored"
ASIDE_NAME = "aside"
_TEMPORARY = ".tmp"
_LISTING = 0o066
"""The permissions of others that let them list or change a directory; with the rest they can only pass through it."""
_PROCESS_DIGITS_MAX = 9
_FILLED_SIZE_MAX = 1 << 20
"""Filling so little with zeros takes no time."""

sync_data = getattr(os, "fdatasync", os.fsync)
"""Brings a file's data, and the size needed to find it, to the platter."""


class Directory:
    """Owns the locks on a journal's directory, from `open_directory` to `close`."""

    __slots__ = ("_held", "_is_new", "_lock", "_opened", "access", "path")

    def __init__(
        self, path: Path, opened: int, lock: int | None, access: Note | None = None, is_new: bool = False
    ) -> None:
        """Of a directory that is open as descriptor `opened`, and its lock file, if it has one, as `lock`.

        `access` is what is to be said of what others can do with it, None for nothing. `is_new`: it was just made.
        """
        self._is_new = is_new
        self.path = path
        self.access = access
        self._opened = opened
        self._lock = lock
        self._held = [opened] if lock is None else [opened, lock]

    def listing(self) -> dict[str, int]:
        """The sizes of the files in the directory, by name, in bytes.

        Raises `Refused("journal-directory")` where one of the journal's own is no file: what it held may be elsewhere,
        and nothing could be put in its place.
        """
        sizes: dict[str, int] = {}
        for file in self.path.iterdir():
            if file.is_file():
                sizes[file.name] = file.stat().st_size
            elif is_own(name := file.name.removesuffix(_TEMPORARY)) or name == RESTORED_NAME:
                message = (
                    f"{str(file)!r} is no file, or a link to none: nothing was changed; put the file back, or move what"
                    " is there away if the file is lost, and start again"
                )
                raise Refused("journal-directory", message, path=str(self.path))
        aside = self.path / ASIDE_NAME
        if os.path.lexists(aside) and not aside.is_dir():
            message = f"{str(aside)!r} is no directory: nothing was changed; move it away, and start again"
            raise Refused("journal-directory", message, path=str(self.path))
        return sizes

    def read(self, name: str, offset: int, size: int) -> memoryview:
        """`size` bytes of a file from `offset` on, fewer where it ends. Raises `OSError`."""
        descriptor = os.open(self.path / name, os.O_RDONLY)
        try:
            return read_at(descriptor, offset, size)
        finally:
            os.close(descriptor)

    def remove(self, name: str) -> None:
        """Remove a file, durably, if it is there."""
        (self.path / name).unlink(missing_ok=True)
        sync_directory(self.path)

    def sync(self, name: str) -> None:
        """Bring all of a file, and its name, to the platter."""
        descriptor = os.open(self.path / name, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        sync_directory(self.path)

    def set_aside(self, name: str, data: Octets) -> str:
        """Keep bytes that will be cleared, or are damaged, under a name of their own; returns that."""
        kept_as = self._free_aside(name)
        replace_file(self.path / ASIDE_NAME, kept_as, (data,))
        sync_directory(self.path)
        return f"{ASIDE_NAME}/{kept_as}"

    def move_aside(self, name: str) -> None:
        """Keep a file that is damaged under a name of its own, and no more under this one, durably."""
        aside = self.path / ASIDE_NAME
        (self.path / name).rename(aside / self._free_aside(name))
        sync_directory(aside)
        sync_directory(self.path)

    def _free_aside(self, name: str) -> str:
        aside = self.path / ASIDE_NAME
        aside.mkdir(exist_ok=True)
        taken = {path.name for path in aside.iterdir()}
        return next(free for free in _numbered(name) if free not in taken)

    def free_size(self) -> float:
        """Bytes that this process may still use on the directory's disk; not a number where that cannot be known."""
        try:
            disk = os.statvfs(self.path)
        except OSError:
            return math.nan
        return disk.f_bavail * disk.f_frsize

    @property
    def is_restored(self) -> bool:
        """Whether the directory is marked as a restored copy; see `mark_restored`."""
        return (self.path / RESTORED_NAME).exists()

    def mark_restored(self) -> None:
        """Let the next start begin a new term in every stream, durably. Raises `OSError`."""
        replace_file(self.path, RESTORED_NAME, ())

    def forget_restored(self) -> str:
        """Remove that mark, if it is there, durably; why it may be there at the next start all the same, or ""."""
        try:
            if self.is_restored:
                self.remove(RESTORED_NAME)
        except OSError as error:
            return reason_of(error)
        return ""

    def is_in_use(self) -> bool:
        """Whether another process has taken it. If none has, none can until this is closed."""
        return any(map(is_held, self._held))

    def displaced(self) -> str:
        """What was removed or replaced under this process, in words; "" while all is where it was opened."""
        if not _is_at(self.path, self._opened):
            return f"the journal's directory {str(self.path)!r} was removed or replaced"
        lock_file = self.path / LOCK_NAME
        if self._lock is not None and not _is_at(lock_file, self._lock):
            return f"the lock file {str(lock_file)!r} was removed or replaced"
        return ""

    def abandon(self) -> None:
        """Let go of the directory of a node that did not start, and remove it if it is new and holds only our lock."""
        with suppress(OSError):
            if self._is_new and [file.name for file in self.path.iterdir()] == [LOCK_NAME] and not self.displaced():
                (self.path / LOCK_NAME).unlink()
                self.path.rmdir()
        self.close()

    def close(self) -> None:
        """Let go of the directory. Closing again does nothing."""
        while self._held:
            os.close(self._held.pop())


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
    except OSError:
        # Who cannot look knows nothing.
        return True


def _numbered(name: str) -> Iterable[str]:
    yield name
    number = 2
    while True:
        yield f"{name}.{number}"
        number += 1


def holder_of(lock: int) -> int:
    """The process that holds a lock file, as that says itself; 0 where it does not."""
    holder = os.pread(lock, 32, 0).decode("ascii", "replace").strip()
    return int(holder) if holder.isdigit() and len(holder) <= _PROCESS_DIGITS_MAX else 0


def is_held(lock: int, kind: int = fcntl.LOCK_SH) -> bool:
    """Whether a process holds a lock file, or a directory, which is open as descriptor `lock`.

    If none does, none can take it as long as the descriptor is open; with `LOCK_EX` none can look at it either.
    """
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        # Some network file systems lock files, and no directories: then the lock file has to do.
        return False
    return False


def _node_of(path: Path) -> int:
    """The process that holds the lock file of a directory for itself, 0 where none does. Raises `OSError`."""
    lock = os.open(path / LOCK_NAME, os.O_RDONLY | os.O_NONBLOCK)
    try:
        # Who only looks shares the lock, and leaves the name of another process in the file.
        return holder_of(lock) if is_held(lock) else 0
    finally:
        os.close(lock)


def open_directory(path: Path) -> Directory:
    """Take the directory for this process, making it if there is none, and remove what unfinished writes left.

    Others may not list or change one of ours any more. Raises `Refused("journal-locked")`, which names the process that
    has it, as far as it is known; `Refused("journal-directory")` when it cannot be used; and `Unavailable`
    (`disk-full`, `too-many-files`) while there is no room for its lock.
    """
    try:
        is_new = not path.exists()
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        opened = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except (FileExistsError, NotADirectoryError) as error:
        message = (
            f"the journal's directory {str(path)!r} cannot be made, a file is in its place: name another directory"
        )
        raise Refused("journal-directory", message, path=str(path)) from error
    except OSError as error:
        raise unusable(path, error) from error
    try:
        # Before it is locked: who holds it now, and may not, cannot come back.
        access = _restrict(opened)
        return Directory(path, opened, _take(path, opened, access), access, is_new)
    except BaseException:
        os.close(opened)
        raise


def _restrict(opened: int) -> Note | None:
    """Let nobody else list or change a directory of ours, open as descriptor `opened`; what is to be said of that.

    One of another user, or one that users share, such as /tmp or a disk in memory, stays as it is.
    """
    found = os.fstat(opened)
    mode = stat.S_IMODE(found.st_mode)
    is_shared = mode & stat.S_IWOTH and mode & stat.S_ISVTX
    if found.st_uid == os.geteuid() and not is_shared:
        # Where the file system has no such modes, the directory keeps those that it has.
        with suppress(OSError):
            os.fchmod(opened, mode & ~_LISTING)
    mode_now = stat.S_IMODE(os.fstat(opened).st_mode)
    if mode_now & stat.S_IWOTH:
        access = f"all users can write to it (mode {mode_now:04o}): `chown` and `chmod` it, or use a directory in it"
        return Note("warning", "journal-directory-open", {"access": access})
    if mode_now != mode:
        access = f"only its owner can list and change it now: mode {mode_now:04o}, was {mode:04o}"
        return Note("warning", "journal-directory-restricted", {"access": access})
    return None


def _take(path: Path, opened: int, access: Note | None) -> int:
    """Lock a directory that is open as descriptor `opened`, and its lock file; returns the descriptor of that."""
    if is_held(opened, fcntl.LOCK_EX):
        raise _in_use(path, access)
    try:
        lock = open_to_write(path / LOCK_NAME, os.O_RDWR)
    except OSError as error:
        raise unusable(path, error) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise _in_use(path, access) from None
    try:
        has_block = bool(os.fstat(lock).st_size)
        # In this order, for a full disk may have no block to give once the one that is there was let go.
        os.ftruncate(lock, os.pwrite(lock, f"{os.getpid()}\n".encode("ascii"), 0))
        if not has_block:
            # A power failure would take one that was given and never written, and the disk may be full by then.
            os.fsync(lock)
        for unfinished in path.glob(f"*{_TEMPORARY}"):
            if unfinished.is_symlink() or not unfinished.is_dir():
                unfinished.unlink()
    except OSError as error:
        os.close(lock)
        raise unusable(path, error) from error
    return lock


def user_of(path: Path) -> tuple[int, str]:
    """The process that has the directory, and that in words; 0 for one that does not hold the lock file for itself."""
    pid = 0
    with suppress(OSError):
        pid = _node_of(path)
    unnamed = f"a process that its lock file does not name (`fuser -v {path}`, as root, does)"
    return pid, f"process {pid}" if pid else unnamed


def _in_use(path: Path, access: Note | None) -> Refused:
    pid, user = user_of(path)
    cure = "it is this process: close its other node of the directory" if pid == os.getpid() else "stop that process"
    message = f"the journal in {str(path)!r} is in use by {user}: {cure}, or name another directory"
    if access is not None:
        message += f"; {access.fields['access']}"
    return Refused("journal-locked", message, path=str(path), pid=pid)


def unusable(path: Path, error: OSError) -> VeredusError:
    """What is raised where a journal's directory, or what lies in it, cannot be used for this failure."""
    said, code = f"the journal's directory {str(path)!r} cannot be used ({reason_of(error)})", code_of(error)
    match code:
        case "disk-full":
            return Unavailable(code, f"{said}: make room there, and start again", path=str(path))
        case "too-many-files":
            return Unavailable(code, f"{said}: {MORE_FILES}", path=str(path))
        case _:
            return Refused("journal-directory", f"{said}: repair it, or name another directory", path=str(path))


def sync_directory(path: Path) -> None:
    """Make names that were made, changed or removed in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_file(path: Path, name: str, data: Iterable[Octets]) -> None:
    """Give the file `name` in the directory new contents at once: after a crash it has the old ones or the new."""
    temporary = path / (name + _TEMPORARY)
    descriptor = open_to_write(temporary, os.O_WRONLY | os.O_TRUNC)
    try:
        try:
            _write_in_bites(descriptor, data)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        temporary.rename(path / name)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path)


BITE_SIZE = 8 << 20


def _write_in_bites(descriptor: int, data: Iterable[Octets]) -> None:
    """Write buffers one behind the other, with a sync behind each bite but the last: a file system makes the sync of
    one file wait for what was written to others, so a group of the journal would wait for all of it. Raises `OSError`.
    """
    offset, size = 0, 0
    bite: list[Octets] = []
    for buffer in data:
        if size >= BITE_SIZE:
            write_at(descriptor, offset, bite)
            sync_data(descriptor)
            offset, size, bite = offset + size, 0, []
        bite.append(buffer)
        size += len(buffer)
    write_at(descriptor, offset, bite)


_BUFFERS_MAX = 1024
_SMALL_SIZE = 4096


def write_at(descriptor: int, offset: int, buffers: list[Octets]) -> None:
    """Write buffers one behind the other, all of them. Raises `OSError`."""
    size = sum(map(len, buffers))
    if len(buffers) > 16 and size < _SMALL_SIZE * len(buffers):
        buffers = [b"".join(buffers)]
    for start in range(0, len(buffers), _BUFFERS_MAX):
        offset = _write_some(descriptor, offset, buffers[start : start + _BUFFERS_MAX])


def _write_some(descriptor: int, offset: int, buffers: list[Octets]) -> int:
    waiting = [memoryview(buffer) for buffer in buffers if len(buffer)]
    while waiting:
        written = os.pwritev(descriptor, waiting, offset)
        offset += written
        while waiting and written >= len(waiting[0]):
            written -= len(waiting.pop(0))
        if written:
            waiting[0] = waiting[0][written:]
    return offset


def _unfilled(size: int) -> memoryview:
    # A bytearray would be filled with zeros first, while every other thread waits.
    import numpy as np  # a lot to import for a client of topics, which reads little

    return np.empty(size, np.uint8).data


def read_at(descriptor: int, offset: int, size: int) -> memoryview:
    """`size` bytes from `offset` on in memory of their own, fewer where the file ends. Raises `OSError`."""
    view = memoryview(bytearray(size)) if size <= _FILLED_SIZE_MAX else _unfilled(size)
    filled = 0
    while filled < size:
        count = os.preadv(descriptor, [view[filled:]], offset + filled)
        if not count:
            break
        filled += count
    return view[:filled]
