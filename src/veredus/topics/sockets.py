"""The sockets of a client: a DEALER to each proxy that was asked, connected for as long as the proxy is there.

    DEALER: token, "", data ──► ROUTER of a proxy, which returns the envelope as it came: token, "", answer

To a proxy each question looks like one of a REQ socket's of its own, and a copy of it as such. An answer finds its
question by the token, so a late one to a question that was forgotten is nobody's. A monitor tells at once when there is
no connection, or no more; libzmq itself would try again for ever. It does not tell that a name leads nowhere: who hears
nothing looks that up.
Source: seed 000, section 3.
"""

from __future__ import annotations

import asyncio
from _thread import start_new_thread
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from socket import SOCK_STREAM, getaddrinfo
from typing import NamedTuple

import zmq
from zmq.utils.monitor import parse_monitor_message

from veredus.kernel.errors import words_of
from veredus.runtime.topics_credentials import Credentials
from veredus.runtime.zeromq_io import SocketReader, receive, send

_CLOSED = "closed the connection"
_TOKEN_SIZE = 8
_UNANSWERED_MAX = 3
_GONE = zmq.EVENT_CLOSED | zmq.EVENT_DISCONNECTED
_REFUSED = zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_AUTH
"""Without a detail, a handshake failed since the connection was lost: that says nothing of the client."""
_WATCHED = zmq.EVENT_CONNECTED | zmq.EVENT_HANDSHAKE_SUCCEEDED | _REFUSED | _GONE


class _Asked(NamedTuple):
    """What was asked, and as which question of all."""

    data: bytes
    number: int


@dataclass(slots=True, eq=False)
class _Link:
    """A connection, or one that is being made."""

    address: str
    socket: zmq.Socket[bytes]
    monitor: zmq.Socket[bytes]
    readers: tuple[SocketReader, ...] = ()
    """Of the socket and of its monitor, once it is connecting."""
    is_accepted: bool = False
    """Whether somebody listens there, who need not be a proxy."""
    is_connected: bool = False
    """Whether both ends are content with each other."""
    is_refused: bool = False
    """Whether they are not, or not any more."""
    is_looked_up: bool = False
    """Whether somebody looks up the name of the host, or has."""
    has_answered: bool = False
    counted: int = 0
    """How many questions had been asked when `unanswered_count` was counted last."""
    unanswered_count: int = 0
    """Times in a row that questions were forgotten without an answer; those that were there at one time count once."""
    asked: dict[int, _Asked] = field(default_factory=dict)


