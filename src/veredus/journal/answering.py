"""Answers what was asked for and is in the journal: in its order, and a part at a time, for what follows takes time.

    asked ──► (queue, group under way) ──► placed ──► answer, at one call ──► ANSWER timer ──► answer, …
                                  └──► refused

Invariants
    (1) `size` is the bytes that were asked for and are neither answered nor refused, and `size_by` those of each payer.
    (2) `asked_growth` is no less than what was taken, and `growth` than what was answered, adds to the state.
    (3) At one call about `answer_count_max` requests and `answer_size_max` bytes of facts are answered.
Source: docs/internals/DESIGN.md, "Journal" and "Bounds".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from veredus.kernel.deadlines import Deadlines
from veredus.kernel.engine import Now

from .exchange import Appended
from .orders import Orders
from .phases import Timer
from .pieces import Append
from .settings import LogSettings


class Answering:
    """Owns what is placed and not answered, and how much is not answered of all that was asked for."""

    __slots__ = ("_orders", "_placed", "_settings", "_timers", "asked_growth", "growth", "size", "size_by")

    def __init__(self, settings: LogSettings, growth: int, orders: Orders, timers: Deadlines[Timer]) -> None:
        """Nothing was asked for yet; the state has grown by `growth` bytes since the last checkpoint."""
        self._settings = settings
        self._orders = orders
        self._timers = timers
        self._placed: deque[Append] = deque()
        self.size = 0
        self.size_by: dict[str | None, int] = {}
        """Of payers that have any; None has what the node itself asked for."""
        self.asked_growth = growth
        """Of a checkpoint's state since the one that recovery began with, in bytes: with all that was asked for."""
        self.growth = growth
        """With what was answered alone."""

    def __bool__(self) -> bool:
        """Whether something is in the journal, and not answered yet."""
        return bool(self._placed)

    def ask(self, append: Append) -> None:
        """Count a request."""
        self._count(append.payer, append.size)
        self.asked_growth += append.growth

    def give_up(self, append: Append) -> None:
        """A request is refused, or in doubt."""
        self._count(append.payer, -append.size)
        self.asked_growth -= append.growth

    def place(self, appends: Iterable[Append]) -> None:
        """These requests are in the journal."""
        self._placed += appends

    def answer(self, now: Now) -> None:
        """Answer the next part; `Timer.ANSWER` is due as long as there is another."""
        count_left, size_left = self._settings.answer_count_max, self._settings.answer_size_max
        while self._placed and count_left > 0 and size_left > 0:
            append = self._placed.popleft()
            self._orders.say(Appended(append.token, self._settings.sync))
            self._count(append.payer, -append.size)
            self.growth += append.growth
            count_left -= 1
            size_left -= append.facts_size
        if self._placed:
            self._timers.set(Timer.ANSWER, now.monotonic_ns)

    def _count(self, payer: str | None, size: int) -> None:
        if size:
            self.size += size
            own = self.size_by.get(payer, 0) + size
            if own:
                self.size_by[payer] = own
            else:
                del self.size_by[payer]

    def check(self, others: Iterable[Append]) -> None:
        """Raise `AssertionError` where (1) does not hold; `others` wait, or are under way."""
        sizes: dict[str | None, int] = {}
        for append in (*others, *self._placed):
            if append.size:
                sizes[append.payer] = sizes.get(append.payer, 0) + append.size
        assert self.size_by == sizes, "(1)"
        assert self.size == sum(sizes.values()), "(1)"
