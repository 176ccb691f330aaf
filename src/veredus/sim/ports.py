"""How peers speak with a node: the plain way, exchange objects over a link, or the native one, frames of bytes.

    peer ──exchange fact──► port ──link──► listener of the node ──exchange fact──► NodeEngine
         ◄──exchange order──     ◄────────                  ◄──exchange order──

A port gives every peer the same language, so that workloads and oracles do not know which way a world has drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Protocol

from veredus.delivery.batch import BatchLimits, check_header, read_header, verify_signature
from veredus.delivery.payload import verify_payload
from veredus.delivery.record import ENVELOPE_SIZE
from veredus.kernel.effects import Send
from veredus.kernel.engine import Now
from veredus.kernel.events import LinkClosed, LinkCongested, LinkDrained, LinkOpened, Received
from veredus.kernel.octets import Octets
from veredus.protocols.links import NOTHING, SESSION_BITS, FrameRefused, ReadingPaused, ReadingResumed, Unfinished
from veredus.protocols.zeps.orders import SessionCongested, SessionDrained
from veredus.streams.exchange import BatchOffered, Push, SessionClosed, SubscribeRequested

from .gates import Gate
from .network import End

CHANNEL_MASK = (1 << SESSION_BITS) - 1
LIMITS = BatchLimits()


class PlainDoor:
    """The node's end of a plain link: it takes exchange facts as they are, and verifies batches as any other."""

    is_timed_by_answers: ClassVar[bool] = False

    def __init__(self, opened: LinkOpened) -> None:
        """Of the link that was opened."""
        self._link = opened.link
        self._sessions: dict[int, None] = {}
        self._flows: dict[int, None] = {}

    def handle(self, event: object, now: Now) -> Sequence[object]:
        """One fact of the link's, or one order for a session of it."""
        match event:
            case Received(_, (fact,)):
                return self._receive(fact)
            case LinkClosed():
                return [SessionClosed(session) for session in self._sessions]
            case LinkCongested():
                return [SessionCongested(session) for session in self._flows]
            case LinkDrained():
                return [SessionDrained(session) for session in self._flows]
            case LinkOpened() | ReadingPaused() | ReadingResumed() | FrameRefused():
                return ()
            case _:
                # In a tuple, since whatever is sent has a length.
                return (Send(self._link, ((_frozen(event),),)),)  # type: ignore[arg-type]

    def _receive(self, fact: Any) -> Sequence[object]:
        session = self._link << SESSION_BITS | fact.session
        if isinstance(fact, BatchOffered):
            record = bytearray(fact.record)
            batch = memoryview(record)[ENVELOPE_SIZE : ENVELOPE_SIZE + fact.header.size]
            header = read_header(batch)
            verify_signature(batch)
            check_header(header, LIMITS)
            verify_payload(batch, header, LIMITS)
            return (BatchOffered(session, record, header),)
        if isinstance(fact, SessionClosed):
            self._sessions.pop(session, None)
            self._flows.pop(session, None)
        else:
            self._sessions[session] = None
        if isinstance(fact, SubscribeRequested):
            self._flows[session] = None
        return (replace(fact, session=session),)

    def deadline(self) -> int | None:
        """A plain link is never late."""
        return None

    @property
    def unfinished(self) -> Unfinished:
        """Nothing: what comes are whole facts."""
        return NOTHING

    @property
    def unread_size(self) -> int:
        """Nothing: what comes is read at once."""
        return 0


def _frozen(order: Any) -> object:
    """The order as it is at this moment, addressed by channel: the node may write to its memory again."""
    channel = order.session & CHANNEL_MASK
    if isinstance(order, Push):
        return replace(order, session=channel, buffers=[b"".join(order.buffers)])
    return replace(order, session=channel)


class Port(Protocol):
    """A peer's end of a link, whichever way it speaks."""

    def ask(self, fact: Any) -> None:
        """Tell the node a fact; its `session` is the channel."""
        ...

    def close(self) -> None:
        """Leave."""
        ...


class PlainPort:
    """A peer's end of a plain link."""

    def __init__(self, end: End, gate: Gate, on_said: Callable[[Any], None], on_closed: Callable[[str], None]) -> None:
        """Speak over `end`, at once; `on_said` hears the node's orders by channel, unless `gate` is closed."""
        self._end = end
        end.on_received = lambda item: gate.through(lambda: on_said(item))
        end.on_closed = lambda reason: gate.through(lambda: on_closed(reason))

    def ask(self, fact: Any) -> None:
        """Tell the node a fact; its `session` is the channel."""
        self._end.send((fact,))

    def close(self) -> None:
        """Leave."""
        self._end.close("left")


def is_offer(item: object) -> bool:
    """Whether this may be lost, repeated and overtaken: of a source, whose numbers say what is missing.

    Rows of a stage have numbers too, but a sink that is told of a gap has broken its own contract.
    """
    return isinstance(item, BatchOffered) and bool(item.header.source_id)


def batch_offered(channel: int, record: Octets) -> BatchOffered:
    """The offer of a signed record."""
    header = read_header(memoryview(record)[ENVELOPE_SIZE : _end_of(record)])
    return BatchOffered(channel, bytearray(record), header)


def _end_of(record: Octets) -> int:
    payload_size = int.from_bytes(memoryview(record)[44:48], "little")
    token_size = int.from_bytes(memoryview(record)[48:52], "little")
    return ENVELOPE_SIZE + 64 + payload_size + token_size
