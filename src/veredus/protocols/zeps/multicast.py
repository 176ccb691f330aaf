"""A stream's live publications as datagrams for a multicast group: from the newest on, never from history.

    ASKING ── granted ──► FEEDING ── the stream is gone ──► RESTING ── after a while ──► ASKING
       └────── refused ──────────────────────────────────────┘

ASKING   The subscription is asked for, from the head: what is multicast is live.
FEEDING  Each publication that is durable leaves once, whole, in a datagram; in silence the node announces where it is.
RESTING  There is no such stream now, or it may not be read: the node asks again after an announcement's time.

A datagram may be lost, doubled or overtaken on its way. It says which sequence comes behind it, so a receiver sees what
it has missed, also a publication that is larger than a datagram, and gets that from the journal by a connection.

Invariants
    (1) `next` never falls while the stream's incarnation and term stay the same.
    (2) What lies below `next` is durable, and was either sent or is to be had from the journal.
    (3) Credit comes back to the streams floor as soon as a push was sent. What waits for that, until the link has had
        its turns, is at most what `WINDOW_SIZE` of credit let the streams floor push, and its orders keep their order.
Source: seed 004, "Multicast Output"; docs/reference/wire/zeps-1-multicast.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, TypeAlias

from veredus.kernel.effects import CloseLink, Note, Send
from veredus.kernel.engine import Now
from veredus.kernel.events import DeadlineReached, LinkClosed, LinkOpened
from veredus.kernel.symbol import Symbol
from veredus.kernel.turns import QUANTUM_NS
from veredus.protocols.links import (
    NOTHING,
    SESSION_BITS,
    DrainRequested,
    TurnGiven,
    TurnWanted,
    Unfinished,
    WorkDone,
    session_of,
)
from veredus.streams import exchange as x
from veredus.streams.rights import MULTICAST

from .datagrams import encode_datagram, head_size_of, sequence_of
from .packing import OCTET_NS, Command, Unpacker
from .payloads import Payloads

WINDOW_SIZE = 1 << 20
_EVERYTHING = 1 << 62


class Phase(Symbol):
    """Where the feed stands; see the module."""

    WAITING = "waiting"
    ASKING = "asking"
    FEEDING = "feeding"
    RESTING = "resting"
    CLOSED = "closed"


_Order: TypeAlias = x.Push | x.PushProgress | x.PushGap | x.Refuse | x.EndSubscription


class Multicaster:
    """Owns one stream's feed to a group; see the module for the picture. One `Send` is one datagram."""

    is_timed_by_answers: ClassVar[bool] = True
    __slots__ = (
        "_announce_interval_ns", "_channel", "_due_ns", "_effects", "_incarnation", "_is_turn_wanted", "_name", "_next",
        "_orders", "_pushing", "_session", "_size_max", "_stream", "_term", "_unpacker", "link", "phase",
    )  # fmt: skip

    def __init__(self, link: int, stream: str, datagram_size_max: int, announce_interval_ns: int) -> None:
        """The feed of `stream` on link number `link`, in datagrams of at most so many bytes."""
        self.link = link
        self.phase = Phase.WAITING
        self._stream = stream
        self._name = stream.encode()
        self._size_max = datagram_size_max
        self._announce_interval_ns = announce_interval_ns
        self._channel = 0
        self._session = 0
        self._due_ns: int | None = None
        self._incarnation = bytes(16)
        self._term = 0
        self._next = 0
        self._orders: deque[_Order] = deque()
        """What the streams floor has said and waits for a turn."""
        self._pushing: x.Push | None = None
        """Of what the unpacker has the rest."""
        self._unpacker = Unpacker(Payloads())
        self._is_turn_wanted = False
        self._effects: list[object] = []

    def handle(self, event: object, now: Now) -> Sequence[object]:
        """Take one fact about the link, or one order of the streams floor for its session."""
        handler = _HANDLERS[self.phase].get(type(event))
        if handler is not None and getattr(event, "session", self._session) == self._session:
            handler(self, event, now)
        effects, self._effects = self._effects, []
        return effects

    @property
    def unfinished(self) -> Unfinished:
        """Nothing: nobody says anything to a group."""
        return NOTHING

    @property
    def unread_size(self) -> int:
        """Nothing: what comes is read at once."""
        return 0

    def deadline(self) -> int | None:
        """When to announce, or to ask again."""
        return self._due_ns

    # ── the feed ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _ask(self, event: object, now: Now) -> None:
        self.phase = Phase.ASKING
        self._due_ns = None
        self._channel = self._channel % ((1 << SESSION_BITS) - 1) + 1
        self._session = session_of(self.link, self._channel)
        start = x.Start(x.StartKind.HEAD)
        request = x.SubscribeRequested(
            self._session, MULTICAST, self._stream, start=start, credit=WINDOW_SIZE, octet_ns=OCTET_NS
        )
        self._effects.append(request)

    def _begin(self, said: x.GrantSubscription, now: Now) -> None:
        self.phase = Phase.FEEDING
        self._incarnation, self._term, self._next = said.stream_incarnation, said.term, said.position
        self._announce(said, now)

    def _announce(self, event: object, now: Now) -> None:
        self._send([], self._next)
        self._due_ns = now.monotonic_ns + self._announce_interval_ns

    def _obey(self, order: _Order, now: Now) -> None:
        self._orders.append(order)
        if not self._is_turn_wanted:
            self._work(now)

    def _go_on(self, event: TurnGiven, now: Now) -> None:
        self._is_turn_wanted = False
        self._work(now)

    def _work(self, now: Now) -> None:
        """Obey the orders that wait, as far as one turn goes."""
        spent_ns = 0
        while self._orders and spent_ns < QUANTUM_NS:
            order = self._orders.popleft()
            _ORDERS[type(order)](self, order, now)
            cost_ns = self._unpacker.take_cost()
            if cost_ns:
                self._effects.append(WorkDone(self.link, cost_ns))
                spent_ns += cost_ns
        if self._orders:
            self._is_turn_wanted = True
            self._effects.append(TurnWanted(self.link, is_behind=True))

    def _push(self, said: x.Push, now: Now) -> None:
        if self._pushing is not said:
            self._pushing = said
            self._unpacker.add(said.buffers, ())
        commands, _ = self._unpacker.take(_EVERYTHING)
        for run in self._runs_of(commands):
            self._send(run, sequence_of(run[-1]) + 1)
        if self._unpacker.is_empty:
            self._pushing = None
            self._end_push(said)
        else:
            self._orders.appendleft(said)
        self._due_ns = now.monotonic_ns + self._announce_interval_ns

    def _end_push(self, said: x.Push) -> None:
        self._effects.append(x.CreditGranted(self._session, said.size + x.PUSH_OVERHEAD))
        if self._next <= said.last_sequence:
            # What came last is too large for a datagram: who waits for it is told that it is there.
            self._send([], said.last_sequence + 1)

    def _runs_of(self, commands: list[Command]) -> Iterator[list[bytes]]:
        """The commands by datagrams, without those that none can hold."""
        room = self._size_max - head_size_of(self._name)
        run: list[bytes] = []
        size = 0
        for command in commands:
            if not isinstance(command, bytes) or len(command) > room:
                continue
            if size + len(command) > room:
                yield run
                run, size = [], 0
            run.append(command)
            size += len(command)
        if run:
            yield run

    def _send(self, commands: list[bytes], next_sequence: int) -> None:
        self._next = next_sequence
        datagram = encode_datagram(self._incarnation, self._term, next_sequence, self._name, commands)
        self._effects.append(Send(self.link, (datagram,)))

    def _pass_gap(self, said: x.PushGap, now: Now) -> None:
        self._send([], said.next_sequence)

    def _pass_progress(self, said: x.PushProgress, now: Now) -> None:
        self._next = said.position

    def _rest(self, said: x.Refuse | x.EndSubscription, now: Now) -> None:
        if isinstance(said, x.Refuse):
            fields: dict[str, object] = {"stream": self._stream, "code": said.code, "reason": said.message}
            self._effects.append(Note("info", "multicast-waits", fields))
        self.phase = Phase.RESTING
        self._session = 0
        self._due_ns = now.monotonic_ns + self._announce_interval_ns

    def _retry(self, event: DeadlineReached, now: Now) -> None:
        if self._due_ns is not None and now.monotonic_ns >= self._due_ns:
            self._ask(event, now)

    def _watch(self, event: DeadlineReached, now: Now) -> None:
        if self._due_ns is not None and now.monotonic_ns >= self._due_ns:
            self._announce(event, now)

    # ── the end ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _drain(self, event: DrainRequested, now: Now) -> None:
        self._lose(event, now)
        self._effects.append(CloseLink(self.link, "draining"))

    def _lose(self, event: object, now: Now) -> None:
        if self._session:
            self._effects.append(x.SessionClosed(self._session))
        self._session = 0
        self.phase = Phase.CLOSED
        self._due_ns = None
        self._orders.clear()
        self._unpacker = Unpacker(Payloads())


_Handler: TypeAlias = Callable[[Multicaster, Any, Now], None]

_END: dict[type, _Handler] = {DrainRequested: Multicaster._drain, LinkClosed: Multicaster._lose}
_REFUSED: dict[type, _Handler] = {
    x.Refuse: Multicaster._rest,
    x.EndSubscription: Multicaster._rest,
}
_ORDERS: dict[type, _Handler] = {
    **_REFUSED,
    x.Push: Multicaster._push,
    x.PushProgress: Multicaster._pass_progress,
    x.PushGap: Multicaster._pass_gap,
}
"""What is obeyed where the stream is fed, in the order in which it is said."""
_HANDLERS: dict[Phase, dict[type, _Handler]] = {
    Phase.WAITING: {**_END, LinkOpened: Multicaster._ask},
    Phase.ASKING: {**_END, **_REFUSED, x.GrantSubscription: Multicaster._begin},
    Phase.FEEDING: {
        **_END,
        **dict.fromkeys(_ORDERS, Multicaster._obey),
        TurnGiven: Multicaster._go_on,
        DeadlineReached: Multicaster._watch,
    },
    Phase.RESTING: {**_END, DeadlineReached: Multicaster._retry},
    Phase.CLOSED: {},
}
