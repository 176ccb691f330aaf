"""What facts may take while there is no space for publications, and which part of that is whose.

Whoever settles or unsubscribes goes on then, and each fact may make the next checkpoint larger, for which as much is
held back as the reserve has. So that nobody uses up what all others need, a payer has a share of it, and another one
for what lets go of space; and nothing but that gets the last share.

    | others: up to SHARE_COUNT - 1 shares, as far as there is room | what lets go of space: the last share |
"""

from __future__ import annotations

from .layout import GROUP_RECORD_SIZE

SHARE_COUNT = 4


class Reserve:
    """Owns the count of what was given out since the space was gone; sizes in bytes."""

    __slots__ = ("_room", "_share", "_spent_by", "_spent_size")

    def __init__(self, size: int) -> None:
        """A reserve of which nothing is given out."""
        self._share = size // SHARE_COUNT
        self._room = size
        self._spent_by: dict[tuple[str, bool], int] = {}
        self._spent_size = 0

    def refill(self, room: int) -> None:
        """Nothing is given out any more, and there is so much room: less than once where an earlier process, or the
        time before this, has taken of it. The last share is as large as ever.
        """
        self._room = room
        self._spent_by.clear()
        self._spent_size = 0

    def take(self, size: int, payer: str | None, is_freeing: bool) -> bool:
        """Take room for facts of this size, in a group of their own; False where that would be more than the payer,
        None for the node itself, may have.
        """
        if not size:
            return True
        size += GROUP_RECORD_SIZE
        spent = 0 if payer is None else self._spent_by.get((payer, is_freeing), 0) + size
        if spent > self._share or self._spent_size + size > self._room - (0 if is_freeing else self._share):
            return False
        self._spent_size += size
        if payer is not None:
            self._spent_by[payer, is_freeing] = spent
        return True
