"""What a running node takes up without a restart: tokens, rules, certificates, and lists of revoked ones.

    the file of tokens ── looked at several times a second ──┐
    time ── a token or a certificate expires ────────────────┼──► connections that are proved no more end with a code
    SIGHUP ── settings, certificates, lists read again ──────┤
                                                             └──► sessions whose right is gone end with `forbidden`

What is read and not right changes nothing: what held before goes on to hold, and the log says why. Settings that need a
restart are named.
"""

from __future__ import annotations

import asyncio
import hashlib
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TypeAlias

from veredus.kernel.errors import Refused
from veredus.node.exchange import PrincipalRevoked, RightsChanged
from veredus.node.exposure import access_of
from veredus.node.settings import SECTIONS, NodeSettings

from .files import check_tokens
from .host import Host
from .logs import Logger
from .proofs import Proofs
from .regular_files import LIST_SIZE_MAX, read_regular
from .reloads import Outcome
from .security import server_context, tokens_of

LOOK_S = 0.25
_RENEWED = ("security.rules", "security.tokens", "tls")
_FILES = ("certificate", "key", "client_authorities", "revoked")
"""Settings of [tls] that name files, whose contents a reload takes up as well."""
_AUTHORITIES = "tls.client_authorities"
Reread: TypeAlias = Callable[[], NodeSettings]


class Renewal:
    """Owns the rules and tokens that hold now, and what proves each connection; made and used on the node's loop."""

    def __init__(self, settings: NodeSettings, reread: Reread | None, log: Logger) -> None:
        """What `settings` say; `reread` gives those of a reload. Raises `Refused`: `bad-rule`, `bad-certificate`."""
        self.settings = settings
        self.access = access_of(settings)
        self.tokens = tokens_of(settings)
        self.proofs = Proofs(self.tokens, settings.tls.revoked if settings.listen.tls else "")
        self._reread = reread
        self._contents = _contents_of(settings)
        self._log = log
        self._host: Host | None = None
        self._use_context: Callable[[ssl.SSLContext], None] = _ignore
        self._task: asyncio.Task[None] | None = None

    def may(self, principal: str, verb: str, resource: object) -> bool:
        """Whether the rules that hold now let `principal` do this."""
        return self.access.may(principal, verb, resource)  # type: ignore[arg-type]

    def start(self, host: Host, use_context: Callable[[ssl.SSLContext], None]) -> None:
        """Look after the links of `host` from now on; `use_context` takes what new ones shake hands by."""
        self._host = host
        self._use_context = use_context
        self._task = asyncio.get_running_loop().create_task(self._look_after())

    def stop(self) -> None:
        """Look after nothing any more."""
        if self._task is not None:
            self._task.cancel()

    def prove(self, link: int, token: str, key: bytes) -> None:
        """A token, or else a key, has proved who is behind a link. It may have gone since: then the link ends."""
        line = None if self.tokens is None else self.tokens.line_of(token, key)
        self.proofs.take_token(link, line)
        if line is None:
            self._end_lost()

    def principal_from(self) -> str:
        """What in a certificate names its principal, as it is set now."""
        return self.settings.tls.principal_from

    async def _look_after(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            assert self._host is not None
            self.proofs.forget_all_but(self._host.links)
            for number, link in self._host.links.items():
                certificate = getattr(link, "certificate", None)
                if certificate is not None:
                    self.proofs.take_certificate(number, certificate)
            self._end_lost()

    def _end_lost(self) -> None:
        assert self._host is not None
        fault = self.proofs.fault()
        if fault:
            self._log.error("tokens-not-read", reason=fault)
        for link, code, message in self.proofs.lost():
            self._host.post(PrincipalRevoked(link, code, message))

    # ── reload ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def reload(self) -> Outcome:
        """Read settings and certificates again, and take up what can be: all of it, or nothing where any is at fault.

        Says in the log, too, what became of it.
        """
        assert self._host is not None
        began_ns = time.monotonic_ns()
        before = self.settings
        note = "settings-not-read"
        try:
            wanted = before if self._reread is None else self._reread()
            access = access_of(wanted)
            if wanted.security.tokens:
                check_tokens(wanted.security.tokens)
            note = "certificates-not-taken"
            self._take_certificates(wanted)
        except Refused as refused:
            self._log.error(note, code=refused.code, reason=refused.message)
            return Outcome(began_ns=began_ns, code=refused.code, message=refused.message)
        contents = _contents_of(wanted)
        renewed = {path for path, digest in contents.items() if self._contents.get(path) != digest}
        changed = sorted({*changed_paths(before, wanted), *renewed})
        self._contents, self.settings = contents, wanted
        if "security.tokens" in changed:
            self.tokens = tokens_of(wanted)
            self.proofs.use_tokens(self.tokens)
        if "security.rules" in changed:
            self.access = access
            self._host.post(RightsChanged())
        self._end_lost()
        applied, waiting = say_reloaded(self._log, changed, _RENEWED)
        return Outcome(began_ns=began_ns, applied=applied, waiting=waiting)

    def _take_certificates(self, wanted: NodeSettings) -> None:
        if not self.settings.listen.tls:
            return
        assert self._host is not None
        context = server_context(wanted.tls)
        self.proofs.read_revoked(wanted.tls.revoked)
        self._use_context(context)
        authorities, before = _contents_of(wanted).get(_AUTHORITIES), self._contents.get(_AUTHORITIES)
        if authorities != before or wanted.tls.principal_from != self.settings.tls.principal_from:
            # Whom the others signed is proved no more, and only a handshake can tell who that is.
            for link in self.proofs.certified():
                self._host.post(
                    PrincipalRevoked(link, "draining", "the certificate authorities have changed: connect again")
                )


def _contents_of(settings: NodeSettings) -> dict[str, bytes]:
    """What tells the contents of the files of [tls] from others, by the path of the setting that names one."""
    digests: dict[str, bytes] = {}
    for setting in _FILES if settings.listen.tls else ():
        file = getattr(settings.tls, setting)
        with suppress(OSError):
            digests[f"tls.{setting}"] = hashlib.sha256(read_regular(file, LIST_SIZE_MAX)).digest() if file else b""
    return digests


def say_reloaded(
    log: Logger, changed: Sequence[str], renewed: tuple[str, ...]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Say what became of settings that were read again: what holds from now on, and what waits for a restart.

    `renewed`: how the paths begin of those that are taken up.
    """
    waiting = tuple(path for path in changed if not path.startswith(renewed))
    applied = tuple(path for path in changed if path not in waiting)
    if waiting:
        log.warning("settings-need-restart", settings=list(waiting))
    log.info("settings-reloaded", changed=list(applied))
    return applied, waiting


def changed_paths(before: NodeSettings, after: NodeSettings) -> list[str]:
    """The paths of the settings that differ, sorted."""
    return sorted(_changed(before, after))


def _changed(before: NodeSettings, after: NodeSettings) -> Iterator[str]:
    for section, kind in SECTIONS.items():
        old, new = getattr(before, section), getattr(after, section)
        for field in kind.__struct_fields__:
            if getattr(old, field) != getattr(new, field):
                yield f"{section}.{field.removesuffix('_ns')}"
    if before.stream != after.stream:
        yield "stream"


def _ignore(_: ssl.SSLContext) -> None:
    return None
