"""One end of a ZMTP connection: octets in, messages out, and octets out. It reads no clock; see `link` for that.

    GREETING ── both greeted ──► HANDSHAKE ── done ──► TRAFFIC
        │                          │   ▲                  │
        │                     asked▼   │admit             │
        │                         ASKING                  │
        └──────── a fault ───────────┴──── a fault ───────┴──► CLOSED

GREETING   64 octets are waited for. A server says which mechanism it means once it knows which the client means.
HANDSHAKE  Commands of the mechanism; each octet of these two phases counts towards `handshake_size_max`.
ASKING     Somebody judges what the peer has shown. Nothing that comes is looked at.
TRAFFIC    Messages and commands. PING is answered.
CLOSED     `fault` says why. Nothing is taken any more.

Invariants
    (1) However the octets are cut, the same messages and the same fault come out.
    (2) A size that breaks a bound is a fault when it is read, before a byte is kept for it; at most one message that
        keeps the bounds is held, and one read behind it.
    (3) A message comes out whole or not at all.
    (4) ERROR is said at most once, and in a handshake only.
    (5) What is done at one call of `next_messages` is bounded, whatever came: commands and seals cost time, too.
Source: RFC 37 of ZeroMQ.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from veredus.kernel.errors import PeerFault
from veredus.kernel.octets import Octets
from veredus.kernel.symbol import Symbol
from veredus.kernel.turns import QUANTUM_NS
from veredus.protocols.links import NOTHING, Unfinished

from . import frames, greeting
from .mechanisms import Credential, Mechanism, Remote

Message: TypeAlias = Sequence[Octets]
"""The parts of a message, at least one."""
MESSAGES_AT_ONCE_MAX: Final = 1024
"""What is cut at a time: small frames take many times their size in memory once they are objects."""
GREETINGS_AT_ONCE_MAX: Final = 8
"""The same while the peer has yet to greet in another way: such messages cost many times as much."""
_GREETED_SIZE_MIN: Final = 64
"""As so large a command counts then, however small it is: it costs more than its octets."""
COMMAND_NS: Final = 5_000
SEALED_NS: Final = 15_000
"""What it costs to obey a command, and to open a sealed frame, in nanoseconds; measured, roughly."""


class Phase(Symbol):
    """Where the connection stands; see the module."""

    GREETING = "greeting"
    HANDSHAKE = "handshake"
    ASKING = "asking"
    TRAFFIC = "traffic"
    CLOSED = "closed"


class Bounds(NamedTuple):
    """What a peer may send; sizes in bytes."""

    message_size_max: int
    """Of a message: of all its parts together."""
    parts_max: int = 64
    command_size_max: int = 2048
    handshake_size_max: int = 8192
    """Of the greeting and the handshake together."""
    messages_at_once_max: int = MESSAGES_AT_ONCE_MAX


class Connection:
    """Owns the octets that are not whole yet, and where the connection stands; see the module for the picture."""

    __slots__ = (
        "_bounds", "_cost_ns", "_delayed", "_heard_size", "_held", "_is_server", "_mechanisms", "_needed", "_outgoing",
        "_part_size", "_parts", "_preferred", "fault", "is_greeting", "mechanism", "message_size_hint",
        "message_size_max", "minor", "phase", "ping_ttl",
    )  # fmt: skip

    def __init__(self, mechanisms: Mapping[bytes, Mechanism], bounds: Bounds, is_server: bool) -> None:
        """An end that speaks one of `mechanisms`: a client the first, a server the one that the client means."""
        self.phase = Phase.GREETING
        self.fault: PeerFault | None = None
        self.minor = 0
        """The minor version of the peer: with 0 it knows no PING."""
        self.ping_ttl = 0
        """What the peer's last PING said, in tenths of a second: it is gone when nothing comes for so long."""
        self.message_size_max = bounds.message_size_max
        """May be changed at any time; what has been cut already keeps to what it was."""
        self.message_size_hint = ""
        """What is said behind that limit to who goes over it."""
        self.is_greeting = False
        """Whether the peer has yet to greet in another way: its commands count as those of a handshake until then."""
        self._preferred = next(iter(mechanisms.values()))
        self.mechanism: Mechanism = self._preferred
        self._mechanisms = mechanisms
        self._bounds = bounds
        self._is_server = is_server
        self._outgoing: list[Octets] = []
        self._held: Octets = b""
        self._needed = 0
        self._heard_size = 0
        self._parts: list[Octets] = []
        self._part_size = 0
        self._delayed: Octets | None = None
        """A command that is obeyed once the messages before it were taken."""
        self._cost_ns = 0

    @property
    def remote(self) -> Remote:
        """What the peer said of itself, once the handshake is done."""
        return self.mechanism.remote

    @property
    def asked(self) -> Credential | None:
        """What is to be judged now."""
        return self.mechanism.asked if self.phase is Phase.ASKING else None

    @property
    def held_size(self) -> int:
        """Bytes that are kept, whether their message is whole or not."""
        return len(self._held) + self._part_size

    @property
    def unread_size(self) -> int:
        """Bytes that need nothing behind them to go on: they wait for whoever asks for messages."""
        return 0 if self._needed else len(self._held)

    @property
    def unfinished(self) -> Unfinished:
        """What waits for the rest of its message, and how large its frame says that it will be."""
        held_size = self.held_size - self.unread_size
        return Unfinished(held_size, max(held_size, self._part_size + self._needed)) if held_size else NOTHING

    @property
    def has_more(self) -> bool:
        """Whether `next_messages` is to be asked again, though it may have given nothing."""
        is_cut = self.phase is Phase.TRAFFIC and not self._needed
        return is_cut and (len(self._held) > 0 or self._delayed is not None)

    def take_cost(self) -> int:
        """What commands and seals have cost since it was asked last, in nanoseconds; messages are their taker's."""
        cost_ns, self._cost_ns = self._cost_ns, 0
        return cost_ns

    # ── out ──────────────────────────────────────────────────────────────────────────────────────────────────────────

    def begin(self) -> None:
        """Greet: a server that may yet choose its mechanism as far as the version."""
        said = greeting.encode_greeting(self._preferred.name, self._preferred.is_server)
        self._outgoing.append(said[: greeting.VERSION_SIZE] if self._is_server else said)

    def take_outgoing(self) -> list[Octets]:
        """What is to be written to the peer, in order."""
        outgoing, self._outgoing = self._outgoing, []
        return outgoing

    def send(self, messages: Sequence[Message]) -> None:
        """Say messages; in TRAFFIC only."""
        for message in messages:
            if self.mechanism.seals:
                for index, part in enumerate(message):
                    flags = frames.MORE if index < len(message) - 1 else 0
                    self._outgoing += frames.encode_frame(0, self.mechanism.seal(flags, part))
            else:
                self._outgoing += frames.encode_message(message)

    def send_single(self, bodies: Sequence[Octets]) -> None:
        """Say messages of one part each; in TRAFFIC only."""
        if self.mechanism.seals:
            self.send([(body,) for body in bodies])
        else:
            self._outgoing.append(frames.encode_single(bodies))

    def send_whole(self, pieces: Sequence[Octets]) -> None:
        """Say a message of one part that is given in pieces; where there are several they are copied for a seal alone;
        in TRAFFIC only.
        """
        if len(pieces) > 1 and not self.mechanism.seals:
            self._outgoing += frames.encode_whole(pieces)
        else:
            self.send_single((pieces[0] if len(pieces) == 1 else b"".join(pieces),))

    def ping(self) -> None:
        """Ask for a sign of life; in TRAFFIC with a peer of 3.1 only."""
        self._command(frames.command_body(b"PING", bytes(2)))

    def _command(self, body: bytes) -> None:
        if self.phase is Phase.TRAFFIC and self.mechanism.seals:
            self._outgoing += frames.encode_frame(0, self.mechanism.seal(frames.COMMAND, body))
        else:
            self._outgoing.append(frames.encode_command(body))

    # ── judged ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def admit(self) -> None:
        """What was shown is believed."""
        if self.phase is Phase.ASKING:
            self._become(Phase.HANDSHAKE)
            self._answer(self.mechanism.admit())

    def refuse(self, code: str, reason: str) -> None:
        """What was shown is not believed."""
        self.fail(PeerFault(code, reason))

    # ── in ───────────────────────────────────────────────────────────────────────────────────────────────────────────

    def receive(self, data: Octets) -> None:
        """Octets came; `next_messages` says what they make."""
        if self.phase is Phase.CLOSED:
            return
        if not self._held:
            self._held = data
        else:
            if not isinstance(self._held, bytearray):
                self._held = bytearray(self._held)
            self._held += data

    def next_messages(self, count_max: int = MESSAGES_AT_ONCE_MAX) -> list[Message]:
        """Some of the messages that are whole, in order, `count_max` at most; none, and not `has_more`, when no more
        is.
        """
        messages: list[Message] = []
        if len(self._held) < self._needed or self.phase in (Phase.ASKING, Phase.CLOSED):
            self._check_held()
            return messages
        self._needed = 0
        view = memoryview(self._held)
        start = 0
        try:
            while not self._needed and self.phase in _OPENING:
                start = _OPENING[self.phase](self, view, start)
            if self.phase is Phase.TRAFFIC and not self._needed:
                start = self._cut(view, start, messages, count_max)
        except PeerFault as fault:
            self.fail(fault)
            return messages
        self._keep(view, start)
        self._check_held()
        return messages

    def _keep(self, view: memoryview, start: int) -> None:
        # What is whole is cut at the next turn: it stays where it is. What is not may be few bytes of a large read.
        self._held = b"" if start == len(view) else bytearray(view[start:]) if self._needed else view[start:]

    def _check_held(self) -> None:
        if self.phase is Phase.ASKING and len(self._held) > self._bounds.handshake_size_max:
            self.fail(PeerFault("too-large", "wait for the answer before sending more"))

    def fail(self, fault: PeerFault) -> None:
        """End the connection, for this reason; in a handshake the peer is told."""
        if self.phase is Phase.CLOSED:
            return
        if self.phase in (Phase.HANDSHAKE, Phase.ASKING) and self._is_server and fault.code != "peer-error":
            self._command(frames.error_body(fault.message))
        self.fault = fault.bare()
        self._become(Phase.CLOSED)
        self._held = b""
        self._parts, self._part_size = [], 0

    def _become(self, phase: Phase) -> None:
        self.phase = phase

    # ── greeting and handshake ───────────────────────────────────────────────────────────────────────────────────────

    def _greet(self, view: memoryview, start: int) -> int:
        greeting.check_start(view[start:])
        if len(view) - start < greeting.SIZE:
            self._needed = len(view) - start + 1
            return start
        said = greeting.decode_greeting(view[start : start + greeting.SIZE])
        self.minor = said.minor if said.major == 3 else 1
        self._heard_size += greeting.SIZE
        mechanism = self._mechanisms.get(said.mechanism)
        if self._is_server:
            self.mechanism = mechanism or self._preferred
            rest = greeting.encode_greeting(self.mechanism.name, self.mechanism.is_server)
            self._outgoing.append(rest[greeting.VERSION_SIZE :])
        if mechanism is None or mechanism is not self.mechanism:
            names = ", ".join(name.decode() for name in self._mechanisms)
            meant = said.mechanism[:20].decode("ascii", "backslashreplace")
            raise PeerFault("bad-mechanism", f"{meant!r} is not supported: {names}")
        self._become(Phase.HANDSHAKE)
        self._answer(mechanism.begin())
        return start + greeting.SIZE

    def _shake(self, view: memoryview, start: int) -> int:
        found = self._frame_at(view, start)
        if found is None:
            return start
        flags, body, stop = found
        if not flags & frames.COMMAND:
            raise PeerFault("unexpected", "a handshake may have only commands")
        self._heard_size += stop - start
        self._cost_ns += self.mechanism.step_ns
        name, data = frames.split_command(view[body:stop])
        if name == b"ERROR":
            raise PeerFault("peer-error", f"the peer refuses: {frames.reason_of(data)}")
        self._answer(self.mechanism.take(name, data))
        return stop

    def _answer(self, bodies: Sequence[bytes]) -> None:
        for body in bodies:
            self._command(body)
        if self.mechanism.is_done:
            self._become(Phase.TRAFFIC)
        elif self.mechanism.asked is not None:
            self._become(Phase.ASKING)

    # ── frames ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _cut(self, view: memoryview, start: int, messages: list[Message], most: int) -> int:
        """Take whole frames from `start` on; where what is not taken begins. Raises `PeerFault`."""
        if self._delayed is not None:
            command, self._delayed = self._delayed, None
            self._obey(command)
        end, size_max, seals = len(view), self.message_size_max, self.mechanism.seals
        count_max = min(most, GREETINGS_AT_ONCE_MAX if self.is_greeting else self._bounds.messages_at_once_max)
        cost_ns_max = self._cost_ns + QUANTUM_NS
        while len(messages) < count_max and self._cost_ns < cost_ns_max:
            # Most frames are short, whole, and a message of their own.
            if start + 2 <= end and not view[start] and not self._parts and not seals:
                stop = start + 2 + view[start + 1]
                if stop <= end and stop - start - 2 <= size_max:
                    messages.append((view[start + 2 : stop],))
                    start = stop
                    continue
            found = self._frame_at(view, start)
            if found is None:
                return start
            flags, body, stop = found
            start = stop
            part = view[body:stop]
            if seals:
                flags, part = self._unsealed(part)
            if flags & frames.COMMAND:
                if messages:
                    # What was said before it is answered before it.
                    self._delayed = part
                    return start
                self._obey(part)
                continue
            self._parts.append(part)
            self._part_size += len(part)
            if not flags & frames.MORE:
                messages.append(self._parts)
                self._parts, self._part_size = [], 0
        return start

    def _unsealed(self, sealed: memoryview) -> tuple[int, memoryview]:
        """What is in a sealed frame, whose own flags say nothing. Raises `PeerFault`."""
        self._cost_ns += SEALED_NS
        flags, part = self.mechanism.unseal(sealed)
        if flags & frames.COMMAND:
            self._check_command_size(len(part))
        return flags, part

    def _frame_at(self, view: memoryview, start: int) -> tuple[int, int, int] | None:
        """Flags, and where the body begins and ends; None if it is not whole. Raises `PeerFault` for a bad size."""
        there = len(view) - start
        if not there:
            self._needed = 1
            return None
        flags = view[start]
        if flags & ~(frames.MORE | frames.LONG | frames.COMMAND):
            raise PeerFault("bad-frame", f"the flags {flags:02X} of a frame have reserved bits")
        if flags & frames.COMMAND and flags & frames.MORE:
            raise PeerFault("bad-frame", "a command must be one frame")
        if there < 2:
            self._needed = 2
            return None
        if flags & frames.LONG:
            if there < 9:
                self._needed = 9
                return None
            body, size = start + 9, int.from_bytes(view[start + 1 : start + 9], "big")
        else:
            body, size = start + 2, view[start + 1]
        self._check_size(flags, size, body - start)
        if len(view) < body + size:
            self._needed = body + size - start
            return None
        return flags, body, body + size

    def _check_size(self, flags: int, size: int, head_size: int) -> None:
        if self.phase is not Phase.TRAFFIC:
            if self._heard_size + head_size + size > self._bounds.handshake_size_max:
                raise PeerFault("too-large", f"a handshake may have at most {self._bounds.handshake_size_max} bytes")
        elif flags & frames.COMMAND and not self.mechanism.seals:
            self._check_command_size(size)
        elif self._part_size + size > self.message_size_max + self._sealed_size:
            said = f"all frames of a message may have at most {self.message_size_max} bytes"
            raise PeerFault("too-large", said + self.message_size_hint)
        elif len(self._parts) >= self._bounds.parts_max:
            raise PeerFault("too-large", f"a message may have at most {self._bounds.parts_max} frames")

    def _check_command_size(self, size: int) -> None:
        if size > self._bounds.command_size_max:
            raise PeerFault("too-large", f"a command may have at most {self._bounds.command_size_max} bytes")

    @property
    def _sealed_size(self) -> int:
        return SEAL_SIZE if self.mechanism.seals else 0

    def _obey(self, body: Octets) -> None:
        self._cost_ns += COMMAND_NS
        self._heard_size = self._heard_size + max(len(body), _GREETED_SIZE_MIN) if self.is_greeting else 0
        if self._heard_size > self._bounds.handshake_size_max:
            raise PeerFault("too-large", "attach before sending so many commands")
        name, data = frames.split_command(body)
        if name == b"PING":
            if not 2 <= len(data) <= 2 + frames.PING_CONTEXT_SIZE_MAX:
                raise PeerFault("bad-frame", "a PING must have a time to live, and at most 16 bytes after it")
            self.ping_ttl = int.from_bytes(data[:2], "big")
            self._command(frames.command_body(b"PONG", data[2:]))
        elif name == b"ERROR":
            raise PeerFault("peer-error", f"the peer refuses: {frames.reason_of(data)}")


SEAL_SIZE: Final = 33
"""What a sealed frame has beside its body: a name, a nonce, flags and the seal."""


_OPENING: Final[dict[Phase, Callable[[Connection, memoryview, int], int]]] = {
    Phase.GREETING: Connection._greet,
    Phase.HANDSHAKE: Connection._shake,
}
"""What is read before there is traffic: each takes one thing, and says where the next begins."""
