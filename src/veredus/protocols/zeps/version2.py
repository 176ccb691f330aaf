"""The node's end of one native link: it takes a greeting, listens for silence, and hands the rest to channels.

    GREETING ── HELLO ──► ASKING ── who it is ──► OPEN
        └──────── garbled, late, unknown, silent, goodbye ──┴──► CLOSED

GREETING  The link is open; a HELLO is due within the greeting timeout.
ASKING    The node is finding out who the peer is. The peer waits for WELCOME; it may PING.
OPEN      Channels are opened, used and closed as the peer asks.
CLOSED    Nothing more is said or heard; what the streams floor still says to our sessions is dropped.

Invariants
    (1) Nothing is handed down before the peer has a principal.
    (2) When the link is over, so are its sessions, and nothing is said any more.
    (3) At one call it takes frames that cost about a quantum; the rest waits for its turn, in order.
    (4) While `Awaited.COUNT_MAX` answers are to come that may be large, or `REQUESTS_MAX` of any kind to requests, it
        takes no frame. Those that may be large are told in its turns, about a quantum of them in each.
Source: docs/internals/DESIGN.md, "Native protocol" and "Bounds"; docs/reference/wire/native.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

from veredus.kernel.absence import was_away
from veredus.kernel.deadlines import Deadlines
from veredus.kernel.effects import CloseLink, Note, Send
from veredus.kernel.engine import Now
from veredus.kernel.errors import PeerFault
from veredus.kernel.events import DeadlineReached, LinkClosed, LinkCongested, LinkDrained, LinkTaking, Received
from veredus.kernel.octets import Octets
from veredus.kernel.symbol import Symbol
from veredus.kernel.turns import QUANTUM_NS
from veredus.protocols.links import (
    AnswersAwaited,
    DrainRequested,
    FrameRefused,
    ReadingPaused,
    ReadingResumed,
    TurnGiven,
    TurnWanted,
    WorkDone,
)
from veredus.protocols.liveness import Liveness, Verdict

from . import messages as m
from . import native
from .channels import ORDERS, Channels
from .native import Frame, Kind
from .orders import AskPrincipal, LinkLimits, PrincipalKnown
from .parsing import FrameParser
from .prices import STAGE_NS
from .shared_answers import Owed


class Phase(Symbol):
    """Where the link stands; see the module."""

    GREETING = "greeting"
    ASKING = "asking"
    OPEN = "open"
    CLOSED = "closed"


SETTLE_PIECE_SIZE = 16 * 4_096
"""So much of a SETTLE is taken at once: 4 ms of work, or a few more."""
_CHARGED_MIN_NS = 100_000
"""Less than this is charged with what comes next."""
_COST_NS = 3_000, 0
_COSTS_NS: dict[int, tuple[int, int]] = {
    Kind.ATTACH_SOURCE: (30_000, 100),
    Kind.STORE_TOKEN: (30_000, 100),
    Kind.SUBSCRIBE: (50_000, 1_000),
    Kind.CHANGE_FILTER: (50_000, 1_000),
    Kind.OPEN_RUN: (30_000, 100),
    Kind.OPEN_STAGE: (30_000 + STAGE_NS, 100),
    Kind.COMMIT: (30_000, 130),
    Kind.DROP_STAGES: (30_000, 100),
    Kind.OFFER: (28_000, 1),
    Kind.CREDIT: (7_000, 0),
    Kind.HANDED: (7_000, 0),
    Kind.SETTLE: (13_000, 200),
    Kind.RETURN: (20_000, 100),
    Kind.REQUEST: (250_000, 100),
}
"""What a frame of a kind costs the node: a part that is always the same, and one for each byte; measured, roughly."""


class Version2:
    """Owns one native link's phase, its parser and its channels; see the module for the picture."""

    __slots__ = (
        "_channels", "_cost_ns", "_deadlines", "_effects", "_frames", "_greeting_size", "_is_awaiting",
        "_is_turn_wanted", "_limits", "_liveness", "_owed", "_reading_size", "_unread", "link", "parser", "phase",
        "principal", "unread_size",
    )  # fmt: skip

    def __init__(self, link: int, principal: str, limits: LinkLimits, now: Now, late_ns: int) -> None:
        """The node's end of link number `link`, whose peer the transport has proved to be `principal` ("" if not).

        At `late_ns` the peer is let go unless it has greeted.
        """
        self.link = link
        self.principal = principal
        self.phase = Phase.GREETING
        self.parser = FrameParser(min(native.GREETING_SIZE_MAX, limits.frame_size_max))
        self._limits = limits
        self._deadlines: Deadlines[str] = Deadlines()
        self._deadlines.set("greeting", late_ns)
        self._liveness = Liveness(limits.heartbeat_interval_ns, limits.silence_max_ns)
        self._greeting_size = 0
        self._unread: deque[Octets] = deque()
        self._frames: Iterator[Frame] | None = None
        """The rest of the frames of what was read last."""
        self._reading_size = 0
        self.unread_size = 0
        """Bytes that wait for a turn, with those that `_frames` comes from."""
        self._cost_ns = 0
        self._is_awaiting = False
        """Whether frames wait for answers."""
        self._owed = Owed()
        self._is_turn_wanted = False
        self._effects: list[object] = []
        self._channels = Channels(link, limits, self._effects)

    def handle(self, event: object, now: Now) -> Sequence[object]:
        """Take one fact about the link, or one order of the streams floor for a session of it."""
        handler = _HANDLERS[self.phase].get(type(event))
        if handler is not None:
            handler(self, event, now)
        effects = self._effects.copy()
        self._effects.clear()
        return effects

    def deadline(self) -> int | None:
        """When a greeting is late, or a peer has been silent for long."""
        late_ns, silent_ns = self._deadlines.next_ns(), self._liveness.deadline()
        return late_ns if silent_ns is None else silent_ns if late_ns is None else min(late_ns, silent_ns)

    # ── the link ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _receive(self, event: Received, now: Now) -> None:
        self._liveness.hear(now.monotonic_ns)
        self._unread.append(event.data)
        self.unread_size += len(event.data)
        self._work(now)

    def _go_on(self, event: TurnGiven, now: Now) -> None:
        self._is_turn_wanted = False
        self._work(now)

    def _want_turn(self) -> None:
        if not self._is_turn_wanted:
            self._is_turn_wanted = True
            self._effects.append(TurnWanted(self.link))

    def _work(self, now: Now) -> None:
        """Tell what is owed, then take the frames that wait, as far as one turn goes."""
        spent_ns = 0
        while self._owed:
            if spent_ns >= QUANTUM_NS:
                self._want_turn()
                return
            self._channels.take_order(self._owed.take())
            spent_ns += self._charge(0)
        if self._channels.is_full():
            self._await_answers()
            return
        while self._frames is not None or self._unread:
            if self._frames is None:
                data = self._unread.popleft()
                self._reading_size = len(data)
                self._frames = _in_pieces(self.parser.parse(data))
            for frame in self._frames:
                self._take_frame(frame, now)
                if self.phase is Phase.CLOSED:
                    return
                spent_ns += self._charge(_cost_of(frame))
                if self._channels.is_full():
                    self._await_answers()
                    return
                if spent_ns >= QUANTUM_NS:
                    self._want_turn()
                    return
            self._frames = None
            self.unread_size -= self._reading_size
        if self.parser.fault is not None:
            self._fail(self.parser.fault)

    def _await_answers(self) -> None:
        self._is_awaiting = True
        self._effects.append(AnswersAwaited(self.link))

    def _charge(self, cost_ns: int) -> int:
        """Have this paid, and what the channels did beside; returns the sum."""
        cost_ns += self._channels.take_cost()
        self._cost_ns += cost_ns
        if self._cost_ns >= _CHARGED_MIN_NS:
            self._effects.append(WorkDone(self.link, self._cost_ns))
            self._cost_ns = 0
        return cost_ns

    def _take_frame(self, frame: Frame, now: Now) -> None:
        phase = self.phase
        handler = _FRAME_HANDLERS[phase].get(frame.kind)
        try:
            if phase is not Phase.OPEN:
                self._count_greeting(frame)
            if handler is not None:
                handler(self, frame, now)
            elif phase is Phase.CLOSED or (phase is Phase.OPEN and self._channels.take_frame(frame)):
                return
            elif frame.kind < native.OPTIONAL_KIND:
                name = native.name_of(frame.kind)
                raise PeerFault("bad-frame", f"a {name} frame is not expected from a client while {phase.value}")
        except PeerFault as fault:
            self._fail(fault)

    def _count_greeting(self, frame: Frame) -> None:
        self._greeting_size += native.HEAD_SIZE + len(frame.memory)
        if self._greeting_size > self._limits.greeting_size_max:
            raise PeerFault("too-large", f"a greeting may have at most {self._limits.greeting_size_max} bytes")

    def _fail(self, fault: PeerFault) -> None:
        if self.phase is Phase.CLOSED:
            return
        fields: dict[str, object] = {"link": self.link, "code": fault.code, "message": fault.message}
        self._effects.append(Note("warning", "peer-broke-protocol", fields))
        self._say_goodbye(fault.code, fault.message)

    def _say_goodbye(self, code: str, message: str) -> None:
        self._send(native.encode_message(0, m.Goodbye(code, message)))
        self._become_closed()
        self._effects.append(CloseLink(self.link, code))

    def _become_closed(self) -> None:
        self.phase = Phase.CLOSED
        self._channels.close_all()
        self._owed.clear()
        self._deadlines = Deadlines()
        self._liveness.end()
        self._unread.clear()
        self._frames = None
        self.unread_size = 0
        self.parser.drop()

    def _refuse_frame(self, event: FrameRefused, now: Now) -> None:
        self._fail(PeerFault(event.code, event.message))

    def _lose(self, event: LinkClosed, now: Now) -> None:
        self._become_closed()

    def _drain(self, event: DrainRequested, now: Now) -> None:
        self._say_goodbye(
            event.code, event.message or "the node is stopping: connect to another one, or try again later"
        )

    def _watch(self, event: DeadlineReached, now: Now) -> None:
        late_ns, greeting_ns = self._deadlines.next_ns(), self._limits.greeting_timeout_ns
        if self._deadlines.due(now.monotonic_ns):
            assert late_ns is not None
            if was_away(late_ns, now.monotonic_ns, greeting_ns):
                self._deadlines.set("greeting", now.monotonic_ns + greeting_ns)
            elif self.phase is Phase.ASKING:
                # The peer has said who it is, and has waited for its turn.
                self._say_goodbye("too-busy", "too many tokens are being checked: try again later")
            else:
                self._fail(PeerFault("greeting-timeout", "no HELLO arrived within limits.greeting_timeout"))
            return
        verdict = self._liveness.look(now.monotonic_ns)
        if verdict is Verdict.PING:
            self._send(native.encode_frame(Kind.PING, 0))
        elif verdict is Verdict.SILENT:
            silent_s = self._liveness.silent_ns(now.monotonic_ns) / 1e9
            self._fail(PeerFault("silent", f"the node heard nothing of the client for {silent_s:g} s"))

    def _pause(self, event: ReadingPaused, now: Now) -> None:
        self._liveness.pause()

    def _resume(self, event: ReadingResumed, now: Now) -> None:
        self._liveness.resume(now.monotonic_ns)

    def _congest(self, event: LinkCongested, now: Now) -> None:
        self._channels.set_congested(True)

    def _relieve(self, event: LinkDrained, now: Now) -> None:
        self._liveness.hear(now.monotonic_ns)
        self._channels.set_congested(False)

    def _obey(self, order: object, now: Now) -> None:
        if not self._owed.holds(order):
            self._channels.take_order(order)
            self._charge(0)
        if self._owed or (self._is_awaiting and not self._channels.is_full()):
            self._is_awaiting = False
            self._want_turn()

    def _send(self, *buffers: Octets) -> None:
        self._effects.append(Send(self.link, buffers))

    # ── the greeting ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _take_hello(self, frame: Frame, now: Now) -> None:
        hello = native.decode_message(frame)
        assert isinstance(hello, m.Hello)
        if hello.version != native.VERSION:
            raise PeerFault("version-unknown", f"version {hello.version} is not supported, only {native.VERSION}")
        self.phase = Phase.ASKING
        if self.principal and not hello.token:
            self._welcome(self.principal, now)
        else:
            self._effects.append(AskPrincipal(self.link, hello.token or None))

    def _know_principal(self, event: PrincipalKnown, now: Now) -> None:
        if event.principal is None:
            self._effects.append(Note("warning", f"peer-{event.code}", {"link": self.link, "reason": event.reason}))
            self._send(native.encode_message(0, m.Refusal(event.code, event.reason)))
            self._become_closed()
            self._effects.append(CloseLink(self.link, event.code))
        else:
            self._welcome(event.principal, now)

    def _welcome(self, principal: str, now: Now) -> None:
        limits = self._limits
        self.phase = Phase.OPEN
        self.principal = self._channels.principal = principal
        self.parser.size_max = limits.frame_size_max
        self._deadlines.clear("greeting")
        self._liveness.begin(now.monotonic_ns)
        welcome = m.Welcome(
            limits.node,
            principal,
            native.VERSION,
            limits.frame_size_max,
            limits.channel_count_max,
            limits.silence_max_ns // 1_000_000,
            *limits.batch,
        )
        self._send(native.encode_message(0, welcome))

    def _take_goodbye(self, frame: Frame, now: Now) -> None:
        goodbye: Any = native.decode_message(frame)
        self._become_closed()
        self._effects.append(CloseLink(self.link, goodbye.code))

    def _take_ping(self, frame: Frame, now: Now) -> None:
        native.check_ping(frame)
        self._send(native.encode_frame(Kind.PONG, 0, frame.body))

    def _take_pong(self, frame: Frame, now: Now) -> None:
        native.check_ping(frame)


