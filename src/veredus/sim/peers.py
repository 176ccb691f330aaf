"""A peer: a process with one link to a node, which it opens again, after a pause, whenever it is gone.

Invariants
    (1) What reaches a process that was killed changes nothing: each has a life of its own.
    (2) A peer that has stopped never connects again by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from veredus.kernel.engine import Now
from veredus.streams.rights import LOCAL

from .dice import Die
from .gates import Gate
from .native import NativePort
from .network import End, Network
from .ports import PlainPort, Port
from .world import MILLISECOND, SECOND, Clock, World


class Peer:
    """Owns one process's link; what it says and hears is for its kinds."""

    def __init__(self, world: World, network: Network, name: str, address: str, principal: str = LOCAL) -> None:
        """A process that is not started, of somebody called `name`, who speaks to the node at `address`."""
        self.world = world
        self.principal = principal
        self.network = network
        self.name = name
        self.address = address
        self.clock = Clock(world, 0.0, 0)
        self.die: Die = world.dice.die(f"peer/{name}")
        self.port: Port | None = None
        self.is_alive = False
        self.gate = Gate(world)
        """What it does not do while it is stopped."""
        self._end: End | None = None

    def start(self) -> None:
        """Begin to live."""
        self.is_alive = True
        self.world.principals[self.name] = self.principal
        self.world.tell(self.name, "starts")
        self._connect()

    def kill(self, why: str) -> None:
        """End at once; nothing that it had in memory is left."""
        if self.is_alive:
            self.world.tell(self.name, f"is killed, {why}")
            self.is_alive = False
            self.gate.clear()
            self.port = None
            self.network.drop(self.name, "reset by peer")

    def stop(self, why: str) -> None:
        """Stop for good."""
        self.world.tell(self.name, f"stops: {why}")
        self.is_alive = False
        if self.port is not None:
            self.port.close()
            self.port = None

    def later(self, delay_ns: int, action: Callable[[], None]) -> None:
        """Do something after a while, if still alive then."""

        def act() -> None:
            if self.is_alive:
                action()

        self.world.after(delay_ns, lambda: self.gate.through(act))

    @property
    def now(self) -> Now:
        """The peer's clocks."""
        return self.clock.now()

    def ask(self, fact: Any) -> None:
        """Tell the node, if there is a link."""
        if self.port is not None:
            self.port.ask(fact)

    # ── the link ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _connect(self) -> None:
        self.network.connect(self.name, self.address, lambda end: self.gate.through(lambda: self._connected(end)))

    def _connected(self, end: End | None) -> None:
        if not self.is_alive:
            if end is not None:
                end.close("nobody there")
            return
        if end is None or not end.is_open:
            self.reconnect()
            return
        self._end = end

        def said(order: object) -> None:
            if self.is_alive and self._end is end:
                self.hear(order)

        def closed(reason: str) -> None:
            if self.is_alive and self._end is end:
                self.world.tell(self.name, f"lost its link: {reason}")
                self._forget_link()

        def welcomed(port: Port) -> None:
            if self.is_alive and self._end is end:
                self.port = port
                self.attach()

        if self.network.is_plain:
            welcomed(PlainPort(end, self.gate, said, closed))
        else:
            NativePort(self.world, self.clock, self.gate, end, said, closed, welcomed)

    def _forget_link(self) -> None:
        was_open, self.port, self._end = self.port is not None, None, None
        if was_open:
            self.lose()
        self.reconnect()

    def leave(self) -> None:
        """Give the link up, and open another one."""
        if self.port is not None:
            port = self.port
            self._forget_link()
            port.close()

    def reconnect(self) -> None:
        """Open a link again, after a pause."""
        delay_ns = self.die.spread(MILLISECOND, SECOND if not self.network.is_calm else 50 * MILLISECOND)
        self.later(delay_ns, self._connect)

    # ── for its kinds ────────────────────────────────────────────────────────────────────────────────────────────────

    def attach(self) -> None:
        """A link is open: ask for what is wanted."""
        raise NotImplementedError

    def hear(self, order: Any) -> None:
        """The node said something."""
        raise NotImplementedError

    def lose(self) -> None:
        """The link is gone, and with it all answers that had not come."""
        raise NotImplementedError
