"""Listening sockets whose connections are counted from the moment they are accepted.

    accept ──► admission ──► first octets, a turn ──► TLS handshake, where there is one ──► a link
                  │               (one time for all three, and for the greeting)
                  └── no place, or made room for another, or late: reset

A connection that has said nothing is a file descriptor and an entry in a table: there is no transport, no buffer and no
engine for it yet. All listeners of a node share one admission (veredus.node.admission has the rule).

Whoever has said all that he will may be waiting for the answer, or have hung up: nobody can tell. A link costs as much
as a dozen accepts, so those wait in a line of their own, and make room first: the living wait behind no dead ones. Who
has reset the connection, or cannot be answered without shaking hands, is closed at once.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import ssl
import struct
import time
from collections.abc import Callable
from typing import NamedTuple

from veredus.kernel.absence import was_away
from veredus.kernel.errors import words_of
from veredus.node.admission import Admission, AdmissionLimits
from veredus.node.lookups import Lookups
from veredus.streams.rights import LOCAL

from .checks import Checks
from .endings import Ending, ending_of
from .hearing import once_read
from .logs import Logger
from .tls_links import shake_hands
from .tls_turns import Shared
from .users import name_of_user

BEGIN_COUNT_MAX = 16
"""Connections that get a transport in one turn of the loop, which costs some 0.1 ms each; addresses take turns."""
ACCEPT_COUNT_MAX = BEGIN_COUNT_MAX
"""Connections accepted by one listener in one turn: those that are there already are heard in between. Were it more,
who comes with many and greets at once would push out his own; were it fewer, all would wait in the system's line.
"""
HANDSHAKES_AT_ONCE_MAX = 1
"""How many steps of TLS handshakes are done at once by threads: the loop has the other processors."""
ENDED_COUNT_MAX = 1
"""How many of those who write no more get a transport in one turn, beside the others: they may have hung up."""
SWEEP_NS = 100_000_000
SWEEP_S = SWEEP_NS / 1e9
LATE_NS = 250_000_000
"""For how much longer than its time a connection is kept: what it greets may be told first why it is let go."""
REST_S = 0.1
"""How long nothing is accepted when the process can open no further file."""
SHORT_NS = 10_000_000_000
"""How often it is said at most that the process can open no further file."""
UNIX_USER = "unix:"
"""In front of the name of a user of this machine, other than the node's own, who came by a Unix socket."""
NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
"""What the system says when the process, or the machine, can open no further file."""
_RESET = struct.pack("ii", 1, 0)
_CREDENTIALS = struct.Struct("3i")


class Peer(NamedTuple):
    """Who came: by which listener, from where, and whom the socket itself proves it to be ("" for nobody)."""

    listener: str
    address: str
    name: str
    principal: str


def note_refused(log: Logger, peer: Peer, reason: str) -> None:
    """Say that a connection was closed before its greeting."""
    log.debug("connection-refused", listener=peer.listener, peer=peer.name, reason=reason)


class Place:
    """The place of one connection. Owned by the connection, and taken from it when another needs the room more."""

    __slots__ = ("_arrivals", "abandon", "key")

    def __init__(self, arrivals: Arrivals, key: int, abandon: Callable[[], object]) -> None:
        """The place with this key; `abandon` ends the connection at once."""
        self._arrivals = arrivals
        self.key = key
        self.abandon = abandon

    @property
    def since_ns(self) -> int:
        """When the connection was accepted, in monotonic nanoseconds; 0 where the place was lost."""
        return self._arrivals.admission.since_ns(self.key)

    @property
    def left_s(self) -> float:
        """How much of the time to greet is left, in seconds."""
        return self._arrivals.admission.left_ns(self.key, time.monotonic_ns()) / 1e9

    def hear(self) -> None:
        """The first octets came."""
        self._arrivals.admission.hear(self.key)

    def prove(self) -> None:
        """The peer has greeted, and has a principal."""
        self._arrivals.prove(self.key)

    def leave(self) -> None:
        """The connection is gone."""
        self._arrivals.leave(self)


