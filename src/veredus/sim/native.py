"""The native way between a peer and a node: frames over a link that tears and loses, through the real engines at both
ends.

peer ──exchange fact──► ClientLink ──bytes──► NodeLink ──► NodeEngine
◄──exchange order──           ◄──bytes──         ◄──
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from veredus.kernel.effects import CloseLink, Send
from veredus.kernel.engine import Now
from veredus.kernel.events import DeadlineReached, LinkClosed, LinkOpened, Received
from veredus.protocols.zeps import client_exchange as c
from veredus.protocols.zeps import messages as m
from veredus.protocols.zeps.attachment import NodeLink
from veredus.protocols.zeps.client import ClientLink, ClientSettings
from veredus.protocols.zeps.orders import LinkLimits
from veredus.protocols.zeps.undelivered import Undelivered
from veredus.streams import exchange as x

from .content import seen_rows
from .gates import Gate
from .network import End, octets_of
from .witnesses import EVENTS
from .world import Clock, World

LINK = 1
LET_WAIT_SIZE = 1 << 20
"""So much may wait for the credit of a client of version 1."""


class CountedLink(NodeLink):
    """The node's end of a link, as every node has it; its events are counted."""

    def __init__(self, world: World, opened: LinkOpened) -> None:
        """Of the link that was opened. On every other one nothing may wait for credit."""
        super().__init__(opened.link, LinkLimits(), Undelivered(opened.link % 2 * LET_WAIT_SIZE))
        self._counts = world.counts

    def handle(self, event: object, now: Now) -> Sequence[object]:
        """As the link does."""
        self._counts[EVENTS] += 1
        return super().handle(event, now)


class NativePort:
    """A peer's end of a native link: `ClientLink` over one end of the network."""

    def __init__(
        self,
        world: World,
        clock: Clock,
        gate: Gate,
        end: End,
        on_said: Callable[[Any], None],
        on_closed: Callable[[str], None],
        on_open: Callable[[NativePort], None],
    ) -> None:
        """Greet the node over `end`; `on_open` hears of its welcome, `on_said` its orders, `on_closed` the end."""
        self._world = world
        self._clock = clock
        self._gate = gate
        self._end = end
        self._on_said = on_said
        self._on_open = on_open
        self._on_closed = on_closed
        self._is_over = False
        self._wake_ns: int | None = None
        self._link = ClientLink(LINK, ClientSettings(client=end.owner))
        end.on_received = lambda item: gate.through(lambda: self._handle(Received(LINK, item)))  # type: ignore[arg-type]
        end.on_closed = lambda reason: gate.through(lambda: self._handle(LinkClosed(LINK, reason)))
        self._handle(LinkOpened(LINK, "memory", end.peer))

    def ask(self, fact: Any) -> None:
        """Tell the node a fact; its `session` is the channel."""
        self._handle(_ASKED[type(fact)](fact))

    def close(self) -> None:
        """Leave, and say so."""
        self._is_over = True
        self._handle(c.LeaveRequested())

    # ── the link's engine ────────────────────────────────────────────────────────────────────────────────────────────

    def _handle(self, event: object) -> None:
        self._world.counts[EVENTS] += 1
        effects = self._link.handle(event, self._clock.now())
        self._link.check()
        self._plan_wake()
        for effect in effects:
            match effect:
                case Send(_, buffers):
                    self._end.send((octets_of(buffers),))
                case CloseLink(_, reason):
                    self._end.close(reason)
                case c.TellWelcome() if not self._is_over:
                    self._on_open(self)
                case c.TellLinkClosed(code, message) if not self._is_over:
                    self._is_over = True
                    self._on_closed(f"{code}, {message}")
                case _ if not self._is_over:
                    self._tell(effect)

    def _plan_wake(self) -> None:
        at = self._link.deadline()
        if at is not None and (self._wake_ns is None or at < self._wake_ns):
            self._wake_ns = at
            self._world.at(self._clock.true_ns(at), lambda: self._gate.through(self._wake))

    def _wake(self) -> None:
        self._wake_ns = None
        if self._end.is_open:
            self._handle(DeadlineReached())

    def _tell(self, told: Any) -> None:
        match told:
            case c.TellOpened(channel, grant):
                self._on_said(_granted(channel, grant))
            case c.TellReceipts(channel, receipts):
                for last, first, is_duplicate, durability in receipts:
                    self._on_said(x.ConfirmTaken(channel, last, first, is_duplicate, x.Durability(durability)))
            case c.TellDelivery():
                self._on_said(_pushed(told))
            case c.TellSettled(channel, floor, ranges):
                self._on_said(x.ConfirmSettled(channel, floor, ranges))
            case c.TellMessage(channel, message) if type(message) in _TOLD:
                self._on_said(_TOLD[type(message)](channel, message))
            case c.TellClosed(channel, cause) if cause is not None:
                self._on_said(_TOLD[type(cause)](channel, cause))
            case _:
                pass


