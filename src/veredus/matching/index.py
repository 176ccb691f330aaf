"""Which of many filters may want something of a batch: asked once for all of them, not of each.

    filters ──► needs ──► one table for each column and kind of need
    a batch ──► its columns ──► each table says which needs some row meets ──► filters all of whose needs are met
                                                                               ──► by one and the same row

What is left out wants no row of the batch. What is named may still want none, and is tried as if there were no index.
Counting satisfied needs is the algorithm of Yan and Garcia-Molina ("Index structures for selective dissemination of
information under the Boolean model", 1994), here a column of a batch at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Final, Generic, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from veredus.kernel.turns import QUANTUM_NS
from veredus.matching.needs import Begins, Need, OneOf, Span
from veredus.matching.selection import binary_of, fixed_width, has_octets, validity_of

Item = TypeVar("Item", bound=Hashable)
Slots: TypeAlias = npt.NDArray[np.int64]
Numbers: TypeAlias = npt.NDArray[np.float64]
Column: TypeAlias = pa.Array | Sequence[bytes]
"""A column as batches have them; keys may be a list."""

COLUMN_NS: Final = 20_000
"""What it costs to look at a column of a batch, roughly; and each row, need and filter of several needs beside that."""
ROW_NS: Final = 100
NEED_NS: Final = 2
REFINED_NS: Final = 4_000
REFINED_COUNT_MAX: Final = 64
"""A word, or the words of one need, that more rows have says little: the filter itself is asked."""

BUILT_IN: Final = ("$key", "$event_time", "$append_time", "$source", "$sequence")
"""Columns that every batch has."""

_ROOM_MIN = 64


class _Spans:
    """The spans of numbers that filters need of one column, in no order; each filter has one at most."""

    __slots__ = ("_places", "count", "highs", "lows", "slots")

    def __init__(self) -> None:
        self._places: dict[int, int] = {}
        self.count = 0
        self.slots = np.zeros(_ROOM_MIN, np.int64)
        self.lows = np.zeros(_ROOM_MIN)
        self.highs = np.zeros(_ROOM_MIN)

    def add(self, slot: int, need: Span) -> None:
        if self.count == len(self.slots):
            self.slots, self.lows, self.highs = (
                np.concatenate([old, np.zeros_like(old)]) for old in (self.slots, self.lows, self.highs)
            )
        self._places[slot] = self.count
        self.slots[self.count], self.lows[self.count], self.highs[self.count] = slot, need.low, need.high
        self.count += 1

    def remove(self, slot: int) -> None:
        place = self._places.pop(slot)
        self.count -= 1
        if place < self.count:
            for column in (self.slots, self.lows, self.highs):
                column[place] = column[self.count]
            self._places[int(self.slots[place])] = place

    def met_by(self, numbers: Numbers) -> Slots:
        """Whose span some of these ascending numbers lies in."""
        slots, lows, highs = self.slots[: self.count], self.lows[: self.count], self.highs[: self.count]
        may = (lows <= numbers[-1]) & (highs >= numbers[0])
        if len(numbers) > 1:
            # Where both ends lie among the numbers perhaps none is between them.
            (among,) = (may & (lows > numbers[0]) & (highs < numbers[-1])).nonzero()
            may[among] = numbers.searchsorted(lows[among]) < numbers.searchsorted(highs[among], "right")
        met: Slots = slots[may]
        return met


class _Named:
    """The filters that need one word, or one beginning of words."""

    __slots__ = ("_array", "_slots")

    def __init__(self) -> None:
        self._slots: dict[int, None] = {}
        self._array: Slots | None = None

    def __len__(self) -> int:
        return len(self._slots)

    def add(self, slot: int) -> None:
        self._slots[slot] = None
        self._array = None

    def remove(self, slot: int) -> None:
        del self._slots[slot]
        self._array = None

    @property
    def slots(self) -> Slots:
        if self._array is None:
            self._array = np.fromiter(self._slots, np.int64, len(self._slots))
        return self._array


class _Dictionary:
    """The words, or the beginnings of words, that filters need of one column."""

    __slots__ = ("named",)

    def __init__(self) -> None:
        self.named: dict[int, dict[bytes, _Named]] = {}
        """By how many octets of a word are compared; -1 for all of them."""

    def add(self, slot: int, size: int, word: bytes) -> None:
        self.named.setdefault(size, {}).setdefault(word, _Named()).add(slot)

    def remove(self, slot: int, size: int, word: bytes) -> None:
        words = self.named[size]
        words[word].remove(slot)
        if not words[word]:
            del words[word]
            if not words:
                del self.named[size]

    def met_by(self, words: Iterable[bytes]) -> Iterator[Slots]:
        """Who needs one of these."""
        for size, named in self.named.items():
            for word in words:
                found = named.get(word if size < 0 else word[:size])
                if found is not None:
                    yield found.slots


class _Columns:
    """The columns of one batch, each made ready once."""

    def __init__(self, column_of: Callable[[str], Column | None]) -> None:
        self._column_of = column_of
        self._columns: dict[str, Column | None] = {}
        self._numbers: dict[str, Numbers | None] = {}
        self._words: dict[str, dict[bytes, list[int]] | None] = {}

    def column(self, name: str) -> Column | None:
        if name not in self._columns:
            self._columns[name] = self._column_of(name)
        return self._columns[name]

    def numbers(self, name: str) -> Numbers | None:
        """A number for each row, not one where there is none; None where the column has no numbers."""
        if name not in self._numbers:
            self._numbers[name] = _numbers_in(self.column(name))
        return self._numbers[name]

    def words(self, name: str) -> dict[bytes, list[int]] | None:
        """The rows of each word; None where the column has no words."""
        if name not in self._words:
            self._words[name] = _words_in(self.column(name))
        return self._words[name]


class FilterIndex(Generic[Item]):
    """Owns the needs of filters, each known by an item."""

    def __init__(self) -> None:
        """No filter."""
        self._slots: dict[Item, int] = {}
        self._free: list[int] = []
        self._items: list[Item | None] = []
        self._needs: list[tuple[Need, ...]] = []
        self._counts = np.zeros(_ROOM_MIN, np.int16)
        """How many needs the filter of each slot has; -1 for none there."""
        self._counts[:] = -1
        self._spans: dict[str, _Spans] = {}
        self._words: dict[tuple[str, type[Need]], _Dictionary] = {}
        self.cost_ns = 0
        """What the last question cost, in estimated nanoseconds."""

    def __len__(self) -> int:
        return len(self._slots)

    def __contains__(self, item: Item) -> bool:
        return item in self._slots

    def __iter__(self) -> Iterator[Item]:
        return iter(self._slots)

    def add(self, item: Item, needs: tuple[Need, ...]) -> None:
        """Know a filter that has some needs by an `item` that is not known yet."""
        slot = self._free.pop() if self._free else len(self._items)
        if slot == len(self._items):
            self._items.append(None)
            self._needs.append(())
            if slot == len(self._counts):
                self._counts = np.concatenate([self._counts, np.full_like(self._counts, -1)])
        self._slots[item], self._items[slot], self._needs[slot] = slot, item, needs
        self._counts[slot] = len(needs)
        for need in needs:
            match need:
                case Span(name):
                    self._spans.setdefault(name, _Spans()).add(slot, need)
                case OneOf(name) | Begins(name):
                    for size, word in _named(need):
                        self._words.setdefault((name, type(need)), _Dictionary()).add(slot, size, word)

    def remove(self, item: Item) -> None:
        """Forget a filter."""
        slot = self._slots.pop(item)
        for need in self._needs[slot]:
            match need:
                case Span(name):
                    self._spans[name].remove(slot)
                    if not self._spans[name].count:
                        del self._spans[name]
                case OneOf(name) | Begins(name):
                    place = name, type(need)
                    for size, word in _named(need):
                        self._words[place].remove(slot, size, word)
                    if place in self._words and not self._words[place].named:
                        del self._words[place]
        self._items[slot], self._needs[slot], self._counts[slot] = None, (), -1
        self._free.append(slot)

    def price(self, names: Collection[str], count: int) -> int:
        """What it costs at most to ask about `count` rows with attributes of these names, in estimated nanoseconds."""
        price_ns = len(self._counts) * NEED_NS
        for name in (*names, *BUILT_IN):
            if spans := self._spans.get(name):
                price_ns += COLUMN_NS + count * ROW_NS + spans.count * NEED_NS
            for kind in (OneOf, Begins):
                if dictionary := self._words.get((name, kind)):
                    price_ns += COLUMN_NS + count * ROW_NS * len(dictionary.named)
        return price_ns

    def match(self, column_of: Callable[[str], Column | None], count: int, names: Collection[str]) -> list[Item]:
        """Whose filter may want one of `count` rows.

        `column_of`: a column by its name, `$key` among them, as `CompiledFilter.select` takes it, or a list of keys;
        None where there is none. `names`: of the attributes that there are. Names that filters need and no batch has
        cost nothing.
        """
        columns = _Columns(column_of)
        met = np.zeros(len(self._counts), np.int16)
        self.cost_ns = self.price(names, count)
        for name in dict.fromkeys((*names, *BUILT_IN)):
            spans = self._spans.get(name)
            numbers = columns.numbers(name) if spans is not None else None
            if spans is not None and numbers is not None:
                known = np.sort(numbers[~np.isnan(numbers)])
                if len(known):
                    met[spans.met_by(known)] += 1
            for kind in (OneOf, Begins):
                dictionary = self._words.get((name, kind))
                words = columns.words(name) if dictionary is not None else None
                if dictionary is not None and words is not None:
                    self._count_words(dictionary, words, met)
        (slots,) = (met == self._counts).nonzero()
        return [item for slot in slots.tolist() if (item := self._refined(slot, columns)) is not None]

    def _count_words(self, dictionary: _Dictionary, words: Iterable[bytes], met: npt.NDArray[np.int16]) -> None:
        found = list(dictionary.met_by(words))
        if len(found) == 1:
            met[found[0]] += 1
        elif found:
            # A filter may be met by several words, and counts once.
            is_met = np.zeros(len(met), np.bool_)
            is_met[np.concatenate(found)] = True
            met += is_met

    def _refined(self, slot: int, columns: _Columns) -> Item | None:
        """The item of a slot each of whose needs some row meets, if one row may meet them all."""
        needs = self._needs[slot]
        if len(needs) > 1 and self.cost_ns < QUANTUM_NS:
            self.cost_ns += REFINED_NS
            rows: list[int] | None = None
            for need in needs:
                if isinstance(need, OneOf) and len(need.words) <= REFINED_COUNT_MAX:
                    words = columns.words(need.name)
                    assert words is not None
                    by_word = [words[word] for word in need.words if word in words]
                    if sum(map(len, by_word)) <= REFINED_COUNT_MAX:
                        having = list(chain.from_iterable(by_word))
                        rows = having if rows is None else sorted(set(rows).intersection(having))
            if rows is not None and not self._meets(rows, needs, columns):
                return None
        return self._items[slot]

    def _meets(self, rows: list[int], needs: tuple[Need, ...], columns: _Columns) -> bool:
        among = np.array(rows, np.int64)
        for need in needs:
            if isinstance(need, Span):
                numbers = columns.numbers(need.name)
                assert numbers is not None
                here = numbers[among]
                among = among[(here >= need.low) & (here <= need.high)]
        return len(among) > 0


def _named(need: OneOf | Begins) -> Iterator[tuple[int, bytes]]:
    if isinstance(need, OneOf):
        return ((-1, word) for word in need.words)
    return ((len(prefix), prefix) for prefix in need.prefixes)


def _numbers_in(column: Column | None) -> Numbers | None:
    if not isinstance(column, pa.Array):
        return None
    array: Any = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
    if pa.types.is_timestamp(array.type):
        array = array.view(pa.int64())
    elif not (pa.types.is_integer(array.type) or pa.types.is_floating(array.type)):
        return None
    numbers = fixed_width(array, array.type.to_pandas_dtype()).astype(np.float64)
    valid = validity_of(array)
    if valid is not None:
        numbers[~valid] = np.nan
    return numbers


def _words_in(column: Column | None) -> dict[bytes, list[int]] | None:
    if column is None:
        return None
    words: Sequence[Any]
    if not isinstance(column, pa.Array):
        words = column
    elif not has_octets(column.type):
        return None
    else:
        if isinstance(column, pa.DictionaryArray):
            # Not written out: a long word that stands in each row takes the memory of all of them.
            known = binary_of(column.dictionary).to_pylist()
            words = [None if code is None else known[code] for code in column.indices.to_pylist()]
        else:
            words = binary_of(column).to_pylist()
    rows: dict[bytes, list[int]] = {}
    for row, word in enumerate(words):
        if word is not None:
            rows.setdefault(word, []).append(row)
    return rows
