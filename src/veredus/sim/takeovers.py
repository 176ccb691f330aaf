"""Who has had a name before another took it over, and who has it now: what is asked for late takes it from nobody.

An incarnation that was granted a source or a cursor, and was followed by another one, is fenced for good. Its first
request has no epoch that would tell; it may come over a link that was given up, behind all that. Whoever has the name
is told when it has it no more: fenced, where another incarnation has taken it over, or that it was attached again,
where a packet of its own came late. A node knows the last few incarnations of each name, so whoever was followed by
more is not judged.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

from veredus.streams.exchange import (
    Fence,
    GrantSource,
    GrantSubscription,
    Refuse,
    SessionClosed,
    SourceAttachRequested,
    SubscribeRequested,
)
from veredus.streams.source import PAST_MAX

from .world import Violation

_SEEN = (GrantSource, GrantSubscription, Fence, Refuse)
Name: TypeAlias = tuple[str, ...]
"""A kind, and what tells one name of it from another."""
ANY_TIME = 1 << 62
"""The number of a request that nobody waits for any more, and that may be granted for all that."""


class _Request(NamedTuple):
    name: Name
    incarnation: bytes
    number: int


class Takeovers:
    """Owns what is known of who was granted which name, in one life of a node."""

    def __init__(self) -> None:
        """Nobody was granted anything."""
        self._count = 0
        self._asking: dict[int, _Request] = {}
        """By session: what it asks for, until it is answered."""
        self._askers: dict[Name, dict[bytes, int]] = {}
        """Who has ever asked for a name, and when last, as a number, or `ANY_TIME`."""
        self._granted: dict[tuple[bytes, Name], dict[bytes, None]] = {}
        """By the stream's incarnation and the name: who was granted it, the present one last."""
        self._sessions: dict[tuple[bytes, Name], int] = {}
        """Which session was granted it last."""
        self._holding: dict[int, tuple[tuple[bytes, Name], int, _Request]] = {}
        """By session: what it was granted and under which epoch, until it is over or told so."""

    def clear(self) -> None:
        """Another process: it knows of no takeover before it."""
        for known in (self._asking, self._askers, self._granted, self._sessions, self._holding):
            known.clear()

    def hear(self, fact: Any) -> None:
        """The floor was told something."""
        kind = type(fact)
        if kind is SourceAttachRequested and fact.source:
            self._hear(fact, ("source", fact.stream, fact.source))
        elif kind is SubscribeRequested and fact.subscriber:
            self._hear(fact, ("cursor", fact.stream, fact.subscriber, fact.name))
        elif kind is SessionClosed:
            asked = self._asking.pop(fact.session, None)
            if asked is not None:
                # The takeover may be on its way into the journal, and take the name from whoever is granted it before.
                self._askers[asked.name][asked.incarnation] = ANY_TIME
            self._holding.pop(fact.session, None)

    def _hear(self, fact: SourceAttachRequested | SubscribeRequested, name: Name) -> None:
        self._count += 1
        self._asking[fact.session] = _Request(name, fact.incarnation, self._count)
        askers = self._askers.setdefault(name, {})
        askers[fact.incarnation] = max(self._count, askers.get(fact.incarnation, 0))

    def see(self, effect: Any) -> None:
        """The floor said something.

        Raises `Violation` where who was taken over from has the name again, or who has it loses it in silence.
        """
        kind = type(effect)
        if kind not in _SEEN or (kind is Refuse and not effect.is_final):
            return
        asked = self._asking.pop(effect.session, None)
        if kind is Refuse:
            self._holding.pop(effect.session, None)
        elif kind is Fence:
            self._see_fence(effect.session, effect.epoch)
        elif asked is not None:
            self._see_grant(effect, asked)

    def _see_grant(self, grant: GrantSource | GrantSubscription, asked: _Request) -> None:
        session, key = grant.session, (grant.stream_incarnation, asked.name)
        granted = self._granted.setdefault(key, {})
        is_past = asked.incarnation in granted and next(reversed(granted)) != asked.incarnation
        if is_past and self._is_known(asked.name):
            raise Violation("fenced", f"{_told(asked.name)} is granted again to who was taken over from")
        granted.pop(asked.incarnation, None)
        granted[asked.incarnation] = None
        former = self._sessions.get(key, session)
        if former != session and former in self._holding:
            raise Violation(
                "fenced", f"{_told(asked.name)} is granted to another session, and session {former} not told"
            )
        self._sessions[key] = session
        self._holding[session] = (key, grant.epoch, asked)

    def _see_fence(self, session: int, epoch: int) -> None:
        """Whoever has the name may be fenced where somebody has asked for it who was never granted it.

        Or where it has signed with another epoch than its own, which takes the name from nobody.
        """
        if session not in self._holding:
            return
        key, own_epoch, asked = self._holding.pop(session)
        if epoch <= own_epoch or not self._is_known(asked.name):
            return
        granted = self._granted[key]
        others = [who for who, number in self._askers[asked.name].items() if number > asked.number]
        others += [request.incarnation for request in self._asking.values() if request.name == asked.name]
        if next(reversed(granted)) == asked.incarnation and all(who in granted for who in others):
            raise Violation("fenced", f"{_told(asked.name)}: who has it is fenced for who was taken over from")

    def _is_known(self, name: Name) -> bool:
        """Whether a node remembers everybody who may have been taken over from."""
        return len(self._askers[name]) <= PAST_MAX + 1


def _told(name: Name) -> str:
    return f"{name[0]} {'/'.join(name[1:])}"
