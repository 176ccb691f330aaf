"""What was received and waits for a turn, over all links: whose principal has much of it is read in small pieces.

    waits of a principal:   nothing ──────── half of its share ──────── its share, and more
    read at a time:         READ_SIZE_MAX ── down to nearly nothing ──► READ_SIZE_MIN

A principal's share is what is left of the room of all, and at most a part of it. So the more waits of everybody, the
smaller are the shares: who has the most waiting is over its own first, and who has little is read from as before. With
n principals that send all they can, each has about an n-th of the room, and one more has as much when it comes.

A link of which anything waits is not read from (veredus.node.pacing): each holds one read at most. How large a read may
be is what bounds the sum, and no link is kept waiting by its principal's others: a publisher whose neighbours ask for
more than they get goes on, in smaller steps.

Invariants
    (1) What waits of a principal is at most its share, and `READ_SIZE_MIN` for each of its links, and what one round of
        reading brings, which the host bounds.
    (2) What waits of all is at most the room, and the same for all links.
    (3) A peer that has no principal yet is read from `UNPROVEN_READ_SIZE` at a time.
Source: docs/internals/DESIGN.md, "Bounds"; dynamic thresholds (Choudhury and Hahne, 1998).
"""

from __future__ import annotations

from veredus.streams.rights import NOBODY

READ_SIZE_MAX = 1 << 20
READ_SIZE_MIN = 4 << 10
UNPROVEN_READ_SIZE = 64 << 10
"""A greeting is no larger."""
_READS_AHEAD = 16
"""A read takes so much of what is left of a share: so many links may read at once before they are counted."""


class Backlog:
    """Owns how much waits of each link, and of each principal's together; in bytes."""

    __slots__ = ("_links", "_principals", "_share_max", "_size_max", "size")

    def __init__(self, share_max: int, size_max: int) -> None:
        """Nothing waits; `share_max` is what may wait of one principal, `size_max` the room of all."""
        self._share_max = share_max
        self._size_max = size_max
        self._links: dict[int, tuple[str, int]] = {}
        self._principals: dict[str, int] = {}
        self.size = 0
        """What waits of all links together."""

    def note(self, link: int, principal: str, size: int) -> None:
        """So much waits of the link now, whose principal this is."""
        if not size and link not in self._links:
            return
        before, held = self._links.pop(link, (principal, 0))
        self._add(before, -held)
        self._add(principal, size)
        if size:
            self._links[link] = principal, size

    def read_size(self, principal: str) -> int:
        """How much is read at a time from a link of the principal's."""
        if principal == NOBODY:
            return UNPROVEN_READ_SIZE
        share = min(self._share_max, self._size_max - self.size)
        return min(READ_SIZE_MAX, max(READ_SIZE_MIN, (share - self._principals.get(principal, 0)) // _READS_AHEAD))

    def _add(self, principal: str, size: int) -> None:
        self.size += size
        left = self._principals.get(principal, 0) + size
        if left:
            self._principals[principal] = left
        else:
            self._principals.pop(principal, None)

    def check(self) -> None:
        """Raise `AssertionError` where the sums are wrong."""
        sums: dict[str, int] = {}
        for principal, size in self._links.values():
            sums[principal] = sums.get(principal, 0) + size
        assert sums == self._principals
        assert self.size == sum(sums.values())