class Arrivals:
    """Owns the admission of one node's connections, and lets those go that are late or make room."""

    def __init__(self, loop: asyncio.AbstractEventLoop, limits: AdmissionLimits) -> None:
        """Nobody is there yet."""
        self.loop = loop
        self._log = Logger()
        self._told_short_ns: int | None = None
        self.admission = Admission(limits)
        self.handshakes = Checks(loop, "veredus-handshake", HANDSHAKES_AT_ONCE_MAX, limits.unproven_max)
        self._places: dict[int, Place] = {}
        self._heard = Lookups(BEGIN_COUNT_MAX, limits.count_max)
        self._ended = Lookups(ENDED_COUNT_MAX, limits.count_max)
        """Who was heard, and writes no more."""
        self._begins: dict[int, Callable[[], object]] = {}
        """What is to be done when its turn has come, by the key of each place in that line."""
        self._timer: asyncio.TimerHandle | None = loop.call_later(SWEEP_S, self._sweep)
        self._swept_ns = time.monotonic_ns()
        """When it was looked last who is late."""

    def enter(self, listener: str, address: str, abandon: Callable[[], object]) -> Place | None:
        """A place for a connection that was accepted, None where there is none; others may have to go for it."""
        key, displaced = self.admission.enter(listener, address, time.monotonic_ns())
        for other in displaced:
            self._turn_out(other)
        if not key:
            return None
        place = self._places[key] = Place(self, key, abandon)
        return place

    def leave(self, place: Place) -> None:
        """A connection is gone. Harmless when its place was lost before."""
        self.admission.leave(place.key)
        self._places.pop(place.key, None)
        self._lose_turn(place.key)
        place.key = 0
        place.abandon = _nothing

    def prove(self, key: int) -> None:
        """The peer has greeted, and has a principal; whoever comes from its address will wait for no crowd."""
        address = self.admission.prove(key)
        if address:
            self._heard.prove(address)
            self._ended.prove(address)
            self.handshakes.prove(address)

    def await_turn(self, place: Place, address: str, begin: Callable[[], object], has_ended: bool) -> None:
        """Let a connection that was heard `begin` when it is the turn of its address, unless it is gone by then.

        `has_ended`: its peer writes no more.
        """
        if not self._begins:
            self.loop.call_soon(self._give_turns)
        self._begins[place.key] = begin
        (self._ended if has_ended else self._heard).ask(place.key, address)

    def _give_turns(self) -> None:
        begins = []
        for line in (self._heard, self._ended):
            keys = []
            while (key := line.next()) is not None:
                keys.append(key)
            for key in keys:
                line.finish(key)
                begins.append(self._begins.pop(key))
        if self._begins:
            self.loop.call_soon(self._give_turns)
        for begin in begins:
            begin()

    def _lose_turn(self, key: int) -> None:
        self._heard.forget(key)
        self._ended.forget(key)
        self._begins.pop(key, None)

    def note_short(self, listener: str, error: OSError) -> None:
        """A connection cannot be accepted now: the process, or the machine, can open no further file."""
        now_ns = time.monotonic_ns()
        if self._told_short_ns is None or now_ns - self._told_short_ns >= SHORT_NS:
            self._told_short_ns = now_ns
            self._log.error("connections-not-accepted", listener=listener, reason=error.strerror)
        self._make_room()

    def _make_room(self) -> None:
        """Give up one unproven connection, if there is one."""
        key = self.admission.make_room()
        if key:
            self._turn_out(key)

    def close(self) -> None:
        """Watch the time no more, and let go whoever has proved nothing."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self.admission.unproven_count:
            self._make_room()
        self.handshakes.close()

    def _sweep(self) -> None:
        self._timer = self.loop.call_later(SWEEP_S, self._sweep)
        due_ns, self._swept_ns = self._swept_ns + SWEEP_NS, time.monotonic_ns()
        if was_away(due_ns, self._swept_ns, self.admission.limits.greeting_timeout_ns):
            self.admission.wait_anew(self._swept_ns)
        once_read(self.loop, self._turn_out_late)

    def _turn_out_late(self, heard_ns: int) -> None:
        for key in self.admission.take_late(heard_ns - LATE_NS):
            self._turn_out(key)

    def _turn_out(self, key: int) -> None:
        place = self._places.pop(key)
        self._lose_turn(key)
        place.key = 0
        place.abandon()


class Listener:
    """Owns the listening sockets of one address, and their connections until these are links.

    `open_link` makes the protocol of a connection that has said something and, with TLS, has shaken hands; the place is
    that protocol's to leave when the connection is lost.
    """

    def __init__(
        self,
        name: str,
        sockets: list[socket.socket],
        arrivals: Arrivals,
        peer_of: Callable[[socket.socket, object], Peer],
        open_link: Callable[[Peer, Place], asyncio.BaseProtocol],
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Accept from `sockets`, which listen already; `peer_of` is asked before anything is read."""
        self.name = name
        self._sockets = sockets
        self._arrivals = arrivals
        self._loop = arrivals.loop
        self._peer_of = peer_of
        self._open_link = open_link
        self._tls = tls
        self._shared = Shared(self._loop, arrivals.handshakes)
        """What all connections by TLS share."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self.on_refused: Callable[[Peer, str], None] = _ignore
        """Told of whom there was no place for, and of whose handshake failed, and why."""
        for listening in sockets:
            self._loop.add_reader(listening, self._accept_all, listening)

    @property
    def address(self) -> str:
        """Where it listens: `host:port` with the port that was taken, or a path."""
        return shown_address(self._sockets[0])

    def use_context(self, context: ssl.SSLContext) -> None:
        """Shake hands by this from now on, where there is TLS; links go on."""
        if self._tls is not None:
            self._tls = context

    def close(self) -> None:
        """Accept no more; links go on."""
        if self._is_closed:
            return
        self._is_closed = True
        for listening in self._sockets:
            self._loop.remove_reader(listening)
            listening.close()

    def _accept_all(self, listening: socket.socket) -> None:
        for _ in range(ACCEPT_COUNT_MAX):
            try:
                accepted, address = listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionError:
                continue
            except OSError as error:
                if error.errno not in NO_DESCRIPTOR:
                    continue
                # The socket stays readable: without a rest the loop would do nothing else.
                self._arrivals.note_short(self.name, error)
                self._loop.remove_reader(listening)
                self._loop.call_later(REST_S, self._resume, listening)
                return
            self._admit(accepted, address)

    def _resume(self, listening: socket.socket) -> None:
        if not self._is_closed:
            self._loop.add_reader(listening, self._accept_all, listening)

    def _admit(self, accepted: socket.socket, address: object) -> None:
        accepted.setblocking(False)
        try:
            peer = self._peer_of(accepted, address)
        except OSError:
            reset(accepted)
            return

        def forget() -> None:
            self._loop.remove_reader(accepted)
            reset(accepted)

        place = self._arrivals.enter(self.name, peer.address, forget)
        if place is None:
            reset(accepted)
            self.on_refused(peer, "too many connections")
        else:
            self._loop.add_reader(accepted, self._begin, accepted, peer, place)

    def _begin(self, accepted: socket.socket, peer: Peer, place: Place) -> None:
        """The first octets are there, or the peer has gone."""
        self._loop.remove_reader(accepted)
        try:
            is_gone = not accepted.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            self._loop.add_reader(accepted, self._begin, accepted, peer, place)
            return
        except OSError:
            is_gone = True
        if is_gone:
            _give_up(accepted, place)
        else:
            self._await_turn(accepted, peer, place)

    def _await_turn(self, accepted: socket.socket, peer: Peer, place: Place) -> None:
        ending = ending_of(accepted)
        if self._is_over(ending):
            _give_up(accepted, place)
            return
        has_ended = ending is not Ending.NONE
        if not has_ended:
            place.hear()
        self._arrivals.await_turn(
            place, peer.address, lambda: self._take_turn(accepted, peer, place, has_ended), has_ended
        )

    def _is_over(self, ending: Ending) -> bool:
        """Whether nothing that the peer has said can come to anything."""
        return ending is Ending.RESET or (self._tls is not None and ending is not Ending.NONE)

    def _take_turn(self, accepted: socket.socket, peer: Peer, place: Place, has_waited_last: bool) -> None:
        """The turn has come, of who was there still or (`has_waited_last`) behind those: look whether that holds."""
        ending = ending_of(accepted)
        if self._is_over(ending):
            _give_up(accepted, place)
        elif ending is not Ending.NONE and not has_waited_last:
            self._await_turn(accepted, peer, place)
        else:
            place.hear()
            self._start(accepted, peer, place)

    def _start(self, accepted: socket.socket, peer: Peer, place: Place) -> None:
        task = self._loop.create_task(self._connect(accepted, peer, place))
        self._tasks.add(task)
        place.abandon = task.cancel

        def done(_: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            if task.cancelled():
                # Perhaps before it had begun.
                reset(accepted)

        task.add_done_callback(done)

    async def _connect(self, accepted: socket.socket, peer: Peer, place: Place) -> None:
        """Make a link of the connection, with TLS within what is left of the time to greet."""
        link = self._open_link(peer, place)
        try:
            if self._tls is None:
                await self._loop.connect_accepted_socket(lambda: link, accepted)
            else:
                assert isinstance(link, asyncio.BufferedProtocol)
                left_s = max(place.left_s, 0.001)
                await shake_hands(link, accepted, self._tls, self._shared, peer.address, left_s)
        except OSError as error:
            self.on_refused(peer, str(getattr(error, "reason", None) or error.strerror or words_of(error)))
            # No certificate that we believe, no common version, too late, or gone: the peer's own library says which.
            _give_up(accepted, place)


def reset(connection: socket.socket) -> None:
    """Close at once and keep nothing of the connection, not even its end."""
    try:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    except OSError:
        # It is gone already, or its kind cannot be reset: closing is all that is left to do.
        pass
    connection.close()


def _give_up(connection: socket.socket, place: Place) -> None:
    place.leave()
    connection.close()


def shown_address(listening: socket.socket) -> str:
    """Where a socket listens, as settings write it."""
    name = listening.getsockname()
    if isinstance(name, str):
        return name
    return spelled_address(name)


def spelled_address(name: object) -> str:
    """`address:port` of an Internet socket's name, "" for any other's."""
    if not isinstance(name, tuple) or len(name) < 2:
        return ""
    return f"[{name[0]}]:{name[1]}" if ":" in str(name[0]) else f"{name[0]}:{name[1]}"


# ── TCP ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def tcp_peer_of(listener: str, principal: str) -> Callable[[socket.socket, object], Peer]:
    """Peers of a TCP listener: known by their address, and `principal` until they prove another."""

    def peer_of(_: socket.socket, address: object) -> Peer:
        assert isinstance(address, tuple)
        return Peer(listener, str(address[0]), spelled_address(address), principal)

    return peer_of


# ── Unix ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def unix_peer_of(listener: str) -> Callable[[socket.socket, object], Peer]:
    """Peers of a Unix listener by their user: the node's own is `local`, others are `unix:<user>`."""
    own_id = os.geteuid()

    def peer_of(accepted: socket.socket, _: object) -> Peer:
        credentials = accepted.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        process, user, _group = _CREDENTIALS.unpack(credentials)
        principal = LOCAL if user == own_id else UNIX_USER + name_of_user(user)
        return Peer(listener, f"user:{user}", f"process {process} of user {user}", principal)

    return peer_of


def _ignore(_: Peer, __: str) -> None:
    return None


def _nothing() -> None:
    return None
