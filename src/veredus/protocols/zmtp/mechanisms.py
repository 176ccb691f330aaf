"""What security mechanisms have in common, who a peer says it is, and NULL, which proves nothing.

    client: READY ──► server: READY, or ERROR

A mechanism is a small machine of commands: `begin` and `take` give the bodies of commands to be sent. Where it has a
credential to be judged, `asked` holds it, and nothing is taken until `admit` or the connection's end.
Source: RFC 37 of ZeroMQ, "The NULL Security Mechanism" and "Connection Metadata".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from veredus.kernel.errors import PeerFault
from veredus.kernel.octets import Octets

from . import frames

IDENTITY_SIZE_MAX = 255
PEERS_OF: dict[bytes, tuple[bytes, ...]] = {
    b"DEALER": (b"REP", b"DEALER", b"ROUTER"),
    b"ROUTER": (b"REQ", b"DEALER", b"ROUTER"),
}
"""The socket types that this engine plays, and who may talk to each."""


class Local(NamedTuple):
    """What we say of ourselves: the socket that we play, and its identity where it has one."""

    socket_type: bytes
    identity: bytes = b""

    def encode(self) -> bytes:
        """As metadata."""
        return frames.encode_properties(((b"Socket-Type", self.socket_type), (b"Identity", self.identity)))

    def check(self, data: Octets) -> Remote:
        """Who the other says it is. Raises `PeerFault` unless it may talk to us."""
        properties = frames.decode_properties(data)
        socket_type, identity = properties.get(b"socket-type", b""), properties.get(b"identity", b"")
        allowed = PEERS_OF[self.socket_type]
        if socket_type not in allowed:
            said = socket_type.decode("ascii", "replace")[:16]
            who = ", ".join(name.decode() for name in allowed)
            raise PeerFault("bad-socket-type", f"a {self.socket_type.decode()} talks to {who}, not to {said!r}")
        if len(identity) > IDENTITY_SIZE_MAX or identity.startswith(b"\0"):
            raise PeerFault("bad-frame", "an identity may have at most 255 bytes, and the first must not be zero")
        return Remote(socket_type, identity)


class Remote(NamedTuple):
    """What the other said of itself."""

    socket_type: bytes = b""
    identity: bytes = b""


class Credential(NamedTuple):
    """What a peer shows for who it is: a password, or the long-term key that it has proved to hold."""

    password: str = ""
    key: bytes = b""


class Mechanism(Protocol):
    """One connection's way through a security handshake."""

    name: bytes
    is_server: bool
    """Whether the greeting says that this end is the server: where the mechanism has no roles, none does."""
    is_done: bool
    remote: Remote
    asked: Credential | None
    seals: bool
    """Whether each frame of the traffic is sealed, and goes through `seal` and `unseal`."""
    step_ns: int
    """What it costs to take a command of the handshake, in nanoseconds; measured, roughly."""

    def begin(self) -> Sequence[bytes]:
        """Commands to be sent once both have greeted."""
        ...

    def take(self, name: bytes, data: bytes) -> Sequence[bytes]:
        """Take a command; the commands that answer it. Raises `PeerFault`."""
        ...

    def admit(self) -> Sequence[bytes]:
        """What was asked is believed; the commands that follow from it."""
        ...

    def seal(self, flags: int, body: Octets) -> bytes:
        """A frame's flags and body as they travel, where the mechanism seals."""
        ...

    def unseal(self, body: Octets) -> tuple[int, memoryview]:
        """The flags and the body of a sealed frame. Raises `PeerFault`."""
        ...


class Open:
    """What a mechanism is that neither asks nor seals."""

    asked: Credential | None = None
    seals = False
    step_ns = 5_000

    def admit(self) -> Sequence[bytes]:
        """Nothing was asked."""
        raise AssertionError("nothing was asked")

    def seal(self, flags: int, body: Octets) -> bytes:
        """Frames travel as they are."""
        raise AssertionError("nothing is sealed here")

    def unseal(self, body: Octets) -> tuple[int, memoryview]:
        """Frames travel as they are."""
        raise AssertionError("nothing is sealed here")


class Null(Open):
    """Owns one end of a NULL handshake: each says READY, the server when it has heard it."""

    name = b"NULL"
    is_server = False

    def __init__(self, local: Local, is_server: bool) -> None:
        """The end of whoever is `local`; the server is who was connected to."""
        self._is_answering = is_server
        self.is_done = False
        self.remote = Remote()
        self._local = local

    def begin(self) -> Sequence[bytes]:
        """The client's READY."""
        return () if self._is_answering else (self._ready(),)

    def take(self, name: bytes, data: bytes) -> Sequence[bytes]:
        """READY, and nothing else."""
        if name != b"READY":
            raise PeerFault("unexpected", "the command of the NULL handshake must be READY")
        self.remote = self._local.check(data)
        self.is_done = True
        return (self._ready(),) if self._is_answering else ()

    def _ready(self) -> bytes:
        return frames.command_body(b"READY", self._local.encode())
