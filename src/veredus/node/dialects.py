"""What every dialect brings to a link of the node."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import ClassVar, Protocol, TypeGuard

from veredus.kernel.engine import Now
from veredus.protocols.links import SESSION_BITS, Unfinished


class LinkEngine(Protocol):
    """What speaks a dialect on a link: it is told facts of the link, and what the floor says to its sessions."""

    is_timed_by_answers: ClassVar[bool]
    """Whether what the floor says may bring its deadline forward."""

    def handle(self, event: object, now: Now) -> Sequence[object]:
        """Take one fact; the orders that follow from it."""
        ...

    def deadline(self) -> int | None:
        """When it is to be told of the clock, if nothing happens before."""
        ...

    @property
    def unread_size(self) -> int:
        """Bytes of whole frames that wait here for a turn."""
        ...

    @property
    def unfinished(self) -> Unfinished:
        """What it holds of a frame that is not whole."""
        ...


def asker_of(session: int, engine: object) -> int:
    """The link that a note of a session is about: its own, or where that carries the questions of many, the asker's."""
    return (engine.asker_of(session) if carries_many(engine) else 0) or session >> SESSION_BITS


def carries_many(engine: object) -> TypeGuard[_ForMany]:
    """Whether a link carries the questions of many, each with a principal of its own."""
    return hasattr(engine, "asker_of")


class _ForMany(Protocol):
    askers: Collection[str]
    """The principals for whom something was asked."""

    def asker_of(self, session: int) -> int:
        """The link of who asked, 0 where nobody did."""
        ...
