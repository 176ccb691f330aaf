"""What a disk does to bytes at rest: whoever is struck is told of by name.

flip         a bit is not what it was
zeros        a sector, or a block of several, holds zeros
misdirected  a block holds what was written elsewhere
truncated    a sealed segment, or an index, ends too early

Struck is only what was on the platter before the last group: a flip within the very last group cannot be told from a
torn write, and of two copies of a checkpoint one must be left. What was struck is worked out before the strike, by a
walk over the segment, so that the oracles know which sequences may be reported as damaged, and take no other.
Source: guarantee 6.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple, Protocol

from veredus.delivery.record import RecordKind
from veredus.journal.checkpoint import CHECKPOINT_NAME, COPY_NAME
from veredus.journal.layout import (
    SEGMENT_HEADER_SIZE,
    batch_ids,
    decode_segment_header,
    number_of,
    salt_of,
    segment_name,
)
from veredus.journal.scan import Unsound, walk
from veredus.kernel.octets import Octets

from .dice import Die
from .disk import SECTOR_SIZE, SimDisk, SimFile

ANY_SEQUENCE = (1, 1 << 62)
BLOCK_SIZE = 4096
HEADER_END = 60
"""Where what a segment's header says ends, and zeros begin."""


class _Record(NamedTuple):
    start: int
    stop: int
    stream_id: int
    """0 where it has no publications."""
    sequences: tuple[int, int]
    is_fact: bool
    """Whether it is neither publications nor the header of a group."""


class Struck(Protocol):
    """Who is told what was struck."""

    is_rotten: bool
    is_memory_rotten: bool
    rotten: dict[int, list[tuple[int, int]]]


