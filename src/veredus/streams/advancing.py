"""Moves the cursor of a subscription that nobody is attached to: its subscriber has read the rows by other means.

Spark's tasks read blocks of a stream each by itself, and the subscription does nothing but keep those rows until then.

What was gone from another stream before that was merged into this one is not among the rows, so whoever is told of it
says here that it knows, attached or not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from msgspec.structs import replace

from veredus.kernel.engine import Now
from veredus.kernel.errors import Refused

from .exchange import AdminRequested, Durability
from .facts import SubscriptionSettled, SubscriptionTold
from .orders import Orders
from .stream import Stream
from .subscribing import Subscribing
from .subscription import Subscription


class Advancing:
    """Changes cursors as who is not attached asks for it."""

    __slots__ = ("_orders", "_subscribing", "_unsettled_max")

    def __init__(self, orders: Orders, subscribing: Subscribing, unsettled_max: int) -> None:
        self._orders = orders
        self._subscribing = subscribing
        self._unsettled_max = unsettled_max

    def advance(
        self,
        event: AdminRequested,
        stream: Stream,
        subscription: Subscription,
        floor: int,
        then: Callable[[int], None],
        now: Now,
    ) -> None:
        """Have everything up to `floor` settled, and call `then` with the floor once that is journaled.

        Raises `Refused("bad-request")` for a floor behind the newest row.
        """
        if floor > stream.head_durable:
            raise Refused("bad-request", f"{floor} is after the newest sequence, {stream.head_durable}")
        self._subscribing.feeding.in_turn(subscription, partial(self._advance, event, subscription, floor, then), now)

    def _advance(
        self, event: AdminRequested, subscription: Subscription, floor: int, then: Callable[[int], None], now: Now
    ) -> None:
        name = f"subscription {subscription.subscriber}/{subscription.name}"
        if subscription.is_removed:
            self.refuse(event, "unknown-subscription", f"{name} was removed")
        elif subscription.session:
            self.refuse(
                event, "subscription-in-use", f"a subscriber is attached to {name}, and only that one can settle"
            )
        elif floor <= subscription.done_to:
            self._orders.append((), _Advanced(self, event, subscription, None, then))
        else:
            settled = subscription.settled(is_detached=True)
            above = tuple((max(first, floor + 1), last) for first, last in settled.settled if last > floor)
            fact = replace(settled, floor=floor, settled=above, pushed_to=max(settled.pushed_to, floor))
            self._subscribing.feeding.change(subscription, fact, _Advanced(self, event, subscription, fact, then), now)

    def tell(
        self, event: AdminRequested, subscription: Subscription, fact: SubscriptionTold, then: Callable[[int], None],
        now: Now,
    ) -> None:  # fmt: skip
        """Have it known to the subscriber what is lost, and call `then` with the floor once that is journaled."""
        self._subscribing.feeding.in_turn(subscription, partial(self._tell, event, subscription, fact, then), now)

    def _tell(
        self, event: AdminRequested, subscription: Subscription, fact: SubscriptionTold, then: Callable[[int], None],
        now: Now,
    ) -> None:  # fmt: skip
        if subscription.is_removed:
            name = f"subscription {subscription.subscriber}/{subscription.name}"
            self.refuse(event, "unknown-subscription", f"{name} was removed")
        else:
            self._subscribing.feeding.change(subscription, fact, _Advanced(self, event, subscription, fact, then), now)

    def advanced(self, waiter: _Advanced, now: Now) -> None:
        """The cursor is in the journal where it was wanted."""
        subscription = waiter.subscription
        if isinstance(waiter.fact, SubscriptionTold):
            subscription.tell(waiter.fact)
        elif waiter.fact is not None:
            subscription.apply_settled(waiter.fact, self._unsettled_max)
        if waiter.fact is not None:
            self._subscribing.feeding.go_on(subscription, now)
        waiter.then(subscription.done_to)

    def failed(self, waiter: _Advanced, code: str, reason: str, now: Now) -> None:
        """The journal does not have it: nothing has changed."""
        self.refuse(waiter.event, code, f"the node could not store the settlement ({reason}): nothing has changed")
        if waiter.fact is not None:
            self._subscribing.feeding.go_on(waiter.subscription, now)

    def refuse(self, event: AdminRequested, code: str, message: str) -> None:
        """Answer the request with no."""
        self._orders.refuse(event.session, code, message, event.request, is_final=False)


@dataclass(slots=True)
class _Advanced:
    advancing: Advancing
    event: AdminRequested
    subscription: Subscription
    fact: SubscriptionSettled | SubscriptionTold | None
    then: Callable[[int], None]

    def become_durable(self, durability: Durability, now: Now) -> None:
        self.advancing.advanced(self, now)

    def fail(self, code: str, reason: str, now: Now) -> None:
        self.advancing.failed(self, code, reason, now)
