"""Whose fault it is: the four kinds of fault, and the errors that callers see.

The peer broke the protocol     `PeerFault`, caught once by the engine that reads the peer's bytes; it becomes the
                                protocol's own error frame, a close and a note, and never escapes an engine.
The caller broke the contract   `Misuse`, raised before any state changes.
The world failed                an event, not an exception (`GroupFailed`, `LinkClosed`, ...).
We are wrong                    `InvariantBroken`, never caught: the node dies and recovers.

What callers of the library see is a `VeredusError` with a stable code and a sentence that says what to do.
Source: docs/internals/DESIGN.md, "Faults".
"""

from __future__ import annotations

import errno
from typing import Final, Self

UNSTORED: Final = frozenset(("disk-full", "too-many-files", "io-error", "journal-failed", "journal-closed"))
"""Codes that say that a node could not store something: nothing has changed, and later it may."""


class VeredusError(Exception):
    """An error with a stable `code`, a sentence that says what to do, and named details.

    `code` is part of the public contract (docs/reference/errors.md); the sentence is not.
    """

    def __init__(self, code: str, message: str, **details: object) -> None:
        """`code`: lower case, dash-separated. `details`: what a program would want to read, by name."""
        super().__init__(message)
        self.code = code
        self.message = message
        self.details = details

    def __str__(self) -> str:
        return f"{self.message} [{self.code}]"

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.code, self.message, self.details))

    def again(self, more: str = "", **details: object) -> Self:
        """Another one like it, to be raised: one that is raised twice tells of both calls, and keeps what they held.

        It says what is `more`, behind the same sentence, and has more `details`.
        """
        message = f"{self.message}; {more}" if more else self.message
        return type(self)(self.code, message, **{**details, **self.details})

    def bare(self) -> Self:
        """Itself, without the calls that it came through: these hold what was read, and whoever keeps the error."""
        self.__context__ = self.__cause__ = None
        return self.with_traceback(None)


def _rebuild(kind: type[VeredusError], code: str, message: str, details: dict[str, object]) -> VeredusError:
    return kind(code, message, **details)


class Misuse(VeredusError):
    """The caller broke the contract; nothing has changed."""


class Refused(VeredusError):
    """The other side understood and will not: the code says why, the details what would be accepted."""


class Fenced(VeredusError):
    """Another publisher, subscriber or run has taken over; this one must stop."""


class Unavailable(VeredusError):
    """Nobody who could answer was reached, or the answer did not come in time; what was asked may be in doubt."""


class PeerFault(VeredusError):
    """The peer broke the protocol. Raised by decoders, caught by the engine that owns the link."""


class InvariantBroken(Exception):
    """We are wrong. Never caught: the process dies and recovers from its journal."""


def words_of(error: BaseException) -> str:
    """What has happened, as the error says it; the kind of error where it has no words, such as one of asyncio's."""
    return str(error) or type(error).__name__


def ending_of(error: BaseException) -> BaseException:
    """What a process tells that `error` ends: itself, but for a lack of memory, which has a code and a cure."""
    if not isinstance(error, MemoryError) and getattr(error, "errno", 0) != errno.ENOMEM:
        return error
    said = f"this process has no memory left ({words_of(error)}): give it more, or let it hold less, and start it again"
    return Unavailable("out-of-memory", f"{said}; what was acknowledged is kept")


def field_fault(error: Exception) -> str:
    """What a decoder has found wrong, behind the field's name: "key: Expected `str`, got `int`"."""
    fault, _, path = str(error).partition(" - at ")
    field = path.strip("`").lstrip("$.")
    return f"{field}: {fault}" if field else fault
