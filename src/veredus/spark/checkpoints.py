"""Where a streaming query keeps its checkpoint, in one spelling: equal for one place, different for two.

Spark takes `/ck`, `/ck/`, `file:/ck` and the session's own location under the query's name for the same directory, so
a checkpoint that was deleted must be known by all of them. The same path on two machines is two places.
"""

from __future__ import annotations

import os
import posixpath
import socket
from pathlib import Path
from urllib.parse import urlsplit

_LOCAL = ("", "file")
_SAME_SCHEMES = {"s3": "s3a", "s3n": "s3a", "abfs": "abfss", "wasb": "wasbs"}
_MACHINE_IDS = ("/etc/machine-id", "/var/lib/dbus/machine-id")


def place_of(location: str, session_location: str, query_name: str, default_fs: str, machine: str) -> str:
    """The place of a checkpoint; "" where Spark makes a fresh one at each start, or does not say which.

    `location`: the query's own option; where it is "", Spark takes `query_name` below `session_location`. `default_fs`:
    the file system of paths that name none, "" for the local one. `machine`: whose local files these are.
    """
    if not location:
        if not (session_location and query_name):
            return ""
        location = f"{session_location}/{query_name}"
    scheme, path, authority = _parts(location)
    if not scheme and default_fs:
        scheme, _, authority = _parts(default_fs)
    if scheme in _LOCAL:
        return f"file://{machine}{_plain(os.path.realpath(path))}"
    return f"{_SAME_SCHEMES.get(scheme, scheme)}://{authority}{_plain(path)}"


def this_machine() -> str:
    """What tells this machine from others: its host name, and its id where it has one."""
    for name in _MACHINE_IDS:
        try:
            return f"{socket.gethostname()}/{Path(name).read_text(encoding='ascii').strip()}"
        except (OSError, ValueError):
            continue
    return socket.gethostname()


def _parts(location: str) -> tuple[str, str, str]:
    """Scheme, path and authority; text with a colon and no scheme before it is a path."""
    location = location.strip()
    try:
        split = urlsplit(location)
    except ValueError:
        return "", location, ""
    if not split.scheme:
        return "", location, ""
    path = split.path + ("?" + split.query if split.query else "") + ("#" + split.fragment if split.fragment else "")
    return split.scheme.lower(), path, split.netloc.lower()


def _plain(path: str) -> str:
    """Without doubled, trailing and dotted parts."""
    return posixpath.normpath("/" + path.lstrip("/"))
