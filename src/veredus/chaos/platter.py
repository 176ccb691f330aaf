"""What of a directory would be there after a power cut: an undo log of every write and name that was not synced.

    write, grow ──► what was there before goes into the log ──► then the write is made
    fsync       ──► the file's entries are struck out
    make, rename, remove ──► done, and logged; what a name stood for is kept by a link ── fsync of the directory ──► out

A kill alone loses nothing: the log outlives the process, and the next one goes on with it. `cut_power` puts back, of
the 512-byte sectors that were not synced, any of the versions that there were, each sector by itself; and of the names
that were made, changed or removed it keeps a prefix, as `veredus.sim.disk` does.

Invariants
    (1) The log knows of a write before the file does: a kill between the two undoes nothing that was synced.
    (2) Log and write are one step for every other thread, so that no sync strikes out what it did not cover.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from threading import Lock
from typing import TypeAlias, TypeVar

import msgspec

SECTOR_SIZE = 512
LOG_SIZE_MAX = 8 << 20
"""Beyond this the log is written anew, without what was struck out."""
T = TypeVar("T")

# Whoever wraps the system's calls wraps them after this: what is done here is no write of the node's.
_open, _close, _write, _pread, _pwrite = os.open, os.close, os.write, os.pread, os.pwrite
_ftruncate, _link, _rename, _unlink = os.ftruncate, os.link, os.rename, os.unlink


class Written(msgspec.Struct, frozen=True, tag=1, array_like=True):
    """Bytes were, or were about to be, written over: what was there, from a sector's beginning, and the file's size."""

    inode: int
    offset: int
    older: bytes
    size: int


class Shrunk(msgspec.Struct, frozen=True, tag=2, array_like=True):
    """A file was cut: its former end, from the new size on."""

    inode: int
    size: int
    tail: bytes


class Made(msgspec.Struct, frozen=True, tag=3, array_like=True):
    """A name came into being, for a new file."""

    name: str
    inode: int


class Renamed(msgspec.Struct, frozen=True, tag=4, array_like=True):
    """A name became another; what that stood for before is kept as `kept`, "" for nothing."""

    former: str
    name: str
    kept: str


class Removed(msgspec.Struct, frozen=True, tag=5, array_like=True):
    """A name went; what it stood for is kept as `kept`."""

    name: str
    kept: str


class Synced(msgspec.Struct, frozen=True, tag=6, array_like=True):
    """All of a file that was logged before entry `place` is on the platter."""

    inode: int
    place: int


class NamesSynced(msgspec.Struct, frozen=True, tag=7, array_like=True):
    """All names in a directory that were logged before entry `place` are on the platter."""

    directory: str
    place: int


Bytes: TypeAlias = Written | Shrunk
Name: TypeAlias = Made | Renamed | Removed
Entry: TypeAlias = Bytes | Name | Synced | NamesSynced


class Platter:
    """Owns the undo log of a directory; `log` lies elsewhere, `kept` in its file system. Threads may share it."""

    def __init__(self, root: Path, log: Path, kept: Path) -> None:
        """Go on with the log that is there, or begin one."""
        self.root = root
        self._log = log
        self._kept = kept
        kept.mkdir(parents=True, exist_ok=True)
        self._lock = Lock()
        self._bytes: dict[int, Bytes] = {}
        self._names: dict[int, Name] = {}
        self._place = 0
        for place, entry in entries_in(log):
            self._take(place, entry)
        self._descriptor, self._size = -1, 0
        self._write_anew()

    def close(self) -> None:
        """Let go of the log's file."""
        _close(self._descriptor)

    @property
    def pending_bytes(self) -> list[Bytes]:
        """What was written and is not on the platter, in order."""
        return list(self._bytes.values())

    @property
    def pending_names(self) -> list[Name]:
        """What was done to names and is not on the platter, in order."""
        return list(self._names.values())

    # ── bytes ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def write(self, descriptor: int, offset: int, size: int, call: Callable[[], T]) -> T:
        """Make a write of `size` bytes with `call`."""
        start = offset // SECTOR_SIZE * SECTOR_SIZE
        end = -(-(offset + size) // SECTOR_SIZE) * SECTOR_SIZE
        with self._lock:
            status = os.fstat(descriptor)
            self._note(Written(status.st_ino, start, _pread(descriptor, end - start, start), status.st_size))
            return call()

    def resize(self, descriptor: int, size: int, call: Callable[[], T]) -> T:
        """Make a file longer or shorter with `call`."""
        with self._lock:
            status = os.fstat(descriptor)
            if size < status.st_size:
                self._note(Shrunk(status.st_ino, size, _pread(descriptor, status.st_size - size, size)))
            elif size > status.st_size:
                self._note(Written(status.st_ino, status.st_size, b"", status.st_size))
            return call()

    def sync(self, descriptor: int, call: Callable[[], T]) -> T:
        """Bring a file, or the names in a directory, to the platter with `call`."""
        with self._lock:
            place = self._place
        answer = call()
        with self._lock:
            self._note(Synced(os.fstat(descriptor).st_ino, place))
        return answer

    def sync_names(self, directory: Path, call: Callable[[], T]) -> T:
        """Bring the names in a directory to the platter with `call`."""
        with self._lock:
            place = self._place
        answer = call()
        with self._lock:
            self._note(NamesSynced(self._named(directory), place))
        return answer

    # ── names ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def make(self, path: Path, call: Callable[[], int]) -> int:
        """Open with `call` a file that may not be there yet."""
        with self._lock:
            is_new = not path.exists()
            descriptor = call()
            if is_new:
                self._note(Made(self._named(path), os.fstat(descriptor).st_ino))
            return descriptor

    def rename(self, former: Path, path: Path, call: Callable[[], T]) -> T:
        """Give a file another name with `call`."""
        with self._lock:
            kept = self._keep(path)
            answer = call()
            self._note(Renamed(self._named(former), self._named(path), kept))
            return answer

    def remove(self, path: Path, call: Callable[[], T]) -> T:
        """Remove a name with `call`."""
        with self._lock:
            kept = self._keep(path)
            answer = call()
            self._note(Removed(self._named(path), kept))
            return answer

    def _named(self, path: Path) -> str:
        return str(path.relative_to(self.root))

    def _keep(self, path: Path) -> str:
        """A link to what the name stands for, so that it can be put back; "" where there is nothing."""
        kept = f"{self._place}-{os.getpid()}"
        try:
            _link(path, self._kept / kept)
        except FileNotFoundError:
            return ""
        return kept

    # ── log ──────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _note(self, entry: Entry) -> None:
        place = self._place + 1
        data = _framed(place, entry)
        _write_all(self._descriptor, data)
        self._size += len(data)
        self._take(place, entry)
        if self._size > LOG_SIZE_MAX:
            self._write_anew()

    def _take(self, place: int, entry: Entry) -> None:
        self._place = place
        match entry:
            case Synced(inode, covered):
                self._strike_out(inode, covered)
            case NamesSynced(directory, covered):
                for at, name in list(self._names.items()):
                    if at <= covered and _directory_of(name) == directory:
                        del self._names[at]
                        if not isinstance(name, Made) and name.kept:
                            _unlink_if_there(self._kept / name.kept)
            case Made(_, inode):
                # The number of a file that is gone for good may be given to another.
                self._strike_out(inode, place)
                self._names[place] = entry
            case Renamed() | Removed():
                self._names[place] = entry
            case _:
                self._bytes[place] = entry

    def _strike_out(self, inode: int, covered: int) -> None:
        for at in [at for at, entry in self._bytes.items() if at <= covered and entry.inode == inode]:
            del self._bytes[at]

    def _write_anew(self) -> None:
        """Write the log without what was struck out."""
        if self._descriptor >= 0:
            _close(self._descriptor)
        anew = self._log.with_suffix(".anew")
        descriptor = _open(anew, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        pending: dict[int, Entry] = {**self._bytes, **self._names}
        data = b"".join(_framed(place, entry) for place, entry in sorted(pending.items()))
        _write_all(descriptor, data)
        _rename(anew, self._log)
        self._descriptor, self._size = descriptor, len(data)


def _framed(place: int, entry: Entry) -> bytes:
    data = msgspec.msgpack.encode((place, entry))
    return len(data).to_bytes(4, "little") + data


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[_write(descriptor, view) :]


def _unlink_if_there(path: Path) -> None:
    try:
        _unlink(path)
    except FileNotFoundError:
        return


def _directory_of(entry: Name) -> str:
    return str(Path(entry.name).parent)


def entries_in(log: Path) -> Iterator[tuple[int, Entry]]:
    """What a log holds, by place; an entry that a kill tore off at its end was not made."""
    data = log.read_bytes() if log.exists() else b""
    decoder = msgspec.msgpack.Decoder(tuple[int, Entry])
    at = 0
    while at + 4 <= len(data):
        size = int.from_bytes(data[at : at + 4], "little")
        if at + 4 + size > len(data):
            return
        yield decoder.decode(data[at + 4 : at + 4 + size])
        at += 4 + size


# ── power cut ────────────────────────────────────────────────────────────────────────────────────────────────────────


class Lost(msgspec.Struct):
    """What a power cut took: sectors that are as they were before, files that are shorter or longer, names undone."""

    sector_count: int = 0
    size_count: int = 0
    name_count: int = 0


def cut_power(root: Path, log: Path, kept: Path, die: Random, survival: float) -> Lost:
    """Put back what was not synced in the directory of a process that is dead; the log is empty then.

    Each sector that was not synced, and each size of a file, survives with the probability `survival`.
    """
    platter = Platter(root, log, kept)
    names = platter.pending_names
    lost = Lost()
    surviving = die.randint(0, len(names)) if die.random() >= survival else len(names)
    for name in reversed(names[surviving:]):
        _undo_name(root, kept, name)
        lost.name_count += 1
    files = {path.stat().st_ino: path for where in (root, kept) for path in where.rglob("*") if path.is_file()}
    bytes_of: dict[int, list[Bytes]] = {}
    for entry in platter.pending_bytes:
        bytes_of.setdefault(entry.inode, []).append(entry)
    for inode, entries in bytes_of.items():
        if inode in files:
            _undo_bytes(files[inode], entries, die, survival, lost)
    platter.close()
    log.unlink()
    for path in kept.iterdir():
        path.unlink()
    return lost


def _undo_name(root: Path, kept: Path, entry: Name) -> None:
    path = root / entry.name
    match entry:
        case Made():
            path.unlink(missing_ok=True)
        case Renamed(former, _, replaced):
            if path.exists() and not (root / former).exists():
                path.rename(root / former)
            if replaced and not path.exists():
                _link(kept / replaced, path)
        case Removed(_, removed):
            if removed and not path.exists():
                _link(kept / removed, path)


def _undo_bytes(path: Path, entries: Sequence[Bytes], die: Random, survival: float, lost: Lost) -> None:
    older: dict[int, list[bytes]] = {}
    for entry in entries:
        if isinstance(entry, Written):
            for at in range(0, len(entry.older), SECTOR_SIZE):
                older.setdefault(entry.offset + at, []).append(entry.older[at : at + SECTOR_SIZE])
    descriptor = _open(path, os.O_RDWR)
    try:
        for offset, versions in sorted(older.items()):
            if die.random() >= survival:
                _pwrite(descriptor, die.choice(versions), offset)
                lost.sector_count += 1
        for entry in reversed(entries):
            if die.random() >= survival:
                lost.size_count += _undo_size(descriptor, entry)
    finally:
        _close(descriptor)


def _undo_size(descriptor: int, entry: Bytes) -> bool:
    size = os.fstat(descriptor).st_size
    if isinstance(entry, Written):
        if entry.size < size:
            _ftruncate(descriptor, entry.size)
            return True
    elif entry.size == size:
        _pwrite(descriptor, entry.tail, entry.size)
        return True
    return False
