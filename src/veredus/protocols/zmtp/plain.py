"""PLAIN: a name and a password in the clear, which somebody judges.

    client: HELLO name password ──► server: WELCOME, or ERROR
    client: INITIATE metadata ────► server: READY metadata, or ERROR

The password is a token; the name is not looked at. Source: RFC 24 of ZeroMQ.
"""

from __future__ import annotations

from collections.abc import Sequence

from veredus.kernel.errors import PeerFault
from veredus.kernel.octets import OctetsReader

from . import frames
from .mechanisms import Credential, Local, Open, Remote


class PlainServer(Open):
    """Owns the server's end of a PLAIN handshake."""

    name = b"PLAIN"
    is_server = True

    def __init__(self, local: Local) -> None:
        """The end of whoever is `local`."""
        self.is_done = False
        self.remote = Remote()
        self.asked: Credential | None = None
        self._local = local
        self._expected = b"HELLO"

    def begin(self) -> Sequence[bytes]:
        """The client speaks first."""
        return ()

    def take(self, name: bytes, data: bytes) -> Sequence[bytes]:
        """HELLO, whose password is judged, or INITIATE."""
        if name != self._expected:
            raise PeerFault("unexpected", f"the next command of the PLAIN handshake must be {self._expected.decode()}")
        if name == b"HELLO":
            reader = OctetsReader(data)
            reader.take(reader.number(1))
            password = bytes(reader.take(reader.number(1)))
            if reader.offset != len(data):
                raise PeerFault("bad-frame", "a HELLO of PLAIN must have a name and a password")
            self.asked = Credential(password.decode("latin-1"))
            return ()
        self.remote = self._local.check(data)
        self.is_done = True
        return (frames.command_body(b"READY", self._local.encode()),)

    def admit(self) -> Sequence[bytes]:
        """The password is right: WELCOME."""
        self.asked = None
        self._expected = b"INITIATE"
        return (frames.command_body(b"WELCOME"),)


class PlainClient(Open):
    """Owns the client's end of a PLAIN handshake."""

    name = b"PLAIN"
    is_server = False

    def __init__(self, local: Local, username: str, password: str) -> None:
        """The end of whoever is `local`. Name and password have at most 255 octets."""
        self.is_done = False
        self.remote = Remote()
        self._local = local
        self._hello = b"".join(bytes((len(text),)) + text for text in (username.encode(), password.encode()))
        self._expected = b"WELCOME"

    def begin(self) -> Sequence[bytes]:
        """HELLO."""
        return (frames.command_body(b"HELLO", self._hello),)

    def take(self, name: bytes, data: bytes) -> Sequence[bytes]:
        """WELCOME, then READY."""
        if name != self._expected:
            raise PeerFault("unexpected", f"the next command of the PLAIN handshake must be {self._expected.decode()}")
        if name == b"WELCOME":
            self._expected = b"READY"
            return (frames.command_body(b"INITIATE", self._local.encode()),)
        self.remote = self._local.check(data)
        self.is_done = True
        return ()
