"""What facts may take while there is no space for publications, and which part of that is whose.

Whoever settles or unsubscribes goes on then, and each fact may make the next checkpoint larger, for which as much is
held back as the reserve has. So that nobody uses up what all others need, a payer has a share of it, and
another one for what lets go of space; and nothing but that gets the last share.
"""

from __future__ import annotations

SHARE_COUNT = 4


class Reserve:
    """Owns the count of what was given out since the space was gone; sizes in bytes."""

    __slots__ = ("_size", "_spent_by", "_spent_size")

    def __init__(self, size: int) -> None:
        """A reserve of which nothing is given out."""
        self._size = size
        self._spent_by: dict[tuple[str, bool], int] = {}
        self._spent_size = 0

    def refill(self) -> None:
        """Nothing is given out any more."""
        self._spent_by.clear()
        self._spent_size = 0

    def take(self, size: int, payer: str | None, is_freeing: bool) -> bool:
        """Take a part for a payer, None for the node itself; False where that would be more than it may have."""
        share = self._size // SHARE_COUNT
        spent = 0 if payer is None else self._spent_by.get((payer, is_freeing), 0) + size
        if spent > share or self._spent_size + size > self._size - (0 if is_freeing else share):
            return False
        self._spent_size += size
        if payer is not None:
            self._spent_by[payer, is_freeing] = spent
        return True
