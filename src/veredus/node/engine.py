"""The join: it turns one part's order into another part's event, and owns no protocol state.

    host ──links, disk──► NodeEngine ──► the link's engine ──requests──► streams ──appends──► journal ──► host
                                      ◄── frames ────────── ◄──answers── ◄──durable──

One event from the host may set off a chain of orders between the parts; `handle` follows it to its end before it
returns,
and what nobody in here understands goes to the host.
Source: the design, section 3.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

from veredus.journal import exchange as journal
from veredus.journal.appending import Phase
from veredus.journal.log import Log
from veredus.kernel.deadlines import Deadlines
from veredus.kernel.effects import Note, PauseReading, ResumeReading
from veredus.kernel.engine import Now
from veredus.kernel.events import DeadlineReached, LinkClosed, LinkCongested, LinkDrained, LinkOpened, Received
from veredus.protocols.links import SESSION_BITS, ReadingPaused, ReadingResumed
from veredus.protocols.links import DrainRequested as DrainLink
from veredus.protocols.topics.exchange import Answered, Asked
from veredus.protocols.zeps.orders import AskPrincipal, PrincipalKnown, SessionCongested, SessionDrained
from veredus.streams import exchange as streams
from veredus.streams.engine import StreamsEngine

from .retention import Retention


@dataclass(frozen=True, slots=True)
class DrainRequested:
    """The node is to stop: peers are told, what is on its way to the disk arrives, nothing new is taken."""


@dataclass(frozen=True, slots=True)
class FloorOrdered:
    """What the streams floor ordered outside of an event: from what it recovered, or because it was configured.

    One fact, whatever is in it: a checkpoint between two of these orders would keep the floor's tables and only a part
    of what they say that the journal has.
    """

    orders: Sequence[object]


class LinkEngine(Protocol):
    """What speaks a dialect on a link: it is told facts of the link, and what the floor says to its sessions."""

    is_timed_by_answers: ClassVar[bool]
    """Whether what the floor says may bring its deadline forward."""

    def handle(self, event: object, now: Now) -> Sequence[object]:
        """Take one fact; the orders that follow from it."""
        ...

    def deadline(self) -> int | None:
        """When it is to be told of the clock, if nothing happens before."""
        ...


class NodeEngine:
    """Owns the links' engines, the streams floor and the journal's log; see the module for the picture.

    Invariants
        (1) What came in by a link that is closed changes nothing any more, but what it had offered goes on its way.
        (2) Links are not read from while more than `unsynced_size_max` bytes wait for the disk.
        (3) A checkpoint is asked for only when every `Appended` before it has been told to the streams floor, and
            everything that the floor has ordered to the log.
        (4) What follows from a fact is done before the next fact is told: who learns that an append was refused has
            ordered nothing yet that lies behind it.
        (5) Sessions hear what the floor says in its order, also what it says because of what they answer.
    """

    def __init__(
        self,
        log: Log,
        floor: StreamsEngine,
        open_link: Callable[[LinkOpened], LinkEngine],
        unsynced_size_max: int,
        connections_max: int,
    ) -> None:
        """A node over a recovered log and floor.

        `open_link` makes the engine of a new link; `connections_max` is how many one principal may have.
        """
        self.log = log
        self.floor = floor
        self.links: dict[int, LinkEngine] = {}
        self._open_link = open_link
        self._retention = Retention()
        self._unsynced_size_max = unsynced_size_max
        self._connections_max = connections_max
        self._connected: dict[str, int] = {}
        self._principals: dict[int, str] = {}
        self._crowding: dict[int, str] = {}
        """Links whose principal, proved by the transport, has no connection left."""
        self.opened_count = 0
        self.fault_count = 0
        self._is_full = False
        self._wants_checkpoint = False
        self._link_timers: Deadlines[int] = Deadlines()
        self._queue: deque[object] = deque()
        self._out: list[object] = []

    def handle(self, event: object, now: Now) -> Sequence[object]:
        """Take one fact of the host's: of a link, of the disk, or of the clock."""
        self._queue.append(event)
        self._follow(now)
        if self._wants_checkpoint:
            self._wants_checkpoint = False
            self._queue.append(journal.CheckpointRequested(self.floor.snapshot()))
            self._follow(now)
        self._regulate(now)
        self._follow(now)
        out, self._out = self._out, []
        return out

    def deadline(self) -> int | None:
        """The earliest deadline of all parts."""
        earliest = self._retention.deadline()
        for at in (self.log.deadline(), self.floor.deadline(), self._link_timers.next_ns()):
            if at is not None and at < earliest:
                earliest = at
        return earliest

    def close_journal(self, now: Now) -> Sequence[object]:
        """Order the final checkpoint: the next start reads no segment. Nothing may be appended after it."""
        self._queue.append(journal.CheckpointRequested(self.floor.snapshot(), is_final=True))
        self._follow(now)
        out, self._out = self._out, []
        return out

    # ── the chain ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _follow(self, now: Now) -> None:
        queue = self._queue
        while queue:
            event = queue.popleft()
            handler = _ROUTES.get(type(event))
            if handler is None:
                self._out.append(event)
            else:
                handler(self, event, now)

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
                self._wants_checkpoint = True
            else:
                self._out.append(effect)
        if answers:
            self._do_next(self.floor.handle_all(answers, now))

    def _count_note(self, note: Note, now: Now) -> None:
        self.fault_count += note.event == "peer-broke-protocol"
        self._out.append(note)

    # ── facts of the host's ──────────────────────────────────────────────────────────────────────────────────────────

    def _link_opened(self, event: LinkOpened, now: Now) -> None:
        if event.principal and not self._admit(event.link, event.principal):
            self._crowding[event.link] = event.principal
            event = replace(event, principal="")
        self.opened_count += 1
        self.links[event.link] = self._open_link(event)
        self._tell_link(event, now)
        if self._is_full:
            self._out.append(PauseReading(event.link))
            self._tell_link(ReadingPaused(event.link), now)

    def _tell_link(self, event: Any, now: Now) -> None:
        link = self.links.get(event.link)
        if link is None:
            return
        self._do_next(link.handle(event, now))
        self._set_timer(event.link, link)

    def _know_principal(self, event: PrincipalKnown, now: Now) -> None:
        if event.principal is not None and not self._admit(event.link, event.principal):
            event = self._too_many(event.link, event.principal)
        self._tell_link(event, now)

    def _ask_principal(self, event: AskPrincipal, now: Now) -> None:
        """Whom the transport has proved already, and who has no token to be somebody else, is asked no more."""
        crowding = self._crowding.get(event.link)
        if crowding is not None and event.token is None:
            self._tell_link(self._too_many(event.link, crowding), now)
        else:
            self._out.append(event)

    def _too_many(self, link: int, principal: str) -> PrincipalKnown:
        reason = f"{principal} has {self._connections_max} connections, its limit: close some"
        return PrincipalKnown(link, None, reason, "too-many-connections")

    def _admit(self, link: int, principal: str) -> bool:
        """Count the link among its principal's connections, if there is room for it."""
        count = self._connected.get(principal, 0)
        if count >= self._connections_max:
            return False
        self._release(link)
        self._connected[principal] = count + 1
        self._principals[link] = principal
        return True

    def _release(self, link: int) -> None:
        principal = self._principals.pop(link, None)
        if principal is not None:
            self._connected[principal] -= 1
            if not self._connected[principal]:
                del self._connected[principal]

    def _link_closed(self, event: LinkClosed, now: Now) -> None:
        link = self.links.pop(event.link, None)
        self._link_timers.clear(event.link)
        self._release(event.link)
        self._crowding.pop(event.link, None)
        if link is not None:
            self._do_next(link.handle(event, now))

    def _session_flow(self, event: SessionCongested | SessionDrained, now: Now) -> None:
        self._do_next(self.floor.set_congested(event.session, type(event) is SessionCongested, now))

    def _drain(self, event: DrainRequested, now: Now) -> None:
        for number in list(self.links):
            self._tell_link(DrainLink(number, "the node stops"), now)

    def _deadline_reached(self, event: DeadlineReached, now: Now) -> None:
        if _is_due(self.log.deadline(), now):
            self._tell_log(event, now)
        if _is_due(self.floor.deadline(), now):
            self._tell_floor(event, now)
        for number in self._link_timers.due(now.monotonic_ns):
            link = self.links[number]
            if _is_due(link.deadline(), now):
                self._do_next(link.handle(event, now))
            at = link.deadline()
            if at is not None:
                self._link_timers.set(number, at)
        if self.log.phase is not Phase.FAILED:
            for stream, first in self._retention.due(self.floor, self.log, now):
                self._do_next(self.floor.trim(stream, first, now))

    # ── the disk's pace ──────────────────────────────────────────────────────────────────────────────────────────────

    def _regulate(self, now: Now) -> None:
        unsynced = self.log.unsynced_size
        if not self._is_full and unsynced > self._unsynced_size_max:
            self._is_full = True
            for link in list(self.links):
                self._out.append(PauseReading(link))
                self._tell_link(ReadingPaused(link), now)
        elif self._is_full and unsynced <= self._unsynced_size_max // 2:
            self._is_full = False
            for link in list(self.links):
                self._out.append(ResumeReading(link))
                self._tell_link(ReadingResumed(link), now)


