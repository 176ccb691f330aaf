"""CURVE: both prove the keys that they hold, and every frame is sealed.

    client: HELLO C', a signature ──► server: WELCOME: S' and a cookie, for C' alone
    client: INITIATE: C, a vouch ───► server: READY, or ERROR           then MESSAGE, each with a nonce that grows

C and S are keys for long, C' and S' those of one connection, C is what the principal proves. Random octets come in.
Source: RFC 26 of ZeroMQ (CurveZMQ), RFC 25; the boxes are NaCl's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from nacl.bindings import (
    crypto_box_beforenm,
    crypto_box_easy,
    crypto_box_easy_afternm,
    crypto_box_open_easy,
    crypto_box_open_easy_afternm,
    crypto_scalarmult_base,
    crypto_secretbox,
)
from nacl.exceptions import CryptoError

from veredus.kernel.errors import PeerFault
from veredus.kernel.octets import Octets

from . import frames
from .mechanisms import Credential, Local, Remote

SERVER_RANDOM_SIZE: Final = 96
"""Octets of chance that a server needs for one connection: its key S', two nonces, and the cookie's key."""
CLIENT_RANDOM_SIZE: Final = 48
"""Octets of chance that a client needs for one connection: its key C', and a nonce."""
_HELLO_SIZE = 194
_WELCOME_SIZE = 160
_COOKIE_SIZE = 96
_INITIATE_SIZE_MIN = 248
_BOX_SIZE = 16
_NONCE_MAX = (1 << 64) - 1


class KeyPair:
    """A secret key and the public one that belongs to it, of 32 octets each."""

    __slots__ = ("public", "secret")

    def __init__(self, secret: bytes) -> None:
        """The pair of a secret key."""
        self.secret = secret
        self.public = crypto_scalarmult_base(secret)


_SEALED_COMMAND: Final = 2
"""What a MESSAGE says of a command in it. RFC 26 names no flag for that; libzmq takes the bit behind MORE, and hands
whatever has another one to the application.
"""


class Sealed:
    """Owns what both ends of a CURVE connection have in common: the session's key, and the nonces."""

    name = b"CURVE"
    seals = True
    step_ns = 150_000

    def __init__(self, local: Local, ours: bytes, theirs: bytes) -> None:
        """`ours` and `theirs` end the prefix of a MESSAGE's nonce: S from the server, C from the client."""
        self.is_done = False
        self.remote = Remote()
        self.asked: Credential | None = None
        self._local = local
        self._session = b""
        self._sent = 0
        self._heard = 0
        self._our_prefix, self._their_prefix = b"CurveZMQMESSAGE" + ours, b"CurveZMQMESSAGE" + theirs

    def seal(self, flags: int, body: Octets) -> bytes:
        """A MESSAGE with these flags and this body."""
        nonce = self._next_nonce()
        text = bytes((_SEALED_COMMAND if flags == frames.COMMAND else flags,)) + bytes(body)
        return b"\x07MESSAGE" + nonce + crypto_box_easy_afternm(text, self._our_prefix + nonce, self._session)

    def unseal(self, body: Octets) -> tuple[int, memoryview]:
        """The flags and the body of a MESSAGE. Raises `PeerFault`."""
        data = bytes(body)
        if len(data) < 33 or not data.startswith(b"\x07MESSAGE"):
            raise PeerFault("bad-frame", "after the handshake of CURVE, only MESSAGE is allowed")
        nonce = self._check_nonce(data[8:16])
        text = self._opened(data[16:], self._their_prefix + nonce)
        flags = text[0]
        if flags not in (0, frames.MORE, _SEALED_COMMAND):
            raise PeerFault("bad-frame", f"the flags {flags:02X} of a MESSAGE have reserved bits")
        return frames.COMMAND if flags == _SEALED_COMMAND else flags, memoryview(text)[1:]

    def _next_nonce(self) -> bytes:
        self._sent += 1
        return self._sent.to_bytes(8, "big")

    def _check_nonce(self, nonce: bytes) -> bytes:
        number = int.from_bytes(nonce, "big")
        if number <= self._heard:
            raise PeerFault("bad-frame", "nonces must grow")
        self._heard = number
        return nonce

    def _opened(self, box: bytes, nonce: bytes) -> bytes:
        try:
            return bytes(crypto_box_open_easy_afternm(box, nonce, self._session))
        except (CryptoError, ValueError):
            raise _forged() from None


