"""A relay of TCP connections between a client and the node, which spoils them when it is told to.

    client ──► up ──► node          each way is a gate (open or held), a delay, a rate, and a budget of bytes
    client ◄── down ◄─ node

What is held stays in order and is let go when the gate opens: to both ends that is a network that was away. Where a
connection must end instead, it is reset.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from typing import Literal

Way = Literal["up", "down"]
WAYS: tuple[Way, Way] = ("up", "down")
_CHUNK_SIZE = 16 << 10
_RESET = struct.pack("ii", 1, 0)
"""With this as SO_LINGER a close is a reset."""


class _Link:
    """One connection of a client, and the one to the node that belongs to it."""

    def __init__(self, client: asyncio.StreamWriter, node: asyncio.StreamWriter) -> None:
        self.ends = (client, node)
        self.budget: int | None = None
        self.tasks: list[asyncio.Task[None]] = []

    def end(self) -> None:
        for writer in self.ends:
            reset(writer)
        for task in self.tasks:
            task.cancel()


class Proxy:
    """Owns a listener on loopback and the connections that came by it. Lives in one loop."""

    def __init__(self, host: str, port: int) -> None:
        """A relay to the node at `host` and `port`, not listening yet."""
        self.port = 0
        self.connection_count = 0
        self.relayed_sizes: dict[Way, int] = dict.fromkeys(WAYS, 0)
        """Bytes that were passed on, each way."""
        self._target = host, port
        self._gates = {way: asyncio.Event() for way in WAYS}
        self._delay_s = 0.0
        self._rate: int | None = None
        self._links: list[_Link] = []
        self._left: list[asyncio.StreamWriter] = []
        self._relays: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._open_gates()

    async def start(self) -> None:
        """Listen, on any free port; `port` says which."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=_CHUNK_SIZE)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """End everything."""
        assert self._server is not None
        self._server.close()
        self.reset()
        self._end_left()
        if self._relays:
            await asyncio.wait(self._relays)

    # ── weather ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def delay(self, seconds: float) -> None:
        """Keep every piece back for so long."""
        self._delay_s = seconds

    def throttle(self, bytes_per_s: int) -> None:
        """Let no more than this pass, each way of each connection."""
        self._rate = bytes_per_s

    def hold(self, *ways: Way) -> None:
        """Let nothing pass, and lose nothing, until `heal`."""
        for way in ways:
            self._gates[way].clear()

    def cut_after(self, size: int) -> None:
        """Reset each connection that is open now once so many more bytes have passed: mostly within a frame."""
        for link in self._links:
            link.budget = size

    def reset(self) -> None:
        """Reset both ends of each connection."""
        links, self._links = self._links, []
        for link in links:
            link.end()

    def leave_half_open(self) -> None:
        """Reset the clients' ends; the node is not told until `heal`."""
        links, self._links = self._links, []
        for link in links:
            client, node = link.ends
            for task in link.tasks:
                task.cancel()
            reset(client)
            self._left.append(node)

    def heal(self) -> None:
        """Fair weather again; whoever was left half open is reset."""
        self._delay_s, self._rate = 0.0, None
        for link in self._links:
            link.budget = None
        self._end_left()
        self._open_gates()

    def _open_gates(self) -> None:
        for gate in self._gates.values():
            gate.set()

    def _end_left(self) -> None:
        left, self._left = self._left, []
        for writer in left:
            reset(writer)

    # ── relay ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        relay = asyncio.ensure_future(self._relay(reader, writer))
        self._relays.add(relay)
        relay.add_done_callback(self._relays.discard)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connection_count += 1
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._target, limit=_CHUNK_SIZE)
        except OSError:
            reset(writer)
            return
        link = _Link(writer, far_writer)
        self._links.append(link)
        link.tasks = [
            asyncio.ensure_future(self._pass_on(link, "up", reader, far_writer)),
            asyncio.ensure_future(self._pass_on(link, "down", far_reader, writer)),
        ]
        await asyncio.wait(link.tasks, return_when=asyncio.FIRST_COMPLETED)
        if link in self._links:
            self._links.remove(link)
            link.end()

    async def _pass_on(self, link: _Link, way: Way, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(_CHUNK_SIZE):
                await self._gates[way].wait()
                if self._delay_s:
                    await asyncio.sleep(self._delay_s)
                if self._rate is not None:
                    await asyncio.sleep(len(data) / self._rate)
                # It may have been held, or slowed, when the weather changed.
                await self._gates[way].wait()
                if link.budget is not None:
                    data = data[: link.budget]
                    link.budget -= len(data)
                writer.write(data)
                await writer.drain()
                self.relayed_sizes[way] += len(data)
                if link.budget == 0:
                    return


def reset(writer: asyncio.StreamWriter) -> None:
    """Close at once, so that the other end sees a reset; what was not sent yet is lost."""
    end = writer.get_extra_info("socket")
    if end is not None and end.fileno() >= 0:
        with contextlib.suppress(OSError):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()
