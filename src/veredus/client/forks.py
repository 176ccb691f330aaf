"""What a forked child inherits cannot be used there: it is told so, and may connect anew."""

from __future__ import annotations

import os

from .loops import forked
from .pending import connections

_inherited: list[object] = []
_watches: list[bool] = []


def forbid_inherited() -> None:
    """In a child: all that the parent opened fails from now on, and stays untouched: its sockets are the parent's."""
    for connection in list(connections):
        _inherited.append(connection)
        connection.forbid(forked())


def watch_forks() -> None:
    """See that children are told. Once for a process."""
    if not _watches:
        _watches.append(True)
        os.register_at_fork(after_in_child=forbid_inherited)
