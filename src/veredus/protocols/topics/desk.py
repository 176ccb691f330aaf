"""What a server lends to the parts that move a topic: its sessions, its questions to others, and the topic itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

from veredus.kernel.engine import Now
from veredus.streams import exchange as x

from .messages import StatusWord
from .questions import Then

AdminThen: TypeAlias = Callable[[x.AnswerAdmin | x.Refuse, Now], None]
Part: TypeAlias = Callable[[object, Now], None]
"""Whoever is told what the streams floor says to a session."""


class Desk(Protocol):
    """A server, as the parts see it that give topics away and take them over."""

    server_id: str
    principal: str
    """As whom the server moves topics."""
    part_count_max: int
    """So many rows of a topic that is given away are in one TRANSFER."""

    def order(self, effect: object) -> None:
        """Give an order to the streams floor."""
        ...

    def open(self, part: Part) -> int:
        """A session of the streams floor that nobody has; `part` is told what comes to it."""
        ...

    def close(self, session: int) -> None:
        """The session is over."""
        ...

    def administer(self, verb: str, arguments: dict[str, object], then: AdminThen) -> None:
        """Ask the streams floor; `then` hears what it says."""
        ...

    def ask(self, address: str, data: bytes, then: Then, now: Now) -> None:
        """Ask another server; `then` hears what it says."""
        ...

    def answer(self, peer: int, word: StatusWord, body: bytes = b"") -> None:
        """Answer whoever asked."""
        ...

    def learn(self, topic: str, client: str, counter: int, digest: bytes) -> None:
        """A client has put up to this counter, elsewhere."""
        ...

    def hold(self, topic: str, why: str, then: Callable[[Now], None], now: Now) -> None:
        """Let what is asked of a topic wait; `then` is called when nothing of it is in hand or open any more."""
        ...

    def release(self, topic: str, now: Now) -> None:
        """Take what is asked of the topic again, first what has waited."""
        ...

    def pass_on(self, topic: str, address: str, now: Now) -> None:
        """The topic went to the server at `address`."""
        ...

    def announce(self) -> None:
        """Tell each proxy which topics are there."""
        ...

    def note(self, level: str, event: str, **fields: object) -> None:
        """Write a line to the log."""
        ...

    def new_incarnation(self) -> bytes:
        """16 random bytes."""
        ...
