"""The sockets of a proxy or a server of the topic service: a ROUTER for whoever asks, a DEALER to each that is asked.

    REQ ──► ROUTER: envelope, data ──► engine ──► DEALER: token, "", data ──► REP or ROUTER of the other
                                         ◄────────── the same token ◄────────┘

Whoever asks may be a REQ, as the page has it, or anything that sends an envelope and takes it back. A DEALER takes
nothing while the other is not connected: what nobody waits for any more is not said when it comes back.
Source: seed 000, section 3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import structlog
import zmq

from veredus.kernel.errors import Unavailable
from veredus.kernel.octets import Octets
from veredus.protocols.topics.exchange import Answer, Answered, Ask, Asked, Meet

from .zeromq_io import SocketReader, receive, send

ENVELOPE_SIZE_MAX = 4096
"""What is kept of a question's way until it is answered: a few bytes for each hop."""
_TOKEN_SIZE = 8


class _Watched(NamedTuple):
    socket: zmq.Socket[bytes]
    reader: SocketReader


class TopicsSockets:
    """Owns the sockets of one proxy or server; made and closed on the running loop. To a node's host it is a link."""

    def __init__(
        self,
        address: str,
        message_size_max: int,
        tell: Callable[[Asked | Answered], None],
        on_closed: Callable[[], None] = lambda: None,
    ) -> None:
        """Listen at `address` ("127.0.0.1:5551"; port 0 takes any), and `tell` what comes.

        Raises `Unavailable("port-in-use")`.
        """
        self.number = 0
        """The link that this is to a node."""
        self._tell = tell
        self._on_closed = on_closed
        self._log = structlog.get_logger("veredus")
        self._context = zmq.Context()
        self._message_size_max = message_size_max
        self._is_closed = False
        try:
            front = self._socket(zmq.ROUTER, address)
            front.bind(f"tcp://{address}")
        except zmq.ZMQError as error:
            self._context.destroy(linger=0)
            raise Unavailable("port-in-use", f"cannot listen at {address} ({error}): choose another address") from None
        self.address = front.getsockopt_string(zmq.LAST_ENDPOINT).removeprefix("tcp://")
        self._backs: dict[str, _Watched | None] = {}
        """By address; None where it is none."""
        self._envelopes: dict[int, Sequence[bytes]] = {}
        self._last_peer = 0
        self._is_paused = False
        self._front = _Watched(front, SocketReader(front, partial(self._read_question, front)))

    def close(self) -> None:
        """Close every socket; what was answered has half a second to leave."""
        if self._is_closed:
            return
        self._is_closed = True
        for socket, reader in (self._front, *(back for back in self._backs.values() if back is not None)):
            reader.close()
            socket.close(linger=500 if socket is self._front.socket else 0)
        self._context.term()
        self._on_closed()

    def carry_out(self, order: Answer | Ask | Meet) -> None:
        """Do what the engine ordered."""
        if isinstance(order, Answer):
            self._send(self._front, *self._envelopes.pop(order.peer), order.data)
        elif isinstance(order, Ask):
            back = self._meet(order.address)
            if back is not None:
                self._send(back, order.token.to_bytes(_TOKEN_SIZE), b"", order.data)
        else:
            self._meet(order.address)

    def send(self, buffers: Sequence[Octets]) -> None:
        """Nothing is said on this link but answers."""
        raise AssertionError(f"nobody hears {sum(len(buffer) for buffer in buffers)} bytes")

    def pause_reading(self) -> None:
        """Take no question for now; answers are taken."""
        self._is_paused = True

    def resume_reading(self) -> None:
        """Take questions again."""
        self._is_paused = False
        self._front.reader.look()

    # ── sockets ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _socket(self, kind: int, address: str) -> zmq.Socket[bytes]:
        socket = self._context.socket(kind)
        socket.setsockopt(zmq.MAXMSGSIZE, self._message_size_max)
        if address.startswith("["):
            socket.setsockopt(zmq.IPV6, 1)
        return socket

    def _read_question(self, front: zmq.Socket[bytes]) -> bool:
        parts = None if self._is_paused else receive(front)
        if parts is not None:
            self._take_question(parts)
        return parts is not None

    def _read_answer(self, back: zmq.Socket[bytes]) -> bool:
        parts = receive(back)
        if parts is not None:
            self._take_answer(parts)
        return parts is not None

    def _take_question(self, parts: list[bytes]) -> None:
        data = parts.pop()
        if sum(map(len, parts)) > ENVELOPE_SIZE_MAX:
            self._log.warning("envelope-too-large", sizes=[len(part) for part in parts[:8]], count=len(parts))
            return
        self._last_peer += 1
        self._envelopes[self._last_peer] = parts
        self._tell(Asked(self._last_peer, data, self.number, parts[0]))

    def _take_answer(self, parts: list[bytes]) -> None:
        if len(parts) == 3 and len(parts[0]) == _TOKEN_SIZE:
            self._tell(Answered(int.from_bytes(parts[0]), parts[2], self.number))
        else:
            self._log.warning("answer-without-token", sizes=[len(part) for part in parts])

    def _meet(self, address: str) -> _Watched | None:
        if address not in self._backs:
            try:
                back = self._socket(zmq.DEALER, address)
            except zmq.ZMQError as error:
                # There are no descriptors left: it is tried again with the next question.
                self._log.error("socket-not-opened", address=address, error=str(error))
                return None
            self._backs[address] = self._connected(back, address)
        return self._backs[address]

    def _connected(self, back: zmq.Socket[bytes], address: str) -> _Watched | None:
        back.setsockopt(zmq.IMMEDIATE, 1)
        try:
            back.connect(f"tcp://{address}")
        except zmq.ZMQError as error:
            self._log.warning("topics-address-wrong", address=address, error=str(error))
            back.close(linger=0)
            return None
        return _Watched(back, SocketReader(back, partial(self._read_answer, back)))

    def _send(self, to: _Watched, *parts: bytes) -> None:
        """Send, or leave it: whoever is not there, or takes no more, asks again or is asked again."""
        try:
            send(to.socket, *parts)
        except zmq.ZMQError as error:
            self._log.debug("message-not-sent", error=str(error))
        to.reader.look()
