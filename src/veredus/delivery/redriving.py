"""Which dead letters still have to go back to a stream that they came from, and under which name they go.

A source takes them there, in their order. Its resume token says which letter was the last; behind that it may have
taken more, which are in doubt. Whoever begins again moves the letters behind the token again, under the same numbers:
the stream knows those that it has. So none of the letters in doubt may be missing by then, or others would get their
numbers, and be taken for them. Letters of a stream that was made anew are others, and go by another source.
"""

from __future__ import annotations

from veredus.kernel.errors import Refused
from veredus.kernel.words import are, spanned

PREFIX = "veredus."
"""What attributes begin with that only a dead letter has."""
_SHOWN_SIZE = 8
_TOKEN_SIZE = 8


def source_of(letters: str, incarnation: bytes) -> str:
    """The source that moves the letters of this incarnation of their stream."""
    return f"redrive/{letters}/{incarnation[:_SHOWN_SIZE].hex()}"


class Return:
    """Owns the place of one run in the letters of one stream, on their way to one other stream."""

    __slots__ = ("_doubt_count", "_letters", "_stream", "count", "last", "moved_to")

    def __init__(self, letters: str, stream: str, token: bytes, resume_number: int, last_number: int) -> None:
        """As the source was attached: its resume token, the number that it closes, and the last number."""
        self._letters = letters
        self._stream = stream
        self.moved_to = int.from_bytes(token, "big")
        """Every letter up to here was moved, when this run began."""
        self._doubt_count = last_number - resume_number
        self.count = 0
        """How many letters are moved in this run."""
        self.last = self.moved_to
        """The last one of them."""

    def is_due(self, sequence: int) -> bool:
        """Whether this letter, the next one, has to be moved; then it is."""
        if sequence <= self.moved_to:
            return False
        self.count += 1
        self.last = sequence
        return True

    def miss(self, first: int, last: int) -> None:
        """Letters were trimmed. Raises `Refused("letters-lost")` where one of them may be in doubt."""
        if self.count < self._doubt_count and last > self.moved_to:
            message = (
                f"{spanned('dead letter', first, last)} of {self._letters!r} {are(last - first + 1)} no longer"
                f" available (trimmed), and up to"
                f" {self._doubt_count} of those above {self.moved_to} were moved to {self._stream!r} by a run that was"
                " interrupted: which ones cannot be known, so no run moves letters there any more. Compare the two"
                f" streams, publish what is missing, then delete {self._letters!r} and create it again"
            )
            raise Refused("letters-lost", message, moved_to=self.moved_to, first=first, last=last)

    @property
    def token(self) -> bytes:
        """The resume token that goes with the last one."""
        return self.last.to_bytes(_TOKEN_SIZE, "big")
