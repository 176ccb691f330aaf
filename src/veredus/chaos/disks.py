"""A disk that is small enough to be filled: a tmpfs mounted in the run's directory, where one may be mounted."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

SIZE = 192 << 20
_TRIES_MAX = 5


class MountedDisk:
    """Owns a mount on `path`, and a file that fills it."""

    def __init__(self, path: Path, filler: Path) -> None:
        """Mounted by `mounted`."""
        self._path = path
        self._filler = filler

    def fill(self) -> None:
        """Leave hardly any space."""
        descriptor = os.open(self._filler, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            # The node takes and gives back some of it meanwhile.
            for _ in range(_TRIES_MAX):
                status = os.statvfs(self._path)
                size = os.fstat(descriptor).st_size + status.f_bavail * status.f_frsize
                with contextlib.suppress(OSError):
                    os.posix_fallocate(descriptor, 0, max(1, size))
                    return
        finally:
            os.close(descriptor)

    def free(self) -> None:
        """Give the space back."""
        self._filler.unlink(missing_ok=True)

    def end(self, keep_in: Path | None) -> None:
        """Unmount it; what was on it is copied to `keep_in` first, where that is wanted."""
        self.free()
        if keep_in is not None:
            shutil.copytree(self._path, keep_in, dirs_exist_ok=True)
        subprocess.run(["umount", str(self._path)], check=True, capture_output=True)


def mounted(path: Path, filler: Path) -> MountedDisk | None:
    """A small disk on `path`, or None where this user, or this system, may mount none."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        return None
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE},mode=0700", "veredus-chaos", str(path)]
    done = subprocess.run(command, capture_output=True, check=False)
    return MountedDisk(path, filler) if done.returncode == 0 else None
