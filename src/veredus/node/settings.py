"""Every setting of a node: its unit, its default, its bounds and what it means. `NodeSettings()` is a node on loopback.

A setting is one field of a section. In a file it is `[section] name = value`, in the environment
`VEREDUS_SECTION_NAME`, as a flag `--set section.name=value`. A field that ends in `_ns` is written without that ending,
with a unit: `"250ms"`.
docs/reference/settings.md is this table as a page.
"""

# Annotations are evaluated as they stand: `settings_of` would compile each of them from text, at every start.
from collections.abc import Mapping
from typing import Annotated

import msgspec

from veredus.node.rules import Rule
from veredus.node.specs import Spec, Unit, settings_of
from veredus.node.specs import choice as _choice
from veredus.node.specs import count as _count
from veredus.node.specs import duration as _duration
from veredus.node.specs import size as _size

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
MS, SECOND = 10**6, 10**9
FRAME_OVERHEAD_SIZE = 128 * KIB
"""What a frame may hold beside the largest payload: head, envelope, header, key, attributes, resume token."""


_CONNECTIONS = (
    "Open connections, over all listeners. The number is lower if the process may not open so many files. A connection"
    " counts from the moment it is accepted"
)
_PER_LISTENER = (
    "Open connections of one listener, at most nine tenths of `connections_max`, so that the others have room"
)
_PER_PRINCIPAL = "Open connections of one principal, at most half of `connections_max`"
_UNPROVEN = (
    "Open connections that are not authenticated, at most a quarter of `connections_max`. Above this number, the node"
    " closes the oldest one of the address that has the most"
)
_UNSYNCED = (
    "Bytes received and not yet on disk. Above this size, the node does not read from the principals that have more"
    " than an equal share of them"
)
_UNPROVEN_PER_ADDRESS = (
    "Open connections of one address at one listener that are not authenticated. Above this number, the node closes"
    " the oldest one. An address is an IPv4 address, the upper 64 bits of an IPv6 address, or a user of a Unix socket"
)
_FRAME = "The largest frame that is read. If a peer announces a larger one, the node closes the connection"
_SEND = (
    "Bytes that wait to be written, over all connections; those that wait for several and are in memory once count"
    " once. The node looks twice a second, and whenever an eighth of this size was written that waits. Above half of"
    " this size, a connection with 64 KiB waiting gets no more. Above this size, the node closes the connections that"
    " have read nothing for the longest time, but none that has read something in the last second, unless twice this"
    " size waits. The log names them (`peer-abandoned`). As many bytes again may wait for the credit of clients of"
    " ZEPS 1; above that, the node reads again what a client has waited for the longest, when its credit comes"
)
_RECEIVE = (
    "Memory for incomplete frames, over all connections; one principal may use at most half. If there is no room for a"
    " large frame, its connection waits, and the node closes slow connections meanwhile"
)
_RECEIVED = (
    "Bytes a second that one principal may send; its connections are read no faster, and its requests of topics are"
    " refused. 0 for no bound"
)
_SENT = (
    "Bytes a second that one principal is sent; nothing is pushed to it any faster, and its requests of topics are"
    " refused. 0 for no bound"
)
_REQUESTS = (
    "Requests that a server or a proxy handles at the same time. One principal, or one unauthenticated connection, has"
    " at most as many as it leaves for all others"
)
_SYNC = (
    "When a publication is acknowledged. `group`: after a sync that covers it. `interval`: after the write; a sync"
    " follows every `sync_interval`. `none`: after it was handed to the operating system"
)
_AGE = "Publications older than this may be deleted; 0 for no limit"
_KEPT_SIZE = "When a stream holds more than this, the oldest publications are deleted; 0 for no limit"
_KEPT_COUNT = "When a stream holds more publications than this, the oldest are deleted; 0 for no limit"
_LAG = "A durable cursor keeps at most this much from deletion. Farther behind, it gets a gap; 0 for no limit"
_MEMBERS = (
    "The principals of the proxies and servers, separated by commas. Only they may announce and merge topics, and pass"
    " on the requests of other principals. If empty, every unauthenticated peer may announce and merge, and can use up"
    " the topics that a proxy keeps, so that it refuses true servers"
)
_STREAMS = (
    "Streams of the node. A proxy keeps at most as many topics of each server, and five times as many of all servers"
)
_SOURCES = "Sources that a stream can have; the node refuses more"


