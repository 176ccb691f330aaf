"""Who wishes to be without durable subscriptions of streams that are not here: how much of that is remembered.

A wish to be without a subscription goes to every node that may have it (`Wishes`), and a copy of an older wish to have
it may come to any of them later: also to one that has no such stream yet, or has it no more. So what is remembered of
who left goes ahead of the stream, which knows it when it is made, and stays behind when the stream is deleted. Only
what has a number does: without one, no copy is known as late.

Whoever may subscribe can make a node remember any names. So it remembers so many in all, and where that is reached, the
principal who made it remember most loses the oldest.
Source: docs/reference/wire/topics.md, "Wishes"; docs/internals/DESIGN.md, "Bounds".
"""

from __future__ import annotations

from collections.abc import Iterator

from .departures import Lengths
from .facts import LeftAhead


class Ahead:
    """Owns what is remembered of who left streams that are not here."""

    __slots__ = ("_by_principal", "_by_stream", "_count_max", "_lengths")

    def __init__(self, count_max: int) -> None:
        """Nobody has left yet; at most `count_max` are remembered."""
        self._count_max = count_max
        self._by_principal: dict[str, dict[tuple[str, str, str], LeftAhead]] = {}
        """By stream, subscriber and name; who left last stands last."""
        self._by_stream: dict[str, dict[tuple[str, str, str], None]] = {}
        """Subscriber, name and principal."""
        self._lengths: Lengths[str] = Lengths()
        """How many each principal made it remember."""

    def note(self, left: LeftAhead) -> None:
        """Somebody left, and is not subscribed by any wish up to this one."""
        before = self._take(left.stream, left.subscriber, left.name, left.principal)
        if before is not None and before.wish > left.wish:
            left = before
        mine = self._by_principal.setdefault(left.principal, {})
        mine[left.stream, left.subscriber, left.name] = left
        self._by_stream.setdefault(left.stream, {})[left.subscriber, left.name, left.principal] = None
        self._lengths.put(left.principal, len(mine))
        if self._lengths.sum > self._count_max:
            most = self._lengths.longest()
            self._take(*next(iter(self._by_principal[most])), most)

    def last_of(self, stream: str, key: tuple[str, str], principal: str) -> LeftAhead:
        """The last wish of a principal to be without a subscription, with the number 0 where none is known."""
        known = self._by_principal.get(principal, {}).get((stream, *key))
        return LeftAhead(stream, *key, 0, 0, principal) if known is None else known

    def take(self, stream: str) -> list[LeftAhead]:
        """Forget who left a stream of this name; who that was, in no order but that of each principal."""
        keys = list(self._by_stream.get(stream, ()))
        taken = (self._take(stream, *key) for key in keys)
        return [left for left in taken if left is not None]

    def rows(self) -> Iterator[LeftAhead]:
        """All that is remembered, of each principal who left last behind."""
        for known in self._by_principal.values():
            yield from known.values()

    def _take(self, stream: str, subscriber: str, name: str, principal: str) -> LeftAhead | None:
        mine = self._by_principal.get(principal, {})
        left = mine.pop((stream, subscriber, name), None)
        if left is None:
            return None
        self._lengths.put(principal, len(mine))
        if not mine:
            del self._by_principal[principal]
        keys = self._by_stream[stream]
        del keys[subscriber, name, principal]
        if not keys:
            del self._by_stream[stream]
        return left
