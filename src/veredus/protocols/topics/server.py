"""A server: judges what it is asked, hands it to the parts that own it, and tells the proxies which topics it has.

    Asked ──► PUT ──► Puts ──┐                       ┌──► Answer
          ──► GET … ─► Gets ─┼──► the streams floor ─┤
          ──► MERGE, TRANSFER ─► Merging ────────────┘──► Ask another server
    each period: `announcing` ──► PERIODIC ──► Ask each proxy

Topics are the streams of the node. A topic is *held* while it moves to or from another server: what is asked of it
waits until it can be answered here, or is passed on to where it went.

Invariants
    (1) Each question is answered exactly once.
    (2) At most `requests_max` questions are in hand.
    (3) A topic is handed to `held` when nothing of it is in hand, and no session of it is open.
Source: seed 000, sections 2 to 5; docs/decisions/0012.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

from veredus.kernel.deadlines import Deadlines
from veredus.kernel.effects import CloseLink, Note
from veredus.kernel.engine import Now
from veredus.kernel.errors import PeerFault
from veredus.kernel.events import DeadlineReached, LinkClosed, LinkOpened
from veredus.protocols.links import NOTHING, DrainRequested, Unfinished, session_of
from veredus.streams import exchange as x
from veredus.streams.rights import LOCAL

from .announcing import Announcing, Pace
from .desk import AdminThen, Part
from .exchange import Answer, Answered, Asked, LateAnswer, Meet, no_member, note_no_member
from .getting import GetEnded, Gets
from .merging import Merging
from .messages import (
    REASON_SIZE_MAX,
    Header,
    Merge,
    Message,
    Periodic,
    Put,
    PutMany,
    Status,
    StatusWord,
    Transfer,
    Unsubscribe,
    decode_body,
    decode_header,
    encode_message,
    why_not_for,
)
from .putting import PutEnded, Puts
from .questions import Questions, Then
from .transfer import PART_COUNT_MAX

_OWN, _PUTS, _GETS, _MOVES = 0, 1, 2, 3
_KINDS_COUNT = 4
"""Whose a session is, its number says: the rest of it when divided by this."""
_OF_MEMBERS = ("MERGE", "TRANSFER")
_TAKEN = ("SUBSCRIBE", "UNSUBSCRIBE", "GET", "GET_MANY", "PUT", "PUT_MANY", *_OF_MEMBERS)
HELD_NS = 300_000_000
"""How long a question waits for a topic that is held; a proxy waits a little longer."""
LATE_SIZE_MIN = 16 << 10
"""A body of so many bytes is packed only when there is room for it on the connection of whoever asked."""
_PASSED_ON_PERIODS = 4
"""For so many periods a topic that went to another server is asked for there: by then every proxy knows it."""


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """How a server is; `server_id` is the address at which proxies and other servers reach it."""

    server_id: str
    proxies: tuple[str, ...] = ()
    servers: tuple[str, ...] = ()
    """Who may give topics; with none, anybody."""
    answer_ns: int = 100_000_000
    retries_max: int = 3
    period_ns: int = 5_000_000_000
    body_size_max: int = 1 << 20
    sessions_max: int = 20_000
    requests_max: int = 10_000
    principal: str = LOCAL
    """Whom the streams floor takes those for who have proved nothing."""
    own_principal: str = ""
    """As whom the server announces and merges topics, "" for the same."""
    part_count_max: int = PART_COUNT_MAX
    """So many rows of a topic that is given away are in one TRANSFER."""


@dataclass(slots=True)
class _InHand:
    topic: str
    message: Message
    data: bytes
    principal: str
    """"" for somebody who has proved nothing."""
    origin: bytes
    """What tells its connection from others."""


@dataclass(slots=True)
class _Held:
    """A topic that is on its way elsewhere, or arrives."""

    since_ns: int
    then: Callable[[Now], None] | None
    """Called once nothing of the topic is in hand."""
    why: str
    waiting: dict[int, None] = field(default_factory=dict)
    """Peers, in the order in which they asked."""


class Server:
    """Owns what a server has in hand; see the module for the picture."""

    is_timed_by_answers: ClassVar[bool] = True

    def __init__(self, link: int, settings: ServerSettings, new_incarnation: Callable[[], bytes]) -> None:
        """The server on link number `link` of its node; it begins with `LinkOpened`."""
        self.link = link
        self.settings = settings
        self.server_id = settings.server_id
        self.principal = settings.own_principal or settings.principal
        self.askers: set[str] = set()
        """The principals for whom something was asked."""
        self.part_count_max = settings.part_count_max
        self.new_incarnation = new_incarnation
        most = settings.sessions_max
        self.puts = Puts(partial(self._open, _PUTS), new_incarnation, settings.body_size_max, most)
        self._questions = Questions(self.order)
        self._announcing = Announcing(
            self,
            self._questions,
            settings.proxies,
            Pace(settings.period_ns, settings.answer_ns, settings.retries_max),
        )
        self._merging = Merging(self, settings.servers)
        self.gets = Gets(partial(self._open, _GETS), new_incarnation, most, settings.body_size_max)
        self._parts: dict[int, Part] = {}
        """Who is told what comes to the sessions of topics that move."""
        self._last_channel = 0
        self._in_hand: dict[int, _InHand] = {}
        self._in_hand_of: Counter[str] = Counter()
        """How much of each topic is in hand."""
        self._held: dict[str, _Held] = {}
        self._waits: Deadlines[int] = Deadlines()
        """How long peers wait for topics that are held."""
        self._passed_on: dict[str, tuple[str, int]] = {}
        """By topic: to whom, and until when (monotonic)."""
        self._administered: dict[int, AdminThen] = {}
        self._last_request = 0
        self._is_draining = False
        self._effects: list[object] = []

    def handle(self, event: object, now: Now) -> Sequence[object]:
        """Take one fact; the orders that follow from it."""
        effects: list[object] = []
        self._effects = effects
        handler = _HANDLERS.get(type(event))
        if handler is not None:
            handler(self, event, now)
        return effects

    def deadline(self) -> int | None:
        """When the proxies are to be told, or an answer is due."""
        due = self._announcing.deadline()
        for at in (self._questions.deadline(), self._waits.next_ns(), self._merging.deadline()):
            if due is None or (at is not None and at < due):
                due = at
        return due

    # ── what the node says ───────────────────────────────────────────────────────────────────────────────────────────

    def _begin(self, event: LinkOpened, now: Now) -> None:
        self._effects += [Meet(proxy) for proxy in self.settings.proxies]
        if not self.settings.proxies:
            self.note("warning", "no-proxies", reason="no client finds this server: list the proxies in topics.proxies")
        self._announcing.begin(now)
        self._merging.begin()

    def _end(self, event: LinkClosed, now: Now) -> None:
        sessions = [*self.puts.by_session, *self.gets.by_session, *self._parts, session_of(self.link, _OWN)]
        self._effects += [x.SessionClosed(session) for session in sessions]

    @property
    def unfinished(self) -> Unfinished:
        """Nothing: what comes are whole messages."""
        return NOTHING

    @property
    def unread_size(self) -> int:
        """Nothing: what comes is read at once."""
        return 0

    def _drain(self, event: DrainRequested, now: Now) -> None:
        self._is_draining = True
        self._announcing.stop()
        self._leave()

    def _leave(self) -> None:
        """Close the link once nothing is in hand any more."""
        if self._is_draining and not self._in_hand:
            self._effects.append(CloseLink(self.link, "drained"))

    def _wake(self, event: DeadlineReached, now: Now) -> None:
        if self._announcing.wake(now):
            for topic in [topic for topic, (_, until) in self._passed_on.items() if until <= now.monotonic_ns]:
                del self._passed_on[topic]
        self._questions.wake(now)
        self._merging.wake(now)
        for peer in self._waits.due(now.monotonic_ns):
            self._wait_no_longer(peer, now)

    # ── questions ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _asked(self, event: Asked, now: Now) -> None:
        peer = event.peer
        if event.why_not:
            self.answer(peer, event.why_not_as, event.why_not.encode(errors="backslashreplace"))
            return
        try:
            header = decode_header(event.data)
            if header.name not in _TAKEN:
                raise PeerFault("bad-message", why_not_for("a server", _TAKEN, "proxies", header.name))
        except PeerFault as fault:
            self._say_bad(peer, fault)
            return
        if not event.is_member and (event.speaks_for or header.name in _OF_MEMBERS):
            self._effects.append(note_no_member(event, *_for_members(event, header)))
            self.answer(peer, StatusWord.REFUSED, no_member(event.principal).encode())
        elif self._is_draining:
            self.answer(peer, StatusWord.SERVER_UNAVAILABLE, f"{self.server_id} is stopping: try again".encode())
        elif len(self._in_hand) >= self.settings.requests_max:
            said = f"{len(self._in_hand)} requests are being handled, and this is the limit: try again"
            self.answer(peer, StatusWord.SERVER_UNAVAILABLE, said.encode())
        else:
            self._read(header, event, now)

    def _read(self, header: Header, event: Asked, now: Now) -> None:
        """Take what nothing in its header speaks against."""
        peer = event.peer
        try:
            message = decode_body(header, event.data)
        except PeerFault as fault:
            self._say_bad(peer, fault)
            return
        if isinstance(message, Merge):
            self._merging.merge(peer, message, now)
        elif isinstance(message, Transfer):
            self._merging.transfer(peer, message, now)
        else:
            assert not isinstance(message, Periodic | Status)
            in_hand = self._in_hand[peer] = _InHand(
                message.topic, message, event.data, event.speaks_for or event.principal, event.origin
            )
            self._in_hand_of[message.topic] += 1
            self._take(peer, in_hand, now)

    def _say_bad(self, peer: int, fault: PeerFault) -> None:
        said = fault.message[:REASON_SIZE_MAX].encode(errors="backslashreplace")
        self.answer(peer, StatusWord.BAD_MESSAGE, said)

    def asker_of(self, session: int) -> int:
        """The connection of whoever is to be answered by what is said to a session, 0 where nobody is."""
        asking = self.puts.by_session.get(session) or self.gets.by_session.get(session)
        in_hand = None if asking is None else self._in_hand.get(asking.asker)
        return 0 if in_hand is None else int.from_bytes(in_hand.origin)

    def _take(self, peer: int, in_hand: _InHand, now: Now) -> None:
        """Hand a question on, unless its topic is on its way."""
        topic, message = in_hand.topic, in_hand.message
        principal = in_hand.principal or self.settings.principal
        self.askers.add(principal)
        held = self._held.get(topic)
        if held is not None:
            held.waiting[peer] = None
            self._waits.set(peer, now.monotonic_ns + HELD_NS)
        elif topic in self._passed_on and not isinstance(message, Unsubscribe):
            self._pass_on(peer, in_hand, now)
        elif isinstance(message, Put | PutMany):
            self._follow(self.puts.ask(peer, message, principal, now), now)
        else:
            self._follow(self.gets.ask(peer, message, principal, now), now)  # type: ignore[arg-type]

    def _told(self, event: Any, now: Now) -> None:
        """The streams floor says something to one of the sessions."""
        kind = event.session % _KINDS_COUNT
        if kind == _PUTS:
            self._follow(self.puts.handle(event, now), now)
        elif kind == _GETS:
            self._follow(self.gets.handle(event, now), now)
        elif kind == _MOVES:
            part = self._parts.get(event.session)
            if part is not None:
                part(event, now)
        elif isinstance(event, x.AnswerAdmin | x.Refuse):
            then = self._administered.pop(event.request, None)
            if then is not None:
                then(event, now)

    def _follow(self, effects: Sequence[object], now: Now) -> None:
        for effect in effects:
            if isinstance(effect, PutEnded):
                last = "" if effect.last is None else str(effect.last)
                status = Status(self.server_id, effect.status, last, effect.text.encode())
                self._ended(Answer(effect.peer, encode_message(status)), now)
            elif isinstance(effect, GetEnded) and self._is_to_leave_there(effect):
                self._pass_on(effect.peer, self._in_hand[effect.peer], now)
            elif isinstance(effect, GetEnded):
                status = Status(self.server_id, effect.status, effect.message_id)
                answer = LateAnswer(effect.peer, status, effect.body or effect.text.encode())
                self._ended(answer if answer.size >= LATE_SIZE_MIN else Answer(answer.peer, answer.data), now)
            else:
                self._effects.append(effect)

    def _is_to_leave_there(self, ended: GetEnded) -> bool:
        """Whether an UNSUBSCRIBE, which no late SUBSCRIBE undoes here any more, is for whoever has the topic now."""
        in_hand = self._in_hand[ended.peer]
        is_leaving = isinstance(in_hand.message, Unsubscribe) and in_hand.topic in self._passed_on
        return is_leaving and ended.status == StatusWord.NOT_SUBSCRIBED

    def _ended(self, answer: Answer | LateAnswer, now: Now) -> None:
        in_hand = self._in_hand.pop(answer.peer)
        self._in_hand_of[in_hand.topic] -= 1
        if not self._in_hand_of[in_hand.topic]:
            del self._in_hand_of[in_hand.topic]
        self._effects.append(answer)
        held = self._held.get(in_hand.topic)
        if held is not None and held.then is not None:
            self._look_if_held(in_hand.topic, held, now)
        if self._is_draining:
            self._leave()

    def answer(self, peer: int, word: StatusWord, body: bytes = b"") -> None:
        """Answer whoever asked what is not in hand."""
        self._effects.append(self._status(peer, word, body))

    def _status(self, peer: int, word: StatusWord, body: bytes) -> Answer:
        return Answer(peer, encode_message(Status(self.server_id, word, "", body)))

    # ── topics that move ─────────────────────────────────────────────────────────────────────────────────────────────

    def hold(self, topic: str, why: str, then: Callable[[Now], None], now: Now) -> None:
        """Let what is asked of a topic wait; `then` is called when nothing of it is in hand or open any more."""
        held = self._held[topic] = _Held(now.wall_ns, then, why)
        self._look_if_held(topic, held, now)

    def _look_if_held(self, topic: str, held: _Held, now: Now) -> None:
        if self._in_hand_of[topic] > len(held.waiting):
            return
        sessions = [*self.puts.forget(topic), *self.gets.forget(topic)]
        self._effects += [x.SessionClosed(session) for session in sessions]
        then, held.then = held.then, None
        assert then is not None
        then(now)

    def release(self, topic: str, now: Now) -> None:
        """Take what is asked of the topic again, first what has waited."""
        for peer in self._held.pop(topic).waiting:
            self._waits.clear(peer)
            self._take(peer, self._in_hand[peer], now)

    def _wait_no_longer(self, peer: int, now: Now) -> None:
        """Whoever asked would take the server for silent: say why there is no answer yet."""
        held = self._held[self._in_hand[peer].topic]
        del held.waiting[peer]
        seconds = (now.wall_ns - held.since_ns) / 1e9
        said = f"{held.why}, for {seconds:.1f} s: try again".encode()
        self._ended(self._status(peer, StatusWord.SERVER_UNAVAILABLE, said), now)

    def pass_on(self, topic: str, address: str, now: Now) -> None:
        """The topic went to the server at `address`: ask there what is asked of it here."""
        until_ns = now.monotonic_ns + _PASSED_ON_PERIODS * self.settings.period_ns
        self._passed_on[topic] = (address, until_ns)
        self.release(topic, now)

    def _pass_on(self, peer: int, in_hand: _InHand, now: Now) -> None:
        address, _ = self._passed_on[in_hand.topic]
        then = partial(self._passed, peer, in_hand.topic, address)
        settings = self.settings
        self._questions.ask(
            address, in_hand.data, then, now, settings.answer_ns, settings.retries_max, in_hand.principal
        )

    def _passed(self, peer: int, topic: str, address: str, status: Status | None, now: Now) -> None:
        if status is None:
            said = f"{topic} was moved from {self.server_id} to {address}, which does not answer: try again"
            status = Status(self.server_id, StatusWord.SERVER_UNAVAILABLE, "", said.encode())
        self._ended(Answer(peer, encode_message(status)), now)

    # ── others ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def announce(self) -> None:
        """Tell each proxy which topics are there."""
        self._announcing.announce()

    def ask(self, address: str, data: bytes, then: Then, now: Now) -> None:
        """Ask a proxy or another server; `then` hears what it says."""
        self._questions.ask(address, data, then, now, self.settings.answer_ns, self.settings.retries_max)

    def _answered(self, event: Answered, now: Now) -> None:
        self._questions.answer(event.token, event.data, now)

    def administer(self, verb: str, arguments: dict[str, object], then: AdminThen) -> None:
        """Ask the streams floor; `then` hears what it says."""
        self._last_request += 1
        self._administered[self._last_request] = then
        session = session_of(self.link, _OWN)
        self._effects.append(x.AdminRequested(session, self._last_request, self.principal, verb, arguments))

    def note(self, level: str, event: str, **fields: object) -> None:
        """Write a line to the log."""
        self._effects.append(Note(level, event, fields))

    def order(self, effect: object) -> None:
        """Give an order to the streams floor, or to the host."""
        self._effects.append(effect)

    def learn(self, topic: str, client: str, counter: int, digest: bytes) -> None:
        """A client has put up to this counter, elsewhere."""
        self.puts.learn(topic, client, counter, digest)

    def open(self, part: Part) -> int:
        """A session for a topic that moves; `part` is told what comes to it."""
        session = self._open(_MOVES)
        self._parts[session] = part
        return session

    def close(self, session: int) -> None:
        """A session for a topic that moves is over."""
        if self._parts.pop(session, None) is not None:
            self._effects.append(x.SessionClosed(session))

    def _open(self, kind: int) -> int:
        self._last_channel += _KINDS_COUNT
        return session_of(self.link, self._last_channel + kind)

    def check(self) -> None:
        """The invariants of the module hold."""
        self.puts.check()
        self.gets.check()
        assert len(self._in_hand) <= self.settings.requests_max, "(2)"
        assert self._in_hand_of == Counter(asked.topic for asked in self._in_hand.values()), "(3)"


def _for_members(asked: Asked, header: Header) -> tuple[str, str, str]:
    """What only members may do of this: a verb, on what kind of thing, and its name."""
    if header.name in _OF_MEMBERS:
        return header.name.lower(), "topic", header.word(1)
    return "speak-for", "principal", asked.speaks_for


_HANDLERS: dict[type, Callable[[Server, Any, Now], None]] = {
    Asked: Server._asked,
    Answered: Server._answered,
    LinkOpened: Server._begin,
    LinkClosed: Server._end,
    DrainRequested: Server._drain,
    DeadlineReached: Server._wake,
    **dict.fromkeys(
        (
            x.GrantSource, x.ConfirmTaken, x.RefuseBatch, x.GrantSubscription, x.Push, x.PushProgress, x.PushGap,
            x.ConfirmSettled, x.GrantRun, x.GrantStage, x.ConfirmCommitted, x.AnswerAdmin, x.Refuse, x.Fence,
        ),
        Server._told,
    ),
}  # fmt: skip
