"""A connection that speaks ZMTP on an asyncio loop, for those who carry messages themselves: the sockets of topics.

octets ──► ZmtpLink ──► messages, a few hundred in a turn of the loop ──► whoever owns the link
       ◄── ZmtpLink ◄── messages, written once in a turn ────────────────

What is taken in a turn is counted for the principal of the link, over all its links, or for the address of those that
have proved nothing: who has had its share waits for the next turn, and is not read from.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias, cast

from veredus.kernel.engine import Now
from veredus.kernel.errors import PeerFault
from veredus.kernel.octets import Octets
from veredus.kernel.turns import QUANTUM_NS, Turns
from veredus.node.connections import Stranger, is_stranger
from veredus.node.sending import Waiting
from veredus.protocols.links import Unfinished
from veredus.protocols.zmtp.connection import Message
from veredus.protocols.zmtp.link import ZmtpLink
from veredus.protocols.zmtp.mechanisms import Credential

from .clocks import read_clocks
from .hearing import once_read
from .listeners import Place
from .parting import Parting, Partings
from .sockets import ReadMemory
from .taking import Taking
from .unwritten import Unwritten

Payer: TypeAlias = str | Stranger | int
"""Who pays for what comes by a link: its principal, its address until it has one, or, of a peer that we ask, itself."""
MESSAGES_PER_TURN = 64
"""After so many messages of one payer, the others are heard."""
_MESSAGE_NS = QUANTUM_NS // MESSAGES_PER_TURN
_BYTE_NS = 2
"""What a byte of a message costs at least whoever decodes, digests and stores it."""
LATE_SIZE_MAX = 2 << 20
"""So many bytes are made in a turn of the loop, of all that is sent late."""
TICK_S = 0.05
"""How late a deadline of a link may be noticed."""


class Owner(Protocol):
    """Who hears of a link."""

    def took(self, link: MessageLink, message: Message) -> None:
        """A message came."""
        ...

    def kept(self, link: MessageLink) -> None:
        """What came was taken, but for `link.unfinished`."""
        ...

    def asked(self, link: MessageLink, shown: Credential) -> None:
        """The peer shows who it is: it waits for `link.admit` or `link.fail`."""
        ...

    def greeted(self, link: MessageLink) -> None:
        """The handshake is done: messages follow."""
        ...

    def lost(self, link: MessageLink, reason: str) -> None:
        """The connection is gone, or never came up."""
        ...

    def payer_of(self, link: MessageLink) -> Payer:
        """Whose share of a turn it is that what came by the link takes."""
        ...

    def room_for(self, link: MessageLink) -> int:
        """How many messages of the link may be taken now; for none it is told to `read_on` when some may be."""
        ...

    def read_size_of(self, link: MessageLink) -> int:
        """How many bytes are read from the link at a time."""
        ...


class Links:
    """Owns what the links of one owner share: memory to read into, a clock, turns, and each turn's end."""

    def __init__(self, unwritten: Unwritten) -> None:
        """On the running loop. A link with more bytes unwritten than `unwritten` allows it is read from no more."""
        self.loop = asyncio.get_running_loop()
        self.memory = ReadMemory()
        self.partings = Partings(self.loop)
        """The connections that this side has ended."""
        self.unwritten = unwritten
        self._turns: Turns[Payer, MessageLink] = Turns(is_of_crowd=is_stranger)
        self._turn: Now | None = None
        self._last_number = 0
        self._links: dict[MessageLink, None] = {}
        self._written: dict[MessageLink, None] = {}
        self._late: dict[MessageLink, None] = {}
        """Those that have room for what they send late, and something of that; who had a turn last stands last."""
        self._is_late_due = False
        """Whether the loop is to go on with these."""
        self._tick = self.loop.call_later(TICK_S, self._wake_all)
        self.is_closed = False
        """Whether nobody is left who could wait for the ends of links."""

    def add(self, link: MessageLink) -> None:
        """A link came up."""
        self._links[link] = None

    def remove(self, link: MessageLink) -> None:
        """A link is gone."""
        self._links.pop(link, None)
        self._written.pop(link, None)
        self._late.pop(link, None)
        self._turns.forget(link)
        self._turns.acquit(link.number)
        self.unwritten.forget(link)

    def next_number(self) -> int:
        """A number for a link, which no link of a node's host has."""
        self._last_number -= 1
        return self._last_number

    # ── turns ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def may_go(self, link: MessageLink, payer: Payer, is_its_turn: bool) -> bool:
        """Whether something of the link is taken now; otherwise it is called by `take_turn` when it may be."""
        turn = self._current_turn()
        if self._turns.has_share(payer, turn) if is_its_turn else self._turns.may_go(payer, turn):
            return True
        self._turns.wait(payer, link)
        return False

    def charge(self, payer: Payer, count: int, size: int, cost_ns: int) -> None:
        """So many messages of so many bytes were taken, and what belongs to no message has cost so much."""
        self._turns.charge(payer, count * _MESSAGE_NS + size * _BYTE_NS + cost_ns, self._current_turn())

    def _current_turn(self) -> Now:
        if self._turn is None:
            self._turn = read_clocks()
            self.loop.call_soon(self._end_turn)
        return self._turn

    def _end_turn(self) -> None:
        self._turn = None
        if self._turns.deadline() is None:
            return
        turn = self._current_turn()
        for link in self._turns.rounds(turn):
            link.take_turn()

    # ── writing ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def write_soon(self, link: MessageLink) -> None:
        """Something waits to be written: it is at the end of the turn."""
        if not self._written:
            self.loop.call_soon(self._write_all)
        self._written[link] = None

    def send_late_soon(self, link: MessageLink) -> None:
        """The link has room for what it sends late: that is made from the next turn on, a link's after another's."""
        self._late[link] = None
        if not self._is_late_due:
            self._is_late_due = True
            self.loop.call_soon(self._send_late)

    def _send_late(self) -> None:
        size = 0
        try:
            while self._late and size < LATE_SIZE_MAX:
                link = next(iter(self._late))
                del self._late[link]
                size += link.take_late()
        finally:
            self.unwritten.note_sent(size)
            self._is_late_due = bool(self._late)
            if self._late:
                self.loop.call_soon(self._send_late)

    def close(self) -> None:
        """Write what waits, and close every link."""
        self.is_closed = True
        self.partings.close()
        self._tick.cancel()
        self._write_all()
        for link in list(self._links):
            link.close()

    def _write_all(self) -> None:
        written, self._written = self._written, {}
        for link in written:
            link.write()

    def _wake_all(self) -> None:
        self._tick = self.loop.call_later(TICK_S, self._wake_all)
        once_read(self.loop, self._wake_due)

    def _wake_due(self, heard_ns: int) -> None:
        heard = read_clocks()._replace(monotonic_ns=heard_ns)
        for link in list(self._links):
            due = link.wire.deadline()
            if due is not None and due <= heard_ns:
                link.wake(heard)


