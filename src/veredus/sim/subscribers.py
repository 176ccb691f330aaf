"""Subscribers: processes that take what a stream pushes, work on it, and settle it, under one durable name or none.

What was worked on is settled after a while, all at once or in parts. A process that dies forgets what it had not
settled, and the next one is pushed that again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from veredus.kernel.errors import UNSTORED
from veredus.streams.exchange import (
    AdminRequested,
    AnswerAdmin,
    ConfirmFilter,
    ConfirmHanded,
    ConfirmReturned,
    ConfirmSettled,
    CreditGranted,
    EndSubscription,
    Fence,
    FilterChangeRequested,
    GrantSubscription,
    HandedOut,
    Push,
    PushGap,
    PushProgress,
    Refuse,
    ReturnRequested,
    SettleMode,
    SettleRequested,
    Start,
    StartKind,
    SubscribeRequested,
)

from .content import TASTES, seen_rows
from .dice import Die
from .network import Network
from .peers import Peer
from .players import Player
from .views import PARKED
from .world import MICROSECOND, MILLISECOND, SECOND, Violation, World

CHANNEL = 2
CREDIT_MAX = 1 << 50
LOST = ("unknown-subscription", "stream-replaced", "stream-deleted", "not-pushed")
"""What a subscriber is told whose stream, cursor or pushes are gone."""


@dataclass(slots=True)
class SubscriberTemper:
    """How one subscriber is; drawn once for all of its processes."""

    taste: int
    mode: SettleMode
    start: Start
    credit: int
    work_max_ns: int
    settles: float
    """How often, after a push, something is settled."""
    in_parts: bool
    changes_taste: float
    """How often, after a push, the filter is changed."""
    attempts_max: int
    """After how many attempts a publication is parked; 0 for never."""
    holds_back: bool
    """Whether it leaves every seventh sequence unsettled while faults last, where each is settled by itself."""
    gives_back: float = 0.3
    """How often, after a push, one is given back where each is settled by itself."""
    settles_late: bool = False
    """Whether it settles nothing before everything else is over."""


def drawn_temper(die: Die) -> SubscriberTemper:
    """A subscriber's temper."""
    starts = (
        Start(),
        Start(),
        Start(StartKind.HEAD),
        Start(StartKind.TAIL, die.between(0, 20)),
        Start(StartKind.TIME, 1),
    )
    return SubscriberTemper(
        taste=die.between(0, len(TASTES) - 1) if die.chance(0.6) else 0,
        mode=SettleMode.INDIVIDUAL if die.chance(0.4) else SettleMode.IN_ORDER,
        start=starts[die.between(0, len(starts) - 1)],
        credit=(0, CREDIT_MAX, *[die.spread(64, 128 << 10)] * 8)[die.between(0, 9)],
        work_max_ns=die.spread(10 * MICROSECOND, 20 * SECOND if die.chance(0.1) else 200 * MILLISECOND),
        settles=0.0 if die.chance(0.1) else die.random(),
        in_parts=die.chance(0.5),
        changes_taste=die.rate(0.5, never=0.6),
        attempts_max=die.between(1, 3) if die.chance(0.2) else 0,
        holds_back=die.chance(0.5),
    )


