"""Who left which durable subscription, when and by which wish: how much of that is remembered.

It is remembered by principal, and counts for that one alone: whoever names the subscription of another takes nothing
away, be it here or, by a merge, elsewhere.

A wish to be without a subscription counts also where there is none (`Wishes`). So whoever may subscribe to a stream can
make it remember any names; but one that is forgotten is only a late copy of an older wish that is not known as late. A
stream therefore remembers `LEFT_MAX` departures, and the streams of one creator have a bound together. Where that is
reached, the stream that remembers most forgets one; and of those that a stream remembers, the principal who made it
remember most loses the oldest. So each keeps an even share, whatever is left elsewhere and by others.
Source: docs/internals/DESIGN.md, "Bounds".
"""

from __future__ import annotations

from typing import Generic, TypeAlias, TypeVar

from .stream import NEVER_LEFT, Left, Stream

LEFT_MAX = 10_000
"""Of this many removed subscriptions a stream knows when they were."""
_Key: TypeAlias = tuple[str, str, str]
N = TypeVar("N")


class Departures:
    """Owns how many departures the streams of each creator remember, and who made them do so."""

    __slots__ = ("_by_creator", "_count_max", "_memories")

    def __init__(self, count_max: int) -> None:
        """The streams of one creator remember at most `count_max` together."""
        self._count_max = count_max
        self._by_creator: dict[str, Lengths[Stream]] = {}
        self._memories: dict[Stream, _Memory] = {}

    def note(
        self, stream: Stream, subscriber: str, name: str, removed_us: int, wish: int = 0, principal: str = ""
    ) -> None:
        """A durable subscription of a stream is gone, or is not to come by any wish up to this one. It was
        `principal`'s, or that one asked for it; "" for nobody who is known.
        """
        if stream.is_deleted:
            return
        lengths = self._by_creator.setdefault(stream.creator, Lengths())
        memory = self._memories.setdefault(stream, _Memory(stream))
        lengths.put(stream, 0)
        memory.note((subscriber, name, principal), removed_us, wish)
        if len(stream.left) > LEFT_MAX:
            memory.forget_one()
        lengths.put(stream, len(stream.left))
        if lengths.sum > self._count_max:
            longest = lengths.longest()
            self._memories[longest].forget_one()
            lengths.put(longest, len(longest.left))

    def forget(self, stream: Stream) -> None:
        """The stream is gone."""
        if self._memories.pop(stream, None) is not None:
            self._by_creator[stream.creator].put(stream, 0)


class _Memory:
    """What one stream remembers, by who made it do so."""

    __slots__ = ("_lengths", "_of", "_stream")

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._of: dict[str, dict[_Key, None]] = {}
        self._lengths: Lengths[str] = Lengths()

    def note(self, key: _Key, removed_us: int, wish: int) -> None:
        before = self._stream.left.get(key, NEVER_LEFT)
        if before is not NEVER_LEFT:
            self._drop(key)
        self._stream.left[key] = Left(removed_us, max(wish, before.wish))
        mine = self._of.setdefault(key[2], {})
        mine[key] = None
        self._lengths.put(key[2], len(mine))

    def forget_one(self) -> None:
        """The oldest of the principal who has most."""
        self._drop(next(iter(self._of[self._lengths.longest()])))

    def _drop(self, key: _Key) -> None:
        del self._stream.left[key]
        mine = self._of[key[2]]
        del mine[key]
        self._lengths.put(key[2], len(mine))
        if not mine:
            del self._of[key[2]]


class Lengths(Generic[N]):
    """How much each of many remembers, their sum, and who remembers most."""

    __slots__ = ("_by_length", "_known", "sum")

    def __init__(self) -> None:
        self.sum = 0
        self._known: dict[N, int] = {}
        self._by_length: dict[int, dict[N, None]] = {}

    def put(self, name: N, length: int) -> None:
        """Its length is this from now on; 0 for nothing."""
        before = self._known.pop(name, 0)
        if before:
            alike = self._by_length[before]
            del alike[name]
            if not alike:
                del self._by_length[before]
        if length:
            self._known[name] = length
            self._by_length.setdefault(length, {})[name] = None
        self.sum += length - before

    def of(self, name: N) -> int:
        """Its length."""
        return self._known.get(name, 0)

    def longest(self) -> N:
        """Lengths that differ are few: their sum is bounded."""
        return next(iter(self._by_length[max(self._by_length)]))
