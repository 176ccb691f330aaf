"""The client's end of one native link: it greets, keeps channels apart, and never asks again by itself.

    CONNECTING ── link opened ──► ATTACHING ── ATTACH-OK ──► GREETING ── WELCOME ──► OPEN
        └───────────────────────────── closed, refused, silent, garbled ─────────────┴──► CLOSED

CONNECTING  Nothing is known; we wait for the link.
ATTACHING   Our ATTACH with version 2 is on its way. A peer that does not speak version 2 answers INVALID.
GREETING    Both sides speak frames; our HELLO is on its way.
OPEN        Channels are opened, used and closed as the library asks.
CLOSED      The library was told once why; what it still asks is dropped, since it is over.

A channel is OPENING until its grant, then OPEN, then CLOSING if we close it. A final REFUSED or END, and FENCED, close
it from the node's side; its number is free then, unless we have closed it ourselves: then CHANNEL_CLOSED frees it.

Invariants
    (1) `TellLinkClosed` is the last thing that is told, and is told once.
    (2) A channel's opening is answered once: `TellOpened` or `TellClosed`; after `TellClosed` nothing is told of it.
    (3) What is asked on a channel that is over is dropped: its end was told.
    (4) What a node says without end is bounded: deliveries by credit, all else by `bounds`.
Source: docs/internals/DESIGN.md, "Clients" and "Native protocol"; docs/reference/wire/native.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from veredus.kernel.effects import CloseLink, Note, Send
from veredus.kernel.engine import Now
from veredus.kernel.errors import Misuse, PeerFault
from veredus.kernel.events import DeadlineReached, LinkClosed, LinkOpened, Received
from veredus.kernel.octets import Octets
from veredus.kernel.symbol import Symbol
from veredus.protocols.liveness import Liveness, Verdict

from . import frames, native
from . import messages as m
from .bounds import DELIVER_SLACK_SIZE, PONGS_PER_SILENCE, check_head, message_in, unfed_with
from .client_exchange import (
    CloseRequested,
    CreditRequested,
    FramesReceived,
    HandedOut,
    LeaveRequested,
    MessageRequested,
    OfferRequested,
    OpenRequested,
    SettleRequested,
    TellClosed,
    TellDelivery,
    TellHanded,
    TellLinkClosed,
    TellMessage,
    TellOpened,
    TellReceipts,
    TellSettled,
    TellWelcome,
)
from .native import Frame, Kind
from .parsing import FrameParser
from .strangers import cause_of

_LOST = "link-lost"
SECOND_NS = 1_000_000_000


class ClientSettings(NamedTuple):
    """How a client introduces itself and how long it waits; sizes in bytes."""

    client: str = ""
    token: str = ""
    greeting_timeout_ns: int = 10 * SECOND_NS
    frame_size_max: int = 1 << 30
    """No frame larger than this is taken, whatever the node announces."""


class _Phase(Symbol):
    CONNECTING = "connecting"
    ATTACHING = "attaching"
    GREETING = "greeting"
    OPEN = "open"
    CLOSED = "closed"


class _ChannelPhase(Symbol):
    OPENING = "opening"
    OPEN = "open"
    CLOSING = "closing"


@dataclass(slots=True)
class _Channel:
    grant_kind: int
    phase: _ChannelPhase = _ChannelPhase.OPENING
    is_granted: bool = False
    credit: int = 0
    """What the node may yet deliver, in bytes of frames; it may overdraw it by one."""
    unfed: int = 0
    """How many names and gaps were said since the last delivery."""


class ClientLink:
    """Owns one link's phase, its parser and its channels; see the module for the picture."""

    def __init__(self, link: int, settings: ClientSettings) -> None:
        """The client's end of link number `link`."""
        self.link = link
        self._settings = settings
        self._phase = _Phase.CONNECTING
        self._greeting = bytearray()
        self._parser = FrameParser(native.GREETING_SIZE_MAX)
        self._channels: dict[int, _Channel] = {}
        self._last_channel = 0
        self._channel_count_max = self._record_size_max = 0
        self._liveness = Liveness(settings.greeting_timeout_ns // 4, settings.greeting_timeout_ns)
        self._ponged_ns = 0
        self._silence_max_ns = 0
        self._effects: list[object] = []

    @property
    def is_open(self) -> bool:
        """Whether channels may be opened."""
        return self._phase is _Phase.OPEN

    def free_channel(self) -> int:
        """A channel number that may be opened. Raises `Misuse("too-many-channels")` or `Misuse("not-open")`."""
        if self._phase is not _Phase.OPEN:
            raise Misuse("not-open", "wait until the link is open")
        if len(self._channels) >= self._channel_count_max:
            raise Misuse(
                "too-many-channels", f"the node allows {self._channel_count_max} channels for a connection: close some"
            )
        channel = self._last_channel
        while True:
            channel = channel % native.CHANNEL_MAX + 1
            if channel not in self._channels:
                return channel

    def handle(self, event: object, now: Now) -> Sequence[object]:
        """Take one fact; raises `Misuse` for what the library may not ask, before anything changes."""
        if type(event) is Received:
            self._receive(event, now)
        else:
            handler = _HANDLERS[self._phase].get(type(event))
            if handler is not None:
                handler(self, event, now)
        effects, self._effects = self._effects, []
        return effects

    def deadline(self) -> int | None:
        """When to ping, or to give a silent node up."""
        return self._liveness.deadline()

    # ── the link ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _attach(self, event: LinkOpened, now: Now) -> None:
        self._phase = _Phase.ATTACHING
        self._liveness.begin(now.monotonic_ns)
        self._send((frames.encode_attach("", native.VERSION),))

    def _hear(self, now: Now) -> None:
        # The whole greeting has its time, however slowly it comes.
        if self._phase is _Phase.OPEN:
            self._liveness.hear(now.monotonic_ns)

    def _receive(self, event: Received, now: Now) -> None:
        self._hear(now)
        data: Octets = event.data
        if self._phase is _Phase.ATTACHING:
            data = self._read_answer(data, now)
        if self._phase not in (_Phase.GREETING, _Phase.OPEN):
            return
        for frame in self._parser.parse(data):
            self._take_frame(frame, now)
        if self._parser.fault is not None:
            self._fail(self._parser.fault, now)

    def _receive_frames(self, event: FramesReceived, now: Now) -> None:
        self._hear(now)
        for frame in event.frames:
            self._take_frame(frame, now)
        if event.fault is not None:
            self._fail(event.fault, now)

    def _read_answer(self, data: Octets, now: Now) -> Octets:
        """Read the answer to our ATTACH in version 1's grammar; returns what follows it."""
        self._greeting += data
        octets = bytes(self._greeting)
        try:
            found = frames.first_command(octets)
        except PeerFault as fault:
            self._close(*cause_of(octets, fault.message))
            return b""
        if found is None:
            return b""
        answer, end = found
        if not isinstance(answer, frames.AttachOk):
            reason = answer.reason.decode("ascii", "replace") if isinstance(answer, frames.Invalid) else str(answer)
            self._close(*cause_of(octets, reason))
            return b""
        self._phase = _Phase.GREETING
        self._greeting.clear()
        hello = m.Hello(client=self._settings.client, token=self._settings.token)
        self._send((native.encode_message(0, hello),))
        return octets[end:]

    def _take_frame(self, frame: Frame, now: Now) -> None:
        handlers = _FRAME_HANDLERS[self._phase]
        handler = handlers.get(frame.kind)
        try:
            if handler is not None:
                handler(self, frame, now)
            elif frame.kind < native.OPTIONAL_KIND and self._phase is not _Phase.CLOSED:
                raise PeerFault(
                    "bad-frame", f"a {native.name_of(frame.kind)} frame is not expected while {self._phase.value}"
                )
        except PeerFault as fault:
            self._fail(fault, now)

    def _fail(self, fault: PeerFault, now: Now) -> None:
        if self._phase is _Phase.CLOSED:
            return
        self._effects.append(Note("warning", "node-broke-protocol", {"code": fault.code, "message": fault.message}))
        if self._phase in (_Phase.GREETING, _Phase.OPEN):
            self._send((native.encode_message(0, m.Goodbye(fault.code, fault.message)),))
        self._close(fault.code, f"the node broke the protocol: {fault.message}")

    def _close(self, code: str, message: str) -> None:
        if self._phase is _Phase.CLOSED:
            return
        self._phase = _Phase.CLOSED
        self._channels.clear()
        self._parser = FrameParser(0)
        self._liveness.end()
        if code != _LOST:
            self._effects.append(CloseLink(self.link, code))
        self._effects.append(TellLinkClosed(code, message))

    def _lose(self, event: LinkClosed, now: Now) -> None:
        self._close(_LOST, f"the connection was lost ({event.reason or 'closed'})")

    def _leave(self, event: LeaveRequested, now: Now) -> None:
        if self._phase is _Phase.OPEN:
            self._send((native.encode_message(0, m.Goodbye("leaving", event.message)),))
        self._close("leaving", event.message)

    def _watch(self, event: DeadlineReached, now: Now) -> None:
        verdict = self._liveness.look(now.monotonic_ns)
        if self._phase is not _Phase.OPEN:
            if verdict is Verdict.SILENT:
                self._close("greeting-timeout", "the node did not answer the greeting in time")
        elif verdict is Verdict.SILENT:
            self._close("silent", f"the node was silent for {self._silence_max_ns / SECOND_NS:g} s")
        elif verdict is Verdict.PING:
            self._send((native.encode_frame(Kind.PING, 0),))

    def _send(self, buffers: Sequence[Octets]) -> None:
        self._effects.append(Send(self.link, buffers))

    # ── what the library asks ────────────────────────────────────────────────────────────────────────────────────────

    def _open(self, event: OpenRequested, now: Now) -> None:
        if not 0 < event.channel <= native.CHANNEL_MAX or event.channel in self._channels:
            raise Misuse("channel-in-use", f"channel {event.channel} is in use: use a free one")
        if len(self._channels) >= self._channel_count_max:
            raise Misuse(
                "too-many-channels", f"the node allows {self._channel_count_max} channels for a connection: close some"
            )
        credit = event.opening.credit if isinstance(event.opening, m.Subscribe) else 0
        self._channels[event.channel] = _Channel(_GRANT_KIND[type(event.opening)], credit=credit)
        self._last_channel = event.channel
        self._send((native.encode_message(event.channel, event.opening),))

    def _is_usable(self, channel: int) -> bool:
        known = self._channels.get(channel)
        if known is None or known.phase is _ChannelPhase.CLOSING:
            return False
        if known.phase is _ChannelPhase.OPENING:
            raise Misuse("not-open", f"channel {channel} is not open yet: wait for its grant")
        return True

    def _offer(self, event: OfferRequested, now: Now) -> None:
        if self._is_usable(event.channel):
            self._send(native.encode_offer(event.channel, event.record))

    def _credit(self, event: CreditRequested, now: Now) -> None:
        if self._is_usable(event.channel):
            self._channels[event.channel].credit += event.size
            self._send((native.encode_credit(event.channel, event.size),))

    def _hand_out(self, event: HandedOut, now: Now) -> None:
        if self._is_usable(event.channel):
            self._send((native.encode_handed(event.channel, event.sequence),))

    def _settle(self, event: SettleRequested, now: Now) -> None:
        if event.ranges and self._is_usable(event.channel):
            self._send(native.encode_settles(event.channel, event.ranges))

    def _say(self, event: MessageRequested, now: Now) -> None:
        if isinstance(event.message, m.Request) != (event.channel == 0):
            raise Misuse("wrong-channel", "requests must use channel 0, and everything else a channel of its own")
        if event.channel == 0 or self._is_usable(event.channel):
            self._send((native.encode_message(event.channel, event.message),))

    def _close_channel(self, event: CloseRequested, now: Now) -> None:
        channel = self._channels.get(event.channel)
        if channel is not None and channel.phase is not _ChannelPhase.CLOSING:
            channel.phase = _ChannelPhase.CLOSING
            self._send((native.encode_frame(Kind.CLOSE_CHANNEL, event.channel),))

    def _not_open(self, event: object, now: Now) -> None:
        raise Misuse("not-open", "wait until the link is open")

    # ── what the node says ───────────────────────────────────────────────────────────────────────────────────────────

    def _take_welcome(self, frame: Frame, now: Now) -> None:
        welcome = native.decode_message(frame)
        assert isinstance(welcome, m.Welcome)
        if welcome.version != native.VERSION:
            raise PeerFault("version-unknown", f"the node answers with version {welcome.version}")
        self._phase = _Phase.OPEN
        self._parser.size_max = min(welcome.frame_size_max + DELIVER_SLACK_SIZE, self._settings.frame_size_max)
        self._parser.check_head = self.check_head
        self._record_size_max = welcome.limits.payload_size_max + DELIVER_SLACK_SIZE
        self._channel_count_max = min(welcome.channel_count_max, native.CHANNEL_MAX)
        self._silence_max_ns = max(welcome.silence_max_ms, 1) * 1_000_000
        self._liveness = Liveness(self._silence_max_ns // 4, self._silence_max_ns)
        self._liveness.begin(now.monotonic_ns)
        self._effects.append(TellWelcome(welcome))

    def check_head(self, kind: int, channel: int, size: int) -> None:
        """Raise `PeerFault` for a frame that is too large, before there is memory for it."""
        known = self._channels.get(channel)
        check_head(kind, size, 0 if known is None else known.credit, self._record_size_max)

    def _take_goodbye(self, frame: Frame, now: Now) -> None:
        goodbye = message_in(frame)
        assert isinstance(goodbye, m.Goodbye)
        self._close(goodbye.code, goodbye.message)

    def _take_ping(self, frame: Frame, now: Now) -> None:
        native.check_ping(frame)
        if now.monotonic_ns - self._ponged_ns >= self._silence_max_ns // PONGS_PER_SILENCE:
            self._ponged_ns = now.monotonic_ns
            self._send((native.encode_frame(Kind.PONG, 0, frame.body),))

    def _take_pong(self, frame: Frame, now: Now) -> None:
        native.check_ping(frame)

    def _is_told(self, frame: Frame) -> bool:
        channel = self._channels.get(frame.channel)
        if channel is None or channel.phase is _ChannelPhase.OPENING:
            raise _not_open_fault(frame)
        return channel.is_granted

    def _take_grant(self, frame: Frame, now: Now) -> None:
        channel = self._channels.get(frame.channel)
        if channel is None or channel.grant_kind != frame.kind or channel.phase is _ChannelPhase.OPEN:
            raise PeerFault(
                "bad-frame", f"a {native.name_of(frame.kind)} frame that was not requested on channel {frame.channel}"
            )
        grant: Any = message_in(frame)
        if channel.phase is _ChannelPhase.OPENING:
            channel.phase = _ChannelPhase.OPEN
            channel.is_granted = True
            self._effects.append(TellOpened(frame.channel, grant))

    def _take_receipt(self, frame: Frame, now: Now) -> None:
        if self._is_told(frame):
            self._effects.append(TellReceipts(frame.channel, native.decode_receipts(frame)))

    def _take_deliver(self, frame: Frame, now: Now) -> None:
        if self._is_told(frame):
            redelivered_to, records = native.decode_deliver(frame)
            channel, size = self._channels[frame.channel], native.HEAD_SIZE + frame.size
            if channel.credit <= 0:
                raise PeerFault("over-credit", f"channel {frame.channel} has no credit left, but the node delivers")
            channel.credit -= size
            channel.unfed = 0
            self._effects.append(TellDelivery(frame.channel, redelivered_to, records, size))

    def _take_handed(self, frame: Frame, now: Now) -> None:
        if self._is_told(frame):
            self._effects.append(TellHanded(frame.channel, native.decode_handed(frame)))

    def _take_settled(self, frame: Frame, now: Now) -> None:
        if self._is_told(frame):
            self._effects.append(TellSettled(frame.channel, *native.decode_settled(frame)))

    def _take_message(self, frame: Frame, now: Now) -> None:
        is_answer = frame.channel == 0 and frame.kind == Kind.REPLY
        if is_answer or self._is_told(frame):
            message = message_in(frame)
            if not is_answer:
                channel = self._channels[frame.channel]
                channel.unfed = unfed_with(channel.unfed, message, frame.channel)
            self._effects.append(TellMessage(frame.channel, message))

    def _take_end(self, frame: Frame, now: Now) -> None:
        cause: Any = message_in(frame)
        is_final = isinstance(cause, m.Fencing) or cause.final
        channel = self._channels.get(frame.channel)
        if frame.channel == 0 and isinstance(cause, m.Refusal):
            if is_final:
                self._close(cause.code, cause.message)
            else:
                self._effects.append(TellMessage(0, cause))
        elif channel is None:
            raise _not_open_fault(frame)
        elif not is_final:
            self._effects.append(TellMessage(frame.channel, cause))
        elif channel.phase is not _ChannelPhase.CLOSING:
            del self._channels[frame.channel]
            self._effects.append(TellClosed(frame.channel, cause))

    def _take_channel_closed(self, frame: Frame, now: Now) -> None:
        channel = self._channels.get(frame.channel)
        if channel is None or channel.phase is not _ChannelPhase.CLOSING:
            raise PeerFault("bad-frame", f"channel {frame.channel} was closed by the node without a reason")
        del self._channels[frame.channel]
        self._effects.append(TellClosed(frame.channel, None))

    def check(self) -> None:
        """Repeat the invariants."""
        assert (self._phase is _Phase.OPEN) or not self._channels
        assert len(self._channels) <= self._channel_count_max


def _not_open_fault(frame: Frame) -> PeerFault:
    return PeerFault("bad-frame", f"a {native.name_of(frame.kind)} frame on channel {frame.channel}, which is not open")


_Handler: TypeAlias = Callable[[ClientLink, Any, Now], None]
_FrameHandler: TypeAlias = Callable[[ClientLink, Frame, Now], None]

_GRANT_KIND: dict[type[m.Message], int] = {
    m.AttachSource: Kind.SOURCE_ATTACHED,
    m.Subscribe: Kind.SUBSCRIBED,
    m.OpenRun: Kind.RUN_OPENED,
    m.OpenStage: Kind.STAGE_OPENED,
}
_ASKED = (
    OpenRequested, OfferRequested, CreditRequested, HandedOut, SettleRequested, MessageRequested, CloseRequested,
)  # fmt: skip
_ALWAYS: dict[type, _Handler] = {
    LinkClosed: ClientLink._lose,
    LeaveRequested: ClientLink._leave,
    DeadlineReached: ClientLink._watch,
}
_EARLY: dict[type, _Handler] = {**_ALWAYS, **dict.fromkeys(_ASKED, ClientLink._not_open)}
_HANDLERS: dict[_Phase, dict[type, _Handler]] = {
    _Phase.CONNECTING: {**_EARLY, LinkOpened: ClientLink._attach},
    _Phase.ATTACHING: _EARLY,
    _Phase.GREETING: {**_EARLY, FramesReceived: ClientLink._receive_frames},
    _Phase.OPEN: {
        **_ALWAYS,
        FramesReceived: ClientLink._receive_frames,
        OpenRequested: ClientLink._open,
        OfferRequested: ClientLink._offer,
        CreditRequested: ClientLink._credit,
        HandedOut: ClientLink._hand_out,
        SettleRequested: ClientLink._settle,
        MessageRequested: ClientLink._say,
        CloseRequested: ClientLink._close_channel,
    },
    _Phase.CLOSED: {},
}
_LINK_FRAMES: dict[int, _FrameHandler] = {
    Kind.PING: ClientLink._take_ping,
    Kind.PONG: ClientLink._take_pong,
    Kind.GOODBYE: ClientLink._take_goodbye,
    Kind.REFUSED: ClientLink._take_end,
}
_FRAME_HANDLERS: dict[_Phase, dict[int, _FrameHandler]] = {
    _Phase.CONNECTING: {},
    _Phase.ATTACHING: {},
    _Phase.GREETING: {**_LINK_FRAMES, Kind.WELCOME: ClientLink._take_welcome},
    _Phase.OPEN: {
        **_LINK_FRAMES,
        **dict.fromkeys(map(int, _GRANT_KIND.values()), ClientLink._take_grant),
        Kind.RECEIPT: ClientLink._take_receipt,
        Kind.DELIVER: ClientLink._take_deliver,
        Kind.HANDED: ClientLink._take_handed,
        Kind.SETTLED: ClientLink._take_settled,
        Kind.BATCH_REFUSED: ClientLink._take_message,
        Kind.SOURCES: ClientLink._take_message,
        Kind.PROGRESS: ClientLink._take_message,
        Kind.GAP: ClientLink._take_message,
        Kind.RETURNED: ClientLink._take_message,
        Kind.FILTER_CHANGED: ClientLink._take_message,
        Kind.COMMITTED: ClientLink._take_message,
        Kind.REPLY: ClientLink._take_message,
        Kind.FENCED: ClientLink._take_end,
        Kind.END: ClientLink._take_end,
        Kind.CHANNEL_CLOSED: ClientLink._take_channel_closed,
    },
    _Phase.CLOSED: {},
}
