"""One socket to a node: bytes in become frames without being copied, bytes out are written as they are."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import cast

from veredus.kernel.errors import Refused, Unavailable, VeredusError, words_of
from veredus.kernel.events import LinkClosed, LinkOpened, Received
from veredus.kernel.octets import Octets
from veredus.protocols.zeps import native
from veredus.protocols.zeps.client_exchange import FramesReceived
from veredus.protocols.zeps.frames import ATTACH_OK
from veredus.protocols.zeps.parsing import FrameParser
from veredus.runtime.threads import in_thread
from veredus.runtime.unix_paths import short_enough

from .addresses import Address

LINK = 1
CONNECT_TIMEOUT_S = 5.0
WRITE_BUFFER_SIZE_MAX = 16 << 20
_GREETING_SIZE = 260
NOBODY_THERE = "no process listens there"
NO_PATH = "this path does not exist: no node listens there, or on another path"
TURN_S = 0.005
"""What takes longer than this, all that was read at once together, is followed by a turn of everybody else."""
_ALERTS = {
    "SSLV3_ALERT_CERTIFICATE_REVOKED": ("revoked", "it is revoked"),
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": ("unauthenticated", "it has expired"),
    "SSLV3_ALERT_BAD_CERTIFICATE": ("unauthenticated", "it is not valid"),
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": ("unauthenticated", "it is not valid"),
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": ("unauthenticated", "it is not of a supported kind"),
    "TLSV1_ALERT_UNKNOWN_CA": ("unauthenticated", "the node does not know the authority that signed it"),
    "TLSV1_ALERT_DECRYPT_ERROR": ("unauthenticated", "its key does not belong to it"),
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": ("unauthenticated", "the node requires one (--certificate, or tls=…)"),
}
"""What a node says of a client's certificate, by OpenSSL's names of TLS alerts: the code, and the words."""


class NodeSocket(asyncio.BufferedProtocol):
    """Owns one socket and the parser of what comes over it; gives facts to whoever owns it.

    Before the node has agreed to version 2 its bytes are given as they come, one by one where they might be the end of
    the agreement; frames follow from the very next byte.
    """

    def __init__(self, tell: Callable[[object], None]) -> None:
        """A socket whose facts go to `tell`."""
        self.parser = FrameParser(native.GREETING_SIZE_MAX)
        self.is_to_itself = False
        """Whether the connection leads back to its own end: nobody hears of one that does, and it is closed."""
        self.refusal: Refused | None = None
        """Why the node refuses this client's certificate, if that is how the connection ended."""
        self._tell = tell
        self._transport: asyncio.Transport | None = None
        self._is_agreed = False
        self._answer = b""
        self._buffer = bytearray(_GREETING_SIZE)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is up."""
        self._transport = cast(asyncio.Transport, transport)
        sock = transport.get_extra_info("socket")
        # Where nobody listens on a port of the ephemeral range, the system may give it to our own end, and TCP connects
        # that to itself. It would hold the port against the node that is being started again.
        peer = transport.get_extra_info("peername")
        self.is_to_itself = bool(peer) and peer == transport.get_extra_info("sockname")
        if self.is_to_itself:
            self._transport.abort()
            return
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_SIZE_MAX)
        self._tell(LinkOpened(LINK, "client", str(peer or "")))

    def get_buffer(self, sizehint: int) -> memoryview:
        """Memory that nobody else looks at."""
        if self._is_agreed:
            return self.parser.get_buffer(sizehint)
        wanted = len(ATTACH_OK) - len(self._answer)
        return memoryview(self._buffer)[: max(wanted, 1)]

    def buffer_updated(self, nbytes: int) -> None:
        """So many bytes were read."""
        if self._is_agreed:
            # Also where it was part of a frame, and no whole one yet: the node is not silent.
            frames, began_s = self.parser.buffer_updated(nbytes), time.monotonic()
            self._tell(FramesReceived(LINK, frames, self.parser.fault))
            if time.monotonic() - began_s > TURN_S:
                self._let_others_go()
            return
        taken = bytes(self._buffer[:nbytes])
        self._answer += taken
        self._is_agreed = self._answer == ATTACH_OK
        self._tell(Received(LINK, taken))

    def _let_others_go(self) -> None:
        """Read on in the loop's next turn: it would read many times at once, and nobody else had a turn meanwhile."""
        transport = self._transport
        if transport is not None and not transport.is_closing():
            transport.pause_reading()
            asyncio.get_running_loop().call_soon(self._read_on)

    def _read_on(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def eof_received(self) -> bool:
        """The node writes no more; nor do we then."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        if self.is_to_itself:
            return
        self.refusal = refusal_of(exc)
        self._tell(LinkClosed(LINK, words_of(exc) if exc else "closed by the other side"))

    def send(self, buffers: Sequence[Octets]) -> None:
        """Write the buffers in order."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.writelines(buffers)

    def close(self) -> None:
        """Close once what was sent has been written."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close now."""
        if self._transport is not None:
            self._transport.abort()


async def open_socket(address: Address, tls: ssl.SSLContext | None, tell: Callable[[object], None]) -> NodeSocket:
    """A connected socket whose facts go to `tell`. Raises `OSError` or `TimeoutError` where nobody answers."""
    loop = asyncio.get_running_loop()
    node_socket = NodeSocket(tell)
    async with asyncio.timeout(CONNECT_TIMEOUT_S):
        if address.path:
            with short_enough(address.path) as path:
                await loop.create_unix_connection(lambda: node_socket, path)
        else:
            context = (tls if tls is not None else ssl.create_default_context()) if address.is_tls else None
            await _connect(address, context, node_socket)
    if node_socket.is_to_itself:
        raise ConnectionRefusedError(errno.ECONNREFUSED, "no process listens there")
    return node_socket


async def _connect(address: Address, tls: ssl.SSLContext | None, node_socket: NodeSocket) -> None:
    """Connect to a host and port. Raises `OSError`."""
    loop = asyncio.get_running_loop()
    try:
        await loop.create_connection(lambda: node_socket, address.host, address.port, ssl=tls)
    except RuntimeError:
        # The interpreter ends, and asyncio's executor looks no name up any more.
        where = partial(socket.getaddrinfo, address.host, address.port, type=socket.SOCK_STREAM)
        found = await in_thread(where)
        name = address.host if tls is not None else None
        for index, (_, _, _, _, place) in enumerate(found):
            try:
                host, port = str(place[0]), address.port
                await loop.create_connection(lambda: node_socket, host, port, ssl=tls, server_hostname=name)
                return
            except OSError:
                if index + 1 == len(found):
                    raise


def refusal_of(error: BaseException | None) -> Refused | None:
    """What a node says of this client's certificate, where that is the error of a connection."""
    alert = _ALERTS.get(error.reason or "") if isinstance(error, ssl.SSLError) else None
    return None if alert is None else Refused(alert[0], f"the node refuses this client's certificate: {alert[1]}")


def error_of_opening(error: OSError | TimeoutError, address: Address, *, is_first: bool) -> VeredusError:
    """Why an address cannot be connected to, and what to do where that is known.

    `is_first`: no node was found yet. Then nothing would become better by trying what only its people can mend; later
    they may be about to.
    """
    if isinstance(error, ssl.SSLError) and error.reason == "WRONG_VERSION_NUMBER":
        said = "the node does not answer with TLS there: use its listener for TLS, or write veredus://"
        refusal = Refused("version-unknown", f"{address}: {said}")
    elif isinstance(error, ssl.SSLCertVerificationError):
        said = (
            f"the node's certificate is not accepted, certificate verify failed ({error.verify_message}): name the"
            " authority that has signed it (--authorities, or tls=…), and the host as the certificate does"
        )
        refusal = Refused("bad-certificate", f"{address}: {said}")
    elif (told := refusal_of(error)) is not None:
        refusal = Refused(told.code, f"{address}: {told.message}")
    else:
        return Unavailable("link-lost", f"{address}: {_said_of(error)}")
    return refusal if is_first else Unavailable("link-lost", refusal.message)


def said_of_silence(address: Address, known: str) -> str:
    """Why there is no link where a connection was accepted and no node answered: what is known, and what it may be."""
    tls = "" if address.path or address.is_tls else ", or expect TLS (write veredus+tls://)"
    may_be = (
        f"the node may be stopping, or down behind a forwarder or load balancer{tls}; or something else listens there"
    )
    return f"{address}: the connection was accepted; {known}; {may_be}"


def nobody_at(addresses: Sequence[Address], tried_s: float) -> str:
    """Why there is no link, where every address has refused it for so long."""
    is_no_path = all(address.path and not Path(address.path).exists() for address in addresses)
    return f"{NO_PATH if is_no_path else NOBODY_THERE} (tried for {tried_s:g} s)"


def _said_of(error: OSError | TimeoutError) -> str:
    if isinstance(error, ConnectionRefusedError):
        return NOBODY_THERE
    if isinstance(error, FileNotFoundError):
        return NO_PATH
    return (error.strerror if isinstance(error, OSError) else "") or words_of(error)
