"""The node's end of one link, until it is known which version the peer speaks; then the engine of that version.

    WAITING ── link opened ──► LISTENING ── ATTACH, version 1 ──► Version1
                                   ├─────── ATTACH, version 2, answered ATTACH-OK ──► Version2
                                   └─────── anything else: INVALID; too late, gone ──► CLOSED

Over ZeroMQ a link may have one life after the other: an ATTACH ends the former one, which has its last word first. So
answers keep the order of the commands, and what the next life confirms is all that came before. What comes behind an
ATTACH, or behind a DETACH, waits meanwhile, and the link is not read from. PING and DETACH are answered only where a
stream is open: a client whose stream the node does not know (any more) must not hear that all is well. What was on its
way when INVALID was said is passed over until the next ATTACH: an INVALID for each would be taken for the answer to
that ATTACH.

What a peer of version 1 says is read a slice at a time, each in a turn of its own: a mebibyte of small commands must
keep no other link waiting. Version 2 knows by itself what its frames cost.

Source: seed 004, "Protocol Specification"; docs/internals/DESIGN.md, "Dialects".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from veredus.kernel.absence import was_away
from veredus.kernel.deadlines import Deadlines
from veredus.kernel.effects import CloseLink, Note, Send
from veredus.kernel.engine import Now
from veredus.kernel.errors import PeerFault
from veredus.kernel.events import DeadlineReached, LinkClosed, LinkCongested, LinkDrained, LinkOpened, Received
from veredus.kernel.octets import Octets
from veredus.kernel.symbol import Symbol
from veredus.protocols.links import (
    DrainRequested,
    FrameRefused,
    FramesLeft,
    FramesReceived,
    TurnGiven,
    TurnWanted,
    Unfinished,
    WorkDone,
)
from veredus.protocols.slices import OCTET_NS, Slices
from veredus.streams.exchange import SubscribeRequested

from . import frames, native
from .compiling import compiling_cost_of
from .holding import TOO_EARLY
from .orders import LinkLimits
from .undelivered import Undelivered
from .version1 import DETACHED, Phase, Version1
from .version2 import Version2

FRAMED_DOOR = "zeromq"
"""The listener at which one `Received` is one whole command."""


_FINAL = "silent"
"""Why a link over ZeroMQ is closed together with the life that it had."""


ATTACH_NS = 150_000
"""What an ATTACH over ZeroMQ costs, which one link may say again and again; measured, roughly."""
PASSED_OVER_SIZE_MIN = 64
"""As so large a frame counts that is passed over, however small it is: it costs more than its octets."""
FRAMES_AT_ONCE_MAX = 200
"""So many frames that are no run of PUBLISH are taken in one turn."""
ATTACHES_MAX = 16
"""So often a link may attach, until it is known who it is."""


class _Phase(Symbol):
    WAITING = "waiting"
    LISTENING = "listening"
    CLOSED = "closed"


class NodeLink:
    """Owns a link's first octets, then its engine; see the module for the picture."""

    is_timed_by_answers: ClassVar[bool] = True
    __slots__ = (
        "_attached_count", "_channel", "_congestion", "_deadlines", "_effects", "_heard_size", "_is_ending",
        "_is_framed", "_is_refused", "_late_ns", "_limits", "_octets", "_phase", "_principal", "_undelivered",
        "_unread", "dialect", "link",
    )  # fmt: skip

    def __init__(self, link: int, limits: LinkLimits, undelivered: Undelivered | None = None) -> None:
        """The node's end of link number `link`; it begins with `LinkOpened`. A node's links have one `undelivered`."""
        self.link = link
        self.dialect: Version1 | Version2 | None = None
        self._limits = limits
        self._phase = _Phase.WAITING
        self._principal = ""
        self._is_framed = False
        self._octets = b""
        self._unread = Slices()
        self._undelivered = Undelivered() if undelivered is None else undelivered
        self._heard_size = 0
        self._attached_count = 0
        """How often it has attached since it was known last who it is."""
        self._is_ending = False
        """Whether the present life was told an ATTACH, which waits for its last word, or a DETACH."""
        self._is_refused = False
        """Whether INVALID was the last word over ZeroMQ: nothing but an ATTACH is heard then."""
        self._channel = 0
        """The last channel that a former life of the link has used; 0 for one whose principal is not known."""
        self._congestion: LinkCongested | None = None
        """That the link takes no more for now: the next life has to know it too."""
        self._late_ns = 0
        self._deadlines: Deadlines[str] = Deadlines()
        self._effects: list[object] = []

    def handle(self, event: object, now: Now) -> Sequence[object]:
        """Take one fact about the link, or one order of the streams floor for a session of it."""
        effects = self._take_event(event, now)
        if isinstance(self.dialect, Version1) and self.dialect.wants_turn:
            return [*effects, TurnWanted(self.link, is_behind=not self._has_unread)]
        return effects

    def _take_event(self, event: object, now: Now) -> Sequence[object]:
        if type(event) is FramesReceived:
            return self._take_frames(event.frames, now)
        if self._is_framed and type(event) is Received:
            return self._take_frames((event.data,), now)
        if type(event) in (LinkCongested, LinkDrained):
            self._congestion = event if isinstance(event, LinkCongested) else None
        if self.dialect is not None:
            if isinstance(self.dialect, Version1) and not self._is_framed and type(event) in (Received, TurnGiven):
                return self._work(event, now)
            effects = self.dialect.handle(event, now)
            # What ends the link by the node's will ends it with all the lives that it might have: whoever comes again
            # proves again who it is.
            return effects if type(event) is DrainRequested else self._judge_life(effects, now)
        match event:
            case LinkOpened() if self._phase is _Phase.WAITING:
                self._open(event, now)
            case Received(_, data) if self._phase is _Phase.LISTENING:
                self._listen(data, now)
            case DrainRequested(_, _, code) if self._phase is _Phase.LISTENING:
                self._close(code)
            case FrameRefused() if self._phase is _Phase.LISTENING:
                self._reject(event.code, event.message)
            case DeadlineReached():
                self._judge_greeting(now)
            case LinkClosed():
                self._become_closed()
            case _:
                pass
        return self._take_effects()

    def _take_effects(self) -> Sequence[object]:
        effects, self._effects = self._effects, []
        return effects

    def _work(self, event: object, now: Now) -> Sequence[object]:
        """Tell version 1 a slice of what was received; the rest waits for its turn."""
        assert isinstance(self.dialect, Version1)
        if isinstance(event, Received):
            self._unread.add(event.data)
        effects = [] if isinstance(event, Received) else [*self.dialect.handle(event, now)]
        if not self._has_unread:
            return effects
        piece: Octets = b"" if self.dialect.has_more else self._unread.take()
        effects += self.dialect.handle(Received(self.link, piece), now)
        compiling_ns = sum(
            compiling_cost_of(asked.filter) for asked in effects if isinstance(asked, SubscribeRequested)
        )
        effects.append(WorkDone(self.link, OCTET_NS * len(piece) + compiling_ns))
        if self.dialect.phase is Phase.CLOSED:
            self._unread.forget()
        if self._has_unread:
            effects.append(TurnWanted(self.link))
        return effects

    @property
    def _has_unread(self) -> bool:
        return bool(self._unread) or (isinstance(self.dialect, Version1) and self.dialect.has_more)

    def _take_frames(self, said: Sequence[Octets], now: Now) -> Sequence[object]:
        """Frames as if they had come one by one, but that PUBLISH commands which follow one another make one batch.

        Some of them: the rest is to be told again.
        """
        effects: list[object] = []
        at = single_count = 0
        while at < len(said):
            if self.is_awaiting or single_count == FRAMES_AT_ONCE_MAX:
                effects.append(FramesLeft(said[at:]))
                break
            life = self.dialect
            run, end = frames.Publish([], []), at
            if isinstance(life, Version1) and life.phase is Phase.OPEN:
                run, end = frames.publish_run(said, at, life.parser.size_max)
            if isinstance(life, Version1) and end > at:
                effects += self._judge_life(life.handle(run, now), now)
                at = end
            else:
                effects += self._take_frame(said[at], now)
                at += not (self._is_ending and frames.is_attach(said[at]))
                single_count += 1
        return effects

    def _take_frame(self, frame: Octets, now: Now) -> Sequence[object]:
        is_attach, had_life = frames.is_attach(frame), self.dialect is not None
        if self.dialect is not None:
            self._effects += self._judge_life(self.dialect.handle(Received(self.link, frame), now), now)
        self._is_ending = self.dialect is not None and (is_attach or frame == frames.DETACH)
        if self.dialect is None and (is_attach or not had_life):
            self._is_refused = self._is_refused and not is_attach
            if self._is_refused:
                self._pass_over(frame)
            elif self._phase is _Phase.LISTENING:
                self._listen(frame, now)
        return self._take_effects()

    def _judge_life(self, effects: Sequence[object], now: Now) -> Sequence[object]:
        if self._is_framed and isinstance(self.dialect, Version1) and self.dialect.phase is Phase.CLOSED:
            return self._outlive(effects, now)
        return effects

    def deadline(self) -> int | None:
        """When an ATTACH is late, and what the version's engine waits for."""
        return self._deadlines.next_ns() if self.dialect is None else self.dialect.deadline()

    @property
    def unfinished(self) -> Unfinished:
        """What it holds of a command or frame that is not whole."""
        if self.dialect is not None:
            return self.dialect.parser.unfinished
        return Unfinished(len(self._octets), len(self._octets))

    @property
    def unread_size(self) -> int:
        """Bytes of whole commands or frames that wait for a turn."""
        if isinstance(self.dialect, Version2):
            return self.dialect.unread_size
        of_commands = 0 if self.dialect is None or not self.dialect.has_more else self.dialect.parser.waiting_size
        return self._unread.size + of_commands

    @property
    def is_awaiting(self) -> bool:
        """Whether no frame is taken before the present life has had its last word."""
        if not self._is_framed or not isinstance(self.dialect, Version1):
            return False
        phase = self.dialect.phase
        return phase is Phase.LEAVING or (self._is_ending and phase is not Phase.CLOSED)

    @property
    def is_attached(self) -> bool:
        """Whether there is a stream that is open or being opened, or a last word that is owed for one."""
        return self.dialect is not None

    @property
    def frame_size_max(self) -> int:
        """The largest frame that is taken now: that of a greeting, until a stream is open or was."""
        return self._limits.greeting_size_max if self.is_greeting else self._limits.frame_size_max

    @property
    def frame_size_hint(self) -> str:
        """What is said behind that limit to who goes over it."""
        return f" {TOO_EARLY}" if self.is_greeting else ""

    @property
    def is_greeting(self) -> bool:
        """Whether what comes is as little as a greeting. What was meant for a stream that was open may be large."""
        return not self.dialect.is_answered if isinstance(self.dialect, Version1) else not self._channel

    @property
    def protocol(self) -> str:
        """What the peer speaks, "" until it has said so."""
        return _PROTOCOLS.get(type(self.dialect), "")

    def _open(self, event: LinkOpened, now: Now) -> None:
        self._phase = _Phase.LISTENING
        self._principal = event.principal
        self._is_framed = event.door == FRAMED_DOOR
        self._late_ns = (event.accepted_ns or now.monotonic_ns) + self._limits.greeting_timeout_ns
        self._deadlines.set("greeting", self._late_ns)

    def _judge_greeting(self, now: Now) -> None:
        due_ns, greeting_ns = self._deadlines.next_ns(), self._limits.greeting_timeout_ns
        if due_ns is None or not self._deadlines.due(now.monotonic_ns):
            return
        if was_away(due_ns, now.monotonic_ns, greeting_ns):
            self._late_ns = now.monotonic_ns + greeting_ns
            self._deadlines.set("greeting", self._late_ns)
        else:
            self._reject("greeting-timeout", "no ATTACH arrived within limits.greeting_timeout")

    def _outlive(self, effects: Sequence[object], now: Now) -> Sequence[object]:
        """The life is over. Its socket may attach again, unless the node stops or hears nothing from it."""
        assert isinstance(self.dialect, Version1)
        ends = [effect.reason for effect in effects if isinstance(effect, CloseLink)]
        if not ends or ends[0] == _FINAL:
            return effects
        self._is_refused = ends[0] not in DETACHED
        self._listen_again(self.dialect.channel, now)
        return [effect for effect in effects if not isinstance(effect, CloseLink)]

    def _listen_again(self, channel: int, now: Now) -> None:
        self.dialect = None
        self._is_ending = False
        self._channel = channel
        if channel:
            self._heard_size = self._attached_count = 0
        self._deadlines.set("greeting", now.monotonic_ns + self._limits.greeting_timeout_ns)

    def _pass_over(self, data: Octets) -> None:
        """Heed nothing, and take no more than a greeting of who never had a stream."""
        self._heard_size += 0 if self._channel else max(len(data), PASSED_OVER_SIZE_MIN)
        if self._heard_size > self._limits.greeting_size_max:
            self._reject("too-large", "attach before sending more")

    def _listen(self, data: Octets, now: Now) -> None:
        octets = self._octets + bytes(data)
        start = 0
        try:
            if self._is_framed and not octets:
                raise PeerFault("truncated", "the frame is empty")
            while self._phase is _Phase.LISTENING and self.dialect is None and start < len(octets):
                found = frames.first_command(octets, start)
                if found is None and self._is_framed:
                    raise PeerFault("truncated", "the frame ends within its command")
                if found is None:
                    break
                if self._is_framed and found[1] != len(octets):
                    raise PeerFault("bad-frame", "bytes follow the command in its frame")
                self._heard_size += found[1] - start
                start = found[1]
                self._take(found[0], now)
        except PeerFault as fault:
            start = len(octets)
            self._reject(fault.code, fault.message)
        self._octets = octets[start:]
        if self.dialect is not None and self._octets:
            rest = Received(self.link, self._octets)
            self._octets = b""
            go_on = self._work if isinstance(self.dialect, Version1) else self.dialect.handle
            self._effects += go_on(rest, now)

    def _take(self, command: frames.Command, now: Now) -> None:
        if self._heard_size > self._limits.greeting_size_max:
            raise PeerFault("too-large", "attach before sending more")
        if self._is_framed:
            self._count_attach()
        match command:
            case frames.Attach(protocol, _, _) if protocol != frames.PROTOCOL.encode():
                raise PeerFault("bad-protocol", "the protocol of this listener is ZEPS")
            case frames.Attach(_, frames.VERSION, stream):
                self._become_version1(stream, now)
            case frames.Attach(_, native.VERSION, stream) if not self._is_framed:
                if stream:
                    raise PeerFault("bad-attach", "in version 2, ATTACH must not name a stream: name streams later")
                self._become_version2(now)
            case frames.Attach(_, version, _):
                known = "1" if self._is_framed else "1 and 2"
                raise PeerFault("version-unknown", f"version {version} is not supported, only {known}")
            case _:
                raise PeerFault("unexpected", "the first command must be ATTACH")

    def _count_attach(self) -> None:
        self._effects.append(WorkDone(self.link, ATTACH_NS))
        self._attached_count += 1
        if self._attached_count > ATTACHES_MAX:
            raise PeerFault("too-large", f"attach at most {ATTACHES_MAX} times before it is known who you are")

    def _become_version1(self, stream: bytes, now: Now) -> None:
        dialect = Version1(
            self.link, self._principal, stream, self._is_framed, self._limits, self._undelivered, self._channel
        )
        self._effects += dialect.begin(now)
        if self._congestion is not None:
            dialect.handle(self._congestion, now)
        self.dialect = dialect

    def _become_version2(self, now: Now) -> None:
        self._send(frames.ATTACH_OK)
        self.dialect = Version2(self.link, self._principal, self._limits, now, self._late_ns)

    def _reject(self, code: str, message: str) -> None:
        self._effects.append(Note("warning", "attach-invalid", {"link": self.link, "code": code, "reason": message}))
        self._send(frames.encode_invalid(f"{code}: {message}"))
        self._is_refused = self._is_framed
        if not self._is_framed or code in ("greeting-timeout", "too-large"):
            self._close("invalid")

    def _close(self, reason: str) -> None:
        self._become_closed()
        self._effects.append(CloseLink(self.link, reason))

    def _become_closed(self) -> None:
        self._phase = _Phase.CLOSED
        self._octets = b""
        self._is_refused = False
        self._deadlines = Deadlines()

    def _send(self, command: bytes) -> None:
        self._effects.append(Send(self.link, (command,)))


_PROTOCOLS: dict[type, str] = {Version1: "zeps/1", Version2: "zeps/2"}
