"""Every setting of a node: its unit, its default, its bounds and what it means. `NodeSettings()` is a node on loopback.

A setting is one field of a section. In a file it is `[section] name = value`, in the environment
`VEREDUS_SECTION_NAME`, as a flag `--set section.name=value`. A field that ends in `_ns` is written without that ending,
with a unit: `"250ms"`. docs/reference/settings.md is this table as a page.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Annotated, NamedTuple, get_type_hints

import msgspec

from veredus.delivery.batch import BatchLimits
from veredus.journal.exchange import SyncMode
from veredus.journal.settings import LogSettings
from veredus.node.quantities import (
    format_duration,
    format_size,
    parse_count,
    parse_duration,
    parse_size,
    parse_switch,
)
from veredus.node.rules import Rule
from veredus.streams.exchange import Durability
from veredus.streams.facts import StreamConfig
from veredus.streams.tables import StreamsLimits

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
MS, SECOND = 10**6, 10**9
FRAME_OVERHEAD_SIZE = 128 * KIB
"""What a frame may hold beside the largest payload: head, envelope, header, key, attributes, resume token."""


class Unit(Enum):
    """What kind of quantity a setting is, hence how it is written."""

    SIZE = "bytes"
    DURATION = "time"
    COUNT = "count"
    SWITCH = "true or false"
    CHOICE = "one of"
    TEXT = "text"
    PATH = "path"
    ADDRESS = "host:port"
    ADDRESSES = "list of host:port"
    ENDPOINT = "ZeroMQ endpoint"


class Spec(NamedTuple):
    """What is known of a setting beside its name, type and default. `least` and `most` are in the unit of the value."""

    unit: Unit
    meaning: str
    least: int = 0
    most: int | None = None
    choices: tuple[str, ...] = ()


def _size(meaning: str, least: int = 0, most: int | None = None) -> Spec:
    return Spec(Unit.SIZE, meaning, least, most)


def _duration(meaning: str, least: int = 0, most: int | None = None) -> Spec:
    return Spec(Unit.DURATION, meaning, least, most)


def _count(meaning: str, least: int = 0, most: int | None = None) -> Spec:
    return Spec(Unit.COUNT, meaning, least, most)


def _choice(meaning: str, *choices: str) -> Spec:
    return Spec(Unit.CHOICE, meaning, choices=choices)


_CONNECTIONS = "Connections at once, over all listeners; more are closed as soon as they open"
_FRAME = "The largest frame that is read; a peer that announces a larger one is cut off"
_SYNC = (
    "When a publication counts as taken: `group` after a sync that covers it, `interval` once written, with a sync"
    " behind it every `sync_interval`, `none` once handed to the operating system"
)
_AGE = "Publications older than this may go; 0 keeps them for ever"
_KEPT_SIZE = "The oldest publications go when a stream holds more than this; 0 for no bound"
_KEPT_COUNT = "The oldest publications go when a stream holds more of them than this; 0 for no bound"
_LAG = "A durable cursor pins at most this much behind the head, and is released with a gap beyond; 0 for no bound"
_SOURCES = "Sources that a stream knows at once; a further one is refused"


class NodeSection(msgspec.Struct, frozen=True, kw_only=True):
    """The node itself."""

    directory: Annotated[str, Spec(Unit.PATH, "Where the journal lies; one node at a time may have it")] = (
        "veredus-data"
    )
    name: Annotated[str, Spec(Unit.TEXT, "What the node calls itself in logs and to its peers")] = "veredus"
    drain_timeout_ns: Annotated[int, _duration("How long a stopping node waits for its peers to finish")] = 10 * SECOND


class ListenSection(msgspec.Struct, frozen=True, kw_only=True):
    """Where the node listens; an empty text closes a door. Port 0 takes any free port."""

    tcp: Annotated[str, Spec(Unit.ADDRESS, "Both protocol versions over plain TCP")] = "127.0.0.1:7071"
    tls: Annotated[str, Spec(Unit.ADDRESS, "Both protocol versions over TLS; needs the [tls] section")] = ""
    unix: Annotated[str, Spec(Unit.PATH, "Both protocol versions over a Unix socket, for this user alone")] = ""
    zeromq: Annotated[str, Spec(Unit.ENDPOINT, "Protocol version 1 over a ZeroMQ ROUTER")] = "tcp://127.0.0.1:7072"
    metrics: Annotated[str, Spec(Unit.ADDRESS, "HTTP with /metrics, /livez and /readyz")] = "127.0.0.1:7073"
    metrics_open: Annotated[
        bool, Spec(Unit.SWITCH, "Whether the metrics may be read from other machines: they are not encrypted")
    ] = False


class TlsSection(msgspec.Struct, frozen=True, kw_only=True):
    """The node's certificate, and whose certificates it believes."""

    certificate: Annotated[str, Spec(Unit.PATH, "The node's certificate chain, PEM")] = ""
    key: Annotated[str, Spec(Unit.PATH, "The certificate's private key, PEM; empty if it is in the same file")] = ""
    client_authorities: Annotated[
        str, Spec(Unit.PATH, "Authorities, PEM, whose client certificates name principals by their common name")
    ] = ""
    client_certificates: Annotated[
        str, _choice("Whether a client must show a certificate of these authorities", "optional", "required")
    ] = "optional"
    version_min: Annotated[str, _choice("The oldest version of TLS that is spoken", "1.2", "1.3")] = "1.2"


