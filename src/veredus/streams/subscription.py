"""A durable subscription: its filter, its owner's epoch, and the ledger that is its cursor.

Invariants
    (1) `floor_durable` never exceeds the ledger's floor: retention may rely on it after any crash.
    (2) At most one session owns it; a newer owner's epoch fences the older.
    (3) Nothing at or below `pushed_to` is pushed again without being marked as redelivered.
    (4) Owner, filter, mode and parking are those of the newest fact that is in the journal.
    (5) Nothing counts as tried that no application was handed: up to `handed_to` it was, by its client's word, and
        what is unsettled there was examined by the filter that counts there, or its attempts count from nothing.
    (6) One application counts once, however often its client subscribes again.
    (7) For each sequence above the floor one filter counts, however often its owner's link is lost: `filter` from
        `filter_sequence` on, and those of `before` below that.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from veredus.delivery.settlement import Ledger, Range
from veredus.kernel.engine import Now
from veredus.matching import Filter

from .attempts import HandedOut, ReturnRequested
from .exchange import EVERYTHING, SettleRequested
from .facts import CursorMoved, Lost, SubscriptionOpened, SubscriptionRenewed, SubscriptionSettled, SubscriptionTold
from .lost import but_for
from .ranges import between, cursor_of, is_in, joined, raised, with_more, without
from .reopening import Reopening, no_less, settled_ranges
from .source import PAST_MAX
from .tries import Retold, Tries

if TYPE_CHECKING:
    from .flow import Flow

Awaited: TypeAlias = SettleRequested | ReturnRequested | HandedOut
"""What is answered once the cursor is in the journal as it stands then."""


MISSED_MAX = 64
"""So many ranges of what could not be had are known to be no attempts; of more, the last ones."""


class Subscription:
    """Owns what a node knows of one durable subscription."""

    __slots__ = (
        "_is_changing",
        "_ledger",
        "attempts_max",
        "before",
        "changes",
        "epoch",
        "excluded",
        "filter",
        "filter_sequence",
        "floor_durable",
        "from_us",
        "handed_to",
        "incarnation",
        "is_attached",
        "is_journaling",
        "is_removed",
        "is_reopened",
        "is_stale",
        "leaving",
        "lost",
        "member",
        "missed",
        "mode",
        "name",
        "opened_us",
        "origins",
        "owner",
        "parked_to",
        "past",
        "pushed_known",
        "pushed_to",
        "renewed_us",
        "session",
        "spread",
        "start",
        "stream_id",
        "subscriber",
        "tries",
        "unwanted",
        "waiting",
        "wish",
    )

    def __init__(self, fact: SubscriptionOpened, unsettled_max: int) -> None:
        """As the journal says it was opened."""
        self.stream_id = fact.stream_id
        self.subscriber = fact.subscriber
        self.name = fact.name
        self.session = 0
        self._is_changing = False
        self.member: Flow | None = None
        """Its flow, while that waits with others for what its filter wants."""
        self.changes: list[Callable[[Now], None]] = []
        """What else it is to become, each in its turn."""
        self.is_removed = False
        self.is_journaling = False
        self.is_stale = False
        self.missed: tuple[Range, ...] = ()
        """What the present owner was told that cannot be had: its application was not handed it. Of this process."""
        self.leaving: tuple[Range, ...] = ()
        """What is on its way to the dead letters: done with for its session, and in the journal not yet."""
        self.waiting: dict[Hashable, Awaited] = {}
        """What the next fact of its cursor is to answer; more than one of these may be answered as one."""
        self.spread: tuple[str, int] = ("", 0)
        """For whom its ranges are counted, and how many they were when they were counted last."""
        self.past: tuple[bytes, ...] = ()
        """Incarnations that were taken over from, the newest last; those of this process, and some of them."""
        self.apply_opened(fact, unsettled_max)

    def apply_opened(self, fact: SubscriptionOpened, unsettled_max: int) -> None:
        """A new owner, filter or mode."""
        self.epoch = fact.epoch
        self.incarnation = fact.incarnation
        self.filter = fact.filter
        self.filter_sequence = fact.filter_sequence
        self.before = fact.before
        self.mode = fact.mode
        self.attempts_max = fact.attempts_max
        self.tries = Tries(fact.attempts, fact.returned)
        self.parked_to = fact.parked_to
        self.opened_us = fact.opened_us
        self.start, self.from_us = fact.start, fact.from_us
        self.origins = fact.origins
        self.unwanted = fact.unwanted
        self.renewed_us, self.wish = max(fact.opened_us, fact.renewed_us), fact.wish
        self.owner, self.lost = fact.owner, fact.lost
        self.is_attached = self.is_reopened = True
        self._place(fact, unsettled_max)

    def apply_settled(self, fact: SubscriptionSettled, unsettled_max: int) -> None:
        """The cursor moved. Facts behind a checkpoint may be older and know less done with, until one knows all."""
        self.tries.take(fact.attempts)
        if self.is_reopened:
            known, fact = fact, no_less(fact, self.floor, self.settled_ranges())
            self.is_reopened = (known.floor, known.settled) != (fact.floor, fact.settled)
        self.is_attached = not fact.is_detached
        self._place(fact, unsettled_max)

    def _place(self, fact: SubscriptionOpened | SubscriptionSettled, unsettled_max: int) -> None:
        self.floor_durable = fact.floor
        self.pushed_to = fact.pushed_to
        self.pushed_known = fact.pushed_known
        self.handed_to = fact.handed_to
        self.excluded = fact.settled
        self.ledger = Ledger(fact.floor, is_ordered=self.mode == 0, ranges_max=unsettled_max)
        if self.tries.size:
            self.tries.drop(0, fact.floor)
            self.tries.drop_all(fact.settled)

    @property
    def is_changing(self) -> bool:
        """Whether another owner or filter, its removal, or a dead letter of it is on its way to the journal."""
        return self._is_changing

    @is_changing.setter
    def is_changing(self, is_changing: bool) -> None:
        self._is_changing = is_changing
        if is_changing:
            self._stand_alone()

    @property
    def ledger(self) -> Ledger:
        """Its cursor: what its flow has passed with others is passed."""
        if self.member is not None:
            self._ledger.pass_to(self.member.position)
        return self._ledger

    @ledger.setter
    def ledger(self, ledger: Ledger) -> None:
        self._stand_alone()
        self._ledger = ledger

    def _stand_alone(self) -> None:
        """Its flow waits with nobody: it goes on by the cursor that this has then."""
        if self.member is not None and self.member.audience is not None:
            self.member.audience.leave(self.member)

    def pass_to(self, position: int) -> None:
        """Its flow has examined all below `position`."""
        self.ledger.pass_to(position)
        self.forget_passed()

    @property
    def floor(self) -> int:
        """Everything up to here is settled or rejected, and its flow has passed it."""
        return self.ledger.floor

    @property
    def cursor(self) -> tuple[int, tuple[Range, ...]]:
        """What is done with: all up to the first, and the ranges above that.

        It may lie above `floor`, where this session has not examined again what was settled to one before.
        """
        return raised(self.floor, self.settled_ranges())

    @property
    def done_to(self) -> int:
        """As far as `cursor` has done with all; whoever looks at very many asks for this alone."""
        return self.cursor[0] if self.excluded else self.floor

    def settled_ranges(self) -> tuple[Range, ...]:
        """What is done with above the floor, said to the present owner or to one before."""
        return settled_ranges(self.ledger, self.excluded)

    def exclude(self, ranges: Sequence[Range]) -> int:
        """An earlier session was pushed these, and they are settled before this one examined them. None of them is
        where they would be too many: how many that are.
        """
        excluded = with_more(self.excluded, ranges)
        if len(excluded) > max(len(self.excluded), self.ledger.ranges_max):
            return len(ranges)
        self.excluded = excluded
        return 0

    def forget_passed(self) -> None:
        """Let go of excluded ranges that the ledger knows by itself: an ordered one, once its floor covers them."""
        known_to = self.floor if self.ledger.is_ordered else self.ledger.position - 1
        if self.excluded and self.excluded[0][1] <= known_to:
            self.excluded = tuple(bounds for bounds in self.excluded if bounds[1] > known_to)

    def opened(self) -> SubscriptionOpened:
        """The fact that makes this subscription again; what is on its way to the dead letters is unsettled in it."""
        return Reopening.of(self).fact()

    @classmethod
    def moved_in(cls, move: CursorMoved, unsettled_max: int) -> Subscription:
        """One that comes into being with a commit."""
        floor, settled = cursor_of(move.floor, move.settled)
        opened = SubscriptionOpened(
            stream_id=move.stream_id,
            subscriber=move.subscriber,
            name=move.name,
            epoch=1,
            incarnation=b"",
            filter=EVERYTHING,
            filter_sequence=move.floor + 1,
            mode=1,
            floor=floor,
            settled=settled,
            pushed_to=max((floor, *(origin.last_place for origin in move.origins))),
            pushed_known=floor,
            handed_to=floor,
            opened_us=move.opened_us,
            start=move.start,
            origins=move.origins,
            unwanted=move.unwanted,
            renewed_us=move.renewed_us,
            wish=move.wish,
            owner=move.owner,
            lost=move.lost,
        )
        subscription = cls(opened, unsettled_max)
        subscription.is_attached = False
        return subscription

    def move(self, fact: CursorMoved, unsettled_max: int) -> None:
        """A commit puts the cursor elsewhere, and whoever was attached is gone."""
        done = without(((0, self.floor), *self.settled_ranges()), self.unwanted)
        kept = ((max(a, fact.kept_from), b) for a, b in done if b >= fact.kept_from)
        self.opened_us, self.start, self.origins = fact.opened_us, fact.start, fact.origins
        self.unwanted, self.lost = fact.unwanted, fact.lost
        # The wishes of another owner count no more.
        is_anothers = "" != self.owner != (fact.owner or self.owner)
        self.renewed_us = max(fact.opened_us, fact.renewed_us)
        self.wish = fact.wish if is_anothers else max(self.wish, fact.wish)
        self.is_attached, self.session = False, 0
        self.owner = fact.owner or self.owner
        floor, ranges = cursor_of(fact.floor, (*fact.settled, *kept))
        self._place(
            SubscriptionSettled(
                stream_id=self.stream_id,
                subscriber=self.subscriber,
                name=self.name,
                floor=floor,
                settled=ranges,
                pushed_to=max((self.pushed_to, floor, *(origin.last_place for origin in fact.origins))),
                pushed_known=floor,
                handed_to=floor,
            ),
            unsettled_max,
        )

    def renew(self, fact: SubscriptionRenewed, unsettled_max: int) -> None:
        """It was asked for again; by who had left since, it begins anew, and whoever was attached is gone."""
        if fact.left:
            undone = without(((self.start, fact.head),), ((0, self.floor), *self.settled_ranges()))
            unwanted, start = joined((*self.unwanted, *undone)), self.start
            if len(unwanted) > unsettled_max:
                unwanted, start = (), fact.head + 1
            self.move(
                CursorMoved(
                    self.stream_id, self.subscriber, self.name, fact.renewed_us, start, fact.head, fact.head + 1, (),
                    self.origins, unwanted=unwanted,
                ),
                unsettled_max,
            )  # fmt: skip
        self.renewed_us, self.wish = max(self.renewed_us, fact.renewed_us), max(self.wish, fact.wish)

    def tell(self, fact: SubscriptionTold) -> None:
        """Its subscriber knows what is lost of another stream."""
        self.lost = tuple(but_for(self.lost, (Lost(fact.incarnation, fact.first, fact.last),)))

    def settled(self, is_detached: bool, attempts: tuple[Retold, ...] = ()) -> SubscriptionSettled:
        """The fact that its cursor stands where the ledger says; `attempts`: what has changed of them."""
        return SubscriptionSettled(
            stream_id=self.stream_id,
            subscriber=self.subscriber,
            name=self.name,
            floor=self.floor,
            settled=self.settled_ranges(),
            pushed_to=self.pushed_to,
            is_detached=is_detached,
            pushed_known=self.pushed_known,
            handed_to=self.handed_to,
            attempts=attempts,
        )

    def wait(self, event: Awaited) -> None:
        """Let the next fact of its cursor answer this."""
        match event:
            case SettleRequested(session, ranges):
                known = self.waiting.get(session)
                asked = known.ranges if isinstance(known, SettleRequested) else ()
                self.waiting[session] = SettleRequested(session, with_more(asked, ranges))
            case ReturnRequested(session, sequence):
                self.waiting[session, sequence] = event
            case HandedOut(session, sequence):
                known = self.waiting.get((session,))
                if not isinstance(known, HandedOut) or known.sequence < sequence:
                    self.waiting[session,] = event

    def take_waiting(self) -> tuple[Awaited, ...]:
        """What a fact of its cursor that is made now is to answer."""
        taken, self.waiting = tuple(self.waiting.values()), {}
        return taken

    def wait_again(self, taken: Iterable[Awaited]) -> None:
        """The journal has not taken that fact: let the next one answer this, and what was asked since."""
        since = self.take_waiting()
        for event in (*taken, *since):
            self.wait(event)

    def note_pushed(self, last: int) -> None:
        """Everything that matched up to `last` was pushed."""
        self.pushed_to = max(self.pushed_to, last)
        self.pushed_known = max(self.pushed_known, last)

    def lacks(self, first: int, last: int) -> bool:
        """Whether something of `first` to `last` is not settled."""
        return bool(between(first, last, self.settled_ranges()))

    def miss(self, first: int, last: int) -> None:
        """Its subscriber was told that these cannot be had: they wait for settlement as what was pushed does.

        What an earlier session has settled of them is done with. A subscriber that ends before its application knows
        leaves them unsettled: the next one is told again.
        """
        for begin, end in between(max(first, self.ledger.position), last, self.settled_ranges()):
            self.ledger.push(begin, end)
        if self.attempts_max and last > self.handed_to:
            # What the same application was handed before, by an earlier link, it has.
            self.missed = with_more(self.missed, ((max(first, self.handed_to + 1), last),))[-MISSED_MAX:]
        self.pass_to(last + 1)
        self.note_pushed(last)

    def expect(self, last: int) -> None:
        """What is unsettled up to `last` counts as pushed, in whichever order it comes."""
        for first, end in between(self.floor + 1, last, self.settled_ranges()):
            self.ledger.push(first, end)
        self.ledger.pass_to(last + 1)
        self.pushed_to = max(self.pushed_to, last)
        self.forget_passed()

    def note_handed(self, sequence: int) -> None:
        """Its application was handed all up to `sequence` that it was pushed, and no more than that."""
        self.handed_to = max(self.handed_to, min(sequence, self.pushed_to))

    def forget_from(self, sequence: int) -> None:
        """What lies from `sequence` on is gone: the last filter counts for what comes there.

        So are facts, perhaps: what lies before may have been pushed since, and a subscriber that has it may settle it.
        """
        self._forget_attempts_from(sequence)
        self.pushed_to = max(self.pushed_to, sequence - 1)
        ends: dict[int, Filter] = {}
        for filter_, last in self.before:
            ends.setdefault(min(last, sequence - 1), filter_)
        self.before = tuple((filter_, last) for last, filter_ in ends.items())
        self.filter_sequence = min(self.filter_sequence, sequence)

    def _forget_attempts_from(self, sequence: int) -> None:
        """What lies from `sequence` on means something else now: nobody has tried it."""
        self.handed_to = min(self.handed_to, sequence - 1)
        self.tries.drop(sequence, max(self.tries.last, *self.tries.returned, sequence))

    def note_maybe_pushed(self, head: int) -> None:
        """Its owner, if it has one, may have been pushed all up to `head`: no fact tells what it was pushed."""
        if self.is_attached:
            self.pushed_to = max(self.pushed_to, head)

    @property
    def unexamined(self) -> int:
        """The first sequence behind all that any session of its has examined: none has rejected anything there."""
        examined = max((last for _, last in self.excluded), default=0)
        return max(self.ledger.position, examined + 1, self.filter_sequence)

    def refilter(self, fact: SubscriptionOpened) -> None:
        """Another filter, or the one before once more, is in the journal."""
        if fact.filter != self.filter:
            self.filter = fact.filter
            self.filter_sequence = fact.filter_sequence
            self.before = fact.before
            self._forget_attempts_from(fact.filter_sequence)
        self.floor_durable = max(self.floor_durable, fact.floor)

    def hand_on(self, fact: SubscriptionOpened, unsettled_max: int) -> None:
        """Another session is in the journal: behind the floor that stands there it examines again what is unsettled.

        What was settled while the fact was on its way is not in the journal yet: it lies above that floor.
        """
        self.filter = fact.filter
        self.filter_sequence = fact.filter_sequence
        self.before = fact.before
        self.tries = Tries(fact.attempts, fact.returned)
        self.floor_durable = max(self.floor_durable, fact.floor)
        self.epoch = fact.epoch
        if fact.incarnation != self.incarnation:
            self.past = (*self.past, self.incarnation)[-PAST_MAX:]
            self.missed = ()
        self.incarnation = fact.incarnation
        self.attempts_max = fact.attempts_max
        self.parked_to = fact.parked_to
        self.owner = fact.owner
        self.is_attached = True
        settled = self.settled_ranges()
        if self.floor > fact.floor:
            settled = joined(((fact.floor + 1, self.floor), *settled))
        self.excluded = settled
        self.tries.drop_all(settled)
        self.mode = fact.mode
        self.ledger = Ledger(fact.floor, is_ordered=self.mode == 0, ranges_max=unsettled_max)
        self.pushed_known = fact.pushed_known
        self.handed_to = fact.handed_to

    def is_past(self, epoch: int, incarnation: bytes) -> bool:
        """Whether whoever asks under this epoch, 0 for none yet, was taken over from: what it asks may come late.

        The epoch alone would not do: a subscription that was removed and made again counts its epochs anew.
        """
        if incarnation == self.incarnation:
            return epoch not in (0, self.epoch)
        return epoch > 0 or incarnation in self.past

    def is_unsettled(self, sequence: int) -> bool:
        """Whether this waits for settlement, of what was pushed to this session or to one before."""
        if sequence < self.ledger.position:
            return self.ledger.is_unsettled(sequence)
        return sequence <= self.pushed_to and not is_in(sequence, self.excluded)

    def settle_one(self, sequence: int) -> bool:
        """This is done with, though this session may not have been pushed it yet; returns whether it is."""
        if sequence < self.ledger.position:
            return self.ledger.settle(sequence, sequence)
        return not self.exclude(((sequence, sequence),))

    def reopen(self, first: int, last: int) -> None:
        """What counted as done with is unsettled after all."""
        self.excluded = without(self.excluded, ((first, last),))
        if first < self.ledger.position:
            self.ledger.reopen(first, last)

    def take_back(self, sequence: int) -> bool:
        """The attempt at this has ended, and none is under way; whether that was the last that it may have."""
        count = self.tries.end(sequence)
        return 0 < self.attempts_max <= count

    def note_taken_back(self, sequence: int) -> None:
        """Its client is told so: without a limit it does not say when the application takes this again."""
        if not self.attempts_max:
            self.tries.begin(sequence)

    @property
    def has_tried_enough(self) -> bool:
        """Whether it counts attempts at as much as it may: nothing new can be given back before some is settled."""
        return self.tries.size >= self.ledger.ranges_max

    def exhausted(self, first: int, last: int) -> tuple[Range, ...]:
        """The parts of `first` to `last` that were handed out so often that they are to be parked."""
        if not self.attempts_max:
            return ()
        return tuple((a, b) for a, b, count in self.tries.within(first, last) if count >= self.attempts_max)
