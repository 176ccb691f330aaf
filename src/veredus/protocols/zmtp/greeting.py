"""The greeting: 64 octets that say which version and which security mechanism a peer speaks.

    FF, 8 of padding, 7F │ major, minor │ mechanism, 20 │ as-server │ filler, 31

Source: RFC 37 of ZeroMQ, "Formal Grammar" and "Version Negotiation".
"""

from __future__ import annotations

from typing import NamedTuple

from veredus.kernel.errors import PeerFault
from veredus.kernel.octets import Octets

SIZE = 64
VERSION_SIZE = 12
"""The signature and the version: what may be sent before the peer's mechanism is known."""
_SIGNATURE_SIZE = 10
_MECHANISM_SIZE = 20
_FILLER = bytes(31)


class Greeting(NamedTuple):
    """What a peer says first. `mechanism` has no padding."""

    major: int
    minor: int
    mechanism: bytes
    is_server: bool


def encode_greeting(mechanism: bytes, is_server: bool) -> bytes:
    """The whole greeting of a peer of version 3.1."""
    return b"".join(
        (b"\xff", bytes(8), b"\x7f\x03\x01", mechanism.ljust(_MECHANISM_SIZE, b"\0"), bytes((is_server,)), _FILLER)
    )


def check_start(octets: Octets) -> None:
    """Check what has come of a greeting, however little. Raises `PeerFault` for what is no ZMTP of version 3."""
    if len(octets) > 0 and octets[0] != 0xFF:
        raise PeerFault("bad-frame", f"a ZMTP greeting must begin with FF, not with {octets[0]:02X}")
    if len(octets) >= _SIGNATURE_SIZE and octets[_SIGNATURE_SIZE - 1] & 1 == 0:
        raise PeerFault("version-unknown", "ZMTP 1.0 is not supported, only 3.0 and later")
    if len(octets) > _SIGNATURE_SIZE and octets[_SIGNATURE_SIZE] < 3:
        raise PeerFault("version-unknown", "ZMTP 2.0 is not supported, only 3.0 and later")


def decode_greeting(octets: Octets) -> Greeting:
    """What 64 octets say. The padding has no meaning. Raises `PeerFault`."""
    check_start(octets)
    data = bytes(octets)
    mechanism, _, rest = data[VERSION_SIZE : VERSION_SIZE + _MECHANISM_SIZE].partition(b"\0")
    if rest.strip(b"\0") or not mechanism:
        raise PeerFault("bad-frame", "a mechanism must be a name, padded with zeros")
    return Greeting(data[10], data[11], mechanism, data[VERSION_SIZE + _MECHANISM_SIZE] == 1)
