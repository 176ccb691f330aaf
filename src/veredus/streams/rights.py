"""Who may do what, as the streams floor asks it: one question, one place where the answer no is said and noted.

Every request that names something asks `Rights.check` before it looks at that thing: who lacks the right hears the same
whether or not it exists. `RIGHTS` below is the list of what each request asks; docs/how-to/secure.md shows it, and
tests/streams/test_rights.py plays each line of it.
Source: docs/internals/DESIGN.md, "Rights".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, NoReturn, TypeAlias

from veredus.kernel.effects import Note
from veredus.kernel.errors import Refused

PUBLISH, SUBSCRIBE, CREATE, DELETE, TRIM, DESCRIBE, RAISE, TAKE_OVER, ALTER = (
    "publish", "subscribe", "create", "delete", "trim", "describe", "raise", "take-over", "alter",
)  # fmt: skip
VERBS = (PUBLISH, SUBSCRIBE, CREATE, DELETE, TRIM, DESCRIBE, RAISE, TAKE_OVER, ALTER)
STREAM, SINK = "stream", "sink"
LOCAL, ANONYMOUS, NOBODY = "local", "anonymous", ""
MULTICAST = "multicast"
"""Who reads a stream for a multicast group: everybody on that network."""
UNPROVEN = (LOCAL, ANONYMOUS, MULTICAST, NOBODY)
"""Principals that are no one in particular: peers that have proved nothing."""


class Resource(NamedTuple):
    """What a right is asked on: a stream, perhaps as one source or subscriber of it, or a sink.

    `source` and `subscriber` are None where the request names none; "" is an anonymous source, or an ephemeral
    subscriber.
    """

    kind: str
    name: str
    source: str | None = None
    subscriber: str | None = None

    def __str__(self) -> str:
        said = f"{self.kind} {self.name!r}"
        if self.source is not None:
            said += f" as source {self.source!r}" if self.source else " without a source"
        if self.subscriber:
            said += f" as subscriber {self.subscriber!r}"
        return said


May: TypeAlias = Callable[[str, str, Resource], bool]
"""Whether a principal may do a verb on a resource."""


def on_stream(name: str, source: str | None = None, subscriber: str | None = None) -> Resource:
    """A stream, and as whom it is published or subscribed to."""
    return Resource(STREAM, name, source, subscriber)


def on_sink(name: str) -> Resource:
    """A sink."""
    return Resource(SINK, name)


class Rights:
    """Asks the rules, and says no: what is refused here is noted as `forbidden`, and nowhere else."""

    __slots__ = ("_held", "_say", "may")

    def __init__(self, may: May, say: Callable[[object], None]) -> None:
        """`say` takes the notes."""
        self.may = may
        self._say = say
        self._held: dict[int, dict[tuple[str, str, Resource], None]] = {}
        """What each session was granted, and goes on doing without asking again."""

    def check(self, session: int, principal: str, verb: str, resource: Resource, *, is_noted: bool = True) -> None:
        """Raise `Refused("forbidden")` unless the rules let `principal` do this; the join adds whose link it was.

        Not `is_noted`: nobody was refused, it was asked only to find out.
        """
        if self.may(principal, verb, resource):
            return
        anyone = resource._replace(source=None, subscriber=None)
        if not self.may(principal, verb, anyone):
            # No other source, and no other subscriber, would help.
            resource = anyone
        self._refuse(session, principal, verb, resource, f"{verb} on {resource}", is_noted)

    def check_owner(self, session: int, principal: str, owner: str, resource: Resource) -> None:
        """Raise `Refused("forbidden")` where another principal owns the name, and `principal` may not take it over."""
        if owner and owner != principal and not self.may(principal, TAKE_OVER, resource):
            said = f"take over {resource}, which another principal owns"
            self._refuse(session, principal, TAKE_OVER, resource, said)

    def _refuse(
        self, session: int, principal: str, verb: str, resource: Resource, said: str, is_noted: bool = True
    ) -> NoReturn:
        fields = {"principal": principal, "verb": verb, "kind": resource.kind, "name": resource.name}
        if is_noted:
            self._say(Note("warning", "forbidden", {**fields, "session": session}))
        who = principal or "an unauthenticated peer"
        why = "the rules in the [security] section do not allow it (the first that matches decides)"
        message = f"{who} may not {said}: {why}"
        raise Refused("forbidden", message, **fields)

    def hold(self, session: int, principal: str, verb: str, resource: Resource, *, is_noted: bool = True) -> None:
        """As `check`, for what the session may go on doing until it is closed, or the right is gone."""
        self.check(session, principal, verb, resource, is_noted=is_noted)
        self._held.setdefault(session, {})[principal, verb, resource] = None

    def release(self, session: int) -> None:
        """The session is closed."""
        self._held.pop(session, None)

    def lost(self) -> list[tuple[int, Refused]]:
        """The sessions that were granted what the rules, which have changed, do not let them do any more, and why."""
        found = []
        for session, rights in list(self._held.items()):
            try:
                for principal, verb, resource in rights:
                    self.check(session, principal, verb, resource)
            except Refused as refused:
                found.append((session, refused))
        return found


def next_owner(principal: str, owner: str) -> str:
    """Who owns a name that `principal` has taken: whoever has proved who they are, else whoever owned it before."""
    return owner if principal in UNPROVEN else principal


def whose(owner: str) -> str:
    """An owner in a sentence: those that prove nothing have what they own together."""
    return owner or "the group of all unauthenticated peers"


class Right(NamedTuple):
    """One line of the list: a request, the right that it asks, and on what."""

    request: str
    verb: str
    on: str
    when: str = ""


_OWNED = "another principal owns it"
_MOVED = "it moves a subscription (when topics are merged)"
_ITSELF = "the stream; else the answer is its name, and what the request has set"
RIGHTS = (
    Right("ATTACH_SOURCE", PUBLISH, "the stream, as this source"),
    Right("ATTACH_SOURCE", TAKE_OVER, "the stream, as this source", _OWNED),
    Right("ATTACH_SOURCE", CREATE, "the stream", "it does not exist and `streams.create_on_use` is set"),
    Right("SUBSCRIBE", SUBSCRIBE, "the stream, as this subscriber"),
    Right("SUBSCRIBE", TAKE_OVER, "the stream, as this subscriber", _OWNED),
    Right("SUBSCRIBE", CREATE, "the stream", "it does not exist and `streams.create_on_use` is set"),
    Right("SUBSCRIBE", PUBLISH, "the stream `parked_to`", "it is set, or `attempts_max` is"),
    Right("OPEN_RUN", PUBLISH, "the sink"),
    Right("OPEN_RUN", TAKE_OVER, "the sink", _OWNED),
    Right("OPEN_STAGE", PUBLISH, "the sink"),
    Right("OPEN_STAGE", TAKE_OVER, "the sink", _OWNED),
    Right("OPEN_STAGE", PUBLISH, "the stream"),
    Right("OPEN_STAGE", CREATE, "the stream", "it does not exist and `streams.create_on_use` is set"),
    Right("COMMIT", PUBLISH, "the sink"),
    Right("COMMIT", PUBLISH, "the stream of each stage"),
    Right("COMMIT", SUBSCRIBE, "the stream, as this subscriber", _MOVED),
    Right("COMMIT", TAKE_OVER, "the stream, as this subscriber", f"{_MOVED}, and {_OWNED}"),
    Right("DROP_STAGES", PUBLISH, "the sink"),
    Right("DROP_STAGES", PUBLISH, "the stream of each stage"),
    Right("stream.create", CREATE, "the stream"),
    Right("stream.create", ALTER, "the stream", "its `sources_max` is above `streams.sources_max`"),
    Right("stream.create", DESCRIBE, _ITSELF),
    Right("stream.list", DESCRIBE, "each stream; the others are left out"),
    Right("stream.names", DESCRIBE, "each stream; the others are left out"),
    Right("stream.show", DESCRIBE, "the stream"),
    Right("stream.trim", TRIM, "the stream"),
    Right("stream.trim", DESCRIBE, _ITSELF),
    Right("stream.alter", ALTER, "the stream"),
    Right("stream.alter", DESCRIBE, _ITSELF),
    Right("stream.delete", DELETE, "the stream"),
    Right("source.list", DESCRIBE, "the stream"),
    Right("source.raise", RAISE, "the stream, as each source"),
    Right("source.raise", TAKE_OVER, "the stream, as each source", "it names an owner of it"),
    Right("subscription.list", DESCRIBE, "each stream; the others are left out"),
    Right("subscription.list", DESCRIBE, "the stream", "it is named"),
    Right("subscription.left", DESCRIBE, "the stream"),
    Right("subscription.show", DESCRIBE, "the stream"),
    Right("subscription.renew", SUBSCRIBE, "the stream, as this subscriber"),
    Right("subscription.renew", TAKE_OVER, "the stream, as this subscriber", _OWNED),
    Right("subscription.advance", SUBSCRIBE, "the stream, as this subscriber"),
    Right("subscription.advance", TAKE_OVER, "the stream, as this subscriber", _OWNED),
    Right("subscription.remove", SUBSCRIBE, "the stream, as this subscriber"),
    Right("subscription.remove", TAKE_OVER, "the stream, as this subscriber", _OWNED),
    Right("sink.list", DESCRIBE, "each sink; the others are left out"),
    Right("sink.list", DESCRIBE, "each stream of its last commit; the others are left out"),
    Right("sink.remove", DELETE, "the sink", "it has a name, or `publish` on it is not permitted"),
    Right("sink.remove", TAKE_OVER, "the sink", _OWNED),
    Right("stage.list", DESCRIBE, "the sink and the stream of each stage; the others are left out"),
    Right("stage.drop", DELETE, "the sink"),
    Right("stage.drop", TAKE_OVER, "the sink", _OWNED),
)
"""What each request asks before anything else is said about what it names."""
UNASKED = ("OFFER", "STORE_TOKEN", "CREDIT", "HANDED", "RETURN", "SETTLE", "CHANGE_FILTER", "CLOSE_CHANNEL")
"""What is said on a channel that a request above has opened, and reaches nothing but what was granted to it."""