class LimitsSection(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds on what peers may ask of the node."""

    connections_max: Annotated[int, _count(_CONNECTIONS, 1)] = 10_000
    connections_per_principal_max: Annotated[int, _count("Connections of one principal at once", 1)] = 1_000
    channels_max: Annotated[int, _count("Channels of one connection at once", 1, 65_535)] = 1_024
    greeting_timeout_ns: Annotated[
        int, _duration("How long a new connection may take until it has said who it is", 10 * MS)
    ] = 5 * SECOND
    greeting_size_max: Annotated[int, _size("Bytes read from a connection before it has said who it is", KIB)] = (
        64 * KIB
    )
    heartbeat_interval_ns: Annotated[int, _duration("After how much silence a peer is pinged", 100 * MS)] = 10 * SECOND
    silence_max_ns: Annotated[int, _duration("After how much silence a peer is let go", 200 * MS)] = 30 * SECOND
    frame_size_max: Annotated[int, _size(_FRAME, 64 * KIB, GIB)] = 20 * MIB
    body_size_max: Annotated[int, _size("The largest body of a publication", KIB, GIB)] = 16 * MIB
    batch_size_max: Annotated[
        int, _size("The largest payload, decompressed, of a batch of more than one publication", 4 * KIB, 64 * MIB)
    ] = MIB
    batch_count_max: Annotated[int, _count("Publications in a batch", 1, 1_000_000)] = 65_536
    attributes_max: Annotated[int, _count("Different attributes in a batch", 0, 1_024)] = 64
    token_size_max: Annotated[int, _size("The largest resume token", 64, 64 * KIB)] = 4 * KIB
    send_buffer_size_max: Annotated[
        int, _size("Bytes that wait to be written to one connection before nothing more is pushed to it", 64 * KIB)
    ] = 4 * MIB
    unsynced_size_max: Annotated[
        int, _size("Bytes taken and not yet on disk; above this nothing is read from sources", MIB)
    ] = 64 * MIB
    tail_size_max: Annotated[int, _size("Memory for the tails of all streams, from which live flow is served")] = (
        64 * MIB
    )
    streams_max: Annotated[int, _count("Streams of the node", 1)] = 20_000
    streams_per_principal_max: Annotated[int, _count("Streams that one principal may have created", 1)] = 20_000
    sources_per_principal_max: Annotated[int, _count("Sources that one principal may have attached at once", 1)] = (
        20_000
    )
    subscriptions_max: Annotated[int, _count("Durable subscriptions of one stream", 1)] = 10_000
    unsettled_max: Annotated[int, _count("Ranges settled above a cursor's floor; beyond this nothing is pushed", 1)] = (
        65_536
    )
    stages_max: Annotated[int, _count("Open stages of the node", 1)] = 10_000


class JournalSection(msgspec.Struct, frozen=True, kw_only=True):
    """How the journal is laid out and when it is synced."""

    segment_size: Annotated[int, _size("Size of a segment file", 64 * KIB, 4 * GIB)] = 128 * MIB
    group_size_max: Annotated[int, _size("The most that one write and sync covers", 64 * KIB, GIB)] = 8 * MIB
    sync: Annotated[str, _choice(_SYNC, "group", "interval", "none")] = "group"
    sync_interval_ns: Annotated[int, _duration("Time between syncs where `sync` is `interval`", MS)] = 100 * MS
    checkpoint_interval_size: Annotated[
        int, _size("Bytes appended between checkpoints; a start after a kill reads about this much", MIB)
    ] = 256 * MIB
    free_segments_max: Annotated[int, _count("Dropped segments that are kept to be written over")] = 2


class StreamSection(msgspec.Struct, frozen=True, kw_only=True):
    """How one configured stream is kept; what is not given is as in [streams]."""

    retention_age_ns: Annotated[int, _duration(_AGE)] = 0
    retention_size: Annotated[int, _size(_KEPT_SIZE)] = 0
    retention_count: Annotated[int, _count(_KEPT_COUNT)] = 0
    lag_size_max: Annotated[int, _size(_LAG)] = 0
    sources_max: Annotated[int, _count(_SOURCES, 1)] = 100_000

    @property
    def config(self) -> StreamConfig:
        """The same as the streams floor has it."""
        return StreamConfig(
            retention_age_s=self.retention_age_ns / SECOND,
            retention_size=self.retention_size,
            retention_count=self.retention_count,
            lag_size_max=self.lag_size_max,
            sources_max=self.sources_max,
        )


class StreamsSection(StreamSection, frozen=True, kw_only=True):
    """How streams come into being, and how they are kept unless they are configured otherwise."""

    create_on_use: Annotated[
        bool, Spec(Unit.SWITCH, "Whether a stream comes into being when it is first published or subscribed to")
    ] = True


class TopicsSection(msgspec.Struct, frozen=True, kw_only=True):
    """The topic service: the same section for the proxies, the servers and the clients of one service."""

    proxies: Annotated[tuple[str, ...], Spec(Unit.ADDRESSES, "The proxies; clients try them in this order")] = (
        "127.0.0.1:7081",
    )
    listen: Annotated[
        str, Spec(Unit.ADDRESS, "Where a server, or a proxy, takes messages; empty for a node that is no server")
    ] = ""
    id: Annotated[
        str, Spec(Unit.ADDRESS, "A server's id: the address at which others reach it; empty for `listen`")
    ] = ""
    servers: Annotated[
        tuple[str, ...], Spec(Unit.ADDRESSES, "Who may be a server, by id; empty for whoever says that it is one")
    ] = ()
    answer_ns: Annotated[int, _duration("For how long an answer is waited for before it is asked again", MS)] = 100 * MS
    retries_max: Annotated[int, _count("How often it is asked again")] = 3
    period_ns: Annotated[int, _duration("How often a server tells the proxies which topics are its own", 10 * MS)] = (
        5 * SECOND
    )
    body_size_max: Annotated[int, _size("The largest body of a message", KIB, 64 * MIB)] = MIB
    sessions_max: Annotated[
        int, _count("Clients on topics that a server keeps at hand, for putting and for getting each", 16, 30_000)
    ] = 20_000
    requests_max: Annotated[int, _count("Requests that a server or a proxy has in hand at once", 1)] = 10_000
    directory: Annotated[str, Spec(Unit.PATH, "Where clients keep what they put and got last")] = "veredus-topics"


class SecuritySection(msgspec.Struct, frozen=True, kw_only=True):
    """Who may do what. Without tokens, rules and client authorities a peer on loopback is `local` and may do all."""

    tokens: Annotated[str, Spec(Unit.PATH, "The file of salted token hashes that `veredus token` keeps")] = ""
    insecure: Annotated[
        bool, Spec(Unit.SWITCH, "Whether doors that prove nothing may be open to other machines, to `anonymous` peers")
    ] = False
    rules: tuple[Rule, ...] = ()


class LogSection(msgspec.Struct, frozen=True, kw_only=True):
    """What the node writes to its standard error."""

    level: Annotated[str, _choice("The least that is written", "debug", "info", "warning", "error")] = "info"
    format: Annotated[
        str, _choice("JSON lines, or text for people; `auto` is text on a terminal", "auto", "json", "console")
    ] = "auto"


class NodeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """All settings of a node. `stream` holds the configured streams by name."""

    node: NodeSection = NodeSection()
    listen: ListenSection = ListenSection()
    tls: TlsSection = TlsSection()
    limits: LimitsSection = LimitsSection()
    journal: JournalSection = JournalSection()
    streams: StreamsSection = StreamsSection()
    topics: TopicsSection = TopicsSection()
    security: SecuritySection = SecuritySection()
    log: LogSection = LogSection()
    stream: Mapping[str, StreamSection] = {}

    @property
    def batch_limits(self) -> BatchLimits:
        """What is announced to sources."""
        limits = self.limits
        return BatchLimits(
            limits.batch_size_max,
            limits.body_size_max,
            limits.batch_count_max,
            limits.attributes_max,
            limits.token_size_max,
        )

    @property
    def log_settings(self) -> LogSettings:
        """How the journal's log keeps itself."""
        journal = self.journal
        return LogSettings(
            segment_size=journal.segment_size,
            group_size_max=journal.group_size_max,
            sync=SyncMode[journal.sync.upper()],
            interval_ns=journal.sync_interval_ns,
            checkpoint_interval_size=journal.checkpoint_interval_size,
            free_count_max=journal.free_segments_max,
        )

    @property
    def durability(self) -> Durability:
        """What an acknowledgement buys."""
        return Durability[self.journal.sync.upper()]

    @property
    def streams_limits(self) -> StreamsLimits:
        """The bounds of the streams floor."""
        limits = self.limits
        return StreamsLimits(
            streams_max=limits.streams_max,
            streams_per_principal_max=limits.streams_per_principal_max,
            sources_per_principal_max=limits.sources_per_principal_max,
            tail_size_max=limits.tail_size_max,
            unsettled_max=limits.unsettled_max,
            subscriptions_max=limits.subscriptions_max,
            stages_max=limits.stages_max,
            creates_on_use=self.streams.create_on_use,
            config=self.streams.config,
        )


class Setting(NamedTuple):
    """One row of the table of settings. `field` is the attribute, `name` what people write."""

    section: str
    name: str
    field: str
    spec: Spec
    default: object

    @property
    def path(self) -> str:
        """`section.name`."""
        return f"{self.section}.{self.name}"

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return f"VEREDUS_{self.section}_{self.name}".upper()

    def parse(self, given: object) -> object:
        """The value of what a file, a variable or a flag holds. Raises `ValueError` with a sentence."""
        return _PARSERS[self.spec.unit](self.spec, given)

    def format(self, value: object) -> str:
        """The value as people write it."""
        match self.spec.unit:
            case Unit.SIZE if isinstance(value, int):
                return format_size(value)
            case Unit.DURATION if isinstance(value, int):
                return format_duration(value)
            case Unit.SWITCH:
                return "true" if value else "false"
            case Unit.ADDRESSES if isinstance(value, tuple):
                return ", ".join(value)
            case _:
                return str(value)


def settings_of(section: str, kind: type[msgspec.Struct]) -> tuple[Setting, ...]:
    """The settings of one section, in the order in which they are declared."""
    hints = get_type_hints(kind, include_extras=True)
    return tuple(
        Setting(section, field.name.removesuffix("_ns"), field.name, spec, field.default)
        for field in msgspec.structs.fields(kind)
        for spec in getattr(hints[field.name], "__metadata__", ())
    )


def _whole(spec: Spec, value: int, shown: str, written: object) -> int:
    if value < spec.least or (spec.most is not None and value > spec.most):
        at_most = "" if spec.most is None else f" and at most {_shown(spec, spec.most)}"
        raise ValueError(f"{written!r} is out of bounds: at least {shown}{at_most}")
    return value


def _shown(spec: Spec, value: int) -> str:
    if spec.unit is Unit.SIZE:
        return format_size(value)
    return format_duration(value) if spec.unit is Unit.DURATION else str(value)


def _parse_whole(spec: Spec, given: object) -> object:
    if isinstance(given, bool) or not isinstance(given, int | str):
        raise ValueError(f"{given!r} is not a number of this kind: {spec.unit.value}")
    if isinstance(given, int):
        if spec.unit is Unit.DURATION and given:
            raise ValueError(f'{given} has no unit: write "{given}s" or "{given}ms"')
        value = given
    elif spec.unit is Unit.SIZE:
        value = parse_size(given)
    else:
        value = parse_duration(given) if spec.unit is Unit.DURATION else parse_count(given)
    return _whole(spec, value, _shown(spec, spec.least), given)


def _parse_switch(_: Spec, given: object) -> object:
    if isinstance(given, bool):
        return given
    if isinstance(given, str):
        return parse_switch(given)
    raise ValueError(f"{given!r} is neither true nor false")


def _parse_text(_: Spec, given: object) -> object:
    if not isinstance(given, str):
        raise ValueError(f"{given!r} is not text: put it between quotes")
    if any(ord(character) < 32 for character in given):
        raise ValueError(f"{given!r} holds a control character")
    return given


def _parse_choice(spec: Spec, given: object) -> object:
    if given not in spec.choices:
        raise ValueError(f"{given!r} is not one of {', '.join(spec.choices)}")
    return given


def _parse_address(spec: Spec, given: object) -> object:
    text = str(_parse_text(spec, given))
    if text:
        split_address(text)
    return text


def _parse_addresses(spec: Spec, given: object) -> object:
    """A list of texts, or one text with commas."""
    items = [item.strip() for item in given.split(",") if item.strip()] if isinstance(given, str) else given
    if not isinstance(items, list):
        raise ValueError(f'{given!r} is no list: write ["host:port", "host:port"]')
    addresses = [str(_parse_address(spec, item)) for item in items]
    if "" in addresses or len(set(addresses)) < len(addresses):
        raise ValueError(f"{given!r}: each address stands there once, and none is empty")
    return tuple(addresses)


def _parse_endpoint(spec: Spec, given: object) -> object:
    text = str(_parse_text(spec, given))
    if text and not text.startswith("ipc://"):
        if not text.startswith("tcp://"):
            raise ValueError(f"{text!r} is no endpoint: write tcp://host:port or ipc://path")
        split_address(text.removeprefix("tcp://"))
    return text


def split_address(text: str) -> tuple[str, int]:
    """Host and port of `host:port`, `[v6]:port` or `*:port`. Raises `ValueError`."""
    host, colon, port = text.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    is_bracketed = host.startswith("[") and host.endswith("]")
    if not colon or not bare or (":" in bare and not is_bracketed):
        raise ValueError(f"{text!r} is no address: write host:port, an IPv6 host between brackets")
    if not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise ValueError(f"{text!r}: {port!r} is no port, 0 to 65535")
    return bare, int(port)


_PARSERS = {
    Unit.SIZE: _parse_whole,
    Unit.DURATION: _parse_whole,
    Unit.COUNT: _parse_whole,
    Unit.SWITCH: _parse_switch,
    Unit.CHOICE: _parse_choice,
    Unit.TEXT: _parse_text,
    Unit.PATH: _parse_text,
    Unit.ADDRESS: _parse_address,
    Unit.ADDRESSES: _parse_addresses,
    Unit.ENDPOINT: _parse_endpoint,
}

SECTIONS: dict[str, type[msgspec.Struct]] = {
    "node": NodeSection,
    "listen": ListenSection,
    "tls": TlsSection,
    "limits": LimitsSection,
    "journal": JournalSection,
    "streams": StreamsSection,
    "topics": TopicsSection,
    "security": SecuritySection,
    "log": LogSection,
}
SETTINGS = tuple(setting for section, kind in SECTIONS.items() for setting in settings_of(section, kind))
STREAM_SETTINGS = settings_of("stream", StreamSection)
"""What `[stream."name"]` may hold."""
