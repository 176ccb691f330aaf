"""Which server is responsible for which topic, as a proxy knows it: from what servers claim, and what it has assigned.

A topic that nobody claims is assigned to the server with the fewest topics, the one with the least id among several.
Where several claim a topic, the one with the least id keeps it, and each of the others is asked to give its part away.

To whom a proxy sends a topic's messages is *chosen* when the first of them comes, and stays: a client's puts would get
out of order if they went now to one server and now to the other of two that are still to be merged. Another is chosen,
the claimant with the least id, once the one that was chosen does not claim the topic any more, or says that it has
given it to that one: what it is sent behind that, it begins anew, as a server from the page does, without subscribers.

What is assigned stays so without a claim, for what a server said before the first message came to it takes nothing
away; and a server that has answered for a topic keeps it though it is silent then: what it took is there. It ends where
the server speaks and others claim the topic, or speaks twice and nobody asked for it in between: what clients name and
never use is not kept.

    unknown ──assign──► assigned ──claimed by its server──► claimed ──not claimed any more──► unknown, or another's
                           └─ silent before it answered for it, claimed by others alone, or doubted twice ──► unknown

Invariants
    (1) Claims are the same told by server and told by topic.
    (2) What is assigned to a server it does not claim, and is the one chosen for it.
    (3) The claims of a topic are in the order of ids, each once.
    (4) Whoever is chosen for a topic claims it, or was assigned it.
    (5) What is doubted is assigned.
    (6) What is contested is what several claim.
Source: seed 000, sections 3 ("Communication Protocol") and 3.1.5; docs/decisions/0012.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import NamedTuple

from veredus.kernel.errors import Refused


class Conflict(NamedTuple):
    """Two servers claim a topic; `giver`, whose id is higher, is to give its part to `keeper`."""

    topic: str
    giver: str
    keeper: str


class TopicMap:
    """Owns what one proxy knows of servers and topics."""

    __slots__ = ("_assigned", "_chosen", "_claims", "_contested", "_doubted", "_topics")

    def __init__(self) -> None:
        """No server is known yet."""
        self._topics: dict[str, dict[str, None]] = {}
        """By server, what it claimed last."""
        self._claims: dict[str, tuple[str, ...]] = {}
        """By topic, who claims it."""
        self._contested: set[str] = set()
        """Topics that several claim."""
        self._assigned: dict[str, dict[str, bool]] = {}
        """By server, what it was given and has not claimed yet; and whether it has said in an answer that it has it."""
        self._chosen: dict[str, str] = {}
        """By topic, to whom its messages go."""
        self._doubted: dict[str, None] = {}
        """What its server did not claim when it spoke last, and nobody has asked for since."""

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
        rivals = ((topic, self._claims[topic]) for topic in sorted(self._contested))
        return [Conflict(topic, giver, claims[0]) for topic, claims in rivals for giver in claims[1:]]

    def topic_count(self, server: str) -> int:
        """For how many topics a server is responsible."""
        return len(self._topics[server]) + len(self._assigned[server])

    def learn(self, server: str, topics: Iterable[str] | None) -> list[Conflict]:
        """A server says which topics are its own, None for the same as before; what is in conflict with that, in the
        order of topics.
        """
        if topics is not None:
            self._change(server, topics)
        known = self._topics[server]
        self._judge_assigned(server, known)
        rivals = ((topic, self._claims[topic]) for topic in sorted(self._contested) if topic in known)
        return [
            Conflict(topic, giver, claims[0])
            for topic, claims in rivals
            for giver in claims[1:]
            if server in (giver, claims[0])
        ]

    def _change(self, server: str, topics: Iterable[str]) -> None:
        """A server has many topics, few of which change: what differs is found by operations on whole sets."""
        known, claimed = self._topics.setdefault(server, {}), set(topics)
        for topic in sorted(set(known).difference(claimed)):
            del known[topic]
            self._lose(topic, server)
        came = claimed.difference(known)
        known |= dict.fromkeys(sorted(came))
        unclaimed = came.difference(self._claims)
        self._claims |= dict.fromkeys(sorted(unclaimed), (server,))
        for topic in sorted(came - unclaimed):
            self._claims[topic] = tuple(sorted((*self._claims[topic], server)))
            self._contested.add(topic)

    def has(self, conflict: Conflict) -> bool:
        """Whether both servers still claim the topic."""
        claims = self._claims.get(conflict.topic, ())
        return conflict.giver in claims and conflict.keeper in claims

    def note_given(self, topic: str, giver: str) -> None:
        """A server says that it has given a topic away, which it claims until it speaks again, or longer."""
        if self._chosen.get(topic) == giver and len(self._claims.get(topic, ())) > 1:
            del self._chosen[topic]

    def _lose(self, topic: str, server: str) -> None:
        left = tuple(other for other in self._claims[topic] if other != server)
        if left:
            self._claims[topic] = left
            if len(left) == 1:
                self._contested.discard(topic)
        else:
            del self._claims[topic]
        if self._chosen.get(topic) == server:
            del self._chosen[topic]

    def _judge_assigned(self, server: str, claimed: Container[str]) -> None:
        assigned = self._assigned.setdefault(server, {})
        for topic in [*assigned]:
            if topic in claimed:
                del assigned[topic]
                self._doubted.pop(topic, None)
            elif topic in self._claims or topic in self._doubted:
                self.withdraw(topic, server)
            else:
                self._doubted[topic] = None

    def server_of(self, topic: str) -> str | None:
        """Who is responsible for a topic, None where nobody is yet."""
        server = self._chosen.get(topic)
        if server is None:
            claims = self._claims.get(topic)
            return None if claims is None else claims[0]
        return server

    def choose(self, topic: str) -> str | None:
        """Who gets a message for a topic, and the next ones too; None where nobody is responsible yet."""
        server = self._chosen.get(topic)
        if server is None:
            server = self.server_of(topic)
            if server is not None:
                self._chosen[topic] = server
        elif self._doubted:
            self._doubted.pop(topic, None)
        return server

    def rivals_of(self, topic: str) -> tuple[str, ...]:
        """Who claims a topic beside the one that is responsible for it."""
        claims = self._claims.get(topic, ())
        server = self.server_of(topic)
        return () if claims == (server,) else tuple(other for other in claims if other != server)

    def claimants_of(self, topic: str) -> tuple[str, ...]:
        """Who claims a topic, in the order of ids."""
        return self._claims.get(topic, ())

    def find(self, topic: str, server: str) -> None:
        """A server turns out to have a topic that nobody claims yet, and that another one was assigned."""
        chosen = self._chosen.get(topic)
        if topic not in self._claims and chosen not in (None, server) and server in self._assigned:
            self.withdraw(topic, str(chosen))
            self._assigned[server][topic] = True
            self._chosen[topic] = server

    def confirm(self, topic: str, server: str) -> None:
        """A server that was given a topic has answered that it has it."""
        self._assigned[server][topic] = True

    def is_unsure(self, topic: str, server: str) -> bool:
        """Whether a server was given a topic, and has neither claimed it nor answered that it has it."""
        return not self._assigned.get(server, {}).get(topic, True)

    def take_back(self, topic: str, server: str) -> None:
        """A server is silent: what it was given goes to another one, unless it has it."""
        if self.is_unsure(topic, server):
            self.withdraw(topic, server)

    def assign(self, topic: str, but: Container[str] = ()) -> str:
        """Make a server responsible for a topic for which none is; one of those in `but` if there are no others.

        Raises `Refused("no-server")` where no server is known.
        """
        if not self._topics:
            said = (
                "no server has announced itself: start one that lists this proxy, or wait until it announces itself"
                " again"
            )
            raise Refused("no-server", said, topic=topic)
        server = min(self._topics, key=lambda known: (known in but, self.topic_count(known), known))
        self._assigned[server][topic] = False
        self._chosen[topic] = server
        return server

    def withdraw(self, topic: str, server: str) -> None:
        """A topic is not assigned to this server any more; what it claims is its own all the same."""
        assigned = self._assigned.get(server, {})
        if topic in assigned:
            del assigned[topic], self._chosen[topic]
            self._doubted.pop(topic, None)

    def drop(self, server: str) -> None:
        """A server turns out to be none: nothing is its own, and nobody is sent to it."""
        for topic in self._topics.pop(server, {}):
            self._lose(topic, server)
        for topic in [*self._assigned.get(server, {})]:
            self.withdraw(topic, server)
        self._assigned.pop(server, None)

    def check(self) -> None:
        """The invariants of the module hold."""
        told = [(topic, server) for server in sorted(self._topics) for topic in self._topics[server]]
        assert sorted(told) == sorted((topic, s) for topic, claims in self._claims.items() for s in claims), "(1)"
        given = {topic: server for server, topics in self._assigned.items() for topic in topics}
        assert all(self._chosen[topic] == server for topic, server in given.items()), "(2)"
        assert not any(server in self._claims.get(topic, ()) for topic, server in given.items()), "(2)"
        assert all(list(claims) == sorted(dict.fromkeys(claims)) for claims in self._claims.values()), "(3)"
        assert all(s in self._claims.get(topic, ()) or given.get(topic) == s for topic, s in self._chosen.items()), (
            "(4)"
        )
        assert all(topic in given for topic in self._doubted), "(5)"
        assert self._contested == {topic for topic, claims in self._claims.items() if len(claims) > 1}, "(6)"
