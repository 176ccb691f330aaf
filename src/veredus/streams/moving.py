"""Subscriptions that move with a commit: nothing else changes them before it is answered.

A commit may put cursors elsewhere, bring subscriptions along, and end others, in the fact that shows its rows. Until
the journal has answered, what else would change one of them waits for its turn, as with any other change.
Source: docs/decisions/0012; guarantee 8.
"""

from __future__ import annotations

from collections.abc import Iterable

from veredus.kernel.engine import Now
from veredus.kernel.errors import Refused

from .cursors import Cursors
from .departures import both_had
from .exchange import CommitRequested, CursorMove, Fence, MovedOrigin, Place
from .facts import NOTHING_HAD, CursorMoved, Had, LeftElsewhere, Origin, SubscriptionRenewed
from .orders import Orders
from .ranges import cursor_of
from .rights import SUBSCRIBE, on_stream
from .stream import NEVER_LEFT, Stream
from .subscribing import Subscribing
from .subscription import Subscription
from .tables import Tables


class Moving:
    """Changes subscriptions as commits say."""

    __slots__ = ("_cursors", "_orders", "_subscribing", "_tables")

    def __init__(self, tables: Tables, orders: Orders, cursors: Cursors, subscribing: Subscribing) -> None:
        self._tables = tables
        self._orders = orders
        self._cursors = cursors
        self._subscribing = subscribing

    def hold(self, event: CommitRequested, stream: Stream, move: CursorMoved) -> None:
        """Let nothing else change, or make, a subscription before the commit that moves it is answered.

        Raises `Refused`: `forbidden` for one that somebody else owns, `subscription-changing` where something else is
        on its way already.
        """
        key = (move.subscriber, move.name)
        known, opening = stream.subscriptions.get(key), self._subscribing.opening
        named = on_stream(stream.name, subscriber=move.subscriber)
        self._tables.rights.check(event.session, event.principal, SUBSCRIBE, named)
        if known is not None:
            self._tables.rights.check_owner(event.session, event.principal, known.owner, named)
        if key in opening.of(stream.stream_id) or (known is not None and known.is_changing):
            said = f"subscription {move.subscriber}/{move.name} is changing at this moment: retry the commit"
            raise Refused("subscription-changing", said)
        if known is None:
            known = Subscription.moved_in(move, self._tables.limits.unsettled_max)
            opening.put(stream.stream_id, key, known)
        known.is_changing = True

    def release(self, stream: Stream, move: CursorMoved, is_moved: bool, now: Now) -> None:
        """The commit was answered: the cursor has moved, whoever owned it is told, and what waited goes on."""
        key = (move.subscriber, move.name)
        known = self._subscribing.opening.take(stream.stream_id, key)
        if known is not None:
            if is_moved and not stream.is_deleted:
                _note_left(self._tables, stream, move)
                if not move.is_removed:
                    stream.subscriptions[key] = known
                    self._subscribing.kept.note_moved(known.owner)
        else:
            known = stream.subscriptions[key]
            if is_moved:
                self._move(stream, known, move)
        self._subscribing.feeding.go_on(known, now)

    def _move(self, stream: Stream, known: Subscription, move: CursorMoved) -> None:
        session, before = known.session, known.owner
        if self._subscribing.feeding.drop(session) is not None:
            who = f"{move.subscriber}/{move.name}"
            if move.is_removed:
                self._orders.refuse(session, "subscription-removed", f"subscription {who} was removed")
            else:
                said = f"a commit has moved subscription {who}: subscribe again"
                self._orders.say(Fence(session, known.epoch, said))
        if move.is_removed:
            known.is_removed = True
            self._cursors.drop(known)
        apply_move(self._tables, stream, move)
        if move.is_removed:
            self._subscribing.kept.note_removed()
        else:
            self._subscribing.kept.note_moved(known.owner)
            if before != known.owner:
                self._subscribing.kept.note_removed()


def apply_move(tables: Tables, stream: Stream, move: CursorMoved) -> None:
    """Put a subscription where a commit says, live or in a replay."""
    key = (move.subscriber, move.name)
    known, unsettled_max = stream.subscriptions.get(key), tables.limits.unsettled_max
    _note_left(tables, stream, move)
    if move.is_removed:
        stream.subscriptions.take(key)
    elif known is None:
        stream.subscriptions[key] = Subscription.moved_in(move, unsettled_max)
    else:
        # There may have been a crash since: behind the next one it would not be known.
        known.note_maybe_pushed(stream.head_durable)
        known.move(move, unsettled_max)


def apply_renewal(tables: Tables, stream: Stream, known: Subscription, fact: SubscriptionRenewed) -> None:
    """A subscription was asked for again, and begins anew where it was left, live or in a replay."""
    if fact.left:
        tables.departures.note(stream, fact.subscriber, fact.name, fact.renewed_us, fact.left, known.owner)
        known.note_maybe_pushed(stream.head_durable)
    known.renew(fact, tables.limits.unsettled_max)


def _note_left(tables: Tables, stream: Stream, move: CursorMoved) -> None:
    for one in move.left:
        before = stream.left.get((move.subscriber, move.name, one.principal), NEVER_LEFT)
        if one.removed_us > before.removed_us or one.wish > before.wish or one.had != NOTHING_HAD:
            left_us = max(one.removed_us, before.removed_us)
            tables.departures.note(stream, move.subscriber, move.name, left_us, one.wish, one.principal, one.had)


def place_of_cursor(move: CursorMove, stream_id: int, first: int) -> CursorMoved:
    """Where the cursor will stand, the stage's rows beginning at `first`."""
    rows = _shifted(move.settled_rows, first)
    never = (*move.unwanted, *_shifted(move.unwanted_rows, first))
    floor, settled = cursor_of(move.floor, (*move.settled, *rows, *never))
    below, unwanted = cursor_of(move.start - 1, never)
    left = tuple(
        LeftElsewhere(
            whose, removed_us, wish, both_had(Had((*received, *_shifted(more, first)), _placed(known, first)))
        )
        for whose, removed_us, wish, received, more, known in move.left
    )
    return CursorMoved(
        stream_id, move.subscriber, move.name, move.opened_us, below + 1, floor, move.kept_from, settled,
        _placed(move.origins, first), move.is_removed, unwanted, left, move.renewed_us, move.wish, move.owner,
        move.lost,
    )  # fmt: skip


def _placed(origins: Iterable[MovedOrigin], first: int) -> tuple[Origin, ...]:
    return tuple(
        Origin(
            incarnation, following, tuple((run, sequence_of(place, first), count) for run, place, count in runs), gone
        )
        for incarnation, following, runs, gone in origins
    )


def sequence_of(place: Place, first: int) -> int:
    """Where a place lies, the stage's rows beginning at `first`."""
    return place.sequence if place.row < 0 else first + place.row


def _shifted(rows: Iterable[tuple[int, int]], first: int) -> tuple[tuple[int, int], ...]:
    """Where rows of a stage lie that begins at `first`."""
    return tuple((first + a, first + b) for a, b in rows)
