"""Client certificates: whom they name, by which of their names, and whether they were revoked.

The TLS library checks a certificate and the lists of revoked ones at the handshake. What is here asks again while a
connection is open: a list names a certificate by its issuer and its serial number.
Source: RFC 5280, sections 4.1, 4.2.1.6 and 5.1.
"""

from __future__ import annotations

import binascii
import re
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

from veredus.kernel.errors import Refused

from .regular_files import LIST_SIZE_MAX, read_regular
from .security import principal_fault

COMMON_NAME = "common-name"
_ALTERNATIVE = {"uri": "URI", "dns": "DNS", "email": "email"}
_LIST = re.compile(rb"-----BEGIN X509 CRL-----(.+?)-----END X509 CRL-----", re.DOTALL)
_INTEGER, _SEQUENCE, _FIRST_OPTION = 0x02, 0x30, 0xA0
_TIMES = (0x17, 0x18)


class Certificate(NamedTuple):
    """What a connection keeps of the certificate that it was opened with."""

    principal: str
    """Whom it names, "" for nobody."""
    fault: str
    """Why it names nobody, "" where it does."""
    issuer: bytes
    """As the certificate writes it."""
    serial: int
    expires_s: float
    """In seconds since 1970."""


class Shown(Protocol):
    """An end of a TLS connection, as far as its peer's certificate goes: `ssl.SSLObject` and `ssl.SSLSocket`."""

    def getpeercert(self, binary_form: bool = False, /) -> dict[str, object] | bytes | None:
        """The certificate in words, or as it was sent; None without one."""
        ...


def certificate_of(end: Shown | None, principal_from: str) -> Certificate | None:
    """The verified certificate of the peer, None where it showed none; `principal_from` as in `tls.principal_from`."""
    sent = None if end is None else end.getpeercert(True)
    if end is None or not isinstance(sent, bytes) or not sent:
        return None
    words = end.getpeercert()
    assert isinstance(words, dict)
    issuer, serial = _names_of_certificate(sent)
    principal, fault = _principal_of(words, principal_from)
    return Certificate(principal, fault, issuer, serial, ssl.cert_time_to_seconds(str(words["notAfter"])))


def revoked_in(path: Path) -> set[tuple[bytes, int]]:
    """Issuer and serial number of every certificate that the lists in a file name.

    Raises `Refused("bad-certificate")` when it is no file of such lists.
    """
    try:
        lists = _LIST.findall(read_regular(path, LIST_SIZE_MAX))
        found = {entry for text in lists for entry in _entries(binascii.a2b_base64(text))}
    except (OSError, ValueError, IndexError) as error:
        reason = getattr(error, "strerror", None) or "not in the form of RFC 5280"
        raise _no_lists(path, reason) from None
    if not lists:
        raise _no_lists(path, "the file has none")
    return found


def _no_lists(path: Path, reason: str) -> Refused:
    return Refused("bad-certificate", f"{path}: no PEM lists of revoked certificates ({reason})", file=str(path))


def _principal_of(words: dict[str, object], principal_from: str) -> tuple[str, str]:
    """The principal, or "" and why there is none. Two names of the wanted kind are none: which would it be?"""
    if principal_from == COMMON_NAME:
        named = [value for name, value in _pairs(words.get("subject")) if name == "commonName"]
    else:
        kind = _ALTERNATIVE[principal_from]
        named = [value for name, value in _flat(words.get("subjectAltName")) if name == kind]
    if len(named) != 1:
        return "", f"the certificate has {len(named)} names of the kind {principal_from!r}, and needs exactly one"
    fault = principal_fault(named[0])
    return ("", f"the certificate names no principal that may be: {fault}") if fault else (named[0], "")


def _pairs(subject: object) -> Iterator[tuple[str, str]]:
    for group in subject if isinstance(subject, tuple) else ():
        yield from _flat(group)


def _flat(names: object) -> Iterator[tuple[str, str]]:
    for pair in names if isinstance(names, tuple) else ():
        name, value, *_ = pair
        yield str(name), str(value)


# ── DER ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


class _Value(NamedTuple):
    tag: int
    content: bytes
    whole: bytes


def _values(data: bytes) -> list[_Value]:
    """The values that stand one behind the other in `data`. Raises `ValueError` or `IndexError`."""
    found = []
    place = 0
    while place < len(data):
        tag, size = data[place], data[place + 1]
        start = place + 2
        if size & 0x80:
            count = size & 0x7F
            size = int.from_bytes(data[start : start + count], "big")
            start += count
        end = start + size
        if end > len(data):
            raise ValueError("a value ends behind what holds it")
        found.append(_Value(tag, data[start:end], data[place:end]))
        place = end
    return found


def _signed(data: bytes) -> list[_Value]:
    """The parts of what is signed in a certificate or a list."""
    return _values(_values(_values(data)[0].content)[0].content)


def _names_of_certificate(data: bytes) -> tuple[bytes, int]:
    parts = _signed(data)
    if parts[0].tag == _FIRST_OPTION:
        parts = parts[1:]
    return parts[2].whole, int.from_bytes(parts[0].content, "big", signed=True)


def _entries(data: bytes) -> Iterator[tuple[bytes, int]]:
    parts = _signed(data)
    if parts[0].tag == _INTEGER:
        parts = parts[1:]
    issuer = parts[1].whole
    rest = [part for part in parts[2:] if part.tag not in _TIMES]
    if rest and rest[0].tag == _SEQUENCE:
        for entry in _values(rest[0].content):
            yield issuer, int.from_bytes(_values(entry.content)[0].content, "big", signed=True)
