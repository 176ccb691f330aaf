"""Stream sockets: TCP, TLS and Unix listeners whose connections are links of a host."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import cast

from veredus.kernel.effects import Note
from veredus.kernel.errors import words_of
from veredus.kernel.events import LinkCongested, LinkDrained, LinkTaking
from veredus.kernel.lazily import np
from veredus.kernel.octets import Octets
from veredus.node.backlog import READ_SIZE_MAX
from veredus.node.sending import SendLimits, Waiting, push_size_of

from .binding import Bound
from .certificates import COMMON_NAME, Certificate, certificate_of
from .host import Host
from .listeners import Arrivals, Listener, Peer, Place, tcp_peer_of, unix_peer_of
from .parting import Lingering, Parting, Partings
from .taking import Taking
from .unwritten import ABANDONED, Unwritten

_LOOKS = 8
"""How often within `silence_max` it is looked at least who is slow to take it."""
COPY_SIZE_MAX = 64 << 10
"""What was read is copied up to this size: a small record in the tail shall not hold a large buffer."""


class ReadMemory:
    """Owns the memory that all links of a host read into, one after the other: an idle link has none of its own.

    What was read belongs to the engine: nobody writes to it again. Where no memory is left, what was put by is read
    into and copied: an event loop takes a read that has no room for a broken connection, and says nothing of memory.
    """

    __slots__ = ("_rest", "_spare")

    def __init__(self) -> None:
        """Memory is taken when it is first asked for, but for what is put by."""
        self._rest = memoryview(b"")
        self._spare = memoryview(bytearray(COPY_SIZE_MAX - 1))

    def offer(self) -> memoryview:
        """Room for one read; what it brought is to be taken before anybody else reads."""
        if len(self._rest) < READ_SIZE_MAX // 4:
            try:
                # Not a bytearray: that would be filled with zeros first.
                self._rest = np.empty(READ_SIZE_MAX, np.uint8).data
            except MemoryError:
                self._rest = self._spare
        return self._rest

    def take(self, size: int) -> memoryview:
        """The `size` bytes that were read."""
        taken = self._rest[:size]
        if size < COPY_SIZE_MAX:
            return memoryview(bytearray(taken))
        self._rest = self._rest[size:]
        return taken


class StreamLink(asyncio.BufferedProtocol):
    """One connection: bytes in become `Received`, bytes out are written as they are."""

    is_framed = False

    def __init__(self, host: Host, peer: Peer, place: Place, doors: StreamDoors) -> None:
        """A connection of `host`; it leaves `place` when it is lost."""
        self._host = host
        self._peer = peer
        self._place = place
        self._doors = doors
        self._transport: asyncio.Transport | None = None
        self._number = 0
        self._lingering: Lingering | None = None
        self._parting: Parting | None = None
        self.certificate: Certificate | None = None
        """What the peer has shown, and the transport has verified."""
        self.size_max = 0
        self._taking: Taking | None = None
        self._received_size = 0
        self._is_congested = False
        self._is_proven = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is up, its handshake done."""
        self._transport = cast(asyncio.Transport, transport)
        accepted_ns = self._place.since_ns
        if not accepted_ns:
            self._transport.abort()
            return
        self._place.abandon = self._transport.abort
        self._taking = Taking(self._transport)
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.set_size_max(self._doors.unwritten.budget.link_size_max)
        self.certificate = certificate_of(transport.get_extra_info("ssl_object"), self._doors.principal_from())
        principal = (self.certificate.principal if self.certificate else "") or self._peer.principal
        listener, address, name, _ = self._peer
        self._number = self._host.open_link(self, listener, name, principal, accepted_ns, address)
        if self.certificate is not None and self.certificate.fault:
            fields: dict[str, object] = {"link": self._number, "reason": self.certificate.fault}
            self._host.note(Note("warning", "certificate-names-nobody", fields))

    def get_buffer(self, sizehint: int) -> memoryview:
        """Memory that nobody else looks at until `buffer_updated`."""
        return self._doors.memory.offer()[: self._doors.read_size_of(self._number)]

    def buffer_updated(self, nbytes: int) -> None:
        """So many bytes were read."""
        self._received_size += nbytes
        self._host.receive(self._number, self._doors.memory.take(nbytes))

    def eof_received(self) -> bool:
        """The peer writes no more; nor do we then."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._place.leave()
        self._doors.forget(self)
        if self._lingering is not None:
            self._lingering.cancel()
        # One of TLS knows us, and holds what was not written: by a cycle it would stay until garbage is collected.
        self._transport = self._taking = self._parting = None
        if self._number:
            self._host.close_link(self._number, words_of_end(exc))

    def pause_writing(self) -> None:
        """The send buffer has no room left for pushes."""
        self._is_congested = True
        self._tell_congested()

    def _tell_congested(self) -> None:
        self._host.post(LinkCongested(self._number, self.size_max - push_size_of(self.size_max)))

    def resume_writing(self) -> None:
        """The send buffer has room again."""
        self._is_congested = False
        self._host.post(LinkDrained(self._number))

    def send(self, buffers: Sequence[Octets]) -> None:
        """Write the buffers in order."""
        if self._transport is not None and self._taking is not None and not self._is_closing:
            self._transport.writelines(buffers)
            self._taking.note(buffers)
            self._doors.wrote(self, min(self._transport.get_write_buffer_size(), sum(map(len, buffers))))

    def close(self) -> None:
        """Close once what was sent has been written, or the peer has taken nothing of it for too long.

        Where there is TLS, its peer has as long to say goodbye.
        """
        if self._transport is None or self._taking is None or self._transport.is_closing():
            return
        is_plain = self._transport.get_extra_info("ssl_object") is None
        if is_plain and self._host.is_stopped:
            self._transport.close()
        elif is_plain and self._parting is None:
            self._place.leave()
            self._parting = self._doors.partings.begin(self._transport, self._taking, self.connection_lost)
        elif not is_plain:
            self._transport.close()
            self._lingering = Lingering(self._transport, self._taking)

    @property
    def _is_closing(self) -> bool:
        return self._transport is None or self._parting is not None or self._transport.is_closing()

    def abort(self) -> None:
        """Close now."""
        if self._transport is not None:
            self._transport.abort()

    @property
    def waiting(self) -> Waiting:
        """What waits to be written."""
        assert self._transport is not None
        assert self._taking is not None
        return Waiting(
            self._number,
            self._transport.get_write_buffer_size(),
            self._taking.taken_size,
            self._received_size,
            self._doors.is_unheard(self._number),
            self._is_closing,
            self._is_proven,
            self._taking.shared,
        )

    def look(self) -> bool:
        """Tell the engine where the peer is slow, and not gone; whether it is to be looked at again."""
        assert self._taking is not None
        if self._taking.look():
            self._host.post(LinkTaking(self._number))
        return bool(self._taking.untaken_size)

    def set_size_max(self, size: int) -> None:
        """How much may wait: with a part of it the link is congested, and it is drained at a quarter of that part."""
        if self._transport is not None and not self._is_closing:
            self.size_max = size
            self._transport.set_write_buffer_limits(high=push_size_of(size), low=push_size_of(size) // 4)
            if self._is_congested:
                self._tell_congested()

    def admit(self) -> None:
        """The peer has greeted: it keeps its place."""
        self._is_proven = True
        self._place.prove()

    def pause_reading(self) -> None:
        """Read no more for now."""
        if self._transport is not None and not self._is_closing:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read again."""
        if self._transport is not None and not self._is_closing:
            self._transport.resume_reading()


