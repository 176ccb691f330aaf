"""Datagrams to a multicast group: one `Send` of a link is one datagram, and nothing is ever read.

The network is not waited for: what the socket does not take is dropped, and counted; receivers get it from the journal.
Source: seed 004, "Multicast Output".
"""

from __future__ import annotations

import socket
from collections.abc import Sequence

from veredus.kernel.addresses import split_address
from veredus.kernel.errors import Unavailable
from veredus.kernel.octets import Octets
from veredus.node.settings import MulticastSection

from .host import Host

DOOR = "multicast"
SEND_BUFFER_SIZE = 4 << 20


class GroupSocket:
    """Owns the socket that sends to a group, bound to the interface that the settings name."""

    def __init__(self, settings: MulticastSection) -> None:
        """Opened, not connected. Raises `Unavailable("port-in-use")` where the interface is none of this machine."""
        self._address = split_address(settings.group)
        self.sent_count = self.dropped_count = 0
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            interface = socket.inet_aton(settings.interface)
            self._socket.setblocking(False)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_SIZE)
            self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, interface)
            self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, settings.hops_max)
            self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)
            self._socket.bind((settings.interface, 0))
        except OSError as error:
            self._socket.close()
            what = f"cannot send multicast to {settings.group} from {settings.interface} ({error.strerror or error})"
            raise Unavailable("port-in-use", f"{what}: see [multicast]") from None

    def send(self, datagram: bytes) -> None:
        """Send one datagram, or drop it."""
        try:
            self._socket.sendto(datagram, self._address)
            self.sent_count += 1
        except OSError:
            self.dropped_count += 1

    def close(self) -> None:
        """Send nothing more."""
        self._socket.close()


class FeedLink:
    """One stream's feed, as a link of the host."""

    is_framed = True

    def __init__(self, host: Host, group: GroupSocket, stream: str) -> None:
        """Open the link: its peer is the stream's name."""
        self._host = host
        self._group = group
        self._number = host.open_link(self, DOOR, stream)

    def send(self, buffers: Sequence[Octets]) -> None:
        """Send the buffers as one datagram."""
        self._group.send(b"".join(buffers))

    def close(self) -> None:
        """The link is over; the socket is its owner's."""
        self._host.close_link(self._number, "closed")

    def admit(self) -> None:
        """Its place is not counted."""

    def pause_reading(self) -> None:
        """Nothing is read."""

    def resume_reading(self) -> None:
        """Nothing is read."""
