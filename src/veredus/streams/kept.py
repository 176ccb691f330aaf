"""How much the durable subscriptions of each principal keep: how many there are, and the size of their filters.

They stay when nobody is there, and are read again at each start.
Source: docs/internals/DESIGN.md, "Bounds".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from veredus.kernel.engine import Now
from veredus.matching import Filter

from .by_stream import ByStream
from .room import Amounts, Room
from .shares import FILTERS, SUBSCRIPTIONS
from .subscription import Subscription
from .tables import Tables


def size_of_filter(wanted: Filter) -> int:
    """The octets that a filter keeps, as it is written."""
    return sum(len(pattern.encode()) for pattern in wanted.keys) + len((wanted.where or "").encode())


class Kept:
    """Owns what is left to each owner, at least; "" is all that prove nothing."""

    __slots__ = ("_opening", "_room", "_tables")

    def __init__(self, tables: Tables, opening: ByStream[tuple[str, str], Subscription]) -> None:
        """`opening` has the subscriptions that are in no table yet."""
        self._tables = tables
        self._opening = opening
        self._room = Room(self._left_of)

    def take(self, owner: str, count: int, size: int, now: Now) -> None:
        """Let the owner have `count` more subscriptions, with filters of `size` bytes more.

        Raises `Refused("too-many-subscriptions")`, or `Refused("filters-too-large")`, where that is more than it may
        have.
        """
        if not count and not size:
            return
        left_count, left_size = self._room.take(owner, (count, size), self._tables.removed_count, now.monotonic_ns)
        limits = self._tables.limits
        SUBSCRIPTIONS.check(owner, count, left_count, limits.subscriptions_per_principal_max)
        FILTERS.check(owner, size, left_size, limits.filters_size_per_principal_max)

    def note_moved(self, owner: str) -> None:
        """A commit has brought one along, or to its owner: it is counted, and was not taken."""
        self._room.forget(owner)

    def note_removed(self) -> None:
        """One has gone: there may be room again."""
        self._tables.removed_count += 1

    def _left_of(self, owner: str) -> Amounts:
        owned = [subscription for subscription in self._all() if subscription.owner == owner]
        limits = self._tables.limits
        return (
            limits.subscriptions_per_principal_max - len(owned),
            limits.filters_size_per_principal_max - _size_of(owned),
        )

    def _all(self) -> Iterator[Subscription]:
        yield from self._opening.values()
        for stream in self._tables.streams.values():
            yield from stream.subscriptions.values()


def _size_of(subscriptions: Iterable[Subscription]) -> int:
    return sum(
        size_of_filter(wanted)
        for subscription in subscriptions
        for wanted in (subscription.filter, *(earlier for earlier, _ in subscription.before))
    )
