"""The host: one inbox, one loop, one match. The only code that gives an engine its events and carries out its orders.

    sockets ──┐                                  ┌──► sockets (adjacent sends joined)
    disk ─────┼──► inbox ──► engine.handle ──────┼──► disk thread
    clock ────┘   (one run per loop iteration)   └──► log

What arrives in one iteration of the loop is handled in one run: so what many sources offered at once becomes one group
on the disk,
and what one link is to be sent leaves in one write.
Source: docs/internals/DESIGN.md, "Hosts".
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

from veredus.kernel.effects import Admit, CloseLink, Note, PauseReading, ResumeReading, Send
from veredus.kernel.engine import Engine
from veredus.kernel.errors import VeredusError, ending_of
from veredus.kernel.events import DeadlineReached, LinkClosed, LinkOpened, Received
from veredus.kernel.octets import Octets

from .clocks import read_clocks
from .hearing import once_read
from .logs import Logger, say_held_back
from .peers import Peers

INBOX_SIZE_MAX = 64 << 20
"""Bytes that came over links and are handled at the latest when there are so many, though the loop has more to read."""
TICK_S = 0.02
"""How late a deadline may be noticed; what must be quicker is driven by events."""


class Link(Protocol):
    """A connection's writing end, as the host uses it."""

    def send(self, buffers: Sequence[Octets]) -> None:
        """Write the buffers in order; on frame transports they are one frame."""
        ...

    def close(self) -> None:
        """Close once what was sent has been written."""
        ...

    def admit(self) -> None:
        """The peer has greeted, and has a principal."""
        ...

    def pause_reading(self) -> None:
        """Deliver no more bytes for now."""
        ...

    def resume_reading(self) -> None:
        """Deliver bytes again."""
        ...


class Host:
    """Owns the inbox, the links by number, and the tick; calls the engine from one loop and nowhere else."""

    def __init__(
        self, engine: Engine[object, object], loop: asyncio.AbstractEventLoop, carry_out: Callable[[object], None]
    ) -> None:
        """A host for `engine`; `carry_out` gets the orders that are not about links (the disk's, the node's)."""
        self.engine = engine
        self.links: dict[int, Link] = {}
        self._loop = loop
        self._carry_out = carry_out
        self._inbox: list[object] = []
        self._inbox_size = 0
        self._is_scheduled = False
        self._is_running = False
        self._is_stopped = False
        self._tick: asyncio.TimerHandle | None = None
        self._heard_ns = time.monotonic_ns()
        """What had arrived by then was handed to the engine."""
        self.log = Logger()
        """What notes are said with."""
        self.peers = Peers(loop)
        """Who is behind each link, and behind the connections of links that carry the questions of many."""
        self.failure: BaseException | None = None
        self.on_failure: Callable[[BaseException], None] = _ignore

    def start(self) -> None:
        """Begin to tick."""
        self._tick = self._loop.call_later(TICK_S, self._on_tick)

    def stop(self) -> None:
        """Tick no more, and handle nothing that still arrives."""
        if self._tick is not None:
            self._tick.cancel()
        self._is_scheduled = self._is_stopped = True

    @property
    def is_stopped(self) -> bool:
        """Whether nobody is left who could wait for anything."""
        return self._is_stopped

    def open_link(
        self, link: Link, door: str, peer: str, principal: str = "", accepted_ns: int = 0, address: str = ""
    ) -> int:
        """A link came up, of a connection from `address` accepted at `accepted_ns`; its number for the engine."""
        number = self.peers.enter(door, peer, address)
        self.links[number] = link
        self.post(LinkOpened(number, door, peer, principal, accepted_ns))
        return number

    def close_link(self, number: int, reason: str) -> None:
        """A link is gone."""
        if self.links.pop(number, None) is not None:
            self.post(LinkClosed(number, reason))
            self.peers.leave(number)

    def note(self, note: Note) -> None:
        """Say in the log what an engine, or a part of ours, has noted; where and who is added for a link's."""
        self.log.say(note.level, note.event, self.peers.located(note.fields))

    def receive(self, number: int, data: Octets) -> None:
        """Bytes came over a link; from the loop's thread only, outside of what the host carries out."""
        self.post(Received(number, data))
        self._inbox_size += len(data)
        if self._inbox_size > INBOX_SIZE_MAX and not self._is_running and not self._is_stopped:
            self._run()

    def post(self, event: object) -> None:
        """Put an event into the inbox; from the loop's thread only."""
        self._inbox.append(event)
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._run)

    def post_all(self, events: Sequence[object]) -> None:
        """Put several events into the inbox; from the loop's thread only."""
        self._inbox.extend(events)
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._run)

    def post_from_thread(self, events: Sequence[object]) -> None:
        """Put several events into the inbox; from any thread. Where the loop is closed, nobody waits for them."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self.post_all, events)

    def _on_tick(self) -> None:
        self._tick = self._loop.call_later(TICK_S, self._on_tick)
        say_held_back()
        once_read(self._loop, self._judge)

    def _judge(self, heard_ns: int) -> None:
        self._heard_ns = heard_ns
        due = self.engine.deadline()
        if due is not None and due <= time.monotonic_ns():
            self.post(DeadlineReached(heard_ns))

    def _run(self) -> None:
        self._is_scheduled, self._is_running = False, True
        events, self._inbox, self._inbox_size = self._inbox, [], 0
        now = read_clocks()
        sends: dict[int, list[Octets]] = {}
        try:
            for event in events:
                for effect in self.engine.handle(event, now):
                    self._do(effect, sends)
            due = self.engine.deadline()
            if due is not None and due <= now.monotonic_ns:
                for effect in self.engine.handle(DeadlineReached(self._heard_ns), now):
                    self._do(effect, sends)
                due = self.engine.deadline()
        except BaseException as error:
            self.stop()
            self.failure = ending_of(error)
            self.on_failure(self.failure)
            if isinstance(self.failure, VeredusError):
                # It was told: where in the code it came up says nothing more.
                return
            raise
        # What a run ends with is what subscribers are fed: it leaves first. A receipt that left before it would wake a
        # publisher, which takes the processor away from us where there are few.
        for number, buffers in reversed(sends.items()):
            self._flush(number, buffers)
        self._is_running = False
        if due is not None and due <= time.monotonic_ns() and not self._is_scheduled:
            # Work that goes on in turns: the sockets are looked at in between.
            self._is_scheduled = True
            self._loop.call_soon(self._run)

    def _do(self, effect: object, sends: dict[int, list[Octets]]) -> None:
        match effect:
            case Send(link, buffers):
                target = self.links.get(link)
                if target is None:
                    return
                if getattr(target, "is_framed", False):
                    target.send(buffers)
                else:
                    waiting = sends.get(link)
                    if waiting is None:
                        sends[link] = list(buffers)
                    else:
                        waiting.extend(buffers)
            case Note():
                self.note(effect)
            case CloseLink(link, _):
                self._flush(link, sends.pop(link, []))
                target = self.links.get(link)
                if target is not None:
                    target.close()
            case Admit(link, _):
                if link in self.links:
                    self.links[link].admit()
            case PauseReading(link):
                if link in self.links:
                    self.links[link].pause_reading()
            case ResumeReading(link):
                if link in self.links:
                    self.links[link].resume_reading()
            case _:
                self._carry_out(effect)

    def _flush(self, number: int, buffers: list[Octets]) -> None:
        link = self.links.get(number)
        if link is not None and buffers:
            link.send(buffers)


def _ignore(_: BaseException) -> None:
    return None
