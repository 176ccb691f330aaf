"""Between single commands of version 1 and batches: PUBLISH runs are packed, pushed records are unpacked.

What version 1 cannot say is left out by nature: attributes, event times, sources, resume tokens. A publication that
comes in by it has the node's clock as its event time.
Source: docs/internals/DESIGN.md, "ZEPS 1".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TypeAlias

from veredus.delivery.batch import BatchHeader, BatchLimits, Layout, raw_size_of, read_header, signed_record
from veredus.delivery.columns import encode_columns
from veredus.delivery.payload import ROWS_COUNT_MAX, columns_in, columns_of, rows_in, rows_of
from veredus.delivery.publication import Rows
from veredus.delivery.record import ENVELOPE_SIZE, read_envelope
from veredus.delivery.rows import Messages, decode_messages, encode_rows
from veredus.kernel.errors import InvariantBroken
from veredus.kernel.octets import Octets, holds_little_else
from veredus.kernel.turns import QUANTUM_NS

from .frames import Publish, deliver_sequence, encode_deliver, encode_deliver_head
from .interests import Covered
from .payloads import SHARED_SIZE_MIN, Payloads

ROW_OVERHEAD_SIZE = 16
"""What a publication takes in a payload beside its key and its body, at most, in bytes."""
PAYLOAD_OVERHEAD_SIZE = 256
ROW_HELD_SIZE = 300
"""What holds a row that was decoded takes beside its octets, in bytes, as measured (CPython 3.11)."""
ROW_NS = 3_000
"""What it costs to make a command of a row, or to leave it out, beside its octets; measured, roughly."""
OCTET_NS = 10
"""What it costs to make single commands of a byte that was pushed, and to write them: measured, roughly."""
_CHARGED_MIN_NS = 100_000
_DECODE_COUNT = 512
_PART = 4
"""A body that is this part of its payload, and large, is not copied for each client: the payload is held for it."""

Command: TypeAlias = bytes | tuple[bytes, Octets]
"""A DELIVER, or its head and a large body where that lies."""
_END: Command = b""
"""It is no DELIVER."""


def buffers_of(commands: Sequence[Command]) -> list[Octets]:
    """Commands one behind the other, as they are to be written: all that is small is joined."""
    buffers: list[Octets] = []
    small: list[Octets] = []
    for command in commands:
        if isinstance(command, bytes):
            small.append(command)
        else:
            head, body = command
            buffers += (b"".join((*small, head)), body)
            small = []
    if small:
        buffers.append(b"".join(small))
    return buffers


def batches_of(
    publish: Publish, limits: BatchLimits, stream_id: int, first_number: int, wall_us: int
) -> Iterator[tuple[bytearray, BatchHeader]]:
    """The records that hold a run of publications, as an anonymous source offers them, numbered from `first_number`."""
    keys, bodies = publish
    size = PAYLOAD_OVERHEAD_SIZE + ROW_OVERHEAD_SIZE * len(keys) + sum(map(len, keys)) + sum(map(len, bodies))
    if size <= limits.batch_size_max and len(keys) <= limits.count_max:
        yield _batch_of(keys, bodies, stream_id, first_number, wall_us)
        return
    start, size = 0, PAYLOAD_OVERHEAD_SIZE
    for index, (key, body) in enumerate(zip(keys, bodies, strict=True)):
        row_size = len(key) + len(body) + ROW_OVERHEAD_SIZE
        if index > start and (size + row_size > limits.batch_size_max or index - start >= limits.count_max):
            yield _batch_of(keys[start:index], bodies[start:index], stream_id, first_number + start, wall_us)
            start, size = index, PAYLOAD_OVERHEAD_SIZE
        size += row_size
    yield _batch_of(keys[start:], bodies[start:], stream_id, first_number + start, wall_us)


def _batch_of(
    keys: list[bytes], bodies: list[bytes], stream_id: int, first_number: int, wall_us: int
) -> tuple[bytearray, BatchHeader]:
    count = len(keys)
    rows = Rows(keys, bodies)
    is_small = count <= ROWS_COUNT_MAX
    payload: Sequence[Octets] = [encode_rows(rows)] if is_small else encode_columns(columns_of(rows))
    layout = Layout.ROWS if is_small else Layout.COLUMNS
    size = sum(map(len, payload))
    header = BatchHeader(int(layout), 0, size, 0, count, stream_id, 0, 0, count, first_number, wall_us, wall_us)
    return signed_record(header, payload), header


class Unpacker:
    """Owns the records that were pushed and whose publications are not delivered yet; gives them one by one."""

    __slots__ = ("_cost_ns", "_next_sequence", "_open_size", "_payloads", "_records", "_records_size", "_rows")

    def __init__(self, payloads: Payloads) -> None:
        """Nothing was pushed; what was decompressed for others is found in `payloads`."""
        self._payloads = payloads
        self._records: deque[tuple[memoryview, Covered]] = deque()
        self._records_size = 0
        self._rows: Iterator[Command | None] | None = None
        self._open_size = 0
        """What the record takes whose rows are being delivered, with what was decoded of it."""
        self._next_sequence = 0
        self._cost_ns = 0

    @property
    def is_empty(self) -> bool:
        """Whether nothing may be left to deliver; a record whose last row was taken counts until the next `take`."""
        return self._rows is None and not self._records

    @property
    def size(self) -> int:
        """How much memory is held, in bytes, roughly; what others hold, too, counts here as well."""
        return self._records_size + self._open_size

    def add(self, buffers: Sequence[Octets], covered: Covered) -> None:
        """Take pushed buffers, each of whole records; rows that `covered` holds were delivered before."""
        for data in _joined(buffers):
            offset = 0
            while offset < len(data):
                envelope = read_envelope(data, offset)
                if envelope is None:
                    raise InvariantBroken(f"what was pushed holds no sound record at {offset}")
                end = offset + envelope.record_size
                self._records.append((data[offset:end], covered))
                offset = end
            self._records_size += len(data)

    def take(self, credit: int) -> tuple[list[Command], int]:
        """DELIVER commands while credit is positive, the last of which may overdraw it; and the credit that is left.

        At most about a quantum of work is done for it: what is left is for another turn.
        """
        commands: list[Command] = []
        end_ns = self._cost_ns + QUANTUM_NS
        while credit > 0 and self._cost_ns < end_ns:
            if self._rows is None:
                if not self._records:
                    break
                self._open()
            assert self._rows is not None
            command = next(self._rows, _END)
            if command is _END:
                self._rows, self._open_size = None, 0
                continue
            self._cost_ns += ROW_NS
            if command is not None:
                commands.append(command)
                size = len(command) if isinstance(command, bytes) else sum(map(len, command))
                self._cost_ns += OCTET_NS * size
                credit -= size
        if self._rows is not None and commands:
            last = commands[-1]
            self._next_sequence = deliver_sequence(last if isinstance(last, bytes) else last[0]) + 1
        return commands, credit

    def take_cost(self) -> int:
        """What was unpacked has cost, in nanoseconds, once; 0 while it is too little to be charged by itself."""
        if self._cost_ns < _CHARGED_MIN_NS:
            return 0
        cost_ns, self._cost_ns = self._cost_ns, 0
        return cost_ns

    def _open(self) -> None:
        record, covered = self._records.popleft()
        self._records_size -= len(record)
        self._open_size = len(record) + _decoded_size(record)
        batch, header, self._next_sequence = _batch_in(record)
        payload, cost_ns = self._payloads.read(batch, header)
        self._cost_ns += cost_ns
        self._rows = _commands_of(payload, header, self._next_sequence, covered)

    def recall(self) -> int:
        """Forget what is not delivered; from the sequence that this returns on it must be pushed again (0: nothing)."""
        if self.is_empty:
            return 0
        sequence = self._next_sequence
        if self._rows is None:
            envelope = read_envelope(self._records[0][0])
            assert envelope is not None
            sequence = envelope.first_sequence
        self._records.clear()
        self._rows = None
        self._records_size = self._open_size = 0
        return sequence


def _joined(buffers: Sequence[Octets]) -> Iterator[memoryview]:
    """Buffers as they lie, for others may hold them, too; those joined that hold much else in memory, or are small."""
    views = [memoryview(buffer) for buffer in buffers]
    for is_alone, run in groupby(views, lambda view: _is_alone(view, len(views))):
        if is_alone:
            yield from run
        else:
            yield memoryview(b"".join(run))


def _is_alone(view: memoryview, count: int) -> bool:
    """Whether one of so many buffers stays where it lies: many may have been read from the journal as one."""
    return (count == 1 or len(view) >= SHARED_SIZE_MIN) and holds_little_else(view)


def _batch_in(record: memoryview) -> tuple[memoryview, BatchHeader, int]:
    """The batch of a record, its header, and its first sequence."""
    envelope = read_envelope(record)
    assert envelope is not None
    batch = record[ENVELOPE_SIZE : ENVELOPE_SIZE + envelope.size]
    return batch, read_header(batch), envelope.first_sequence


def _payload_size(batch: memoryview, header: BatchHeader) -> int:
    """Of a batch's payload, decompressed, in bytes."""
    return raw_size_of(batch, header) or header.payload_size


