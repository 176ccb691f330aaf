"""The node's end of one link, until it is known which version the peer speaks; then the engine of that version.

    WAITING ── link opened ──► LISTENING ── ATTACH, version 1 ──► Version1
                                   ├─────── ATTACH, version 2, answered ATTACH-OK ──► Version2
                                   └─────── anything else: INVALID; too late, gone ──► CLOSED

Source: seed 004, "Protocol Specification"; the design, section 5 ("ZEPS").
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from veredus.kernel.deadlines import Deadlines
from veredus.kernel.effects import CloseLink, Note, Send
from veredus.kernel.engine import Now
from veredus.kernel.errors import PeerFault
from veredus.kernel.events import DeadlineReached, LinkClosed, LinkOpened, Received
from veredus.kernel.octets import Octets
from veredus.kernel.symbol import Symbol
from veredus.protocols.links import DrainRequested

from . import frames, native
from .orders import LinkLimits
from .version1 import Version1
from .version2 import Version2

FRAMED_DOOR = "zeromq"
"""The door at which one `Received` is one whole command."""


class _Phase(Symbol):
    WAITING = "waiting"
    LISTENING = "listening"
    CLOSED = "closed"


class NodeLink:
    """Owns a link's first octets, then its engine; see the module for the picture."""

    is_timed_by_answers: ClassVar[bool] = False
    __slots__ = (
        "_deadlines", "_effects", "_heard_size", "_is_framed", "_limits", "_octets", "_phase", "_principal", "dialect",
        "link",
    )  # fmt: skip

    def __init__(self, link: int, limits: LinkLimits) -> None:
        """The node's end of link number `link`; it begins with `LinkOpened`."""
        self.link = link
        self.dialect: Version1 | Version2 | None = None
        self._limits = limits
        self._phase = _Phase.WAITING
        self._principal = ""
        self._is_framed = False
        self._octets = b""
        self._heard_size = 0
        self._deadlines: Deadlines[str] = Deadlines()
        self._effects: list[object] = []

    def handle(self, event: object, now: Now) -> Sequence[object]:
        """Take one fact about the link, or one order of the streams floor for a session of it."""
        if self.dialect is not None:
            return self.dialect.handle(event, now)
        match event:
            case LinkOpened() if self._phase is _Phase.WAITING:
                self._open(event, now)
            case Received(_, data) if self._phase is _Phase.LISTENING:
                self._listen(data, now)
            case DrainRequested() if self._phase is _Phase.LISTENING:
                self._close("draining")
            case DeadlineReached() if self._deadlines.due(now.monotonic_ns):
                self._reject("too late: no ATTACH came in time")
            case LinkClosed():
                self._become_closed()
            case _:
                pass
        effects, self._effects = self._effects, []
        return effects

    def deadline(self) -> int | None:
        """When an ATTACH is late, and what the version's engine waits for."""
        return self._deadlines.next_ns() if self.dialect is None else self.dialect.deadline()

    def _open(self, event: LinkOpened, now: Now) -> None:
        self._phase = _Phase.LISTENING
        self._principal = event.principal
        self._is_framed = event.door == FRAMED_DOOR
        self._deadlines.set("greeting", now.monotonic_ns + self._limits.greeting_timeout_ns)

    def _listen(self, data: Octets, now: Now) -> None:
        octets = self._octets + bytes(data)
        start = 0
        try:
            while self._phase is _Phase.LISTENING and self.dialect is None and start < len(octets):
                found = frames.first_command(octets, start)
                if found is None and self._is_framed:
                    raise PeerFault("truncated", "the frame ends within its command")
                if found is None:
                    break
                self._heard_size += found[1] - start
                start = found[1]
                self._take(found[0], now)
        except PeerFault as fault:
            self._reject(fault.message)
        self._octets = octets[start:]
        if self.dialect is not None and self._octets:
            self._effects += self.dialect.handle(Received(self.link, self._octets), now)
            self._octets = b""

    def _take(self, command: frames.Command, now: Now) -> None:
        if self._heard_size > self._limits.greeting_size_max:
            raise PeerFault("too-large", "attach before saying so much")
        match command:
            case frames.Ping():
                self._send(frames.PING_OK)
            case frames.Detach():
                self._send(frames.DETACH_OK)
                self._close("detached")
            case frames.Attach(protocol, _, _) if protocol != frames.PROTOCOL.encode():
                raise PeerFault("bad-protocol", "the protocol here is ZEPS")
            case frames.Attach(_, frames.VERSION, stream):
                self._become_version1(stream, now)
            case frames.Attach(_, native.VERSION, stream) if not self._is_framed:
                if stream:
                    raise PeerFault("bad-attach", "version 2 names its streams later: attach to none")
                self._become_version2(now)
            case frames.Attach(_, version, _):
                known = "1" if self._is_framed else "1 and 2"
                raise PeerFault("version-unknown", f"version {version} is not spoken here: {known}")
            case _:
                raise PeerFault("unexpected", "a stream is opened by an ATTACH")

    def _become_version1(self, stream: bytes, now: Now) -> None:
        dialect = Version1(self.link, self._principal, stream, self._is_framed, self._limits)
        self._effects += dialect.begin(now)
        self.dialect = dialect

    def _become_version2(self, now: Now) -> None:
        self._send(frames.ATTACH_OK)
        self.dialect = Version2(self.link, self._principal, self._limits, now)

    def _reject(self, reason: str) -> None:
        self._effects.append(Note("warning", "attach-invalid", {"link": self.link, "reason": reason}))
        self._send(frames.encode_invalid(reason))
        self._close("invalid")

    def _close(self, reason: str) -> None:
        self._become_closed()
        self._effects.append(CloseLink(self.link, reason))

    def _become_closed(self) -> None:
        self._phase = _Phase.CLOSED
        self._octets = b""
        self._deadlines = Deadlines()

    def _send(self, command: bytes) -> None:
        self._effects.append(Send(self.link, (command,)))
