"""Which rows of a record a subscription gets: all, none, or an excerpt that holds some.

What does not depend on the subscriber's place (its filter against a whole record) is worked out once per record and
filter and kept for
the next subscriber, so that a hundred equal filters cost what one costs.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from veredus.delivery.arrays import constant_octets, constant_time, int64_array
from veredus.delivery.batch import BatchHeader, raw_size_of, read_header
from veredus.delivery.payload import Unpacked, excerpt_record
from veredus.delivery.publication import TIMESTAMP, Columns
from veredus.delivery.record import ENVELOPE_SIZE, Envelope, RecordKind, read_envelope, write_envelope
from veredus.journal.exchange import PlacedRecord
from veredus.kernel.errors import InvariantBroken
from veredus.kernel.octets import Octets
from veredus.matching import CompiledFilter, Filter, compile_filter

from .stream import Stream

_SOURCE_ID = struct.Struct("<I")
_SOURCE_ID_OFFSET = ENVELOPE_SIZE + 28
TERM_NS = 8_000
"""What it costs to try one term of a filter on a record, however few rows it has; measured, roughly."""
ROW_NS = 5
"""What each row adds to that."""
_KEPT_SIZE_MAX = 16 << 20
_OUTCOME_SIZE = 512
"""What an outcome takes besides the memory of its excerpt, in bytes, roughly."""

Selection = npt.NDArray[np.bool_]


class Wanted(NamedTuple):
    """A filter as it was written and as it is used."""

    filter: Filter
    compiled: CompiledFilter


def wanted_by(filter_: Filter) -> Wanted:
    """The filter made ready. Raises `Refused` where it does not parse."""
    return Wanted(filter_, compile_filter(filter_))


class Excerpt(NamedTuple):
    """What one subscriber gets of one record: its memory, and the runs of sequences in it, first and last inclusive."""

    memory: Octets
    runs: tuple[tuple[int, int], ...]


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
        self._outcomes: OrderedDict[tuple[int, int, Filter], Excerpt | None] = OrderedDict()
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
    ) -> Excerpt | None:
        """What of `record` lies in `first` to `last`, outside the `excluded` ranges, and matches; None for nothing."""
        record_last = record.first_sequence + record.count - 1
        first, last = max(first, record.first_sequence), min(last, record_last)
        is_whole = first == record.first_sequence and last == record_last
        overlaps = [(a, b) for a, b in excluded if a <= last and b >= first]
        if is_whole and not overlaps:
            if wanted.compiled.is_everything:
                return Excerpt(record.memory, ((first, last),))
            return self._whole(stream, record, wanted)
        selection = np.zeros(record.count, np.bool_)
        base = record.first_sequence
        selection[first - base : last - base + 1] = True
        for a, b in overlaps:
            selection[max(a, first) - base : min(b, last) - base + 1] = False
        if not wanted.compiled.is_everything:
            selection &= self._matches(stream, record, wanted.compiled)
        return self._cut(record, selection)

    def _whole(self, stream: Stream, record: PlacedRecord, wanted: Wanted) -> Excerpt | None:
        place = (stream.stream_id, record.first_sequence, wanted.filter)
        if place in self._outcomes:
            return self._outcomes[place]
        outcome = self._cut(record, self._matches(stream, record, wanted.compiled))
        self._outcomes[place] = outcome
        self._kept_size += _size_of(outcome)
        while self._kept_size > _KEPT_SIZE_MAX:
            self._kept_size -= _size_of(self._outcomes.popitem(last=False)[1])
        return outcome

    def columns_of(self, record: PlacedRecord) -> tuple[Columns, BatchHeader]:
        """The record's rows as columns, and what its source signed."""
        opened = self._opened(record)
        return opened.columns, opened.header

    def _opened(self, record: PlacedRecord) -> Unpacked:
        if self._unpacked_of is record and self._unpacked is not None:
            return self._unpacked
        envelope = read_envelope(record.memory)
        if envelope is None:
            raise InvariantBroken(f"the record at sequence {record.first_sequence} has no sound envelope")
        batch = memoryview(record.memory)[ENVELOPE_SIZE : ENVELOPE_SIZE + envelope.size]
        header = read_header(batch)
        self.cost_ns += raw_size_of(batch, header)
        self._unpacked_of, self._unpacked = record, Unpacked(batch, header)
        return self._unpacked

    def _matches(self, stream: Stream, record: PlacedRecord, filter_: CompiledFilter) -> Selection:
        opened = self._opened(record)
        self.cost_ns += filter_.term_count * (TERM_NS + ROW_NS * record.count)
        return filter_.select(opened.keys, lambda name: _column(name, stream, record, opened), record.count)

    def _cut(self, record: PlacedRecord, selection: Selection) -> Excerpt | None:
        (chosen,) = selection.nonzero()
        if not len(chosen):
            return None
        base = record.first_sequence
        if len(chosen) == record.count:
            return Excerpt(record.memory, ((base, base + record.count - 1),))
        opened = self._opened(record)
        memory = excerpt_record(opened.header, opened.columns, selection)
        size = ENVELOPE_SIZE + read_size(memory)
        envelope = Envelope(RecordKind.BATCH, 0, size - ENVELOPE_SIZE, 0, base, record.append_time_us)
        write_envelope(memory, envelope)
        return Excerpt(memory, runs_of(chosen, base))


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
