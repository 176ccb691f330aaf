"""The node's end of one attachment by version 1 of ZEPS: an anonymous source, and a subscription without a cursor.

    ASKING ── who it is ──► ATTACHING ── granted: ATTACH-OK ──► OPEN ── DETACH ──► LEAVING ── all taken: DETACH-OK
        └─────────── INVALID, silent, gone, node stops ──────────┴───────────────────┴──► CLOSED

ASKING     The node is finding out who the peer is. What the peer already says is held, up to the greeting's size.
ATTACHING  The stream is being opened to publish to. Who may not publish can subscribe, and hears of it at a PUBLISH.
OPEN       Commands are obeyed. Credit counts the bytes of DELIVER commands, and may be overdrawn by one of them.
LEAVING    DETACH was said: what was published before it is on its way to the disk; DETACH-OK says that it has arrived.
CLOSED     Nothing more is said or heard.

PING is answered in any phase; only a peer that has pinged is let go for silence. What version 1 cannot say (a gap, a
refused batch, a stream that is gone) ends the attachment with INVALID and the reason: nothing is skipped in silence.

Invariants
    (1) Each sequence is delivered at most once on an attachment, and exactly once as credit allows (`Interests`).
    (2) What waits here for credit is at most what `WINDOW_SIZE` of credit let the streams floor push.
    (3) Each session that was opened downward is closed by exactly one `SessionClosed`.
Source: seed 004, "Protocol Specification"; the design, section 5 ("ZEPS").
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from veredus.kernel.deadlines import Deadlines
from veredus.kernel.effects import CloseLink, Note, Send
from veredus.kernel.engine import Now
from veredus.kernel.errors import PeerFault, Refused, VeredusError
from veredus.kernel.events import DeadlineReached, LinkClosed, LinkCongested, LinkDrained, Received
from veredus.kernel.symbol import Symbol
from veredus.matching import Filter, Pattern, compile_pattern, prefix_text
from veredus.protocols.links import SESSION_BITS, DrainRequested, ReadingPaused, ReadingResumed, session_of
from veredus.streams import exchange as x

from . import frames
from .frames import Command, CommandParser
from .interests import Interests
from .orders import AskPrincipal, LinkLimits, PrincipalKnown, SessionCongested, SessionDrained
from .packing import Unpacker, batches_of

WINDOW_SIZE = 256 << 10
"""Credit that the streams floor is given at a time, in bytes, whatever the client has given."""
CREDIT_MAX = 1 << 62
_SOURCE_CHANNEL = 1
_COMMAND_SIZE = 16


class Phase(Symbol):
    """Where the attachment stands; see the module."""

    ASKING = "asking"
    ATTACHING = "attaching"
    OPEN = "open"
    LEAVING = "leaving"
    CLOSED = "closed"


class Version1:
    """Owns one version 1 attachment; see the module for the picture."""

    __slots__ = (
        "_credit", "_deadlines", "_effects", "_floor_credit", "_has_source", "_held", "_held_size", "_interests",
        "_is_congested", "_is_framed", "_is_paused", "_limits", "_number_offered", "_number_taken", "_owed_count",
        "_parser", "_received_ns", "_refusal", "_session", "_stream", "_stream_id", "_unpacker", "link", "phase",
        "principal",
    )  # fmt: skip

    def __init__(self, link: int, principal: str, stream: bytes, is_framed: bool, limits: LinkLimits) -> None:
        """The node's end of link number `link`, which asked for `stream`; `is_framed`: one command a frame (ZeroMQ)."""
        self.link = link
        self.principal = principal
        self.phase = Phase.ASKING
        self._stream = stream.decode("latin-1")
        self._is_framed = is_framed
        self._limits = limits
        self._parser = CommandParser(limits.greeting_size_max)
        self._effects: list[object] = []
        self._deadlines: Deadlines[str] = Deadlines()
        self._received_ns = 0
        self._is_paused = False
        self._held: list[Command] = []
        self._held_size = 0
        self._stream_id = 0
        self._has_source = False
        self._refusal = ""
        self._number_offered = 0
        self._number_taken = 0
        self._interests = Interests()
        self._session = 0
        self._owed_count = 0
        self._credit = 0
        self._floor_credit = 0
        self._unpacker = Unpacker()
        self._is_congested = False

    def begin(self, now: Now) -> Sequence[object]:
        """What follows from the ATTACH itself."""
        self._received_ns = now.monotonic_ns
        if self.principal:
            self._attach(self.principal)
        else:
            self._effects.append(AskPrincipal(self.link, None))
        return self._take_effects()

    def handle(self, event: object, now: Now) -> Sequence[object]:
        """Take one fact about the link, or one order of the streams floor for a session of it."""
        handler = _HANDLERS[self.phase].get(type(event))
        if handler is not None:
            handler(self, event, now)
        return self._take_effects()

    def deadline(self) -> int | None:
        """When a peer that pings has been silent for too long."""
        return self._deadlines.next_ns()

    def _take_effects(self) -> Sequence[object]:
        effects, self._effects = self._effects, []
        return effects

    # ── the link ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _receive(self, event: Received, now: Now) -> None:
        self._received_ns = now.monotonic_ns
        try:
            if self._is_framed:
                self._take_command(frames.decode_command(event.data, self._parser.size_max), now)
                return
            for command in self._parser.feed(event.data):
                self._take_command(command, now)
            if self._parser.fault is not None:
                raise self._parser.fault
        except (PeerFault, Refused) as error:
            self._reject(error)

    def _take_command(self, command: Command, now: Now) -> None:
        handler = _COMMANDS[self.phase].get(type(command))
        if handler is not None:
            handler(self, command, now)
        elif self.phase in (Phase.ASKING, Phase.ATTACHING):
            self._hold(command)
        elif self.phase is Phase.OPEN:
            raise PeerFault("unexpected", f"{type(command).__name__} is nothing that a client says here")

    def _hold(self, command: Command) -> None:
        size = _COMMAND_SIZE
        if isinstance(command, frames.Publish):
            size = _COMMAND_SIZE * len(command.keys) + sum(map(len, command.keys)) + sum(map(len, command.bodies))
        self._held_size += size
        if self._held_size > self._limits.greeting_size_max:
            raise PeerFault("too-large", "wait for ATTACH-OK before saying so much")
        self._held.append(command)

    def _reject(self, error: VeredusError) -> None:
        """Say INVALID with the reason, and end."""
        if self.phase is Phase.CLOSED:
            return
        fields: dict[str, object] = {"link": self.link, "code": error.code, "message": error.message}
        self._effects.append(Note("warning", "attachment-invalid", fields))
        self._send(frames.encode_invalid(error.message))
        self._close(error.code)

    def _close(self, reason: str) -> None:
        self._become_closed()
        self._effects.append(CloseLink(self.link, reason))

    def _become_closed(self) -> None:
        self._end_subscription()
        if self._has_source:
            self._effects.append(x.SessionClosed(session_of(self.link, _SOURCE_CHANNEL)))
            self._has_source = False
        self.phase = Phase.CLOSED
        self._deadlines.clear("silence")
        self._unpacker = Unpacker()
        self._held.clear()

    def _lose(self, event: LinkClosed, now: Now) -> None:
        self._become_closed()

    def _drain_node(self, event: DrainRequested, now: Now) -> None:
        self._send(frames.DETACH)
        self._close("draining")

    def _watch(self, event: DeadlineReached, now: Now) -> None:
        for _ in self._deadlines.due(now.monotonic_ns):
            silent_ns = 0 if self._is_paused else now.monotonic_ns - self._received_ns
            if silent_ns >= self._limits.silence_max_ns:
                self._close("silent")
            else:
                self._deadlines.set("silence", now.monotonic_ns + self._limits.silence_max_ns - silent_ns)

    def _pause(self, event: ReadingPaused, now: Now) -> None:
        self._is_paused = True

    def _resume(self, event: ReadingResumed, now: Now) -> None:
        self._is_paused = False
        self._received_ns = now.monotonic_ns

    def _send(self, command: bytes) -> None:
        self._effects.append(Send(self.link, (command,)))

    # ── attach ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _know_principal(self, event: PrincipalKnown, now: Now) -> None:
        if event.principal is None:
            self._reject(Refused(event.code, event.reason))
        else:
            self._attach(event.principal)

    def _attach(self, principal: str) -> None:
        self.principal = principal
        self.phase = Phase.ATTACHING
        self._has_source = True
        session = session_of(self.link, _SOURCE_CHANNEL)
        self._effects.append(x.SourceAttachRequested(session, principal, self._stream, "", b""))

    def _grant_source(self, said: x.GrantSource, now: Now) -> None:
        if self.phase is Phase.ATTACHING:
            self._stream_id = said.stream_id
            self._become_open(now)

    def _become_open(self, now: Now) -> None:
        self.phase = Phase.OPEN
        self._parser.size_max = self._limits.batch.body_size_max
        self._send(frames.ATTACH_OK)
        held, self._held = self._held, []
        try:
            for command in held:
                self._take_command(command, now)
        except (PeerFault, Refused) as error:
            self._reject(error)

    def _refuse(self, said: x.Refuse, now: Now) -> None:
        error = Refused(said.code, said.message)
        if said.session != session_of(self.link, _SOURCE_CHANNEL):
            if said.session == self._session:
                self._reject(error)
        elif self.phase is Phase.ATTACHING and said.code == "forbidden":
            self._has_source = False
            self._effects.append(x.SessionClosed(said.session))
            self._refusal = said.message
            self._become_open(now)
        else:
            self._reject(error)

    # ── publish ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _publish(self, command: frames.Publish, now: Now) -> None:
        if not self._has_source:
            raise Refused("forbidden", self._refusal)
        session = session_of(self.link, _SOURCE_CHANNEL)
        first = self._number_offered + 1
        for record, header in batches_of(command, self._limits.batch, self._stream_id, first, now.wall_us):
            self._number_offered = header.last_number
            self._effects.append(x.BatchOffered(session, record, header))

    def _confirm_taken(self, said: x.ConfirmTaken, now: Now) -> None:
        self._number_taken = said.last_number
        if self.phase is Phase.LEAVING:
            self._leave_if_taken()

    def _refuse_batch(self, said: x.RefuseBatch, now: Now) -> None:
        self._reject(Refused(said.code, said.message))

    def _detach(self, command: frames.Detach, now: Now) -> None:
        self._end_subscription()
        self._unpacker = Unpacker()
        self.phase = Phase.LEAVING
        self._leave_if_taken()

    def _leave_if_taken(self) -> None:
        if self._number_taken == self._number_offered:
            self._send(frames.DETACH_OK)
            self._close("detached")

    # ── subscribe ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _subscribe(self, command: frames.Subscribe, now: Now) -> None:
        self._interests.add(_pattern_of(command.pattern), command.latest)
        self._owed_count += 1
        self._begin_leg()

    def _begin_leg(self) -> None:
        channel = self._session & ((1 << SESSION_BITS) - 1)
        self._end_subscription()
        # The source's channel is passed over when the numbers come round.
        self._session = session_of(self.link, max(channel + 1, _SOURCE_CHANNEL + 1) % (1 << SESSION_BITS) or 2)
        leg = self._interests.next_leg()
        self._floor_credit = self._wanted_credit()
        self._effects.append(
            x.SubscribeRequested(
                self._session,
                self.principal,
                self._stream,
                filter=Filter(leg.keys),
                start=x.Start(x.StartKind.SEQUENCE, leg.start),
                until=leg.until,
                credit=self._floor_credit,
            )
        )

    def _end_subscription(self) -> None:
        if self._session:
            self._effects.append(x.SessionClosed(self._session))
            self._session = 0

    def _grant_subscription(self, said: x.GrantSubscription, now: Now) -> None:
        if said.session == self._session:
            for _ in range(self._owed_count):
                self._send(frames.SUBSCRIBE_OK)
            self._owed_count = 0
            self._interests.advance(said.position)
            if self._is_congested:
                self._effects.append(SessionCongested(self._session))

    def _push(self, said: x.Push, now: Now) -> None:
        if said.session == self._session:
            self._floor_credit -= said.size + x.PUSH_OVERHEAD
            self._unpacker.add(said.buffers, self._interests.covered)
            self._interests.advance(said.last_sequence + 1)
            self._deliver()

    def _push_progress(self, said: x.PushProgress, now: Now) -> None:
        if said.session == self._session:
            self._interests.advance(said.position)

    def _push_gap(self, said: x.PushGap, now: Now) -> None:
        if said.session == self._session:
            last = said.next_sequence - 1
            self._reject(Refused("gap", f"sequences {said.first_sequence} to {last} cannot be had: {said.code}"))

    def _finish_leg(self, said: x.EndSubscription, now: Now) -> None:
        if said.session == self._session:
            self._interests.advance(said.next_sequence)
            self._begin_leg()

    # ── credit ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _take_credit(self, command: frames.Credit, now: Now) -> None:
        self._credit = min(self._credit + command.credit, CREDIT_MAX)
        self._deliver()

    def _deliver(self) -> None:
        """Deliver what credit allows, and let the streams floor push more when nothing is left here."""
        if not self._is_congested:
            commands, self._credit = self._unpacker.take(self._credit)
            if self._is_framed:
                self._effects += [Send(self.link, (command,)) for command in commands]
            elif commands:
                self._effects.append(Send(self.link, (b"".join(commands),)))
        wanted = self._wanted_credit()
        if self._session and wanted and self._floor_credit <= 0:
            self._effects.append(x.CreditGranted(self._session, wanted - self._floor_credit))
            self._floor_credit = wanted

    def _wanted_credit(self) -> int:
        return min(self._credit, WINDOW_SIZE) if self._unpacker.is_empty and self._credit > 0 else 0

    def _congest(self, event: LinkCongested, now: Now) -> None:
        self._is_congested = True
        if self._session:
            self._effects.append(SessionCongested(self._session))

    def _relieve(self, event: LinkDrained, now: Now) -> None:
        self._is_congested = False
        if self._session:
            self._effects.append(SessionDrained(self._session))
        self._deliver()

    # ── heartbeat ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _answer_ping(self, command: frames.Ping, now: Now) -> None:
        self._send(frames.PING_OK)
        if not self._deadlines.is_set("silence"):
            self._deadlines.set("silence", now.monotonic_ns + self._limits.silence_max_ns)

    def _pass_over(self, command: frames.PingOk, now: Now) -> None:
        """An answer to a heartbeat; that it was heard is enough."""


