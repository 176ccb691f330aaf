"""Who deletes a stream now and then, under the feet of those who use it; by its next use it comes again, as another."""

from __future__ import annotations

from typing import Any

from veredus.streams.exchange import AdminRequested, AnswerAdmin, Refuse

from .network import Network
from .peers import Peer
from .world import MILLISECOND, SECOND, Violation, World


class Reaper(Peer):
    """Somebody who deletes one stream now and then."""

    def __init__(self, world: World, network: Network, address: str, stream: str) -> None:
        """Who deletes `stream`."""
        super().__init__(world, network, "reaper", address)
        self._stream = stream
        self._request = 0
        self.is_resting = False

    def attach(self) -> None:
        """Begin what it came for."""
        self._reap_later()

    def hear(self, order: Any) -> None:
        """It is gone, or there was nothing."""
        if not isinstance(order, AnswerAdmin | Refuse):
            raise Violation("exchange", f"{self.name} was told {order!r}")

    def lose(self) -> None:
        """Nothing that is not answered matters."""

    def _reap_later(self) -> None:
        port = self.port
        self.later(self.die.spread(20 * MILLISECOND, 2 * SECOND), lambda: self._reap(port))

    def _reap(self, port: object) -> None:
        if self.is_resting or self.port is None or self.port is not port:
            return
        self._request += 1
        self.world.counts["deletions"] += 1
        self.ask(AdminRequested(1, self._request, "local", "stream.delete", {"name": self._stream}))
        self._reap_later()
