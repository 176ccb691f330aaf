"""What peers of a world may do: all, but for trespassers, and what is said to these; `owners` has who owns what.

A trespasser may publish by all sinks but the first to all streams but the first, and describe. `Trespasses` stands at
the streams floor and hears what it asks for beyond that: an answer that is anything but `forbidden` breaks the rules,
or but `unknown-run` where it commits for a sink of which it has opened no run. A ward may do all, but now and then
nothing: `Wards` hears whether the node keeps to that.
"""

from __future__ import annotations

from typing import Any

from veredus.kernel.effects import Note
from veredus.node.rules import Access, Rule
from veredus.streams import exchange as x
from veredus.streams.rights import LOCAL

from .owners import RULES
from .world import Violation, World

TRESPASSER = "trespasser"
SHUT = "stream-1"
"""Where it may not publish."""
SHUT_SINK, OPEN_SINK = "sink-1", "sink-2"
"""By which it may not, and by which it might open a run, and does not."""
OWN_SINK = f"{TRESPASSER}/own"
WARD = "ward"
"""Whose rights come and go, in some worlds; see `wards`."""
_OTHERS = ("source-*", "subscriber-*", "laggard", "forger-*")
ACCESS = Access(
    (
        Rule(principal=LOCAL, may=("*",)),
        Rule(principal=WARD, may=("*",)),
        Rule(principal=TRESPASSER, deny=("publish",), streams=(SHUT,)),
        Rule(principal=TRESPASSER, deny=("publish", "subscribe"), streams=(">",), sources=_OTHERS, subscribers=_OTHERS),
        Rule(principal=TRESPASSER, may=("publish", "subscribe"), streams=(">",), sinks=(f"{TRESPASSER}/*", OPEN_SINK)),
        Rule(principal=TRESPASSER, may=("describe",)),
        *RULES,
    )
)


class Trespasses:
    """Owns the questions of trespassers that are not answered yet."""

    def __init__(self) -> None:
        """Nobody has asked for anything."""
        self._asked: dict[int, Any] = {}

    def clear(self) -> None:
        """Another process: its sessions are others."""
        self._asked.clear()

    def hear(self, fact: Any) -> None:
        """The floor was told something."""
        if isinstance(fact, x.SessionClosed):
            self._asked.pop(fact.session, None)
        elif getattr(fact, "principal", "") == TRESPASSER and not _is_its_own(fact):
            self._asked[fact.session] = fact

    def see(self, effect: Any) -> None:
        """The floor said something. Raises `Violation` unless it is that the asker has no right."""
        asked = self._asked.get(getattr(effect, "session", -1))
        if asked is None or (isinstance(effect, x.Refuse) and effect.code == _answer_due(asked)):
            return
        if isinstance(effect, x.Fence) and isinstance(asked, x.CommitRequested | x.StagesDropRequested):
            # Its own run, on the same channel.
            return
        raise Violation("rights", f"{asked} was answered {effect}")


class Wards:
    """Owns what is known of the sessions of wards.

    Once the node has heard that the rules changed, a ward is told that it is forbidden, and no more; while it is
    allowed it is never told that.
    """

    def __init__(self, world: World) -> None:
        """Of a world in which nothing has been said yet."""
        self._world = world
        self._open: dict[int, None] = {}
        """Sessions of wards that were not refused."""
        self._ended: dict[int, None] = {}
        """Sessions that ended since the rules changed: nothing more may be said to them."""

    def clear(self) -> None:
        """Another process: its sessions are others."""
        self._open.clear()
        self._ended.clear()

    def hear(self, fact: Any) -> None:
        """The floor was told something."""
        if isinstance(fact, x.SessionClosed):
            self._open.pop(fact.session, None)
            self._ended.pop(fact.session, None)
        elif getattr(fact, "principal", "") == WARD and not isinstance(fact, x.AdminRequested):
            self._open[fact.session] = None
            self._ended.pop(fact.session, None)

    def renewed(self) -> None:
        """The floor has ended what is not allowed any more. Raises `Violation` where it has not."""
        if self._world.suspended and self._open:
            raise Violation("rights", f"sessions {list(self._open)} of wards go on, and the rules forbid it")

    def see(self, effect: Any) -> None:
        """The floor said something. Raises `Violation`."""
        session = -1 if isinstance(effect, Note) else getattr(effect, "session", -1)
        if session in self._ended and not isinstance(effect, x.Refuse):
            # What it asked for before it heard of that is refused, too.
            raise Violation("rights", f"{effect} was said to a ward that was refused")
        if session not in self._open:
            return
        if isinstance(effect, x.Refuse) and effect.code == "forbidden":
            if not self._world.suspended:
                raise Violation("rights", f"a ward may do what it asks for, and was told {effect}")
            del self._open[session]
            self._ended[session] = None
        elif isinstance(effect, x.Fence) or (isinstance(effect, x.Refuse) and effect.is_final):
            del self._open[session]


def _answer_due(asked: Any) -> str:
    return "unknown-run" if getattr(asked, "sink", "") == OPEN_SINK else "forbidden"


def _is_its_own(fact: Any) -> bool:
    return isinstance(fact, x.RunOpenRequested) and fact.sink == OWN_SINK
