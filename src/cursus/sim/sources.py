"""Sources: processes that publish under one durable name through the real outbox, each going on where the node says.

A source publishes numbers 1 to its total. A process that was killed is followed by another; a zombie is one that was
not killed and is followed all the same, until it is fenced.
"""

from __future__ import annotations

from typing import Any

from cursus.delivery.cutting import Listed
from cursus.delivery.outbox import (
    BatchRejected,
    Delay,
    Detached,
    GiveUp,
    Granted,
    Offer,
    Outbox,
    OutboxSettings,
    Published,
    Settle,
    Stopped,
    Taken,
)
from cursus.kernel.events import DeadlineReached
from cursus.streams.exchange import (
    ConfirmTaken,
    Fence,
    GrantSource,
    Refuse,
    RefuseBatch,
    SourceAttachRequested,
)

from .content import Identity, attributes_of, body_of, key_of
from .network import Network
from .peers import Peer
from .ports import LIMITS, batch_offered
from .world import MICROSECOND, MILLISECOND, Violation, World

CHANNEL = 1


class SourceProcess(Peer):
    """One life of a source."""

    def __init__(self, world: World, network: Network, name: str, address: str, source: Source) -> None:
        """A process that publishes as `source`."""
        super().__init__(world, network, name, address)
        self.source = source
        self._incarnation = self.die.octets(16)
        self._epoch = 0
        self._stream_incarnation = b""
        self._is_attached = False
        self._outbox = Outbox(source.outbox_settings)

    def attach(self) -> None:
        """Ask to be the source, under the epoch that this process was granted."""
        source = self.source
        fact = SourceAttachRequested(CHANNEL, "local", source.stream, source.name, self._incarnation, self._epoch)
        self.ask(fact)

    def hear(self, order: Any) -> None:
        """Tell the outbox what became of its offers; stop when fenced."""
        match order:
            case GrantSource():
                self._granted(order)
            case ConfirmTaken(_, last, first, is_duplicate, durability):
                self._tell(Taken(last, first, is_duplicate, durability))
            case RefuseBatch(_, first, code, message, last):
                self._tell(BatchRejected(first, code, message, last))
            case Fence(_, epoch):
                self.world.counts["fenced"] += 1
                self._tell(Stopped())
                self.source.ended(self)
                self.stop(f"fenced by epoch {epoch}")
            case Refuse(_, code, message):
                self.world.tell(self.name, f"is refused: {code}, {message}")
                if code in ("unknown-source", "stream-deleted") and self.world.may_forget(self.source.stream):
                    self._give_up(code)
                else:
                    self.leave()
            case _:
                raise Violation("exchange", f"{self.name} was told {order!r}")

    def lose(self) -> None:
        """The outbox keeps what is in doubt."""
        self._is_attached = False
        self._tell(Detached())

    def _give_up(self, code: str) -> None:
        """What this process knew is not what the node knows: another one begins where the node is."""
        if self.is_alive:
            self.source.follow_later()
            self.stop(f"begins anew: {code}")

    def _granted(self, grant: GrantSource) -> None:
        if self._stream_incarnation not in (b"", grant.stream_incarnation):
            self._give_up("stream-replaced")
            return
        self._stream_incarnation = grant.stream_incarnation
        is_first = self._epoch == 0
        self._epoch = grant.epoch
        self._is_attached = True
        resume = grant.token_number if self.source.uses_tokens and grant.token else grant.last_number
        if self.source.uses_tokens and not grant.token:
            resume = 0
        self._tell(
            Granted(grant.stream_id, grant.source_id, grant.epoch, grant.last_number, resume, grant.durability, LIMITS)
        )
        if is_first:
            self._publish()

    def _publish(self) -> None:
        """Publish some, then more after a while, until all is published."""
        outbox, source = self._outbox, self.source
        if not self.is_alive or outbox.last_number >= source.total:
            return
        if outbox.size < source.outbox_settings.window_size:
            first = outbox.last_number + 1
            last = min(source.total, first + self.die.spread(1, source.burst_max) - 1)
            identities = [Identity(source.name, number) for number in range(first, last + 1)]
            listed = Listed(
                [key_of(i) for i in identities],
                [body_of(i) for i in identities],
                mappings=[attributes_of(i) for i in identities],
            )
            token = str(last).encode() if source.uses_tokens and self.die.chance(0.7) else b""
            self._tell(Published(listed, token))
        pause_ns = self.die.spread(10 * MICROSECOND, source.pause_max_ns)
        self.later(pause_ns, self._publish)

    def _tell(self, event: Any) -> None:
        outbox = self._outbox
        for effect in outbox.handle(event, self.now):
            match effect:
                case Offer(record):
                    self.ask(batch_offered(CHANNEL, record))
                case Settle(_, last):
                    self.source.acknowledged = max(self.source.acknowledged, last)
                case Delay(code):
                    self.world.tell(self.name, f"is delayed: {code}")
                case GiveUp(code, message, _) if self.world.may_forget(self.source.stream):
                    self.world.tell(self.name, f"is told of a loss: {code}, {message}")
                    self._give_up(code)
                    return
                case GiveUp(code, message, _):
                    raise Violation("taken", f"the outbox of {self.name} gives up: {code}, {message}")
        outbox.check()
        at = outbox.deadline()
        if at is not None:
            self.later(max(0, self.clock.true_ns(at) - self.world.now_ns), lambda: self._tell(DeadlineReached()))
        if outbox.is_empty and outbox.last_number >= self.source.total:
            self.source.is_done = True


