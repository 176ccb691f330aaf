"""A message that somebody put in a world of topics, and a client on a topic: what is known of each."""

from __future__ import annotations

from dataclasses import dataclass, field

from .world import MILLISECOND, SECOND

ANSWERED_MAX_NS = 2 * SECOND
"""How long after it was given an answer may come, at most: a proxy answers a copy with what it was answered before."""

IN_HAND_MAX_NS = 500 * MILLISECOND
"""How long a server may have a put in hand: for most of it while the topic is held."""


@dataclass(slots=True)
class Route:
    """By which one life of a proxy a put went, and who took it."""

    proxy: str
    life: int
    """When it began."""
    server: str
    is_claimed: bool
    """Whether the server had said by then, and since it has the topic, that it has it: what it said of one that it had
    before may be followed by what it said when it had none, and then a proxy asks another one."""


@dataclass(slots=True)
class PutTold:
    """What is known of a message that somebody put, or published to the stream by another listener."""

    topic: str
    who: str
    number: int
    begun_ns: int
    told_ns: int = 0
    """When it was said to be taken; 0 for not yet."""
    asked_ns: int = 0
    """When a server was asked last for it: copies that were late count, where another server has the topic too."""
    servers: dict[str, None] = field(default_factory=dict)
    """Which ones were asked for it."""
    talk_count: int = 0
    route: Route | None = None
    removed_ns: int = 0
    """When it may have gone with a topic that was removed, 0 for never."""
    stream: bytes = b""
    """The incarnation of one server's stream to which it was published by another listener; of a put there is none."""

    @property
    def may_be_twin(self) -> bool:
        """Whether several servers may have it."""
        return len(self.servers) > 1

    @property
    def may_be_anew(self) -> bool:
        """Whether a copy of it may have been put anew, since the first one was removed."""
        return self.removed_ns > 0 and (self.may_be_twin or self.asked_ns > self.removed_ns - IN_HAND_MAX_NS)


@dataclass(slots=True)
class Seat:
    """A client on a topic."""

    client: str
    topic: str
    wish: bytes = b""
    """What it asked for last."""
    asked_ns: int | None = None
    """When it first asked for the subscription that it may have."""
    told_ns: int | None = None
    """When it was first told that it has it."""
    has_left: bool = False
    was_sure: bool = False
    """Whether it was subscribed for sure when it asked to be so no longer."""
    is_in_doubt: bool = False
    undone_ns: int = -1
    """Until when what came late, and had no number, may have ended the subscription."""
    got: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    """In the order in which it got them; when it asked for each, and when it had it."""
    gets_ns: int = 0
    """When it asked for what it gets."""
    forgotten: tuple[bytes, ...] = ()
    """What it had last when it forgot that, since it may have been removed: it may come once more."""

    def is_of_last(self, body: bytes) -> bool:
        """Whether this was in the answer that it got last."""
        return bool(self.got) and body in self.got and self.got[body][0] == self.got[next(reversed(self.got))][0]
