"""The answers that a version 1 client is owed, in the order of its commands.

    PUBLISH 7   PING         SUBSCRIBE        DETACH
                 └ after 7    └ once granted   └ after 7, and ends the attachment

An answer is said when everything before it is done: so PING-OK and DETACH-OK confirm each PUBLISH in front of them.

Invariants
    (1) Answers are said in the order of their commands.
    (2) No answer is said before every publication in front of it is taken, as durably as the stream promises.
    (3) Behind an answer that ends the attachment none is owed.
Source: seed 004, "Protocol Specification".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from . import frames


class Answer(NamedTuple):
    """A command that is said so many times, once the publication `number` is taken."""

    command: bytes
    number: int
    times: int = 1
    is_granted: bool = True
    """False for a SUBSCRIBE-OK while the streams floor has not granted the subscription."""
    ends: str = ""
    """Why the attachment is over when it has been said; "" when it goes on."""


class Answers:
    """Owns the answers that wait; see the module for the picture."""

    __slots__ = ("_number_offered", "_number_taken", "_subscription_count", "_waiting")

    def __init__(self) -> None:
        self._waiting: deque[Answer] = deque()
        self._number_offered = 0
        self._number_taken = 0
        self._subscription_count = 0

    @property
    def number_offered(self) -> int:
        """The number of the last publication that was offered to the stream."""
        return self._number_offered

    @property
    def number_taken(self) -> int:
        """The number of the last publication that is in the stream."""
        return self._number_taken

    @property
    def withholds_deliveries(self) -> bool:
        """Whether a SUBSCRIBE-OK is still to be said: no DELIVER overtakes it."""
        return self._subscription_count > 0

    def offer(self, last_number: int) -> None:
        """Publications up to `last_number` are on their way into the stream."""
        self._number_offered = last_number

    def take(self, last_number: int) -> None:
        """Publications up to `last_number` are in the stream."""
        self._number_taken = last_number

    def owe(self, command: bytes, ends: str = "") -> None:
        """Say `command` after everything so far; the attachment is over then if `ends` says why."""
        last = self._waiting[-1] if self._waiting else None
        if last is not None and last.command == command and last.number == self._number_offered and not ends:
            self._waiting[-1] = last._replace(times=last.times + 1)
        else:
            self._waiting.append(Answer(command, self._number_offered, ends=ends))

    def end(self, why: str) -> None:
        """After everything so far the attachment is over, and nothing is said of that."""
        self._waiting.append(Answer(b"", self._number_offered, times=0, ends=why))

    def owe_subscription(self) -> None:
        """Say SUBSCRIBE-OK after everything so far, once it is granted."""
        self._subscription_count += 1
        self._waiting.append(Answer(frames.SUBSCRIBE_OK, self._number_offered, is_granted=False))

    def grant_subscription(self) -> None:
        """The first of the subscriptions that wait to be granted is."""
        place = self._first_asked()
        self._waiting[place] = self._waiting[place]._replace(is_granted=True)

    def refuse_subscription(self, command: bytes, ends: str) -> None:
        """The first of the subscriptions that wait is refused: what was owed for it and behind it is `command`."""
        place = self._first_asked()
        number = self._waiting[place].number
        while len(self._waiting) > place:
            self._subscription_count -= self._waiting.pop().command == frames.SUBSCRIBE_OK
        self._waiting.append(Answer(command, number, ends=ends))

    def due(self) -> Iterator[Answer]:
        """Take out what may be said now, in order."""
        while self._waiting and self._waiting[0].is_granted and self._waiting[0].number <= self._number_taken:
            answer = self._waiting.popleft()
            self._subscription_count -= answer.command == frames.SUBSCRIBE_OK
            yield answer

    def _first_asked(self) -> int:
        return next(place for place, answer in enumerate(self._waiting) if not answer.is_granted)

    def check(self) -> None:
        """Repeat the invariants."""
        numbers = [answer.number for answer in self._waiting]
        assert numbers == sorted(numbers)
        assert not any(answer.ends for answer in list(self._waiting)[:-1])
        assert self._subscription_count == sum(answer.command == frames.SUBSCRIBE_OK for answer in self._waiting)
