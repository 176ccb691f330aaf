"""SIGHUP before a process serves: it would end it, and what asks for a reload does not know how far the start has come.

It is remembered, and the settings are read once more as soon as the process serves.
"""

from __future__ import annotations

import signal

_asked: list[int] = []


def remember_reloads() -> None:
    """Let SIGHUP end nothing from now on. `veredus.__main__` does so, before all that takes long."""
    signal.signal(signal.SIGHUP, lambda number, _: _asked.append(number))


def was_reload_asked() -> bool:
    """Whether one was asked for since then, and was not told by this yet."""
    is_asked = bool(_asked)
    _asked.clear()
    return is_asked
