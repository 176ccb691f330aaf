"""Stream sockets: TCP, TLS and Unix listeners whose connections are links of a host."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

import numpy as np

from veredus.kernel.errors import Unavailable
from veredus.kernel.events import LinkCongested, LinkDrained, Received
from veredus.kernel.octets import Octets

from .host import Host

READ_SIZE = 1 << 20


class DoorBounds(NamedTuple):
    """What a listener allows: connections of the whole node, and bytes that wait to be written to one of them."""

    count_max: int
    send_buffer_size_max: int


class StreamLink(asyncio.BufferedProtocol):
    """One connection: bytes in become `Received`, bytes out are written as they are.

    What was read belongs to the engine, so every read goes into memory of its own: a large buffer that is cut off where
    the read
    ended and whose rest serves the next read.
    """

    is_framed = False

    def __init__(
        self, host: Host, door: str, principal_of: Callable[[asyncio.Transport], str], bounds: DoorBounds
    ) -> None:
        """A connection of `host`; `principal_of` says whom the transport proves the peer to be."""
        self._host = host
        self._door = door
        self._principal_of = principal_of
        self._bounds = bounds
        self._transport: asyncio.Transport | None = None
        self._number = 0
        self._memory = memoryview(b"")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is up."""
        self._transport = cast(asyncio.Transport, transport)
        if len(self._host.links) >= self._bounds.count_max:
            self._transport.abort()
            return
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        size_max = self._bounds.send_buffer_size_max
        self._transport.set_write_buffer_limits(high=size_max, low=size_max // 4)
        peer = str(transport.get_extra_info("peername") or self._door)
        self._number = self._host.open_link(self, self._door, peer, self._principal_of(self._transport))

    def get_buffer(self, sizehint: int) -> memoryview:
        """Memory that nobody else looks at."""
        if len(self._memory) < READ_SIZE // 4:
            # Not a bytearray: that would be filled with zeros first.
            self._memory = np.empty(READ_SIZE, np.uint8).data
        return self._memory

    def buffer_updated(self, nbytes: int) -> None:
        """So many bytes were read."""
        taken = self._memory[:nbytes]
        self._memory = self._memory[nbytes:]
        self._host.post(Received(self._number, taken))

    def eof_received(self) -> bool:
        """The peer writes no more; nor do we then."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        if self._number:
            self._host.close_link(self._number, str(exc) if exc else "closed")

    def pause_writing(self) -> None:
        """The send buffer is full."""
        self._host.post(LinkCongested(self._number))

    def resume_writing(self) -> None:
        """The send buffer has room again."""
        self._host.post(LinkDrained(self._number))

    def send(self, buffers: Sequence[Octets]) -> None:
        """Write the buffers in order."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.writelines(buffers)

    def close(self) -> None:
        """Close once what was sent has been written."""
        if self._transport is not None:
            self._transport.close()

    def pause_reading(self) -> None:
        """Read no more for now."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read again."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()


def _address_of(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)


def certified_principal(transport: asyncio.Transport) -> str:
    """The common name of the peer's verified client certificate, "" without one."""
    certificate = transport.get_extra_info("peercert")
    if not certificate:
        return ""
    subject = [pair for group in certificate.get("subject", ()) for pair in group]
    return next((value for name, value in subject if name == "commonName"), "")


async def listen_tcp(
    host: Host,
    address: str,
    tls: ssl.SSLContext | None,
    principal_of: Callable[[asyncio.Transport], str],
    bounds: DoorBounds,
) -> asyncio.Server:
    """Listen on `host:port`. Raises `Unavailable("port-in-use")` and says which."""
    loop = asyncio.get_running_loop()
    name, port = _address_of(address)
    door = "tls" if tls else "tcp"
    try:
        return await loop.create_server(
            lambda: StreamLink(host, door, principal_of, bounds), name, port, ssl=tls, backlog=1024
        )
    except OSError as error:
        raise Unavailable(
            "port-in-use",
            f"cannot listen on {address} ({error.strerror or error}): is another node running? see [listen]",
        ) from None


async def listen_unix(host: Host, path: str, principal: str, bounds: DoorBounds) -> asyncio.Server:
    """Listen on a Unix socket that only this user may open. Raises `Unavailable("port-in-use")`."""
    loop = asyncio.get_running_loop()
    try:
        return await loop.create_unix_server(
            lambda: StreamLink(host, "unix", lambda _: principal, bounds), path, backlog=1024
        )
    except OSError as error:
        raise Unavailable("port-in-use", f"cannot listen on {path} ({error.strerror or error})") from None
