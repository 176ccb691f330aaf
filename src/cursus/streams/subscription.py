"""A durable subscription: its filter, its owner's epoch, and the ledger that is its cursor.

Invariants
    (1) `floor_durable` never exceeds the ledger's floor: retention may rely on it after any crash.
    (2) At most one session owns it; a newer owner's epoch fences the older.
    (3) Nothing at or below `pushed_to` is pushed again without being marked as redelivered.
"""

from __future__ import annotations

from cursus.delivery.settlement import Ledger, Range

from .facts import SubscriptionOpened, SubscriptionSettled


class Subscription:
    """Owns what a node knows of one durable subscription."""

    __slots__ = (
        "attempts",
        "attempts_max",
        "epoch",
        "excluded",
        "filter",
        "filter_sequence",
        "floor_durable",
        "incarnation",
        "is_attached",
        "is_journaling",
        "is_leaving",
        "is_stale",
        "ledger",
        "mode",
        "name",
        "parked_to",
        "pushed_known",
        "pushed_to",
        "session",
        "stream_id",
        "subscriber",
        "waiting",
    )

    def __init__(self, fact: SubscriptionOpened, unsettled_max: int) -> None:
        """As the journal says it was opened."""
        self.stream_id = fact.stream_id
        self.subscriber = fact.subscriber
        self.name = fact.name
        self.session = 0
        self.is_journaling = False
        self.is_leaving = False
        """Whether its removal is on its way to the journal."""
        self.is_stale = False
        self.waiting: list[int] = []
        self.apply_opened(fact, unsettled_max)

    def apply_opened(self, fact: SubscriptionOpened, unsettled_max: int) -> None:
        """A new owner, filter or mode."""
        self.epoch = fact.epoch
        self.incarnation = fact.incarnation
        self.filter = fact.filter
        self.filter_sequence = fact.filter_sequence
        self.mode = fact.mode
        self.attempts_max = fact.attempts_max
        self.attempts = fact.attempts
        self.parked_to = fact.parked_to
        self.is_attached = True
        self._place(fact, unsettled_max)

    def apply_settled(self, fact: SubscriptionSettled, unsettled_max: int) -> None:
        """The cursor moved."""
        self.is_attached = not fact.is_detached
        self._place(fact, unsettled_max)

    def _place(self, fact: SubscriptionOpened | SubscriptionSettled, unsettled_max: int) -> None:
        self.floor_durable = fact.floor
        self.pushed_to = fact.pushed_to
        self.pushed_known = fact.pushed_known
        self.excluded = fact.settled
        self.ledger = Ledger(fact.floor, is_ordered=self.mode == 0, ranges_max=unsettled_max)

    @property
    def floor(self) -> int:
        """Everything up to here is settled or rejected."""
        return self.ledger.floor

    def settled_ranges(self) -> tuple[Range, ...]:
        """What is settled or rejected above the floor, examined by the present owner or by one before."""
        if not self.excluded:
            return self.ledger.settled
        floor = self.floor
        return _joined((*self.ledger.settled, *((max(a, floor + 1), b) for a, b in self.excluded if b > floor)))

    def exclude(self, first: int, last: int) -> None:
        """An earlier session was pushed `first` to `last`, and they are settled before this one examined them."""
        self.excluded = _joined((*self.excluded, (first, last)))

    def forget_passed(self) -> None:
        """Let go of excluded ranges that the ledger knows by itself: an ordered one, once its floor covers them."""
        known_to = self.floor if self.ledger.is_ordered else self.ledger.position - 1
        if self.excluded and self.excluded[0][1] <= known_to:
            self.excluded = tuple(bounds for bounds in self.excluded if bounds[1] > known_to)

    def opened(self) -> SubscriptionOpened:
        """The fact that makes this subscription again."""
        return SubscriptionOpened(
            stream_id=self.stream_id,
            subscriber=self.subscriber,
            name=self.name,
            epoch=self.epoch,
            incarnation=self.incarnation,
            filter=self.filter,
            filter_sequence=self.filter_sequence,
            mode=self.mode,
            floor=self.floor,
            settled=self.settled_ranges(),
            pushed_to=self.pushed_to,
            pushed_known=self.pushed_known,
            attempts_max=self.attempts_max,
            attempts=self.attempts,
            parked_to=self.parked_to,
        )

    def settled(self, is_detached: bool) -> SubscriptionSettled:
        """The fact that its cursor stands where the ledger says."""
        return SubscriptionSettled(
            stream_id=self.stream_id,
            subscriber=self.subscriber,
            name=self.name,
            floor=self.floor,
            settled=self.settled_ranges(),
            pushed_to=self.pushed_to,
            is_detached=is_detached,
            pushed_known=self.pushed_known,
        )

    def note_pushed(self, last: int) -> None:
        """Everything that matched up to `last` was pushed."""
        self.pushed_to = max(self.pushed_to, last)
        self.pushed_known = max(self.pushed_known, last)

    def count_attempts(self) -> None:
        """A session is over: what it was pushed and did not settle was tried once more."""
        if not self.attempts_max:
            return
        counted: list[tuple[int, int, int]] = []
        pushed_to = self.pushed_known
        reached = max(pushed_to, max((last for _, last, _ in self.attempts), default=0))
        for first, last in _between(self.floor + 1, reached, self.settled_ranges()):
            counted += self._attempts_in(first, min(last, pushed_to), 1)
            counted += self._attempts_in(max(first, pushed_to + 1), last, 0)
        self.attempts = tuple(counted)
        # The next session has been pushed nothing yet: what it is not pushed either was not tried once more.
        self.pushed_known = self.floor

    def _attempts_in(self, first: int, last: int, more: int) -> list[tuple[int, int, int]]:
        """The attempts at `first` to `last`, and `more` of them, in ascending ranges; never tried ones are left out."""
        counted: list[tuple[int, int, int]] = []
        place = first
        for a, b, count in self.attempts:
            if b < place or a > last:
                continue
            if more and a > place:
                counted.append((place, a - 1, more))
            counted.append((max(a, place), min(b, last), count + more))
            place = min(b, last) + 1
        if more and place <= last:
            counted.append((place, last, more))
        return counted

    def exhausted(self, first: int, last: int) -> tuple[Range, ...]:
        """The parts of `first` to `last` that were pushed so often that they are to be parked."""
        if not self.attempts_max:
            return ()
        return tuple(
            (max(a, first), min(b, last))
            for a, b, count in self.attempts
            if count >= self.attempts_max and a <= last and b >= first
        )

    def rewind(self, unsettled_max: int) -> None:
        """Begin again behind the floor, for a new session: what is unsettled will be examined and pushed again."""
        self.excluded = self.settled_ranges()
        self.ledger = Ledger(self.ledger.floor, is_ordered=self.mode == 0, ranges_max=unsettled_max)


def _joined(ranges: tuple[Range, ...]) -> tuple[Range, ...]:
    """The same sequences as ascending ranges that neither overlap nor touch."""
    joined: list[Range] = []
    for first, last in sorted(ranges):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return tuple(joined)


def _between(first: int, last: int, holes: tuple[Range, ...]) -> list[Range]:
    """What of `first` to `last` lies outside the ascending `holes`."""
    found: list[Range] = []
    for a, b in holes:
        if a > last:
            break
        if a > first:
            found.append((first, a - 1))
        first = max(first, b + 1)
    if first <= last:
        found.append((first, last))
    return found
