"""Which rows of a record a subscription gets: all, none, or an excerpt that holds some.

What does not depend on the subscriber's place (its filter against a whole record) is worked out once per record and
filter and kept for
the next subscriber, so that a hundred equal filters cost what one costs.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from veredus.delivery.arrays import TIMESTAMP, constant_octets, constant_time, int64_array
from veredus.delivery.batch import BatchHeader, Layout, raw_size_of, read_header
from veredus.delivery.payload import Unpacked, excerpt_record
from veredus.delivery.publication import Columns
from veredus.delivery.record import ENVELOPE_SIZE, Envelope, RecordKind, read_envelope, write_envelope
from veredus.delivery.settlement import Range
from veredus.journal.exchange import PlacedRecord
from veredus.kernel.errors import InvariantBroken
from veredus.kernel.octets import Octets, holds_little_else
from veredus.kernel.turns import QUANTUM_NS
from veredus.matching import ROW_NS, CompiledFilter, Filter, Trial, compile_filter
from veredus.matching.evaluation import octets_in
from veredus.matching.index import FilterIndex
from veredus.matching.needs import Need, needs_of
from veredus.matching.selection import has_octets, is_worth_spreading, sizes_of

from .stream import Stream

_SOURCE_ID = struct.Struct("<I")
_SOURCE_ID_OFFSET = ENVELOPE_SIZE + 28
_ATTEMPT_ROWS_MAX = 1024
"""Of so many rows at most what each term answers is kept from turn to turn."""
_ASKED_COUNT_MAX = 16_384
_ASKED_SIZE_MAX = 4 << 20
_ASKED_NS_MAX = 5 * QUANTUM_NS
"""A record of more rows, or bytes when decompressed, is tried filter by filter, in turns."""
_KEPT_SIZE_MAX = 16 << 20
_MOVE_NS = 3
"""What it costs to write an octet of a payload anew, and to compress it, roughly."""
_OPENED_ROW_NS, _CUT_ROW_NS = 1_500, 500
"""What it costs to read a row that is no column, and to leave some of the rows of a record out, by row; roughly."""
_OUTCOME_SIZE = 512
"""What an outcome takes besides the memory of its excerpt, in bytes, roughly."""

Selection = npt.NDArray[np.bool_]


class Wanted(NamedTuple):
    """A filter as it was written and as it is used."""

    filter: Filter
    compiled: CompiledFilter
    needs: tuple[Need, ...]
    """What each row that it wants must have; () where an index cannot tell."""


def wanted_by(filter_: Filter) -> Wanted:
    """The filter made ready. Raises `Refused` where it does not parse."""
    compiled = compile_filter(filter_)
    return Wanted(filter_, compiled, needs_of(compiled))


class Excerpt(NamedTuple):
    """What one subscriber gets of one record: its memory, and the runs of sequences in it, first and last inclusive."""

    memory: Octets
    runs: tuple[tuple[int, int], ...]


ATTEMPTS = "attempts"
"""Why something is parked that no application gave back for good."""


class Parcel(NamedTuple):
    """Rows of a record, as runs of sequences, that are to be parked instead of pushed, and why."""

    record: PlacedRecord
    runs: tuple[Range, ...]
    reason: str


class Attempt:
    """A filter that is tried on rows for which one turn is not enough: some of it in each."""

    __slots__ = ("_trial", "filter", "first", "last")

    def __init__(self, first: int, last: int, wanted: Wanted) -> None:
        """Nothing was tried yet on the rows from `first` to `last`, which are in one record."""
        self.first = first
        self.last = last
        self.filter = wanted.filter
        self._trial = Trial(wanted.compiled)

    @property
    def answer(self) -> Selection | None:
        """Which of the rows are wanted; None while that is not known."""
        return self._trial.answer

    def go_on(self, stream: Stream, record: PlacedRecord, opened: Unpacked, names: Sequence[str]) -> int:
        """Go on for a quantum: what was spent, in estimated nanoseconds."""
        start, count = self.first - record.first_sequence, self.last - self.first + 1
        keys = opened.key_column.slice(start, count)

        def columns() -> dict[str, pa.Array]:
            found = {name: _column(name, stream, record, opened) for name in names}
            there = {name: column.slice(start, count) for name, column in found.items() if column is not None}
            return {**there, "$key": keys}

        return self._trial.go_on(keys, columns, QUANTUM_NS)


def source_id_of(record: PlacedRecord) -> int:
    """The id of the source that signed the record's batch."""
    source_id: int = _SOURCE_ID.unpack_from(record.memory, _SOURCE_ID_OFFSET)[0]
    return source_id


