"""How a command ends: one exit code for each kind of end, and one sentence on standard error."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
import time
from contextlib import suppress
from enum import IntEnum
from typing import TYPE_CHECKING, NoReturn

import click

from veredus.kernel.errors import Fenced, Misuse, Refused, Unavailable, VeredusError, ending_of

if TYPE_CHECKING:
    from typing_extensions import Buffer

COMPLETION_VARIABLE = "_VEREDUS_COMPLETE"
"""With this variable, `veredus` answers a shell that completes a command, and runs none."""

SAME_S = 0.5
"""Some senders signal a process and its group: what comes so soon behind the first signal is the same one."""


class Exit(IntEnum):
    """Exit codes; docs/reference/cli.md lists them."""

    OK = 0
    ERROR = 1
    """Something failed that has no code of its own."""
    USAGE = 2
    """The command line or the settings are not valid."""
    REFUSED = 3
    """The node refused the request."""
    FENCED = 4
    """Another process has taken over this source or subscription."""
    UNAVAILABLE = 5
    """No node could be reached, or a node or proxy could not start or go on."""
    DAMAGED = 6
    """The journal is damaged; the output names the places."""
    GAP = 7
    """Some of the requested publications are gone; the rest was delivered."""
    IN_DOUBT = 8
    """A publication was not acknowledged: it may have arrived, or not."""
    VIOLATED = 9
    """A guarantee was violated: there is loss, a duplicate or reordering."""
    INTERRUPTED = 130
    """Ctrl-C, after the work in progress was finished."""


class Ended(Exception):
    """Ends the command with this exit code; all messages were written before."""

    def __init__(self, code: Exit) -> None:
        super().__init__(code.name)
        self.code = code


def exit_of(error: VeredusError) -> Exit:
    """The exit code that an error of the library leads to."""
    match error:
        case Refused(code="bad-settings") | Misuse():
            return Exit.USAGE
        case Refused():
            return Exit.REFUSED
        case Fenced():
            return Exit.FENCED
        case Unavailable(code="messages-gone"):
            return Exit.GAP
        case Unavailable(code="in-doubt"):
            return Exit.IN_DOUBT
        case Unavailable():
            return Exit.UNAVAILABLE
        case _:
            return Exit.ERROR


def run(command: click.Command, arguments: list[str] | None = None) -> int:
    """Run `command`; its exit code. Errors become a sentence on standard error, never a traceback.

    `click.Command.main` would end the process by itself when the pipe behind us is closed: it serves completion alone.
    """
    try:
        if COMPLETION_VARIABLE in os.environ:
            command.main(arguments, prog_name="veredus")
        given = sys.argv[1:] if arguments is None else list(arguments)
        with command.make_context("veredus", given) as context:
            command.invoke(context)
        return Exit.OK
    except Ended as ended:
        return ended.code
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else Exit.ERROR
    except click.exceptions.Exit as exit_:
        return exit_.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except Hurried:
        _say("interrupted")
        _write_what_fits()
        _drop_output()
        return Exit.INTERRUPTED
    except (click.Abort, KeyboardInterrupt):
        _say("interrupted")
        _finish_output()
        return Exit.INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has had enough. Nothing may be flushed to the pipe at the interpreter's end.
        _drop_output()
        return Exit.OK
    except VeredusError as error:
        _say(f"{error.message} [{error.code}]")
        return exit_of(error)
    except MemoryError as error:
        _say(str(ending_of(error)))
        return Exit.UNAVAILABLE
    except OSError as error:
        # Standard output has its name, and nothing else is a descriptor that was closed before we began.
        file = error.filename or ("standard input" if error.errno == errno.EBADF else "")
        _say(f"{file}: {error.strerror}" if file else error.strerror or str(error))
        try:
            sys.stdout.flush()
        except OSError:
            # The interpreter would try again at its end, and end with a code of its own.
            _drop_output()
        return Exit.ERROR


def leave_at_once(code: Exit) -> NoReturn:
    """Leave the process: nothing that it opened is closed, and nothing is waited for."""
    _write_what_fits()
    os._exit(code)


def _finish_output() -> None:
    """Write what an interrupted command has left to write; a reader that takes none of it is waited for until a signal
    comes, other than those that belong to the first.
    """
    began_s = time.monotonic()

    def give_up(_number: int, _frame: object) -> None:
        if time.monotonic() - began_s >= SAME_S:
            os._exit(Exit.INTERRUPTED)

    before = {number: signal.signal(number, give_up) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        # The interpreter would try again at its end, and end with a code of its own.
        _drop_output()
    for number, handler in before.items():
        signal.signal(number, handler)


def _write_what_fits() -> None:
    # A signal's handler may have cut short what writes now.
    with suppress(OSError, ValueError, RuntimeError):
        output = sys.stdout.fileno()
        is_blocking = os.get_blocking(output)
        os.set_blocking(output, False)
        try:
            sys.stdout.flush()
        finally:
            os.set_blocking(output, is_blocking)


class Hurried(KeyboardInterrupt):
    """The second signal came: what waits to be written is waited for no more."""


class _StandardOutput(io.FileIO):
    """Standard output, whose errors say that it is what could not be written to."""

    def write(self, data: Buffer, /) -> int | None:  # type: ignore[override]
        try:
            return super().write(data)
        except OSError as error:
            raise OSError(error.errno, error.strerror, "standard output") from None


def hold_standard_streams() -> None:
    """Where a standard stream is closed, let every use of it fail, so that no file or socket gets its number.

    What cannot be written to standard output is said to be that.
    """
    for number, mode in ((0, os.O_WRONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, mode)
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115
    given = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115
    named = io.BufferedWriter(_StandardOutput(1, "w", closefd=False))
    sys.stdout = io.TextIOWrapper(named, given.encoding, given.errors, line_buffering=bool(given.line_buffering))
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115


def _drop_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _say(text: str) -> None:
    from veredus.runtime.lines import say_last

    say_last(f"veredus: {text}")
