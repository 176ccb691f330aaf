"""The channels of one native link: the peer's frames become the exchange, what the streams floor says becomes frames.

A channel that the peer opens is a session of the streams floor. It is OPENING until granted; what the peer says on it
before that is its fault. A frame on a channel that has ended, but for one that opens it, is dropped: it may have
crossed the end. One on a channel that never was there is its fault too: whoever waits for an answer is told. Channel 0
is the connection's own: requests go there.

Invariants
    (1) Each session that was opened downward is closed by exactly one `SessionClosed`.
    (2) A batch that is handed down was verified whole.
    (3) What the streams floor says to a session that is over is dropped.
    (4) No two requests that wait for their answers have the same number.
    (5) What a peer says has an answer, or ends its channel or the link, unless the channel has ended before.
Source: docs/internals/DESIGN.md, "Exchange" and "Native protocol"; docs/reference/wire/native.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from veredus.delivery.batch import raw_size_of
from veredus.delivery.record import ENVELOPE_SIZE
from veredus.kernel.effects import Send
from veredus.kernel.errors import PeerFault
from veredus.kernel.names import U63_MAX
from veredus.kernel.octets import Octets
from veredus.protocols.links import session_of
from veredus.streams import exchange as x
from veredus.streams.administration import PAGED_VERBS
from veredus.streams.listing import PAGE_COUNT

from . import messages as m
from . import native
from .channel import REQUESTS_MAX, Awaited, Begun, Channel, Role
from .compiling import compiling_cost_of
from .native import CHANNEL_MAX, Frame, Kind, SessionFault
from .orders import LinkLimits, SessionCongested, SessionDrained
from .prices import PAGE_COST_NS, RAISED_NS, RAW_OCTET_NS, REPLY_OCTET_NS, ROW_NS, SETTLED_NS, STAGE_NS
from .shared_answers import SENT_OCTET_NS, encode_shared

SMALL_RECORD_SIZE = 4096
"""A record up to this many bytes is copied out of the memory it was read into, so as not to hold on to all of it."""
REQUEST_VALUES_MAX = 16_384
"""An empty list takes one byte in a request, and a hundred once it is read."""
REQUEST_DEPTH_MAX = 8
"""Whoever goes through what a peer has nested must come to its end."""
_LONG_ANSWERS = PAGED_VERBS | {"stream.show", "subscription.show"}
_REFUSED_BATCHES = ("too-large", "mixed-types")


class Channels:
    """Owns the open channels of one link; what follows from a frame or an order is added to the link's `effects`."""

    __slots__ = (
        "_asked", "_begun", "_channels", "_cost_ns", "_effects", "_is_congested", "_limits", "awaited", "link",
        "principal",
    )  # fmt: skip

    def __init__(self, link: int, limits: LinkLimits, effects: list[object]) -> None:
        """No channels yet, of link number `link`; `principal` must be set before the first is opened."""
        self.link = link
        self.principal = ""
        self._limits = limits
        self._effects = effects
        self._channels: dict[int, Channel] = {}
        self._begun = Begun()
        self.awaited = Awaited()
        self._asked: set[int] = set()
        """The numbers of requests that are not answered yet."""
        self._is_congested = False
        self._cost_ns = 0

    def is_full(self) -> bool:
        """Whether no frame is to be taken until something was answered."""
        return self.awaited.is_full() or len(self._asked) >= REQUESTS_MAX

    def take_cost(self) -> int:
        """What was done since it was asked last, beside what a frame of its kind always costs; in nanoseconds."""
        cost_ns, self._cost_ns = self._cost_ns, 0
        return cost_ns

    def take_frame(self, frame: Frame) -> bool:
        """Act on a frame; False when it is none that a client says on a channel. Raises `PeerFault`."""
        handler = _FRAMES.get(frame.kind)
        if handler is None:
            return False
        try:
            handler(self, frame)
        except SessionFault as fault:
            self._refuse_frame(frame, fault)
        return True

    def _refuse_frame(self, frame: Frame, fault: SessionFault) -> None:
        """What one session was asked makes no sense: it ends, and the others of this link go on."""
        number = frame.channel
        if number == 0 or frame.kind == Kind.REQUEST:
            request = native.request_of(frame) if frame.kind in _NUMBERED else 0
            if number or not 0 < request <= U63_MAX:
                raise fault
            self._send(native.encode_message(0, m.Refusal(fault.code, fault.message, request=request, final=False)))
            return
        if frame.kind in _OPENINGS:
            self._begin(number)
        elif number not in self._channels:
            if number not in self._begun:
                raise fault
            return
        elif not self._channels[number].is_open:
            raise fault
        self._send(native.encode_message(number, m.Refusal(fault.code, fault.message)))
        self._end_channel(number)

    def take_order(self, order: object) -> None:
        """Turn an order of the streams floor into frames."""
        handler = _ORDERS.get(type(order))
        if handler is not None:
            handler(self, order)

    def close_all(self) -> None:
        """The link is over, and with it each session."""
        self._effects += [x.SessionClosed(session_of(self.link, number)) for number in self._channels]
        self._channels.clear()

    def set_congested(self, is_congested: bool) -> None:
        """The link cannot take more, or can again: the subscriptions are to know."""
        self._is_congested = is_congested
        tell = SessionCongested if is_congested else SessionDrained
        for number, channel in self._channels.items():
            if channel.role is Role.SUBSCRIPTION and channel.is_open:
                self._effects.append(tell(session_of(self.link, number)))

    def _send(self, *buffers: Octets) -> None:
        self._effects.append(Send(self.link, buffers))

    # ── what the peer says ───────────────────────────────────────────────────────────────────────────────────────────

    def _opened(self, frame: Frame, role: Role) -> int:
        """A new channel; the session that it is. Raises `PeerFault`."""
        number = frame.channel
        self._begin(number)
        if len(self._channels) >= self._limits.channel_count_max:
            count_max = self._limits.channel_count_max
            raise PeerFault("too-many-channels", f"a connection may have at most {count_max} channels")
        self._channels[number] = Channel(role)
        return session_of(self.link, number)

    def _begin(self, number: int) -> None:
        if number == 0 or number in self._channels:
            raise PeerFault("bad-frame", f"channel {number} cannot be opened: it is already open")
        self._begun.add(number)

    def _used(self, frame: Frame, *roles: Role) -> Channel | None:
        """The channel that a frame is on, None when it has ended.

        Raises `SessionFault` for one of another role, `PeerFault` for one that is not granted yet, or never was opened.
        """
        number, name = frame.channel, native.name_of(frame.kind)
        channel = self._channels.get(number)
        if channel is None:
            if number in self._begun:
                return None
            raise PeerFault("bad-frame", f"a {name} frame on channel {number}, which was never opened")
        role = channel.role.value
        if not channel.is_open:
            raise PeerFault(
                "bad-frame", f"a {name} frame on channel {number}, which is a {role} that is not granted yet"
            )
        if channel.role not in roles:
            raise SessionFault("bad-request", f"a {name} frame on channel {number}, which is a {role}")
        return channel

    def _is_run(self, frame: Frame, request: int) -> bool:
        """Whether a frame that a run is asked for is on the channel of one; it is refused by its number where not."""
        number = frame.channel
        channel = self._channels.get(number)
        if (channel is None and number in self._begun) or (channel is not None and not channel.is_open):
            return self._used(frame, Role.RUN) is not None
        if channel is not None and channel.role is Role.RUN:
            return True
        message = f"a {native.name_of(frame.kind)} frame on channel {number}, which has opened or joined no run"
        self._send(native.encode_message(number, m.Refusal("unknown-run", message, request=request, final=False)))
        return False

    def _attach_source(self, frame: Frame) -> None:
        said: Any = native.decode_message(frame)
        session = self._opened(frame, Role.SOURCE)
        asked = x.SourceAttachRequested(
            session, self.principal, said.stream, said.source, said.incarnation, said.epoch, said.sparse,
            said.stream_incarnation,
        )  # fmt: skip
        self._effects.append(asked)

    def _offer(self, frame: Frame) -> None:
        channel = self._used(frame, Role.SOURCE, Role.STAGE)
        if channel is None:
            return
        try:
            record, header = native.decode_offer(frame, self._limits.batch)
            self._cost_ns += RAW_OCTET_NS * raw_size_of(record[ENVELOPE_SIZE:], header) + ROW_NS * header.count
        except PeerFault as fault:
            if isinstance(fault, SessionFault):
                # What is wrong with it may have been seen only once it was decompressed.
                self._cost_ns += RAW_OCTET_NS * native.raw_size_of_refused(frame, self._limits.batch)
            if fault.code not in _REFUSED_BATCHES:
                raise
            first, session = native.first_number_of(frame), session_of(self.link, frame.channel)
            self._effects.append(x.BatchUnfit(session, first, fault.code, fault.message))
            return
        if len(record) <= SMALL_RECORD_SIZE:
            record = memoryview(bytearray(record))
        self._effects.append(x.BatchOffered(session_of(self.link, frame.channel), record, header))

    def _store_token(self, frame: Frame) -> None:
        said: Any = native.decode_message(frame)
        if self._used(frame, Role.SOURCE) is not None:
            session = session_of(self.link, frame.channel)
            self._effects.append(x.TokenStoreRequested(session, said.request, said.number, said.token))

    def _subscribe(self, frame: Frame) -> None:
        said: Any = native.decode_message(frame)
        session = self._opened(frame, Role.SUBSCRIPTION)
        self._cost_ns += compiling_cost_of(said.filter)
        credit = said.credit
        if self._is_congested:
            self._channels[frame.channel].credit, credit = credit, 0
        self._effects.append(
            x.SubscribeRequested(
                session, self.principal, said.stream, said.subscriber, said.name, said.filter, said.start, said.until,
                said.mode, said.incarnation, said.epoch, credit, said.stream_incarnation,
                said.attempts_max, said.parked_to, said.term, said.terms,
            )
        )  # fmt: skip

    def _credit(self, frame: Frame) -> None:
        size = native.decode_credit(frame)
        if self._used(frame, Role.SUBSCRIPTION) is not None:
            self._effects.append(x.CreditGranted(session_of(self.link, frame.channel), size))

    def _hand_out(self, frame: Frame) -> None:
        sequence = native.decode_handed(frame)
        if self._used(frame, Role.SUBSCRIPTION) is not None:
            self._effects.append(x.HandedOut(session_of(self.link, frame.channel), sequence))

    def _take_back(self, frame: Frame) -> None:
        said: Any = native.decode_message(frame)
        if self._used(frame, Role.SUBSCRIPTION) is not None:
            session = session_of(self.link, frame.channel)
            self._effects.append(x.ReturnRequested(session, said.sequence, said.retry, said.reason, said.taken))

    def _settle(self, frame: Frame) -> None:
        ranges = native.decode_settle(frame)
        if self._used(frame, Role.SUBSCRIPTION) is not None:
            self._effects.append(x.SettleRequested(session_of(self.link, frame.channel), ranges))

    def _change_filter(self, frame: Frame) -> None:
        said: Any = native.decode_message(frame)
        if self._used(frame, Role.SUBSCRIPTION) is not None:
            self._cost_ns += compiling_cost_of(said.filter)
            self._effects.append(
                x.FilterChangeRequested(session_of(self.link, frame.channel), said.filter, said.position)
            )

    def _open_run(self, frame: Frame) -> None:
        said: Any = native.decode_message(frame)
        session = self._opened(frame, Role.RUN)
        self.awaited.add(frame.channel)
        self._effects.append(
            x.RunOpenRequested(session, self.principal, said.sink, said.incarnation, said.epoch, said.ephemeral)
        )

    def _open_stage(self, frame: Frame) -> None:
        said: Any = native.decode_message(frame)
        session = self._opened(frame, Role.STAGE)
        stage = said.sink, said.run_epoch, said.stream, said.key, said.commit_id, said.stage
        self._effects.append(x.StageOpenRequested(session, self.principal, *stage))

    def _commit(self, frame: Frame) -> None:
        said: Any = native.decode_message(frame)
        if self._is_run(frame, said.request):
            self.awaited.add(frame.channel)
            self._cost_ns += STAGE_NS * len(said.stages)
            self._effects.append(
                x.CommitRequested(
                    session_of(self.link, frame.channel), said.request, self.principal, said.sink, said.run_epoch,
                    said.commit_id, said.stages, (), said.contents, (), said.counts, said.after,
                )
            )  # fmt: skip

    def _drop_stages(self, frame: Frame) -> None:
        said: Any = native.decode_message(frame)
        if self._is_run(frame, said.request):
            self.awaited.add(frame.channel)
            self._cost_ns += STAGE_NS * len(said.stages)
            session = session_of(self.link, frame.channel)
            stages = said.sink, said.run_epoch, said.stages, said.commit_id
            self._effects.append(x.StagesDropRequested(session, said.request, self.principal, *stages))

    def _request(self, frame: Frame) -> None:
        if native.has_more_values(frame.body, REQUEST_VALUES_MAX):
            raise PeerFault("bad-frame", f"a REQUEST may have {REQUEST_VALUES_MAX} values, this one has more")
        said: Any = native.decode_message(frame)
        if native.is_deeper(said.arguments, REQUEST_DEPTH_MAX):
            raise PeerFault("bad-frame", f"the arguments of a REQUEST may be nested {REQUEST_DEPTH_MAX} deep, no more")
        if frame.channel or not said.request:
            raise PeerFault("bad-frame", "a REQUEST must use channel 0 and a number from 1")
        if said.request in self._asked:
            raise PeerFault("bad-frame", f"request {said.request} is not answered yet: use another number")
        self._asked.add(said.request)
        arguments = said.arguments
        if said.verb in _LONG_ANSWERS:
            self._cost_ns += PAGE_COST_NS
        elif type(sources := arguments.get("sources")) is list:
            self._cost_ns += len(sources) * RAISED_NS
        session = session_of(self.link, 0)
        self._effects.append(x.AdminRequested(session, said.request, self.principal, said.verb, arguments, PAGE_COUNT))

    def _close_channel(self, frame: Frame) -> None:
        if frame.channel == 0 or frame.size:
            raise PeerFault("bad-frame", "CLOSE_CHANNEL must use the channel that it closes, not 0, and must be empty")
        self._end_channel(frame.channel)
        self._send(native.encode_frame(Kind.CHANNEL_CLOSED, frame.channel))

    def _end_channel(self, number: int) -> None:
        self.awaited.forget(number)
        if self._channels.pop(number, None) is not None:
            self._effects.append(x.SessionClosed(session_of(self.link, number)))

    # ── what the streams floor says ──────────────────────────────────────────────────────────────────────────────────

    def _tell(self, session: int, message: m.Message) -> None:
        channel = session & CHANNEL_MAX
        if channel in self._channels:
            self._send(native.encode_message(channel, message))

    def _grant(self, session: int, message: m.Message) -> None:
        channel = self._channels.get(session & CHANNEL_MAX)
        if channel is not None:
            channel.is_open = True
            self._tell(session, message)

    def _grant_source(self, said: x.GrantSource) -> None:
        self._grant(
            said.session,
            m.SourceAttached(
                said.stream_id, said.stream_incarnation, said.source_id, said.epoch, said.last_number, said.token,
                said.token_number, said.durability,
            ),
        )  # fmt: skip

    def _confirm_taken(self, said: x.ConfirmTaken) -> None:
        channel = said.session & CHANNEL_MAX
        if channel in self._channels:
            receipt = said.last_number, said.first_sequence, said.is_duplicate, said.durability
            self._send(native.encode_receipt(channel, *receipt))

    def _refuse_batch(self, said: x.RefuseBatch) -> None:
        self._tell(said.session, m.BatchRefused(said.first_number, said.code, said.message, said.last_number))

    def _grant_subscription(self, said: x.GrantSubscription) -> None:
        self._grant(
            said.session,
            m.Subscribed(
                said.stream_id, said.stream_incarnation, said.term, said.epoch, said.position, said.floor, said.head,
                said.changed_from, said.terms,
            ),
        )  # fmt: skip
        channel = self._channels.get(said.session & CHANNEL_MAX)
        if channel is not None and self._is_congested:
            self._effects.append(SessionCongested(said.session))
        if channel is not None and channel.credit:
            self._effects.append(x.CreditGranted(said.session, channel.credit))

    def _push(self, said: x.Push) -> None:
        channel = said.session & CHANNEL_MAX
        if channel not in self._channels:
            return
        head = native.encode_deliver(channel, said.redelivered_to, said.size)
        if said.source_names:
            self._send(native.encode_message(channel, m.Sources(tuple(said.source_names))), head, *said.buffers)
        else:
            self._send(head, *said.buffers)

    def _push_progress(self, said: x.PushProgress) -> None:
        self._tell(said.session, m.Progress(said.position))

    def _push_gap(self, said: x.PushGap) -> None:
        self._tell(said.session, m.Gap(said.first_sequence, said.next_sequence, said.code))

    def _end_subscription(self, said: x.EndSubscription) -> None:
        self._tell(said.session, m.End(said.next_sequence, said.is_final))
        if said.is_final:
            self._end_channel(said.session & CHANNEL_MAX)

    def _confirm_handed(self, said: x.ConfirmHanded) -> None:
        channel = said.session & CHANNEL_MAX
        if channel in self._channels:
            self._send(native.encode_handed(channel, said.sequence))

    def _confirm_returned(self, said: x.ConfirmReturned) -> None:
        self._tell(said.session, m.Returned(said.sequence, said.is_parked))

    def _confirm_settled(self, said: x.ConfirmSettled) -> None:
        channel = said.session & CHANNEL_MAX
        if channel in self._channels:
            self._cost_ns += SETTLED_NS * len(said.ranges)
            self._send(*native.encode_settled(channel, said.floor, said.ranges))

    def _confirm_filter(self, said: x.ConfirmFilter) -> None:
        self._tell(said.session, m.FilterChanged(said.position))

    def _grant_run(self, said: x.GrantRun) -> None:
        channel = self._channels.get(said.session & CHANNEL_MAX)
        if channel is not None:
            channel.is_open = True
            self._tell_shared(said)

    def _grant_stage(self, said: x.GrantStage) -> None:
        self._grant(said.session, m.StageOpened(said.stage, said.stream_id, said.last_number))

    def _tell_shared(self, said: x.GrantRun | x.ConfirmCommitted) -> None:
        self.awaited.take(said.session & CHANNEL_MAX)
        if said.session & CHANNEL_MAX in self._channels:
            self._cost_ns += SENT_OCTET_NS * len(said.detail)
            self._send(*encode_shared(said))

    def _answer(self, said: x.AnswerAdmin) -> None:
        channel = said.session & CHANNEL_MAX
        self.awaited.take(channel)
        if channel == 0:
            self._asked.discard(said.request)
        if channel == 0 or channel in self._channels:
            reply = native.encode_message(channel, m.Reply(said.request, said.result))
            self._cost_ns += REPLY_OCTET_NS * len(reply)
            self._send(reply)

    def _refuse(self, said: x.Refuse) -> None:
        channel = said.session & CHANNEL_MAX
        if channel and channel not in self._channels:
            return
        if channel == 0:
            self._asked.discard(said.request)
        self.awaited.take(channel)
        is_final = said.is_final and channel > 0
        self._send(
            native.encode_message(channel, m.Refusal(said.code, said.message, said.details, said.request, is_final))
        )
        if is_final:
            self._end_channel(channel)

    def _fence(self, said: x.Fence) -> None:
        self._tell(said.session, m.Fencing(said.epoch, said.message))
        self._end_channel(said.session & CHANNEL_MAX)