def _is_due(at: int | None, now: Now) -> bool:
    return at is not None and at <= now.monotonic_ns


_ANSWERS = frozenset(
    (journal.Appended, journal.AppendFailed, journal.RecordsRead, journal.RangeMissing, journal.Located)
)
_TO_LOG = (
    journal.AppendRequested,
    journal.ReadRequested,
    journal.LocateRequested,
    journal.StagePublished,
    journal.StageDropped,
    journal.StreamTrimmed,
    journal.StreamDropped,
    journal.CheckpointRequested,
    journal.GroupWritten,
    journal.GroupFailed,
    journal.SegmentCreated,
    journal.SegmentFailed,
    journal.BytesRead,
    journal.BytesFailed,
    journal.FileWritten,
    journal.FileFailed,
)
_TO_FLOOR = (
    streams.SourceAttachRequested,
    streams.BatchOffered,
    streams.SessionClosed,
    streams.SubscribeRequested,
    streams.CreditGranted,
    streams.SettleRequested,
    streams.FilterChangeRequested,
    streams.RunOpenRequested,
    streams.StageOpenRequested,
    streams.CommitRequested,
    streams.StagesDropRequested,
    streams.AdminRequested,
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
    streams.ConfirmSettled,
    streams.ConfirmFilter,
    streams.GrantRun,
    streams.GrantStage,
    streams.ConfirmCommitted,
    streams.AnswerAdmin,
    streams.Refuse,
    streams.Fence,
)
_ROUTES: dict[type, Callable[[NodeEngine, Any, Now], None]] = {
    **dict.fromkeys(_TO_LOG, NodeEngine._tell_log),
    **dict.fromkeys(_TO_FLOOR, NodeEngine._tell_floor),
    **dict.fromkeys(_TO_SESSION, NodeEngine._tell_session),
    FloorOrdered: NodeEngine._follow_floor,
    Note: NodeEngine._count_note,
    LinkOpened: NodeEngine._link_opened,
    Received: NodeEngine._tell_link,
    Asked: NodeEngine._tell_link,
    Answered: NodeEngine._tell_link,
    AskPrincipal: NodeEngine._ask_principal,
    PrincipalKnown: NodeEngine._know_principal,
    LinkClosed: NodeEngine._link_closed,
    LinkCongested: NodeEngine._tell_link,
    LinkDrained: NodeEngine._tell_link,
    SessionCongested: NodeEngine._session_flow,
    SessionDrained: NodeEngine._session_flow,
    DrainRequested: NodeEngine._drain,
    DeadlineReached: NodeEngine._deadline_reached,
}
