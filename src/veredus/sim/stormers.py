"""Who subscribes in storms: many at once, durable and not, with every taste, and leaves again before much has come."""

from __future__ import annotations

from typing import Any

from veredus.streams.exchange import (
    CreditGranted,
    Push,
    SessionClosed,
    SubscribeRequested,
)

from .content import TASTES
from .network import Network
from .peers import Peer
from .world import MICROSECOND, MILLISECOND, SECOND, World

CHANNEL_MAX = 60_000
PREFIX = "storm-"
"""What the names of its durable subscribers begin with: nobody waits for those."""


class Stormer(Peer):
    """Somebody with many subscriptions, none of which lasts."""

    def __init__(self, world: World, network: Network, address: str, streams: tuple[str, ...]) -> None:
        """Who subscribes to these streams."""
        super().__init__(world, network, "stormer", address)
        self._streams = streams
        self._channel = 0
        self._count_max = self.die.spread(2, 40)
        self.is_resting = False

    def attach(self) -> None:
        """Begin with a storm."""
        self._storm()

    def lose(self) -> None:
        """It begins again."""

    def _storm(self) -> None:
        if self.is_resting or self.port is None:
            return
        self.world.counts["fault.storm"] += 1
        for _ in range(self.die.between(1, self._count_max)):
            self._subscribe()
        port = self.port
        self.later(self.die.spread(20 * MILLISECOND, 2 * SECOND), lambda: self._storm() if self.port is port else None)

    def _subscribe(self) -> None:
        die, port = self.die, self.port
        self._channel = channel = self._channel % CHANNEL_MAX + 1
        is_durable = die.chance(0.4)
        fact = SubscribeRequested(
            channel,
            "local",
            self._streams[die.between(0, len(self._streams) - 1)],
            f"{PREFIX}{die.between(1, 5)}" if is_durable else "",
            "main" if is_durable else "",
            TASTES[die.between(0, len(TASTES) - 1)].filter,
            incarnation=die.octets(16) if is_durable else b"",
            credit=die.spread(1, 16 << 10) - 1,
        )
        self.ask(fact)

        def leave() -> None:
            if self.port is port:
                self.ask(SessionClosed(channel))

        self.later(die.spread(10 * MICROSECOND, SECOND), leave)

    def hear(self, order: Any) -> None:
        """It takes what comes; what it is refused it does not mind."""
        if isinstance(order, Push):
            self.ask(CreditGranted(order.session, order.size))