def _in_pieces(frames: Iterable[Frame]) -> Iterator[Frame]:
    """The frames, but that a SETTLE of very many ranges is as if they had been said in several."""
    for frame in frames:
        if frame.kind == Kind.SETTLE and frame.size > SETTLE_PIECE_SIZE and frame.size % 16 == 0:
            for start in range(0, frame.size, SETTLE_PIECE_SIZE):
                memory = frame.body[start : start + SETTLE_PIECE_SIZE]
                yield frame._replace(size=len(memory), memory=memory)
        else:
            yield frame


def _cost_of(frame: Frame) -> int:
    flat_ns, octet_ns = _COSTS_NS.get(frame.kind, _COST_NS)
    return flat_ns + octet_ns * frame.size


_Handler: TypeAlias = Callable[[Version2, Any, Now], None]
_FrameHandler: TypeAlias = Callable[[Version2, Frame, Now], None]

_LINK: dict[type, _Handler] = {
    Received: Version2._receive,
    TurnGiven: Version2._go_on,
    LinkClosed: Version2._lose,
    LinkCongested: Version2._congest,
    LinkDrained: Version2._relieve,
    LinkTaking: lambda link, _, now: link._liveness.hear(now.monotonic_ns),
    FrameRefused: Version2._refuse_frame,
    DeadlineReached: Version2._watch,
    DrainRequested: Version2._drain,
    ReadingPaused: Version2._pause,
    ReadingResumed: Version2._resume,
}
_HANDLERS: dict[Phase, dict[type, _Handler]] = {
    Phase.GREETING: _LINK,
    Phase.ASKING: {**_LINK, PrincipalKnown: Version2._know_principal},
    Phase.OPEN: {**_LINK, **dict.fromkeys(ORDERS, Version2._obey)},
    Phase.CLOSED: {},
}
_ANY: dict[int, _FrameHandler] = {
    Kind.PING: Version2._take_ping,
    Kind.PONG: Version2._take_pong,
    Kind.GOODBYE: Version2._take_goodbye,
}
_FRAME_HANDLERS: dict[Phase, dict[int, _FrameHandler]] = {
    Phase.GREETING: {**_ANY, Kind.HELLO: Version2._take_hello},
    Phase.ASKING: _ANY,
    Phase.OPEN: _ANY,
    Phase.CLOSED: {},
}
