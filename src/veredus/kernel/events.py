"""Facts that any engine with links may be told; past tense, one class each."""

from __future__ import annotations

from dataclasses import dataclass

from veredus.kernel.octets import Octets


@dataclass(frozen=True, slots=True)
class LinkOpened:
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


@dataclass(frozen=True, slots=True)
class Received:
    """Bytes came over a link. They may be cut anywhere on a stream transport; on `zeromq` they are one whole frame.

    The memory belongs to the engine from now on: the host never writes to it again.
    """

    link: int
    data: Octets


@dataclass(frozen=True, slots=True)
class LinkClosed:
    """The link is gone, by whoever's doing."""

    link: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class LinkDrained:
    """What was queued for this link went out: its send buffer is below the low-water mark again."""

    link: int


@dataclass(frozen=True, slots=True)
class LinkCongested:
    """This link's send buffer passed the high-water mark: push nothing more until `LinkDrained`."""

    link: int


@dataclass(frozen=True, slots=True)
class DeadlineReached:
    """The engine's own `deadline()` is due. Harmless when it is not.

    What peers said until `heard_ns`, in monotonic nanoseconds, was told before: silence is judged as of then. None for
    now: nothing waits unread.
    """

    heard_ns: int | None = None
