"""Whether the settings as a whole make sense, and open no listener by mistake: denied by default off loopback.

A listener can authenticate its peers if it is TLS, a Unix socket, or ZeroMQ with CURVE. Plain TCP and other ZeroMQ do
not encrypt, not even tokens, so on addresses other than loopback they are refused unless `insecure = true`.
Source: docs/internals/DESIGN.md, "Rights".
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address
from typing import NamedTuple

from veredus.kernel.addresses import check_reached, split_address
from veredus.kernel.errors import Refused
from veredus.node.rules import EVERYTHING_ALLOWED, Access
from veredus.node.settings import FRAME_OVERHEAD_SIZE, MulticastSection, NodeSettings
from veredus.streams.rights import ANONYMOUS, LOCAL, NOBODY


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
        is_named = any(rule.principal == ANONYMOUS for rule in security.rules)
        return Access(security.rules, ANONYMOUS if security.insecure or is_named else NOBODY)
    return Access(EVERYTHING_ALLOWED, ANONYMOUS if security.insecure else LOCAL)


class Fault(NamedTuple):
    """What is wrong, and what to do. `path` is the setting to be changed; it is right or wrong beside the `others`."""

    path: str
    sentence: str
    others: tuple[str, ...] = ()


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
        yield Fault(
            "limits.frame_size_max",
            "a frame must hold the largest body, or batch, and 128 KiB more: raise it",
            ("limits.body_size_max", "limits.batch_size_max"),
        )
    if limits.receive_size_max < 2 * limits.frame_size_max:
        yield Fault(
            "limits.receive_size_max",
            "it must hold two of the largest frames: set it to 2 * frame_size_max",
            ("limits.frame_size_max",),
        )
    if limits.silence_max_ns <= limits.heartbeat_interval_ns:
        yield Fault(
            "limits.silence_max",
            "a peer must have time to answer a ping: set it above heartbeat_interval",
            ("limits.heartbeat_interval",),
        )
    if listen.tls and not tls.certificate:
        yield Fault("listen.tls", "TLS needs a certificate: set tls.certificate and tls.key", ("tls.certificate",))
    if tls.client_certificates == "required" and not tls.client_authorities:
        yield Fault(
            "tls.client_certificates",
            "no certificate authority is trusted: set tls.client_authorities",
            ("tls.client_authorities",),
        )
    yield from _wrong_multicast(settings.multicast)
    yield from _wrong_topics(settings)
    if tls.revoked and not tls.client_authorities:
        yield Fault(
            "tls.revoked",
            "there are no client certificates that could be revoked: set tls.client_authorities",
            ("tls.client_authorities",),
        )
    if not any((listen.tcp, listen.tls, listen.unix, listen.zeromq)):
        yield Fault(
            "listen.tcp",
            "the node has no listener: set at least one of tcp, tls, unix and zeromq",
            ("listen.tls", "listen.unix", "listen.zeromq"),
        )
    if is_secured(settings) and not security.rules:
        yield Fault("security.rules", "no rule allows anything: add [[security.rules]] with principal, may and streams")
    try:
        access_of(settings)
    except Refused as refused:
        yield Fault("security.rules", refused.message)


def _wrong_topics(settings: NodeSettings) -> Iterator[Fault]:
    topics = settings.topics
    if topics.id:
        try:
            check_reached(topics.id)
        except ValueError as error:
            yield Fault("topics.id", str(error))
    if topics.token and (topics.key or topics.server_key):
        yield Fault("topics.token", "a token goes with PLAIN, and a key with CURVE: set one of them", ("topics.key",))
    if bool(topics.key) != bool(topics.server_key):
        missing = "topics.server_key" if topics.key else "topics.key"
        yield Fault(missing, "CURVE needs both topics.key and topics.server_key: set it")
    if topics.listen and topics.member_names and not settings.security.tokens:
        advice = "set security.tokens"
        yield Fault("topics.members", f"no peer can prove to be one of these: {advice}", ("security.tokens",))


def _wrong_multicast(multicast: MulticastSection) -> Iterator[Fault]:
    if not multicast.group:
        return
    try:
        is_group = IPv4Address(split_address(multicast.group)[0]).is_multicast
    except ValueError:
        is_group = False
    if not is_group:
        advice = "take one of 239.0.0.0 to 239.255.255.255"
        yield Fault("multicast.group", f"{multicast.group} is not an IPv4 multicast group with a port: {advice}")
    try:
        IPv4Address(multicast.interface)
    except ValueError:
        yield Fault("multicast.interface", f"{multicast.interface!r} is not an IPv4 address of an interface")
    if not multicast.names:
        yield Fault("multicast.streams", "there is no stream to send: name at least one")


def _open_doors(settings: NodeSettings) -> Iterator[Fault]:
    listen, security = settings.listen, settings.security
    if _is_open(listen.metrics) and not listen.metrics_open:
        yield Fault(
            "listen.metrics",
            f"{listen.metrics} is open to other machines: to allow this, set listen.metrics_open = true",
            ("listen.metrics_open",),
        )
    if security.insecure:
        return
    topics, multicast = settings.topics, settings.multicast
    if multicast.group and not is_loopback(multicast.interface):
        advice = "use 127.0.0.1, or set security.insecure = true in a trusted network"
        yield Fault(
            "multicast.interface",
            f"datagrams sent by {multicast.interface} are not encrypted: {advice}",
            ("security.insecure",),
        )
    doors = (("listen.tcp", listen.tcp), ("listen.zeromq", listen.zeromq), ("topics.listen", topics.listen))
    for path, address in doors:
        if path != "listen.tcp" and security.zeromq_key:
            continue
        if _is_open(address):
            sealed = (
                "use listen.tls with rules"
                if path == "listen.tcp"
                else "set security.zeromq_key (`veredus token node-key` makes one) with security.tokens and rules"
            )
            advice = f"{sealed}, listen on 127.0.0.1, or set security.insecure = true in a trusted network"
            yield Fault(
                path, f"{address} is open to other machines and not encrypted: {advice}", ("security.insecure",)
            )
    for path, address in doors[1:]:
        if _is_open(address) and security.zeromq_key and not security.tokens:
            advice = "set security.tokens (see `veredus token add-key`), and [[security.rules]]"
            yield Fault(
                path,
                f"{address} is open to other machines, and has no client keys: {advice}",
                ("security.tokens", "security.insecure"),
            )
    if _is_open(listen.tls) and not security.tokens and not settings.tls.client_authorities:
        advice = "set security.tokens (see `veredus token add`) or tls.client_authorities, and [[security.rules]]"
        yield Fault(
            "listen.tls",
            f"{listen.tls} is open to other machines and no peer can authenticate: {advice}",
            ("security.tokens", "tls.client_authorities", "security.insecure"),
        )


def mechanisms_of(settings: NodeSettings) -> tuple[str, ...]:
    """By which mechanisms of ZMTP a ZeroMQ peer may come; where others could listen in, by CURVE alone."""
    security = settings.security
    curve = ("CURVE",) if security.zeromq_key else ()
    if _is_open(settings.listen.zeromq) and curve and not security.insecure:
        return curve
    return ("NULL", *(("PLAIN",) if security.tokens else ()), *curve)


def topics_mechanisms_of(settings: NodeSettings, unproven: str) -> tuple[str, ...]:
    """By which mechanisms of ZMTP a peer may come to the listener of topics; where others could listen in, by CURVE
    alone. By NULL only where who proves nothing is somebody, or where nobody could prove anything.
    """
    security = settings.security
    curve = ("CURVE",) if security.zeromq_key else ()
    if _is_open(settings.topics.listen) and curve and not security.insecure:
        return curve
    proving = (*(("PLAIN",) if security.tokens else ()), *curve)
    return proving if proving and unproven == NOBODY else ("NULL", *proving)


def _is_open(address: str) -> bool:
    if not address or address.startswith("ipc://"):
        return False
    return not is_loopback(split_address(address.removeprefix("tcp://"))[0])