_FrameHandler: TypeAlias = Callable[[Channels, Frame], None]
_OrderHandler: TypeAlias = Callable[[Channels, Any], None]

_FRAMES: dict[int, _FrameHandler] = {
    Kind.OFFER: Channels._offer,
    Kind.CREDIT: Channels._credit,
    Kind.HANDED: Channels._hand_out,
    Kind.RETURN: Channels._take_back,
    Kind.SETTLE: Channels._settle,
    Kind.ATTACH_SOURCE: Channels._attach_source,
    Kind.STORE_TOKEN: Channels._store_token,
    Kind.SUBSCRIBE: Channels._subscribe,
    Kind.CHANGE_FILTER: Channels._change_filter,
    Kind.OPEN_RUN: Channels._open_run,
    Kind.OPEN_STAGE: Channels._open_stage,
    Kind.COMMIT: Channels._commit,
    Kind.DROP_STAGES: Channels._drop_stages,
    Kind.REQUEST: Channels._request,
    Kind.CLOSE_CHANNEL: Channels._close_channel,
}
_NUMBERED = (Kind.REQUEST, Kind.COMMIT, Kind.DROP_STAGES)
"""Frames whose refusal on the connection's own channel names their `request`."""
_OPENINGS = (Kind.ATTACH_SOURCE, Kind.SUBSCRIBE, Kind.OPEN_RUN, Kind.OPEN_STAGE)
_ORDERS: dict[type, _OrderHandler] = {
    x.Push: Channels._push,
    x.ConfirmTaken: Channels._confirm_taken,
    x.GrantSource: Channels._grant_source,
    x.RefuseBatch: Channels._refuse_batch,
    x.GrantSubscription: Channels._grant_subscription,
    x.PushProgress: Channels._push_progress,
    x.PushGap: Channels._push_gap,
    x.EndSubscription: Channels._end_subscription,
    x.ConfirmHanded: Channels._confirm_handed,
    x.ConfirmReturned: Channels._confirm_returned,
    x.ConfirmSettled: Channels._confirm_settled,
    x.ConfirmFilter: Channels._confirm_filter,
    x.GrantRun: Channels._grant_run,
    x.GrantStage: Channels._grant_stage,
    x.ConfirmCommitted: Channels._tell_shared,
    x.AnswerAdmin: Channels._answer,
    x.Refuse: Channels._refuse,
    x.Fence: Channels._fence,
}
ORDERS = tuple(_ORDERS)
"""The orders of the streams floor that a native link understands."""
