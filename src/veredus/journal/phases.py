"""What a log can do at the moment, and what it wakes up for; `appending.py` draws how one phase follows another."""

from __future__ import annotations

from veredus.kernel.symbol import Symbol


class Phase(Symbol):
    """What the log can do; see `appending.py`."""

    RUNNING = "running"
    FULL = "full"
    FAILED = "failed"


class Timer(Symbol):
    """What the log wakes up for."""

    SUBMIT = "submit"
    ANSWER = "answer"
    SYNC = "sync"
    SPACE = "space"
    HOLD = "hold"
    INDEX = "index"
    READ = "read"
    CHECKPOINT = "checkpoint"
    START = "start"