class SubscriberProcess(Peer):
    """One life of a subscriber."""

    def __init__(self, world: World, network: Network, name: str, address: str, subscriber: Subscriber) -> None:
        """A process that subscribes as `subscriber`."""
        super().__init__(world, network, name, address)
        self._subscriber = subscriber
        self._incarnation = self.die.octets(16)
        self._epoch = 0
        self._worked: list[int] = []
        self._unconfirmed: list[tuple[int, int]] = []
        self._is_granted = False
        self._seen: dict[int, None] = {}
        self._stream = subscriber.known if self.die.chance(0.5) else None
        """The incarnation and the term that it knows the stream under."""
        self._request = 0
        self._given_back: dict[int, None] = {}
        self._tries_die = world.dice.die(f"tries/{name}")
        self._unanswered: dict[int, bool] = {}
        """What was said of attempts and not answered: whether that is taken again."""
        self._is_hasty = self._tries_die.chance(0.2)
        """Whether it says more of a publication before it has heard the answer."""

    def attach(self) -> None:
        """Ask for the cursor, under the epoch that this process was granted."""
        subscriber, temper = self._subscriber, self._subscriber.temper
        self._is_granted = False
        if subscriber.parked_to:
            self._request += 1
            arguments: dict[str, object] = {"name": subscriber.parked_to}
            self.ask(AdminRequested(CHANNEL + 1, self._request, self.principal, "stream.create", arguments))
        if not subscriber.is_durable:
            self._seen = {}
        self.ask(
            SubscribeRequested(
                CHANNEL,
                self.principal,
                subscriber.stream,
                subscriber.name if subscriber.is_durable else "",
                "main" if subscriber.is_durable else "",
                None if not subscriber.is_first and self.die.chance(0.4) else TASTES[subscriber.taste].filter,
                temper.start,
                0,
                temper.mode,
                self._incarnation,
                self._epoch,
                temper.credit,
                stream_incarnation=self._stream[0] if self._stream and self.die.chance(0.5) else b"",
                attempts_max=temper.attempts_max if subscriber.is_durable else 0,
                parked_to=subscriber.parked_to,
                term=self._stream[1] if self._stream else 0,
            )
        )

    def hear(self, order: Any) -> None:
        """Take what is pushed, and note what is settled; stop when fenced."""
        match order:
            case GrantSubscription():
                self._epoch = order.epoch
                self._is_granted = True
                self._subscriber.is_first = False
                self._know(order)
                if not self._subscriber.temper.credit:
                    self.later(self.die.spread(MILLISECOND, SECOND), self._take_some)
                if self._subscriber.is_finishing:
                    self.settle_all()
                if self._unconfirmed:
                    self.ask(SettleRequested(CHANNEL, tuple(self._unconfirmed)))
                for sequence, is_taken in self._unanswered.items():
                    self.ask(ReturnRequested(CHANNEL, sequence, is_retry=True, is_taken=is_taken))
            case Push():
                self._take(order)
            case ConfirmSettled(_, floor, ranges):
                self._unconfirmed = [r for r in self._unconfirmed if not _covers(floor, ranges, r)]
            case PushGap(_, first, next_sequence, code):
                self.world.tell(self.name, f"is told of a gap, {first} to {next_sequence - 1}: {code}")
                # Once its application knows, it is done with like what was worked on.
                self._worked = sorted({*self._worked, *range(first, next_sequence)})
            case PushProgress() | EndSubscription() | ConfirmFilter() | ConfirmHanded() | AnswerAdmin():
                pass
            case ConfirmReturned(_, sequence):
                self._unanswered.pop(sequence, None)
            case Fence(_, epoch):
                self.world.counts["fenced"] += 1
                self._subscriber.fenced(self)
                self.stop(f"fenced by epoch {epoch}")
            case Refuse(code="forbidden"):
                self._subscriber.disowned(self)
            case Refuse(_, code, message):
                self.world.tell(self.name, f"is refused: {code}, {message}")
                if code in LOST and not self._subscriber.is_sure:
                    self._subscriber.known = None
                    self._subscriber.follow_later()
                    self.stop(f"begins anew: {code}")
                elif isinstance(returned := order.details.get("returned"), int):
                    # It is unsettled as it was; sooner or later it is settled, or tried too often.
                    self._unanswered.pop(returned, None)
                    self.world.counts["not taken back"] += 1
                elif code == "too-many-filters":
                    # It goes on with the filter that it has.
                    self.world.counts["filters refused"] += 1
                elif code == "too-many-ranges":
                    self.later(50 * MILLISECOND, self._settle_again)
                elif order.is_final or code in UNSTORED or code == "exists-otherwise":
                    self.leave()
                else:
                    raise Violation("exchange", f"{self.name} is refused: {code}, {message}")
            case _:
                raise Violation("exchange", f"{self.name} was told {order!r}")

    def lose(self) -> None:
        """Nothing is settled before the next grant."""
        self._is_granted = False

    def _take_some(self) -> None:
        """Whoever began without credit has some now."""
        if self._is_granted:
            self.ask(CreditGranted(CHANNEL, self.die.spread(64, 128 << 10)))

    def _know(self, grant: GrantSubscription) -> None:
        """Forget what was worked on of sequences that mean something else now: all of another incarnation's."""
        known, self._stream = self._stream, (grant.stream_incarnation, grant.term)
        self._subscriber.known = self._stream
        if self.world.is_forgetful or (known is not None and known[0] != grant.stream_incarnation):
            self._forget_from(1)
        elif grant.changed_from:
            self._forget_from(grant.changed_from)

    def _forget_from(self, first: int) -> None:
        self._worked = [sequence for sequence in self._worked if sequence < first]
        self._unconfirmed = [(low, min(high, first - 1)) for low, high in self._unconfirmed if low < first]
        self._seen = {sequence: None for sequence in self._seen if sequence < first}
        self._unanswered = {sequence: said for sequence, said in self._unanswered.items() if sequence < first}

    def _take(self, push: Push) -> None:
        sequences = [sequence for sequence, _ in seen_rows(push.buffers)]
        self._hand_out(sequences[: self.die.between(0, len(sequences))] if self._subscriber.parked_to else [])
        for sequence in sequences:
            if sequence in self._seen and sequence > push.redelivered_to:
                raise Violation("marked", f"{self.name} got {sequence} again, and was not told so")
            self._seen[sequence] = None
            self._worked.append(sequence)
        size = push.size + 16
        self.later(self.die.spread(MICROSECOND, self._subscriber.work_ns), lambda: self._work(size, sequences))

    def _hand_out(self, sequences: list[int]) -> None:
        """The application is handed these, and the node hears of it."""
        if sequences and self._is_granted:
            self.ask(HandedOut(CHANNEL, sequences[-1]))

    def _work(self, size: int, sequences: list[int]) -> None:
        """Take more; settle some of what was worked on."""
        if not self._is_granted:
            return
        if self._subscriber.parked_to:
            self._hand_out(sequences)
            self._give_back(sequences)
        temper = self._subscriber.temper
        if temper.credit < CREDIT_MAX:
            self.ask(CreditGranted(CHANNEL, size))
        is_willing = self._subscriber.is_durable and not temper.settles_late
        if is_willing and (self.network.is_calm or self.die.chance(temper.settles)):
            self._settle()
        if self.die.chance(temper.changes_taste) and not self.network.is_calm:
            self._subscriber.taste = self.die.between(0, len(TASTES) - 1)
            self.world.counts["filter changes"] += 1
            taken_to = max(self._seen, default=0)
            self.ask(FilterChangeRequested(CHANNEL, TASTES[self._subscriber.taste].filter, taken_to + 1))

    def _give_back(self, sequences: list[int]) -> None:
        """Where each is settled by itself, the application may want one of them again, or never."""
        if self._subscriber.temper.mode is SettleMode.INDIVIDUAL and self.die.chance(
            self._subscriber.temper.gives_back
        ):
            sequence = sequences[self.die.between(0, len(sequences) - 1)]
            is_retry = self.die.chance(0.6)
            if sequence in self._unanswered and not self._is_hasty:
                return
            self.world.counts["retried" if is_retry else "rejected"] += 1
            self._unanswered |= {sequence: False} if is_retry else {}
            self.ask(ReturnRequested(CHANNEL, sequence, is_retry, "" if is_retry else "rejected"))
            if is_retry and self.die.chance(0.7):
                self._given_back[sequence] = None
                self.later(self.die.spread(MICROSECOND, SECOND), lambda: self._take_again(sequence))

    def _take_again(self, sequence: int) -> None:
        """It is handed out again, where this process did not get it in another way meanwhile."""
        if sequence in self._unanswered and not self._is_hasty:
            self.later(self._tries_die.spread(MILLISECOND, SECOND), lambda: self._take_again(sequence))
        elif self._is_granted and self._given_back.pop(sequence, 0) is None:
            self._say_again(sequence, is_taken=True)
            if self._tries_die.chance(0.6):
                self.later(self._tries_die.spread(MILLISECOND, SECOND), lambda: self._try_again(sequence))

    def _try_again(self, sequence: int) -> None:
        """It was tried in vain once more."""
        if sequence in self._unanswered and not self._is_hasty:
            self.later(self._tries_die.spread(MILLISECOND, SECOND), lambda: self._try_again(sequence))
        elif self._is_granted and sequence in self._worked and sequence not in self._given_back:
            self.world.counts["retried"] += 1
            self._say_again(sequence, is_taken=False)
            self._given_back[sequence] = None
            self.later(self._tries_die.spread(MILLISECOND, SECOND), lambda: self._take_again(sequence))

    def _say_again(self, sequence: int, *, is_taken: bool) -> None:
        self._unanswered[sequence] = is_taken
        self.ask(ReturnRequested(CHANNEL, sequence, is_retry=True, is_taken=is_taken))

    def _settle(self) -> None:
        if not self._worked or not self._is_granted:
            return
        temper, is_last = self._subscriber.temper, self.network.is_calm
        if temper.mode is SettleMode.IN_ORDER:
            count = len(self._worked) if is_last or not temper.in_parts else self.die.between(1, len(self._worked))
            ranges = [(1, self._worked[count - 1])]
            self._worked = [sequence for sequence in self._worked if sequence > ranges[0][1]]
        else:
            chosen = [s for s in self._worked if is_last or not (temper.holds_back and s % 7 == 0)]
            if temper.in_parts and not is_last:
                chosen = [s for s in chosen if self.die.chance(0.5)]
            kept = set(chosen)
            self._worked = [sequence for sequence in self._worked if sequence not in kept]
            ranges = _runs(sorted(kept))
        if ranges:
            self._unconfirmed.extend(ranges)
            self.ask(SettleRequested(CHANNEL, tuple(ranges)))

    def _settle_again(self) -> None:
        """What was refused, joined with what was settled since, so that it makes fewer ranges."""
        if self._is_granted and self._unconfirmed:
            asked = {s for first, last in self._unconfirmed for s in range(first, last + 1)}
            self._unconfirmed = _runs(sorted(asked))
            self.ask(SettleRequested(CHANNEL, tuple(self._unconfirmed)))

    def settle_all(self) -> None:
        """Settle whatever is left, now and then, while this grant lasts."""
        self._settle()
        if self._is_granted:
            self.later(100 * MILLISECOND, self.settle_all)