def _decoded_size(record: memoryview) -> int:
    """What is held at a time of a record's rows, decompressed and decoded, in bytes, roughly."""
    batch, header, _ = _batch_in(record)
    count = header.count if header.layout == Layout.ROWS else min(header.count, _DECODE_COUNT)
    return _payload_size(batch, header) + ROW_HELD_SIZE * count


def _commands_of(payload: memoryview, header: BatchHeader, first: int, covered: Covered) -> Iterator[Command | None]:
    """A command for each row from sequence `first` on, or None for one that was delivered before."""
    shared_size_min = max(SHARED_SIZE_MIN, len(payload) // _PART)
    for start, rows in _runs_of(payload, header):
        places = range(start, start + len(rows.keys)) if rows.rows is None else rows.rows
        bodies: Sequence[Octets] = rows.bodies
        for place, key, body in zip(places, rows.keys, bodies, strict=True):
            sequence = first + place
            if covered and any(interest.covers(sequence, key) for interest in covered):
                yield None
            elif len(body) < shared_size_min:
                yield encode_deliver(sequence, key, body)
            else:
                yield encode_deliver_head(sequence, key, len(body)), body


def _runs_of(payload: memoryview, header: BatchHeader) -> Iterator[tuple[int, Rows | Messages]]:
    if header.layout == Layout.ROWS:
        yield 0, rows_in(payload, header) if len(payload) < SHARED_SIZE_MIN else decode_messages(payload)
        return
    columns = columns_in(payload, header)._replace(event_times_us=None, attributes={})
    for start in range(0, header.count, _DECODE_COUNT):
        yield start, rows_of(columns, start, min(_DECODE_COUNT, header.count - start))
