"""What the journal does not have yet of what a subscription has settled, and who waits for it; lives in the loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from veredus.kernel.errors import Unavailable, VeredusError
from veredus.streams.exchange import SettleMode
from veredus.streams.ranges import common, is_in, without

from .links import log
from .ranges import Range, joined
from .settling import SEQUENCE_MAX, SettleWait, Settling, Settlings, overlap


class Unconfirmed:
    """Owns up to where all is settled in the journal, what lies behind that, and those who wait.

    Invariant: what an answer names is confirmed, and nothing else: it may be the answer to what an owner before has
    settled, or to a part.
    """

    def __init__(
        self, mode: SettleMode, settlings: Settlings, holds_rejected: Callable[[int, int], bool], words: str = ""
    ) -> None:
        """Nothing is settled of what `words` name.

        `holds_rejected`: whether something of a range was rejected, and is to be parked yet.
        """
        self.floor = 0
        self.refused = ""
        """Why what was settled is not in the journal yet, as the node has said; "" where it has said nothing."""
        self._words = words
        self._is_in_order = mode is SettleMode.IN_ORDER
        self._settlings = settlings
        self._holds_rejected = holds_rejected
        self._sent: tuple[Range, ...] = ()
        self._pending: list[Range] = []
        self._waiters: list[SettleWait] = []

    @property
    def is_on_its_way(self) -> bool:
        """Whether a settlement is."""
        return bool(self._sent)

    def begin(self, floor: int) -> None:
        """All up to here was settled before."""
        self.floor = self._settlings.first.settle_to = floor

    def begin_anew(self, floor: int) -> None:
        """The node was put back, perhaps to before what it has confirmed: what is left of that is said once more."""
        self.floor = min(self.floor, floor)
        self._pending += self._settlings.kept_above(floor)

    def lose_from(self, sequence: int) -> Settling:
        """What was pushed from `sequence` on is gone: there is nothing of it to settle. Into what is written that is
        done with of what comes now.
        """
        last = sequence - 1
        self.floor = min(self.floor, last)
        self._pending = [(first, min(end, last)) for first, end in self._pending if first <= last]
        return self._settlings.lose_from(sequence)

    def add(self, sequence: int) -> None:
        """This is done with, too."""
        self._pending.append((sequence, sequence))

    # ── send ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def to_send(self) -> tuple[Range, ...]:
        """What is to be sent now, and then is on its way; nothing where there is nothing new in it."""
        ranges = self._unsent()
        if not ranges or ranges == self._sent:
            return ()
        self._sent = ranges
        return ranges

    def take_back(self) -> None:
        """What was on its way is to be sent once more."""
        self._sent = ()

    def _unsent(self) -> tuple[Range, ...]:
        if self._is_in_order:
            self._settlings.pass_missing(self.floor)
            floor, settle_to = self.floor, self._settlings.settle_to
            return ((floor + 1, settle_to),) if settle_to > floor else ()
        self._pending = joined([*self._pending, *self._settlings.take()])
        return tuple(self._pending)

    def be_refused(self, why: str) -> None:
        """The node cannot journal what was settled, for now; the log says so once, until it has journaled it."""
        if not self.refused:
            log.warning("the node refuses settlements (%s), and is asked again: %s", self._words, why)
        self.refused = why

    def confirm(self, done: Sequence[Range]) -> None:
        """These are in the journal, whoever has settled them."""
        self._sent = without(self._sent, done)
        if not self._sent:
            self.refused = ""
        self.floor = max(self.floor, done[0][1])
        if not self._is_in_order:
            self._settlings.confirm(list(done))
            pending = joined(self._pending)
            self._settlings.keep(common(pending, done))
            self._pending = list(without(pending, done))

    # ── wait ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def of_all(self) -> Range:
        """What is waited for by whoever waits for all settlements."""
        return 1, self._settlings.settle_to if self._is_in_order else SEQUENCE_MAX

    def is_settled(self, wanted: Range) -> bool:
        """Whether the settlement of this range is confirmed, as far as it was asked for."""
        if wanted[0] > wanted[1]:
            return True
        if self._holds_rejected(*wanted):
            return False
        if self._is_in_order:
            return self.floor >= min(wanted[1], self._settlings.settle_to)
        return not overlap(self._unsent(), wanted)

    def is_asked(self, sequence: int) -> bool:
        """Whether it is settled individually, and that not confirmed yet."""
        return not self._is_in_order and is_in(sequence, self._unsent())

    def _was_settled(self, wanted: Range) -> bool:
        """Whether something of this range was settled or rejected, confirmed or not."""
        if self._is_in_order:
            return wanted[0] <= max(self.floor, self._settlings.settle_to)
        is_known = wanted[0] <= self.floor or self._settlings.is_confirmed_within(wanted)
        return is_known or overlap(self._unsent(), wanted) or self._holds_rejected(*wanted)

    def add_waiter(self, wait: SettleWait, failure: VeredusError | None) -> None:
        """Tell `wait` once what of it is not lost is settled, or cannot be, for `failure`; at once, if nothing was."""
        wait.cut()
        if wait.needs_nothing or self._was_settled(wait.wanted):
            self._await(wait, failure)
        else:
            wait.end_unsettled()

    def tell(self, failure: VeredusError | None) -> None:
        """Tell those whose wait is over."""
        waiting, self._waiters = self._waiters, []
        for wait in waiting:
            self._await(wait, failure)

    def _await(self, wait: SettleWait, failure: VeredusError | None) -> None:
        wait.cut()
        if self.is_settled(wait.wanted):
            wait.end()
        elif failure is not None:
            wait.end(failure)
        else:
            self._waiters.append(wait)

    def in_doubt(self, is_leaving: bool = False) -> VeredusError:
        """What is said when a settlement was not confirmed in time, and whether its subscription ends by that."""
        message = "the node has not confirmed the settlement yet; the client sends it again until the node confirms it"
        if is_leaving:
            message = (
                "the node has not confirmed the settlement, and the subscription is closed: it sends it no more, and"
                " what is not settled is delivered again to the next one of the same name"
            )
        return Unavailable("in-doubt", f"{message}: {self.refused}" if self.refused else message)