def _pushed(told: c.TellDelivery) -> x.Push:
    sequences = [sequence for sequence, _ in seen_rows((told.records,))]
    size = told.size - x.PUSH_OVERHEAD
    return x.Push(told.channel, (told.records,), size, sequences[0], sequences[-1], told.redelivered_to)


def _granted(channel: int, grant: Any) -> object:
    match grant:
        case m.SourceAttached():
            return x.GrantSource(
                channel, grant.stream_id, grant.stream_incarnation, grant.source_id, grant.epoch, grant.last_number,
                grant.token, grant.token_number, grant.durability,
            )  # fmt: skip
        case m.Subscribed():
            return x.GrantSubscription(
                channel, grant.stream_id, grant.stream_incarnation, grant.term, grant.epoch, grant.position,
                grant.floor, grant.head, grant.changed_from, grant.terms,
            )  # fmt: skip
        case m.RunOpened():
            return x.GrantRun(channel, grant.epoch, grant.commit_id, grant.detail)
        case _:
            return x.GrantStage(channel, grant.stage, grant.stream_id)


_TOLD: dict[type, Callable[[int, Any], object]] = {
    m.BatchRefused: lambda n, s: x.RefuseBatch(n, s.first_number, s.code, s.message, s.last_number),
    m.Progress: lambda n, s: x.PushProgress(n, s.position),
    m.Gap: lambda n, s: x.PushGap(n, s.first_sequence, s.next_sequence, s.code),
    m.Returned: lambda n, s: x.ConfirmReturned(n, s.sequence, s.parked),
    m.FilterChanged: lambda n, s: x.ConfirmFilter(n, s.position),
    m.Committed: lambda n, s: x.ConfirmCommitted(
        n, s.request, s.commit_id, s.duplicate, msgspec.msgpack.encode(s.streams)
    ),
    m.Reply: lambda n, s: x.AnswerAdmin(n, s.request, s.result),
    m.Refusal: lambda n, s: x.Refuse(n, s.code, s.message, s.details, s.request, s.final),
    m.Fencing: lambda n, s: x.Fence(n, s.epoch, s.message),
    m.End: lambda n, s: x.EndSubscription(n, s.next_sequence),
}


def _subscribe(fact: x.SubscribeRequested) -> object:
    return c.OpenRequested(
        fact.session,
        m.Subscribe(
            stream=fact.stream,
            subscriber=fact.subscriber,
            name=fact.name,
            filter=fact.filter,
            start=fact.start,
            until=fact.until,
            mode=fact.mode,
            incarnation=fact.incarnation,
            epoch=fact.epoch,
            credit=fact.credit,
            stream_incarnation=fact.stream_incarnation,
            attempts_max=fact.attempts_max,
            parked_to=fact.parked_to,
            term=fact.term,
            terms=fact.terms,
        ),
    )


_ASKED: dict[type, Callable[[Any], object]] = {
    x.SourceAttachRequested: lambda f: c.OpenRequested(
        f.session, m.AttachSource(f.stream, f.source, f.incarnation, f.epoch, f.is_sparse, f.stream_incarnation)
    ),
    x.BatchOffered: lambda f: c.OfferRequested(f.session, f.record),
    x.TokenStoreRequested: lambda f: c.MessageRequested(f.session, m.StoreToken(f.request, f.number, f.token)),
    x.SessionClosed: lambda f: c.CloseRequested(f.session),
    x.SubscribeRequested: _subscribe,
    x.CreditGranted: lambda f: c.CreditRequested(f.session, f.size),
    x.ReturnRequested: lambda f: c.MessageRequested(f.session, m.Return(f.sequence, f.is_retry, f.reason, f.is_taken)),
    x.HandedOut: lambda f: c.HandedOut(f.session, f.sequence),
    x.SettleRequested: lambda f: c.SettleRequested(f.session, f.ranges),
    x.FilterChangeRequested: lambda f: c.MessageRequested(f.session, m.ChangeFilter(f.filter, f.position)),
    x.RunOpenRequested: lambda f: c.OpenRequested(f.session, m.OpenRun(f.sink, f.incarnation, f.epoch, f.is_ephemeral)),
    x.StageOpenRequested: lambda f: c.OpenRequested(
        f.session, m.OpenStage(f.sink, f.run_epoch, f.stream, f.stage_key, f.commit_id, f.stage)
    ),
    x.CommitRequested: lambda f: c.MessageRequested(
        f.session, m.Commit(f.request, f.sink, f.run_epoch, f.commit_id, f.stages, f.contents)
    ),
    x.StagesDropRequested: lambda f: c.MessageRequested(
        f.session, m.DropStages(f.request, f.sink, f.run_epoch, f.stages, f.commit_id)
    ),
    x.AdminRequested: lambda f: c.MessageRequested(0, m.Request(f.request, f.verb, f.arguments)),
}
