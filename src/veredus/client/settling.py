"""What the subscriber is done with, by the life of the stream that pushed it: the same sequence may mean two things.

Where a node was put back to an older copy, what it had pushed behind some place is gone, and other publications get the
sequences. The subscriber may still have those that are gone in its hands, and settle them: that says nothing of the
ones that took their places, whether or not it has been told of the loss. So each life has its own `Settling`, which a
batch knows; the subscriber's thread writes into it, and the loop takes out of it what still counts.

What the node has confirmed is kept in its own words: it names all that is settled, joined with what the filter
rejected, so this stays as short as the cursor. Who waits for something that is neither there nor on its way waits for a
settlement that nobody made.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from veredus.kernel.errors import Misuse, VeredusError

from .ranges import Range, joined

SEQUENCE_MAX = (1 << 63) - 1
KEPT_MAX = 1_000
"""So many ranges of what was settled are said once more to a node that was put back; they are joined as they touch."""
Waiter: TypeAlias = Callable[[], None]


class Settling:
    """What was settled, and handed out, of what one life of the stream has pushed."""

    __slots__ = ("handed_to", "last", "missing", "settle_to", "to_settle")

    def __init__(self) -> None:
        """Nothing yet."""
        self.settle_to = 0
        """In order: up to where the subscriber has settled."""
        self.to_settle: deque[Range] = deque()
        """Individually: what the subscriber has settled."""
        self.missing: deque[Range] = deque()
        """In order: what cannot be had, as the subscriber knows; it is done with once all before it is settled."""
        self.handed_to = 0
        """What the subscriber was handed, where attempts are counted."""
        self.last = SEQUENCE_MAX
        """What lay behind this is gone; the loop writes it."""

    def cut(self, wanted: Range) -> Range:
        """What of a range is not gone; one that ends before it begins for nothing."""
        return wanted[0], min(wanted[1], self.last)


class Settlings:
    """Owns the lives' settlings; lives in the loop."""

    __slots__ = ("_all", "_confirmed", "_kept", "_passed", "first")

    def __init__(self) -> None:
        """Nothing was lost."""
        self.first = Settling()
        self._all = [self.first]
        self._confirmed: list[Range] = []
        self._kept: list[Range] = []
        """Individually: what the subscriber has settled itself, and the node has confirmed; the newest of it."""
        self._passed = 0
        """In order: the end of the last gap that is done with."""

    def lose_from(self, sequence: int) -> Settling:
        """What was pushed from `sequence` on is gone; the settling of what is pushed from now on."""
        for settling in self._all:
            settling.last = min(settling.last, sequence - 1)
        self._passed = min(self._passed, sequence - 1)
        self._confirmed = [(first, min(last, sequence - 1)) for first, last in self._confirmed if first < sequence]
        self._kept = [(first, min(last, sequence - 1)) for first, last in self._kept if first < sequence]
        self._all.append(Settling())
        return self._all[-1]

    @property
    def settle_to(self) -> int:
        """In order: up to where all is settled."""
        return max(self._passed, *(min(settling.settle_to, settling.last) for settling in self._all))

    def pass_missing(self, floor: int) -> None:
        """In order: what is missing right behind what is settled, up to `floor` in the journal, is done with, too."""
        for settling in self._all:
            missing = settling.missing
            while missing and missing[0][0] <= max(floor, self.settle_to) + 1:
                self._passed = max(self._passed, settling.cut(missing.popleft())[1])

    @property
    def handed_to(self) -> int:
        """Up to where was handed out."""
        return max(min(settling.handed_to, settling.last) for settling in self._all)

    def take(self) -> list[Range]:
        """Individually: what was settled since this was asked last."""
        taken: list[Range] = []
        for settling in self._all:
            while settling.to_settle:
                first, last = settling.cut(settling.to_settle.popleft())
                if first <= last:
                    taken.append((first, last))
        return taken

    def confirm(self, done: list[Range]) -> None:
        """These are settled in the journal; individually."""
        # One answer may come in several parts, so what the ones before have named stays.
        self._confirmed = joined([*self._confirmed, *done])

    def keep(self, settled: Sequence[Range]) -> None:
        """What the subscriber has settled of what the node has confirmed now."""
        self._kept = joined([*self._kept, *settled])[-KEPT_MAX:]

    def kept_above(self, floor: int) -> list[Range]:
        """The subscriber has settled this, and a node that was put back to this floor may not know it any more."""
        return [(max(first, floor + 1), last) for first, last in self._kept if last > floor]

    def is_confirmed_within(self, wanted: Range) -> bool:
        """Whether something of this range is settled in the journal; individually."""
        return overlap(self._confirmed, wanted)


def overlap(ranges: Iterable[Range], wanted: Range) -> bool:
    """Whether one of the ranges has something of this one."""
    return any(first <= wanted[1] and last >= wanted[0] for first, last in ranges)


class SettleWait:
    """Somebody who waits for settlements; the loop writes what becomes of it before it tells."""

    __slots__ = ("_error", "is_all", "settling", "tell", "wanted")

    def __init__(self, wanted: Range, settling: Settling, is_all: bool) -> None:
        """`wanted` of the life of `settling` is waited for; `is_all`: nobody says that something of it was settled."""
        self.wanted = wanted
        self.settling = settling
        self.is_all = is_all
        self.tell: Waiter = lambda: None
        """Lets the one who waits go on; who waits sets it."""
        self._error: VeredusError | None = None

    def cut(self) -> None:
        """What of it is gone is not waited for."""
        self.wanted = self.settling.cut(self.wanted)

    @property
    def needs_nothing(self) -> bool:
        """Whether it is no mistake that nothing of it was settled."""
        return self.is_all or self.wanted[0] > self.wanted[1]

    def end(self, error: VeredusError | None = None) -> None:
        """It is over: settled, or not for this reason."""
        self._error = error
        self.tell()

    def end_unsettled(self) -> None:
        """It is over: nobody has settled anything of it."""
        first, last = self.wanted
        said = f"sequence {first} was not settled" if first == last else f"nothing of {first} to {last} was settled"
        message = (
            f"{said}: call settle first, and then wait; what was given back by retry can be settled when it is handed"
            " out again"
        )
        self.end(Misuse("not-settled", message))

    def check(self) -> None:
        """Raise why what was waited for is not settled."""
        error = self._error
        if error is not None:
            raise error.again()