class Source:
    """Owns the processes of one source: one at a time, but for zombies."""

    def __init__(self, world: World, network: Network, name: str, stream: str, address: str) -> None:
        """A source with a temper of its own."""
        self.world = world
        self.network = network
        self.name = name
        self.stream = stream
        self.address = address
        self.die = world.dice.die(f"source/{name}")
        self.total = self.die.spread(20, 400)
        self.burst_max = self.die.spread(1, 64)
        self.pause_max_ns = self.die.spread(100 * MICROSECOND, 100 * MILLISECOND)
        self.uses_tokens = self.die.chance(0.3)
        self.outbox_settings = OutboxSettings(
            batch_count=self.die.spread(1, 64),
            window_size=self.die.spread(2 << 10, 64 << 10),
            eager_count=self.die.between(1, 6),
            linger_ns=self.die.spread(1, 10 * MILLISECOND),
            codec=("zstd", None, None)[self.die.between(0, 2)],
        )
        self.acknowledged = 0
        self.is_done = False
        self.process: SourceProcess | None = None
        self._process_count = 0

    def start(self) -> None:
        """Start a process, beside one that still lives if there is one."""
        self._process_count += 1
        name = f"{self.name}#{self._process_count}"
        self.process = SourceProcess(self.world, self.network, name, self.address, self)
        self.is_done = False
        self.process.start()

    def kill(self, why: str) -> None:
        """Kill the newest process; another follows after a while."""
        if self.process is not None and self.process.is_alive:
            self.process.kill(why)
            self.world.after(self.die.spread(MILLISECOND, 500 * MILLISECOND), self._follow)

    def _follow(self) -> None:
        if self.process is None or not self.process.is_alive:
            self.start()

    def ended(self, process: SourceProcess) -> None:
        """A process was fenced; if it is the newest, by an older one that asked at the same time, another follows."""
        if process is self.process:
            if self._process_count == 1 and not self.world.may_forget(self.stream):
                raise Violation("fenced", f"the only process of {self.name} was fenced")
            self.follow_later()

    def follow_later(self) -> None:
        """Start another process after a while, if none is alive by then."""
        self.world.after(self.die.spread(MILLISECOND, 500 * MILLISECOND), self._follow)
