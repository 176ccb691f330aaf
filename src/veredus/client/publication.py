"""What a subscriber gets: batches as they were pushed, and their publications, unpacked no further than asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from datetime import datetime
from itertools import chain, repeat
from operator import length_hint
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import msgspec

from veredus.delivery.batch import HEADER_SIZE, BatchHeader, Layout, read_header, verify_signature
from veredus.delivery.payload import attribute_rows, excerpt_record, list_of, read_columns, read_rows
from veredus.delivery.publication import AttributeValue, Columns, Rows, datetime_of
from veredus.delivery.record import ENVELOPE_SIZE, Envelope, RecordKind, read_envelope
from veredus.kernel.errors import Fenced, Misuse, PeerFault, VeredusError
from veredus.kernel.lazily import Lazily, np, pa

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from veredus.delivery import arrays as making
    from veredus.delivery.joining import Signed

    from .settling import Settling
else:
    making = Lazily("veredus.delivery.arrays")

RUN_COUNT = 512
"""So many rows are unpacked at a time: more would fall out of the processor's caches before they are used."""
Mapping: TypeAlias = dict[str, AttributeValue]


class Publication(msgspec.Struct, gc=False, eq=False, repr_omit_defaults=True):
    """One publication: its key, its body and its place in the stream; the rest is read from its batch on demand."""

    key: bytes
    body: bytes
    sequence: int
    batch: Batch

    @property
    def source(self) -> str:
        """The name under which it was published; "" for an anonymous source."""
        return self.batch.source

    @property
    def number(self) -> int:
        """Its number among its source's publications."""
        return self.batch.number_of(self.sequence)

    @property
    def attributes(self) -> Mapping:
        """Its attributes by name; what is absent is left out."""
        first, end, rows = self.batch.unpacked_attributes
        sequence = self.sequence
        found: Mapping = rows[sequence - first] if first <= sequence < end else self.batch.attributes_of(sequence)
        return found

    @property
    def event_time(self) -> datetime:
        """When it happened, as the publisher says, in UTC."""
        return datetime_of(self.batch.event_time_us_of(self.sequence))

    @property
    def append_time(self) -> datetime:
        """When the node appended it to the stream, in UTC."""
        return datetime_of(self.batch.append_time_us)

    @property
    def is_redelivered(self) -> bool:
        """Whether this subscription may have got it before."""
        return self.sequence <= self.batch.redelivered_to

    def settle(self) -> None:
        """Settle it. In order, this settles everything before it too; as `Subscription.settle`."""
        self.batch.interest.settle(self)

    def retry(self, delay_s: float = 0.0) -> None:
        """Return it: the subscription gets it again after `delay_s` seconds; as `Subscription.retry`."""
        self.batch.interest.retry(self, delay_s)

    def reject(self, reason: str) -> None:
        """Give it up: it becomes a dead letter with this reason; as `Subscription.reject`."""
        self.batch.interest.reject(self, reason)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Publication belongs to its subscription: send its key, body and attributes instead")

    def __repr__(self) -> str:
        body = self.body if len(self.body) <= 64 else self.body[:61] + b"..."
        return f"Publication(sequence={self.sequence}, key={self.key!r}, body={body!r}, source={self.source!r})"


class UnpackedPublication(Publication, gc=False, eq=False):
    """A publication that brings its attributes along: what a subscriber gets once it has asked for some of them."""

    attributes: Mapping  # a field is read in a tenth of the time that a property takes


class Interest:
    """What a subscriber has asked of publications before, so that the next are unpacked with it; and its end."""

    __slots__ = ("_run", "failure", "has_attributes", "reject", "retry", "settle")

    def __init__(self) -> None:
        """Nothing has been asked yet."""
        self.has_attributes = False
        self.failure: VeredusError | None = None
        """Why nothing more is given out; not even of a batch that was given out whole, where another has it now."""
        self._run: list[bytes] = []
        self.retry: Callable[[Publication, float], None] = _not_subscribed
        self.reject: Callable[[Publication, str], None] = _not_subscribed
        """How the subscriber gives something back."""
        self.settle: Callable[[Publication], None] = _not_subscribed
        """How the subscriber settles something."""

    def end(self, failure: VeredusError) -> None:
        """Give out nothing more, from any thread."""
        self.failure = failure
        if isinstance(failure, Fenced):
            self._run.clear()

    def begin_run(self, keys: list[bytes]) -> None:
        """Publications of these keys are given out next, of a batch that was. Raises why they are not any more."""
        self._run = keys
        self.check_begun()

    def check(self) -> None:
        """Raise why nothing more is given out."""
        if self.failure is not None:
            raise self.failure.again()

    def check_begun(self) -> None:
        """The same of a batch that was given out whole: its publications can still be read after a close."""
        if isinstance(self.failure, Fenced):
            self.check()


