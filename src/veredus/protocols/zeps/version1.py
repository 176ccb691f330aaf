"""The node's end of one attachment by version 1 of ZEPS: an anonymous source, and a subscription without a cursor.

    ASKING ── who it is ──► ATTACHING ── granted: ATTACH-OK ──► OPEN ── DETACH, bad ──► LEAVING
        └─────────── INVALID, silent, gone, node stops ──────────┴──────── last word ──┴──► CLOSED

ASKING     The node is finding out who the peer is. What the peer already says is held, up to the greeting's size.
ATTACHING  The stream is being opened to publish to. Who may not publish can subscribe, and hears of it at a PUBLISH.
OPEN       Commands are obeyed. Credit counts the bytes of DELIVER commands, and may be overdrawn by one of them.
LEAVING    The last word is owed, DETACH-OK or INVALID: it says that each good command before it has taken effect.
CLOSED     Nothing more is said or heard.

Answers are given in the order of the commands (`Answers`): PING-OK and DETACH-OK confirm each PUBLISH in front of them.
A peer of an open stream is pinged when it is silent, and let go when it stays so. What version 1 cannot say (a gap, a
refused batch, a stream that is gone) ends the attachment with INVALID and the reason: nothing is skipped in silence.

Invariants
    (1) Each sequence is delivered at most once on an attachment, and exactly once as credit allows (`Interests`).
    (2) What waits here for credit is at most what `WINDOW_SIZE` of credit let the streams floor push.
    (3) Each session that was opened downward is closed by exactly one `SessionClosed`.
    (4) A command that cannot be obeyed takes nothing from those before it, and nothing behind it is obeyed.
Source: seed 004, "Protocol Specification"; the design, section 5 ("ZEPS").
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from veredus.kernel.effects import CloseLink, Note, Send
from veredus.kernel.engine import Now
from veredus.kernel.errors import PeerFault, Refused, VeredusError
from veredus.kernel.events import DeadlineReached, LinkClosed, LinkCongested, LinkDrained, Received
from veredus.kernel.octets import Octets
from veredus.kernel.symbol import Symbol
from veredus.matching import Filter
from veredus.protocols.links import (
    SESSION_BITS,
    DrainRequested,
    FrameRefused,
    ReadingPaused,
    ReadingResumed,
    session_of,
)
from veredus.protocols.liveness import Liveness, Verdict
from veredus.streams import exchange as x

from . import frames
from .answers import Answers
from .asking import Asked, asked_of
from .frames import Command, CommandParser
from .holding import Held
from .interests import Interests
from .orders import AskPrincipal, LinkLimits, PrincipalKnown, SessionCongested, SessionDrained
from .packing import Unpacker, batches_of

WINDOW_SIZE = 256 << 10
"""Credit that the streams floor is given at a time, in bytes, whatever the client has given."""
CREDIT_MAX = 1 << 62


class Phase(Symbol):
    """Where the attachment stands; see the module."""

    ASKING = "asking"
    ATTACHING = "attaching"
    OPEN = "open"
    LEAVING = "leaving"
    CLOSED = "closed"


_HOLDING = (Phase.ASKING, Phase.ATTACHING)


class Version1:
    """Owns one version 1 attachment; see the module for the picture."""

    __slots__ = (
        "_answers", "_asked", "_credit", "_effects", "_floor_credit", "_held", "_interests", "_is_congested",
        "_is_framed", "_limits", "_liveness", "_probe", "_refusal", "_session", "_source", "_stream",
        "_stream_id", "_unpacker", "channel", "link", "parser", "phase", "principal",
    )  # fmt: skip

    def __init__(
        self, link: int, principal: str, stream: bytes, is_framed: bool, limits: LinkLimits, channel: int = 0
    ) -> None:
        """The end of `link`; `is_framed`: a command a frame (ZeroMQ); `channel`: the last one of a former life."""
        self.link = link
        self.principal = principal
        self.phase = Phase.ASKING
        self.channel = channel
        self._stream = stream.decode("latin-1")
        self._is_framed = is_framed
        self._limits = limits
        self.parser = CommandParser(limits.batch.body_size_max)
        self._effects: list[object] = []
        self._liveness = Liveness(limits.heartbeat_interval_ns, limits.silence_max_ns)
        self._held = Held(limits.greeting_size_max)
        self._stream_id = 0
        self._source = 0
        self._refusal = ""
        self._answers = Answers()
        self._asked: deque[Asked] = deque()
        self._probe = 0
        self._interests = Interests()
        self._session = 0
        self._credit = 0
        self._floor_credit = 0
        self._unpacker = Unpacker()
        self._is_congested = False

    def begin(self, now: Now) -> Sequence[object]:
        """What follows from the ATTACH itself."""
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
        """When a peer has been silent for long."""
        return self._liveness.deadline()

    def _take_effects(self) -> Sequence[object]:
        effects, self._effects = self._effects, []
        return effects

    # ── the link ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _receive(self, event: Received, now: Now) -> None:
        self._liveness.hear(now.monotonic_ns)
        data = self._held.admit(event.data) if self.phase in _HOLDING else event.data
        is_whole = len(data) == len(event.data)
        try:
            if is_whole or not self._is_framed:
                for command in self._commands_in(data):
                    self._take_command(command, now)
            if self.parser.fault is not None:
                raise self.parser.fault
            if not is_whole:
                raise self._held.overflow
        except (PeerFault, Refused) as error:
            self._blame(error)

    def _receive_run(self, run: frames.Publish, now: Now) -> None:
        self._liveness.hear(now.monotonic_ns)
        try:
            self._take_command(run, now)
        except (PeerFault, Refused) as error:
            self._blame(error)

    def _commands_in(self, data: Octets) -> list[Command]:
        if self._held.fault is not None or self.phase is Phase.LEAVING:
            return []
        if self._is_framed:
            return [frames.decode_command(data, self.parser.size_max)]
        return self.parser.feed(data)

    def _take_command(self, command: Command, now: Now) -> None:
        handler = _COMMANDS.get(type(command)) if self.phase is Phase.OPEN else None
        if handler is not None:
            handler(self, command, now)
        elif self.phase in _HOLDING:
            self._held.hold(command)
        elif self.phase is Phase.OPEN:
            raise PeerFault("unexpected", f"{type(command).__name__} is nothing that a client says here")

    def _blame(self, error: VeredusError) -> None:
        """A command cannot be obeyed: what came before it counts, and is answered, then INVALID says why."""
        if self.phase in _HOLDING:
            self._held.fault = self._held.fault or error
        elif self.phase is Phase.OPEN:
            self._become_leaving()
            self._answers.owe(self._invalid(error), error.code)
            self._answer()

    def _reject(self, error: VeredusError) -> None:
        """Say INVALID with the reason at once, and end: what is owed cannot be answered any more."""
        self._send(self._invalid(error))
        self._close(error.code)

    def _invalid(self, error: VeredusError) -> bytes:
        fields: dict[str, object] = {"link": self.link, "code": error.code, "message": error.message}
        self._effects.append(Note("warning", "attachment-invalid", fields))
        return frames.encode_invalid(f"{error.code}: {error.message}")

    def _become_leaving(self) -> None:
        self._end_subscription()
        self._unpacker = Unpacker()
        self.phase = Phase.LEAVING
        self._liveness.end()

    def _answer(self) -> None:
        """Say what is owed and due; what was withheld meanwhile is delivered."""
        was_withheld = self._answers.withholds_deliveries
        for answer in self._answers.due():
            for _ in range(answer.times):
                self._send(answer.command)
            if answer.ends:
                self._close(answer.ends)
        if was_withheld and self.phase is Phase.OPEN:
            self._deliver()

    def _close(self, reason: str) -> None:
        self._become_closed()
        self._effects.append(CloseLink(self.link, reason))

    def _become_closed(self) -> None:
        self._end_subscription()
        self._asked.clear()
        self._end_session(self._probe)
        self._end_session(self._source)
        self._probe = self._source = 0
        self.phase = Phase.CLOSED
        self._liveness.end()
        self._unpacker, self.parser = Unpacker(), CommandParser(0)
        self._held.release()

    def _end_session(self, session: int) -> None:
        if session:
            self._effects.append(x.SessionClosed(session))

    def _next_session(self) -> int:
        """A session that no answer of the streams floor is on its way to."""
        self.channel = self.channel % ((1 << SESSION_BITS) - 1) + 1
        return session_of(self.link, self.channel)

    def _lose(self, event: LinkClosed, now: Now) -> None:
        self._become_closed()

    def _drain_node(self, event: DrainRequested, now: Now) -> None:
        self._send(frames.DETACH)
        self._close(event.code)

    def _watch(self, event: DeadlineReached, now: Now) -> None:
        verdict = self._liveness.look(now.monotonic_ns)
        if verdict is Verdict.PING:
            self._send(frames.PING)
        elif verdict is Verdict.SILENT:
            self._send(frames.DETACH)
            self._close("silent")

    def _pause(self, event: ReadingPaused, now: Now) -> None:
        self._liveness.pause()

    def _resume(self, event: ReadingResumed, now: Now) -> None:
        self._liveness.resume(now.monotonic_ns)

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
        self._source = self._next_session()
        self._effects.append(x.SourceAttachRequested(self._source, principal, self._stream, "", b""))

    def _grant_source(self, said: x.GrantSource, now: Now) -> None:
        if said.session == self._source and self.phase is Phase.ATTACHING:
            self._stream_id = said.stream_id
            self._become_open(now)

    def _become_open(self, now: Now) -> None:
        self.phase = Phase.OPEN
        self._liveness.begin(now.monotonic_ns)
        self._send(frames.ATTACH_OK)
        fault, self._held.fault = self._held.fault, None
        try:
            for command in self._held.release():
                self._take_command(command, now)
        except (PeerFault, Refused) as error:
            fault = error
        if fault is not None:
            self._blame(fault)

    def _refuse(self, said: x.Refuse, now: Now) -> None:
        error = Refused(said.code, said.message)
        if said.session == self._probe:
            self._refuse_subscription(error)
        elif said.session == self._session:
            self._session = 0
            self._blame(error)
        elif said.session != self._source:
            return
        elif self.phase is Phase.ATTACHING and said.code == "forbidden":
            self._end_session(self._source)
            self._source = 0
            self._refusal = said.message
            self._become_open(now)
        else:
            self._reject(error)

    # ── publish ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _publish(self, command: frames.Publish, now: Now) -> None:
        if not self._source:
            raise Refused("forbidden", self._refusal)
        first = self._answers.number_offered + 1
        for record, header in batches_of(command, self._limits.batch, self._stream_id, first, now.wall_us):
            self._answers.offer(header.last_number)
            self._effects.append(x.BatchOffered(self._source, record, header))

    def _confirm_taken(self, said: x.ConfirmTaken, now: Now) -> None:
        if said.session == self._source:
            self._answers.take(said.last_number)
            self._answer()

    def _refuse_batch(self, said: x.RefuseBatch, now: Now) -> None:
        if said.session == self._source:
            self._reject(Refused(said.code, said.message))

    def _detach(self, command: frames.Detach, now: Now) -> None:
        self._become_leaving()
        self._answers.owe(frames.DETACH_OK, "detached")
        self._answer()

    # ── subscribe ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _subscribe(self, command: frames.Subscribe, now: Now) -> None:
        self._interests.check_room(len(self._asked))
        self._asked.append(asked_of(command.pattern, command.latest, now.wall_us))
        self._answers.owe_subscription()
        if not self._probe:
            self._ask_next()

    def _ask_next(self) -> None:
        """Find out whether the next subscription can be had, and where it begins, before it joins the others."""
        self._probe = self._next_session() if self._asked else 0
        if self._probe:
            start = self._asked[0].start
            self._effects.append(x.SubscribeRequested(self._probe, self.principal, self._stream, start=start))

    def _grant_asked(self, said: x.GrantSubscription, now: Now) -> None:
        pattern, start, latest = self._asked.popleft()
        self._end_session(self._probe)
        self._interests.add(pattern, latest if start.kind is x.StartKind.SEQUENCE else said.position - 1)
        self._ask_next()
        if not self._asked and self.phase is Phase.OPEN:
            self._begin_leg()
        self._answers.grant_subscription()
        self._answer()

    def _refuse_subscription(self, error: Refused) -> None:
        self._asked.clear()
        self._probe = 0
        self._become_leaving()
        self._answers.refuse_subscription(self._invalid(error), error.code)
        self._answer()

    def _begin_leg(self) -> None:
        self._end_subscription()
        self._session = self._next_session()
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
        self._end_session(self._session)
        self._session = 0

    def _grant_subscription(self, said: x.GrantSubscription, now: Now) -> None:
        if said.session == self._probe:
            self._grant_asked(said, now)
        elif said.session == self._session:
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
            self._blame(Refused("gap", f"sequences {said.first_sequence} to {last} are not available: {said.code}"))

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
        if not self._is_congested and not self._answers.withholds_deliveries:
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
        # What lay in front of a PING was taken: who is slow is not silent.
        self._liveness.hear(now.monotonic_ns)
        if self._session:
            self._effects.append(SessionDrained(self._session))
        self._deliver()

    # ── heartbeat ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _answer_ping(self, command: frames.Ping, now: Now) -> None:
        self._answers.owe(frames.PING_OK)
        self._answer()


_Handler: TypeAlias = Callable[[Version1, Any, Now], None]

_LINK: dict[type, _Handler] = {
    Received: Version1._receive,
    FrameRefused: lambda link, event, _: link._blame(PeerFault(event.code, event.message)),
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
        frames.Publish: Version1._receive_run,
        x.GrantSubscription: Version1._grant_subscription,
        x.Push: Version1._push,
        x.PushProgress: Version1._push_progress,
        x.PushGap: Version1._push_gap,
        x.EndSubscription: Version1._finish_leg,
    },
    Phase.LEAVING: {**_LINK, **_SOURCE, x.GrantSubscription: Version1._grant_subscription},
    Phase.CLOSED: {},
}
_COMMANDS: dict[type, _Handler] = {
    frames.Ping: Version1._answer_ping,
    frames.PingOk: lambda *_: None,
    frames.Publish: Version1._publish,
    frames.Subscribe: Version1._subscribe,
    frames.Credit: Version1._take_credit,
    frames.Detach: Version1._detach,
}
"""What is obeyed where the stream is open; of a PING-OK it is enough that it was heard."""
