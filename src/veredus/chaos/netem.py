"""Namespaces of the run's own, and in them the kernel's own bad network, `tc netem`; the host's are not touched.

Source: tc-netem(8), mount_namespaces(7).
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from typing import NoReturn

_INSIDE = "VEREDUS_CHAOS_NAMESPACE"
_TRIAL = "ip link set lo up && tc qdisc add dev lo root netem delay 1ms"
_RULES = {
    "delay": "delay {amount}ms {amount}ms",
    "loss": "loss {amount}%",
    "duplicate": "duplicate {amount}%",
    "reorder": "delay 5ms reorder {amount}% 50%",
}


def why_not() -> str:
    """Why the kernel's bad network cannot be had here; "" where it can."""
    if not sys.platform.startswith("linux"):
        return "it takes Linux"
    missing = [name for name in ("unshare", "ip", "tc") if shutil.which(name) is None]
    if missing:
        return f"{missing[0]} is not installed"
    tried = subprocess.run(
        ["unshare", "--net", "sh", "-c", _TRIAL], stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    said = tried.stderr.decode(errors="replace").strip().splitlines()
    return "" if tried.returncode == 0 else (said[0] if said else "unshare failed")


def may_mount() -> bool:
    """Whether a run may have mounts of its own, which end with its last process, whatever ends that."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0 or shutil.which("unshare") is None:
        return False
    tried = subprocess.run(["unshare", "--mount", "true"], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    return tried.returncode == 0


def has_entered() -> bool:
    """Whether this process has gone on in namespaces of the run's own."""
    return _INSIDE in os.environ


def is_inside() -> bool:
    """Whether this process lives in a namespace that was made for a run, where nothing is but loopback."""
    return _INSIDE in os.environ and [name for _, name in socket.if_nameindex()] == ["lo"]


def enter(arguments: list[str], kinds: list[str]) -> NoReturn:
    """Become `python arguments...` in new namespaces: `kinds` out of net, mount."""
    command = 'ip link set lo up && exec "$@"' if "net" in kinds else 'exec "$@"'
    os.environ[_INSIDE] = "1"
    flags = [f"--{kind}" for kind in kinds]
    os.execvp("unshare", ["unshare", *flags, "sh", "-c", command, "sh", sys.executable, *arguments])


def begin(kind: str, amount: int) -> None:
    """Spoil loopback in our own namespace: `kind` out of delay (ms), loss, duplicate, reorder (%)."""
    _tc("replace", *f"netem {_RULES[kind].format(amount=amount)}".split())


def end() -> None:
    """Fair weather again."""
    _tc("del")


def _tc(verb: str, *rule: str) -> None:
    if not is_inside():
        raise RuntimeError("packets are only spoiled in a namespace of the run's own")
    subprocess.run(["tc", "qdisc", verb, "dev", "lo", "root", *rule], check=True, capture_output=True)