class MessageLink(asyncio.BufferedProtocol):
    """Owns one connection; a link that is not read by its peer is read from no more until it is."""

    def __init__(self, links: Links, wire: ZmtpLink, owner: Owner, place: Place | None = None) -> None:
        """A link of `owner`; where it was accepted it leaves `place` when it is lost."""
        self.wire = wire
        self._links = links
        self._owner = owner
        self._place = place
        self._transport: asyncio.Transport | None = None
        self._taking: Taking | None = None
        self._parting: Parting | None = None
        self._has_greeted = False
        self._is_congested = False
        self._is_held = False
        self._is_held_back = False
        self.is_reading_on = False
        """Whether something was read that waits for a turn, or for room, to be taken."""
        self._is_asking = False
        self._has_turn = False
        self._late: deque[tuple[Callable[[], Sequence[Octets]], int]] = deque()
        """What is made when there is room for it, and how large that is."""
        self.number = links.next_number()
        self.size_max = 0
        self._received_size = 0

    @property
    def is_open(self) -> bool:
        """Whether a message may be sent: the handshake is done, and what was sent before leaves."""
        return self._has_greeted and not self._is_congested and not self._is_closing

    @property
    def unfinished(self) -> Unfinished:
        """What the link has of a message that is not whole."""
        return self.wire.connection.unfinished

    @property
    def is_filling(self) -> bool:
        """Whether half of what may be unwritten is."""
        return self._transport is not None and self._transport.get_write_buffer_size() > self.size_max // 2

    @property
    def unread_size(self) -> int:
        """Bytes that came and wait to be taken."""
        return self.wire.connection.unread_size

    @property
    def _is_ours(self) -> bool:
        """Whether the link is not read from for a reason of this side's: its peer can do nothing about it."""
        return self._is_held or self._is_held_back or self.is_reading_on

    @property
    def _is_closing(self) -> bool:
        return self._transport is None or self._parting is not None or self._transport.is_closing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is up: greet."""
        self._transport = cast(asyncio.Transport, transport)
        now, since_ns = read_clocks(), 0
        if self._place is not None:
            since_ns = self._place.since_ns
            if not since_ns:
                self._transport.abort()
                return
            self._place.abandon = self._transport.abort
        self._taking = Taking(self._transport)
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.set_size_max(self._links.unwritten.budget.link_size_max)
        self._links.add(self)
        self.wire.open(Now(since_ns or now.monotonic_ns, now.wall_ns))
        self.write()
        if self._is_held or self._is_held_back:
            self._set_reading()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Memory that nobody else looks at until `buffer_updated`."""
        return self._links.memory.offer()[: self._owner.read_size_of(self)]

    def buffer_updated(self, nbytes: int) -> None:
        """So many bytes were read."""
        self._received_size += nbytes
        self.wire.receive(self._links.memory.take(nbytes), read_clocks())
        self._read()

    def eof_received(self) -> bool:
        """The peer writes no more; nor do we then."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._links.remove(self)
        if self._place is not None:
            self._place.leave()
        fault = self.wire.fault
        self._owner.lost(self, str(fault or exc or "closed"))

    def pause_writing(self) -> None:
        """The peer does not read."""
        self._is_congested = True
        self._set_reading()

    def resume_writing(self) -> None:
        """The peer reads again."""
        self._is_congested = False
        self._set_reading()
        self._go_on_late()

    def send(self, message: Sequence[Octets]) -> None:
        """Send a message at the end of the turn; dropped where the link is closed."""
        if self._has_greeted and not self._is_closing:
            self.wire.connection.send((message,))
            self._links.write_soon(self)

    def send_late(self, make: Callable[[], Sequence[Octets]], size: int) -> None:
        """Make a message of about so many bytes, and send it, when the peer has read enough of what was sent before."""
        self._late.append((make, size))
        self._go_on_late()

    def _go_on_late(self) -> None:
        if self._late and not self._is_congested:
            self._links.send_late_soon(self)

    def take_late(self) -> int:
        """Send the first message of those that are late, if there is room for it; its size."""
        if not self._late or self._is_congested or self._is_closing:
            return 0
        make, size = self._late.popleft()
        self.wire.connection.send((make(),))
        self.write()
        self._go_on_late()
        return size

    def write(self) -> None:
        """Write what waits."""
        outgoing = self.wire.take_outgoing()
        if outgoing and self._transport is not None and not self._is_closing:
            assert self._taking is not None
            self._transport.writelines(outgoing)
            self._taking.note(outgoing)
            if self._transport.get_write_buffer_size():
                self._links.unwritten.watch(self)

    @property
    def waiting(self) -> Waiting:
        """What waits to be written."""
        assert self._transport is not None
        assert self._taking is not None
        return Waiting(
            self.number,
            self._transport.get_write_buffer_size(),
            self._taking.taken_size,
            self._received_size,
            self._is_ours,
            self._is_closing,
            is_proven=isinstance(self._owner.payer_of(self), str),
        )

    def set_size_max(self, size: int) -> None:
        """With how much unwritten the link is read from no more; it is again at a quarter of that."""
        if self._transport is not None and not self._is_closing:
            self.size_max = size
            self._transport.set_write_buffer_limits(high=size, low=size // 4)

    def abort(self) -> None:
        """Close now, whatever waits to be written."""
        if self._transport is not None:
            self._transport.abort()

    def hold(self, is_held: bool) -> None:
        """Take no message for now, or take them again."""
        self._is_held = is_held
        self._set_reading()

    def hold_back(self, is_held_back: bool) -> None:
        """Read nothing more of a message that is not whole for now, or read on. What was read is taken meanwhile."""
        self._is_held_back = is_held_back
        self._set_reading()

    def admit(self) -> None:
        """The peer is who it has shown to be."""
        self.wire.admit()
        self._is_asking = False
        self._read()

    def fail(self, fault: PeerFault) -> None:
        """End the link for this reason; what it has of a message that is not whole is dropped."""
        self.wire.connection.fail(fault)
        self._end_if_faulty()

    def wake(self, heard: Now) -> None:
        """A deadline is due, and what had arrived by then was read."""
        if self._taking is not None and self._taking.look():
            self.wire.hear(heard)
        self.wire.wake(heard)
        self._end_if_faulty()
        self.write()

    def take_turn(self) -> None:
        """Take what waits: the payer has a share again."""
        self._has_turn = True
        self.read_on()
        self._has_turn = False

    def read_on(self) -> None:
        """Take what waits, where there was no room for it before."""
        self.is_reading_on = False
        self._set_reading()

    def close(self) -> None:
        """Close once what was sent has been written."""
        while self._late and not self._is_closing:
            make, _ = self._late.popleft()
            self.send(make())
        self.write()
        if self._links.is_closed and self._transport is not None:
            self._transport.close()
        elif self._transport is not None and self._taking is not None and not self._is_closing:
            if self._place is not None:
                self._place.leave()
            self._parting = self._links.partings.begin(self._transport, self._taking, self.connection_lost)

    def _set_reading(self) -> None:
        if self._transport is None or self._is_closing:
            return
        if self._is_ours or self._is_congested:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()
        if self._is_ours:
            self.wire.pause()
        else:
            # Who reads nothing of what waits for it is silent, though we do not read from it.
            self.wire.resume(read_clocks())
            self._read()

    def _read(self) -> None:
        now, payer = read_clocks(), self._owner.payer_of(self)
        while not (self._is_held or self._is_congested or self.is_reading_on or self._is_closing):
            room = self._owner.room_for(self)
            if not room or not self._links.may_go(self, payer, self._has_turn):
                self.is_reading_on = True
                self._set_reading()
                break
            messages = self.wire.next_messages(now, room if self._has_greeted else 0)
            if self.wire.has_greeted and not self._has_greeted:
                self._has_greeted = True
                if self._place is not None:
                    self._place.prove()
                self._owner.greeted(self)
            for message in messages:
                self._owner.took(self, message)
            cost_ns = self.wire.connection.take_cost()
            self._links.charge(payer, len(messages), sum(len(message[-1]) for message in messages), cost_ns)
            if not messages and not self.wire.connection.has_more:
                self._end_if_faulty()
                break
        shown = self.wire.connection.asked
        if shown is not None and not self._is_asking:
            self._is_asking = True
            self._owner.asked(self, shown)
        self._owner.kept(self)
        self.write()

    def _end_if_faulty(self) -> None:
        if self.wire.fault is not None:
            self.write()
            self.close()
