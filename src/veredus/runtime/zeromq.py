"""A ZeroMQ ROUTER socket whose peers are links of a host: one frame in is one command, one `Send` out is one frame.

A ROUTER does not say when a peer has gone: the protocol's heartbeats do. Source: seed 004.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

import zmq

from veredus.kernel.errors import Unavailable
from veredus.kernel.events import LinkCongested, LinkDrained, Received
from veredus.kernel.octets import Octets

from .host import Host
from .zeromq_io import SocketReader, receive, send

WAITING_FRAMES_MAX = 1024
RETRY_S = 0.01


class RouterLink:
    """One peer of a ROUTER socket: what it is sent, and what waits because its pipe is full."""

    is_framed = True

    def __init__(self, router: Router, identity: bytes) -> None:
        """The peer with this routing identity."""
        self._router = router
        self.identity = identity
        self.number = 0
        self.is_closing = False
        self.is_congested = False
        self.waiting: deque[bytes] = deque()

    def send(self, buffers: Sequence[Octets]) -> None:
        """Send one frame, or keep it until the pipe has room."""
        self.waiting.append(b"".join(buffers))
        self._router.flush(self)

    def close(self) -> None:
        """Forget the peer once what waits for it was sent."""
        self.is_closing = True
        self._router.flush(self)

    def pause_reading(self) -> None:
        """Read from no peer of this socket for now: a ROUTER cannot hold back one of them."""
        self._router.pause(self.number)

    def resume_reading(self) -> None:
        """Read again once no peer is held back."""
        self._router.resume(self.number)


class Router:
    """Owns a ROUTER socket and the links of its peers, by identity."""

    def __init__(self, host: Host, address: str, frame_size_max: int, count_max: int, principal: str) -> None:
        """Bind to `address`, such as "tcp://127.0.0.1:7072"; whoever comes is `principal`.

        Raises `Unavailable("port-in-use")`.
        """
        self._principal = principal
        self._host = host
        self._count_max = count_max
        self._links: dict[bytes, RouterLink] = {}
        self._paused: dict[int, None] = {}
        self._blocked: dict[bytes, RouterLink] = {}
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.LINGER, 500)
        self._socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self._socket.setsockopt(zmq.MAXMSGSIZE, frame_size_max)
        try:
            self._socket.bind(address)
        except zmq.ZMQError as error:
            self._context.destroy(linger=0)
            raise Unavailable("port-in-use", f"cannot bind ZeroMQ to {address} ({error}): see [listen]") from None
        self.address = self._socket.getsockopt_string(zmq.LAST_ENDPOINT)
        self._reader = SocketReader(self._socket, self._read)

    def close(self) -> None:
        """Close the socket; what was sent has half a second to leave."""
        self._reader.close()
        if self._timer is not None:
            self._timer.cancel()
        self._socket.close()
        self._context.term()

    def _read(self) -> bool:
        parts = None if self._paused else receive(self._socket)
        if parts is not None:
            self._take(parts)
        return parts is not None

    def _take(self, parts: list[bytes]) -> None:
        identity, *frames = parts
        link = self._links.get(identity)
        if link is None:
            if len(self._links) >= self._count_max:
                return
            link = self._links[identity] = RouterLink(self, identity)
            link.number = self._host.open_link(link, "zeromq", identity.hex(), self._principal)
        for frame in frames:
            if frame or len(frames) == 1:
                self._host.post(Received(link.number, frame))

    def flush(self, link: RouterLink) -> None:
        """Send what waits for this peer, as far as its pipe has room."""
        while link.waiting:
            try:
                send(self._socket, link.identity, link.waiting[0])
            except zmq.Again:
                self._block(link)
                return
            except zmq.ZMQError as error:
                self._drop(link, str(error))
                return
            link.waiting.popleft()
            self._reader.look()
        self._blocked.pop(link.identity, None)
        if link.is_congested:
            link.is_congested = False
            self._host.post(LinkDrained(link.number))
        if link.is_closing:
            self._drop(link, "closed")

    def _block(self, link: RouterLink) -> None:
        self._blocked[link.identity] = link
        if not link.is_congested:
            link.is_congested = True
            self._host.post(LinkCongested(link.number))
        if len(link.waiting) > WAITING_FRAMES_MAX:
            self._drop(link, "the peer does not read")
        elif self._timer is None:
            self._timer = self._loop.call_later(RETRY_S, self._retry)

    def _retry(self) -> None:
        self._timer = None
        for link in list(self._blocked.values()):
            self.flush(link)

    def _drop(self, link: RouterLink, reason: str) -> None:
        self._links.pop(link.identity, None)
        self._blocked.pop(link.identity, None)
        self.resume(link.number)
        self._host.close_link(link.number, reason)

    def pause(self, number: int) -> None:
        """Link `number` is to be held back."""
        self._paused[number] = None

    def resume(self, number: int) -> None:
        """Link `number` is held back no more."""
        self._paused.pop(number, None)
        if not self._paused:
            self._reader.look()
