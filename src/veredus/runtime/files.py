"""Whether the files that the settings name are there and are what they have to be, before a node starts with them."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from veredus.kernel.errors import Refused
from veredus.node.exposure import Fault
from veredus.node.settings import NodeSettings, TopicsSection

from .certificates import revoked_in
from .key_files import read_secret
from .regular_files import check_to_write
from .security import load_authorities, load_certificate, read_tokens, unreadable_tokens
from .topics_credentials import read_credentials


def check_tokens(file: str) -> None:
    """Raise `Refused("bad-tokens")` unless there is a file of tokens; a node that lost its file admits nobody."""
    try:
        Path(file).stat()
    except FileNotFoundError:
        advice = f"make it with `veredus token add PRINCIPAL --file {file}`, or name another file"
        raise Refused("bad-tokens", f"{file}: there is no such file: {advice}") from None
    except OSError as error:
        raise unreadable_tokens(Path(file), error) from None
    read_tokens(Path(file))


def check_audit_file(file: str) -> None:
    """Raise `Refused("bad-settings")` where something stands in the place of the audit log that is no regular file."""
    try:
        check_to_write(Path(file))
    except OSError as error:
        raise Refused("bad-settings", f"{file}: {error.strerror}") from None


def file_faults(settings: NodeSettings) -> Iterator[Fault]:
    """What is wrong with the files that a node with these settings would use: of tokens, keys and certificates, and the
    audit log.
    """
    for path, look in _looks(settings):
        try:
            look()
        except Refused as refused:
            yield Fault(path, refused.message)


def check_files(settings: NodeSettings) -> None:
    """Raise `Refused("bad-settings")` with every fault of `file_faults`."""
    faults = list(file_faults(settings))
    if faults:
        raise Refused("bad-settings", "\n".join(f"{fault.path}: {fault.sentence}" for fault in faults))


def _looks(settings: NodeSettings) -> Iterator[tuple[str, Callable[[], object]]]:
    security, listen, tls = settings.security, settings.listen, settings.tls
    if security.tokens:
        yield "security.tokens", partial(check_tokens, security.tokens)
    if security.zeromq_key and (listen.zeromq or settings.topics.listen):
        yield "security.zeromq_key", partial(read_secret, Path(security.zeromq_key))
    if settings.topics.token:
        yield "topics.token", partial(read_credentials, TopicsSection(token=settings.topics.token))
    if settings.topics.key:
        yield "topics.key", partial(read_secret, Path(settings.topics.key))
    if settings.audit.file:
        yield "audit.file", partial(check_audit_file, settings.audit.file)
    if not listen.tls:
        return
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if tls.certificate:
        yield "tls.certificate", partial(load_certificate, context, tls.certificate, tls.key)
    if tls.client_authorities:
        yield "tls.client_authorities", partial(load_authorities, context, tls.client_authorities)
    if tls.revoked:
        yield "tls.revoked", partial(revoked_in, Path(tls.revoked))
