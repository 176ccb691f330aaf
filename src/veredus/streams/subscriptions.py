"""The durable subscriptions of a stream, in order: whether it has one of some name is known without a look at any."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .listing import InOrder

if TYPE_CHECKING:
    from .subscription import Subscription


class Subscriptions(InOrder[tuple[str, str], "Subscription"]):
    """A table of them by subscriber and name."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        """No subscription yet."""
        super().__init__()
        self._counts: dict[str, int] = {}

    def __setitem__(self, key: tuple[str, str], subscription: Subscription) -> None:
        if key not in self:
            self._counts[key[1]] = self._counts.get(key[1], 0) + 1
        super().__setitem__(key, subscription)

    def __delitem__(self, key: tuple[str, str]) -> None:
        super().__delitem__(key)
        self._counts[key[1]] -= 1
        if not self._counts[key[1]]:
            del self._counts[key[1]]

    def has_named(self, name: str) -> bool:
        """Whether there is one of this name, whoever's."""
        return name in self._counts
