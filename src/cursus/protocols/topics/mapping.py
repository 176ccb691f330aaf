"""Which server is responsible for which topic, as a proxy knows it: from what servers claim, and what it has assigned.

A topic that nobody claims is assigned to the server with the fewest topics, the one with the least id among several. It
stays assigned until somebody claims it: what that server said before its first message came does not take it away.
Where several claim a topic, the one with the least id keeps it, and each of the others is asked to give its part away.

Invariants
    (1) Claims are the same told by server and told by topic.
    (2) What is assigned is claimed by nobody yet.
    (3) The claims of a topic are in the order of ids, each once.
Source: seed 000, sections 3 ("Communication Protocol") and 3.1.5.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import NamedTuple

from cursus.kernel.errors import Refused


class Conflict(NamedTuple):
    """Two servers claim a topic; `giver`, whose id is higher, is to give its part to `keeper`."""

    topic: str
    giver: str
    keeper: str


class TopicMap:
    """Owns what one proxy knows of servers and topics."""

    __slots__ = ("_assigned", "_assigned_counts", "_claims", "_topics")

    def __init__(self) -> None:
        """No server is known yet."""
        self._topics: dict[str, dict[str, None]] = {}
        """By server, what it claimed last."""
        self._claims: dict[str, tuple[str, ...]] = {}
        """By topic, who claims it."""
        self._assigned: dict[str, str] = {}
        self._assigned_counts: dict[str, int] = {}

    def __contains__(self, server: str) -> bool:
        """Whether a server has said what it claims."""
        return server in self._topics

    @property
    def servers(self) -> list[str]:
        """Who has said what it claims, in the order of ids."""
        return sorted(self._topics)

    @property
    def conflicts(self) -> list[Conflict]:
        """Every conflict, in the order of topics."""
        rivals = sorted((topic, claims) for topic, claims in self._claims.items() if len(claims) > 1)
        return [Conflict(topic, giver, claims[0]) for topic, claims in rivals for giver in claims[1:]]

    def topic_count(self, server: str) -> int:
        """For how many topics a server is responsible."""
        return len(self._topics[server]) + self._assigned_counts[server]

    def learn(self, server: str, topics: Iterable[str]) -> list[Conflict]:
        """A server says which topics are its own; what is in conflict with that, in the order in which it said them."""
        before = self._topics.get(server, {})
        claimed = self._topics[server] = dict.fromkeys(topics)
        self._assigned_counts.setdefault(server, 0)
        alone = (server,)
        for topic in [topic for topic in before if topic not in claimed]:
            left = tuple(other for other in self._claims[topic] if other != server)
            if left:
                self._claims[topic] = left
            else:
                del self._claims[topic]
        conflicts: list[Conflict] = []
        for topic in claimed:
            claims = self._claims.get(topic)
            if claims is None:
                claims = self._claims[topic] = alone
            elif server not in claims:
                claims = self._claims[topic] = tuple(sorted((*claims, server)))
            self.withdraw(topic)
            if len(claims) > 1:
                conflicts += [Conflict(topic, giver, claims[0]) for giver in claims[1:] if server in (giver, claims[0])]
        return conflicts

    def server_of(self, topic: str) -> str | None:
        """Who is responsible for a topic, None where nobody is yet."""
        claims = self._claims.get(topic)
        return self._assigned.get(topic) if claims is None else claims[0]

    def rivals_of(self, topic: str) -> tuple[str, ...]:
        """Who claims a topic beside the one that is responsible for it."""
        return self._claims.get(topic, ())[1:]

    def assign(self, topic: str, but: Container[str] = ()) -> str:
        """Make a server responsible for a topic for which none is; one of those in `but` if there are no others.

        Raises `Refused("no-server")` where no server is known.
        """
        if not self._topics:
            said = "no server has said that it is there: start one that lists this proxy, or wait for its next message"
            raise Refused("no-server", said, topic=topic)
        server = min(self._topics, key=lambda known: (known in but, self.topic_count(known), known))
        self._assigned[topic] = server
        self._assigned_counts[server] += 1
        return server

    def withdraw(self, topic: str) -> None:
        """A topic is assigned to nobody any more; who claims it is responsible for it all the same."""
        server = self._assigned.pop(topic, None)
        if server is not None:
            self._assigned_counts[server] -= 1

    def check(self) -> None:
        """The invariants of the module hold."""
        told = [(topic, server) for server in sorted(self._topics) for topic in self._topics[server]]
        assert sorted(told) == sorted((topic, s) for topic, claims in self._claims.items() for s in claims), "(1)"
        assert not any(topic in self._claims for topic in self._assigned), "(2)"
        assert all(list(claims) == sorted(dict.fromkeys(claims)) for claims in self._claims.values()), "(3)"