class Examiner:
    """Owns what the record examined last holds, and the outcomes of the last few filters on whole
    records.
    """

    __slots__ = ("_kept_size", "_outcomes", "_unpacked", "_unpacked_of", "cost_ns")

    def __init__(self) -> None:
        self._unpacked_of: PlacedRecord | None = None
        self._unpacked: Unpacked | None = None
        self._outcomes: OrderedDict[tuple[int, int, int, Filter], Excerpt | None] = OrderedDict()
        self._kept_size = 0
        self.cost_ns = 0
        """What trying filters on records has cost since it was taken last, in estimated nanoseconds."""

    def take_cost(self) -> int:
        """What was spent since it was asked last."""
        cost_ns, self.cost_ns = self.cost_ns, 0
        return cost_ns

    def examine(
        self,
        stream: Stream,
        record: PlacedRecord,
        wanted: Wanted,
        first: int,
        last: int,
        excluded: tuple[tuple[int, int], ...],
        attempt: Attempt | None = None,
    ) -> Excerpt | None:
        """What of `record` lies in `first` to `last`, outside the `excluded` ranges, and matches; None for nothing.

        Where an `attempt` has found out what matches, that is what does.
        """
        record_last = record.first_sequence + record.count - 1
        first, last = max(first, record.first_sequence), min(last, record_last)
        is_whole = first == record.first_sequence and last == record_last
        overlaps = [(a, b) for a, b in excluded if a <= last and b >= first]
        if is_whole and wanted.compiled.is_everything and not overlaps:
            return Excerpt(record.memory, ((first, last),))
        if not wanted.compiled.is_everything and not overlaps:
            return self._outcome(stream, record, wanted, first, last, attempt)
        selection = np.zeros(record.count, np.bool_)
        base = record.first_sequence
        selection[first - base : last - base + 1] = True
        for a, b in overlaps:
            selection[max(a, first) - base : min(b, last) - base + 1] = False
        if not wanted.compiled.is_everything:
            selection &= self._matches(stream, record, wanted.compiled, first, last, attempt)
        return self._cut(record, selection)

    def reach(self, stream: Stream, record: PlacedRecord, wanted: Wanted, first: int, last: int) -> tuple[int, bool]:
        """The last of the rows of `record` from `first` to `last` that one turn is about enough for, at least one; and
        whether these are to be attempted in several.
        """
        compiled = wanted.compiled
        if compiled.is_everything or (stream.stream_id, first, last, wanted.filter) in self._outcomes:
            return last, False
        count, row_ns = last - first + 1, compiled.term_count * ROW_NS
        left_ns = QUANTUM_NS - compiled.trying_ns
        opened = self._opened(record)
        octet_ns = sum(cost.octet_ns for cost in compiled.octet_costs.values())
        if count * row_ns + _written_out_size_max(opened, compiled.octet_costs) * octet_ns <= left_ns:
            return last, False
        costs = np.full(count, row_ns, np.int64)
        at_once_ns = count * row_ns
        for name, cost in compiled.octet_costs.items():
            column = opened.key_column if name == "$key" else _column(name, stream, record, opened)
            if column is None or not has_octets(column.type):
                continue
            by_row = sizes_of(column.slice(first - record.first_sequence, count)) * cost.octet_ns
            is_by_word = is_worth_spreading(column) and not cost.is_beside_others
            at_once_ns += octets_in(column) * cost.octet_ns if is_by_word else int(by_row.sum())
            costs += by_row
        if at_once_ns <= left_ns:
            return last, False
        # Where trying alone takes a turn or more, as many rows as cost the same again.
        reached = int(np.searchsorted(costs.cumsum(), max(QUANTUM_NS, compiled.trying_ns), "right"))
        is_long = left_ns <= 0 or reached == 0
        reached = min(max(reached, 1), _ATTEMPT_ROWS_MAX) if is_long else reached
        last = min(last, first + reached - 1)
        return last, is_long and (stream.stream_id, first, last, wanted.filter) not in self._outcomes

    def ask(self, index: FilterIndex[Filter], stream: Stream, record: PlacedRecord) -> list[Filter] | None:
        """The filters of an index that may want a row of the record; None where that is too much for one turn."""
        if record.count > _ASKED_COUNT_MAX or self._raw_size_of(record) > _ASKED_SIZE_MAX:
            return None
        opened = self._opened(record)
        names = opened.names
        if index.price(names, record.count) > _ASKED_NS_MAX:
            return None

        def column_of(name: str) -> pa.Array | list[bytes] | None:
            return opened.keys if name == "$key" else _column(name, stream, record, opened)

        named = index.match(column_of, record.count, names)
        self.cost_ns += index.cost_ns
        return named

    def _raw_size_of(self, record: PlacedRecord) -> int:
        if self._unpacked_of is record and self._unpacked is not None:
            return self._unpacked.size
        batch, header = _batch_in(record)
        return raw_size_of(batch, header) or header.payload_size

    def try_on(self, stream: Stream, record: PlacedRecord, wanted: Wanted, attempt: Attempt) -> bool:
        """Go on with an attempt at rows of a record: whether it has found out which are wanted."""
        self.cost_ns += attempt.go_on(stream, record, self._opened(record), wanted.compiled.names)
        return attempt.answer is not None

    def _outcome(
        self, stream: Stream, record: PlacedRecord, wanted: Wanted, first: int, last: int, attempt: Attempt | None
    ) -> Excerpt | None:
        place = (stream.stream_id, first, last, wanted.filter)
        if place in self._outcomes:
            return self._outcomes[place]
        outcome = self._cut(record, self._matches(stream, record, wanted.compiled, first, last, attempt))
        self._outcomes[place] = outcome
        self._kept_size += _size_of(outcome)
        while self._kept_size > _KEPT_SIZE_MAX:
            self._kept_size -= _size_of(self._outcomes.popitem(last=False)[1])
        return outcome

    def parcel_of(self, record: PlacedRecord, runs: tuple[Range, ...], reason: str = ATTEMPTS) -> Parcel:
        """Rows of the record that are to be moved; it costs what will be written, were all rows of one size."""
        batch, header = _batch_in(record)
        size = raw_size_of(batch, header) or header.payload_size
        count = sum(last - first + 1 for first, last in runs)
        self.cost_ns += _MOVE_NS * size * count // record.count
        return Parcel(record, runs, reason)

    def columns_of(self, record: PlacedRecord) -> tuple[Columns, BatchHeader]:
        """The record's rows as columns, and what its source signed."""
        opened = self._opened(record)
        return opened.columns, opened.header

    def _opened(self, record: PlacedRecord) -> Unpacked:
        if self._unpacked_of is record and self._unpacked is not None:
            return self._unpacked
        batch, header = _batch_in(record)
        self.cost_ns += raw_size_of(batch, header)
        if header.layout == Layout.ROWS:
            self.cost_ns += _OPENED_ROW_NS * header.count
        self._unpacked_of, self._unpacked = record, Unpacked(batch, header)
        return self._unpacked

    def _matches(
        self,
        stream: Stream,
        record: PlacedRecord,
        filter_: CompiledFilter,
        first: int,
        last: int,
        attempt: Attempt | None,
    ) -> Selection:
        """Which rows of the whole record match; those outside `first` to `last` do not."""
        selection = np.zeros(record.count, np.bool_)
        start, count = first - record.first_sequence, last - first + 1
        if attempt is not None:
            assert attempt.answer is not None
            selection[start : start + count] = attempt.answer[first - attempt.first : last - attempt.first + 1]
            return selection
        opened = self._opened(record)
        self.cost_ns += filter_.trying_ns + filter_.term_count * ROW_NS * count

        def column_of(name: str) -> pa.Array | None:
            column = _column(name, stream, record, opened)
            if column is not None:
                column = column.slice(start, count)
                self.cost_ns += octets_in(column) * filter_.octet_costs[name].octet_ns
            return column

        keys = opened.keys if count == record.count else opened.keys[start : start + count]
        if "$key" in filter_.octet_costs:
            size = sum(map(len, keys)) if isinstance(keys, list) else octets_in(keys)
            self.cost_ns += size * filter_.octet_costs["$key"].octet_ns
        selection[start : start + count] = filter_.select(keys, column_of, count)
        return selection

    def _cut(self, record: PlacedRecord, selection: Selection) -> Excerpt | None:
        (chosen,) = selection.nonzero()
        if not len(chosen):
            return None
        base = record.first_sequence
        if len(chosen) == record.count:
            # It may have been read with much else, which is not counted in what is kept.
            memory = record.memory if holds_little_else(record.memory) else bytes(record.memory)
            return Excerpt(memory, ((base, base + record.count - 1),))
        opened = self._opened(record)
        self.cost_ns += _CUT_ROW_NS * record.count
        written = excerpt_record(opened.header, opened.columns, selection)
        size = ENVELOPE_SIZE + read_size(written)
        envelope = Envelope(RecordKind.BATCH, 0, size - ENVELOPE_SIZE, 0, base, record.append_time_us)
        write_envelope(written, envelope)
        return Excerpt(written, runs_of(chosen, base))


