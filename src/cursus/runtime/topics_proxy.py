"""The sockets of a proxy of the topic service: a ROUTER in front, for clients and servers, and a DEALER to each server.

    REQ ──► ROUTER: envelope, data ──► engine ──► DEALER: token, "", data ──► REP or ROUTER of the server
                                         ◄────────── the same token ◄────────┘

Whoever asks may be a REQ, as the page has it, or anything that sends an envelope and takes it back. A DEALER takes
nothing while its server is not connected: what nobody waits for any more is not said when it comes back.
Source: seed 000, section 3; the design, section 4 (the socket's file descriptor instead of zmq.asyncio).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import structlog
import zmq

from cursus.kernel.effects import Note
from cursus.kernel.engine import Now
from cursus.kernel.errors import Unavailable
from cursus.kernel.events import DeadlineReached
from cursus.protocols.topics.messages import HEADER_SIZE_MAX
from cursus.protocols.topics.proxy import Answer, Answered, Ask, Asked, Event, Meet, Proxy, ProxySettings

MESSAGES_PER_TURN_MAX = 256
_TOKEN_SIZE = 8


class TopicsProxy:
    """Owns a proxy's sockets, and drives its engine on the running loop; made and closed on that loop."""

    def __init__(self, settings: ProxySettings, address: str, body_size_max: int) -> None:
        """Listen at `address` ("127.0.0.1:5551"; port 0 takes any) for messages of up to `body_size_max` bytes.

        Raises `Unavailable("port-in-use")`.
        """
        self.engine = Proxy(settings)
        self._log = structlog.get_logger("cursus")
        self._loop = asyncio.get_running_loop()
        self._context = zmq.Context()
        self._message_size_max = HEADER_SIZE_MAX + body_size_max
        self._front = self._socket(zmq.ROUTER)
        try:
            self._front.bind(f"tcp://{address}")
        except zmq.ZMQError as error:
            self._context.destroy(linger=0)
            raise Unavailable("port-in-use", f"cannot listen at {address} ({error}): choose another address") from None
        self.address = self._front.getsockopt_string(zmq.LAST_ENDPOINT).removeprefix("tcp://")
        self._backs: dict[str, zmq.Socket[bytes] | None] = {}
        """By server; None where no socket can be connected to what it calls itself."""
        self._envelopes: dict[int, Sequence[bytes]] = {}
        self._last_peer = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ns = 0
        self._looking: dict[zmq.Socket[bytes], None] = {}
        self._watch(self._front)

    def close(self) -> None:
        """Close every socket; what was answered has half a second to leave."""
        if self._timer is not None:
            self._timer.cancel()
        for socket in (self._front, *(back for back in self._backs.values() if back is not None)):
            self._loop.remove_reader(int(socket.getsockopt(zmq.FD)))
            socket.close(linger=500 if socket is self._front else 0)
        self._context.term()

    # ── sockets ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _socket(self, kind: int) -> zmq.Socket[bytes]:
        socket = self._context.socket(kind)
        socket.setsockopt(zmq.MAXMSGSIZE, self._message_size_max)
        return socket

    def _watch(self, socket: zmq.Socket[bytes]) -> None:
        self._loop.add_reader(int(socket.getsockopt(zmq.FD)), self._look, socket)
        self._look(socket)

    # The descriptor is edge-triggered, and sending may swallow the edge: after either one looks again.
    def _look(self, socket: zmq.Socket[bytes]) -> None:
        if socket not in self._looking:
            self._looking[socket] = None
            self._loop.call_soon(self._read, socket)

    def _read(self, socket: zmq.Socket[bytes]) -> None:
        self._looking.pop(socket, None)
        take = self._take_question if socket is self._front else self._take_answer
        for _ in range(MESSAGES_PER_TURN_MAX):
            if socket.closed:
                return
            try:
                parts = socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            take(parts)
        self._look(socket)

    def _take_question(self, parts: list[bytes]) -> None:
        *envelope, data = parts
        self._last_peer += 1
        self._envelopes[self._last_peer] = envelope
        self._tell(Asked(self._last_peer, data))

    def _take_answer(self, parts: list[bytes]) -> None:
        if len(parts) == 3 and len(parts[0]) == _TOKEN_SIZE:
            self._tell(Answered(int.from_bytes(parts[0]), parts[2]))
        else:
            self._log.warning("answer-without-token", sizes=[len(part) for part in parts])

    # ── the engine ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _tell(self, event: Event) -> None:
        for effect in self.engine.handle(event, Now(time.monotonic_ns(), time.time_ns())):
            match effect:
                case Answer(peer, data):
                    self._answer(peer, data)
                case Ask(server, token, data):
                    self._ask(server, token, data)
                case Meet(server):
                    self._meet(server)
                case Note(level, name, fields):
                    getattr(self._log, level)(name, **fields)
        self._wake_in_time()

    def _answer(self, peer: int, data: bytes) -> None:
        self._send(self._front, (*self._envelopes.pop(peer), data))

    def _ask(self, server: str, token: int, data: bytes) -> None:
        self._meet(server)
        back = self._backs[server]
        if back is not None:
            self._send(back, (token.to_bytes(_TOKEN_SIZE), b"", data))

    def _meet(self, server: str) -> None:
        if server not in self._backs:
            self._backs[server] = self._connected(server)

    def _connected(self, server: str) -> zmq.Socket[bytes] | None:
        back = self._socket(zmq.DEALER)
        back.setsockopt(zmq.IMMEDIATE, 1)
        try:
            back.connect(f"tcp://{server}")
        except zmq.ZMQError as error:
            self._log.warning("server-address-wrong", server=server, error=str(error))
            back.close(linger=0)
            return None
        self._watch(back)
        return back

    def _send(self, socket: zmq.Socket[bytes], parts: Sequence[bytes]) -> None:
        """Send, or leave it: whoever is not there, or takes no more, asks again or is asked again."""
        try:
            socket.send_multipart(parts, zmq.NOBLOCK)
        except zmq.ZMQError as error:
            self._log.debug("message-not-sent", error=str(error))
        self._look(socket)

    def _wake_in_time(self) -> None:
        at_ns = self.engine.deadline()
        if at_ns is None or (self._timer is not None and self._timer_ns <= at_ns):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ns = at_ns
        self._timer = self._loop.call_later(max(0.0, (at_ns - time.monotonic_ns()) / 1e9), self._wake)

    def _wake(self) -> None:
        self._timer = None
        self._tell(DeadlineReached())
