"""The machine that figures were measured on, described so that a reader can weigh them."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Final

LIBRARIES: Final = ("numpy", "pyarrow", "msgspec", "google-crc32c", "uvloop")
_MEMORY_FILESYSTEMS: Final = frozenset({"tmpfs", "ramfs"})


def describe(workdir: Path) -> dict[str, str]:
    """What to know of this machine, and of the filesystem under `workdir`, in the order of a table."""
    filesystem, device = filesystem_of(workdir)
    return {
        "CPU": _first_line("/proc/cpuinfo", "model name"),
        "Cores": str(cores_count()),
        "Memory": f"{int(_first_line('/proc/meminfo', 'MemTotal').split()[0]) / (1 << 20):.0f} GiB",
        "Kernel": platform.release(),
        "Filesystem": f"{filesystem} on {device}",
        "Python": f"{platform.python_implementation()} {platform.python_version()}",
        "Libraries": ", ".join(_library_versions(LIBRARIES)),
    }


def cores_count() -> int:
    """The cores that this process may run on."""
    return len(os.sched_getaffinity(0))


def cpu_s() -> float:
    """CPU seconds that all cores have worked, or were taken by the hypervisor, since the machine started."""
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, Path("/proc/stat").read_text().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def filesystem_of(path: Path) -> tuple[str, str]:
    """The type and the device name of the filesystem that holds `path`."""
    resolved = path.resolve()
    best = ("unknown", "unknown")
    best_length = -1
    for line in Path("/proc/self/mounts").read_text().splitlines():
        device, mount, kind = line.split()[:3]
        # A later mount on the same place hides the earlier one.
        if resolved.is_relative_to(mount) and len(mount) >= best_length:
            best, best_length = (kind, device), len(mount)
    return best


def disk_directory(candidates: Sequence[Path]) -> Path:
    """The first writable candidate that is on a disk.

    Raises FileNotFoundError, naming the candidates, when there is none: a sync in memory costs nothing, and figures
    from there would be false.
    """
    for candidate in candidates:
        is_usable = candidate.is_dir() and os.access(candidate, os.W_OK)
        if is_usable and filesystem_of(candidate)[0] not in _MEMORY_FILESYSTEMS:
            return candidate
    names = ", ".join(str(candidate) for candidate in candidates)
    raise FileNotFoundError(f"no directory on a disk among {names}; give one with --workdir")


def _first_line(file: str, field: str) -> str:
    for line in Path(file).read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == field:
            return value.strip()
    return "unknown"


def _library_versions(names: Sequence[str]) -> list[str]:
    versions = []
    for name in names:
        try:
            versions.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            versions.append(f"{name} absent")
    return versions