def _batch_in(record: PlacedRecord) -> tuple[memoryview, BatchHeader]:
    envelope = read_envelope(record.memory)
    if envelope is None:
        raise InvariantBroken(f"the record at sequence {record.first_sequence} has no sound envelope")
    batch = memoryview(record.memory)[ENVELOPE_SIZE : ENVELOPE_SIZE + envelope.size]
    return batch, read_header(batch)


def _written_out_size_max(opened: Unpacked, names: Iterable[str]) -> int:
    """How many octets these columns have at most: a long word of a dictionary may stand in every row."""
    size = opened.size
    for name in names:
        column = opened.keys if name == "$key" else opened.attribute(name)
        if isinstance(column, pa.Array) and pa.types.is_dictionary(column.type) and len(column.dictionary):
            size += opened.header.count * int(sizes_of(column.dictionary).max())
    return size


def _size_of(outcome: Excerpt | None) -> int:
    return _OUTCOME_SIZE if outcome is None else _OUTCOME_SIZE + len(outcome.memory)


def read_size(record: Octets) -> int:
    """The size in bytes of the batch in a record whose envelope is still blank."""
    payload_size, token_size = struct.unpack_from("<II", record, ENVELOPE_SIZE + 12)
    return 64 + int(payload_size) + int(token_size)


def runs_of(chosen: npt.NDArray[np.int64], base: int) -> tuple[tuple[int, int], ...]:
    """Ascending row indices as runs of sequences: row 0 has sequence `base`."""
    sequences = chosen + base
    breaks = np.flatnonzero(sequences[1:] - sequences[:-1] != 1)
    firsts, lasts = sequences[breaks + 1].tolist(), sequences[breaks].tolist()
    return tuple(zip((int(sequences[0]), *firsts), (*lasts, int(sequences[-1])), strict=True))


def _column(name: str, stream: Stream, record: PlacedRecord, opened: Unpacked) -> pa.Array | None:
    header = opened.header
    if name == "$event_time":
        times = opened.columns.event_times_us
        if times is None:
            return constant_time(header.event_time_min_us, header.count)
        return times.view(TIMESTAMP)
    if name == "$append_time":
        return constant_time(record.append_time_us, header.count)
    if name == "$source":
        return constant_octets(stream.source_names.get(header.source_id, "").encode(), header.count, pa.string())
    if name == "$sequence":
        return int64_array(range(record.first_sequence, record.first_sequence + header.count))
    return opened.attribute(name)
