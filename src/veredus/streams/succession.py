"""The facts by which a durable subscription gets another owner or another filter."""

from __future__ import annotations

import msgspec

from veredus.matching import Filter

from .facts import SubscriptionOpened
from .ranges import between, joined, without
from .subscription import Subscription
from .tries import Tried


def refiltered(subscription: Subscription, filter_: Filter, sequence: int) -> SubscriptionOpened:
    """The fact that another filter counts from `sequence` on, which is not examined yet."""
    opened = subscription.opened()
    if filter_ == subscription.filter:
        return opened
    before = opened.before
    if sequence > max(subscription.filter_sequence, subscription.floor + 1):
        if before and before[-1][0] == subscription.filter:
            # The one between was changed back before it counted for anything.
            before = before[:-1]
        before = (*before, (subscription.filter, sequence - 1))
    handed_to, attempts = min(subscription.handed_to, sequence - 1), tuple(subscription.tries.within(0, sequence - 1))
    return msgspec.structs.replace(
        opened, filter=filter_, filter_sequence=sequence, before=before, attempts=attempts, handed_to=handed_to
    )


def handed_on(
    subscription: Subscription,
    incarnation: bytes,
    filter_: Filter | None,
    mode: int,
    attempts_max: int,
    parked_to: str,
    owner: str,
) -> SubscriptionOpened:
    """The fact that another session begins behind the floor; under a new epoch, unless it is the same owner's.

    `filter_`: None to keep what counts for each sequence; so does the same owner that says its filter once more.
    """
    opened = subscription.opened()
    is_same = incarnation == subscription.incarnation
    is_said_again = filter_ == subscription.filter and (is_same or not opened.before)
    is_filter_kept = filter_ is None or is_said_again
    before = opened.before if is_filter_kept else ()
    return msgspec.structs.replace(
        opened,
        epoch=subscription.epoch + (not is_same),
        incarnation=incarnation,
        filter=subscription.filter if filter_ is None else filter_,
        filter_sequence=subscription.filter_sequence if before else subscription.floor + 1,
        before=before,
        mode=mode,
        pushed_known=subscription.floor,
        # The same application still has what it was handed; another one has been handed nothing yet.
        handed_to=max(subscription.floor, subscription.handed_to) if is_same and is_filter_kept else subscription.floor,
        attempts_max=attempts_max,
        attempts=() if not is_filter_kept else tuple(subscription.tries) if is_same else _tried(subscription),
        returned=opened.returned if is_same and is_filter_kept else (),
        parked_to=parked_to,
        owner=owner,
    )


def _tried(subscription: Subscription) -> tuple[Tried, ...]:
    """How often applications were handed what is unsettled, those of before and the present one."""
    if not subscription.attempts_max:
        return ()
    handed_to = max(subscription.floor, subscription.handed_to)
    unsettled = between(subscription.floor + 1, max(handed_to, subscription.tries.last), subscription.settled_ranges())
    handed = ((first, min(last, handed_to)) for first, last in unsettled if first <= handed_to)
    # What it has given back is no attempt any more, and what it was told that cannot be had has never been one.
    no_attempts = joined((*((sequence, sequence) for sequence in subscription.tries.returned), *subscription.missed))
    under_way = without(handed, no_attempts)
    counted = [tried for bounds in under_way for tried in subscription.tries.and_one_more(*bounds)]
    counted += [tried for bounds in without(unsettled, under_way) for tried in subscription.tries.within(*bounds)]
    return tuple(sorted(counted))
