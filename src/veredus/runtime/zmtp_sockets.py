"""The listener for ZeroMQ peers: byte streams as at the other listeners, whose octets an engine of ZMTP reads."""

from __future__ import annotations

import os
from pathlib import Path

from veredus.node.exposure import mechanisms_of
from veredus.node.settings import NodeSettings
from veredus.protocols.zeps.attachment import FRAMED_DOOR, NodeLink
from veredus.protocols.zeps.orders import LinkLimits
from veredus.protocols.zmtp.connection import Bounds, Connection
from veredus.protocols.zmtp.curve import SERVER_RANDOM_SIZE, CurveServer
from veredus.protocols.zmtp.framed import FramedLink, Identities
from veredus.protocols.zmtp.link import Timing, ZmtpLink
from veredus.protocols.zmtp.mechanisms import Local, Mechanism, Null
from veredus.protocols.zmtp.plain import PlainServer

from .binding import TCP, Bound
from .curve_keys import read_server_key
from .listeners import Listener
from .sockets import StreamDoors


class ZeroMqDoor:
    """Owns what the peers of one endpoint share: their routing identities, and the keys of the node."""

    def __init__(self, doors: StreamDoors, settings: NodeSettings) -> None:
        """For `tcp://host:port` or `ipc://path`; `listen` opens it. Raises `Refused("bad-key")`."""
        self.endpoint = settings.listen.zeromq
        """Where it listens, with the port that was taken."""
        self._doors = doors
        self._identities = Identities()
        self._names = mechanisms_of(settings)
        self._keys = read_server_key(Path(settings.security.zeromq_key)) if settings.security.zeromq_key else None

    def listen(self, bound: Bound, principal: str) -> Listener:
        """Listen; a TCP peer is `principal`, a Unix one its user. Raises `Unavailable("port-in-use")`."""
        listener = self._doors.listen(FRAMED_DOOR, bound, principal)
        if not bound.is_unix:
            self.endpoint = TCP + listener.address
        return listener

    def link_of(self, link: NodeLink, limits: LinkLimits) -> FramedLink:
        """The engine of a peer's link, who talks to a ROUTER."""
        mechanisms = {name.encode(): self._mechanism(name) for name in self._names}
        connection = Connection(mechanisms, Bounds(limits.greeting_size_max), is_server=True)
        timing = Timing(limits.greeting_timeout_ns, limits.heartbeat_interval_ns, limits.silence_max_ns)
        return FramedLink(link.link, ZmtpLink(connection, timing), link, self._identities)

    def _mechanism(self, name: str) -> Mechanism:
        local = Local(b"ROUTER")
        if name == "NULL":
            return Null(local, is_server=True)
        if name == "PLAIN":
            return PlainServer(local)
        assert self._keys is not None
        return CurveServer(local, self._keys, os.urandom(SERVER_RANDOM_SIZE))
