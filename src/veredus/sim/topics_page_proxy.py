"""A proxy of topics that is written from the page alone: another style than ours, and none of our codec.

    PERIODIC ──► who has which topic; two that have one: MERGE to the higher id
    SUBSCRIBE, UNSUBSCRIBE, GET, PUT ──► the server of the topic, or for a new one that with the fewest ──► its STATUS

It asks a server three times more, each after 100 ms, and then gives up. It knows no numbers of wishes, joins no copies,
learns nothing before it answers, and waits for nobody.
Source: seed 000, section 3.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from veredus.kernel.engine import Now
from veredus.kernel.events import DeadlineReached
from veredus.protocols.topics.exchange import Answer, Answered, Ask, Asked

from . import topics_page_codec as page
from .world import MILLISECOND

WAIT_NS = 100 * MILLISECOND
RETRIES_MAX = 3


@dataclass(slots=True)
class _Talk:
    """A question of somebody's that a server was asked; of the proxy's own where `peer` is 0."""

    peer: int
    server: str
    octets: bytes
    due_ns: int
    left_count: int = RETRIES_MAX


class PageProxy:
    """Owns the map of topics, and what it waits for."""

    def __init__(self, proxy_id: str) -> None:
        """One that has heard of no server."""
        self._id = proxy_id
        self._has: dict[str, set[str]] = {}
        """By server, its topics."""
        self._talks: dict[int, _Talk] = {}
        self._token = 0

    def handle(self, event: object, now: Now) -> Iterator[object]:
        """What is to be said."""
        match event:
            case Asked(peer, octets):
                yield from self._asked(peer, bytes(octets), now)
            case Answered(token, octets):
                talk = self._talks.pop(token, None)
                if talk is not None and talk.peer:
                    yield Answer(talk.peer, bytes(octets))
            case DeadlineReached():
                yield from self._ask_again(now)

    def deadline(self) -> int | None:
        """When a server is to be asked again."""
        return min((talk.due_ns for talk in self._talks.values()), default=None)

    def check(self) -> None:
        """It promises nothing about itself."""

    def _say(self, peer: int, word: str) -> Answer:
        return Answer(peer, page.status(self._id, word))

    def _asked(self, peer: int, octets: bytes, now: Now) -> Iterator[object]:
        try:
            said = page.heard(octets)
        except ValueError:
            # Many at once are not on the page: they go by the topic, as all else does.
            said = page.Said(*_head_of(octets))
        if said.name == "PERIODIC":
            yield self._say(peer, page.OK)
            yield from self._learn(said.sender, page.topics_in(said.body), now)
            return
        server = self._server_of(said.topic)
        if server:
            yield self._ask(peer, server, octets, now)
        else:
            yield self._say(peer, page.NO_SERVER)

    def _server_of(self, topic: str) -> str:
        owners = [server for server in sorted(self._has) if topic in self._has[server]]
        if not owners and self._has:
            owners = sorted(self._has, key=lambda server: (len(self._has[server]), server))
            self._has[owners[0]].add(topic)
        return owners[0] if owners else ""

    def _learn(self, server: str, topics: list[str], now: Now) -> Iterator[object]:
        self._has[server] = set(topics)
        for topic in topics:
            low, *others = [one for one in sorted(self._has) if topic in self._has[one]]
            for high in others:
                yield self._ask(0, high, page.merge(self._id, topic, low), now)

    def _ask(self, peer: int, server: str, octets: bytes, now: Now) -> Ask:
        self._token += 1
        self._talks[self._token] = _Talk(peer, server, octets, now.monotonic_ns + WAIT_NS)
        return Ask(server, self._token, octets)

    def _ask_again(self, now: Now) -> Iterator[object]:
        for token, talk in list(self._talks.items()):
            if talk.due_ns > now.monotonic_ns:
                continue
            if talk.left_count:
                talk.left_count -= 1
                talk.due_ns = now.monotonic_ns + WAIT_NS
                yield Ask(talk.server, token, talk.octets)
            else:
                del self._talks[token]
                if talk.peer:
                    yield self._say(talk.peer, page.UNAVAILABLE)


def _head_of(octets: bytes) -> tuple[str, tuple[str, ...]]:
    name, *words = octets.partition(b"\r\n")[0].decode(errors="replace").split(" ")
    return name, (*words, "", "")
