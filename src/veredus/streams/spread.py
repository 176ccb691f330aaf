"""How many ranges the cursors of each principal have together: what bounds the memory that cursors take.

A cursor has ranges that wait for settlement, ranges that were settled before it examined them, and what was tried. It
gets no more of them than `unsettled_max`, and no more than its owner has room for; `RANGES_MIN` it may always have, so
that what is pushed to it can go on being settled.
Source: docs/internals/DESIGN.md, "Bounds".
"""

from __future__ import annotations

from .subscription import Subscription
from .tables import StreamsLimits

RANGES_MIN = 64


class Spread:
    """Owns the number of ranges by owner; "" is all that prove nothing."""

    __slots__ = ("_counts", "_limits")

    def __init__(self, limits: StreamsLimits) -> None:
        """No cursor has any."""
        self._limits = limits
        self._counts: dict[str, int] = {}

    def count(self, subscription: Subscription) -> None:
        """Its cursor has moved."""
        tried = len(subscription.tries) + len(subscription.tries.returned)
        self._note(subscription, subscription.ledger.unsettled_count + len(subscription.excluded) + tried)

    def forget(self, subscription: Subscription) -> None:
        """It is gone."""
        self._note(subscription, 0)

    def _note(self, subscription: Subscription, count: int) -> None:
        owner, before = subscription.spread
        if before:
            self._counts[owner] -= before
        subscription.spread = subscription.owner, count
        if count:
            self._counts[subscription.owner] = self._counts.get(subscription.owner, 0) + count
        if not self._counts.get(owner, 1):
            del self._counts[owner]

    def make_room(self, subscription: Subscription) -> None:
        """Let its cursor have as many ranges as its owner has room for now."""
        ledger, limits = subscription.ledger, self._limits
        room = limits.cursor_ranges_per_principal_max - self._counts.get(subscription.owner, 0)
        ledger.ranges_max = min(limits.unsettled_max, max(RANGES_MIN, ledger.unsettled_count + room))