class Run:
    """Consecutive publications of a batch, given out by one call into C for each that nobody can look into.

    So whoever wants to know how far that is counts what is left of the sequences; and whoever ends it takes the keys
    away, which are looked at first. `end_index` is the row of the batch behind its last.
    """

    __slots__ = ("_keys", "_left", "_sequences", "batch", "end_index", "publications")

    def __init__(
        self,
        batch: Batch,
        keys: list[bytes],
        bodies: list[bytes],
        sequences: Sequence[int],
        attributes: list[Any] | None,
        end_index: int,
    ) -> None:
        """A run of which nothing was handed out yet; `attributes` where they are to be brought along."""
        self.batch = batch
        self.end_index = end_index
        self._keys = keys
        self._sequences = sequences
        self._left = left = iter(sequences)
        self.publications: Iterator[Publication]
        if attributes is None:
            self.publications = map(Publication, keys, bodies, left, repeat(batch))
        else:
            self.publications = map(UnpackedPublication, keys, bodies, left, repeat(batch), attributes)

    @property
    def is_over(self) -> bool:
        """Whether it gives out nothing more."""
        return not self._keys or not length_hint(self._left)

    @property
    def next_index(self) -> int:
        """The row of the batch that comes behind the last one that was handed out."""
        return self.end_index - length_hint(self._left)

    @property
    def next_sequence(self) -> int:
        """The sequence of what is handed out next; behind the last one where all was."""
        index = len(self._sequences) - length_hint(self._left)
        return self._sequences[index] if index < len(self._sequences) else self._sequences[-1] + 1

    @property
    def position(self) -> int:
        """The sequence after the last publication that the program has received, or the first one."""
        index = len(self._sequences) - length_hint(self._left)
        return self._sequences[index - 1] + 1 if index else self._sequences[0]

    def end(self) -> None:
        """Give out nothing more; from any thread. No call: a signal would be noticed behind it.

        What it has not given out stays in its batch, from `next_index` on.
        """
        del self._keys[:]