class Subscriber(Player[SubscriberProcess]):
    """Owns the processes of one subscriber, and what its application has seen in all of them."""

    def __init__(
        self,
        world: World,
        network: Network,
        name: str,
        stream: str,
        address: str,
        temper: SubscriberTemper,
        is_durable: bool,
    ) -> None:
        """A subscriber to one stream."""
        super().__init__(world, network, name, address)
        self.stream = stream
        self.temper = temper
        self.is_durable = is_durable
        self.taste = temper.taste
        self.parked_to = PARKED + name if is_durable and temper.attempts_max else ""
        self.is_finishing = False
        """Whether it settles whatever it gets, at once."""
        self.is_first = True
        """Whether nobody was granted its cursor yet."""
        self.known: tuple[bytes, int] | None = None
        """The incarnation and the term under which it was granted the stream last, which it may have kept."""

    def process_of(self, name: str) -> SubscriberProcess:
        """A process that subscribes as this subscriber."""
        return SubscriberProcess(self.world, self.network, name, self.address, self)

    @property
    def is_sure(self) -> bool:
        """Whether its stream may not have been forgotten, nor deleted."""
        return not self.world.may_forget(self.stream)

    def keep_nothing_aside(self) -> None:
        """Park nothing: what is parked would be looked for where it is not kept."""
        self.temper.attempts_max, self.parked_to = 0, ""

    def set_aside(self, attempts_max: int) -> None:
        """Park what was tried so often, of which there is much; before it starts."""
        self.temper.attempts_max, self.parked_to = attempts_max, PARKED + self.name
        self.temper.mode, self.temper.start, self.temper.gives_back = SettleMode.INDIVIDUAL, Start(), 0.9

    def finish(self) -> None:
        """Faults are over: whoever has its cursor settles whatever is left."""
        self.is_finishing = True
        if self.process is not None:
            self.process.settle_all()

    @property
    def work_ns(self) -> int:
        """How long it may work on a push; quick once faults are over."""
        return MILLISECOND if self.network.is_calm else self.temper.work_max_ns


def _covers(floor: int, ranges: tuple[tuple[int, int], ...], asked: tuple[int, int]) -> bool:
    first, last = max(asked[0], floor + 1), asked[1]
    return first > last or any(a <= first and last <= b for a, b in ranges)


def _runs(sequences: list[int]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for sequence in sequences:
        if runs and runs[-1][1] == sequence - 1:
            runs[-1] = (runs[-1][0], sequence)
        else:
            runs.append((sequence, sequence))
    return runs