def _pattern_of(octets: bytes) -> Pattern:
    """The pattern of a SUBSCRIBE: with a scheme as written, else a prefix, whatever octets it has. Raises `Refused`."""
    try:
        return compile_pattern(octets.decode())
    except UnicodeDecodeError:
        return compile_pattern(prefix_text(octets))


_Handler: TypeAlias = Callable[[Version1, Any, Now], None]

_LINK: dict[type, _Handler] = {
    Received: Version1._receive,
    LinkClosed: Version1._lose,
    LinkCongested: Version1._congest,
    LinkDrained: Version1._relieve,
    DeadlineReached: Version1._watch,
    DrainRequested: Version1._drain_node,
    ReadingPaused: Version1._pause,
    ReadingResumed: Version1._resume,
}
_SOURCE: dict[type, _Handler] = {
    x.GrantSource: Version1._grant_source,
    x.ConfirmTaken: Version1._confirm_taken,
    x.RefuseBatch: Version1._refuse_batch,
    x.Refuse: Version1._refuse,
}
_HANDLERS: dict[Phase, dict[type, _Handler]] = {
    Phase.ASKING: {**_LINK, PrincipalKnown: Version1._know_principal},
    Phase.ATTACHING: {**_LINK, **_SOURCE},
    Phase.OPEN: {
        **_LINK,
        **_SOURCE,
        x.GrantSubscription: Version1._grant_subscription,
        x.Push: Version1._push,
        x.PushProgress: Version1._push_progress,
        x.PushGap: Version1._push_gap,
        x.EndSubscription: Version1._finish_leg,
    },
    Phase.LEAVING: {**_LINK, **_SOURCE},
    Phase.CLOSED: {},
}
_HEARTBEAT: dict[type, _Handler] = {frames.Ping: Version1._answer_ping, frames.PingOk: Version1._pass_over}
_COMMANDS: dict[Phase, dict[type, _Handler]] = {
    Phase.ASKING: _HEARTBEAT,
    Phase.ATTACHING: _HEARTBEAT,
    Phase.OPEN: {
        **_HEARTBEAT,
        frames.Publish: Version1._publish,
        frames.Subscribe: Version1._subscribe,
        frames.Credit: Version1._take_credit,
        frames.Detach: Version1._detach,
    },
    Phase.LEAVING: _HEARTBEAT,
    Phase.CLOSED: {},
}
