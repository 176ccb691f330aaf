"""Who signs with an epoch that is its own no longer, as a zombie would that got into its follower's session."""

from __future__ import annotations

from typing import Any

from veredus.delivery.batch import HEADER_SIZE, BatchHeader
from veredus.delivery.record import ENVELOPE_SIZE
from veredus.streams.exchange import ConfirmTaken, Fence, GrantSource, Refuse, RefuseBatch, SourceAttachRequested

from .content import Identity, batch_record
from .network import Network
from .peers import Peer
from .ports import batch_offered
from .world import MICROSECOND, MILLISECOND, Violation, World

CHANNEL = 1


class Forger(Peer):
    """Somebody who takes its name over again and again, and offers one publication of its own and one too late; or one
    that does not arrive as it was signed.
    """

    def __init__(self, world: World, network: Network, address: str, stream: str) -> None:
        """Who publishes to `stream`."""
        super().__init__(world, network, "forger-1", address)
        self._stream = stream
        self._grant: GrantSource | None = None
        self._is_forged = False
        self._spoiled = 0
        """The number of what it offered with one wrong bit."""
        self._honest = 0
        """What it had offered under its own epoch, before."""
        self.is_resting = False

    def attach(self) -> None:
        """Ask to be the source, as another incarnation than before."""
        self._grant, self._is_forged, self._spoiled = None, False, 0
        if not self.is_resting:
            self.ask(SourceAttachRequested(CHANNEL, "local", self._stream, self.name, self.die.octets(16)))

    def hear(self, order: Any) -> None:
        """What it signs with its own epoch is taken; what it signs with the one before never is."""
        match order:
            case GrantSource():
                self._grant = order
                if not self.network.is_plain and self.die.chance(0.3):
                    self._spoiled = order.last_number + 1
                self._offer(order.last_number + 1, order.epoch)
            case ConfirmTaken(_, last) if 0 < self._spoiled <= last:
                raise Violation("damage", f"{self.name} offered {last} with a wrong bit, and it was taken")
            case ConfirmTaken(_, last) if self._is_forged and last > self._honest:
                raise Violation("fenced", f"{self.name} signed {last} with an older epoch, and it was taken")
            case ConfirmTaken(_, last) if self._grant is not None and self._grant.epoch > 1:
                self._is_forged, self._honest = True, last
                self._offer(last + 1, self._grant.epoch - 1)
            case ConfirmTaken() | RefuseBatch() | Refuse() | Fence():
                self.leave()
            case _:
                raise Violation("exchange", f"{self.name} was told {order!r}")

    def lose(self) -> None:
        """Nothing that is not answered matters."""

    def _offer(self, number: int, epoch: int) -> None:
        grant = self._grant
        assert grant is not None
        header = BatchHeader(0, 0, 0, 0, 0, grant.stream_id, grant.source_id, epoch, 0, number, 0, 0)
        record = batch_record(header, [Identity(self.name, number)])
        if self._spoiled:
            record[self.die.between(ENVELOPE_SIZE + HEADER_SIZE, len(record) - 1)] ^= 1 << self.die.between(0, 7)
        port = self.port

        def offer() -> None:
            if self.port is port:
                self.ask(batch_offered(CHANNEL, record))

        self.later(self.die.spread(MICROSECOND, 50 * MILLISECOND), offer)