class ProxySockets:
    """Owns the connections to the proxies; made, used and closed on the running loop."""

    def __init__(
        self,
        message_size_max: int,
        shown: Credentials,
        answered: Callable[[int, bytes], None],
        unreachable: Callable[[int, str], None],
    ) -> None:
        """Tell `answered` what came, and `unreachable` why nothing will come, by the question's token."""
        self._message_size_max = message_size_max
        self._shown = shown
        self._answered = answered
        self._unreachable = unreachable
        self._loop = asyncio.get_running_loop()
        self._context = zmq.Context()
        self._links: dict[str, _Link] = {}
        self._link_of: dict[int, _Link] = {}
        self._asked_count = 0

    def close(self) -> None:
        """Close every connection; what is still to be sent is not."""
        for link in list(self._links.values()):
            self._drop(link)
        self._context.term()

    def ask(self, address: str, token: int, data: bytes) -> None:
        """Ask the proxy at `address`; `token` is heard of again once at the most, and not within this call.

        Asked again under the same token, it is the same question: the answer to any copy is its answer.
        """
        self.forget(token)
        known = self._links.get(address)
        link: _Link | str
        if known is None:
            link = self._connect(address)
        elif known.unanswered_count >= _UNANSWERED_MAX:
            # A peer that vanished without a word leaves a connection that looks like one.
            link = self._replace(known)
        else:
            link = known
            if not known.is_accepted and not known.is_looked_up:
                self._look_up(known)
        if isinstance(link, _Link):
            self._send(link, token, _Asked(data, self._asked_count + 1))
        else:
            self._loop.call_soon(self._unreachable, token, link)
        self._asked_count += 1

    def silence(self, address: str) -> str:
        """Why the proxy at `address` may be silent; "" where it has been greeted, or where nothing is known."""
        link = self._links.get(address)
        if link is None or not link.is_accepted or link.is_connected:
            return ""
        return f", and accepts the connection without a handshake: {self._checks()}"

    def forget(self, token: int) -> None:
        """Nobody waits for the answer to this question any more."""
        link = self._link_of.pop(token, None)
        if link is not None:
            if link.asked.pop(token).number > link.counted:
                link.unanswered_count += 1
                link.counted = self._asked_count

    def _send(self, link: _Link, token: int, asked: _Asked) -> None:
        link.asked[token] = asked
        self._link_of[token] = link
        try:
            send(link.socket, token.to_bytes(_TOKEN_SIZE), b"", asked.data)
        except zmq.Again:
            # The proxy takes no more for now: it is asked again if it does not answer in time.
            return
        link.readers[0].look()

    # ── connections ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _connect(self, address: str) -> _Link | str:
        """A connection that is being made, or why there can be none."""
        try:
            socket, monitor = self._open()
        except zmq.ZMQError as error:
            return f"cannot be connected to ({zmq.strerror(error.errno or 0)})"
        link = _Link(address, socket, monitor, counted=self._asked_count)
        try:
            socket.connect(f"tcp://{address}")
        except zmq.ZMQError as error:
            self._close(link)
            return f"is not an address to connect to ({zmq.strerror(error.errno or 0)}): write HOST:PORT"
        self._links[address] = link
        link.readers = (
            SocketReader(link.socket, partial(self._read_answer, link)),
            SocketReader(link.monitor, partial(self._read_monitor, link)),
        )
        return link

    def _open(self) -> tuple[zmq.Socket[bytes], zmq.Socket[bytes]]:
        """A socket and its monitor. Raises `ZMQError` where the process, or the machine, can open no further file."""
        socket = self._context.socket(zmq.DEALER)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.RECONNECT_IVL, -1)
        socket.setsockopt(zmq.MAXMSGSIZE, self._message_size_max)
        self._show(socket)
        try:
            return socket, socket.get_monitor_socket(_WATCHED)
        except zmq.ZMQError:
            socket.close(linger=0)
            raise

    def _show(self, socket: zmq.Socket[bytes]) -> None:
        """Prove who the client is by this socket, if it can."""
        shown = self._shown
        if shown.token:
            # Nobody looks at the name, but libzmq wants one.
            socket.setsockopt(zmq.PLAIN_USERNAME, b"veredus")
            socket.setsockopt(zmq.PLAIN_PASSWORD, shown.token.encode())
        elif shown.server_key:
            secret = shown.secret_key.encode()
            socket.setsockopt(zmq.CURVE_SERVERKEY, shown.server_key.encode())
            socket.setsockopt(zmq.CURVE_SECRETKEY, secret)
            socket.setsockopt(zmq.CURVE_PUBLICKEY, zmq.curve_public(secret))

    def _look_up(self, link: _Link) -> None:
        """See whether there is such a host; in a thread for which nobody waits, for that may take its time."""
        link.is_looked_up = True
        host, _, port = link.address.rpartition(":")

        def look_up() -> None:
            try:
                getaddrinfo(host.strip("[]"), port, type=SOCK_STREAM)
            except (OSError, UnicodeError) as error:
                reason = f"cannot be found ({getattr(error, 'strerror', '') or words_of(error)}): check the name"
                with suppress(RuntimeError):  # the loop is closed
                    self._loop.call_soon_threadsafe(self._be_nowhere, link, reason)

        with suppress(RuntimeError):  # this process can have no further thread
            start_new_thread(look_up, ())

    def _be_nowhere(self, link: _Link, reason: str) -> None:
        if self._links.get(link.address) is link and not link.is_accepted:
            self._drop(link)
            for token in link.asked:
                self._unreachable(token, reason)

    def _replace(self, link: _Link) -> _Link | str:
        """A new connection, on which all is asked again that was asked on this one."""
        self._drop(link)
        again = self._connect(link.address)
        for token, asked in link.asked.items():
            if isinstance(again, _Link):
                self._send(again, token, asked)
            else:
                self._loop.call_soon(self._unreachable, token, again)
        return again

    def _drop(self, link: _Link) -> None:
        del self._links[link.address]
        for token in link.asked:
            del self._link_of[token]
        for reader in link.readers:
            reader.close()
        self._close(link)

    def _close(self, link: _Link) -> None:
        link.socket.disable_monitor()
        link.monitor.close(linger=0)
        link.socket.close(linger=0)

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _read_answer(self, link: _Link) -> bool:
        parts = receive(link.socket)
        if parts is None:
            return False
        link.has_answered = True
        link.unanswered_count = 0
        token = int.from_bytes(parts[0]) if len(parts) == 3 and len(parts[0]) == _TOKEN_SIZE else 0
        if link.asked.pop(token, None) is not None:
            del self._link_of[token]
            self._answered(token, parts[2])
        return True

    def _read_monitor(self, link: _Link) -> bool:
        parts = receive(link.monitor)
        if parts is None:
            return False
        event = parse_monitor_message(parts)["event"]
        if event & _REFUSED:
            link.is_refused = True
        elif event & zmq.EVENT_CONNECTED:
            link.is_accepted = True
        elif event & _GONE:
            self._be_gone(link)
            return False
        else:
            link.is_connected = True
        return True

    def _be_gone(self, link: _Link) -> None:
        # What came before the connection was lost counts.
        while self._read_answer(link):
            pass
        if link.has_answered and link.asked:
            self._replace(link)
            return
        self._drop(link)
        reason = self._reason(link)
        for token in link.asked:
            self._unreachable(token, reason)

    def _reason(self, link: _Link) -> str:
        """Why nothing will come. Why a handshake was not done is not said: libzmq does not always know it."""
        if link.is_connected:
            return "does not let this client in any more: check its token or key" if link.is_refused else _CLOSED
        if not link.is_accepted:
            return "does not accept the connection: check that a proxy runs there"
        return f"accepts the connection, and closes it before the handshake is done: {self._checks()}"

    def _checks(self) -> str:
        """What to look at where somebody accepts the connection, and does not do the handshake."""
        if self._shown.token:
            check = "the token"
        elif self._shown.server_key:
            check = "the server_key, and that the proxy knows the key of this client"
        else:
            check = "whether the proxy wants a token or keys"
        what_stands_before = "a forwarder or load balancer accepts for one that is down"
        return f"check that the proxy runs ({what_stands_before}), {check}, and that this is the port of a proxy"
