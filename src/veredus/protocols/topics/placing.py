"""Who is to receive what, once the rows of a topic that two servers had lie in one stream.

The keeper's rows stay where they are; behind them come the giver's, but for its *twins*: puts that were tried at both,
and are there already. A subscription is to receive what was put to either server after it was made at either, and what
it has not received yet.

At its own server a subscription tells of each row whether it was *received*, is *wanted*, or is neither, since it was
put before; of the rows of the other one the times tell. So of a keeper's row,

    received     if either server says so                           (of a twin the giver does, too)
    wanted       if the keeper says so; or if the giver has the subscription, and the row came later than that
    unwanted     otherwise

and of the giver's rows likewise. A twin is wanted if both copies are: the one that came first says when it was put, and
the other one may have waited anywhere. What is unwanted is settled, and remembered as that: a third server, at which
the same client had subscribed before, may want it yet. Rows that came by an earlier merge keep the times at which they
were put, so those of one server do not ascend, but for a few runs.

Who has left a server has received there what it had received until then (`Had`): where it left and subscribed again
elsewhere, it may have been given some of that since, before the one that it left heard of it.

Times of the two servers are compared within the bounds of the difference between their clocks; what lies within them is
given, so that nothing is lost.
Source: seed 000, section 4 (which gives up here); docs/decisions/0012.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

from veredus.streams.exchange import CursorMove, MovedLeft, MovedOrigin, Place
from veredus.streams.facts import NOTHING_HAD, Had, Lost, Origin
from veredus.streams.lives import Lives
from veredus.streams.lost import but_for
from veredus.streams.ranges import common, cursor_of, joined, without
from veredus.streams.stream import NEVER_LEFT, Left

from .ids import is_of_page, shown_of
from .losing import all_of, in_lives, known_by, lost_in, owed_since
from .many import COUNT_MAX
from .merged import Merged
from .transfer import TIME_MAX_US, Bounds, Standing

_NEVER_US = 1 << 63
PLACED_NS, PLACED_PART_NS = 50_000, 10_000
"""What it takes to place a subscription, and each range and run of it; measured, roughly."""


class Side(NamedTuple):
    """The subscriptions of one server: where each stands, and when those that are gone were removed."""

    standings: Mapping[str, Standing]
    left: Mapping[str, Mapping[str, Left]] = {}
    """By subscriber and principal."""


class _View(NamedTuple):
    """What a subscription says of the rows of its own server."""

    received: tuple[Bounds, ...]
    wanted: tuple[Bounds, ...]
    unwanted: tuple[Bounds, ...]

    @classmethod
    def of(cls, half: _Half, head: int) -> _View:
        """Of rows up to `head`; who has left wants nothing."""
        standing, had = half.standing, half.had.received
        if standing is None:
            return cls(had, (), without(((1, head),), had))
        done, never = ((0, standing.floor), *standing.settled), ((0, standing.start - 1), *standing.unwanted)
        received = joined((*without(done, never), *had))
        if half.has_left:
            return cls(received, (), without(((1, head),), received))
        return cls(received, without(((1, head),), joined((*done, *had))), without(common(((1, head),), never), had))


def moves(stage: int, name: str, keeper: Side, giver: Side, merged: Merged) -> Iterator[CursorMove | None]:
    """Where each subscription is to stand: those of the keeper, of the giver, and of both; and who has left. One after
    the other, for many of them take long; None for one that stands as it did.

    Who left one server after it had subscribed at the other has left both. Nobody leaves for another principal; and
    where both servers have a subscription of one name, each of another principal, it is whose was there first.
    """
    low, high = merged.offset_us
    placer = _Placer(stage, name, merged)
    for who in dict.fromkeys((*keeper.standings, *giver.standings, *giver.left)):
        kept, given = keeper.standings.get(who), giver.standings.get(who)
        known, told = keeper.left.get(who, {}), giver.left.get(who, {})
        left = {whose: one._replace(removed_us=_time(one.removed_us + low)) for whose, one in told.items()}
        has_left_keeper, has_left_giver = _has_left(kept, left, 0), _has_left(given, known, high)
        is_taken_over = False
        if kept and given and not has_left_keeper and not has_left_giver and "" != kept.owner != given.owner != "":
            is_taken_over = given.opened_us + low < kept.opened_us
            kept, given = (None, given) if is_taken_over else (kept, None)
        is_here, is_there = kept is not None and not has_left_keeper, given is not None and not has_left_giver
        owner = (kept.owner if kept and is_here else "") or (given.owner if given and is_there else "")
        here = _Half(kept, has_left_keeper, _had_of(owner, known))
        there = _Half(given, has_left_giver, _had_of(owner, told))
        news = [placer.left(whose, one) for whose, one in left.items() if _is_news(one, known.get(whose, NEVER_LEFT))]
        if is_here or is_there:
            move = placer.move(who, here, there, tuple(news))
            # What the other principal has received here, whose was there first has not.
            yield replace(move, kept_from=merged.head + 1) if move and is_taken_over else move
            continue
        # They end here, and what was had by them is remembered as if they had ended at their own servers.
        news += placer.ended(here._replace(had=NOTHING_HAD), there._replace(had=NOTHING_HAD))
        removed_us = max((one.removed_us for one in left.values()), default=0)
        yield CursorMove(stage, who, name, removed_us, 1, 0, 1, is_removed=True, left=tuple(news)) if news else None


def placing_cost_of(move: CursorMove | None) -> int:
    """What it takes to find out where a subscription is to stand, in nanoseconds."""
    if move is None:
        return PLACED_NS
    origins = (*move.origins, *chain.from_iterable(one.origins for one in move.left))
    parts = (move.settled, move.settled_rows, move.unwanted, move.unwanted_rows, move.lost)
    count = sum(map(len, parts)) + sum(len(one.runs) + len(one.gone) for one in origins)
    count += sum(len(one.received) + len(one.received_rows) for one in move.left)
    return PLACED_NS + count * PLACED_PART_NS


def those_that_stay(
    stage: int, name: str, keeper: Side, moved: Iterable[CursorMove], merged: Merged
) -> list[CursorMove]:
    """Subscriptions that stand where they stood: they are moved to there, so that each goes on by another order."""
    placer, known = _Placer(stage, name, merged), {move.subscriber for move in moved}
    staying = ((who, standing) for who, standing in keeper.standings.items() if who not in known)
    return [placer.placed(who, _Half(kept, False), _Half(None, False), ()) for who, kept in staying]


def without_what_came_there(
    placed: Iterable[CursorMove], keeper: Side, giver: Side, merged: Merged, places: Sequence[int]
) -> list[CursorMove]:
    """Subscriptions that a server from the page gives again, since it did not hear that the topic was taken, and that
    got messages there meanwhile: these count as received.

    It gives messages in one order. So where the first one that waits there has come before, what lies between the one
    that waited there last time and this one was given there. `places`: where its messages lie here, ascending.
    """

    def settled(move: CursorMove) -> CursorMove:
        kept, given = keeper.standings.get(move.subscriber), giver.standings.get(move.subscriber)
        if kept is None or given is None or not given.origins:
            return move
        known = (one.sequence for one in kept.origins if one.incarnation == merged.giver_lives.present)
        first, end = next(known, 0), merged.twins.get(given.origins[0].sequence, 0)
        if not 0 < first < end:
            return move
        got = places[bisect_left(places, first) : bisect_left(places, end)]
        return replace(move, settled=joined((*move.settled, *((place, place) for place in got))))

    return [settled(move) for move in placed]


def lost_of(keeper: Side, giver: Side, who: str) -> tuple[Lost, ...]:
    """What a subscriber was to be told of before the merge."""
    standings = (side.standings.get(who) for side in (keeper, giver))
    return all_of(one for standing in standings if standing is not None for one in standing.lost)


def floor_of(keeper: Side, moved: Iterable[CursorMove]) -> int:
    """Up to where every subscription will have done with the keeper's rows."""
    floors = {who: standing.floor for who, standing in keeper.standings.items()}
    for move in moved:
        standing = keeper.standings.get(move.subscriber, Standing(0, 0, 0))
        done = without(((0, standing.floor), *standing.settled), standing.unwanted)
        kept = ((max(a, move.kept_from), b) for a, b in done if b >= move.kept_from)
        floors[move.subscriber] = cursor_of(move.floor, (*move.settled, *kept))[0]
        if move.is_removed:
            del floors[move.subscriber]
    return min(floors.values(), default=0)


