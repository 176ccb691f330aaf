"""The node's end of a link that speaks ZMTP: the frames of its messages go to the engine of a dialect.

    octets ──Received──► ZmtpLink ──FramesReceived────► dialect ──requests──► streams floor
           ◄───Send───── ZmtpLink ◄──Send: one frame─── dialect ◄──answers───

The dialect hears of its link when the ZMTP handshake is done, as of the time when the transport came up: both together
have one greeting's time. A frame is the dialect's whatever message it was a part of; empty parts of a longer message
are the delimiters of REQ sockets, and passed over. What breaks the rules of ZMTP is told the dialect as `FrameRefused`,
so that it can say why: the link is closed when the dialect has had its last word, or has had a greeting's time for it.

A peer that attaches with the routing identity of another link, as the same principal, replaces it: the other is told
so, and over, and nothing that was to be sent by it is sent by this one. To connect is not enough: a socket that was
replaced connects again by itself, and two of one identity would displace each other for ever, unheard.
Source: RFC 37 of ZeroMQ; RFC 28, "The ROUTER Socket Type"; docs/internals/DESIGN.md, "Dialects".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Protocol

from msgspec import structs

from veredus.kernel.effects import CloseLink, Note, PauseReading, Send
from veredus.kernel.engine import Now
from veredus.kernel.errors import PeerFault
from veredus.kernel.events import DeadlineReached, LinkClosed, LinkDrained, LinkOpened, LinkTaking, Received
from veredus.kernel.octets import Octets
from veredus.kernel.turns import QUANTUM_NS
from veredus.protocols.links import (
    AnswersAwaited,
    DrainRequested,
    FrameRefused,
    FramesLeft,
    FramesReceived,
    ReadingPaused,
    ReadingResumed,
    TurnGiven,
    TurnWanted,
    Unfinished,
    WorkDone,
)
from veredus.protocols.zeps.orders import AskPrincipal, PrincipalKnown

from .link import ZmtpLink

_REPLACED = "another connection with the same ZeroMQ identity sent an ATTACH: each socket needs an identity of its own"
FRAME_NS = 1_500
OCTET_NS = 10
"""What a frame costs, and each octet of it, in nanoseconds; measured, roughly."""


class Dialect(Protocol):
    """The engine of a dialect whose commands are frames."""

    @property
    def frame_size_max(self) -> int:
        """The largest frame, or message, that is taken now."""
        ...

    @property
    def frame_size_hint(self) -> str:
        """What is said behind that limit to who goes over it."""
        ...

    @property
    def is_greeting(self) -> bool:
        """Whether the peer has yet to be let in by it."""
        ...

    @property
    def is_attached(self) -> bool:
        """Whether it may yet have a last word to say."""
        ...

    @property
    def is_awaiting(self) -> bool:
        """Whether it takes no frame before it has had an answer."""
        ...

    def handle(self, event: object, now: Now) -> Sequence[object]:
        """Take one fact about the link, or one order of the streams floor for a session of it."""
        ...

    def deadline(self) -> int | None:
        """When it is to be told of the clock."""
        ...


class Identities:
    """Owns who has which routing identity at one listener: for each principal, the link that attached with it last."""

    def __init__(self) -> None:
        """Nobody has any."""
        self._links: dict[tuple[str, bytes], FramedLink] = {}

    def claim(self, principal: str, identity: bytes, link: FramedLink) -> FramedLink | None:
        """`link` has the identity from now on; who had it until now."""
        previous = self._links.get((principal, identity))
        self._links[principal, identity] = link
        return previous

    def release(self, principal: str, identity: bytes, link: FramedLink) -> None:
        """`link` is over."""
        if self._links.get((principal, identity)) is link:
            del self._links[principal, identity]


class FramedLink:
    """Owns a ZMTP link and the dialect behind it; see the module for the picture.

    Invariants
        (1) The dialect hears `LinkOpened` before anything else, and `LinkClosed` last, each at most once.
        (2) Nothing is sent after the order to close.
    """

    is_timed_by_answers: ClassVar[bool] = True
    protocol: ClassVar[str] = "zeps/1"
    """The only dialect whose commands are frames."""
    __slots__ = (
        "_cost_ns", "_dialect", "_effects", "_failing", "_failing_until_ns", "_has_claimed", "_identities", "_identity",
        "_is_asking", "_is_awaiting", "_is_closing", "_is_delivering", "_is_over", "_left", "_opened", "_principal",
        "_wire", "link",
    )  # fmt: skip

    def __init__(self, link: int, wire: ZmtpLink, dialect: Dialect, identities: Identities) -> None:
        """The node's end of link number `link`; it begins with `LinkOpened`."""
        self.link = link
        self._wire = wire
        self._dialect = dialect
        self._identities = identities
        self._identity = b""
        self._has_claimed = False
        """Whether it has attached, with its identity."""
        self._principal = ""
        self._opened: tuple[LinkOpened, Now] | None = None
        """What the dialect is to be told once the handshake is done."""
        self._is_closing = False
        self._is_over = False
        self._is_asking = False
        self._is_awaiting = False
        """Whether the node was told that what comes waits for an answer."""
        self._is_delivering = False
        """Whether the dialect has more to deliver in another turn."""
        self._failing = ""
        """Why the link is closed once the dialect has had its last word."""
        self._failing_until_ns = 0
        self._left: Sequence[Octets] = ()
        """Frames that the dialect takes in another turn."""
        self._cost_ns = 0
        """What was told the dialect in this turn."""
        self._effects: list[object] = []

    def handle(self, event: object, now: Now) -> Sequence[object]:
        """Take one fact about the link, or one order of the streams floor for a session of it."""
        if type(event) is TurnGiven:
            self._is_awaiting = False
        if not self._is_over:
            self._take(event, now)
        if self._identity and not self._has_claimed and self._dialect.is_attached:
            self._claim(now)
        if self._failing and (not self._dialect.is_attached or now.monotonic_ns >= self._failing_until_ns):
            self._close(self._failing)
        self._flush()
        self._want_turn()
        effects, self._effects = self._effects, []
        return effects

    def _want_turn(self) -> None:
        """Say what was done, and when what waits is to be gone on with."""
        if self._cost_ns:
            self._effects.append(WorkDone(self.link, self._cost_ns))
        has_more = self._is_delivering or self._cost_ns >= QUANTUM_NS
        was_awaiting, self._is_awaiting = self._is_awaiting, self._dialect.is_awaiting and not self._is_closing
        if self._is_awaiting and not was_awaiting:
            self._effects.append(AnswersAwaited(self.link))
        elif not self._is_awaiting and (was_awaiting or (has_more and not self._is_closing)):
            self._effects.append(TurnWanted(self.link, is_behind=not was_awaiting and not self.unread_size))
        self._cost_ns = 0

    def deadline(self) -> int | None:
        """When the handshake or a sign of life is late, and what the dialect waits for."""
        if self._failing:
            return None if self._is_closing else self._failing_until_ns
        times = (self._wire.deadline(), None if self._opened is not None else self._dialect.deadline())
        return min((at for at in times if at is not None), default=None)

    @property
    def unfinished(self) -> Unfinished:
        """What it holds of a message that is not whole."""
        return self._wire.connection.unfinished

    @property
    def unread_size(self) -> int:
        """Bytes of whole messages that wait for a turn, or for the judgement of who says them."""
        return self._wire.connection.unread_size + sum(map(len, self._left))

    def _take(self, event: object, now: Now) -> None:
        match event:
            case LinkOpened():
                accepted = Now(event.accepted_ns or now.monotonic_ns, now.wall_ns)
                self._opened = event, accepted
                self._wire.open(accepted)
            case Received(_, data):
                self._wire.receive(data, now)
                self._read(now)
            case TurnGiven():
                self._read(now)
                self._tell(event, now)
            case DeadlineReached():
                self._wire.wake(now)
                self._tell(event, now)
                self._end_if_faulty(now)
            case LinkClosed():
                self._tell(event, now)
                self._become_over()
            case PrincipalKnown() if self._opened is not None:
                self._judge(event, now)
            case FrameRefused():
                self._wire.connection.fail(PeerFault(event.code, event.message))
                self._end_if_faulty(now)
            case DrainRequested() if self._opened is not None:
                self._close("draining")
            case ReadingPaused():
                self._wire.pause()
                self._tell(event, now)
            case ReadingResumed():
                self._wire.resume(now)
                self._tell(event, now)
            case LinkDrained() | LinkTaking():
                self._wire.hear(now)
                self._tell(event, now)
            case _:
                self._tell(event, now)

    # ── in ───────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _read(self, now: Now) -> None:
        connection = self._wire.connection
        while not self._is_closing and not self._dialect.is_awaiting and self._cost_ns < QUANTUM_NS:
            if self._left:
                said, self._left = self._left, ()
                self._tell(FramesReceived(self.link, said), now)
                continue
            connection.message_size_max = self._dialect.frame_size_max
            connection.message_size_hint = self._dialect.frame_size_hint
            connection.is_greeting = self._dialect.is_greeting
            messages = self._wire.next_messages(now)
            self._cost_ns += connection.take_cost()
            if self._opened is not None and self._wire.has_greeted:
                self._begin(now)
            for message in messages:
                self._cost_ns += FRAME_NS * len(message) + OCTET_NS * sum(map(len, message))
            said = [frame for message in messages for frame in message if len(frame) or len(message) == 1]
            if len(said) == 1:
                self._tell(Received(self.link, said[0]), now)
            elif said:
                self._tell(FramesReceived(self.link, said), now)
            if not messages and not connection.has_more:
                self._end_if_faulty(now)
                break
        asked = connection.asked
        if asked is not None and not self._is_asking:
            self._is_asking = True
            self._effects.append(AskPrincipal(self.link, asked.password or None, asked.key))

    def _judge(self, event: PrincipalKnown, now: Now) -> None:
        """It is known who the peer is, or that it may not come in."""
        if self._wire.connection.asked is None:
            return
        self._is_asking = False
        if event.principal is None:
            self._effects.append(Note("warning", f"peer-{event.code}", {"link": self.link, "reason": event.reason}))
            self._wire.connection.refuse(event.code, event.reason)
            self._close(event.code)
        else:
            self._principal = event.principal
            self._wire.admit()
        self._read(now)

    def _begin(self, now: Now) -> None:
        assert self._opened is not None
        event, opened = self._opened
        self._opened = None
        self._principal = self._principal or event.principal
        self._identity = self._wire.connection.remote.identity
        self._tell(structs.replace(event, principal=self._principal), opened)

    def _claim(self, now: Now) -> None:
        self._has_claimed = True
        previous = self._identities.claim(self._principal, self._identity, self)
        if previous is not None:
            self._effects += previous.replace(now)

    def replace(self, now: Now) -> Sequence[object]:
        """The peer has attached by another link: this one is over."""
        self._effects.append(Note("warning", "identity-taken-over", {"link": self.link, "reason": _REPLACED}))
        self._tell(DrainRequested(self.link, _REPLACED, "replaced"), now)
        self._close("replaced")
        self._tell(LinkClosed(self.link, "replaced"), now)
        self._become_over()
        self._want_turn()
        effects, self._effects = self._effects, []
        return effects

    def _end_if_faulty(self, now: Now) -> None:
        fault = self._wire.fault
        if fault is None or self._is_closing or self._failing or self._left:
            return
        self._flush()
        if self._opened is not None:
            fields: dict[str, object] = {"link": self.link, "code": fault.code, "reason": fault.message}
            self._effects.append(Note("warning", "handshake-failed", fields))
            self._close(fault.code)
            return
        fields = {"link": self.link, "code": fault.code, "message": fault.message}
        self._effects.append(Note("warning", "peer-broke-protocol", fields))
        self._failing = fault.code
        self._failing_until_ns = now.monotonic_ns + self._wire.timing.greeting_timeout_ns
        self._effects.append(PauseReading(self.link))
        self._tell(FrameRefused(self.link, fault.code, fault.message), now)

    # ── out ──────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _tell(self, event: object, now: Now) -> None:
        if self._opened is not None:
            return
        self._is_delivering = False
        for effect in self._dialect.handle(event, now):
            if isinstance(effect, Send) and effect.link == self.link:
                if not self._is_closing:
                    self._wire.connection.send_whole(effect.buffers)
            elif isinstance(effect, CloseLink) and effect.link == self.link:
                self._close(effect.reason)
            elif isinstance(effect, WorkDone) and effect.link == self.link:
                self._cost_ns += effect.cost_ns
            elif isinstance(effect, FramesLeft):
                self._left = effect.frames
            elif isinstance(effect, TurnWanted):
                self._is_delivering = True
            else:
                self._flush()
                self._effects.append(effect)

    def _flush(self) -> None:
        outgoing = self._wire.take_outgoing()
        if outgoing:
            self._effects.append(Send(self.link, outgoing))

    def _close(self, reason: str) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._flush()
            self._effects.append(CloseLink(self.link, reason))

    def _become_over(self) -> None:
        self._is_over = self._is_closing = True
        if self._identity:
            self._identities.release(self._principal, self._identity, self)
