"""Facts that any engine with links may be told; past tense, one class each."""

from __future__ import annotations

import msgspec

from veredus.kernel.octets import Octets


class LinkOpened(msgspec.Struct, frozen=True):
    """A link to a peer came up. `door` says by which listener (`tcp`, `tls`, `unix`, `zeromq`, `memory`).

    `principal` is who the transport proved the peer to be (a client certificate's common name, or `local` where the
    transport is private to this user), or "" when it proved nothing. `accepted_ns` is when the listener accepted it, in
    monotonic nanoseconds, from which its time to greet counts; 0 for just now.
    """

    link: int
    door: str
    peer: str
    principal: str = ""
    accepted_ns: int = 0


class Received(msgspec.Struct, frozen=True):
    """Bytes came over a link. They may be cut anywhere on a stream transport; on `zeromq` they are one whole frame.

    The memory belongs to the engine from now on: the host never writes to it again.
    """

    link: int
    data: Octets


class LinkClosed(msgspec.Struct, frozen=True):
    """The link is gone, by whoever's doing."""

    link: int
    reason: str = ""


class LinkDrained(msgspec.Struct, frozen=True):
    """What was queued for this link went out: its send buffer is below the low-water mark again."""

    link: int


class LinkTaking(msgspec.Struct, frozen=True):
    """The peer has taken some of what waits to be written, and not all: it is slow, but not gone."""

    link: int


class LinkCongested(msgspec.Struct, frozen=True):
    """This link's send buffer passed the high-water mark: push nothing more until `LinkDrained`.

    For what the peer causes by sending there is room still, `room` bytes until then. It may be told again, with less.
    """

    link: int
    room: int = 0


class DeadlineReached(msgspec.Struct, frozen=True):
    """The engine's own `deadline()` is due. Harmless when it is not.

    What peers said until `heard_ns`, in monotonic nanoseconds, was told before: silence is judged as of then. None for
    now: nothing waits unread.
    """

    heard_ns: int | None = None
