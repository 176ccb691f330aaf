"""Users of a topic's stream by the native listener: sensors, native sources at one server, and its readers."""

from __future__ import annotations

from typing import Any

from veredus.delivery.batch import BatchHeader, Layout, read_header, signed_record
from veredus.delivery.payload import read_columns, read_rows, rows_of
from veredus.delivery.publication import Rows
from veredus.delivery.record import records_in
from veredus.delivery.rows import encode_rows
from veredus.streams.exchange import (
    PUSH_OVERHEAD,
    ConfirmTaken,
    CreditGranted,
    GrantSource,
    GrantSubscription,
    Push,
    PushGap,
    PushProgress,
    Refuse,
    SourceAttachRequested,
    SubscribeRequested,
)

from .network import Network
from .peers import Peer
from .ports import batch_offered
from .topics_hosts import Solo
from .topics_told import Told
from .world import MILLISECOND, Violation, World


class SensorProcess(Peer):
    """One process of a sensor: a native source of a topic's stream at one server."""

    def __init__(self, sensor: Sensor, name: str) -> None:
        """A process that is not started."""
        super().__init__(sensor.world, sensor.network, name, sensor.address)
        self.sensor = sensor
        self._grant: GrantSource | None = None
        self._is_due = False
        """Whether it is about to offer: a careless network repeats what asks it to, and it offers once all the same."""

    def attach(self) -> None:
        """Be the source."""
        self._grant = None
        who = self.die.octets(16)
        self.ask(SourceAttachRequested(1, "local", self.sensor.topic, self.sensor.name, who))

    def lose(self) -> None:
        """What it offered is judged by the next grant."""
        self._grant = None

    def hear(self, order: Any) -> None:
        """Note what is taken; on anything else, begin anew."""
        match order:
            case GrantSource():
                self._grant = order
                self.sensor.take(order.stream_incarnation, order.last_number)
                self._offer_later()
            case ConfirmTaken(last_number=last) if self._grant is not None:
                self.sensor.take(self._grant.stream_incarnation, last)
                self._offer_later()
            case _:
                self.leave()

    def _offer_later(self) -> None:
        if not self._is_due:
            self._is_due = True
            self.later(self.die.spread(MILLISECOND // 2, self.sensor.pause_max_ns), self._offer)

    def _offer(self) -> None:
        self._is_due, grant = False, self._grant
        if grant is None:
            return
        first, bodies = self.sensor.next_batch(grant.stream_incarnation)
        if bodies:
            payload = [encode_rows(Rows([b"k"] * len(bodies), bodies))]
            count = len(bodies)
            header = BatchHeader(
                int(Layout.ROWS), 0, 0, 0, count, grant.stream_id, grant.source_id, grant.epoch, count, first, 0, 0
            )
            self.ask(batch_offered(1, signed_record(header, payload)))


class Sensor(Solo[SensorProcess]):
    """A sensor: what it has published to each incarnation of its topic's stream at one server."""

    def __init__(
        self, world: World, network: Network, name: str, topic: str, server: str, told: Told, total: int,
        batch_max: int, pause_max_ns: int,
    ) -> None:  # fmt: skip
        """It publishes `total` messages in batches of `batch_max` at most."""
        super().__init__(world, network, name, server)
        self.topic = topic
        self.told = told
        self.pause_max_ns = pause_max_ns
        self._total = total
        self._batch_max = batch_max
        self._count = 0
        self._offered: dict[bytes, list[bytes]] = {}
        """By incarnation, the bodies by their numbers."""
        self._taken: dict[bytes, int] = {}

    def process_of(self, name: str) -> SensorProcess:
        """A process that is not started."""
        return SensorProcess(self, name)

    @property
    def is_over(self) -> bool:
        """Whether all was published, and is taken by the stream to which it was last: the others are gone."""
        last = next(reversed(self._offered), b"")
        return self._count == self._total and self._taken.get(last, 0) == len(self._offered.get(last, ()))

    def rest(self) -> None:
        """Publish no more, and make no stream."""
        self.is_abandoned = True
        if self.process is not None and self.process.is_alive:
            self.process.stop("all is over")

    def abandon(self, is_killed: bool) -> None:
        """It rests already."""

    def next_batch(self, incarnation: bytes) -> tuple[int, list[bytes]]:
        """The first number of the next batch and its bodies: what is not taken yet once more, or the next ones."""
        bodies = self._offered.setdefault(incarnation, [])
        taken = self._taken.setdefault(incarnation, 0)
        if len(bodies) == taken:
            for _ in range(min(self.die.between(1, self._batch_max), self._total - self._count)):
                self._count += 1
                body = f"{self.name}|{self._count}|{self.topic}".encode()
                self.told.begins_put(self.topic, self.name, self._count, body).stream = incarnation
                bodies.append(body)
        return taken + 1, bodies[taken : taken + self._batch_max]

    def take(self, incarnation: bytes, last: int) -> None:
        """All up to this number is taken, in this incarnation of the stream."""
        bodies = self._offered.setdefault(incarnation, [])
        for body in bodies[self._taken.get(incarnation, 0) : last]:
            self.told.taken(self.told.puts[body])
        self._taken[incarnation] = max(last, self._taken.get(incarnation, 0))


class Reader(Peer):
    """Who reads a topic's stream from its floor to its head, once."""

    def __init__(self, world: World, network: Network, address: str, topic: str) -> None:
        """Who reads this topic at this server."""
        super().__init__(world, network, f"reader-{topic}", address)
        self.topic = topic
        self.bodies: list[bytes] = []
        self.is_done = False
        self._head = self._position = 0

    def attach(self) -> None:
        """Begin, or begin again."""
        self.bodies.clear()
        self.ask(SubscribeRequested(1, "local", self.topic, credit=1 << 20))

    def hear(self, order: Any) -> None:
        """Take what is pushed."""
        match order:
            case GrantSubscription():
                self._head, self._position = order.head, order.position
            case Push():
                self._position = order.last_sequence + 1
                self.bodies += [body for _, body in rows_in(order)]
                self.ask(CreditGranted(1, order.size + PUSH_OVERHEAD))
            case PushProgress(_, position):
                self._position = max(self._position, position)
            case PushGap():
                raise Violation("put", f"{self.address} cannot read all of {self.topic}: {order}")
            case Refuse():
                raise Violation("exchange", f"{self.name} was told {order!r}")
        self.is_done = self._position > self._head

    def lose(self) -> None:
        """It begins again."""


def rows_in(push: Push) -> list[tuple[int, bytes]]:
    """The sequences and bodies in what was pushed."""
    found: list[tuple[int, bytes]] = []
    for view in records_in(b"".join(push.buffers)):
        header = read_header(view.body)
        is_rows = header.layout == Layout.ROWS
        rows = read_rows(view.body, header) if is_rows else rows_of(read_columns(view.body, header))
        places = range(len(rows.keys)) if rows.rows is None else rows.rows
        found += [(view.envelope.first_sequence + place, body) for place, body in zip(places, rows.bodies, strict=True)]
    return found
