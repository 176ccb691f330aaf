"""What the sources of each owner keep, which stay when nobody is there and are read again at each start.

    source ──► its owner's share of the stream ──► its owner's share of the node

Invariants
    (1) The share of an owner is the sum of its shares of all streams that are there.
    (2) A source is in one share of its stream: that of its owner, "" for nobody in particular.
Source: docs/internals/DESIGN.md, "Bounds".
"""

from __future__ import annotations


class Share:
    """How many sources an owner has, and the size of their resume tokens, in bytes."""

    __slots__ = ("count", "owner", "size", "whole")

    def __init__(self, owner: str, whole: Share | None = None) -> None:
        """Nothing yet; `whole` is what this one is a part of."""
        self.owner = owner
        self.count = 0
        self.size = 0
        self.whole = whole

    def add(self, count: int, size: int) -> None:
        """There are so many more of them, or fewer."""
        self.count += count
        self.size += size
        if self.whole is not None:
            self.whole.add(count, size)


class Shares:
    """Owns the shares of a node, or those of a stream in them."""

    __slots__ = ("_shares", "_whole")

    def __init__(self, whole: Shares | None = None) -> None:
        """No shares yet; `whole` are those of the node where these are a stream's."""
        self._shares: dict[str, Share] = {}
        self._whole = whole

    def of(self, owner: str) -> Share:
        """The owner's, in which there may be nothing."""
        share = self._shares.get(owner)
        if share is None:
            share = self._shares[owner] = Share(owner, None if self._whole is None else self._whole.of(owner))
        return share

    def forget(self) -> None:
        """The stream has gone, with all its sources: what the journal still says of these counts for nobody."""
        for share in self._shares.values():
            if share.whole is not None:
                share.whole.add(-share.count, -share.size)
                share.whole = None
        self._whole = None

    def amounts(self) -> dict[str, tuple[int, int]]:
        """How many sources, and bytes of tokens, each owner has who has any."""
        return {owner: (share.count, share.size) for owner, share in self._shares.items() if share.count or share.size}
