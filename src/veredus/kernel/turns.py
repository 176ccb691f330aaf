"""Work in turns: whoever asks for much waits for its next turn, and whoever asks for little goes on at once.

All that is handled under one `now` is one turn. Each payer (a principal, or all links of one address that have not said
whose they are) may have about a quantum of work done in a turn; what it costs beyond that is a debt, which the
following turns pay off. Work is counted in estimated nanoseconds, so that an engine needs no clock to count it.

Payers may be of a crowd, which has one share for all of it: whoever has proved nothing can come from any number of
addresses, and those who have proved who they are go on beside all of them as beside one.

Source: deficit round robin (Shreedhar and Varghese, 1995), with the debt known only after the work.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator
from itertools import islice
from typing import Generic, TypeVar

from .engine import Now

Payer = TypeVar("Payer", bound=Hashable)
Item = TypeVar("Item", bound=Hashable)

QUANTUM_NS = 2_000_000
CROWD_COUNT = 16
"""Of those of the crowd who wait, so many at most get their turn at once: what theirs cost is known behind it."""
CROWD_NS = 50_000
"""What it costs at least to let one of the crowd have its turn."""
SPENT_COUNT = 4
"""Once so many quanta were spent in a turn, for whomever, no other item has it: what comes new is heard first, however
many payers there are."""
_OWED_COUNT = 1024
"""Debts are looked through for those that are paid when there are so many, or twice as many as were left then."""


class Turns(Generic[Payer, Item]):
    """Owns what each payer owes, and what waits for its turn.

    Invariants
        (1) An item waits at most once, and items of one payer get their turns in the order in which they came.
        (2) In one turn each payer that owes nothing gets one item done, in the order in which payers came to wait,
            until `SPENT_COUNT` quanta were spent for whomever: the others come first in the next.
        (3) While anything waits there is a deadline, and each turn brings every payer nearer to its own.
        (4) Of payers that have paid and do not come again nothing is kept for ever.
        (5) What the crowd has done in a turn is bounded, however many payers it has.
    """

    __slots__ = (
        "_crowd",
        "_is_of_crowd",
        "_now_ns",
        "_owed",
        "_owed_count",
        "_payers",
        "_quantum_ns",
        "_spent_ns",
        "_turn",
        "_waiting",
    )

    def __init__(self, quantum_ns: int = QUANTUM_NS, is_of_crowd: Callable[[Payer], bool] = lambda _: False) -> None:
        """Nobody waits, and nobody owes anything.

        `quantum_ns` is what a payer may have done in a turn, and all of the crowd together.
        """
        self._quantum_ns = quantum_ns
        self._is_of_crowd = is_of_crowd
        self._crowd = (0, 0)
        """What the crowd owes, as each payer in `_owed`."""
        self._turn = 0
        self._now_ns = 0
        self._spent_ns = 0
        """In this turn, for all."""
        self._owed: dict[Payer, tuple[int, int]] = {}
        """By payer the turn in which it was last charged, and what it owed then, in nanoseconds."""
        self._owed_count = _OWED_COUNT
        self._waiting: dict[Payer, deque[Item]] = {}
        self._payers: dict[Item, Payer] = {}

    def may_go(self, payer: Payer, now: Now) -> bool:
        """Whether the payer's work is done at once: nothing of it waits, and it has not had its share of this turn."""
        return payer not in self._waiting and self._is_ready(payer, now)

    def has_share(self, payer: Payer, now: Now) -> bool:
        """Whether the payer has not had its share of this turn, whatever else of it waits, or its crowd has had."""
        return self._debt(payer, now) < self._quantum_ns

    def _is_ready(self, payer: Payer, now: Now) -> bool:
        if self._is_of_crowd(payer) and self._crowd_debt(now) >= self._quantum_ns:
            return False
        return self.has_share(payer, now)

    def charge(self, payer: Payer, cost_ns: int, now: Now) -> None:
        """Work of the payer was done, or is sure to be."""
        if cost_ns:
            if len(self._owed) >= self._owed_count:
                for known in list(self._owed):
                    self._debt(known, now)
                self._owed_count = max(_OWED_COUNT, 2 * len(self._owed))
            self._owed[payer] = (self._turn_of(now), self._debt(payer, now) + cost_ns)
            self._spent_ns += cost_ns
            if self._is_of_crowd(payer):
                self._crowd = (self._turn, self._crowd_debt(now) + cost_ns)

    def wait(self, payer: Payer, item: Item) -> None:
        """Let the item wait behind what waits of the payer; nothing changes for one that waits already."""
        if item not in self._payers:
            self._payers[item] = payer
            self._waiting.setdefault(payer, deque()).append(item)

    def is_waiting(self, item: Item) -> bool:
        """Whether the item waits for its turn."""
        return item in self._payers

    def forget(self, item: Item) -> None:
        """The item waits no more: it is gone."""
        payer = self._payers.pop(item, None)
        if payer is not None:
            items = self._waiting[payer]
            items.remove(item)
            if not items:
                del self._waiting[payer]

    @property
    def owing_count(self) -> int:
        """How many payers are remembered for what they owe, or have paid not long ago."""
        return len(self._owed)

    def acquit(self, payer: Payer) -> None:
        """The payer is gone, and nothing of it waits: what it owes is forgotten."""
        self._owed.pop(payer, None)

    def due(self, now: Now, count_max: int | None = None) -> list[Item]:
        """The items whose turn it is, taken out: one of each payer that has not had its share, `count_max` at most."""
        return list(self.each(now, count_max))

    def each(self, now: Now, count_max: int | None = None) -> Iterator[Item]:
        """As `due`, one by one: what is not asked for waits on, in front of those who have had their turn."""
        for payer in list(islice(self._ready(now), count_max)):
            if self._spent_ns >= SPENT_COUNT * self._quantum_ns:
                return
            waiting = self._waiting.pop(payer, None)
            if waiting is None:
                continue
            item = waiting.popleft()
            del self._payers[item]
            if self._is_of_crowd(payer):
                self.charge(payer, CROWD_NS, now)
            if waiting:
                # Behind the payers that were not yet ready: the order of payers goes round.
                self._waiting[payer] = waiting
            yield item

    def rounds(self, now: Now) -> Iterator[Item]:
        """As `each`, and again, until every payer has had its share of this turn."""
        is_going_on = True
        while is_going_on:
            is_going_on = False
            for item in self.each(now):
                is_going_on = True
                yield item

    def _ready(self, now: Now) -> Iterator[Payer]:
        """The payers whose turn it is, in their order; of the crowd some."""
        left = CROWD_COUNT
        for payer in self._waiting:
            if self._is_of_crowd(payer):
                if not left or not self._is_ready(payer, now):
                    continue
                left -= 1
            elif not self._is_ready(payer, now):
                continue
            yield payer

    def deadline(self) -> int | None:
        """Monotonic nanoseconds at which the next turn is due: at once, if anything waits."""
        return self._now_ns + 1 if self._waiting else None

    def _turn_of(self, now: Now) -> int:
        if now.monotonic_ns != self._now_ns:
            self._now_ns = now.monotonic_ns
            self._turn += 1
            self._spent_ns = 0
        return self._turn

    def _crowd_debt(self, now: Now) -> int:
        charged, owed = self._crowd
        return max(0, owed - (self._turn_of(now) - charged) * self._quantum_ns)

    def _debt(self, payer: Payer, now: Now) -> int:
        turn = self._turn_of(now)
        known = self._owed.get(payer)
        if known is None:
            return 0
        charged, owed = known
        left = owed - (turn - charged) * self._quantum_ns
        if left <= 0:
            del self._owed[payer]
            return 0
        return left
