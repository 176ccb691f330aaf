"""How a command that asks a node of this machine to read its settings again learns what became of it.

    command                                node
    notes the time ── SIGHUP ─────────────► notes the time, reads the settings, takes them up or refuses them
    reads ◄──────── DIRECTORY/reloaded ──── writes the outcome, with the time at which it began to read

An outcome whose reading began after the signal was sent has seen what the caller had written before: only such a one is
the answer. Both times are of the machine's monotonic clock.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from veredus.kernel.errors import Refused, Unavailable

from .directory import replace_file
from .early_reloads import was_reload_asked
from .regular_files import FILE_SIZE_MAX, read_regular
from .stopping import hear

OUTCOME_NAME = "reloaded"
WAIT_S = 10.0
"""How long a command waits for the outcome; a node reads its settings within milliseconds."""
_LOOK_S = 0.02
_PAUSE_SHARE = 10
"""So many times as long as a reading took, the next one waits."""
_PAUSE_MAX_S = 1.0


class Reloads:
    """Has the settings read again for all who asked meanwhile at once, and leaves the loop its time in between."""

    def __init__(self, loop: asyncio.AbstractEventLoop, reload: Callable[[], None]) -> None:
        """`reload` reads them, on the loop, which it holds."""
        self._loop = loop
        self._reload = reload
        self._is_asked = False
        self._next_s = 0.0

    def begin(self) -> None:
        """Ask at each SIGHUP from now on, and now if one has come before."""
        hear(self._loop, signal.SIGHUP, self.ask)
        if was_reload_asked():
            self.ask()

    def ask(self) -> None:
        """Somebody wants them to be read: that begins after this, soon, and once however often it is asked for."""
        if not self._is_asked:
            self._is_asked = True
            self._loop.call_at(max(self._loop.time(), self._next_s), self._read)

    def _read(self) -> None:
        self._is_asked = False
        began_s = self._loop.time()
        try:
            self._reload()
        finally:
            ended_s = self._loop.time()
            self._next_s = ended_s + min(_PAUSE_MAX_S, _PAUSE_SHARE * (ended_s - began_s))


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one reading of the settings, which began at `began_ns` of the machine's monotonic clock."""

    began_ns: int
    code: str = ""
    """The code of the fault for which nothing was changed; "" where the settings were taken up."""
    message: str = ""
    applied: tuple[str, ...] = ()
    """The changed settings that hold from now on."""
    waiting: tuple[str, ...] = ()
    """The changed settings that hold from the next start on."""


def write_outcome(directory: Path, outcome: Outcome) -> None:
    """Leave the outcome where the command looks for it. Raises `OSError`."""
    replace_file(directory, OUTCOME_NAME, (msgspec.json.encode(outcome),))


def wait_outcome(directory: Path, process: int, asked_ns: int) -> Outcome:
    """The outcome of a reading that began at or after `asked_ns`.

    Raises `Refused` with the fault for which the node changed nothing, and `Unavailable("in-doubt")` where the node
    ended, or said nothing for `WAIT_S`.
    """
    until_s = time.monotonic() + WAIT_S
    while True:
        is_late, is_gone = time.monotonic() >= until_s, not _is_there(process)
        outcome = _read_outcome(directory)
        if outcome is not None and outcome.began_ns >= asked_ns:
            break
        if is_gone:
            raise Unavailable("in-doubt", f"process {process} ended before it read the settings: see its log")
        if is_late:
            message = (
                f"process {process} has not read the settings in {WAIT_S:g} s: it may still be starting, and reads them"
                " as soon as it serves; its log says what became of them"
            )
            raise Unavailable("in-doubt", message)
        time.sleep(_LOOK_S)
    if outcome.code:
        raise Refused(outcome.code, f"nothing was changed: {outcome.message}")
    return outcome


def _read_outcome(directory: Path) -> Outcome | None:
    try:
        return msgspec.json.decode(read_regular(directory / OUTCOME_NAME, FILE_SIZE_MAX), type=Outcome)
    except (OSError, msgspec.DecodeError):
        # The node puts its outcome in the place of whatever is there.
        return None


def _is_there(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True
