"""A proxy: hands what clients say to the server that is responsible for the topic, and its answer back, unaltered.

    client ── Asked ──► the topic's server ── Ask ──► ... ── Answered ──► Answer
                        │                     └─ not in time: asked again, a few times, then SERVER_UNAVAILABLE
                        └─ none: assigned, or PROXY_DOES_NOT_KNOW_ANY_SERVER

It keeps nothing but its map, which servers tell it. A proxy that has just begun assigns no topic before every server
had time to claim its own: it would give away what another proxy has assigned. A server that did not answer is *silent*
until it does; meanwhile one request in `answer_ns` is let through to it and the others are answered at once, so that
whoever asks hears why in time. Where two servers claim a topic, the one with the higher id is told to give its part
away, at each of their periodic messages until it has; meanwhile a subscription is looked for at both.

Invariants
    (1) Each peer's question is answered exactly once.
    (2) A question is on its way to one server at a time.
    (3) At most `requests_max` questions, and `MERGES_MAX` requests to merge, are on their way.
Source: seed 000, sections 3 ("Communication Protocol"), 3.1.5, 3.1.6 and 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from cursus.kernel.deadlines import Deadlines
from cursus.kernel.effects import Note
from cursus.kernel.engine import Now
from cursus.kernel.errors import PeerFault, Refused
from cursus.kernel.events import DeadlineReached

from .exchange import Answer, Answered, Ask, Asked, Meet
from .mapping import Conflict, TopicMap
from .messages import (
    Get,
    Merge,
    Message,
    Periodic,
    Put,
    Status,
    StatusWord,
    Subscribe,
    Unsubscribe,
    decode_message,
    encode_message,
)

MERGES_MAX = 16
SERVERS_MAX = 1000
MILLISECOND = 1_000_000
_ANYBODYS = (Subscribe, Unsubscribe, Get, Put)
_OF_A_SUBSCRIPTION = (Unsubscribe, Get)


@dataclass(frozen=True, slots=True)
class ProxySettings:
    """How a proxy is."""

    proxy_id: str
    answer_ns: int = 100 * MILLISECOND
    """For how long an answer is waited for before the question is asked again."""
    retries_max: int = 3
    """How often it is asked again."""
    learning_ns: int = 6_000 * MILLISECOND
    """For how long nothing is assigned at first; more than servers' period."""
    servers: tuple[str, ...] = ()
    """Who may be a server, and must have said what it claims before anything is assigned. With none, anybody may, and
    `learning_ns` must have passed."""
    requests_max: int = 10_000


Event: TypeAlias = Asked | Answered | DeadlineReached
Effect: TypeAlias = Answer | Ask | Meet | Note


@dataclass(slots=True)
class _Question:
    """What is on its way to a server. Without a peer it is the proxy's own, to merge `conflict`."""

    peer: int | None
    data: bytes
    server: str
    topic: str
    is_of_a_subscription: bool = False
    conflict: Conflict | None = None
    tries: int = 1
    rivals: list[str] = field(default_factory=list)
    """Who else may know the subscription."""


