"""Who left which durable subscription, when and by which wish: how much of that is remembered.

It is remembered by principal, and counts for that one alone: whoever names the subscription of another takes nothing
away, be it here or, by a merge, elsewhere.

A wish to be without a subscription counts also where there is none (`Wishes`). So whoever may subscribe to a stream can
make it remember any names; but one that is forgotten is only a late copy of an older wish that is not known as late. A
stream therefore remembers `LEFT_MAX` departures, and the streams of one creator have a bound together. Where that is
reached, the stream that remembers most forgets one; and of those that a stream remembers, the principal who made it
remember most loses the oldest. So each keeps an even share, whatever is left elsewhere and by others.

What somebody had when it left is remembered with that, as far as it is little: its last ranges, for what it got before
these is older than its next subscription elsewhere, or so it nearly always is.
Source: docs/internals/DESIGN.md, "Bounds".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

from .facts import NOTHING_HAD, Had, Origin
from .lives import Lives
from .ranges import joined, without
from .stream import NEVER_LEFT, Left, Stream
from .weave import next_of

if TYPE_CHECKING:
    from .subscription import Subscription

LEFT_MAX = 10_000
"""Of this many removed subscriptions a stream knows when they were."""
HAD_RANGES_MAX = 32
"""Of what each had, so many ranges are known, the last ones."""
HAD_ORIGINS_MAX = 8
"""And of what it may have been given and not named, so many origins, the newest ones, each with `HAD_RUNS_MAX` runs."""
HAD_RUNS_MAX = 16
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
        self,
        stream: Stream,
        subscriber: str,
        name: str,
        removed_us: int,
        wish: int = 0,
        principal: str = "",
        had: Had = NOTHING_HAD,
    ) -> None:
        """A durable subscription of a stream is gone, or is not to come by any wish up to this one. It was
        `principal`'s, or that one asked for it; "" for nobody who is known.
        """
        if stream.is_deleted:
            return
        lengths = self._by_creator.setdefault(stream.creator, Lengths())
        memory = self._memories.setdefault(stream, _Memory(stream))
        lengths.put(stream, 0)
        memory.note((subscriber, name, principal), removed_us, wish, had)
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

    def note(self, key: _Key, removed_us: int, wish: int, had: Had) -> None:
        before = self._stream.left.get(key, NEVER_LEFT)
        if before is not NEVER_LEFT:
            self._drop(key)
        self._stream.left[key] = Left(removed_us, max(wish, before.wish), both_had(had, before.had))
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


def had_by(stream: Stream, subscription: Subscription) -> Had:
    """What its subscriber has of a stream by now: what it has settled, but for what it never wanted; and what it may
    have been handed behind that.
    """
    floor, settled = subscription.cursor
    never = joined(((0, subscription.start - 1), *subscription.unwanted))
    received = without(((0, floor), *settled), never)
    first, last = next_of(stream.weave, floor, settled, stream.head_durable)
    lives = Lives.of(stream.incarnation, stream.terms)
    given = Origin(lives.at(first), first, ((first, first, last + 1 - first),)) if first <= last else None
    return both_had(Had(received, subscription.origins if given is None else (given, *subscription.origins)))


def both_had(had: Had, before: Had = NOTHING_HAD) -> Had:
    """What was had by one subscription, and by one before it, as far as that is remembered."""
    received = joined((*before.received, *had.received))[-HAD_RANGES_MAX:]
    known = dict.fromkeys((*had.origins, *before.origins))
    origins = [Origin(one.incarnation, one.next_sequence, one.runs[:HAD_RUNS_MAX]) for one in known if one.runs]
    return Had(received, tuple(origins[:HAD_ORIGINS_MAX]))


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
