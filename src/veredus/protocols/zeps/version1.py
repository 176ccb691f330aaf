"""The node's end of one attachment by version 1 of ZEPS: an anonymous source, and subscriptions without a cursor.

    ASKING ── who it is ──► ATTACHING ── granted: ATTACH-OK ──► OPEN ── DETACH, bad ──► LEAVING
        └─────────── INVALID, silent, gone, node stops ──────────┴──────── last word ──┴──► CLOSED

ASKING     The node is finding out who the peer is. What the peer already says is held, up to the greeting's size.
ATTACHING  The stream is being opened to publish to. Who may not publish can subscribe, and hears of it at a PUBLISH.
OPEN       Commands are obeyed.
LEAVING    The last word is owed, DETACH-OK or INVALID: it says that each good command before it has taken effect. Over
           ZeroMQ an ATTACH ends the attachment too: then ATTACH-OK says it, which is the last word of another one.
CLOSED     Nothing more is said or heard.

Answers are given in the order of the commands (`Answers`): PING-OK and DETACH-OK confirm each PUBLISH in front of them.
What is delivered goes its own way beside the answers (`Delivering`): how much depends on credit, not on the commands.
A peer of an open stream is pinged when it is silent, and let go when it stays so. What version 1 cannot say (a gap, a
refused batch, a stream that is gone) ends the attachment with INVALID and the reason: nothing is skipped in silence.

Invariants
    (1) Each session that was opened downward is closed by exactly one `SessionClosed`.
    (2) A command that cannot be obeyed takes nothing from those before it, and nothing behind it is obeyed.
Source: seed 004, "Protocol Specification"; docs/internals/DESIGN.md, "ZEPS 1".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from veredus.kernel.effects import CloseLink, Note, Send
from veredus.kernel.engine import Now
from veredus.kernel.errors import PeerFault, Refused, VeredusError
from veredus.kernel.events import DeadlineReached, LinkClosed, LinkCongested, LinkDrained, LinkTaking, Received
from veredus.kernel.octets import Octets
from veredus.kernel.symbol import Symbol
from veredus.protocols.links import (
    SESSION_BITS,
    DrainRequested,
    FrameRefused,
    ReadingPaused,
    ReadingResumed,
    TurnGiven,
    WorkDone,
    session_of,
)
from veredus.protocols.liveness import Liveness, Verdict
from veredus.streams import exchange as x

from . import frames
from .answers import Answers
from .asking import asked_of, said_of_latest
from .delivering import Delivering
from .frames import Command, CommandParser
from .holding import Held
from .orders import AskPrincipal, LinkLimits, PrincipalKnown
from .packing import batches_of
from .undelivered import Undelivered


class Phase(Symbol):
    """Where the attachment stands; see the module."""

    ASKING = "asking"
    ATTACHING = "attaching"
    OPEN = "open"
    LEAVING = "leaving"
    CLOSED = "closed"


_HOLDING = (Phase.ASKING, Phase.ATTACHING)
DETACHED = ("detached", "attached again")
"""Why an attachment is over that its client has ended."""
COMMANDS_AT_ONCE_MAX = 400
COMMAND_NS = 5_000
"""What a command costs beside its octets, in nanoseconds, and how many are obeyed in one turn; measured, roughly."""


class Version1:
    """Owns one version 1 attachment; see the module for the picture."""

    __slots__ = (
        "_answers", "_delivering", "_effects", "_held", "_is_framed", "_limits", "_liveness", "_refusal", "_source",
        "_stream", "_stream_id", "channel", "link", "parser", "phase", "principal",
    )  # fmt: skip

    def __init__(
        self,
        link: int,
        principal: str,
        stream: bytes,
        is_framed: bool,
        limits: LinkLimits,
        undelivered: Undelivered,
        channel: int = 0,
    ) -> None:
        """The end of `link`; `is_framed`: a command a frame (ZeroMQ); `channel`: the last one of a former life."""
        self.link = link
        self.principal = principal
        self.phase = Phase.ASKING
        self.channel = channel
        self._stream = stream.decode(errors="backslashreplace")
        self._is_framed = is_framed
        self._limits = limits
        self.parser = CommandParser(limits.batch.body_size_max)
        self._effects: list[object] = []
        self._liveness = Liveness(limits.heartbeat_interval_ns, limits.silence_max_ns)
        self._held = Held(limits.greeting_size_max)
        self._stream_id = 0
        self._source = 0
        self._refusal: x.Refuse | None = None
        """Why the peer may not publish; noted when it does."""
        self._answers = Answers()
        self._delivering = Delivering(
            link, self._stream, is_framed, self._answers, self._effects, self._next_session, undelivered
        )

    @property
    def has_more(self) -> bool:
        """Whether commands wait that are to be obeyed in another turn."""
        return self.phase is Phase.OPEN and self.parser.has_more

    @property
    def wants_turn(self) -> bool:
        """Whether something is to be delivered in another turn."""
        return self._delivering.is_turn_due

    @property
    def is_answered(self) -> bool:
        """Whether the ATTACH has been answered."""
        return self.phase not in _HOLDING

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
        effects = self._effects.copy()
        self._effects.clear()
        return effects

    # ── the link ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _receive(self, event: Received, now: Now) -> None:
        self._liveness.hear(now.monotonic_ns)
        data = self._held.admit(event.data) if self.phase in _HOLDING else event.data
        is_whole = len(data) == len(event.data)
        try:
            if is_whole or not self._is_framed:
                commands = self._commands_in(data)
                self._effects.append(WorkDone(self.link, COMMAND_NS * len(commands)))
                for command in commands:
                    self._take_command(command, now)
                self._answer()
            if not is_whole and self.parser.fault is None:
                raise self._held.overflow
        except (PeerFault, Refused) as error:
            self._blame(error)
        if self.parser.fault is not None:
            # Not raised: what it came through would be kept with it, and what was received.
            self._blame(self.parser.fault)

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
        return self.parser.feed(data) if self.phase in _HOLDING else self.parser.feed(data, COMMANDS_AT_ONCE_MAX)

    def _take_command(self, command: Command, now: Now) -> None:
        handler = _COMMANDS.get(type(command)) if self.phase is Phase.OPEN else None
        if handler is not None:
            handler(self, command, now)
        elif self.phase in _HOLDING:
            self._held.hold(command)
        elif self.phase is Phase.OPEN:
            raise PeerFault("unexpected", f"{frames.name_of(command)} is not allowed here")

    def _blame(self, error: VeredusError) -> None:
        """A command cannot be obeyed: what came before it counts, and is answered, then INVALID says why."""
        if self.phase in _HOLDING:
            self._held.fault = self._held.fault or error.bare()
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
        self._delivering.end()
        self.phase = Phase.LEAVING
        self._liveness.end()

    def _answer(self) -> None:
        """Say what is owed and due; what was withheld meanwhile is delivered."""
        was_withheld = self._answers.withholds_deliveries
        for answer in self._answers.due():
            if self._is_framed:
                for _ in range(answer.times):
                    self._send(answer.command)
            else:
                self._send(answer.command * answer.times)
            if answer.ends:
                self._close(answer.ends)
        if was_withheld and self.phase is Phase.OPEN:
            self._delivering.deliver()

    def _close(self, reason: str) -> None:
        self._become_closed()
        self._effects.append(CloseLink(self.link, reason))

    def _become_closed(self) -> None:
        self._delivering.close()
        self._end_source()
        self.phase = Phase.CLOSED
        self._liveness.end()
        self.parser = CommandParser(0)
        self._held.release()

    def _end_source(self) -> None:
        if self._source:
            self._effects.append(x.SessionClosed(self._source))
        self._source = 0

    def _next_session(self) -> int:
        """A session that no answer of the streams floor is on its way to."""
        self.channel = self.channel % ((1 << SESSION_BITS) - 1) + 1
        return session_of(self.link, self.channel)

    def _lose(self, event: LinkClosed, now: Now) -> None:
        self._become_closed()

    def _drain_node(self, event: DrainRequested, now: Now) -> None:
        is_stopping = event.code == "draining"
        self._send(frames.DETACH if is_stopping else frames.encode_invalid(f"{event.code}: {event.message}"))
        self._close(event.code)

    def _watch(self, event: DeadlineReached, now: Now) -> None:
        verdict = self._liveness.look(now.monotonic_ns)
        if verdict is Verdict.PING:
            self._send(frames.PING)
        elif verdict is Verdict.SILENT:
            fields: dict[str, object] = {"link": self.link, "code": "silent", "message": "nothing came from the peer"}
            self._effects.append(Note("warning", "peer-broke-protocol", fields))
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
            self._effects.append(Note("warning", f"peer-{event.code}", {"link": self.link, "reason": event.reason}))
            self._send(frames.encode_invalid(f"{event.code}: {event.reason}"))
            self._close(event.code)
        else:
            self._attach(event.principal)

    def _attach(self, principal: str) -> None:
        self.principal = self._delivering.principal = principal
        self.phase = Phase.ATTACHING
        self._source = self._next_session()
        self._effects.append(x.SourceAttachRequested(self._source, principal, self._stream, "", b"", is_inquiry=True))

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
            self._answer()
        except (PeerFault, Refused) as error:
            fault = error
        if fault is not None:
            self._blame(fault)

    def _refuse(self, said: x.Refuse, now: Now) -> None:
        error = said_of_latest(said)
        if self._delivering.is_probe(said.session):
            self._refuse_subscription(error)
        elif self._delivering.is_leg(said.session):
            self._delivering.forget_leg()
            self._blame(error)
        elif said.session != self._source:
            return
        elif self.phase is Phase.ATTACHING and said.code == "forbidden":
            self._end_source()
            self._refusal = said
            self._become_open(now)
        else:
            self._reject(error)

    # ── publish ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _publish(self, command: frames.Publish, now: Now) -> None:
        if self._refusal is not None:
            fields = {**self._refusal.details, "session": self._refusal.session}
            self._effects.append(Note("warning", "forbidden", fields))
            raise Refused(self._refusal.code, self._refusal.message)
        first = self._answers.number_offered + 1
        for record, header in batches_of(command, self._limits.batch, self._stream_id, first, now.wall_us):
            self._answers.offer(header.last_number)
            self._effects.append(x.BatchOffered(self._source, record, header))

    def _confirm_taken(self, said: x.ConfirmTaken, now: Now) -> None:
        if said.session == self._source:
            self._answers.take(said.last_number)
            self._delivering.go_on()
            self._answer()

    def _refuse_batch(self, said: x.RefuseBatch, now: Now) -> None:
        if said.session == self._source:
            self._reject(Refused(said.code, said.message))

    def _detach(self, command: frames.Detach, now: Now) -> None:
        self._become_leaving()
        self._answers.owe(frames.DETACH_OK, DETACHED[0])
        self._answer()

    def _attach_again(self, command: frames.Attach, now: Now) -> None:
        if not self._is_framed:
            raise PeerFault("unexpected", "ATTACH is not allowed here")
        self._become_leaving()
        self._answers.end(DETACHED[1])
        self._answer()

    # ── subscribe ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _subscribe(self, command: frames.Subscribe, now: Now) -> None:
        self._delivering.subscribe(asked_of(command.pattern, command.latest, now.wall_us))

    def _grant_subscription(self, said: x.GrantSubscription, now: Now) -> None:
        self._delivering.grant(said)
        self._answer()

    def _refuse_subscription(self, error: Refused) -> None:
        self._delivering.forget_asked()
        self._become_leaving()
        self._answers.refuse_subscription(self._invalid(error), error.code)
        self._answer()

    def _push_gap(self, said: x.PushGap, now: Now) -> None:
        try:
            self._delivering.push_gap(said)
        except Refused as error:
            self._blame(error)

    def _relieve(self, event: LinkDrained, now: Now) -> None:
        # What lay in front of a PING was taken: who is slow is not silent.
        self._liveness.hear(now.monotonic_ns)
        self._delivering.relieve()


_Handler: TypeAlias = Callable[[Version1, Any, Now], None]

_LINK: dict[type, _Handler] = {
    Received: Version1._receive,
    FrameRefused: lambda link, event, _: link._blame(PeerFault(event.code, event.message)),
    LinkClosed: Version1._lose,
    LinkCongested: lambda link, _, __: link._delivering.congest(),
    LinkDrained: Version1._relieve,
    LinkTaking: lambda link, _, now: link._liveness.hear(now.monotonic_ns),
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
        TurnGiven: lambda link, _, __: link._delivering.take_turn(),
        x.GrantSubscription: Version1._grant_subscription,
        x.Push: lambda link, said, _: link._delivering.push(said),
        x.PushProgress: lambda link, said, _: link._delivering.push_progress(said),
        x.PushGap: Version1._push_gap,
        x.EndSubscription: lambda link, said, _: link._delivering.finish_leg(said),
    },
    Phase.LEAVING: {**_LINK, **_SOURCE, x.GrantSubscription: Version1._grant_subscription},
    Phase.CLOSED: {},
}
_COMMANDS: dict[type, _Handler] = {
    frames.Ping: lambda link, _, __: link._answers.owe(frames.PING_OK),
    frames.PingOk: lambda *_: None,
    frames.Publish: Version1._publish,
    frames.Subscribe: Version1._subscribe,
    frames.Credit: lambda link, command, _: link._delivering.give_credit(command.credit),
    frames.Detach: Version1._detach,
    frames.Attach: Version1._attach_again,
}
"""What is obeyed where the stream is open; of a PING-OK it is enough that it was heard."""