class Batch:
    """Consecutive publications of one source, as they were pushed: all of a batch, or what a filter left of it.

    Rows are unpacked when they are asked for: as publications in runs, or as Arrow columns on the memory received.
    """

    __slots__ = (
        "__weakref__",
        "_columns",
        "_first",
        "_memory",
        "_rows",
        "_settle",
        "_start",
        "_times",
        "append_time_us",
        "header",
        "interest",
        "redelivered_to",
        "settling",
        "source",
        "stream",
        "unpacked_attributes",
    )

    def __init__(
        self,
        stream: str,
        source: str,
        envelope: Envelope,
        memory: memoryview,
        redelivered_to: int,
        settle: Callable[[Batch], None],
        interest: Interest,
        settling: Settling,
    ) -> None:
        """A batch out of a record that was pushed; `memory` is its body. Raises `PeerFault` where that is not sound."""
        verify_signature(memory)
        self.header: BatchHeader = read_header(memory)
        self.stream = stream
        self.source = source
        self.append_time_us = envelope.append_time_us
        self.redelivered_to = redelivered_to
        self._memory = memory
        self._first = envelope.first_sequence
        self._start = 0
        self._settle = settle
        self.interest = interest
        """What its subscriber has asked of publications."""
        self.settling = settling
        self._columns: Columns | None = None
        self._rows: Rows | None = None
        self.unpacked_attributes: tuple[int, int, Any] = 0, 0, ()
        """What was unpacked last: the first sequence, the one behind the last, and the attributes by distance."""
        self._times: list[int] | None = None

    def __len__(self) -> int:
        return self.header.count - self._start

    def __repr__(self) -> str:
        where = f"{self.first_sequence}..{self.last_sequence}" if len(self) else "none"
        return f"Batch(stream={self.stream!r}, source={self.source!r}, sequences={where})"

    # ── where it stands ──────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def first_sequence(self) -> int:
        """The sequence of its first publication."""
        return self._sequence_at(self._start)

    @property
    def last_sequence(self) -> int:
        """The sequence of its last publication."""
        return self._sequence_at(self.header.count - 1)

    @property
    def is_redelivered(self) -> bool:
        """Whether this subscription may have got some of it before."""
        return self.first_sequence <= self.redelivered_to

    @property
    def append_time(self) -> datetime:
        """When the node appended it to the stream, in UTC."""
        return datetime_of(self.append_time_us)

    @property
    def sequences(self) -> npt.NDArray[np.int64]:
        """The sequence of each publication, ascending."""
        rows = self._row_indices()
        if rows is None:
            return np.arange(self._first + self._start, self._first + self.header.count, dtype=np.int64)
        return rows[self._start :].astype(np.int64) + self._first

    def skip_to(self, position: int) -> None:
        """Leave out what lies before the sequence `position`."""
        rows = self._row_indices()
        offset = position - self._first
        start = offset if rows is None else int(np.searchsorted(rows, offset))
        self._start = min(max(self._start, start), self.header.count)

    def only(self, sequence: int) -> Batch:
        """A batch of its one publication at `sequence`, which is handed out again."""
        columns = self.columns
        selection = np.zeros(self.header.count, np.bool_)
        selection[self._index_of(sequence)] = True
        record = excerpt_record(self.header, columns, selection)
        size = len(record) - ENVELOPE_SIZE
        envelope = Envelope(RecordKind.BATCH, 0, size, 0, self._first, self.append_time_us)
        memory = memoryview(record)[ENVELOPE_SIZE : ENVELOPE_SIZE + size_of(memoryview(record)[ENVELOPE_SIZE:])]
        return Batch(self.stream, self.source, envelope, memory, sequence, self._settle, self.interest, self.settling)

    def settle(self) -> None:
        """Settle the whole batch. In order, this settles everything before it too."""
        self._settle(self)

    # ── unpacked ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def __iter__(self) -> Iterator[Publication]:
        return chain.from_iterable(run.publications for run in self._runs())

    def _runs(self) -> Iterator[Run]:
        run = self.run_at(self._start)
        while run is not None:
            yield run
            self.interest.check_begun()
            run = self.run_at(run.end_index)

    def run_at(self, index: int, count_max: int = RUN_COUNT) -> Run | None:
        """Its publications from the row `index` on, at most `count_max` of them; None behind the last."""
        start = max(index, self._start)
        end = min(start + count_max, self.header.count)
        if start >= end:
            return None
        if self.header.layout == Layout.ROWS:
            listed = self._listed()
            keys, bodies, rows = listed.keys[start:end], listed.bodies[start:end], self._row_indices()
        else:
            columns = self.columns
            size = end - start
            keys, bodies = list_of(columns.keys.slice(start, size)), list_of(columns.bodies.slice(start, size))
            rows = columns.rows
        sequences: range | list[int] = range(self._first + start, self._first + end)
        if rows is not None:
            sequences = (rows[start:end].astype(np.int64) + self._first).tolist()
        attributes = self._attributes_from(start, end - start) if self.interest.has_attributes else None
        run = Run(self, keys, bodies, sequences, attributes, end)
        self.interest.begin_run(keys)
        return run

    def behind(self, position: int) -> Batch:
        """What of it does not lie before the sequence `position`; a batch without any where all does."""
        rest = copy(self)
        rest.skip_to(position)
        return rest

    def _attributes_from(self, index: int, count: int) -> list[Any]:
        """The attributes of `count` rows from `index` on."""
        if self.header.layout == Layout.ROWS:
            rows = self._listed().attributes
            return [{} for _ in range(count)] if rows is None else [row or {} for row in rows[index : index + count]]
        columns = self.columns.attributes
        if not columns:
            return [{} for _ in range(count)]
        return attribute_rows({name: array.slice(index, count) for name, array in columns.items()})

    @property
    def signed(self) -> Signed:
        """The whole batch as it was signed, and its header: for `veredus.delivery.joining`; rows skipped are in it."""
        return self._memory, self.header

    @property
    def columns(self) -> Columns:
        """All rows of the batch as Arrow columns, also those that `skip_to` left out."""
        if self._columns is None:
            self._columns = read_columns(self._memory, self.header)
        return self._columns

    def to_arrow(self) -> pa.RecordBatch:
        """Its publications as one record batch, on the memory that was received where that can be.

        Columns, none of them a dictionary: `sequence` int64, `source` string, `number` int64, `key` and `body` binary,
        `event_time` and `append_time` timestamp[us, tz=UTC], all without nulls. Then the attributes by name, with
        `attribute.` in front where a name is one of these: bool, int64, double, string, binary or timestamp[us,
        tz=UTC], null where a publication has none of that name. Which attributes there are is each batch's own.
        """
        columns, header, start = self.columns, self.header, self._start
        count = len(self)
        sequences = self.sequences
        times = columns.event_times_us
        event_times = (
            making.constant_time(header.event_time_min_us, count)
            if times is None
            else times.slice(start).view(making.TIMESTAMP)
        )
        arrays = {
            "sequence": making.numbers_array(sequences, pa.int64()),
            "source": making.constant_octets(self.source.encode(), count, pa.string()),
            "number": making.numbers_array(sequences + (header.first_number - self._first), pa.int64()),
            "key": making.plain_array(columns.keys.slice(start)),
            "body": columns.bodies.slice(start),
            "event_time": event_times,
            "append_time": making.constant_time(self.append_time_us, count),
        }
        for name, array in columns.attributes.items():
            arrays[f"attribute.{name}" if name in arrays else name] = making.plain_array(array.slice(start))
        return pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))

    # ── one row's rest ───────────────────────────────────────────────────────────────────────────────────────────────

    def number_of(self, sequence: int) -> int:
        """The number of the publication at `sequence`."""
        return self.header.first_number + sequence - self._first

    def attributes_of(self, sequence: int) -> Mapping:
        """The attributes of the publication at `sequence`; unpacks a run of them, and from now on all that follow."""
        self.interest.has_attributes = True
        index = self._index_of(sequence)
        start = 0 if self.header.layout == Layout.ROWS else index - index % RUN_COUNT
        count = self.header.count if self.header.layout == Layout.ROWS else min(RUN_COUNT, self.header.count - start)
        rows = self._attributes_from(start, count)
        first, end = self._sequence_at(start), self._sequence_at(start + len(rows) - 1) + 1
        indices = self._row_indices()
        if indices is None:
            self.unpacked_attributes = first, end, rows
        else:
            offsets = (indices[start : start + len(rows)] - indices[start]).tolist()
            self.unpacked_attributes = first, end, dict(zip(offsets, rows, strict=True))
        found: Mapping = self.unpacked_attributes[2][sequence - first]
        return found

    def event_time_us_of(self, sequence: int) -> int:
        """The event time of the publication at `sequence`, in microseconds since the Unix epoch."""
        if self._times is None:
            if self.header.layout == Layout.ROWS:
                times = self._listed().event_times_us
            else:
                column = self.columns.event_times_us
                times = None if column is None else list_of(column)
            self._times = [] if times is None else times
        return self._times[self._index_of(sequence)] if self._times else self.header.event_time_min_us

    def _index_of(self, sequence: int) -> int:
        rows = self._row_indices()
        offset = sequence - self._first
        return offset if rows is None else int(np.searchsorted(rows, offset))

    def _sequence_at(self, index: int) -> int:
        rows = self._row_indices()
        return self._first + (index if rows is None else int(rows[index]))

    def _row_indices(self) -> npt.NDArray[np.uint32] | None:
        if not self.header.is_excerpt:
            return None
        if self.header.layout == Layout.ROWS:
            rows = self._listed().rows
            return None if rows is None else np.array(rows, np.uint32)
        return self.columns.rows

    def _listed(self) -> Rows:
        if self._rows is None:
            self._rows = read_rows(self._memory, self.header)
        return self._rows