class CurveServer(Sealed):
    """Owns the server's end of one CURVE connection."""

    is_server = True

    def __init__(self, local: Local, keys: KeyPair, random: bytes) -> None:
        """The end of whoever is `local` and has the long-term `keys`; `random` has `SERVER_RANDOM_SIZE` octets."""
        super().__init__(local, b"S", b"C")
        self._keys = keys
        self._transient_secret = random[:32]
        self._welcome_nonce, self._cookie_nonce, self._cookie_key = random[32:48], random[48:64], random[64:96]
        self._client = b""
        self._cookie = b""
        self._expected = b"HELLO"

    def begin(self) -> Sequence[bytes]:
        """The client speaks first."""
        return ()

    def take(self, name: bytes, data: bytes) -> Sequence[bytes]:
        """HELLO, or INITIATE, whose key is judged. Raises `PeerFault`."""
        if name != self._expected:
            raise PeerFault("unexpected", f"the next command of the CURVE handshake must be {self._expected.decode()}")
        if name == b"HELLO":
            return (self._welcome(data),)
        self._take_initiate(data)
        return ()

    def admit(self) -> Sequence[bytes]:
        """The key is known: READY."""
        self.asked = None
        self.is_done = True
        nonce = self._next_nonce()
        box = crypto_box_easy_afternm(self._local.encode(), b"CurveZMQREADY---" + nonce, self._session)
        return (frames.command_body(b"READY", nonce + box),)

    def _welcome(self, data: bytes) -> bytes:
        if len(data) != _HELLO_SIZE or data[:74] != b"\x01\x00" + bytes(72):
            raise PeerFault("bad-frame", "this is not a HELLO of CurveZMQ 1.0")
        self._client = data[74:106]
        nonce = self._check_nonce(data[106:114])
        signature = _open_box(data[114:], b"CurveZMQHELLO---" + nonce, self._client, self._keys.secret)
        if signature != bytes(64):
            raise _forged()
        self._session = _shared(self._client, self._transient_secret)
        box = crypto_secretbox(
            self._client + self._transient_secret, b"COOKIE--" + self._cookie_nonce, self._cookie_key
        )
        self._cookie = self._cookie_nonce + box
        text = KeyPair(self._transient_secret).public + self._cookie
        welcome = crypto_box_easy(text, b"WELCOME-" + self._welcome_nonce, self._client, self._keys.secret)
        self._expected = b"INITIATE"
        return frames.command_body(b"WELCOME", self._welcome_nonce + welcome)

    def _take_initiate(self, data: bytes) -> None:
        if len(data) < _INITIATE_SIZE_MIN or data[:_COOKIE_SIZE] != self._cookie:
            raise PeerFault("bad-frame", "this INITIATE does not belong to the WELCOME of this node")
        nonce = self._check_nonce(data[_COOKIE_SIZE : _COOKIE_SIZE + 8])
        text = self._opened(data[_COOKIE_SIZE + 8 :], b"CurveZMQINITIATE" + nonce)
        if len(text) < 128:
            raise _forged()
        client, vouch_nonce, vouch = text[:32], text[32:48], text[48:128]
        vouched = _open_box(vouch, b"VOUCH---" + vouch_nonce, client, self._transient_secret)
        if vouched != self._client + self._keys.public:
            raise _forged()
        self.remote = self._local.check(text[128:])
        self._expected = b""
        self.asked = Credential(key=client)


class CurveClient(Sealed):
    """Owns the client's end of one CURVE connection."""

    is_server = False

    def __init__(self, local: Local, keys: KeyPair, server: bytes, random: bytes) -> None:
        """The end of whoever is `local` and has `keys`, to a server with the public key `server`.

        `random` has `CLIENT_RANDOM_SIZE` octets.
        """
        super().__init__(local, b"C", b"S")
        self._keys = keys
        self._server = server
        self._transient = KeyPair(random[:32])
        self._vouch_nonce = random[32:48]
        self._expected = b"WELCOME"

    def begin(self) -> Sequence[bytes]:
        """HELLO."""
        nonce = self._next_nonce()
        box = crypto_box_easy(bytes(64), b"CurveZMQHELLO---" + nonce, self._server, self._transient.secret)
        return (frames.command_body(b"HELLO", b"\x01\x00" + bytes(72) + self._transient.public + nonce + box),)

    def take(self, name: bytes, data: bytes) -> Sequence[bytes]:
        """WELCOME, then READY. Raises `PeerFault`."""
        if name != self._expected:
            raise PeerFault("unexpected", f"the next command of the CURVE handshake must be {self._expected.decode()}")
        if name == b"WELCOME":
            return (self._initiate(data),)
        nonce = self._check_nonce(data[:8])
        self.remote = self._local.check(self._opened(data[8:], b"CurveZMQREADY---" + nonce))
        self.is_done = True
        return ()

    def admit(self) -> Sequence[bytes]:
        """A client judges nobody: it knows its server's key."""
        raise AssertionError("nothing was asked")

    def _initiate(self, data: bytes) -> bytes:
        if len(data) != _WELCOME_SIZE:
            raise PeerFault("bad-frame", "this is not a WELCOME of CurveZMQ 1.0")
        text = _open_box(data[16:], b"WELCOME-" + data[:16], self._server, self._transient.secret)
        server, cookie = text[:32], text[32:]
        self._session = _shared(server, self._transient.secret)
        vouched = self._transient.public + self._server
        vouch = self._vouch_nonce + crypto_box_easy(vouched, b"VOUCH---" + self._vouch_nonce, server, self._keys.secret)
        nonce = self._next_nonce()
        initiated = self._keys.public + vouch + self._local.encode()
        box = crypto_box_easy_afternm(initiated, b"CurveZMQINITIATE" + nonce, self._session)
        self._expected = b"READY"
        return frames.command_body(b"INITIATE", cookie + nonce + box)


def _shared(public: bytes, secret: bytes) -> bytes:
    try:
        return bytes(crypto_box_beforenm(public, secret))
    except (CryptoError, ValueError, RuntimeError):
        raise _forged() from None


def _open_box(box: bytes, nonce: bytes, public: bytes, secret: bytes) -> bytes:
    try:
        return bytes(crypto_box_open_easy(box, nonce, public, secret))
    except (CryptoError, ValueError, RuntimeError):
        raise _forged() from None


def _forged() -> PeerFault:
    return PeerFault("unauthenticated", "a box cannot be decrypted: the keys do not match, or it was changed")
