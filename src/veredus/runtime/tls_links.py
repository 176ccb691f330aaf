"""TLS between a socket and a link: what the link writes waits as it was given, and is sealed when it can leave.

    socket ──► a read of `READ_SIZE_MAX` at most ──► opened ──► the link, as far as it takes
    socket ◄── `SEALED_SIZE_MAX` at most ◄────────── sealed ◄── what the link has written

What is sealed is a copy, of whatever many links share, and nobody would know how much of it waits: so no more of it is
made than the socket takes. What was read of a link that is not read from waits in this process, too: so it is little.
A record costs a peer nothing to repeat, and may bring nothing at all: new keys, or one byte. So records are counted: in
a turn of the loop only so many are opened, for all connections, and few of one before the next has its go.
A step of the handshake may cost a private key's operation, whoever asks for it: a thread does it, once it is the turn
of the peer's address, and nothing more is read of the peer meanwhile. Who has gone by then has cost none.
Who was told goodbye is heard no more: what still comes brings nothing, and is thrown away as it is, in the same line,
until the peer has gone. Left in the system, it would reset the connection, and what was written last would be lost.
A link sees a transport that says of what waits what one without TLS would say.
Source: RFC 8446, section 6.1 (how a connection ends); asyncio's protocols and transports.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import Any, Final, cast

from veredus.kernel.octets import Octets
from veredus.kernel.symbol import Symbol

from .checks import Crowded, Unwanted
from .endings import Ending, ending_of
from .tls_records import HEAD_SIZE, Records
from .tls_turns import GO_COUNT, READ_SIZE_MAX, READ_SIZE_MIN, Shared

SEALED_SIZE_MAX: Final = 64 << 10
HELLO_SIZE_MAX: Final = 16 << 10
"""The TLS library takes memory for as large a first message as its peer says that it will be; 2 KiB are usual."""
_HELLO_HEAD_SIZE = HEAD_SIZE + 4
"""A record's head, and a message's: its kind, and its size in three octets."""
_HANDSHAKE: Final = 0x16
"""How a record begins that is of a handshake."""
_NO_TLS: Final = b"\x15\x03\x03\x00\x02\x02\x46"
"""The fatal alert protocol_version (RFC 8446, section 6.2): whoever began with something else can tell what he met."""
_RECORD_SIZE_MAX: Final = 16 << 10
_NOBODY: Final = asyncio.BufferedProtocol()
"""Whose connection it is once it is gone."""


class Phase(Symbol):
    """Where a connection stands: it shakes hands, is open, flushes what was written, says goodbye, and is over."""

    SHAKING = "shaking"
    OPEN = "open"
    FLUSHING = "flushing"
    LEAVING = "leaving"
    OVER = "over"


async def shake_hands(
    link: asyncio.BufferedProtocol,
    accepted: socket.socket,
    context: ssl.SSLContext,
    shared: Shared,
    address: str,
    timeout_s: float,
) -> None:
    """Make `link` the link of a connection from `address` by TLS; all that share `shared` are on this loop.

    Raises `OSError` where the handshake fails, or takes longer than `timeout_s`.
    """
    loop = asyncio.get_running_loop()
    make = partial(TlsTransport, loop, link, context, shared, address)
    _, between = await loop.connect_accepted_socket(make, accepted)
    try:
        async with asyncio.timeout(timeout_s):
            await between.shaken
    except TimeoutError:
        between.abort()
        raise ConnectionAbortedError("the TLS handshake was not complete in time") from None
    except OSError:
        between.leave()
        raise
    except BaseException:
        between.abort()
        raise
    finally:
        # What is raised knows this frame, and `shaken` what is raised: a cycle, which would hold all that TLS has.
        del between


class TlsTransport(asyncio.BufferedProtocol, asyncio.Transport):
    """The protocol of a socket's transport, and the transport of a link; see the module for the picture."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        link: asyncio.BufferedProtocol,
        context: ssl.SSLContext,
        shared: Shared,
        address: str,
    ) -> None:
        """The server's end; `link` hears of the connection once the handshake is done."""
        self.shaken: asyncio.Future[None] = loop.create_future()
        self._loop = loop
        self._link = link
        self._shared = shared
        self._address = address
        self._step = 0
        """The key of the step of the handshake that is waited for, 0 for none. Until it is done, TLS is a thread's."""
        self._has_answered = self._is_second = False
        """Whether a step was done: the peer has heard of us, and may have said why it goes."""
        self._phase = Phase.SHAKING
        self._socket: asyncio.Transport | None = None
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._waiting: deque[memoryview] = deque()
        self._waiting_size = 0
        self._high, self._low = SEALED_SIZE_MAX, SEALED_SIZE_MAX // 4
        self._is_full = False
        """Whether the socket's transport takes no more for now."""
        self._is_congested = False
        """Whether the link was told that it writes too much."""
        self._is_held = False
        """Whether the link is not read from."""
        self._is_resting = False
        """Whether the socket is not read from."""
        self._head: bytes | None = b""
        """How the peer's first message begins, until that is known."""
        self._opened_size = 0
        """What was opened of all that came."""
        self._records = Records()
        self._unopened = b""
        """What was read and has not had its go."""
        self._read_size = READ_SIZE_MIN
        self._is_waiting = False
        """Whether it waits in the line for its go."""
        self._is_made = False
        """Whether the link has heard of its connection."""
        self._has_ended = False
        """Whether the peer writes no more, by its word or by the socket's."""
        self._is_at_end = False
        """Whether it is so by the socket's: there is nothing to read."""
        self._has_left = False
        """Whether the peer was told goodbye."""

    # ── the socket's side ────────────────────────────────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is up: wait for the peer's first words."""
        self._socket = cast(asyncio.Transport, transport)
        self._socket.set_write_buffer_limits(high=SEALED_SIZE_MAX, low=SEALED_SIZE_MAX // 4)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Memory of all connections, which `buffer_updated` empties."""
        return self._shared.memory[: READ_SIZE_MIN if self._shared.line.is_spent else self._read_size]

    def buffer_updated(self, nbytes: int) -> None:
        """So many sealed bytes came."""
        data = self._shared.memory[:nbytes]
        if self._phase is Phase.LEAVING:
            self._await_turn()
        elif self._phase in (Phase.FLUSHING, Phase.OVER):
            # It was on its way when this side, or the peer, ended the connection.
            return
        elif self._head is not None and not self._greets(data):
            return
        elif self._phase is Phase.SHAKING:
            # A thread opens them, when it is the turn of the address.
            self._records.take(data, nbytes)
            self._incoming.write(data)
            self._shake()
        elif self._unopened or self._shared.line.is_spent:
            self._unopened += data
            self._await_turn()
        else:
            self._go(data)

    def _go(self, data: memoryview) -> None:
        """Open as many of these records as one go has; the others wait for the next."""
        size, count = self._records.take(data, GO_COUNT)
        self._shared.line.spend(count)
        self._incoming.write(data[:size])
        self._unopened = bytes(data[size:])
        opened_size = self._opened_size
        self._go_on()
        if not self._is_held:
            self._read_size = READ_SIZE_MAX if self._opened_size > opened_size else READ_SIZE_MIN

    def _await_turn(self) -> None:
        """Read nothing more before it had its go."""
        self._is_waiting = True
        self._hold()
        self._shared.line.wait(self)

    def take_turn(self) -> None:
        """It is first in the line: have a go."""
        self._is_waiting = False
        if self._phase is Phase.LEAVING:
            self._shared.line.spend(GO_COUNT)
        elif self._has_go:
            self._go(memoryview(self._unopened))
        self._hold()

    @property
    def _has_go(self) -> bool:
        """Whether something waits for its go, and may have it."""
        return bool(self._unopened) and self._phase is Phase.OPEN and not self._is_ours

    def eof_received(self) -> bool:
        """The peer writes no more, and has perhaps not said goodbye."""
        self._has_ended = self._is_at_end = self._is_resting = True
        if self._phase is Phase.SHAKING and not self._step:
            self._fail_handshake(_gone())
        self._go_on()
        # What waits to be written leaves first, as far as the peer takes it.
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        before, self._phase = self._phase, Phase.OVER
        self._waiting.clear()
        self._waiting_size = 0
        self._unopened = b""
        self._socket = None
        self._shared.steps.forget(self._step)
        # The link knows this transport: a cycle would hold all that TLS has until garbage is collected.
        link, self._link = self._link, _NOBODY
        if before is Phase.SHAKING:
            self._fail_handshake(exc or _gone())
        elif self._is_made:
            link.connection_lost(exc)

    def pause_writing(self) -> None:
        """The socket takes no more for now."""
        self._is_full = True

    def resume_writing(self) -> None:
        """The socket takes more."""
        self._is_full = False
        self._go_on()

    # ── the handshake, and what comes ────────────────────────────────────────────────────────────────────────────────

    def _go_on(self) -> None:
        if self._step:
            return
        if self._phase in (Phase.OPEN, Phase.FLUSHING):
            self._read()
        self._write()
        if self._phase is Phase.LEAVING:
            self._say_goodbye()
        if self._has_go and not self._is_waiting:
            self._await_turn()
        self._hold()

    def _greets(self, data: memoryview) -> bool:
        """Whether the peer's first message may go on as it begins; the library has what came of it so far."""
        assert self._head is not None
        self._head += data[:_HELLO_HEAD_SIZE]
        if self._head[0] != _HANDSHAKE:
            # The library would wait for a whole head, and the peer for its answer.
            said = f"a connection must begin with TLS, not with {self._head[0]:02X}"
            self._fail_handshake(ConnectionAbortedError(said), _NO_TLS)
            return False
        if len(self._head) < _HELLO_HEAD_SIZE:
            return True
        is_whole = int.from_bytes(self._head[3:5], "big") >= _HELLO_HEAD_SIZE - HEAD_SIZE
        if not is_whole or int.from_bytes(self._head[6:9], "big") > HELLO_SIZE_MAX:
            self._fail_handshake(ConnectionAbortedError("the ClientHello is too large, or in pieces too small"))
            return False
        self._head = None
        return True

    def _shake(self) -> None:
        """Have the next step done when it is the address's turn."""
        # The second one mostly ends it. Of those behind it there may be one for each octet.
        is_begun, self._is_second = self._is_second, False
        ask, step = self._shared.steps.ask, self._tls.do_handshake
        self._step = ask(self._address, step, self._take_step, self._is_there, is_begun)
        self._hold()

    def _is_there(self) -> bool:
        """Whether the peer is still there for its first answer; what comes later may be why it goes."""
        if self._socket is None or self._socket.is_closing():
            return False
        return self._has_answered or ending_of(self._socket.get_extra_info("socket")) is Ending.NONE

    def _take_step(self, done: Exception | None) -> None:
        self._is_second = not self._has_answered
        self._step, self._has_answered = 0, True
        if done is None:
            self._phase, self._is_made = Phase.OPEN, True
            self._link.connection_made(self)
            if not self.shaken.done():
                self.shaken.set_result(None)
        elif isinstance(done, Crowded):
            self._fail_handshake(ConnectionAbortedError("too many handshakes wait for their turn"))
        elif isinstance(done, Unwanted) or (self._has_ended and isinstance(done, ssl.SSLWantReadError)):
            self._fail_handshake(_gone())
        elif not isinstance(done, ssl.SSLWantReadError):
            self._fail_handshake(done)
        self._go_on()

    def _fail_handshake(self, error: Exception, alert: bytes = b"") -> None:
        if not self.shaken.done():
            self._outgoing.write(alert)
            self.shaken.set_exception(error)

    def _read(self) -> None:
        """Open what came, and give it to the link, as long as that takes it."""
        while not self._is_held and self._phase is Phase.OPEN:
            buffer = self._link.get_buffer(-1)
            size, is_more = self._open(cast(memoryview, buffer))
            self._opened_size += size
            if size:
                self._link.buffer_updated(size)
            if not is_more:
                break
        if self._has_ended and not self._is_held and not self._unopened:
            self.close()

    def _open(self, buffer: memoryview) -> tuple[int, bool]:
        """Fill the buffer; how far, and whether there may be more."""
        size = 0
        try:
            while size < len(buffer):
                count = cast(int, self._tls.read(len(buffer) - size, buffer[size:]))
                if not count:
                    # What is behind the peer's goodbye is not of the connection.
                    self._has_ended, self._unopened = True, b""
                    return size, False
                size += count
        except ssl.SSLWantReadError:
            return size, False
        except ssl.SSLError:
            self.abort()
            return size, False
        return size, True

    @property
    def _is_ours(self) -> bool:
        """Whether nothing is read for a reason of this side's."""
        return self._is_held or self._outgoing.pending >= SEALED_SIZE_MAX

    def _hold(self) -> None:
        """Read nothing more while the link does not, and while what the peer has asked for waits unread."""
        if self._socket is None or self._socket.is_closing() or self._is_at_end:
            return
        is_ours = self._phase is Phase.FLUSHING or (self._phase is Phase.OPEN and self._is_ours)
        is_resting = bool(self._step) or self._is_waiting or is_ours
        if is_resting and not self._is_resting:
            self._socket.pause_reading()
        elif self._is_resting and not is_resting:
            self._socket.resume_reading()
        self._is_resting = is_resting

    # ── what leaves ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _write(self) -> None:
        """Seal and write as much as the socket takes, then tell the link."""
        while self._socket is not None and not self._is_full and not self._socket.is_closing():
            if self._outgoing.pending:
                self._socket.write(self._outgoing.read())
            elif not self._waiting or not self._seal():
                break
        self._tell_congested()
        if self._phase is Phase.FLUSHING and not self._waiting:
            self._phase = Phase.LEAVING

    def _seal(self) -> bool:
        """Seal one record's worth of what waits, or what the peer lets a record have; whether that went."""
        size = 0
        pieces: list[memoryview] = []
        for piece in self._waiting:
            if pieces and size + len(piece) > _RECORD_SIZE_MAX:
                break
            pieces.append(piece)
            size += len(piece)
        try:
            size = self._tls.write(b"".join(pieces) if len(pieces) > 1 else pieces[0][:_RECORD_SIZE_MAX])
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError:
            self.abort()
            return False
        self._waiting_size -= size
        while size:
            first = self._waiting.popleft()
            if len(first) > size:
                self._waiting.appendleft(first[size:])
            size -= min(size, len(first))
        return True

    def _tell_congested(self) -> None:
        if self._phase is Phase.SHAKING or self._phase is Phase.OVER:
            return
        size = self.get_write_buffer_size()
        if size > self._high and not self._is_congested:
            self._is_congested = True
            self._link.pause_writing()
        elif size <= self._low and self._is_congested:
            self._is_congested = False
            self._link.resume_writing()

    def _say_goodbye(self) -> None:
        """All was written: say so, end what this side writes, and close when the peer has ended, too."""
        if not self._has_left:
            self._has_left = True
            self._read_size = READ_SIZE_MAX
            # To unwrap is to open what waits, too.
            self._incoming.read()
            self._unopened = b""
            with suppress(ssl.SSLError):
                self._tls.unwrap()
            self._write()
        if self._socket is None or self._outgoing.pending:
            # It leaves when the socket takes more.
            return
        if self._has_ended:
            self.leave()
        else:
            # A peer that has said goodbye may wait for ours to end the connection.
            with suppress(OSError):
                self._socket.write_eof()

    def leave(self) -> None:
        """Close once what was sealed has left: after the goodbye, or what TLS says of a handshake that failed."""
        self._phase = Phase.OVER
        self._write()
        if self._socket is not None:
            self._socket.close()

    # ── the link's side ──────────────────────────────────────────────────────────────────────────────────────────────

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Write these bytes behind all others."""
        self.writelines((data,))

    def writelines(self, list_of_data: Iterable[Octets]) -> None:
        """Write the buffers in order. They are not copied before they leave: nobody may write to them."""
        if self._phase is not Phase.OPEN:
            return
        for data in list_of_data:
            if len(data):
                self._waiting.append(memoryview(data))
                self._waiting_size += len(data)
        self._write()

    def get_write_buffer_size(self) -> int:
        """What was written and has not reached the system, sealed or not."""
        there = 0 if self._socket is None else self._socket.get_write_buffer_size()
        return self._waiting_size + self._outgoing.pending + there

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """With how much unwritten the link is told so, and with how little it is told that this is over."""
        self._high = SEALED_SIZE_MAX if high is None else high
        self._low = self._high // 4 if low is None else low
        self._tell_congested()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """The socket, its names, or the `ssl_object`."""
        if name == "ssl_object":
            return self._tls
        return default if self._socket is None else self._socket.get_extra_info(name, default)

    def is_closing(self) -> bool:
        """Whether nothing more can be written."""
        return self._phase is not Phase.OPEN or self._socket is None or self._socket.is_closing()

    def pause_reading(self) -> None:
        """Give the link nothing more for now."""
        self._is_held = True
        self._hold()

    def resume_reading(self) -> None:
        """Give the link what came meanwhile, and what comes."""
        if self._is_held:
            self._is_held = False
            self._loop.call_soon(self._go_on)

    def close(self) -> None:
        """Close once what was written has left, and the peer has been told."""
        if self._phase is Phase.OPEN:
            self._phase = Phase.FLUSHING
            self._loop.call_soon(self._go_on)

    def abort(self) -> None:
        """Close now, whatever waits."""
        self._phase = Phase.OVER if self._phase is not Phase.SHAKING else self._phase
        if self._socket is not None:
            self._socket.abort()


def _gone() -> ConnectionResetError:
    return ConnectionResetError("the peer has gone")
