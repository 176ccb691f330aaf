"""Another filter for a subscription: from where on it counts, and what becomes of the one before.

Invariant: a filter that is refused, for whatever reason, leaves the one that counts.
Source: docs/internals/DESIGN.md, "Subscriptions".
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from veredus.kernel.engine import Now
from veredus.kernel.errors import Refused

from .examine import Wanted, wanted_by
from .exchange import ConfirmFilter, Durability, FilterChangeRequested
from .facts import SubscriptionOpened
from .flow import Flow
from .kept import size_of_filter
from .orders import Orders
from .subscribing import Subscribing
from .subscription import Subscription
from .succession import refiltered

FILTERS_MAX = 16
"""So many earlier filters of a subscription may count at once, each for a part of what is not settled."""


class Refiltering:
    """Changes the filters of flows, and of the subscriptions that they feed."""

    __slots__ = ("_orders", "_subscribing")

    def __init__(self, orders: Orders, subscribing: Subscribing) -> None:
        """For the flows of `subscribing`."""
        self._orders = orders
        self._subscribing = subscribing

    def change(self, event: FilterChangeRequested, now: Now) -> None:
        """Another filter from the next unexamined sequence on; journaled first where the subscription is durable."""
        flow = self._subscribing.feeding.flow_of(event.session)
        if flow is None:
            self._orders.refuse(event.session, "not-subscribed", "subscribe before changing the filter")
            return
        try:
            wanted = self._checked(flow, event, now)
            if flow.subscription is not None:
                store = partial(self._store, flow, flow.subscription, wanted, event.position)
                self._subscribing.feeding.in_turn(flow.subscription, store, now)
                return
            _check_count(len(flow.later) + 1)
        except Refused as refused:
            self._refuse(flow, refused)
            return
        sequence = _behind(flow, event.position)
        self._subscribing.feeding.refilter(flow, sequence, wanted)
        self._orders.say(ConfirmFilter(event.session, sequence))
        self._subscribing.feeding.pump(flow, now)

    def _checked(self, flow: Flow, event: FilterChangeRequested, now: Now) -> Wanted:
        wanted = wanted_by(event.filter)
        self._subscribing.feeding.check_terms(flow.payer, wanted)
        if flow.subscription is not None and wanted.filter != flow.subscription.filter:
            # The one before may have to be kept as well.
            self._subscribing.kept.take(flow.subscription.owner, 0, size_of_filter(wanted.filter), now)
        return wanted

    def _store(self, flow: Flow, subscription: Subscription, wanted: Wanted, position: int, now: Now) -> None:
        if not self._subscribing.feeding.is_there(flow):
            return
        sequence = max(subscription.unexamined, _behind(flow, position))
        fact = refiltered(subscription, wanted.filter, sequence)
        try:
            _check_count(len(fact.before))
        except Refused as refused:
            self._refuse(flow, refused)
        else:
            waiter = _Changed(self, flow, subscription, wanted, sequence, fact)
            self._subscribing.feeding.change(subscription, fact, waiter, now)

    def changed(self, change: _Changed, now: Now) -> None:
        """The new filter is in the journal; it counts, whether or not its owner is still there."""
        flow = change.flow
        change.subscription.refilter(change.fact)
        self._subscribing.feeding.refilter(flow, change.position, change.wanted)
        if self._subscribing.feeding.is_there(flow):
            self._orders.say(ConfirmFilter(flow.session, change.position))
        self._subscribing.feeding.go_on(change.subscription, now)

    def failed(self, change: _Changed, code: str, reason: str, now: Now) -> None:
        """The new filter could not be journaled: the flow goes on under the one that it has."""
        if self._subscribing.feeding.is_there(change.flow):
            message = f"the node could not store the filter ({reason}): the earlier filter stays; try again later"
            self._refuse(change.flow, Refused(code, message))
        self._subscribing.feeding.go_on(change.subscription, now)

    def _refuse(self, flow: Flow, refused: Refused) -> None:
        """Its details say that this is about a filter: a settlement may be refused at the same time."""
        details: dict[str, Any] = {**refused.details, "filter": True}
        self._orders.refuse(flow.session, refused.code, refused.message, is_final=False, **details)


def _check_count(count: int) -> None:
    if count > FILTERS_MAX:
        message = (
            f"{FILTERS_MAX} earlier filters still count for what was not settled, or not received: settle or receive"
            " that before changing the filter again"
        )
        raise Refused("too-many-filters", message)


def _behind(flow: Flow, position: int) -> int:
    """The first sequence behind all that the flow has examined, and that its subscriber has taken over any link."""
    return max(flow.unexamined, min(position, flow.stream.head_durable + 1))


@dataclass(slots=True)
class _Changed:
    refiltering: Refiltering
    flow: Flow
    subscription: Subscription
    wanted: Wanted
    position: int
    fact: SubscriptionOpened

    def become_durable(self, durability: Durability, now: Now) -> None:
        self.refiltering.changed(self, now)

    def fail(self, code: str, reason: str, now: Now) -> None:
        self.refiltering.failed(self, code, reason, now)
