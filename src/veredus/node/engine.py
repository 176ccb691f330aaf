"""The join: it turns one part's order into another part's event, and owns no protocol state.

    host ──links, disk──► NodeEngine ──► the link's engine ──requests──► streams ──appends──► journal ──► host
                                      ◄── frames ────────── ◄──answers── ◄──durable──

One event from the host may set off a chain of orders between the parts; `handle` follows it to its end before it
returns, and what nobody in here understands goes to the host.
Source: docs/internals/DESIGN.md, "The join".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, get_args

from msgspec import structs

from veredus.journal import exchange as journal
from veredus.journal.log import Log
from veredus.journal.phases import Phase
from veredus.kernel.deadlines import Deadlines
from veredus.kernel.effects import CloseLink, Note, PauseReading, Send
from veredus.kernel.engine import Now
from veredus.kernel.events import (
    DeadlineReached,
    LinkClosed,
    LinkCongested,
    LinkDrained,
    LinkOpened,
    LinkTaking,
    Received,
)
from veredus.protocols.links import (
    SESSION_BITS,
    AnswersAwaited,
    FrameRefused,
    ReadingPaused,
    ReadingResumed,
    TurnGiven,
    TurnWanted,
    WorkDone,
)
from veredus.protocols.links import DrainRequested as DrainLink
from veredus.protocols.topics.exchange import Answered, Asked
from veredus.protocols.zeps.orders import AskPrincipal, PrincipalKnown, SessionCongested, SessionDrained
from veredus.streams import exchange as streams
from veredus.streams.engine import StreamsEngine
from veredus.streams.rights import NOBODY, UNPROVEN

from . import receiving
from .administering import Administering
from .backlog import Backlog
from .checkpointing import Checkpointing
from .connections import PEER_FAULTS, Connections
from .dialects import LinkEngine, asker_of, carries_many
from .disk_share import DiskShare
from .exchange import DrainRequested as DrainRequested
from .exchange import FloorOrdered as FloorOrdered
from .exchange import PrincipalRevoked, RecordWritten, RightsChanged
from .pacing import Pacing
from .quotas import Quotas
from .receiving import DEFAULT_LIMITS, ReceiveBudget, ReceiveLimits
from .retention import Retention

UNHEARD_NS = 20_000_000
"""How soon a link is looked at again that would be late, had all been read that it may have said."""


class NodeEngine:
    """Owns the links' engines, the streams floor and the journal's log; see the module for the picture.

    Invariants
        (1) What came in by a link that is closed changes nothing any more, but what it had offered goes on its way.
        (2) While more than `unsynced_size_max` bytes wait for the disk, who has more than a share of them is not read.
        (3) A checkpoint is begun, and asked for, only when every `Appended` before it has been told to the streams
            floor, and everything that the floor has ordered to the log.
        (4) What follows from a fact is done before the next fact is told: who learns that an append was refused has
            ordered nothing yet that lies behind it.
        (5) Sessions hear what the floor says in its order, also what it says because of what they answer.
        (6) Who asked for a change hears how it ended when the record of that is in the audit log, where there is one.
        (7) Whose principal has had its share of work waits for its turn, and its link is not read from meanwhile.
    """

    def __init__(
        self,
        log: Log,
        floor: StreamsEngine,
        open_link: Callable[[LinkOpened], LinkEngine],
        unsynced_size_max: int,
        connections_max: int,
        receive_limits: ReceiveLimits = DEFAULT_LIMITS,
        rates_max: tuple[int, int] = (0, 0),
    ) -> None:
        """A node over a recovered log and floor.

        `open_link` makes a link's engine; one principal has `connections_max`, and `rates_max` bytes a second in, out.
        """
        self.receiving = ReceiveBudget(receive_limits)
        self.backlog = Backlog(receive_limits.size_max // 4, receive_limits.size_max)
        self.log = log
        self.floor = floor
        self.links: dict[int, LinkEngine] = {}
        self._open_link = open_link
        self._retention = Retention()
        self.connections = Connections(connections_max)
        self.administering = Administering()
        self.fault_count = 0
        self.pacing = Pacing()
        self.quotas = Quotas(*rates_max, self.pacing)
        self.disk_share = DiskShare(unsynced_size_max, self.connections, self.pacing)
        self._checkpointing = Checkpointing(floor)
        self._link_timers: Deadlines[int] = Deadlines()
        self._queue: deque[object] = deque()
        self._turns_given: Iterator[TurnGiven] = iter(())
        """Each is taken when nothing waits in the queue: what a link says of its turn overtakes nothing said to it."""
        self._out: list[object] = []

    def handle(self, event: object, now: Now) -> Sequence[object]:
        """Take one fact of the host's: of a link, of the disk, or of the clock."""
        self._queue.append(event)
        self._follow(now)
        if self._checkpointing.is_wanted:
            self._queue += (self._checkpointing.begin(), *self._checkpointing.go_on())
            self._follow(now)
        self._tell_paces(now)
        self._follow(now)
        out, self._out = self._out, []
        return out

    def deadline(self) -> int | None:
        """The earliest deadline of all parts; 0 while there is work that takes turns."""
        if self._checkpointing.is_under_way:
            return 0
        earliest = self._retention.deadline()
        parts = (self.log.deadline(), self.floor.deadline(), self._link_timers.next_ns())
        for at in (*parts, self.pacing.deadline(), self.receiving.deadline(), self.quotas.deadline()):
            if at is not None and at < earliest:
                earliest = at
        return earliest

    def close_journal(self, now: Now) -> Sequence[object]:
        """Order the final checkpoint: the next start reads no segment. Nothing may be appended after it."""
        while self.log.is_answering:
            # What is in the journal, the checkpoint's state must hold.
            self._tell_log(DeadlineReached(), now)
            self._follow(now)
        self._queue.append(self._checkpointing.close())
        self._follow(now)
        out, self._out = self._out, []
        return out

    # ── the chain ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _follow(self, now: Now) -> None:
        queue = self._queue
        while (event := queue.popleft() if queue else self._next_turn()) is not None:
            handler = _ROUTES.get(type(event))
            if handler is None:
                self._out.append(event)
            else:
                handler(self, event, now)

    def _next_turn(self) -> TurnGiven | None:
        self.disk_share.regulate(self.log.unsynced_size, self.log.unsynced_by)
        return next(self._turns_given, None)

    def _do_next(self, orders: Sequence[object]) -> None:
        """Put orders in front of what waits, in their order."""
        self._queue.extendleft(reversed(orders))

    def _follow_floor(self, event: FloorOrdered, now: Now) -> None:
        self._do_next(event.orders)

    def _tell_floor(self, event: object, now: Now) -> None:
        self._do_next(self.floor.handle(event, now))

    def _tell_session(self, event: Any, now: Now) -> None:
        link = self.links.get(event.session >> SESSION_BITS)
        if link is not None:
            # Behind all that the floor has said already: what it says because of this must not overtake that.
            self._queue.extend(link.handle(event, now))
            if link.is_timed_by_answers:
                self._set_timer(event.session >> SESSION_BITS, link)

    def _set_timer(self, number: int, link: LinkEngine) -> None:
        at = link.deadline()
        if at is not None:
            self._link_timers.set_earlier(number, at)

    def _tell_log(self, event: Any, now: Now) -> None:
        answers: list[object] = []
        for effect in self.log.handle(event, now):
            kind = type(effect)
            if kind in _ANSWERS:
                answers.append(effect)
            elif kind is journal.CheckpointWanted:
                self._checkpointing.is_wanted = True
            else:
                self._out.append(effect)
        if answers:
            self._do_next(self.floor.handle_all(answers, now))

    def _administer(self, event: streams.AdminRequested, now: Now) -> None:
        refusal = self.administering.refusal(event)
        self._tell_floor(event, now) if refusal is None else self._answer_admin(refusal, now)

    def _answer_admin(self, said: streams.AnswerAdmin | streams.Refuse, now: Now) -> None:
        notes = self.administering.note_answer(said)
        for note in notes:
            self._count_note(note, now)
        if notes and self.administering.is_recorded:
            self._out.append(self.administering.hold(said))
        else:
            self._tell_session(said, now)

    def _record_written(self, event: RecordWritten, now: Now) -> None:
        said = self.administering.release(event)
        if said is not None:
            self._tell_session(said, now)

    def _count_note(self, note: Note, now: Now) -> None:
        self.fault_count += note.event in PEER_FAULTS
        session = note.fields.get("session")
        if isinstance(session, int):
            note = self.connections.located(note, asker_of(session, self.links.get(session >> SESSION_BITS)))
        self._out.append(note)

    # ── facts of the host's ──────────────────────────────────────────────────────────────────────────────────────────

    def _link_opened(self, event: LinkOpened, now: Now) -> None:
        self.connections.open(event)
        # It counts as a connection of its principal once it has greeted: until then it has said nothing.
        event = structs.replace(event, principal="")
        self.links[event.link] = link = self._open_link(event)
        if carries_many(link):
            self.disk_share.share(event.link, link.askers)
        self._tell_link(event, now)

    def _tell_link(self, event: Any, now: Now) -> None:
        link = self.links.get(event.link)
        if link is None:
            return
        self._do_next(link.handle(event, now))
        self._set_timer(event.link, link)

    def _receive(self, event: Received, now: Now) -> None:
        self.quotas.receive(self.connections.principal_of(event.link), event, now)
        if event.link not in self.links:
            return
        if self.pacing.may_tell(event, self.connections.payer_of(event.link), now):
            self._do_next(self._work(event.link, event, now))
            self._set_timer(event.link, self.links[event.link])
        else:
            self._count_unread(event.link)

    def _work(self, number: int, event: object, now: Now) -> Sequence[object]:
        """Let the link's engine take what came, and count what it holds of a frame that is not whole."""
        link = self.links[number]
        try:
            effects = link.handle(event, now)
        except MemoryError:
            self._give_up(number, "the node has no memory left for this frame: try again later", now)
            return ()
        unfinished = link.unfinished
        if unfinished.frame_size or number in self.receiving:
            principal = self.connections.principal_of(number)
            # What is done for this comes behind what came before the frame that is not whole.
            self._budget(
                self.receiving.note(number, principal, principal not in UNPROVEN, unfinished, now.monotonic_ns), now
            )
        self._count_unread(number)
        return effects

    def _count_unread(self, number: int) -> None:
        unread_size = self.links[number].unread_size + self.pacing.held_size(number)
        self.backlog.note(number, self.connections.principal_of(number), unread_size)

    def read_size_of(self, number: int) -> int:
        """How many bytes are read from a link at a time; see `Backlog`."""
        return self.backlog.read_size(self.connections.principal_of(number))

    def _budget(self, orders: Sequence[receiving.Order], now: Now) -> None:
        """Do what the budget of unfinished frames asks for."""
        for order in orders:
            match order:
                case receiving.HoldBack(link):
                    self.pacing.hold_back(link)
                case receiving.ReadOn(link):
                    self.pacing.let_go(link)
                case receiving.GiveUp(link, message):
                    self._give_up(link, message, now)

    def _give_up(self, number: int, message: str, now: Now) -> None:
        """End a link: its dialect says why, and what it holds is free."""
        link = self.links.get(number)
        if link is not None:
            effects = list(link.handle(FrameRefused(number, "too-slow", message), now))
            if not any(isinstance(effect, CloseLink) for effect in effects):
                effects.append(CloseLink(number, "too-slow"))
            self._do_next(effects)
        self._budget(self.receiving.forget(number, now.monotonic_ns), now)

    def _congest(self, event: LinkCongested, now: Now) -> None:
        if event.link in self.links:
            self.pacing.congest(event.link, event.room)
            self._tell_link(event, now)

    def _drain_link(self, event: LinkDrained, now: Now) -> None:
        self.pacing.drain(event.link, self.connections.payer_of(event.link))
        if not self.quotas.sent.is_waiting(self.connections.principal_of(event.link), event.link):
            self._tell_link(event, now)

    def _count_sent(self, event: Send, now: Now) -> None:
        self._out.append(event)
        if self.quotas.send(self.connections.principal_of(event.link), event, now):
            self._tell_link(LinkCongested(event.link), now)

    def _charge(self, event: WorkDone, now: Now) -> None:
        self.pacing.charge(self.connections.payer_of(event.link), event.cost_ns, now)

    def _want_turn(self, event: TurnWanted, now: Now) -> None:
        self.pacing.want(event.link, self.connections.payer_of(event.link), is_behind=event.is_behind)

    def _give_turn(self, turn: TurnGiven, now: Now) -> None:
        event = self.pacing.next_of(turn)
        if type(event) is LinkClosed:
            self._link_closed(event, now)
            return
        effects = self._work(turn.link, event, now)
        if not (effects and type(effects[-1]) in (TurnWanted, AnswersAwaited)):
            self.pacing.end_turn(turn.link, self.connections.payer_of(turn.link))
        self._do_next(effects)
        self._set_timer(turn.link, self.links[turn.link])

    def _know_principal(self, event: PrincipalKnown, now: Now) -> None:
        told, orders = self.connections.judge(event, getattr(self.links.get(event.link), "protocol", ""))
        self._out += orders
        self.disk_share.know(event.link, self.connections.principal_of(event.link))
        self._tell_link(told, now)

    def _ask_principal(self, event: AskPrincipal, now: Now) -> None:
        known = self.connections.known_without(event)
        if known is not None:
            self._know_principal(known, now)
        else:
            self._out.append(event)

    def _link_closed(self, event: LinkClosed, now: Now) -> None:
        if not self.pacing.may_close(event, self.connections.payer_of(event.link)):
            return
        for note in self.administering.note_lost(event.link):
            self._count_note(note, now)
        self.quotas.forget(self.connections.principal_of(event.link), event.link)
        gone = self.connections.close(event.link, event.reason)
        if gone is not None:
            self._out.append(gone)
        link = self.links.pop(event.link, None)
        self._link_timers.clear(event.link)
        self.disk_share.forget(event.link)
        self._budget(self.receiving.leave(event.link, now.monotonic_ns), now)
        self.backlog.note(event.link, NOBODY, 0)
        if link is not None:
            self._do_next(link.handle(event, now))

    def _session_flow(self, event: SessionCongested | SessionDrained, now: Now) -> None:
        self._do_next(self.floor.set_congested(event.session, type(event) is SessionCongested, now))

    def _drain(self, event: DrainRequested, now: Now) -> None:
        for number in list(self.links):
            self._tell_link(DrainLink(number, "the node is stopping"), now)

    def _revoke(self, event: PrincipalRevoked, now: Now) -> None:
        who = {"link": event.link, "principal": self.connections.principal_of(event.link)}
        self._out.append(Note("warning", "principal-revoked", {**who, "code": event.code, "reason": event.message}))
        self._tell_link(DrainLink(event.link, event.message, event.code), now)

    def _renew_rights(self, event: RightsChanged, now: Now) -> None:
        self._do_next(self.floor.renew_rights(now))

    def _deadline_reached(self, event: DeadlineReached, now: Now) -> None:
        if _is_due(self.log.deadline(), now):
            self._tell_log(event, now)
        if _is_due(self.floor.deadline(), now):
            self._tell_floor(event, now)
        self._queue += self._checkpointing.go_on()
        for rested in self.quotas.rested(now):
            self._tell_link(LinkDrained(rested), now)
        self._turns_given = self.pacing.due(now)
        heard = now if event.heard_ns is None else now._replace(monotonic_ns=min(now.monotonic_ns, event.heard_ns))
        self._judge_peers(event, now, heard)
        if self.log.phase is not Phase.FAILED:
            for stream, first in self._retention.due(self.floor, self.log, now):
                self._do_next(self.floor.trim(stream, first, now))

    def _judge_peers(self, event: DeadlineReached, now: Now, heard: Now) -> None:
        """Who is late or silent as of `heard`; who is as of now only is looked at again soon."""
        for number in self._link_timers.due(now.monotonic_ns):
            link = self.links[number]
            if _is_due(link.deadline(), heard):
                self._do_next(link.handle(event, heard))
            at = link.deadline()
            if at is not None:
                is_unheard = heard.monotonic_ns < at <= now.monotonic_ns
                self._link_timers.set(number, now.monotonic_ns + UNHEARD_NS if is_unheard else at)
        if _is_due(self.receiving.deadline(), heard):
            self._budget(self.receiving.look(heard.monotonic_ns), heard)

    def _tell_paces(self, now: Now) -> None:
        for change in self.pacing.take_changes():
            self._out.append(change)
            self.receiving.pace(change.link, type(change) is not PauseReading, now.monotonic_ns)
            self._tell_link((ReadingPaused if type(change) is PauseReading else ReadingResumed)(change.link), now)


