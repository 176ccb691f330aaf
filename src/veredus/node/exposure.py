"""Whether the settings as a whole make sense, and keep the doors shut that should be: denied by default off loopback.

A door proves who knocks if it is TLS or a Unix socket. Plain TCP and ZeroMQ carry everything in the clear, tokens too,
so off loopback they are refused unless `insecure = true` says that this is meant.
Source: the design, section 5 ("loopback only unless told otherwise").
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from veredus.kernel.errors import Refused
from veredus.node.rules import ANONYMOUS, EVERYTHING_ALLOWED, LOCAL, NOBODY, Access
from veredus.node.settings import FRAME_OVERHEAD_SIZE, NodeSettings, split_address


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches `host`. Names other than `localhost` are not looked up: they are outside."""
    return host in ("localhost", "::1") or (host.startswith("127.") and host.replace(".", "").isdigit())


def is_secured(settings: NodeSettings) -> bool:
    """Whether anything was set up by which a peer could be told from another."""
    security = settings.security
    return bool(security.tokens or security.rules or settings.tls.client_authorities)


def access_of(settings: NodeSettings) -> Access:
    """Who may do what under these settings. Raises `Refused("bad-rule")`."""
    security = settings.security
    if is_secured(settings):
        return Access(security.rules, ANONYMOUS if security.insecure else NOBODY)
    return Access(EVERYTHING_ALLOWED, ANONYMOUS if security.insecure else LOCAL)


class Fault(NamedTuple):
    """What is wrong, and what to do. `path` is the setting to be changed."""

    path: str
    sentence: str


def faults_of(settings: NodeSettings) -> list[Fault]:
    """What is wrong with settings that are right one by one."""
    return [*_quarrels(settings), *_open_doors(settings)]


def check_settings(settings: NodeSettings) -> None:
    """Raise `Refused("bad-settings")` with every fault, unless a node may start with these settings."""
    faults = faults_of(settings)
    if faults:
        raise Refused("bad-settings", "\n".join(f"{fault.path}: {fault.sentence}" for fault in faults))


def _quarrels(settings: NodeSettings) -> Iterator[Fault]:
    limits, tls, listen, security = settings.limits, settings.tls, settings.listen, settings.security
    if limits.frame_size_max < max(limits.body_size_max, limits.batch_size_max) + FRAME_OVERHEAD_SIZE:
        yield Fault("limits.frame_size_max", "a frame must hold the largest body, or batch, and 128 KiB more: raise it")
    if limits.silence_max_ns <= limits.heartbeat_interval_ns:
        yield Fault("limits.silence_max", "a peer must have time to answer a ping: set it above heartbeat_interval")
    if listen.tls and not tls.certificate:
        yield Fault("listen.tls", "TLS needs a certificate: set tls.certificate and tls.key")
    if tls.client_certificates == "required" and not tls.client_authorities:
        yield Fault("tls.client_certificates", "whose certificates would be believed? Set tls.client_authorities")
    if not any((listen.tcp, listen.tls, listen.unix, listen.zeromq)):
        yield Fault("listen.tcp", "the node listens nowhere: set at least one of tcp, tls, unix and zeromq")
    if is_secured(settings) and not security.rules:
        yield Fault("security.rules", "nobody may do anything: add [[security.rules]] with principal, may and streams")
    try:
        access_of(settings)
    except Refused as refused:
        yield Fault("security.rules", refused.message)


def _open_doors(settings: NodeSettings) -> Iterator[Fault]:
    listen, security = settings.listen, settings.security
    if _is_open(listen.metrics) and not listen.metrics_open:
        yield Fault(
            "listen.metrics",
            f"{listen.metrics} is open to other machines: set listen.metrics_open = true if that is meant",
        )
    if security.insecure:
        return
    topics = settings.topics
    doors = (("listen.tcp", listen.tcp), ("listen.zeromq", listen.zeromq), ("topics.listen", topics.listen))
    for path, address in doors:
        if _is_open(address):
            advice = (
                "use listen.tls with rules, listen on 127.0.0.1, or set security.insecure = true in a trusted network"
            )
            yield Fault(path, f"{address} is open to other machines and not encrypted: {advice}")
    if _is_open(listen.tls) and not security.tokens and not settings.tls.client_authorities:
        advice = "set security.tokens (see `veredus token add`) or tls.client_authorities, and [[security.rules]]"
        yield Fault("listen.tls", f"{listen.tls} is open to other machines and nobody can prove who they are: {advice}")


def _is_open(address: str) -> bool:
    if not address or address.startswith("ipc://"):
        return False
    return not is_loopback(split_address(address.removeprefix("tcp://"))[0])
