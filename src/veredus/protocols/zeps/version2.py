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
Source: the design, sections 2, 3 and 5; docs/reference/wire/native.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from veredus.kernel.deadlines import Deadlines
from veredus.kernel.effects import CloseLink, Note, Send
from veredus.kernel.engine import Now
from veredus.kernel.errors import PeerFault
from veredus.kernel.events import DeadlineReached, LinkClosed, LinkCongested, LinkDrained, Received
from veredus.kernel.octets import Octets
from veredus.kernel.symbol import Symbol
from veredus.protocols.links import DrainRequested, ReadingPaused, ReadingResumed

from . import messages as m
from . import native
from .channels import ORDERS, Channels
from .native import Frame, FrameParser, Kind
from .orders import AskPrincipal, LinkLimits, PrincipalKnown


class Phase(Symbol):
    """Where the link stands; see the module."""

    GREETING = "greeting"
    ASKING = "asking"
    OPEN = "open"
    CLOSED = "closed"


class Version2:
    """Owns one native link's phase, its parser and its channels; see the module for the picture."""

    __slots__ = (
        "_channels", "_deadlines", "_effects", "_greeting_size", "_is_paused", "_limits", "_received_ns", "link",
        "parser", "phase", "principal",
    )  # fmt: skip

    def __init__(self, link: int, principal: str, limits: LinkLimits, now: Now) -> None:
        """The node's end of link number `link`, whose peer the transport has proved to be `principal` ("" if not)."""
        self.link = link
        self.principal = principal
        self.phase = Phase.GREETING
        self.parser = FrameParser(min(native.GREETING_SIZE_MAX, limits.frame_size_max))
        self._limits = limits
        self._deadlines: Deadlines[str] = Deadlines()
        self._deadlines.set("greeting", now.monotonic_ns + limits.greeting_timeout_ns)
        self._received_ns = now.monotonic_ns
        self._greeting_size = 0
        self._is_paused = False
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
        return self._deadlines.next_ns()

    # ── the link ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _receive(self, event: Received, now: Now) -> None:
        self._received_ns = now.monotonic_ns
        for frame in self.parser.parse(event.data):
            self._take_frame(frame, now)
        if self.parser.fault is not None:
            self._fail(self.parser.fault)

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
            raise PeerFault("too-large", f"a greeting has at most {self._limits.greeting_size_max} bytes")

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
        self._deadlines = Deadlines()

    def _lose(self, event: LinkClosed, now: Now) -> None:
        self._become_closed()

    def _drain(self, event: DrainRequested, now: Now) -> None:
        self._say_goodbye("draining", event.message or "the node stops: connect to another, or again later")

    def _watch(self, event: DeadlineReached, now: Now) -> None:
        for name in self._deadlines.due(now.monotonic_ns):
            if name == "greeting":
                self._say_goodbye("greeting-timeout", "no HELLO came in time")
            else:
                self._watch_silence(now)

    def _watch_silence(self, now: Now) -> None:
        interval_ns, silence_max_ns = self._limits.heartbeat_interval_ns, self._limits.silence_max_ns
        silent_ns = 0 if self._is_paused else now.monotonic_ns - self._received_ns
        if silent_ns >= silence_max_ns:
            self._say_goodbye("silent", f"nothing was heard for {silent_ns / 1e9:g} s")
            return
        if silent_ns >= interval_ns:
            self._send(native.encode_frame(Kind.PING, 0))
        wait_ns = interval_ns if silent_ns >= interval_ns or self._is_paused else interval_ns - silent_ns
        self._deadlines.set("silence", now.monotonic_ns + min(wait_ns, silence_max_ns - silent_ns))

    def _pause(self, event: ReadingPaused, now: Now) -> None:
        self._is_paused = True

    def _resume(self, event: ReadingResumed, now: Now) -> None:
        self._is_paused = False
        self._received_ns = now.monotonic_ns

    def _congest(self, event: LinkCongested, now: Now) -> None:
        self._channels.set_congested(True)

    def _relieve(self, event: LinkDrained, now: Now) -> None:
        self._channels.set_congested(False)

    def _obey(self, order: object, now: Now) -> None:
        self._channels.take_order(order)

    def _send(self, *buffers: Octets) -> None:
        self._effects.append(Send(self.link, buffers))

    # ── the greeting ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _take_hello(self, frame: Frame, now: Now) -> None:
        hello = native.decode_message(frame)
        assert isinstance(hello, m.Hello)
        if hello.version != native.VERSION:
            raise PeerFault("version-unknown", f"version {hello.version} is not spoken here, {native.VERSION} is")
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
        self._deadlines.set("silence", now.monotonic_ns + limits.heartbeat_interval_ns)
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


_Handler: TypeAlias = Callable[[Version2, Any, Now], None]
_FrameHandler: TypeAlias = Callable[[Version2, Frame, Now], None]

_LINK: dict[type, _Handler] = {
    Received: Version2._receive,
    LinkClosed: Version2._lose,
    LinkCongested: Version2._congest,
    LinkDrained: Version2._relieve,
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