class Proxy:
    """Owns the map of one proxy, and the questions that are on their way; see the module."""

    def __init__(self, settings: ProxySettings) -> None:
        """A proxy that has heard of nobody yet."""
        self.settings = settings
        self.topics = TopicMap()
        self._questions: dict[int, _Question] = {}
        self._deadlines: Deadlines[int] = Deadlines()
        self._last_token = 0
        self._began_ns: int | None = None
        self._has_learned = False
        self._silent: dict[str, tuple[int, int]] = {}
        """By server: since when it is silent (wall clock), and when it was last asked all the same (monotonic)."""
        self._to_merge: dict[Conflict, None] = {}
        self._merging: dict[Conflict, None] = {}
        self._now = Now(0, 0)
        self._effects: list[Effect] = []

    def handle(self, event: Event, now: Now) -> Sequence[Effect]:
        """Take one fact; the orders that follow from it."""
        self._now = now
        effects: list[Effect] = []
        self._effects = effects
        if self._began_ns is None:
            self._began_ns = now.monotonic_ns
        match event:
            case Asked(peer, data):
                self._asked(peer, data)
            case Answered(token, data):
                self._answered(token, data)
            case DeadlineReached():
                for token in self._deadlines.due(now.monotonic_ns):
                    self._ask_again(token)
        return effects

    def deadline(self) -> int | None:
        """When an answer is due."""
        return self._deadlines.next_ns()

    @property
    def silent(self) -> dict[str, int]:
        """Servers that do not answer, and since when (wall clock, nanoseconds)."""
        return {server: since for server, (since, _) in self._silent.items()}

    # ── what peers say ───────────────────────────────────────────────────────────────────────────────────────────────

    def _asked(self, peer: int, data: bytes) -> None:
        try:
            message = decode_message(data)
        except PeerFault as fault:
            self._say(peer, StatusWord.BAD_MESSAGE, fault.message)
            return
        if isinstance(message, Periodic):
            self._learn(peer, message)
        elif isinstance(message, _ANYBODYS):
            self._dispatch(peer, message, data)
        else:
            name = type(message).__name__.upper()
            said = f"a proxy takes SUBSCRIBE, UNSUBSCRIBE, GET, PUT and PERIODIC; {name} is for servers"
            self._say(peer, StatusWord.BAD_MESSAGE, said)

    def _learn(self, peer: int, message: Periodic) -> None:
        server, servers = message.sender, self.settings.servers
        is_new = server not in self.topics
        if (servers and server not in servers) or (is_new and len(self.topics.servers) >= SERVERS_MAX):
            said = f"{server} is none of this proxy's servers: list it under `servers`, where {len(servers)} stand"
            self._say(peer, StatusWord.REFUSED, said)
            return
        self._silent.pop(server, None)
        if is_new:
            self._effects.append(Meet(server))
        for conflict in self.topics.learn(server, message.topics):
            if conflict not in self._merging:
                self._to_merge[conflict] = None
        self._say(peer, StatusWord.OK)
        self._merge_some()

    def _dispatch(self, peer: int, message: Message, data: bytes) -> None:
        topic = message.topic  # type: ignore[union-attr]
        if len(self._questions) >= self.settings.requests_max:
            said = f"{len(self._questions)} requests are on their way, as many as may be: try again"
            self._say(peer, StatusWord.SERVER_UNAVAILABLE, said)
            return
        server = self.topics.server_of(topic)
        if server is None:
            try:
                server = self._assign(topic)
            except Refused as refusal:
                self._say(peer, StatusWord.PROXY_DOES_NOT_KNOW_ANY_SERVER, refusal.message)
                return
        is_of_a_subscription = isinstance(message, _OF_A_SUBSCRIPTION)
        question = _Question(peer, data, server, topic, is_of_a_subscription, rivals=[*self.topics.rivals_of(topic)])
        if self._is_let_through(server):
            self._ask(question)
        else:
            self._say_unavailable(question)

    def _assign(self, topic: str) -> str:
        missing = self._missing()
        if missing:
            raise Refused("learning", missing, topic=topic)
        server = self.topics.assign(topic, self._silent)
        self._effects.append(Note("info", "topic-assigned", {"topic": topic, "server": server}))
        return server

    def _missing(self) -> str:
        """What must be known before a topic is assigned, "" when it is."""
        if not self._has_learned:
            settings, known = self.settings, self.topics.servers
            assert self._began_ns is not None
            left_ns = self._began_ns + settings.learning_ns - self._now.monotonic_ns
            waits_for = [server for server in settings.servers if server not in known]
            if left_ns > 0 and (waits_for or not settings.servers):
                who = f"{', '.join(waits_for)} to say" if waits_for else "servers to say"
                return f"this proxy has just begun, and waits for {who} which topics are there: try again in a moment"
            self._has_learned = True
        return ""

    # ── questions to servers ─────────────────────────────────────────────────────────────────────────────────────────

    def _ask(self, question: _Question) -> None:
        self._last_token += 1
        self._questions[self._last_token] = question
        self._send(self._last_token, question)

    def _send(self, token: int, question: _Question) -> None:
        self._effects.append(Ask(question.server, token, question.data))
        self._deadlines.set(token, self._now.monotonic_ns + self.settings.answer_ns)

    def _ask_again(self, token: int) -> None:
        question = self._questions[token]
        if question.tries <= self.settings.retries_max:
            question.tries += 1
            self._send(token, question)
            return
        del self._questions[token]
        self._become_silent(question.server)
        # It may have come to the server all the same, which claims the topic then.
        self.topics.withdraw(question.topic)
        self._end(question)
        self._say_unavailable(question)

    def _answered(self, token: int, data: bytes) -> None:
        question = self._questions.pop(token, None)
        if question is None:
            return
        self._deadlines.clear(token)
        if self._silent.pop(question.server, None) is not None:
            self._effects.append(Note("info", "server-answers-again", {"server": question.server}))
        self._end(question)
        if question.peer is None:
            return
        if question.is_of_a_subscription and question.rivals and _says_not_subscribed(data):
            question.server, question.tries = question.rivals.pop(0), 1
            self._ask(question)
            return
        self._effects.append(Answer(question.peer, data))

    def _become_silent(self, server: str) -> None:
        if server not in self._silent:
            self._effects.append(Note("warning", "server-silent", {"server": server}))
        since_ns, _ = self._silent.get(server, (self._now.wall_ns, 0))
        self._silent[server] = (since_ns, self._now.monotonic_ns)

    def _is_let_through(self, server: str) -> bool:
        """Whether a server is asked: a silent one is, now and then."""
        if server not in self._silent:
            return True
        since_ns, last_ns = self._silent[server]
        if self._now.monotonic_ns - last_ns < self.settings.answer_ns:
            return False
        self._silent[server] = (since_ns, self._now.monotonic_ns)
        return True

    # ── conflicts ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _merge_some(self) -> None:
        while self._to_merge and len(self._merging) < MERGES_MAX:
            conflict = next(iter(self._to_merge))
            del self._to_merge[conflict]
            self._merging[conflict] = None
            self._effects.append(Note("warning", "topic-conflict", conflict._asdict()))
            data = encode_message(Merge(self.settings.proxy_id, conflict.topic, conflict.keeper))
            self._ask(_Question(None, data, conflict.giver, conflict.topic, conflict=conflict))

    def _end(self, question: _Question) -> None:
        if question.conflict is not None:
            del self._merging[question.conflict]
            self._merge_some()

    # ── answers ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _say_unavailable(self, question: _Question) -> None:
        if question.peer is None:
            return
        since_ns, _ = self._silent[question.server]
        seconds = (self._now.wall_ns - since_ns) / 1e9
        said = (
            f"{question.server}, which has the topic {question.topic}, has not answered for {seconds:.1f} s: try again"
        )
        self._say(question.peer, StatusWord.SERVER_UNAVAILABLE, said)

    def _say(self, peer: int, word: StatusWord, text: str = "") -> None:
        data = encode_message(Status(self.settings.proxy_id, word, body=text.encode(errors="backslashreplace")))
        self._effects.append(Answer(peer, data))

    def check(self) -> None:
        """The invariants of the module hold."""
        self.topics.check()
        assert len(self._questions) <= self.settings.requests_max + MERGES_MAX, "(3)"
        assert len(self._merging) <= MERGES_MAX, "(3)"
        asked = [question.conflict for question in self._questions.values() if question.conflict is not None]
        assert sorted(asked) == sorted(self._merging), "(3)"


def _says_not_subscribed(data: bytes) -> bool:
    try:
        answer = decode_message(data)
    except PeerFault:
        return False
    return isinstance(answer, Status) and answer.status == StatusWord.NOT_SUBSCRIBED