class Rot:
    """Owns what was struck on one disk."""

    def __init__(self, disk: SimDisk, struck: Struck) -> None:
        """Nothing is struck yet."""
        self._disk = disk
        self._struck = struck
        self._spoiled: list[SimFile] = []

    def strike(self, die: Die) -> str:
        """Spoil something, and tell what it was; "" when there is nothing that may be spoiled."""
        draw = die.between(0, 9)
        if draw == 0:
            return self._strike_checkpoint(die)
        sizes = {name: len(self._disk.files[name].data) for name in sorted(self._disk.files)}
        names = [name for name, size in sizes.items() if size and number_of(name, ".index") is not None]
        if draw <= 3 and names:
            name = names[die.between(0, len(names) - 1)]
            size = sizes[name]
            return self._cut(name, die.between(0, size - 1)) if die.chance(0.3) else self._flip(die, name, 0, size)
        return self._strike_segment(die)

    def _strike_checkpoint(self, die: Die) -> str:
        """One of the two copies, while the other is sound and says the same."""
        files = [self._disk.files.get(name) for name in (CHECKPOINT_NAME, COPY_NAME)]
        first, second = files
        if first is None or second is None or first.data != second.data:
            return ""
        name = (CHECKPOINT_NAME, COPY_NAME)[die.between(0, 1)]
        return self._flip(die, name, 0, len(first.data))

    def _strike_segment(self, die: Die) -> str:
        last_segment, last_offset = self._disk.last_synced
        numbers = [number for name in sorted(self._disk.files) if (number := number_of(name, ".segment")) is not None]
        numbers = [number for number in numbers if number <= last_segment]
        if not numbers:
            return ""
        number = numbers[_any_or_last(die, len(numbers), 1)]
        name = segment_name(number)
        data = memoryview(bytes(self._disk.files[name].data))
        end = last_offset if number == last_segment else len(data)
        header = decode_segment_header(data)
        if header is None or end <= SEGMENT_HEADER_SIZE:
            return ""
        if die.chance(0.05):
            self._struck.is_memory_rotten = True
            return self._flip(die, name, 0, HEADER_END)
        places: list[_Record] = []
        hidden: list[tuple[int, int]] = []
        for found in walk(data, SEGMENT_HEADER_SIZE, end, number, salt_of(header.journal_id, number)):
            if isinstance(found, Unsound):
                if found.size > 1 << 20:
                    break
                hidden.append((found.offset, found.offset + found.size))
                continue
            kind, first = found.envelope.kind, found.envelope.first_sequence
            stream_id, sequences = 0, (0, 0)
            is_fact = kind not in (RecordKind.BATCH, RecordKind.STAGED, RecordKind.GROUP)
            if kind in (RecordKind.BATCH, RecordKind.STAGED):
                stream_id, count, _ = batch_ids(found.memory)
                sequences = (first, first + count - 1) if kind == RecordKind.BATCH else ANY_SEQUENCE
            places.append(_Record(found.offset, found.offset + len(found.memory), stream_id, sequences, is_fact))
        if not places:
            return ""
        first_byte, end_byte, what = self._strike_place(die, name, data, places, end, number < last_segment)
        if any(start < end_byte and stop > first_byte for start, stop in hidden):
            # An earlier strike hides which records lie there, and some of them may be sound.
            return ""
        told = what()
        for place in (p for p in places if told and p.start < end_byte and p.stop > first_byte):
            if place.stream_id:
                self._struck.rotten.setdefault(place.stream_id, []).append(place.sequences)
            else:
                self._struck.is_memory_rotten = True
        return told

    def _strike_place(
        self, die: Die, name: str, data: memoryview, places: Sequence[_Record], end: int, is_sealed: bool
    ) -> tuple[int, int, Callable[[], str]]:
        """From which byte up to which is struck, and what strikes there."""
        # What is sound behind damage and in the same group is the easiest to lose.
        before_facts = [place for place, behind in pairwise(places) if place.stream_id and behind.is_fact]
        if before_facts and die.chance(0.4):
            start, stop, *_ = before_facts[-die.between(1, min(3, len(before_facts)))]
            at = die.between(start, stop - 1)
            return at, at + 1, lambda: self._flip(die, name, at, at + 1)
        start, stop, *_ = places[_any_or_last(die, len(places), 10)]
        at, draw = die.between(start, stop - 1), die.random()
        size = BLOCK_SIZE if die.chance(0.3) else SECTOR_SIZE
        block = at // SECTOR_SIZE * SECTOR_SIZE
        is_inside = block >= SEGMENT_HEADER_SIZE and block + size <= end
        if draw < 0.1 and is_sealed:
            return at, len(data), lambda: self._cut(name, at)
        if draw < 0.3 and is_inside:
            return block, block + size, lambda: self._spoil(name, block, bytes(size))
        if draw < 0.5 and is_inside and end - size > SEGMENT_HEADER_SIZE:
            other = die.between(SEGMENT_HEADER_SIZE // SECTOR_SIZE, (end - size) // SECTOR_SIZE) * SECTOR_SIZE
            return block, block + size, lambda: self._spoil(name, block, data[other : other + size])
        return at, at + 1, lambda: self._flip(die, name, at, at + 1)

    def _flip(self, die: Die, name: str, start: int, end: int) -> str:
        at = die.between(start, end - 1)
        return self._spoil(name, at, bytes([self._disk.files[name].data[at] ^ 1 << die.between(0, 7)]))

    def _cut(self, name: str, size: int) -> str:
        file = self._disk.files[name]
        return self._note(file, f"{name}, cut to {size} bytes") if file.cut_short(size) else ""

    def _spoil(self, name: str, offset: int, data: Octets) -> str:
        file = self._disk.files[name]
        other = {CHECKPOINT_NAME: COPY_NAME, COPY_NAME: CHECKPOINT_NAME}.get(name)
        if other is not None and any(self._disk.files[other] is spoiled for spoiled in self._spoiled):
            return ""
        is_spoiled = file.data[offset : offset + len(data)] != data and file.spoil(offset, data)
        return self._note(file, f"{len(data)} bytes of {name} at {offset}") if is_spoiled else ""

    def _note(self, file: SimFile, what: str) -> str:
        self._spoiled.append(file)
        self._struck.is_rotten = True
        return what


def _any_or_last(die: Die, count: int, last: int) -> int:
    """One of `count`, as often as not of the `last` few: what nothing later has overtaken is missed the most."""
    return die.between(max(0, count - last) if die.chance(0.5) else 0, count - 1)