class StreamDoors:
    """Opens the listeners of one node whose connections are links of its host, and owns what these share."""

    def __init__(
        self,
        host: Host,
        arrivals: Arrivals,
        limits: SendLimits,
        read_size_of: Callable[[int], int],
        is_unheard: Callable[[int], bool],
    ) -> None:
        """Links of `host`, counted by `arrivals`; `limits` bound what waits to be written.

        `read_size_of` says how many bytes are read from a link at a time, `is_unheard` whether it is not read from, and
        its peer can do nothing about it.
        """
        self.host = host
        self.read_size_of = read_size_of
        self.is_unheard = is_unheard
        self.arrivals = arrivals
        self.unwritten = Unwritten(arrivals.loop, limits, self._note_abandoned)
        self.memory = ReadMemory()
        self.partings = Partings(arrivals.loop)
        """The connections that this side has ended."""
        self.principal_from: Callable[[], str] = lambda: COMMON_NAME
        """What in a certificate names its principal."""
        self._written: dict[StreamLink, None] = {}
        """To which something was written that their peers may not have taken."""
        self._slow_s = limits.silence_max_ns / _LOOKS / 1e9
        self._slow_timer: asyncio.TimerHandle | None = arrivals.loop.call_later(self._slow_s, self._look_for_slow)

    def close(self) -> None:
        """Look after what is unwritten no more, nor wait for those that end."""
        self.partings.close()
        self.unwritten.close()
        if self._slow_timer is not None:
            self._slow_timer.cancel()
        self._slow_timer = None

    def wrote(self, link: StreamLink, waiting_size: int) -> None:
        """Something was written to the link; how much of it waits."""
        self._written[link] = None
        if waiting_size:
            self.unwritten.watch(link)
            self.unwritten.note_sent(waiting_size)

    def forget(self, link: StreamLink) -> None:
        """The link is gone."""
        self.unwritten.forget(link)
        self._written.pop(link, None)

    def _note_abandoned(self, link: int, reason: str) -> None:
        self.host.note(Note("warning", ABANDONED, {"link": link, "reason": reason}))

    def _look_for_slow(self) -> None:
        self._slow_timer = self.arrivals.loop.call_later(self._slow_s, self._look_for_slow)
        for link in list(self._written):
            if not link.look():
                del self._written[link]

    def listen(self, name: str, bound: Bound, principal: str, tls: ssl.SSLContext | None = None) -> Listener:
        """Listen as `name`; a TCP peer that its transport does not prove is `principal`, a Unix one its user.

        Raises `Unavailable("port-in-use")`.
        """
        peer_of = unix_peer_of(name) if bound.is_unix else tcp_peer_of(name, principal)
        return Listener(name, bound.listen(), self.arrivals, peer_of, self._open_link, tls)

    @property
    def _open_link(self) -> Callable[[Peer, Place], StreamLink]:
        return lambda peer, place: StreamLink(self.host, peer, place, self)


def words_of_end(error: Exception | None) -> str:
    """Why a connection is gone, for the log: a peer may close it before it has read all that it is told."""
    if error is None or isinstance(error, BrokenPipeError):
        return "closed"
    return getattr(error, "strerror", None) or words_of(error)
