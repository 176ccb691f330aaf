"""Somebody who alters how streams are kept, now and then; `alterations` holds what became of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from veredus.streams.exchange import AdminRequested, AnswerAdmin, Refuse
from veredus.streams.facts import StreamConfig

from .alterations import ALTER
from .network import Network
from .peers import Peer
from .world import MILLISECOND, SECOND, Violation, World


class Alterer(Peer):
    """Somebody who alters limits, and where retention is on, how much is kept."""

    def __init__(
        self, world: World, network: Network, address: str, streams: Sequence[str], config: StreamConfig
    ) -> None:
        """Who alters these streams, which are made with this configuration."""
        super().__init__(world, network, "alterer", address)
        self._streams = streams
        self._config = config
        self._request = 0
        self.is_resting = False

    def attach(self) -> None:
        """Begin what it came for."""
        self._alter_later()

    def hear(self, order: Any) -> None:
        """It is done, or was refused."""
        if not isinstance(order, AnswerAdmin | Refuse):
            raise Violation("exchange", f"{self.name} was told {order!r}")

    def lose(self) -> None:
        """What was not answered may have been done."""

    def _alter_later(self) -> None:
        port = self.port
        self.later(self.die.spread(5 * MILLISECOND, SECOND), lambda: self._alter(port))

    def _alter(self, port: object) -> None:
        if self.is_resting or self.port is None or self.port is not port:
            return
        self._request += 1
        self.world.counts["alterations"] += 1
        stream = self._streams[self.die.between(0, len(self._streams) - 1)]
        config: dict[str, object] = {"sources_max": self.die.between(1000, 9999)}
        if self._config.retention_count and self.die.chance(0.5):
            config["retention_count"] = self.die.spread(1, 300)
        if self._config.retention_size and self.die.chance(0.5):
            config["retention_size"] = self.die.spread(1 << 10, 64 << 10)
        self.ask(AdminRequested(1, self._request, self.principal, ALTER, {"name": stream, "config": config}))
        self._alter_later()
