"""What proves who is behind each open connection, asked again when it may have changed.

A token proves as long as its line is in the file and it has not expired; a certificate as long as no list of revoked
ones names it, and it has not expired. Who has shown both needs both: the certificate has let it in, though the token
names the principal. Whoever is proved by neither (by a Unix socket, or by nothing) stays.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from veredus.kernel.errors import Refused

from .certificates import Certificate, revoked_in
from .security import TokenFile, TokenLine


class Lost(NamedTuple):
    """A link whose principal is proved no more, the code that it is ended with, and a sentence."""

    link: int
    code: str
    message: str


class Proofs:
    """Owns which link was proved by what; used on the loop alone."""

    def __init__(self, tokens: TokenFile | None, revoked: str) -> None:
        """`revoked` is the file of lists of revoked certificates, "" for none. Raises `Refused("bad-certificate")`."""
        self._tokens = tokens
        self._lines: dict[int, TokenLine | None] = {}
        self._certificates: dict[int, Certificate] = {}
        self._revoked: set[tuple[bytes, int]] = set()
        self._fault = ""
        self.read_revoked(revoked)

    def read_revoked(self, path: str) -> None:
        """Read the lists of revoked certificates again. Raises `Refused("bad-certificate")`; those before hold then."""
        self._revoked = revoked_in(Path(path)) if path else set()

    def use_tokens(self, tokens: TokenFile | None) -> None:
        """Tokens are in another file now, or nowhere."""
        self._tokens = tokens

    def take_token(self, link: int, line: TokenLine | None) -> None:
        """The link was proved by this token, which is None where it has gone meanwhile."""
        self._lines[link] = line

    def take_certificate(self, link: int, certificate: Certificate) -> None:
        """The link was opened with this certificate."""
        self._certificates[link] = certificate

    def forget(self, link: int) -> None:
        """A link is gone, and needs no proof."""
        self._lines.pop(link, None)
        self._certificates.pop(link, None)

    def forget_all_but(self, links: Mapping[int, object]) -> None:
        """Links that are gone need no proof."""
        for known in (self._lines, self._certificates):
            for link in [link for link in known if link not in links]:
                del known[link]

    def certified(self) -> list[int]:
        """The links that were opened with a certificate."""
        return list(self._certificates)

    def lost(self) -> list[Lost]:
        """The links whose proof holds no more; each is told once."""
        now_s = time.time()
        found = {lost.link: lost for lost in (*self._lost_certificates(now_s), *self._lost_tokens(self._lines, now_s))}
        for link in found:
            self.forget(link)
        return list(found.values())

    def fault(self) -> str:
        """Why the file of tokens cannot be read, once for each fault; "" while it can."""
        if self._tokens is None:
            return ""
        try:
            self._tokens.refresh()
            fault = ""
        except Refused as refused:
            fault = refused.message
        before, self._fault = self._fault, fault
        return fault if fault != before else ""

    def _lost_tokens(self, links: Iterable[int], now_s: float) -> Iterator[Lost]:
        for link in list(links):
            line = self._lines[link]
            if line is not None and line.is_expired(now_s):
                yield Lost(link, "unauthenticated", f"this token has expired ({line.expires}): request a new one")
            elif line is None or self._tokens is None or not self._tokens.has(line):
                yield Lost(link, "revoked", "this token is no longer valid: request a new one")

    def _lost_certificates(self, now_s: float) -> Iterator[Lost]:
        for link, certificate in self._certificates.items():
            if now_s >= certificate.expires_s:
                yield Lost(link, "unauthenticated", "this certificate has expired: request a new one")
            elif (certificate.issuer, certificate.serial) in self._revoked:
                yield Lost(link, "revoked", "this certificate was revoked: request a new one")
