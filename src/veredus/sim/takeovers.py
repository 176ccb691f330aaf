"""Who has had a name before another took it over: as long as its node lives, what it asks for late is granted nobody.

An incarnation that was granted a source or a cursor, and was followed by another one, is fenced for good. Its first
request has no epoch that would tell; it may come over a link that was given up, behind all that. A node knows the last
few incarnations of each name, so whoever was followed by more is not judged.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from veredus.streams.exchange import GrantSource, GrantSubscription, SourceAttachRequested, SubscribeRequested
from veredus.streams.source import PAST_MAX

from .world import Violation

_GRANTS = (GrantSource, GrantSubscription)
Name: TypeAlias = tuple[str, ...]
"""A kind, and what tells one name of it from another."""


class Takeovers:
    """Owns what is known of who was granted which name, in one life of a node."""

    def __init__(self) -> None:
        """Nobody was granted anything."""
        self._asking: dict[int, tuple[Name, bytes]] = {}
        """By session: the name that it asks for, and its incarnation."""
        self._askers: dict[Name, dict[bytes, None]] = {}
        self._granted: dict[tuple[bytes, Name], dict[bytes, None]] = {}
        """By the stream's incarnation and the name: who was granted it, the present one last."""

    def clear(self) -> None:
        """Another process: it knows of no takeover before it."""
        for known in (self._asking, self._askers, self._granted):
            known.clear()

    def hear(self, fact: Any) -> None:
        """The floor was told something."""
        kind = type(fact)
        if kind is SourceAttachRequested and fact.source:
            self._hear(fact, ("source", fact.stream, fact.source))
        elif kind is SubscribeRequested and fact.subscriber:
            self._hear(fact, ("cursor", fact.stream, fact.subscriber, fact.name))

    def _hear(self, fact: SourceAttachRequested | SubscribeRequested, name: Name) -> None:
        self._asking[fact.session] = name, fact.incarnation
        self._askers.setdefault(name, {})[fact.incarnation] = None

    def see(self, effect: Any) -> None:
        """The floor said something. Raises `Violation` where who was taken over from has the name again."""
        if type(effect) not in _GRANTS:
            return
        name, incarnation = self._asking.pop(effect.session, ((), b""))
        if not name:
            return
        granted = self._granted.setdefault((effect.stream_incarnation, name), {})
        is_past = incarnation in granted and next(reversed(granted)) != incarnation
        if is_past and len(self._askers[name]) <= PAST_MAX + 1:
            raise Violation("fenced", f"{name[0]} {'/'.join(name[1:])} is granted again to who was taken over from")
        granted.pop(incarnation, None)
        granted[incarnation] = None
