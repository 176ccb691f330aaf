"""Between a node's process and its system: calls that touch its directory go by the platter and an allowance of space,
and its wall clock can be stepped.

The real server runs above it unchanged: the calls are wrapped before anything of it is imported. Only files in the
directory are meant; all else goes through untouched.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import msgspec

from .platter import Platter

POLL_S = 0.02
BLOCK_SIZE = 4096
"""What files take and give back of the space there is, at a time."""


class Switches(msgspec.Struct, frozen=True):
    """What a run asks of the layer while the node lives; kept in a file that is replaced as a whole."""

    space: int | None = None
    """Bytes by which the files of the directory may still grow; None for as many as there are."""
    clock_ms: int = 0
    """By how much the wall clock is off."""
    sync_ms: int = 0
    """How long a sync takes beside the time that it takes: what is written meanwhile is not on the platter."""


def write_switches(path: Path, switches: Switches) -> None:
    """Have the layer that reads `path` do this."""
    anew = path.with_suffix(".anew")
    anew.write_bytes(msgspec.json.encode(switches))
    anew.rename(path)


class Layer:
    """Owns the wrapped calls of this process."""

    def __init__(self, root: Path, platter: Platter) -> None:
        """A layer over the files below `root`; nothing is wrapped before `install`."""
        self._root = str(root)
        self._platter = platter
        self._opened: dict[int, Path] = {}
        """The directory's files and directories that are open, by descriptor."""
        self._asked = Switches()
        self._space: int | None = None
        self._real: dict[str, Callable[..., Any]] = {}

    def install(self) -> None:
        """Wrap the calls; to be done before the node's modules take hold of them."""
        wrapped: dict[str, Callable[..., Any]] = {
            "open": self._open,
            "close": self._close,
            "pwrite": self._pwrite,
            "pwritev": self._pwritev,
            "ftruncate": self._ftruncate,
            "posix_fallocate": self._allocate,
            "fsync": lambda descriptor: self._sync("fsync", descriptor),
            "fdatasync": lambda descriptor: self._sync("fdatasync", descriptor),
            "rename": self._rename,
            "unlink": self._unlink,
        }
        self._real = {name: getattr(os, name) for name in wrapped}
        for name, call in wrapped.items():
            setattr(os, name, call)

    def follow(self, path: Path) -> None:
        """Heed the switches in the file `path` from now on, in a thread; end the process when its parent is gone."""
        real_time, real_time_ns = time.time, time.time_ns
        clocks = {
            "time": lambda: real_time() + self._asked.clock_ms / 1_000,
            "time_ns": lambda: real_time_ns() + self._asked.clock_ms * 1_000_000,
        }
        for name, clock in clocks.items():
            setattr(time, name, clock)
        self.heed(path)
        Thread(target=self._follow, args=(path, os.getppid()), daemon=True).start()

    def _follow(self, path: Path, parent: int) -> None:
        while os.getppid() == parent:
            self.heed(path)
            time.sleep(POLL_S)
        os._exit(1)

    def heed(self, path: Path) -> None:
        """Do what the file says now, if there is one."""
        asked = msgspec.json.decode(path.read_bytes(), type=Switches) if path.exists() else Switches()
        if asked.space != self._asked.space:
            self._space = asked.space
        self._asked = asked

    # ── space ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _change_size(self, path: Path, former: int, size: int) -> None:
        """Take what a file needs to be as large as this, or give back. Raises `OSError` as a full disk does."""
        needed = (-(-size // BLOCK_SIZE) - -(-former // BLOCK_SIZE)) * BLOCK_SIZE
        if self._space is None:
            return
        if needed > max(self._space, 0):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        self._space -= needed

    # ── calls ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _path_of(self, path: Any) -> Path | None:
        """Which of the directory's own files this is; None for any other."""
        if isinstance(path, int):
            return None
        text = os.fsdecode(path)
        return Path(text) if text == self._root or text.startswith(self._root + os.sep) else None

    def _open(self, path: Any, flags: int, mode: int = 0o777, **others: Any) -> int:
        real, ours = self._real["open"], self._path_of(path)
        if ours is None:
            return int(real(path, flags, mode, **others))
        if flags & os.O_ACCMODE == os.O_WRONLY:
            # What is written over is read first.
            flags = flags & ~os.O_ACCMODE | os.O_RDWR
        if flags & os.O_CREAT:
            descriptor = self._platter.make(ours, lambda: int(real(path, flags, mode)))
        else:
            descriptor = int(real(path, flags, mode))
        self._opened[descriptor] = ours
        return descriptor

    def _close(self, descriptor: int) -> None:
        self._opened.pop(descriptor, None)
        self._real["close"](descriptor)

    def _pwrite(self, descriptor: int, data: Any, offset: int) -> Any:
        return self._write("pwrite", descriptor, data, len(data), offset)

    def _pwritev(self, descriptor: int, buffers: Any, offset: int) -> Any:
        return self._write("pwritev", descriptor, buffers, sum(map(len, buffers)), offset)

    def _write(self, name: str, descriptor: int, data: Any, size: int, offset: int) -> Any:
        real, ours = self._real[name], self._opened.get(descriptor)
        if ours is None:
            return real(descriptor, data, offset)
        present = os.fstat(descriptor).st_size
        self._change_size(ours, present, max(present, offset + size))
        return self._platter.write(descriptor, offset, size, lambda: real(descriptor, data, offset))

    def _ftruncate(self, descriptor: int, size: int) -> None:
        real, ours = self._real["ftruncate"], self._opened.get(descriptor)
        if ours is None:
            real(descriptor, size)
            return
        self._change_size(ours, os.fstat(descriptor).st_size, size)
        self._platter.resize(descriptor, size, lambda: real(descriptor, size))

    def _allocate(self, descriptor: int, offset: int, size: int) -> None:
        real, ours = self._real["posix_fallocate"], self._opened.get(descriptor)
        present = os.fstat(descriptor).st_size
        if ours is None or offset + size <= present:
            real(descriptor, offset, size)
            return
        self._change_size(ours, present, offset + size)
        self._platter.resize(descriptor, offset + size, lambda: real(descriptor, offset, size))

    def _sync(self, name: str, descriptor: int) -> None:
        real, ours = self._real[name], self._opened.get(descriptor)
        if ours is None:
            real(descriptor)
            return
        time.sleep(self._asked.sync_ms / 1_000)
        if ours.is_dir():
            self._platter.sync_names(ours, lambda: real(descriptor))
        else:
            self._platter.sync(descriptor, lambda: real(descriptor))

    def _rename(self, former: Any, path: Any, **others: Any) -> None:
        real, ours = self._real["rename"], self._path_of(path)
        if ours is None:
            real(former, path, **others)
        else:
            self._platter.rename(Path(os.fsdecode(former)), ours, lambda: real(former, path))

    def _unlink(self, path: Any, **others: Any) -> None:
        real, ours = self._real["unlink"], self._path_of(path)
        if ours is None:
            real(path, **others)
            return
        size = ours.stat().st_size if ours.exists() else 0
        self._platter.remove(ours, lambda: real(path))
        self._change_size(ours, size, 0)