def _time(us: int) -> int:
    """The time that is nearest to this one of those that may be said to a peer."""
    return min(max(0, us), TIME_MAX_US)


def _has_left(standing: Standing | None, lefts: Mapping[str, Left], offset_us: int) -> bool:
    """Whether whose a subscription is left after it was asked for last; of what is nobody's, or by nobody, anybody."""
    if standing is None:
        return False
    whose = standing.owner
    return any(
        _is_behind(left, standing, offset_us) for who, left in lefts.items() if not (who and whose) or who == whose
    )


def _is_news(left: Left, known: Left) -> bool:
    return left.removed_us > known.removed_us or left.wish > known.wish or left.had != NOTHING_HAD


def _is_behind(left: Left, standing: Standing, offset_us: int) -> bool:
    """Whether somebody left after the subscription was asked for last: the numbers of wishes say, or else the times."""
    if left.wish and standing.wish:
        return left.wish > standing.wish
    return left.removed_us > max(standing.opened_us, standing.renewed_us) + offset_us


def _had_of(owner: str, lefts: Mapping[str, Left]) -> Had:
    """What whoever left had of the subscription that is this owner's; of what is nobody's, or by nobody, anybody."""
    had = [left.had for who, left in lefts.items() if not (who and owner) or who == owner]
    received = joined(bounds for one in had for bounds in one.received)
    return Had(received, tuple(origin for one in had for origin in one.origins))