def size_of(batch: memoryview) -> int:
    """The size in bytes of a batch with what may follow it."""
    payload_size, token_size = (int.from_bytes(batch[at : at + 4], "little") for at in (12, 16))
    return HEADER_SIZE + payload_size + token_size


def _not_subscribed(publication: Publication, _: object = None) -> None:
    raise Misuse("not-individual", f"{publication!r} was not delivered by a subscription")


def batches_in(
    stream: str,
    records: memoryview,
    redelivered_to: int,
    names: dict[int, str],
    settle: Callable[[Batch], None],
    interest: Interest,
    settling: Settling,
) -> Iterator[Batch]:
    """The batches of a delivery, in order. Raises `PeerFault` where one is not sound."""
    offset, end = 0, len(records)
    while offset < end:
        envelope = read_envelope(records, offset)
        if envelope is None or offset + envelope.record_size > end:
            raise PeerFault("bad-record", f"no valid record at byte {offset} of a delivery of {end}")
        if envelope.kind == RecordKind.BATCH:
            start = offset + ENVELOPE_SIZE
            memory = records[start : start + envelope.size]
            source_id = int.from_bytes(memory[28:32], "little")
            yield Batch(stream, names.get(source_id, ""), envelope, memory, redelivered_to, settle, interest, settling)
        offset += envelope.record_size
