"""What peers of a world may do: all, but for trespassers, and what is said to these; `owners` has who owns what.

A trespasser may publish by all sinks but the first to all streams but the first, and describe. `Trespasses` stands at
the streams floor and hears what it asks for beyond that: an answer that is anything but `forbidden` breaks the rules,
or but `unknown-run` where it commits for a sink of which it has opened no run.
"""

from __future__ import annotations

from typing import Any

from veredus.node.rules import Access, Rule
from veredus.streams import exchange as x
from veredus.streams.rights import LOCAL

from .owners import RULES
from .world import Violation

TRESPASSER = "trespasser"
SHUT = "stream-1"
"""Where it may not publish."""
SHUT_SINK, OPEN_SINK = "sink-1", "sink-2"
"""By which it may not, and by which it might open a run, and does not."""
OWN_SINK = f"{TRESPASSER}/own"
_OTHERS = ("source-*", "subscriber-*", "laggard", "forger-*")
ACCESS = Access(
    (
        Rule(principal=LOCAL, may=("*",)),
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


def _answer_due(asked: Any) -> str:
    return "unknown-run" if getattr(asked, "sink", "") == OPEN_SINK else "forbidden"


def _is_its_own(fact: Any) -> bool:
    return isinstance(fact, x.RunOpenRequested) and fact.sink == OWN_SINK
