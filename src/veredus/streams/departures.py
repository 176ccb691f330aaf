"""Who left which durable subscription, when and by which wish: how much of that is remembered.

A wish to be without a subscription counts also where there is none (`Wishes`). So whoever may subscribe to a stream can
make it remember any names; but one that is forgotten is only a late copy of an older wish that is not known as late. A
stream therefore remembers `LEFT_MAX` departures, and the streams of one creator have a bound together. Where that is
reached, the stream that remembers most forgets its oldest: each keeps an even share, whatever is left elsewhere.
Source: docs/internals/DESIGN.md, "Bounds".
"""

from __future__ import annotations

from .stream import NEVER_LEFT, Left, Stream

LEFT_MAX = 10_000
"""Of this many removed subscriptions a stream knows when they were."""


class Departures:
    """Owns how many departures the streams of each creator remember."""

    __slots__ = ("_by_creator", "_count_max")

    def __init__(self, count_max: int) -> None:
        """The streams of one creator remember at most `count_max` together."""
        self._count_max = count_max
        self._by_creator: dict[str, _Shelf] = {}

    def note(self, stream: Stream, subscriber: str, name: str, removed_us: int, wish: int = 0) -> None:
        """A durable subscription of a stream is gone, or is not to come by any wish up to this one."""
        if stream.is_deleted:
            return
        shelf = self._by_creator.setdefault(stream.creator, _Shelf())
        shelf.take(stream)
        before = stream.left.take((subscriber, name)) or NEVER_LEFT
        stream.left[subscriber, name] = Left(removed_us, max(wish, before.wish))
        if len(stream.left) > LEFT_MAX:
            _forget_oldest(stream)
        shelf.put(stream)
        if shelf.count > self._count_max:
            longest = shelf.longest()
            shelf.take(longest)
            _forget_oldest(longest)
            shelf.put(longest)

    def forget(self, stream: Stream) -> None:
        """The stream is gone."""
        if stream.left:
            self._by_creator[stream.creator].take(stream)


class _Shelf:
    """The streams of one creator that remember anything, by how much."""

    __slots__ = ("_by_length", "count")

    def __init__(self) -> None:
        self.count = 0
        self._by_length: dict[int, dict[int, Stream]] = {}

    def put(self, stream: Stream) -> None:
        if stream.left:
            self.count += len(stream.left)
            self._by_length.setdefault(len(stream.left), {})[stream.stream_id] = stream

    def take(self, stream: Stream) -> None:
        """Before its length changes."""
        length = len(stream.left)
        if length:
            self.count -= length
            alike = self._by_length[length]
            del alike[stream.stream_id]
            if not alike:
                del self._by_length[length]

    def longest(self) -> Stream:
        """The one that remembers most. Lengths that differ are few: their sum is bounded."""
        return next(iter(self._by_length[max(self._by_length)].values()))


def _forget_oldest(stream: Stream) -> None:
    del stream.left[next(iter(stream.left))]
