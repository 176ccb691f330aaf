"""What somebody wishes of a durable subscription that may be there already: to have it still, or to have it no longer.

    renew    there ──► asked for again, at this time                       not there ──► unknown-subscription
             there, from before its subscriber left ──► begun anew, its owner is told
    remove   there ──► gone, its owner is told                             not there ──► unknown-subscription

A wish may have a number, which grows with each wish of one subscriber. Wishes travel by several ways, and a copy of one
may come behind those that followed: it is refused, and does nothing. That holds where the subscription is not there as
well: whoever wished to be without it is not given it by an older wish; but nobody wishes so for another principal. And
it holds where there is no such stream: a copy may come when it has been made (`Ahead`).
Where it was left may not be where a late copy came to; therefore whoever asks for it again may say when it left last,
and is not given what is from before that. What it was given all the same stays received: a merge with where it was
asked for again would give it once more. Where there is no subscription, this is known from then on as well: a merge
brings none that is from before that.

Invariants
    (1) Whoever is answered is answered when the journal has it.
    (2) Of numbered wishes the one with the highest number counts, in whatever order they come.
Source: docs/decisions/0012; docs/internals/DESIGN.md, "Subscriptions".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

from msgspec import structs

from veredus.kernel.engine import Now
from veredus.kernel.errors import Refused
from veredus.kernel.names import is_name

from .cursors import Cursors
from .departures import had_by
from .exchange import AdminRequested, Durability
from .facts import LeftAhead, SubscriptionRemoved, SubscriptionRenewed
from .moving import apply_renewal
from .orders import Orders, Then
from .stream import NEVER_LEFT, Stream, outdated
from .subscribing import Subscribing
from .subscription import Subscription
from .tables import Tables, unknown_stream

Key: TypeAlias = tuple[str, str]


class Wishes:
    """Renews and removes durable subscriptions."""

    __slots__ = ("_cursors", "_orders", "_subscribing", "_tables")

    def __init__(self, orders: Orders, cursors: Cursors, subscribing: Subscribing, tables: Tables) -> None:
        self._orders = orders
        self._cursors = cursors
        self._subscribing = subscribing
        self._tables = tables

    def renew(
        self,
        event: AdminRequested,
        stream: Stream,
        key: Key,
        wish: int,
        left: int,
        then: Callable[[bool], None],
        now: Now,
    ) -> None:
        """Journal that it is asked for again, then call `then` with True.

        With False where a wish below `left`, by which its subscriber left, had asked for it: it begins anew.
        Raises `Refused` where it is not there, or outdated.
        """
        subscription = stream.subscriptions.get(key)
        if subscription is None:
            stream.check_wish(key, wish, event.principal)
            self._miss_renewed(_Wish(self, event, stream, key, wish, _nothing), left, now)
            return
        asked = _Wish(self, event, stream, key, wish, partial(then, True))
        outlived = _Wish(self, event, stream, key, wish, partial(then, False))
        self._subscribing.feeding.in_turn(subscription, partial(self._renew, asked, outlived, left), now)

    def _miss_renewed(self, asked: _Wish, left: int, now: Now) -> None:
        last = asked.stream.left.get((*asked.key, asked.event.principal), NEVER_LEFT)
        if left > last.wish:
            self._miss(asked, last.removed_us, left, now)
        else:
            self._refuse(asked.event, _unknown(asked.stream, asked.key))

    def _renew(self, asked: _Wish, outlived: _Wish, left: int, now: Now) -> None:
        subscription = asked.stream.subscriptions.get(asked.key)
        if subscription is None:
            self._miss_renewed(replace(outlived, then=_nothing), left, now)
        elif asked.wish and asked.wish < subscription.wish:
            self._refuse(asked.event, outdated(asked.key, asked.wish, subscription.wish))
        else:
            fact = SubscriptionRenewed(asked.stream.stream_id, *asked.key, now.wall_us, asked.wish)
            if 0 < subscription.wish < left:
                asked, fact = outlived, structs.replace(fact, left=left, head=asked.stream.head_durable)
            self._subscribing.feeding.change(subscription, fact, _Renewed(asked, subscription, fact), now)

    def renewed(self, renewal: _Renewed, now: Now) -> None:
        """It is in the journal."""
        asked, subscription = renewal.asked, renewal.subscription
        if renewal.fact.left:
            self._tell_owner(subscription)
        apply_renewal(self._tables, asked.stream, subscription, renewal.fact)
        asked.then()
        self._subscribing.feeding.go_on(renewal.subscription, now)

    def remove(
        self, event: AdminRequested, stream: Stream, key: Key, wish: int, then: Callable[[], None], now: Now
    ) -> None:
        """Remove it once that is journaled; its owner is told, then `then` is called.

        A numbered wish is journaled, and counts, also where the subscription is not there. Raises `Refused`.
        """
        asked = _Wish(self, event, stream, key, wish, then)
        subscription = stream.subscriptions.get(key)
        if subscription is not None:
            self._subscribing.feeding.in_turn(subscription, partial(self._remove, asked), now)
            return
        last = stream.left.get((*key, event.principal), NEVER_LEFT).wish
        if wish and wish == last:
            then()
        elif wish > last:
            self._miss(asked, now.wall_us, wish, now)
        else:
            stream.check_wish(key, wish, event.principal)
            raise _unknown(stream, key)

    def _miss(self, asked: _Wish, removed_us: int, left: int, now: Now) -> None:
        fact = SubscriptionRemoved(asked.stream.stream_id, *asked.key, removed_us, left, asked.event.principal)
        failed = partial(self._failed, asked.event)
        self._orders.append_fact(fact, Then(partial(self._missed, asked, fact), failed), now)

    def _missed(self, asked: _Wish, fact: SubscriptionRemoved, now: Now) -> None:
        """It was not there, and is not given by an older wish any more."""
        if asked.stream.is_deleted:
            self._leave_again(asked, fact.removed_us, fact.wish, now)
            return
        self._tables.departures.note(asked.stream, *asked.key, fact.removed_us, fact.wish, fact.principal)
        self._refuse(asked.event, _unknown(asked.stream, asked.key))

    def _leave_again(self, asked: _Wish, removed_us: int, wish: int, now: Now) -> None:
        """Its subscription is gone meanwhile, or its stream with what was noted there: the wish counts all the same."""
        stream = self._tables.streams.get(asked.stream.name)
        try:
            if stream is None:
                last = self._tables.ahead.last_of(asked.stream.name, asked.key, asked.event.principal)
                self._leave_ahead(asked.event, last, removed_us, wish, now)
            elif asked.then is _nothing:
                self._refuse(asked.event, _unknown(stream, asked.key))
            else:
                self.remove(asked.event, stream, asked.key, wish, asked.then, now)
        except Refused as refused:
            self._refuse(asked.event, refused)

    def remove_ahead(self, event: AdminRequested, name: str, key: Key, wish: int, now: Now) -> None:
        """As `remove`, where there is no stream of this name; raises `Refused`, or refuses once it is journaled."""
        last = self._tables.ahead.last_of(name, key, event.principal)
        if 0 < wish < last.wish:
            raise outdated(key, wish, last.wish)
        self._leave_ahead(event, last, now.wall_us, wish, now)

    def renew_ahead(self, event: AdminRequested, name: str, key: Key, wish: int, left: int, now: Now) -> None:
        """As `renew`, where there is no stream of this name; raises `Refused`, or refuses once it is journaled."""
        last = self._tables.ahead.last_of(name, key, event.principal)
        if 0 < wish <= last.wish:
            raise outdated(key, wish, last.wish)
        self._leave_ahead(event, last, last.removed_us, left, now)

    def _leave_ahead(self, event: AdminRequested, last: LeftAhead, removed_us: int, wish: int, now: Now) -> None:
        """Journal by which wish somebody left, where that is news and there may be such a stream."""
        if wish <= last.wish or not all(map(is_name, (last.stream, last.subscriber, last.name))):
            raise unknown_stream(last.stream)
        fact = structs.replace(last, removed_us=removed_us, wish=wish)

        def left(_: Now) -> None:
            self._tables.note_ahead(fact)
            self._refuse(event, unknown_stream(fact.stream))

        self._orders.append_fact(fact, Then(left, partial(self._failed, event)), now)

    def _remove(self, asked: _Wish, now: Now) -> None:
        subscription = asked.stream.subscriptions.get(asked.key)
        if subscription is None:
            self._leave_again(asked, now.wall_us, asked.wish, now)
        elif asked.wish and asked.wish <= subscription.wish:
            self._refuse(asked.event, outdated(asked.key, asked.wish, subscription.wish))
        else:
            wish = max(asked.wish, subscription.wish)
            whose = subscription.owner or asked.event.principal
            had = had_by(asked.stream, subscription)
            fact = SubscriptionRemoved(asked.stream.stream_id, *asked.key, now.wall_us, wish, whose, had)
            self._subscribing.feeding.change(subscription, fact, _Removed(asked, subscription, fact), now)

    def removed(self, removal: _Removed, now: Now) -> None:
        """The removal is in the journal; whoever asked for the subscription meanwhile begins anew."""
        asked, subscription = removal.asked, removal.subscription
        subscription.is_removed = True
        del asked.stream.subscriptions[asked.key]
        self._subscribing.kept.note_removed()
        fact = removal.fact
        self._tables.departures.note(asked.stream, *asked.key, fact.removed_us, fact.wish, fact.principal, fact.had)
        self._cursors.drop(subscription)
        self._tell_owner(subscription)
        if asked.stream.is_deleted and fact.wish:
            self._leave_again(asked, fact.removed_us, fact.wish, now)
        else:
            asked.then()
        self._subscribing.feeding.go_on(subscription, now)

    def _tell_owner(self, subscription: Subscription) -> None:
        """Whoever is attached to it is told that it is gone."""
        if self._subscribing.feeding.drop(subscription.session) is not None:
            message = f"subscription {subscription.subscriber}/{subscription.name} was removed"
            self._orders.refuse(subscription.session, "subscription-removed", message)

    def failed(self, asked: _Wish, subscription: Subscription, code: str, reason: str, now: Now) -> None:
        """It could not be journaled: nothing has changed."""
        self._failed(asked.event, code, reason)
        self._subscribing.feeding.go_on(subscription, now)

    def _failed(self, event: AdminRequested, code: str, reason: str) -> None:
        message = f"the node could not store the request ({reason}): nothing has changed"
        self._orders.refuse(event.session, code, message, event.request, is_final=False)

    def _refuse(self, event: AdminRequested, refused: Refused) -> None:
        self._orders.refuse(
            event.session, refused.code, refused.message, event.request, is_final=False, **refused.details
        )


def _nothing() -> None:
    """What follows where somebody is refused."""


def _unknown(stream: Stream, key: Key) -> Refused:
    return Refused("unknown-subscription", f"stream {stream.name!r} has no subscription {key[0]}/{key[1]}")


@dataclass(slots=True)
class _Wish:
    wishes: Wishes
    event: AdminRequested
    stream: Stream
    key: Key
    wish: int
    then: Callable[[], None]


@dataclass(slots=True)
class _Renewed:
    asked: _Wish
    subscription: Subscription
    fact: SubscriptionRenewed

    def become_durable(self, durability: Durability, now: Now) -> None:
        self.asked.wishes.renewed(self, now)

    def fail(self, code: str, reason: str, now: Now) -> None:
        self.asked.wishes.failed(self.asked, self.subscription, code, reason, now)


@dataclass(slots=True)
class _Removed:
    asked: _Wish
    subscription: Subscription
    fact: SubscriptionRemoved

    def become_durable(self, durability: Durability, now: Now) -> None:
        self.asked.wishes.removed(self, now)

    def fail(self, code: str, reason: str, now: Now) -> None:
        self.asked.wishes.failed(self.asked, self.subscription, code, reason, now)