class NodeSection(msgspec.Struct, frozen=True, kw_only=True):
    """The node itself."""

    directory: Annotated[str, Spec(Unit.PATH, "The directory of the journal; only one node may use it at a time")] = (
        "veredus-data"
    )
    name: Annotated[str, Spec(Unit.TEXT, "The name of the node in logs and for its peers")] = "veredus"
    drain_timeout_ns: Annotated[int, _duration("How long a stopping node waits for its peers to finish")] = 10 * SECOND


class ListenSection(msgspec.Struct, frozen=True, kw_only=True):
    """Where the node listens. An empty text closes a listener; port 0 takes any free port."""

    tcp: Annotated[str, Spec(Unit.ADDRESS, "Both protocol versions over plain TCP")] = "127.0.0.1:7071"
    tls: Annotated[str, Spec(Unit.ADDRESS, "Both protocol versions over TLS; needs the [tls] section")] = ""
    unix: Annotated[str, Spec(Unit.PATH, "Both protocol versions over a Unix socket")] = ""
    unix_mode: Annotated[
        str, _choice("Who may open the Unix socket: the node's user; also its group; or all users", "600", "660", "666")
    ] = "600"
    zeromq: Annotated[str, Spec(Unit.ENDPOINT, "Protocol version 1 over a ZeroMQ ROUTER")] = "tcp://127.0.0.1:7072"
    metrics: Annotated[str, Spec(Unit.ADDRESS, "HTTP with /metrics, /livez and /readyz")] = "127.0.0.1:7073"
    metrics_open: Annotated[
        bool, Spec(Unit.SWITCH, "Whether the metrics may be read from other machines: they are not encrypted")
    ] = False


class TlsSection(msgspec.Struct, frozen=True, kw_only=True):
    """The node's certificate, and the authorities that it trusts."""

    certificate: Annotated[str, Spec(Unit.PATH, "The node's certificate chain, PEM")] = ""
    key: Annotated[str, Spec(Unit.PATH, "The certificate's private key, PEM; empty if it is in the same file")] = ""
    client_authorities: Annotated[
        str, Spec(Unit.PATH, "Certificate authorities, PEM, whose client certificates are trusted to name principals")
    ] = ""
    client_certificates: Annotated[
        str, _choice("Whether a client must present a certificate of these authorities", "optional", "required")
    ] = "optional"
    principal_from: Annotated[
        str,
        _choice(
            "The certificate field that names the principal: common name, or the one alternative name of a kind",
            "common-name", "uri", "dns", "email",
        ),
    ] = "common-name"  # fmt: skip
    revoked: Annotated[str, Spec(Unit.PATH, "Lists of revoked client certificates, PEM; empty for none")] = ""
    version_min: Annotated[str, _choice("The oldest TLS version that is accepted", "1.2", "1.3")] = "1.2"


