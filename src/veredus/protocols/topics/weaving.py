"""In which order a merged topic goes to its subscribers: the messages of each client by their counters.

A client that put 6 to 8 to the giver, and 5, 9 and 10 to the keeper, has its messages in the keeper's stream as
5 9 10 6 7 8. Who has received 9 and 10 has them before 6 for good; everybody else gets 6, 7 and 8 first. Sequences stay
what they are, and so do ids: the commit of the merge says in which *legs* the stream is gone through.

    keeper's rows   a1 b1 [c9] a2 [c10] b2 | c6 b3 c7 c8 d1   giver's rows
    legs            a1 b1   c6 b3 c7 c8   c9 a2 c10 b2   d1

It is gone through as it lies. Where a message comes that has lower ones of its client behind it, the rows from the
first to the last of these come first: all of them, to keep the legs few, but what would come before a lower one itself.
Of the giver's rows these are all up to the last; of the keeper's, where an earlier merge has left some behind what they
come before, those that were not gone through so. What is still missing then, since a client's messages are in no order
at one of both servers either, is taken by itself.

What was published otherwise has numbers of one stream alone, and what came from a server of the page has none: these go
as they lie. So do all but the keeper's last `ROWS_MAX` messages, or fewer where these need more than `LEGS_MAX` legs:
one subscriber that is far behind costs nobody else the order. What comes behind so many legs goes as it lies as well.
Source: docs/decisions/0018.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from veredus.delivery.settlement import Range
from veredus.streams.exchange import Place
from veredus.streams.ranges import joined, without

from .transfer import PAGE_SOURCE
from .twins import KnownPuts

LEGS_MAX = 400
"""So many legs a weave may have; each cursor may have to remember as many ranges."""
ROWS_MAX = 100_000
"""So many of the keeper's last messages are woven: the topic is held meanwhile."""
KEEPER, GIVER = "keeper", "giver"
Legs: TypeAlias = tuple[tuple[Place, int], ...]


class Woven(NamedTuple):
    """The legs, () where the stream goes as it lies; and which messages may come before lower ones of their client, by
    which limit, and what to do about it: "" where none do.
    """

    legs: Legs
    unkept: str = ""


class _Put(NamedTuple):
    """A message where it lies, the giver's rows behind the keeper's; its client, and its place among that one's."""

    place: int
    client: _Client
    rank: int


@dataclass(slots=True, eq=False)
class _Client:
    places: list[int]
    """In the order of counters."""
    gone_count: int = 0
    """So many of them were gone through."""


def woven(keeper: KnownPuts, giver: KnownPuts, head: int, row_count: int, floor: int) -> Woven:
    """The order for cursors from `floor` on, of the keeper's sequences to `head` and of the rows of the stage."""
    first = begun = max(floor, head - ROWS_MAX) + 1
    weaver, is_cut = whole = _weaver_from(first, keeper, giver, head, row_count, floor)
    while weaver.stopped_at and first <= head:
        # Half as far back each time, so all together take no longer than twice the first one.
        first += (head - first) // 2 + 1
        weaver, is_cut = _weaver_from(first, keeper, giver, head, row_count, floor)
    if weaver.stopped_at:
        first, (weaver, is_cut) = begun, whole
    legs: list[tuple[Place, int]] = []
    for a, b in weaver.legs:
        if a <= head:
            legs.append((Place(a), min(b, head) - a + 1))
        if b > head:
            start = max(a, head + 1)
            legs.append((Place(row=start - head - 1), b - start + 1))
    unkept = []
    if is_cut or first > begun:
        why = _ROWS.format(rows_max=ROWS_MAX) if first == begun else _LEGS.format(legs_max=LEGS_MAX)
        unkept.append(f"up to sequence {first - 1}, messages go as they lie here: {why}")
    if weaver.stopped_at:
        unkept.append(_FROM.format(sequence=weaver.stopped_at, legs_max=LEGS_MAX))
    return Woven(tuple(legs), "; ".join((*unkept, _CURE)) if unkept else "")


_ROWS = "only the last {rows_max} are put in order, the limit"
_LEGS = "with them it needs more than {legs_max} changes of the order, the limit"
_FROM = (
    "from sequence {sequence} on, messages go as they lie here: they need more than {legs_max} changes of the order,"
    " the limit"
)
_CURE = (
    "where the order matters, sort by client and counter (source and number, or put-client and put-counter); what"
    " subscribers get before two servers are merged needs no order"
)