def _is_due(at: int | None, now: Now) -> bool:
    return at is not None and at <= now.monotonic_ns


_ANSWERS = {journal.Appended, journal.AppendFailed, journal.RecordsRead, journal.RangeMissing, journal.Located}
_TO_LOG = (
    journal.AppendRequested,
    journal.ReadRequested,
    journal.LocateRequested,
    journal.StagesPublished,
    journal.StagesUnwanted,
    journal.StreamTrimmed,
    journal.StreamDropped,
    journal.CheckpointBegun,
    journal.CheckpointRequested,
    *get_args(journal.DiskEvent),
)
_TO_FLOOR = (
    streams.SourceAttachRequested,
    streams.BatchOffered,
    streams.BatchUnfit,
    streams.TokenStoreRequested,
    streams.SessionClosed,
    streams.SubscribeRequested,
    streams.CreditGranted,
    streams.HandedOut,
    streams.ReturnRequested,
    streams.SettleRequested,
    streams.FilterChangeRequested,
    streams.RunOpenRequested,
    streams.StageOpenRequested,
    streams.CommitRequested,
    streams.StagesDropRequested,
)
_TO_SESSION = (
    streams.GrantSource,
    streams.ConfirmTaken,
    streams.RefuseBatch,
    streams.GrantSubscription,
    streams.Push,
    streams.PushProgress,
    streams.PushGap,
    streams.EndSubscription,
    streams.ConfirmHanded,
    streams.ConfirmReturned,
    streams.ConfirmSettled,
    streams.ConfirmFilter,
    streams.GrantRun,
    streams.GrantStage,
    streams.ConfirmCommitted,
    streams.Fence,
)
_ROUTES: dict[type, Callable[[NodeEngine, Any, Now], None]] = {
    **dict.fromkeys(_TO_LOG, NodeEngine._tell_log),
    **dict.fromkeys(_TO_FLOOR, NodeEngine._tell_floor),
    **dict.fromkeys(_TO_SESSION, NodeEngine._tell_session),
    streams.AdminRequested: NodeEngine._administer,
    streams.AnswerAdmin: NodeEngine._answer_admin,
    streams.Refuse: NodeEngine._answer_admin,
    FloorOrdered: NodeEngine._follow_floor,
    Note: NodeEngine._count_note,
    LinkOpened: NodeEngine._link_opened,
    Received: NodeEngine._receive,
    Send: NodeEngine._count_sent,
    WorkDone: NodeEngine._charge,
    TurnWanted: NodeEngine._want_turn,
    AnswersAwaited: lambda node, event, _: node.pacing.pause(event.link),
    TurnGiven: NodeEngine._give_turn,
    FrameRefused: NodeEngine._tell_link,
    Asked: NodeEngine._tell_link,
    Answered: NodeEngine._tell_link,
    AskPrincipal: NodeEngine._ask_principal,
    PrincipalKnown: NodeEngine._know_principal,
    LinkClosed: NodeEngine._link_closed,
    LinkCongested: NodeEngine._congest,
    LinkDrained: NodeEngine._drain_link,
    LinkTaking: NodeEngine._tell_link,
    SessionCongested: NodeEngine._session_flow,
    SessionDrained: NodeEngine._session_flow,
    DrainRequested: NodeEngine._drain,
    PrincipalRevoked: NodeEngine._revoke,
    RightsChanged: NodeEngine._renew_rights,
    RecordWritten: NodeEngine._record_written,
    DeadlineReached: NodeEngine._deadline_reached,
}
