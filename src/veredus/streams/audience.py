"""The flows that wait at a stream's head and want little of it: an index over their filters asks for all at once.

    waits, and has a filter ──► a member ── a publication ──► named by the index? ── no ──► has examined it, with others
                                   ▲                               └── yes ──► leaves, to be fed as any flow
                                   └────────────────────────────────────────── fed, and waits again

What a publication costs for those that do not want it does not grow with how many they are.

Invariants
    (1) Members lack nothing but a publication, and have examined all below `position`, which they share: their own
        positions, and the ledgers of their subscriptions, stand where they joined until they leave or are looked at.
    (2) A filter that wants a row of a record is named for it (`veredus.matching.index`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from veredus.kernel.turns import QUANTUM_NS
from veredus.matching import Filter
from veredus.matching.index import FilterIndex

if TYPE_CHECKING:
    from .examine import Examiner
    from .flow import Flow
    from .stream import Stream


DISMISS_NS = 2_000
"""What it costs to let a member go."""


class Audience:
    """Owns whose turn a publication is, of the flows of one stream that have a filter."""

    __slots__ = ("_index", "_known", "_members", "_payers", "_progress_from", "count", "durable", "position")

    def __init__(self) -> None:
        """Nobody waits."""
        self.position = 0
        """What the members examine next."""
        self.count = 0
        self.durable: dict[Flow, None] = {}
        """The members whose cursors move with them."""
        self._index: FilterIndex[Filter] = FilterIndex()
        self._known: dict[Filter, int] = {}
        """How many flows have each filter, be they members now or not: most come back behind each publication."""
        self._members: dict[Filter, dict[Flow, None]] = {}
        self._payers: dict[str, int] = {}
        """Of how many members each is the payer."""
        self._progress_from = 0

    def __iter__(self) -> Iterator[Flow]:
        return (flow for among in self._members.values() for flow in among)

    def join(self, flow: Flow, head: int) -> bool:
        """Let the flow, whose filter has needs, wait here behind the stream's `head`; whether it may."""
        if flow.position != head + 1 or flow.later or flow.legs or flow.until:
            return False
        if not self.count:
            self.position = self._progress_from = flow.position
        elif flow.position != self.position:
            # The others have not been told of the newest publications yet.
            return False
        filter_ = flow.wanted.filter
        if flow.indexed is not filter_:
            self.forget(flow)
            if filter_ not in self._known:
                self._index.add(filter_, flow.wanted.needs)
            self._known[filter_] = self._known.get(filter_, 0) + 1
            flow.indexed = filter_
        self._members.setdefault(filter_, {})[flow] = None
        self._payers[flow.payer] = self._payers.get(flow.payer, 0) + 1
        self.count += 1
        flow.audience = self
        if flow.subscription is not None:
            self.durable[flow] = None
            flow.subscription.member = flow
        return True

    def leave(self, flow: Flow) -> None:
        """The flow goes on by itself from here."""
        among = self._members[flow.wanted.filter]
        del among[flow]
        if not among:
            del self._members[flow.wanted.filter]
        self._payers[flow.payer] -= 1
        if not self._payers[flow.payer]:
            del self._payers[flow.payer]
        self.count -= 1
        flow.audience = None
        if flow.subscription is not None:
            del self.durable[flow]
            flow.subscription.member = None
        flow.stand_at(self.position)

    def forget(self, flow: Flow) -> None:
        """The flow, which is no member, is gone, or has another filter."""
        filter_, flow.indexed = flow.indexed, None
        if filter_ is not None:
            self._known[filter_] -= 1
            if not self._known[filter_]:
                del self._known[filter_]
                self._index.remove(filter_)

    def shares(self) -> dict[str, float]:
        """By payer its share of what is asked for all members at once."""
        return {payer: count / self.count for payer, count in self._payers.items()}

    @property
    def payer(self) -> str:
        """Who has the most members."""
        return max(self._payers, key=self._payers.__getitem__)

    def lacks(self, stream: Stream) -> bool:
        """Whether there are publications that the members have not examined."""
        return self.count > 0 and self.position <= stream.head_durable

    def reach(self, stream: Stream, examiner: Examiner, size_max: int) -> list[Flow]:
        """The stream has publications: those that may want one have left, with the position before it.

        For about a quantum: then others have their turn, and the members go on where they are.
        """
        reached: list[Flow] = []
        while self.lacks(stream) and examiner.cost_ns < QUANTUM_NS:
            records = stream.tail.read(self.position, size_max)
            for record in records or ():
                if examiner.cost_ns >= QUANTUM_NS:
                    break
                named = examiner.ask(self._index, stream, record)
                if named is None:
                    records = None
                    break
                for filter_ in named:
                    reached += self._dismiss(filter_)
                self.position = record.first_sequence + record.count
            if not records:
                examiner.cost_ns += self.count * DISMISS_NS
                for filter_ in list(self._members):
                    reached += self._dismiss(filter_)
        return reached

    def _dismiss(self, filter_: Filter) -> list[Flow]:
        flows = list(self._members.get(filter_, ()))
        for flow in flows:
            self.leave(flow)
        return flows

    def far_behind(self, count: int) -> list[Flow]:
        """The members that were told nothing for `count` sequences; asked for rarely enough to cost little."""
        if self.position - self._progress_from < count // 10:
            return []
        self._progress_from = self.position
        return [flow for flow in self if self.position - flow.progress_told >= count]
