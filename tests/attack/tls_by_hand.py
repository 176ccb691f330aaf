"""A TLS 1.3 client by hand, from RFC 8446 alone: it shakes hands with anybody, and changes its keys at will.

Source: RFC 8446, sections 4 (handshake), 5 (records) and 7 (keys); the cipher is TLS_CHACHA20_POLY1305_SHA256.
"""

from __future__ import annotations

import hmac
import os
import socket
import struct
from hashlib import sha256

from nacl.bindings import (
    crypto_aead_chacha20poly1305_ietf_decrypt,
    crypto_aead_chacha20poly1305_ietf_encrypt,
    crypto_scalarmult,
    crypto_scalarmult_base,
)

HANDSHAKE, SEALED = 22, 23
FINISHED, KEY_UPDATE = 20, 24
_CIPHER, _X25519 = b"\x13\x03", b"\x00\x1d"
_SIGNATURES = bytes.fromhex("040305030603080408050806080708080809080a080b040105010601")
_ZEROS = bytes(32)


class Half:
    """What one side seals: the keys that follow from its secret, and how many records it has sealed with them."""

    def __init__(self, secret: bytes) -> None:
        """Begin with this traffic secret."""
        self._become(secret)

    def _become(self, secret: bytes) -> None:
        self._secret = secret
        self._key, self._iv = expanded(secret, b"key", 32), int.from_bytes(expanded(secret, b"iv", 12))
        self._count = 0

    def _nonce(self) -> bytes:
        nonce = self._iv ^ self._count
        self._count += 1
        return nonce.to_bytes(12)

    def seal(self, kind: int, content: bytes) -> bytes:
        """One record with this content."""
        head = b"\x17\x03\x03" + (len(content) + 17).to_bytes(2)
        inner = content + bytes([kind])
        return head + crypto_aead_chacha20poly1305_ietf_encrypt(inner, head, self._nonce(), self._key)

    def open(self, head: bytes, sealed: bytes) -> tuple[int, bytes]:
        """The kind and the content of one record."""
        inner = crypto_aead_chacha20poly1305_ietf_decrypt(sealed, head, self._nonce(), self._key).rstrip(b"\0")
        return inner[-1], inner[:-1]

    def update(self, is_asking: bool = False) -> bytes:
        """The record after which the next keys are used; it may ask the other side to do as much."""
        record = self.seal(HANDSHAKE, message(KEY_UPDATE, bytes([is_asking])))
        self._become(expanded(self._secret, b"traffic upd", 32))
        return record


def expanded(secret: bytes, label: bytes, size: int, context: bytes = b"") -> bytes:
    """HKDF-Expand-Label, for at most 32 bytes."""
    label = b"tls13 " + label
    info = size.to_bytes(2) + bytes([len(label)]) + label + bytes([len(context)]) + context
    return hmac.digest(secret, info + b"\1", "sha256")[:size]


def followed(secret: bytes, material: bytes) -> bytes:
    """The secret that follows from another, and from what is mixed in."""
    return hmac.digest(expanded(secret, b"derived", 32, sha256().digest()), material, "sha256")


def message(kind: int, body: bytes) -> bytes:
    """A message of the handshake."""
    return bytes([kind]) + len(body).to_bytes(3) + body


def record_of(content: bytes) -> bytes:
    """A record of the handshake that is not sealed."""
    return b"\x16\x03\x01" + len(content).to_bytes(2) + content


def client_hello(public: bytes, padding_size: int = 0) -> bytes:
    """The first message, with this key of X25519 and so much padding."""

    def extension(kind: int, body: bytes) -> bytes:
        return struct.pack(">HH", kind, len(body)) + body

    def counted(body: bytes) -> bytes:
        return len(body).to_bytes(2) + body

    extensions = (
        extension(43, b"\x02\x03\x04")
        + extension(10, counted(_X25519))
        + extension(13, counted(_SIGNATURES))
        + extension(51, counted(_X25519 + counted(public)))
        + (extension(21, bytes(padding_size)) if padding_size else b"")
    )
    return message(1, b"\x03\x03" + os.urandom(32) + b"\0" + counted(_CIPHER) + b"\1\0" + counted(extensions))


def taken(connection: socket.socket, size: int) -> bytes:
    """Exactly so many bytes of what is sent to us."""
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise ConnectionResetError("the node hung up")
        data += more
    return data


def next_record(connection: socket.socket) -> tuple[bytes, bytes]:
    """The head and the content of the next record."""
    head = taken(connection, 5)
    return head, taken(connection, int.from_bytes(head[3:]))


def shake_hands(connection: socket.socket) -> Half:
    """Shake hands on a connection; what seals what we say from then on. Raises `OSError` where the node hangs up."""
    secret = os.urandom(32)
    heard = client_hello(crypto_scalarmult_base(secret))
    connection.sendall(record_of(heard))
    _, hello = next_record(connection)
    heard += hello
    handshake = followed(hmac.digest(_ZEROS, _ZEROS, "sha256"), crypto_scalarmult(secret, _share_in(hello)))
    ours, theirs = (expanded(handshake, label + b" hs traffic", 32, sha256(heard).digest()) for label in (b"c", b"s"))
    flight, opening = b"", Half(theirs)
    while not _has_finished(flight):
        head, sealed = next_record(connection)
        if head[0] == SEALED:
            flight += opening.open(head, sealed)[1]
    told = sha256(heard + flight).digest()
    proof = hmac.digest(expanded(ours, b"finished", 32), told, "sha256")
    connection.sendall(Half(ours).seal(HANDSHAKE, message(FINISHED, proof)))
    return Half(expanded(followed(handshake, _ZEROS), b"c ap traffic", 32, told))


def _share_in(hello: bytes) -> bytes:
    """The server's key, from its ServerHello."""
    at = 4 + 2 + 32
    at += 1 + hello[at] + 2 + 1 + 2
    while True:
        kind, size = struct.unpack_from(">HH", hello, at)
        if kind == 51:
            return hello[at + 8 : at + 4 + size]
        at += 4 + size


def _has_finished(flight: bytes) -> bool:
    at = 0
    while at + 4 <= len(flight):
        end = at + 4 + int.from_bytes(flight[at + 1 : at + 4])
        if flight[at] == FINISHED and end <= len(flight):
            return True
        at = end
    return False