def _weaver_from(
    first: int, keeper: KnownPuts, giver: KnownPuts, head: int, row_count: int, floor: int
) -> tuple[_Weaver, bool]:
    """What is gone through from `first` on; and whether something before it comes before lower ones."""
    clients, is_cut = _clients(keeper, giver, head, floor, first)
    weaver = _Weaver(clients, head, head + row_count)
    weaver.go()
    return weaver, is_cut


def _clients(keeper: KnownPuts, giver: KnownPuts, head: int, floor: int, first: int) -> tuple[list[_Client], bool]:
    """Who put to either, with what lies from `first` on, nobody where all messages lie in order; and whether what lies
    behind the floor and before `first` has messages above some of these.
    """
    if all(giver.may_follow(keeper, name) for name in _numbering((*giver.clients, *keeper.disordered))):
        return [], False
    clients: list[_Client] = []
    is_cut = False
    for name in _numbering((*giver.clients, *keeper.clients)):
        puts = [(place, counter) for place, counter in keeper.puts_of(name, first) if place <= head]
        puts += [(head + 1 + row, counter) for row, counter in giver.puts_of(name, 0)]
        puts.sort()
        by_counter = sorted(puts, key=lambda put: put[1])
        clients.append(_Client([place for place, _ in by_counter]))
        is_cut |= bool(puts) and keeper.highest_of(name, floor + 1, first) > by_counter[0][1]
    return clients, is_cut


def _numbering(clients: Iterable[str]) -> list[str]:
    return [name for name in dict.fromkeys(clients) if not name.startswith(PAGE_SOURCE)]


class _Weaver:
    """Goes through the places once, and notes the legs."""

    def __init__(self, clients: Iterable[_Client], head: int, last: int) -> None:
        self.legs: list[Range] = []
        self.stopped_at = 0
        """From which place on it goes as it lies, because of the limit of legs; 0 where all is in order."""
        self._head = head
        self._last = last
        found = (_Put(place, client, rank) for client in clients for rank, place in enumerate(client.places))
        self._puts = sorted(found, key=lambda put: put.place)
        self._taken: tuple[Range, ...] = ()
        """What was gone through before its turn."""
        self._reached = {KEEPER: 0, GIVER: head}
        """By whose rows they are, those up to here were gone through, but for what had to wait."""
        self._position = 0
        """Where it goes on as it lies; 0 as long as it lies in order."""

    def go(self) -> None:
        for put in self._puts:
            client = put.client
            if client.gone_count > put.rank:
                continue
            if client.gone_count < put.rank:
                if len(self.legs) >= LEGS_MAX:
                    self.stopped_at = put.place
                    break
                if not self._position:
                    self._position = put.place
                    self._note_reached(put.place - 1)
                self._pass_to(put.place)
                self._go_before(put)
            client.gone_count = put.rank + 1
        if self._position:
            self._pass_to(self._last + 1)

    def _pass_to(self, place: int) -> None:
        """Go on as it lies, up to before a place."""
        if self._position < place:
            self.legs += without(((self._position, place - 1),), self._taken)
            self._position = place
            self._note_reached(place - 1)

    def _note_reached(self, last: int) -> None:
        of = self._of(last)
        self._reached[of] = max(self._reached[of], last)

    def _of(self, place: int) -> str:
        return KEEPER if place <= self._head else GIVER

    def _go_before(self, put: _Put) -> None:
        """Go through all lower ones of its client, which lie behind it."""
        client = put.client
        lower = client.places[client.gone_count : put.rank]
        for of in (KEEPER, GIVER):
            places = [place for place in lower if self._of(place) == of]
            if places:
                is_first = of == KEEPER and self._reached[of] <= put.place
                self._run(min(places) if is_first else self._reached[of] + 1, max(places))
        for place in client.places[client.gone_count : put.rank]:
            self._take(place, place)
        client.gone_count = put.rank

    def _run(self, start: int, last: int) -> None:
        """Go through rows of one server, but for those that have lower ones which were not gone through.

        What has no counter goes along with the giver's, and as it lies with the keeper's, where it follows others.
        """
        expected = start
        for put in self._puts[bisect_left(self._puts, start, key=lambda one: one.place) :]:
            if put.place > last:
                break
            if len(self.legs) >= LEGS_MAX:
                last = (expected if put.place <= self._head else put.place) - 1
                break
            client = put.client
            if expected < put.place <= self._head:
                self._take(start, expected - 1)
                start = put.place
            expected = put.place + 1
            if client.gone_count == put.rank:
                client.gone_count += 1
            else:
                # It waits, or was taken by itself.
                self._take(start, put.place - 1)
                start = put.place + 1
        self._take(start, last)
        self._note_reached(last)

    def _take(self, first: int, last: int) -> None:
        if first <= last:
            self.legs.append((first, last))
            self._taken = joined((*self._taken, (first, last)))
