"""Sources: processes that publish under one durable name through the real outbox, each going on where the node says.

A source publishes numbers 1 to its total. A process that was killed is followed by another; a zombie is one that was
not killed and is followed all the same, until it is fenced.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import Any

from veredus.delivery.cutting import Listed
from veredus.delivery.outbox import (
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
from veredus.kernel.events import DeadlineReached
from veredus.streams.exchange import (
    AnswerAdmin,
    ConfirmTaken,
    Fence,
    GrantSource,
    Refuse,
    RefuseBatch,
    SourceAttachRequested,
    TokenStoreRequested,
)

from .content import Identity, attributes_of, body_of, key_of
from .dice import Die
from .network import Network
from .peers import Peer
from .players import Player
from .ports import LIMITS, batch_offered
from .witnesses import EVENTS
from .world import MICROSECOND, MILLISECOND, Violation, World

CHANNEL = 1


@dataclass(slots=True)
class SourceTemper:
    """How one source is; drawn once for all of its processes."""

    total: int
    """How many publications it has."""
    burst_max: int
    pause_max_ns: int
    uses_tokens: bool
    """Whether it goes on behind its resume token, and not behind its last number."""
    outbox_settings: OutboxSettings
    stride_max: int = 64
    """How many publications lie between two of its tokens at most."""


def drawn_temper(die: Die) -> SourceTemper:
    """A source's temper."""
    return SourceTemper(
        total=die.spread(20, 400),
        burst_max=die.spread(1, 64),
        pause_max_ns=die.spread(100 * MICROSECOND, 100 * MILLISECOND),
        uses_tokens=die.chance(0.3),
        outbox_settings=OutboxSettings(
            batch_count=die.spread(1, 64),
            window_size=die.spread(2 << 10, 64 << 10),
            eager_count=die.between(1, 6),
            linger_ns=die.spread(1, 10 * MILLISECOND),
            codec=("zstd", None, None)[die.between(0, 2)],
        ),
    )


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
        self._is_held = False
        """Whether it publishes nothing more until its window has room."""
        self._wake_ns: int | None = None
        self._outbox = Outbox(source.temper.outbox_settings)
        self._places: Die = world.dice.die(f"places/{name}")
        self._request = 0

    def attach(self) -> None:
        """Ask to be the source, under the epoch that this process was granted."""
        source = self.source
        fact = SourceAttachRequested(
            CHANNEL, self.principal, source.stream, source.name, self._incarnation, self._epoch
        )
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
                self.source.fenced(self)
                self.stop(f"fenced by epoch {epoch}")
            case AnswerAdmin() | Refuse(is_final=False):
                # Of its token, which it may store another time.
                pass
            case Refuse(code="forbidden"):
                self.source.disowned(self)
            case Refuse(_, code, message):
                self.world.tell(self.name, f"is refused: {code}, {message}")
                if code in ("unknown-source", "stream-deleted") and not self.source.is_sure:
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
        self.source.judge_token(self.name, grant)
        is_first = self._epoch == 0
        self._epoch = grant.epoch
        self._is_attached = True
        resume = grant.last_number
        if self.source.temper.uses_tokens:
            resume = grant.token_number if grant.token else 0
        self._tell(
            Granted(grant.stream_id, grant.source_id, grant.epoch, grant.last_number, resume, grant.durability, LIMITS)
        )
        if is_first:
            self._publish()

    def _publish(self) -> None:
        """Publish some, then more after a while, until all is published."""
        outbox, source, temper = self._outbox, self.source, self.source.temper
        if not self.is_alive or outbox.last_number >= temper.total:
            return
        if temper.uses_tokens and self._is_attached and self._places.chance(0.2):
            self._store_place()
        self._is_held = outbox.size >= temper.outbox_settings.window_size
        if self._is_held:
            return
        first = outbox.last_number + 1
        last = min(source.next_token(first), first + self.die.spread(1, temper.burst_max) - 1)
        identities = [Identity(source.name, number) for number in range(first, last + 1)]
        listed = Listed(
            [key_of(i) for i in identities],
            [body_of(i) for i in identities],
            mappings=[attributes_of(i) for i in identities],
        )
        has_token = temper.uses_tokens and last == source.next_token(first)
        self._tell(Published(listed, str(last).encode() if has_token else b""))
        self._publish_later()

    def _store_place(self) -> None:
        """What it has read since is nothing to be published: it stores how far it is all the same."""
        self._request += 1
        number = self._outbox.taken_number
        self.source.places[number] = None
        self.ask(TokenStoreRequested(CHANNEL, self._request, number, str(number).encode()))

    def _publish_later(self) -> None:
        self.later(self.die.spread(10 * MICROSECOND, self.source.temper.pause_max_ns), self._publish)

    def _tell(self, event: Any) -> None:
        outbox = self._outbox
        self.world.counts[EVENTS] += 1
        for effect in outbox.handle(event, self.now):
            match effect:
                case Offer(record):
                    self.ask(batch_offered(CHANNEL, record))
                case Settle(_, last):
                    self.source.acknowledged = max(self.source.acknowledged, last)
                case Delay(code):
                    self.world.tell(self.name, f"is delayed: {code}")
                case GiveUp(code, message, _) if not self.source.is_sure:
                    self.world.tell(self.name, f"is told of a loss: {code}, {message}")
                    self._give_up(code)
                    return
                case GiveUp(code, message, _):
                    raise Violation("taken", f"the outbox of {self.name} gives up: {code}, {message}")
        outbox.check()
        self._wake_in_time()
        if self._is_held and outbox.size < self.source.temper.outbox_settings.window_size:
            self._is_held = False
            self._publish_later()
        if outbox.is_empty and outbox.last_number >= self.source.temper.total:
            self.source.is_done = True

    def _wake_in_time(self) -> None:
        at = self._outbox.deadline()
        if at is None:
            return
        at_ns = max(self.clock.true_ns(at), self.world.now_ns)
        if self._wake_ns is None or at_ns < self._wake_ns:
            self._wake_ns = at_ns
            self.later(at_ns - self.world.now_ns, lambda: self._wake(at_ns))

    def _wake(self, at_ns: int) -> None:
        if at_ns == self._wake_ns:
            self._wake_ns = None
            self._tell(DeadlineReached())


