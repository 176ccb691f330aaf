"""What the subscriber is done with, by the life of the stream that pushed it: the same sequence may mean two things.

Where a node was put back to an older copy, what it had pushed behind some place is gone, and other publications get the
sequences. The subscriber may still have those that are gone in its hands, and settle them: that says nothing of the
ones that took their places, whether or not it has been told of the loss. So each life has its own `Settling`, which a
batch knows; the subscriber's thread writes into it, and the loop takes out of it what still counts.
"""

from __future__ import annotations

from collections import deque

from .ranges import Range

SEQUENCE_MAX = (1 << 63) - 1


class Settling:
    """What was settled, and handed out, of what one life of the stream has pushed."""

    __slots__ = ("handed_to", "last", "settle_to", "to_settle")

    def __init__(self) -> None:
        """Nothing yet."""
        self.settle_to = 0
        """In order: up to where the subscriber has settled."""
        self.to_settle: deque[Range] = deque()
        """Individually: what the subscriber has settled."""
        self.handed_to = 0
        """What the subscriber was handed, where attempts are counted."""
        self.last = SEQUENCE_MAX
        """What lay behind this is gone; the loop writes it."""

    def cut(self, wanted: Range) -> Range:
        """What of a range is not gone; one that ends before it begins for nothing."""
        return wanted[0], min(wanted[1], self.last)


class Settlings:
    """Owns the lives' settlings; lives in the loop."""

    __slots__ = ("_all", "first")

    def __init__(self) -> None:
        """Nothing was lost."""
        self.first = Settling()
        self._all = [self.first]

    def lose_from(self, sequence: int) -> Settling:
        """What was pushed from `sequence` on is gone; the settling of what is pushed from now on."""
        for settling in self._all:
            settling.last = min(settling.last, sequence - 1)
        self._all.append(Settling())
        return self._all[-1]

    @property
    def settle_to(self) -> int:
        """In order: up to where all is settled."""
        return max(min(settling.settle_to, settling.last) for settling in self._all)

    @property
    def handed_to(self) -> int:
        """Up to where was handed out."""
        return max(min(settling.handed_to, settling.last) for settling in self._all)

    def take(self) -> list[Range]:
        """Individually: what was settled since this was asked last."""
        taken: list[Range] = []
        for settling in self._all:
            while settling.to_settle:
                first, last = settling.cut(settling.to_settle.popleft())
                if first <= last:
                    taken.append((first, last))
        return taken
