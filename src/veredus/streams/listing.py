"""Lists in pages: what a page costs depends on how long it is, and not on how much there is to list.

A table that is listed keeps its keys in order: a page begins where the one before it ended, and nothing is
gathered or sorted but what it looks at.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, NoReturn, TypeVar

from .places import Place

PAGE_COUNT = 200
"""Rows that a peer is given of a list at a time."""
LOOKED_AT_MAX = 400
"""Rows that are looked at for a page, most of which the principal may not see: each goes through all the rules."""

PARTS_MAX = 4096
"""Parts, as ranges of sequences, that the rows of an answer have together; one row alone may have more."""
PART_SIZE = 16
"""Bytes of a part, roughly: what is no range counts as so many parts as it is long."""

Key = TypeVar("Key", bound=Any)
"""What can be compared with its like."""
Entry = TypeVar("Entry")


class InOrder(dict[Key, Entry]):
    """A table that knows its keys in order.

    A key that goes keeps its place until half of all have gone: to close each gap at once would move all behind it.
    """

    __slots__ = ("_gone_count", "_keys")

    def __init__(self) -> None:
        """Nothing is in it yet."""
        super().__init__()
        self._keys: list[Key] = []
        """Ascending, each once, also some that have gone."""
        self._gone_count = 0

    def __setitem__(self, key: Key, entry: Entry) -> None:
        if key not in self:
            place = bisect_left(self._keys, key)
            if place < len(self._keys) and self._keys[place] == key:
                self._gone_count -= 1
            else:
                self._keys.insert(place, key)
        super().__setitem__(key, entry)

    def __delitem__(self, key: Key) -> None:
        super().__delitem__(key)
        self._note_gone(1)

    def setdefault(self, key: Key, entry: Entry) -> Entry:
        """The entry of this key, which is this one where there was none."""
        if key not in self:
            self[key] = entry
        return self[key]

    def take(self, key: Key) -> Entry | None:
        """The entry of this key, taken out; None where there is none."""
        entry = self.get(key)
        if entry is not None:
            del self[key]
        return entry

    def take_all(self, keys: Iterable[Key]) -> list[Entry]:
        """The entries of these keys, taken out; none for a key that is not there."""
        pop = super().pop
        entries = [entry for key in keys if (entry := pop(key, None)) is not None]
        self._note_gone(len(entries))
        return entries

    def _note_gone(self, count: int) -> None:
        self._gone_count += count
        if 2 * self._gone_count > len(self._keys):
            self._keys = [known for known in self._keys if known in self]
            self._gone_count = 0

    def pop(self, *_: object) -> NoReturn:
        """`take` keeps the order."""
        raise NotImplementedError

    def keys_from(self, key: Key) -> Iterator[Key]:
        """The keys in order, from this one on. The table must not change meanwhile."""
        keys = self._keys
        return (keys[at] for at in range(bisect_left(keys, key), len(keys)) if keys[at] in self)

    def places_behind(self: InOrder[str, Entry], after: Place) -> Iterator[Place]:
        """The names as places of a list, those behind `after`."""
        return ((name,) for name in self.keys_from(after[0] if after else "") if (name,) > after)


class Page(NamedTuple):
    """A part of a list."""

    seen: list[Place]
    """What the principal may see of it."""
    last: Place
    """The last that was looked at; () where there was none."""
    is_more: bool
    """Whether something comes behind it."""


def page_of(
    places: Iterable[Place], may_see: Callable[[Place], bool], limit: int, weigh: Callable[[Place], int]
) -> Page:
    """The first of these places, at most `limit` of them that may be seen, which together have no more parts than
    `PARTS_MAX`, or are one alone; `weigh` says how many one has.
    """
    seen: list[Place] = []
    part_count = 0
    last: Place = ()
    for looked_at, place in enumerate(places):
        if looked_at == LOOKED_AT_MAX or len(seen) == limit:
            return Page(seen, last, is_more=True)
        if may_see(place):
            part_count += weigh(place)
            if seen and part_count > PARTS_MAX:
                return Page(seen, last, is_more=True)
            seen.append(place)
        last = place
    return Page(seen, last, is_more=False)


def first_of(entries: Iterable[Entry], count_max: int, weigh: Callable[[Entry], int]) -> list[Entry]:
    """The first of these, which together have no more parts than `PARTS_MAX`, or are one alone."""
    found: list[Entry] = []
    part_count = 0
    for entry in entries:
        part_count += weigh(entry)
        if found and (len(found) == count_max or part_count > PARTS_MAX):
            break
        found.append(entry)
    return found
