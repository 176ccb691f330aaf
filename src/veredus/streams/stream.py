"""One stream: where its next publication goes, and who hangs on it.

    sequence:   1 ... floor ........ head_durable ........ head_assigned
                trimmed | kept, may be pushed | on its way to the journal

Invariants
    (1) floor - 1 <= head_durable <= head_assigned.
    (2) Nothing above head_durable is pushed, confirmed or counted.
    (3) Append times never fall.
    (4) The legs of a weave name each durable sequence from the first to the last of them once.
    (5) What its sources keep is in the shares of their owners.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from veredus.delivery.settlement import Range
from veredus.kernel.errors import Refused
from veredus.kernel.terms import Terms, parted_at

from .exchange import Start, StartKind
from .facts import NOTHING_HAD, Gone, Had, RaisedSource, StreamCreated, TermRaised
from .listing import InOrder
from .shares import Shares
from .source import SourceState
from .subscriptions import Subscriptions
from .tail import Tail, TailBudget
from .weave import cut_from

if TYPE_CHECKING:
    from .audience import Audience
    from .flow import Flow


TERMS_MAX = 16
"""Of this many terms a stream knows where they began; the oldest ones are then taken for one."""


class Left(NamedTuple):
    """When a durable subscription was removed (µs, the node's wall clock), the highest number of a wish by then, and
    what was received by it and by those before it.
    """

    removed_us: int
    wish: int = 0
    had: Had = NOTHING_HAD


NEVER_LEFT = Left(0)


class Stream:
    """Owns one stream's places, sources, subscriptions and the sessions that it feeds."""

    __slots__ = (
        "append_time_us",
        "audience",
        "config",
        "created_us",
        "creator",
        "floor",
        "flows",
        "gone",
        "head_assigned",
        "head_durable",
        "incarnation",
        "is_deleted",
        "is_term_durable",
        "left",
        "merged",
        "name",
        "next_source_id",
        "shares",
        "source_names",
        "sources",
        "stream_id",
        "subscriptions",
        "tail",
        "terms",
        "waiting",
        "weave",
    )

    def __init__(self, created: StreamCreated, budget: TailBudget, shares: Shares) -> None:
        """A stream that holds nothing yet; `shares` are those of the node."""
        self.stream_id = created.stream_id
        self.name = created.name
        self.incarnation = created.incarnation
        self.config = created.config
        self.created_us = created.created_us
        self.creator = created.creator
        self.is_deleted = False
        self.terms: list[tuple[int, int]] = [(1, 1)]
        """Terms with their first sequences, both growing: from there on nothing of an earlier term is left."""
        self.is_term_durable = True
        """Whether the present term is there for good; nobody is told of one that a power cut could give again."""
        self.floor = 1
        self.head_assigned = 0
        self.head_durable = 0
        self.append_time_us = 0
        self.next_source_id = 1
        self.shares = Shares(shares)
        self.sources: dict[str, SourceState] = {}
        self.source_names: dict[int, str] = {0: ""}
        self.subscriptions = Subscriptions()
        self.left: InOrder[tuple[str, str, str], Left] = InOrder()
        """When durable subscriptions were removed last, of those that were last removed; see `Departures`. By
        subscriber, name and the principal whose it was, or who wished to be without it.
        """
        self.flows: dict[int, Flow] = {}
        self.waiting: dict[str, OrderedDict[Flow, None]] = {}
        """Of these, by payer, those that the next publication reaches; see `Fanout`."""
        self.audience: Audience | None = None
        """Of these those that the next publication reaches where their filters may want it; None before the first."""
        self.tail = Tail(budget)
        self.weave: tuple[Range, ...] = ()
        """The order in which what its legs name goes to who asks for that; () for that of the sequences."""
        self.gone: tuple[Gone, ...] = ()
        """What merges into it did not bring, as commits say."""
        self.merged: tuple[bytes, ...] = ()
        """The lives of all that they took, the newest last."""

    def created(self) -> StreamCreated:
        """The fact that makes this stream, with the configuration that it has now."""
        return StreamCreated(self.stream_id, self.name, self.incarnation, self.config, self.created_us, self.creator)

    def assign(self, count: int, wall_us: int) -> tuple[int, int]:
        """The first sequence and the append time (µs) of the next `count` publications."""
        first = self.head_assigned + 1
        self.head_assigned += count
        self.append_time_us = max(self.append_time_us, wall_us)
        return first, self.append_time_us

    def unassign(self, first_sequence: int) -> None:
        """The journal refused what was to start at `first_sequence`, and so everything behind it."""
        self.head_assigned = max(self.head_durable, min(self.head_assigned, first_sequence - 1))

    def become_durable(self, last_sequence: int) -> None:
        """Everything up to `last_sequence` is in the journal."""
        self.head_durable = last_sequence
        self.head_assigned = max(self.head_assigned, last_sequence)

    @property
    def term(self) -> int:
        """The present term."""
        return self.terms[-1][0]

    def term_raised(self) -> TermRaised:
        """The fact that makes the present term."""
        return TermRaised(self.stream_id, *self.terms[-1])

    def raise_term(self, term: int, first_sequence: int) -> None:
        """What an earlier term held from `first_sequence` on is gone."""
        for subscription in self.subscriptions.values():
            subscription.forget_from(first_sequence)
        self.weave = cut_from(self.weave, first_sequence)
        self.terms = [known for known in self.terms if known[1] < first_sequence] + [(term, first_sequence)]
        if len(self.terms) > TERMS_MAX:
            (_, first), (merged, _), *rest = self.terms
            self.terms = [(merged, first), *rest]

    def changed_from(self, term: int, terms: Terms = ()) -> int:
        """The first sequence that may mean something else than in `term`; 0 when none does, or for `term` 0.

        `terms` are those that were known in it. Where an older copy of the journal ran for a while, and then a newer
        one, they part from the terms here at a place that `term` alone does not tell.
        """
        if not terms:
            return next((first for later, first in self.terms if later > term > 0), 0)
        return parted_at(self.terms, terms)

    def place_of(self, start: Start, term: int, terms: Terms = ()) -> int:
        """The sequence at which a subscriber that knew `term` begins. Raises `Refused` for one that is not there."""
        head, floor = self.head_durable, self.floor
        if start.kind is StartKind.HEAD:
            return head + 1
        if start.kind is StartKind.TAIL:
            return max(floor, head - start.value + 1)
        if start.kind is StartKind.AFTER_MINE:
            source = self.sources.get(start.source)
            return max(floor, source.last_sequence + 1) if source else floor
        if start.value == 0:
            return floor
        first = min(start.value, self.changed_from(term, terms) or start.value)
        if first < floor:
            message = f"sequence {first} of stream {self.name!r} is no longer kept: begin at {floor} or at the start"
            raise Refused("below-floor", message, floor=floor, head=head)
        self.check_there(first, term, terms)
        return first

    def check_there(self, first: int, term: int, terms: Terms = ()) -> None:
        """Raise `Refused("above-head")` where nothing can begin at `first` yet, for a subscriber that knew `term`."""
        floor, head = self.floor, self.head_durable
        if min(first, self.changed_from(term, terms) or first) > head + 1:
            # A peer names where it begins, or the last that it knows before that: this is true for both.
            message = (
                f"stream {self.name!r} has no sequence {first} yet, the newest is {head}: begin at {head + 1}"
                f"{' or before' if head else ''}"
            )
            if term:
                message = (
                    f"the subscriber has stream {self.name!r} up to sequence {first - 1}, but the newest one of the"
                    f" node is {head}: its journal was put back to an earlier state. Stop the node, run `veredus"
                    " journal restored DIRECTORY`, start it again, and subscribe again"
                )
            raise Refused("above-head", message, floor=floor, head=head)

    def check_wish(self, key: tuple[str, str], wish: int, principal: str) -> None:
        """Raise `Refused("outdated-wish")` where a subscription is not there, and a later wish of this principal was to
        be without it.
        """
        last = self.left.get((*key, principal), NEVER_LEFT).wish
        if wish and wish <= last:
            raise outdated(key, wish, last)

    def source_at(self, source_id: int) -> SourceState | None:
        """The source with this id, None for an anonymous one."""
        name = self.source_names.get(source_id, "")
        return self.sources.get(name)

    def add_source(self, source_id: int, name: str, is_sparse: bool) -> SourceState:
        """Know a source from now on, which has published nothing yet."""
        source = self.sources[name] = SourceState(source_id, name, is_sparse, self.shares)
        self.source_names[source_id] = name
        self.next_source_id = max(self.next_source_id, source_id + 1)
        return source

    def forget_unmade(self, source: SourceState) -> None:
        """The journal refused what was to make the source: it is not there, unless something else makes it."""
        if not (source.epoch or source.last_assigned or source.session) and self.sources.get(source.name) is source:
            del self.sources[source.name], self.source_names[source.source_id]
            source.leave()

    def check_sources(self, more: int) -> None:
        """Raise `Refused("too-many-sources")` where the stream may not know so many more."""
        most = self.config.sources_max
        if more and len(self.sources) + more > most:
            message = (
                f"stream {self.name!r} has {len(self.sources)} sources, its limit: raise its sources_max with `veredus"
                " stream alter`"
            )
            raise Refused("too-many-sources", message, sources_max=most)

    def raise_sources(self, sources: Iterable[RaisedSource]) -> None:
        """Know what sources have published elsewhere, live or in a replay."""
        for raised in sources:
            source = self.sources.get(raised.name) or self.add_source(raised.source_id, raised.name, is_sparse=True)
            source.become_known(raised.owner)
            if source.is_told_by(raised.number, raised.token, source.last_durable):
                source.become_raised(raised.number, raised.token)

    def check(self) -> None:
        """Repeat the invariants."""
        assert self.floor - 1 <= self.head_durable <= self.head_assigned, "(1)"
        legs = sorted(self.weave)
        assert all(last + 1 == first for (_, last), (first, _) in pairwise(legs)), "(4)"
        assert not legs or legs[-1][1] <= self.head_durable, "(4)"
        shares: dict[str, tuple[int, int]] = {}
        for source in self.sources.values():
            assert source.last_durable <= source.last_assigned
            count, size = shares.get(source.owner, (0, 0))
            shares[source.owner] = count + 1, size + len(source.token)
        assert shares == self.shares.amounts(), "(5)"


def outdated(key: tuple[str, str], wish: int, last: int) -> Refused:
    """The refusal of a wish that comes behind a newer one."""
    why = (
        f"arrived after the newer request {last}" if wish < last else "has the number of the opposite request before it"
    )
    said = (
        f"request {wish} of {key[0]}/{key[1]} {why} and changes nothing; for a new request, use a number above {last}"
    )
    return Refused("outdated-wish", said, last=last)
