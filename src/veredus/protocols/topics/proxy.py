"""A proxy: hands what clients say to the server that is responsible for the topic, and its answer back, unaltered.

    client ── Asked ──► the topic's server ── Ask ──► ... ── Answered ──► Answer
                        │                     └─ not in time: asked again, a few times, then SERVER_UNAVAILABLE
                        └─ none: assigned, or PROXY_DOES_NOT_KNOW_ANY_SERVER

Whoever hears nothing in time asks again, and a server that has much to do would have more: so a copy of what is on its
way is not asked beside it, but answered with it. A GET in the same words may be a new one, of a client that has
subscribed since, or left, and no answer may be older than that: where its envelope does not tell that it is a copy, it
waits, and is asked once for all who wait when the one before it was answered. They are put off with that one.

It keeps nothing but its map, which servers tell it. A proxy that has just begun assigns no topic before every server
had time to claim its own (`learning`): it would give away what another proxy has assigned. A server that did not answer
is *silent* until it does; meanwhile one request in `answer_ns` is let through to it, the others are answered at once.

Where several servers claim a topic, each one but that with the least id is told to give its part away, at each of its
periodic messages until it has. Meanwhile the topic's messages go on to the server to which they went before, so that
what a client puts stays in order; but not before it has answered: what it takes, or gives, behind its copy, the page
lets it forget. A subscription may be at any of them: GET is asked of one after the other until one knows it.
UNSUBSCRIBE is asked of all of them, and is done when it is done at each. What a server claims is as old as its last
periodic message: so nobody is told that it is not subscribed, or not any more, before every server that is known has
been asked, and every one that is listed is known. One that is away may have the subscription: try again.

Invariants
    (1) Each peer's question is answered exactly once.
    (2) A question is on its way to one server at a time.
    (3) At most `requests_max` peers wait; beside them `Conflicts` limits how many requests to merge are on their way.
    (4) Questions stand in the order in which their answers are due: every answer is waited for equally long.
    (5) Of what one sender wishes of one topic, to be subscribed or not, only the newest is asked again.
    (6) What is like the newest question of its kind, sender, topic and principal is not asked beside it.
    (7) What a server answers to a GET is told to those alone who had asked it when it was asked, and to its copies.
Source: seed 000, sections 3 ("Communication Protocol"), 3.1.5, 3.1.6 and 4; docs/decisions/0012.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from veredus.kernel.effects import Note
from veredus.kernel.engine import Now
from veredus.kernel.errors import PeerFault, Refused
from veredus.kernel.events import DeadlineReached

from .announcements import Announcements, no_server
from .asked import IN_CONFLICT, WISHES, Key, Question, is_of_proxy, unavailable_said, unheard_said, why_not_taken
from .conflicts import Conflicts
from .exchange import Answer, Answered, Ask, Asked, Meet, no_member, note_no_member
from .learning import Learning
from .mapping import Conflict, TopicMap
from .messages import (
    END_OF_HEADER,
    HEADER_SIZE_MAX,
    REASON_SIZE_MAX,
    Header,
    Merge,
    Periodic,
    Status,
    StatusWord,
    Transfer,
    decode_body,
    decode_header,
    encode_message,
    is_answer,
    says_given,
    status_word_of,
)
from .plain import plainly_asked
from .seeking import asks_on, is_unknown

MILLISECOND = 1_000_000
_HEADER_SIZE_MAX = HEADER_SIZE_MAX + len(END_OF_HEADER)
_FOUND = (StatusWord.OK, StatusWord.NO_MESSAGES)
_HAS = (*_FOUND, StatusWord.ALREADY_SUBSCRIBED)
"""What a server answers that has the topic."""


@dataclass(frozen=True, slots=True)
class ProxySettings:
    """How a proxy is."""

    proxy_id: str = ""
    """As what it speaks; empty for the address at which it listens."""
    answer_ns: int = 100 * MILLISECOND
    """For how long an answer is waited for before the question is asked again."""
    retries_max: int = 3
    """How often it is asked again."""
    learning_ns: int = 6_000 * MILLISECOND
    """For how long nothing is assigned at first; more than servers' period."""
    servers: tuple[str, ...] = ()
    """Who may be a server, and must have said what it claims before anything is assigned. With none, anybody may, and
    `learning_ns` must have passed in which it could be heard."""
    requests_max: int = 10_000
    body_size_max: int = 1 << 20
    """The largest body that is handed on."""
    topics_max: int = 40_000
    """So many topics one server may announce."""