class Source(Player[SourceProcess]):
    """Owns the processes of one source: one at a time, but for zombies."""

    def __init__(
        self, world: World, network: Network, name: str, stream: str, address: str, temper: SourceTemper
    ) -> None:
        """A source of one stream."""
        super().__init__(world, network, name, address)
        self.stream = stream
        self.temper = temper
        self.acknowledged = 0
        """Up to which number its processes were told that it is taken."""
        self.places: dict[int, None] = {}
        """Up to which numbers tokens speak that it stored, or wanted to, with no publication."""
        self._tokens = [0]
        """Up to which numbers its tokens speak: the places in its input that it can go on from."""
        if temper.uses_tokens:
            die = world.dice.die(f"tokens/{name}")
            while self._tokens[-1] < temper.total:
                self._tokens.append(min(temper.total, self._tokens[-1] + die.spread(1, temper.stride_max)))

    def process_of(self, name: str) -> SourceProcess:
        """A process that publishes as this source."""
        return SourceProcess(self.world, self.network, name, self.address, self)

    def judge_token(self, process: str, grant: GrantSource) -> None:
        """A process was told how far its token speaks. Raises `Violation`."""
        spoken = grant.token_number if grant.token else 0
        last = self.last_token(grant.last_number)
        if not (spoken == last or (spoken > last and spoken in self.places)) and self.is_sure:
            said = f"{grant.last_number} are taken, and its token speaks up to {spoken}"
            raise Violation("taken", f"{process} is told that {said}, though one more lies between")

    def last_token(self, number: int) -> int:
        """Up to which number the last token speaks that goes with `number` or what lies before it, 0 for none."""
        return self._tokens[bisect_right(self._tokens, number) - 1]

    def next_token(self, number: int) -> int:
        """The first number from this one on that has a token; the last that is published where there are none."""
        index = bisect_left(self._tokens, number)
        return self._tokens[index] if index < len(self._tokens) else self.temper.total

    @property
    def is_sure(self) -> bool:
        """Whether its stream may not have been forgotten, nor deleted."""
        return not self.world.may_forget(self.stream)