class LimitsSection(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds on what peers may ask of the node."""

    connections_max: Annotated[int, _count(_CONNECTIONS, 1)] = 10_000
    connections_per_listener_max: Annotated[int, _count(_PER_LISTENER, 1)] = 9_000
    connections_per_principal_max: Annotated[int, _count(_PER_PRINCIPAL, 1)] = 2_000
    connections_unproven_max: Annotated[int, _count(_UNPROVEN, 1)] = 2_000
    connections_unproven_per_address_max: Annotated[int, _count(_UNPROVEN_PER_ADDRESS, 1)] = 1_000
    channels_max: Annotated[int, _count("Open channels of one connection", 1, 65_535)] = 1_024
    greeting_timeout_ns: Annotated[
        int, _duration("How long a new connection may take until it is authenticated, TLS included", 10 * MS)
    ] = 5 * SECOND
    greeting_size_max: Annotated[int, _size("Bytes read from a connection until it is authenticated", KIB)] = 64 * KIB
    received_per_principal_max: Annotated[int, _size(_RECEIVED)] = 0
    sent_per_principal_max: Annotated[int, _size(_SENT)] = 0
    heartbeat_interval_ns: Annotated[int, _duration("After this much silence, the node pings a peer", 100 * MS)] = (
        10 * SECOND
    )
    silence_max_ns: Annotated[int, _duration("After this much silence, the node closes the connection", 200 * MS)] = (
        30 * SECOND
    )
    frame_size_max: Annotated[int, _size(_FRAME, 64 * KIB, GIB)] = 20 * MIB
    body_size_max: Annotated[int, _size("The largest body of a publication", KIB, GIB)] = 16 * MIB
    batch_size_max: Annotated[
        int, _size("The largest decompressed payload of a batch of more than one publication", 4 * KIB, 64 * MIB)
    ] = MIB
    batch_count_max: Annotated[int, _count("Publications in a batch", 1, 1_000_000)] = 65_536
    attributes_max: Annotated[int, _count("Different attributes in a batch", 0, 1_024)] = 64
    token_size_max: Annotated[int, _size("The largest resume token", 64, 64 * KIB)] = 4 * KIB
    send_buffer_size_max: Annotated[
        int,
        _size(
            "Bytes that wait to be written to one connection. Above a quarter of it, the node pushes nothing more to"
            " it; above all of it, with answers that its peer does not read, it reads nothing more from it",
            64 * KIB,
        ),
    ] = 4 * MIB
    send_size_max: Annotated[int, _size(_SEND, MIB)] = 256 * MIB
    receive_size_max: Annotated[int, _size(_RECEIVE, MIB)] = 256 * MIB
    frame_timeout_ns: Annotated[
        int, _duration("How long a frame of more than 64 KiB may take until it is complete", 100 * MS)
    ] = 60 * SECOND
    unsynced_size_max: Annotated[int, _size(_UNSYNCED, MIB)] = 16 * MIB
    tail_size_max: Annotated[int, _size("Memory for the newest publications of all streams, which live flow reads")] = (
        64 * MIB
    )
    streams_max: Annotated[int, _count(_STREAMS, 1)] = 40_000
    streams_per_principal_max: Annotated[int, _count("Streams that one principal may have created", 1)] = 20_000
    sources_per_principal_max: Annotated[
        int, _count("Sources of one principal that may be attached at the same time", 1)
    ] = 20_000
    kept_sources_per_principal_max: Annotated[
        int,
        _count(
            "Sources that one principal may own in all streams, attached or not; all unauthenticated peers count as one"
            " principal",
            1,
        ),
    ] = 200_000
    tokens_size_per_principal_max: Annotated[int, _size("The resume tokens of these together", 64 * KIB)] = 64 * MIB
    subscriptions_max: Annotated[int, _count("Durable subscriptions of one stream", 1)] = 40_000
    subscriptions_per_principal_max: Annotated[
        int,
        _count("Durable subscriptions that one principal may own; all unauthenticated peers count as one principal", 1),
    ] = 20_000
    filters_size_per_principal_max: Annotated[
        int, _size("The filters of these, as they are written, together", 64 * KIB)
    ] = 16 * MIB
    cursor_ranges_per_principal_max: Annotated[
        int,
        _count(
            "Ranges in the cursors of these together. Above this number, the node pushes to a cursor with 64 ranges or"
            " more only when some of them are settled",
            1,
        ),
    ] = 1_000_000
    ephemeral_subscriptions_per_principal_max: Annotated[
        int,
        _count(
            "Ephemeral subscriptions of one principal that may be open at the same time; all unauthenticated peers"
            " count as one principal",
            1,
        ),
    ] = 5_000
    unsettled_max: Annotated[
        int,
        _count(
            "Ranges of unsettled publications in one cursor. At this number, the node pushes nothing more to it until"
            " some of them are settled",
            1,
        ),
    ] = 16_384
    stages_max: Annotated[int, _count("Open stages of the node", 1)] = 20_000
    stages_per_principal_max: Annotated[
        int, _count("Open stages in the sinks of one principal; all unauthenticated peers count as one principal", 1)
    ] = 10_000
    filter_terms_per_principal_max: Annotated[
        int,
        _count(
            "Key patterns and operations in the filters of all open subscriptions of one principal. 16 instructions of"
            " regular expressions count as one more",
            1,
        ),
    ] = 20_000
    sinks_max: Annotated[int, _count("Sinks of the node", 1)] = 20_000
    sinks_per_principal_max: Annotated[
        int, _count("Sinks that one principal may own; all unauthenticated peers count as one principal", 1)
    ] = 10_000
    committed_streams_per_principal_max: Annotated[
        int, _count("Streams that the last commits of these sinks name together", 1)
    ] = 100_000
    stage_lease_ns: Annotated[
        int, _duration("How long open stages, and sinks without a name, stay after their run's last channel", SECOND)
    ] = 3600 * SECOND


class JournalSection(msgspec.Struct, frozen=True, kw_only=True):
    """How the journal is laid out and when it is synced."""

    segment_size: Annotated[int, _size("Size of a segment file", 64 * KIB, 4 * GIB)] = 128 * MIB
    group_size_max: Annotated[int, _size("The most bytes in one write and sync", 64 * KIB, GIB)] = 8 * MIB
    sync: Annotated[str, _choice(_SYNC, "group", "interval", "none")] = "group"
    sync_interval_ns: Annotated[int, _duration("Time between syncs where `sync` is `interval`", MS)] = 100 * MS
    checkpoint_interval_size: Annotated[
        int, _size("Bytes appended between checkpoints, or 250,000 batches. A start after a kill reads so much", MIB)
    ] = 256 * MIB
    free_segments_max: Annotated[int, _count("Deleted segments whose files are kept for new segments")] = 2


class StreamSection(msgspec.Struct, frozen=True, kw_only=True):
    """Retention and limits of one configured stream. Other values come from [streams]."""

    retention_age_ns: Annotated[int, _duration(_AGE)] = 0
    retention_size: Annotated[int, _size(_KEPT_SIZE)] = 0
    retention_count: Annotated[int, _count(_KEPT_COUNT)] = 0
    lag_size_max: Annotated[int, _size(_LAG)] = 0
    sources_max: Annotated[int, _count(_SOURCES, 1)] = 100_000


class StreamsSection(StreamSection, frozen=True, kw_only=True):
    """How streams are created, and their default retention and limits."""

    create_on_use: Annotated[bool, Spec(Unit.SWITCH, "Whether the first publish or subscribe creates a stream")] = True


class TopicsSection(msgspec.Struct, frozen=True, kw_only=True):
    """The topic service: the same section for the proxies, the servers and the clients of one service."""

    proxies: Annotated[tuple[str, ...], Spec(Unit.ADDRESSES, "The proxies; clients try them in this order")] = (
        "127.0.0.1:7081",
    )
    listen: Annotated[
        str, Spec(Unit.ADDRESS, "Where a server or a proxy listens; empty for a node that is not a server of topics")
    ] = ""
    id: Annotated[
        str, Spec(Unit.ADDRESS, "A server's id: the address at which others reach it. If empty, it is `listen`")
    ] = ""
    servers: Annotated[
        tuple[str, ...],
        Spec(Unit.ADDRESSES, "The ids of the servers. If empty, every peer that claims to be a server is accepted"),
    ] = ()
    answer_ns: Annotated[int, _duration("How long to wait for an answer before the request is sent again", MS)] = (
        100 * MS
    )
    retries_max: Annotated[int, _count("How often a request is sent again")] = 3
    period_ns: Annotated[int, _duration("How often a server announces its topics to the proxies", 10 * MS)] = 5 * SECOND
    body_size_max: Annotated[int, _size("The largest body of a message", KIB, 64 * MIB)] = MIB
    sessions_max: Annotated[
        int, _count("Clients on topics that a server keeps in memory, separately for put and for get", 16, 30_000)
    ] = 20_000
    requests_max: Annotated[int, _count(_REQUESTS, 1)] = 10_000
    retention_age_ns: Annotated[
        int,
        _duration("`veredus topics serve`: what every subscriber has got may go at this age; 0 keeps it for ever"),
    ] = 24 * 3600 * SECOND
    directory: Annotated[str, Spec(Unit.PATH, "Where clients store their last put and get")] = "veredus-topics"
    members: Annotated[str, Spec(Unit.TEXT, _MEMBERS)] = ""
    token: Annotated[str, Spec(Unit.PATH, "A file with the token that is shown to proxies and servers, by PLAIN")] = ""
    key: Annotated[
        str, Spec(Unit.PATH, "A file with the secret key that is shown to proxies and servers, by CURVE (mode 0600)")
    ] = ""
    server_key: Annotated[
        str, Spec(Unit.TEXT, "The public key of the proxies and servers, for CURVE: what `token node-key` prints")
    ] = ""

    @property
    def member_names(self) -> tuple[str, ...]:
        """The members by name."""
        return tuple(dict.fromkeys(name.strip() for name in self.members.split(",") if name.strip()))


class MulticastSection(msgspec.Struct, frozen=True, kw_only=True):
    """A UDP multicast group to which the node sends new publications. Datagrams are not encrypted."""

    group: Annotated[str, Spec(Unit.ADDRESS, "The group, such as 239.195.0.1:7074; empty for no multicast")] = ""
    interface: Annotated[str, Spec(Unit.TEXT, "The IPv4 address of the interface that sends the datagrams")] = (
        "127.0.0.1"
    )
    streams: Annotated[str, Spec(Unit.TEXT, "The names of the streams that are sent, separated by commas")] = ""
    datagram_size_max: Annotated[
        int, _size("The largest datagram. A larger publication is available only from the journal", 576, 65_507)
    ] = 1_400
    hops_max: Annotated[int, _count("How many routers a datagram passes, plus one", 0, 255)] = 1
    announce_interval_ns: Annotated[
        int, _duration("After this much silence, the node announces the next sequence of a stream", 10 * MS)
    ] = SECOND

    @property
    def names(self) -> tuple[str, ...]:
        """The streams by name."""
        return tuple(dict.fromkeys(name.strip() for name in self.streams.split(",") if name.strip()))


class SecuritySection(msgspec.Struct, frozen=True, kw_only=True):
    """Who may do what. Without tokens, rules and client authorities a peer on loopback is `local` and may do all."""

    tokens: Annotated[str, Spec(Unit.PATH, "The file of salted token hashes that `veredus token` keeps")] = ""
    zeromq_key: Annotated[
        str,
        Spec(
            Unit.PATH,
            "The secret key of the ZeroMQ and topics listeners, made by `veredus token node-key`; enables CURVE",
        ),
    ] = ""
    insecure: Annotated[
        bool,
        Spec(
            Unit.SWITCH, "Whether unauthenticated listeners may be open to other machines; their peers are `anonymous`"
        ),
    ] = False
    rules: tuple[Rule, ...] = ()


class LogSection(msgspec.Struct, frozen=True, kw_only=True):
    """What the node writes to its standard error."""

    level: Annotated[str, _choice("The lowest level that is written", "debug", "info", "warning", "error")] = "info"
    format: Annotated[
        str, _choice("JSON lines, or text for people; `auto` is text on a terminal", "auto", "json", "console")
    ] = "auto"


class AuditSection(msgspec.Struct, frozen=True, kw_only=True):
    """Who connected, what was refused, taken over, changed and revoked, in a file of its own."""

    file: Annotated[str, Spec(Unit.PATH, "Where records are written, as JSON lines; empty for nowhere")] = ""
    size_max: Annotated[int, _size("At this size the file is renamed, and begun anew", 64 * KIB)] = 64 * MIB
    files_max: Annotated[int, _count("Renamed files that are kept", 0, 1_000)] = 8
    sync: Annotated[
        str,
        _choice("When records are synced: when nothing more waits, or by the operating system", "group", "none"),
    ] = "group"
    required: Annotated[
        bool, Spec(Unit.SWITCH, "Whether requests that change something are refused while records cannot be written")
    ] = False
    connections: Annotated[bool, Spec(Unit.SWITCH, "Whether connections that open and close are recorded")] = True
    refusals: Annotated[bool, Spec(Unit.SWITCH, "Whether connections, peers and requests refused are recorded")] = True
    take_overs: Annotated[bool, Spec(Unit.SWITCH, "Whether sources, cursors and sinks taken over are recorded")] = True


class NodeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """All settings of a node. `stream` holds the configured streams by name."""

    node: NodeSection = NodeSection()
    listen: ListenSection = ListenSection()
    tls: TlsSection = TlsSection()
    limits: LimitsSection = LimitsSection()
    journal: JournalSection = JournalSection()
    streams: StreamsSection = StreamsSection()
    topics: TopicsSection = TopicsSection()
    multicast: MulticastSection = MulticastSection()
    security: SecuritySection = SecuritySection()
    log: LogSection = LogSection()
    audit: AuditSection = AuditSection()
    stream: Mapping[str, StreamSection] = {}


SECTIONS: dict[str, type[msgspec.Struct]] = {
    "node": NodeSection,
    "listen": ListenSection,
    "tls": TlsSection,
    "limits": LimitsSection,
    "journal": JournalSection,
    "streams": StreamsSection,
    "topics": TopicsSection,
    "multicast": MulticastSection,
    "security": SecuritySection,
    "log": LogSection,
    "audit": AuditSection,
}
SETTINGS = tuple(setting for section, kind in SECTIONS.items() for setting in settings_of(section, kind))
STREAM_SETTINGS = settings_of("stream", StreamSection)
"""What `[stream."name"]` may hold."""