Event: TypeAlias = Asked | Answered | DeadlineReached
Effect: TypeAlias = Answer | Ask | Meet | Note


class Proxy:
    """Owns the map of one proxy, and the questions that are on their way; see the module."""

    def __init__(self, settings: ProxySettings) -> None:
        """A proxy that has heard of nobody yet."""
        self.settings = settings
        self.topics = TopicMap()
        self._announcements = Announcements(
            settings.servers, settings.topics_max, settings.learning_ns, settings.proxy_id
        )
        self._questions: OrderedDict[int, Question] = OrderedDict()
        """By token."""
        self._newest: dict[Key, Question] = {}
        """By its kind, sender, topic and principal, the newest one on its way; to subscribe or not is one `WISH`."""
        self.peer_count = 0
        """How many peers wait for an answer."""
        self._last_token = 0
        self._learning = Learning(settings.servers, settings.learning_ns, settings.answer_ns)
        self._heard_ns: dict[str, int] = {}
        """By server, when it answered last (monotonic)."""
        self._silent: dict[str, tuple[int, int]] = {}
        """By server: since when it is silent (wall clock), and when it was last asked all the same (monotonic)."""
        self._conflicts = Conflicts()
        self._now = Now(0, 0)
        self._effects: list[Effect] = []

    def handle(self, event: Event, now: Now) -> Sequence[Effect]:
        """Take one fact; the orders that follow from it."""
        self._now = now
        effects: list[Effect] = []
        self._effects = effects
        self._learning.begin(now.monotonic_ns)
        if isinstance(event, Asked):
            self._asked(event)
        elif isinstance(event, Answered):
            self._answered(event)
        else:
            heard_ns = now.monotonic_ns if event.heard_ns is None else min(now.monotonic_ns, event.heard_ns)
            self._learning.look(heard_ns)
            self._ask_what_is_due(heard_ns)
        return effects

    def deadline(self) -> int | None:
        """When an answer is due, or it is to be looked how long the proxy has listened.

        None is ever due before the last one that was told: each answer is waited for equally long, and looks are no
        further apart.
        """
        look_ns = self._learning.deadline()
        for question in self._questions.values():
            return question.due_ns if look_ns is None else min(look_ns, question.due_ns)
        return look_ns

    @property
    def silent(self) -> dict[str, int]:
        """Servers that do not answer, and since when (wall clock, nanoseconds)."""
        return {server: since for server, (since, _) in self._silent.items()}

    # ── what peers say ───────────────────────────────────────────────────────────────────────────────────────────────

    def _asked(self, event: Asked) -> None:
        peer, data = event.peer, event.data
        if event.speaks_for and not event.is_member:
            self._effects.append(note_no_member(event, "speak-for", "principal", event.speaks_for))
            self._say(peer, StatusWord.REFUSED, no_member(event.principal))
            return
        if event.why_not:
            self._say(peer, event.why_not_as, event.why_not)
            return
        if event.is_from_proxy:
            self._say(peer, StatusWord.PROXY_DOES_NOT_KNOW_ANY_SERVER, no_server(self.settings.proxy_id))
            return
        asked = plainly_asked(data)
        if asked is not None and len(data) <= _HEADER_SIZE_MAX + self.settings.body_size_max:
            self._dispatch(event, *asked)
            return
        try:
            header = decode_header(data)
            why_not = why_not_taken(header, len(data), self.settings.body_size_max)
            if why_not:
                raise PeerFault("bad-message", why_not)
            if header.name == "PERIODIC":
                self._learn(peer, header, event)
                return
            message = decode_body(header, data)
        except PeerFault as fault:
            self._say(peer, StatusWord.BAD_MESSAGE, fault.message[:REASON_SIZE_MAX])
            return
        assert not isinstance(message, Periodic | Transfer | Status)
        self._dispatch(event, header.name, message.sender, message.topic)

    def _learn(self, peer: int, header: Header, event: Asked) -> None:
        """Hear which topics a server has. Raises `PeerFault("bad-message")`."""
        server, names, now_ns = header.word(0), event.data[header.size :], self._now.monotonic_ns
        if not event.is_member:
            self._effects.append(note_no_member(event, "announce", "server", server))
            self._say(peer, StatusWord.REFUSED, no_member(event.principal))
            return
        try:
            is_same = self._announcements.judge(server, names, event.origin, now_ns)
        except Refused as refusal:
            self._effects.append(
                Note("warning", "announcement-refused", {"code": refusal.code, "reason": refusal.message})
            )
            self._say(peer, StatusWord.REFUSED, refusal.message)
            return
        message = None if is_same and len(header.words) == 1 else decode_body(header, event.data)
        self._announcements.keep(server, names, event.origin, now_ns)
        self._hear_of(server)
        if server not in self.topics:
            self._effects.append(Meet(server))
            self._learning.hear(server)
        topics = message.topics if isinstance(message, Periodic) else None
        self._conflicts.hear(self.topics.learn(server, topics), self.topics.has)
        self._say(peer, StatusWord.OK)
        self._merge_some()

    def _dispatch(self, event: Asked, name: str, sender: str, topic: str) -> None:
        if self.peer_count >= self.settings.requests_max:
            said = f"{self.peer_count} requests are being handled, and this is the limit: try again"
            self._say(event.peer, StatusWord.SERVER_UNAVAILABLE, said)
            return
        question = Question.of(event, name, sender, topic)
        before = self._newest.get(question.key)
        if before is not None and before.data == event.data:
            before.join(event)
            self.peer_count += 1
        else:
            self._begin(question, before)

    def _begin(self, question: Question, before: Question | None = None) -> None:
        topic, key = question.topic, question.key
        self.peer_count += len(question.peers)
        server = known = self.topics.choose(topic)
        if server in self._silent:
            # It may have come to the server all the same, which claims the topic then.
            self.topics.take_back(topic, server)
            server = self.topics.choose(topic)
        if server is None:
            try:
                server = self._assign(topic)
            except Refused as refusal:
                self._answer(question, self._status(StatusWord.PROXY_DOES_NOT_KNOW_ANY_SERVER, refusal.message))
                return
        question.server = server
        question.rivals = self.topics.rivals_of(topic) if question.name in IN_CONFLICT else ()
        if before is not None and question.name in WISHES:
            # It would come behind this one.
            before.is_outdated = True
        self._newest[key] = question
        self._ask_or_say(question)
        if known is None and key not in self._newest:
            self.topics.withdraw(topic, server)  # Nobody was asked.

    def _assign(self, topic: str) -> str:
        missing = self._learning.missing(self._now.monotonic_ns)
        if missing:
            raise Refused("learning", missing, topic=topic)
        server = self.topics.assign(topic, self._silent)
        self._effects.append(Note("info", "topic-assigned", {"topic": topic, "server": server}))
        return server

    # ── questions to servers ─────────────────────────────────────────────────────────────────────────────────────────

    def _ask_or_say(self, question: Question) -> None:
        """Ask its server, or say at once that it is silent."""
        question.asked = (*question.asked, question.server)
        why_held = self._why_held(question)
        if question.is_outdated:
            self._put_off(question, why_held)
        elif why_held:
            # The answer is a moment away, as a rule.
            question.is_held = True
            self._conflicts.hold(question.topic, question.server, self._wait_for(question))
        elif self._silent and not self._is_let_through(question.server):
            self._say_unavailable(question)
        else:
            self._ask(question)

    def _why_held(self, question: Question) -> str:
        """Why it is asked no further, "" where it is."""
        if question.is_outdated:
            return f"{question.sender} has asked to subscribe to {question.topic}, or not to be subscribed, since"
        is_own = question.conflict is not None
        return "" if is_own else self._conflicts.why_held(question.topic, question.server, self._now.monotonic_ns)

    def _ask(self, question: Question) -> None:
        self._say_to_server(self._wait_for(question), question)

    def _wait_for(self, question: Question) -> int:
        self._last_token += 1
        self._questions[self._last_token] = question
        question.due_ns = self._now.monotonic_ns + self.settings.answer_ns
        return self._last_token

    def _say_to_server(self, token: int, question: Question) -> None:
        self._effects.append(Ask(question.server, token, question.said or question.data, question.principal))

    def _ask_held(self, questions: Iterable[Question]) -> None:
        """Ask what waited for a giver's answer: of the server that the topic is at now."""
        for question in questions:
            question.is_held = False
            *before, server = question.asked
            question.asked = tuple(before)
            chosen = self.topics.choose(question.topic)
            if not before and chosen not in (None, server):
                question.server = str(chosen)
                question.rivals = self.topics.rivals_of(question.topic) if question.name in IN_CONFLICT else ()
            self._ask_or_say(question)

    def _ask_what_is_due(self, heard_ns: int) -> None:
        """Ask again, or give up, what was not answered in what had come by then."""
        while self._questions:
            token, question = next(iter(self._questions.items()))
            if question.due_ns > heard_ns:
                return
            del self._questions[token]
            why_held = self._why_held(question)
            if why_held or question.tries > self.settings.retries_max:
                self._put_off(question, why_held) if why_held else self._give_up(question, heard_ns)
                continue
            if question.is_held:
                self._ask_held((question,))
                continue
            question.tries += 1
            question.due_ns = self._now.monotonic_ns + self.settings.answer_ns
            self._questions[token] = question
            # One that answers others has much to do, and would have more: it is asked again the last time only.
            if question.tries > self.settings.retries_max or not self._is_heard(question.server, heard_ns):
                self._say_to_server(token, question)

    def _is_heard(self, server: str, by_ns: int) -> bool:
        """Whether a server has answered something of late, as far as it was read."""
        return by_ns - self._heard_ns.get(server, -self.settings.answer_ns) < self.settings.answer_ns

    def _give_up(self, question: Question, by_ns: int) -> None:
        if not self._is_heard(question.server, by_ns):
            if question.server not in self._silent:
                self._effects.append(Note("warning", "server-silent", {"server": question.server}))
            unheard_ns = self._now.monotonic_ns - self._heard_ns.get(question.server, 0)
            asked_ns = self._now.wall_ns - min(unheard_ns, question.tries * self.settings.answer_ns)
            since_ns, _ = self._silent.get(question.server, (asked_ns, 0))
            self._silent[question.server] = (since_ns, self._now.monotonic_ns)
        self._say_unavailable(question)

    def _answered(self, event: Answered) -> None:
        data, question = event.data, self._questions.pop(event.token, None) if is_answer(event.data) else None
        if question is None:
            # It was given up, but who answers late is not silent.
            if event.server in self.topics and is_answer(data) and not is_of_proxy(data):
                self._hear_answer(event.server)
            return
        if is_of_proxy(data):
            self._drop(question)
            return
        self._hear_answer(question.server)
        if self.topics.is_unsure(question.topic, question.server) and status_word_of(data) in _HAS:
            self.topics.confirm(question.topic, question.server)
        if question.conflict is not None:
            if says_given(data):
                self.topics.note_given(question.topic, question.server)
            waiting = self._conflicts.release(question.topic, question.server)
            self._effects += self._conflicts.note_answered(question.conflict, data, self._now.monotonic_ns)
            self._ask_held([self._questions.pop(held) for held in waiting if held in self._questions])
            self._end_merge(question.conflict)
        elif question.home or is_unknown(question, data):
            self._seek(question, data)
        elif question.rivals or question.done or question.is_beyond or question.may_be_elsewhere(data):
            self._answered_in_conflict(question, data)
        else:
            self._answer(question, data)

    def _seek(self, question: Question, data: bytes) -> None:
        """A server does not know the id that is named: maybe another one does, or nothing is owed under it."""
        if asks_on(question, data, self.topics, self.settings.servers):
            self._ask_or_say(question)
        else:
            self._answer(question, data)

    def _drop(self, question: Question) -> None:
        """A proxy has answered, maybe this one itself, at what was taken for the address of a server."""
        server = question.server
        if server in self.topics:
            self._effects.append(Note("warning", "no-server-but-proxy", {"server": server}))
            self._announcements.note_proxy(server, self._now.monotonic_ns)
            self.topics.drop(server)
            self._conflicts.hear((), self.topics.has)
            self._learning.forget(server)
        self._put_off(question, f"{no_server(server)}: try again, and set topics.id of the server that says so")

    def _answered_in_conflict(self, question: Question, data: bytes) -> None:
        """One of several servers that claim the topic, or may have it, has answered."""
        status = status_word_of(data)
        is_done = status == StatusWord.OK and question.name == "UNSUBSCRIBE"
        if question.is_beyond and status in _FOUND and not question.done:
            self.topics.find(question.topic, question.server)
        if is_done and not question.done:
            question.done = data
        if not is_done and status != StatusWord.NOT_SUBSCRIBED:
            self._answer(question, data)
        elif question.is_outdated and not set(self.topics.servers) <= set(question.asked):
            self._put_off(question, self._why_held(question))
        elif question.rivals:
            question.server, *question.rivals = question.rivals
            question.tries = 1
            self._ask_or_say(question)
        elif not self._ask_another(question):
            if self._learning.unheard:
                unheard = unheard_said(question, self._learning.unheard)
                self._answer(question, self._status(StatusWord.SERVER_UNAVAILABLE, unheard))
            else:
                self._answer(question, question.done or data)

    def _ask_another(self, question: Question) -> bool:
        """Ask the next server that did not claim the topic, but may have it by now. Whether there is one."""
        another = next((server for server in self.topics.servers if server not in question.asked), None)
        if another is None:
            return False
        question.server, question.tries, question.is_beyond = another, 1, True
        self._ask_or_say(question)
        return True

    def _hear_answer(self, server: str) -> None:
        self._heard_ns[server] = self._now.monotonic_ns
        self._hear_of(server)

    def _hear_of(self, server: str) -> None:
        """A server is there."""
        if self._silent.pop(server, None) is not None:
            self._effects.append(Note("info", "server-answers-again", {"server": server}))

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
        for conflict in self._conflicts.next_to_merge():
            self._effects += self._conflicts.note_asked(conflict, self._now.monotonic_ns)
            data = encode_message(Merge(self.settings.proxy_id, conflict.topic, conflict.keeper))
            self._ask(Question([], "MERGE", "", conflict.topic, data, conflict.giver, conflict=conflict))

    def _end_merge(self, conflict: Conflict) -> None:
        self._conflicts.end(conflict)
        self._merge_some()

    # ── answers ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _answer(self, question: Question, data: bytes) -> None:
        self._effects += [Answer(peer, data) for peer in question.peers]
        self.peer_count -= len(question.peers)
        if self._newest.get(question.key) is question:
            del self._newest[question.key]
        if question.waiting:
            self.peer_count -= len(question.waiting)
            self._begin(question.anew())

    def _put_off(self, question: Question, text: str) -> None:
        if question.conflict is not None:
            self._end_merge(question.conflict)
            return
        question.join_waiting()
        self._answer(question, self._status(StatusWord.SERVER_UNAVAILABLE, text))

    def _say_unavailable(self, question: Question) -> None:
        since_ns, _ = self._silent.get(question.server, (0, 0))
        self._put_off(question, unavailable_said(question, self._now.wall_ns - since_ns if since_ns else 0))

    def _say(self, peer: int, word: StatusWord, text: str = "") -> None:
        self._effects.append(Answer(peer, self._status(word, text)))

    def _status(self, word: StatusWord, text: str) -> bytes:
        return encode_message(Status(self.settings.proxy_id, word, body=text.encode(errors="backslashreplace")))

    def check(self) -> None:
        """The invariants of the module hold."""
        self.topics.check()
        self._announcements.check()
        questions = list(self._questions.values())
        assert self.peer_count == sum(len(one.peers) + len(one.waiting) for one in questions), "(3)"
        assert self.peer_count <= self.settings.requests_max, "(3)"
        self._conflicts.check()
        merging = sorted(self._conflicts.merging)
        assert sorted(one.conflict for one in questions if one.conflict) == merging, "(3)"
        assert all(any(newest is question for question in questions) for newest in self._newest.values()), "(5), (6)"
        assert all(bool(question.peers) == (question.conflict is None) for question in questions), "(1)"
        due_ns = [question.due_ns for question in questions]
        assert due_ns == sorted(due_ns), "(4)"