class _Half(NamedTuple):
    """A subscription at one of both servers, if there is any."""

    standing: Standing | None
    has_left: bool
    had: Had = NOTHING_HAD
    """What was had there by those before it, which were left."""

    @property
    def opened_us(self) -> int:
        return _NEVER_US if self.standing is None or self.has_left else self.standing.opened_us

    @property
    def renewed_us(self) -> int:
        """When it was asked for last, a time long ago where it is not there."""
        there = self.standing
        return -_NEVER_US if there is None or self.has_left else max(there.opened_us, there.renewed_us)

    @property
    def wish(self) -> int:
        return 0 if self.standing is None else self.standing.wish

    @property
    def owner(self) -> str:
        return "" if self.standing is None or self.has_left else self.standing.owner

    @property
    def origins(self) -> tuple[Origin, ...]:
        return () if self.standing is None or self.has_left else self.standing.origins

    @property
    def lost(self) -> tuple[Lost, ...]:
        return () if self.standing is None or self.has_left else self.standing.lost


class _Placer:
    """Places one subscription after the other."""

    def __init__(self, stage: int, name: str, merged: Merged) -> None:
        self._stage, self._name, self._merged = stage, name, merged
        self._twins = array("q", merged.twins)
        self._twin_places = array("q", merged.twins.values())
        self._missing = merged.missing
        self._is_of_page = is_of_page(shown_of(merged.giver_lives.present))

    def move(self, who: str, keeper: _Half, giver: _Half, left: tuple[MovedLeft, ...]) -> CursorMove | None:
        """Where it is to stand; None where it stands as it did."""
        placed = self.placed(who, keeper, giver, left)
        known = () if keeper.standing is None else keeper.standing.lost
        is_moved = giver.standing is not None or placed.unwanted_rows or left or placed.lost != known
        return placed if is_moved or self._has_late_twins(placed, keeper) else None

    def _has_late_twins(self, placed: CursorMove, keeper: _Half) -> bool:
        """Whether the keeper was to give what was put at the giver before."""
        before = (((1, placed.floor),) if placed.floor else ()) + placed.unwanted
        return bool(self._twins) and without(before, _View.of(keeper, self._merged.head).unwanted) != ()

    def placed(self, who: str, keeper: _Half, giver: _Half, left: tuple[MovedLeft, ...]) -> CursorMove:
        """Where it is to stand."""
        merged, kept = self._merged, keeper.standing
        low, high = merged.offset_us
        here, there = _View.of(keeper, merged.head), _View.of(giver, merged.giver_head)
        unwanted_rows = common(self._rows(there.unwanted), merged.row_times.before(keeper.opened_us - high))
        received = self._places(there.received)
        opened_us = giver.opened_us + low
        below, unwanted = cursor_of(0, self._unwanted(keeper, giver, here, there))
        lost = self._lost(keeper, giver, there)
        # Whoever was told names it, perhaps more than once; and a later merge tells nobody of it who knows it.
        known = (*lost, *in_lives(common(self._missing, there.received), merged.giver_lives))
        knows = (MovedOrigin(one.incarnation, 0, ((one.first, Place(), one.last - one.first + 1),)) for one in known)
        return CursorMove(
            self._stage, who, self._name, _time(min(keeper.opened_us, opened_us)), below + 1, below,
            below + 1 if kept is None else kept.start, joined((*received, *keeper.had.received)),
            self._rows(there.received), (*self._origins(keeper, giver), *knows), False, unwanted, unwanted_rows, left,
            _time(max(keeper.renewed_us, giver.renewed_us + low)), max(keeper.wish, giver.wish),
            keeper.owner or giver.owner, all_of((*keeper.lost, *giver.lost, *lost)),
        )  # fmt: skip

    def _unwanted(self, keeper: _Half, giver: _Half, here: _View, there: _View) -> tuple[Bounds, ...]:
        """The keeper's rows that were put before, at either server, and were not received."""
        merged, received, before = self._merged, self._places(there.received), here.unwanted
        if giver.standing is not None:
            put_before = merged.put_before(giver.opened_us + merged.offset_us[0])
            if self._is_of_page:
                # Its rows have no times: what it gives anew, it gives to whom it says.
                put_before = joined((*put_before, *self._places(there.unwanted)))
                return without(common(before, put_before), joined((*received, *self._places(there.wanted))))
            before = common(before, put_before)
        if self._is_of_page or not self._twins:
            return before
        # Of a put the copy that was there first says when that was: the other one came late.
        times_before = merged.twin_times.before(keeper.opened_us - merged.offset_us[1])
        twins_before = self._places(common(there.unwanted, times_before))
        return without(joined((*before, *twins_before)), joined((*here.received, *received)))

    def left(self, whose: str, left: Left) -> MovedLeft:
        """Who left at the giver, and what it had there, where that lies here."""
        had, origins = left.had, tuple(map(self._mapped, left.had.origins))
        return MovedLeft(
            whose, left.removed_us, left.wish, self._places(had.received), self._rows(had.received), origins
        )

    def ended(self, keeper: _Half, giver: _Half) -> Iterator[MovedLeft]:
        """What was had by the subscriptions that end with this."""
        if giver.standing is not None:
            received = _View.of(giver, self._merged.giver_head).received
            origins = tuple(self._origins_there(giver))
            yield MovedLeft(giver.standing.owner, 0, 0, self._places(received), self._rows(received), origins)
        if keeper.standing is not None:
            received = _View.of(keeper, self._merged.head).received
            yield MovedLeft(keeper.standing.owner, 0, 0, received, (), tuple(self._origins_here(keeper)))

    def _lost(self, keeper: _Half, giver: _Half, there: _View) -> tuple[Lost, ...]:
        """What is gone that it is owed, and does not know yet: of the earlier merges of its own server it does."""
        merged, (low, high) = self._merged, self._merged.offset_us
        before_us = keeper.opened_us - high
        last = merged.giver_head if keeper.opened_us == _NEVER_US else merged.row_arrivals.before(before_us)
        lost = lost_in(self._missing, there.received, there.unwanted, ((0, last),))
        earlier = (*owed_since(merged.keeper_gone, giver.opened_us + low), *owed_since(merged.giver_gone, before_us))
        known = known_by((*keeper.origins, *giver.origins))
        return (*in_lives(lost, merged.giver_lives), *but_for(earlier, known))

    def _rows(self, ranges: Iterable[Bounds]) -> tuple[Bounds, ...]:
        """The rows of the stage that are in these ranges of the giver's sequences."""
        q = self._merged.sequences
        found = ((bisect_left(q, first), bisect_right(q, last) - 1) for first, last in ranges)
        return tuple((first, last) for first, last in found if first <= last)

    def _places(self, ranges: Iterable[Bounds]) -> tuple[Bounds, ...]:
        """Where the twins lie that are in these ranges of the giver's sequences."""
        q = self._twins
        found = (self._twin_places[bisect_left(q, first) : bisect_right(q, last)] for first, last in ranges)
        return joined((place, place) for places in found for place in places)

    def _origins(self, keeper: _Half, giver: _Half) -> tuple[MovedOrigin, ...]:
        """What the ids mean that either server gave, or one that was merged into it: all below one was received, and
        that one may be named still, or many from it on.

        Where the cursor may stand before what the keeper gave last, that is one of its own: also what it gave to an
        earlier subscription, of which the client was not told that it has left. A client that has not come since an
        earlier merge may hold what was given last before that.
        """
        return tuple(dict.fromkeys((*self._origins_there(giver), *self._origins_here(keeper))))

    def _origins_there(self, giver: _Half) -> list[MovedOrigin]:
        merged, given, known = self._merged, giver.standing, giver.had.origins
        if given is not None:
            following, last = self._next_of(given)
            run = (following, following, min(COUNT_MAX, last + 1 - following))
            # In a woven stream more was received than what lies below the next one.
            received = tuple((a, 0, b - a + 1) for a, b in given.settled if b > following)
            own = Origin(merged.giver_lives.at(following), following, (run, *received))
            known = (own, *_unnamed(given, merged.giver_lives), *known)
            # A server from the page has ids, and no sequences: by those its message is named.
            known = known[self._is_of_page :]
        return [self._mapped(one) for one in known]

    def _origins_here(self, keeper: _Half) -> list[MovedOrigin]:
        merged, kept = self._merged, keeper.standing
        following, last = (merged.head + 1, merged.head) if kept is None else _next_in(kept, merged.head)
        count = min(COUNT_MAX, last + 1 - following)
        here = (following, Place(following), count)
        found = [MovedOrigin(merged.keeper_lives.at(following), following, (here,) if count else ())]
        for one in (*(() if kept is None else _unnamed(kept, merged.keeper_lives)), *keeper.had.origins):
            runs = tuple((first, Place(place), count) for first, place, count in one.runs)
            found.append(MovedOrigin(one.incarnation, one.next_sequence, runs, one.gone))
        return found

    def _mapped(self, origin: Origin) -> MovedOrigin:
        """Where an origin of the giver's lies here. What is gone meanwhile is done with under that name, and who names
        it was not to be told of it.
        """
        merged = self._merged
        runs: list[tuple[int, Place, int]] = []
        gone = list(origin.gone)
        for first, place, count in origin.runs:
            if not place:
                runs.append((first, Place(), count))
                continue
            there = merged.runs_in(place, place + count - 1)
            runs += [(first + run.first - place, run.place, run.last - run.first + 1) for run in there]
            for one in in_lives(common(((place, place + count - 1),), self._missing), merged.giver_lives):
                runs.append((first + one.first - place, Place(), one.last - one.first + 1))
                gone.append((first + one.first - place, one))
        return MovedOrigin(origin.incarnation, origin.next_sequence, tuple(runs), tuple(gone))

    def _next_of(self, given: Standing) -> Bounds:
        """What the giver would hand out next, or has handed out and was not told of, though that may be gone; and up to
        where from there on.
        """
        head = self._merged.giver_head
        for low, high in (_next_in(given, head), (1, head)):
            undone = without(((low, high),), ((0, given.floor), *given.settled))
            if undone:
                return undone[0][0], high
        return head + 1, head


def _next_in(standing: Standing, head: int) -> Bounds:
    """What comes next, and up to where from there on, in a stream up to `head`."""
    first, last = standing.next if standing.next[0] else (standing.floor + 1, head)
    return min(first, head + 1), min(last, head)


def _unnamed(standing: Standing, own: Lives) -> list[Origin]:
    """The origins of before, but for those of the stream itself, or of the page, that were named since, or passed."""
    done = ((0, standing.floor), *standing.settled)

    def is_over(origin: Origin) -> bool:
        if not origin.runs:
            return origin.next_sequence <= standing.floor + 1
        return any(first <= origin.sequence <= last for first, last in done)

    def may_be_over(origin: Origin) -> bool:
        return origin.incarnation in own or is_of_page(shown_of(origin.incarnation))

    return [origin for origin in standing.origins if not (may_be_over(origin) and is_over(origin))]
