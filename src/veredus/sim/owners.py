"""Whose names are whose: sources, cursors and sinks belong to the principals who made them, in worlds that have such.

There each player is a principal of its own; of some an *heir*, who may take names over, starts the later processes. A
*usurper* may do all but that, and asks for everybody's names. `Owners` stands at the streams floor: whoever asks for a
name that somebody else owns must hear `forbidden`, or that the disk is full, and no more; the owner never hears it.
Source: docs/internals/DESIGN.md, "Rights"; docs/how-to/secure.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, TypeAlias

from veredus.kernel.errors import UNSTORED
from veredus.node.rules import Rule
from veredus.streams import exchange as x
from veredus.streams.engine import StreamsEngine
from veredus.streams.rights import TAKE_OVER, UNPROVEN, VERBS

from .world import Violation, World

HEIR, USURPER = "heir", "usurper"
PLAYERS = ("source-*", "subscriber-*", "laggard", "sink-*", "redriver-*")
"""Principals of worlds that have owners."""
_ALL_BUT_THAT = tuple(verb for verb in VERBS if verb != TAKE_OVER)
RULES = (
    *(Rule(principal=who, may=_ALL_BUT_THAT) for who in (*PLAYERS, USURPER)),
    Rule(principal=HEIR, may=("*",)),
)
Name: TypeAlias = tuple[str, ...]
"""A kind, and what tells one name of it from another."""
_OF_CURSORS = ("subscription.renew", "subscription.advance", "subscription.remove")
_OF_SINKS = ("sink.remove", "stage.drop")


class Owners:
    """Owns what is known of who owns what, and the questions that are not answered yet."""

    def __init__(self, world: World) -> None:
        """Nobody owns anything."""
        self._world = world
        self._known: dict[Name, str] = {}
        """Who was granted a name, and nobody has asked for since who might have got it."""
        self._claims: Counter[Name] = Counter()
        """How often the heir has asked for a name."""
        self._asked: dict[tuple[int, int], tuple[Any, Name, str, int]] = {}
        """By session and request: question, whose name that was by then, how often the heir had asked for it."""

    def owner(self, *name: str) -> str:
        """Who owns a name for certain, "" where that is not known."""
        return self._known.get(name, "")

    def forget(self, *name: str) -> None:
        """The name is nobody's any more, or may be."""
        self._known.pop(name, None)

    def clear(self) -> None:
        """Another process: its sessions are others."""
        self._asked.clear()

    def hear(self, fact: Any) -> None:
        """The floor was told something."""
        if isinstance(fact, x.SessionClosed):
            for key in [key for key in self._asked if key[0] == fact.session]:
                del self._asked[key]
            return
        name = self._name_in(fact)
        if name is None:
            return
        if fact.principal == HEIR:
            # It may be the heir's from now on, whether or not the heir hears of that, and also behind what others who
            # asked before are granted.
            self._claims[name] += 1
            if self._known.get(name) != HEIR:
                self.forget(*name)
        if getattr(fact, "verb", "") == "sink.remove" and fact.principal == self._known.get(name):
            self.forget(*name)
        self._asked[fact.session, getattr(fact, "request", 0)] = (
            fact, name, self._known.get(name, ""), self._claims[name],
        )  # fmt: skip

    def see(self, effect: Any) -> None:
        """The floor said something. Raises `Violation` where the owner gets no name, or others get it."""
        key = getattr(effect, "session", -1), getattr(effect, "request", 0)
        asked, name, owner, claims = self._asked.get(key, (None, (), "", 0))
        is_forbidden = isinstance(effect, x.Refuse) and effect.code in _SAID_TO_ALL
        if asked is None or not isinstance(effect, _ANSWERS):
            return
        principal, known = asked.principal, self._known.get(name, "")
        del self._asked[key]
        is_not_owner = isinstance(effect, x.Refuse) and effect.details.get("verb") == TAKE_OVER
        if is_not_owner and principal == owner == known:
            raise Violation("rights", f"{principal} owns {name}, and was answered {effect}")
        if not is_forbidden and principal not in (owner, HEIR) and owner and owner == known:
            raise Violation("rights", f"{owner} owns {name}, and {asked} was answered {effect}")
        if isinstance(effect, _GRANTS) and principal not in UNPROVEN and claims == self._claims[name]:
            self._known[name] = principal

    def recovered(self, floor: StreamsEngine, may_forget: bool) -> None:
        """A process read the journal: who owns what is in it, unless the node may have forgotten that."""
        if may_forget:
            self._known.clear()
        found = dict(_owners_in(floor))
        for name, principal in self._known.items():
            if found.get(name) != principal:
                raise Violation("rights", f"{principal} owned {name}, and now {found.get(name)!r} does")

    def _name_in(self, fact: Any) -> Name | None:
        """Whose ownership this asks, None for nobody's."""
        match fact:
            case x.SourceAttachRequested(stream=stream, source=source) if source:
                name: Name = ("source", stream, source)
            case x.SubscribeRequested(stream=stream, subscriber=subscriber, name=label) if subscriber:
                name = ("cursor", stream, subscriber, label)
            case x.RunOpenRequested(sink=sink) | x.StageOpenRequested(sink=sink):
                return ("sink", sink)
            case x.AdminRequested(verb=verb, arguments=told) if verb in _OF_CURSORS:
                name = ("cursor", str(told["stream"]), str(told["subscriber"]), str(told["name"]))
            case x.AdminRequested(verb=verb, arguments=told) if verb in _OF_SINKS:
                return ("sink", str(told["sink"]))
            case _:
                return None
        return None if name[1] in self._world.vanishing else name


_SAID_TO_ALL = UNSTORED | {"forbidden", "stream-replaced"}
"""Refusals of who does not own a name. A disk that takes nothing, and a stream that is not the one that is meant any
more, are said to all who ask, before anybody is judged."""
_GRANTS = (x.GrantSource, x.GrantSubscription, x.GrantRun)
_ANSWERS = (*_GRANTS, x.GrantStage, x.AnswerAdmin, x.Refuse, x.Fence)


def _owners_in(floor: StreamsEngine) -> Iterator[tuple[Name, str]]:
    for stream in floor.tables.streams.values():
        for source in stream.sources.values():
            yield ("source", stream.name, source.name), source.owner
        for subscription in stream.subscriptions.values():
            yield ("cursor", stream.name, subscription.subscriber, subscription.name), subscription.owner
    for run in floor.tables.runs.values():
        yield ("sink", run.sink), run.owner
