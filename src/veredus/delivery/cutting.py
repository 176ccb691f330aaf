"""From publications as their source holds them to batches: lists and tables, and the records that are made of them.

Source: docs/internals/DESIGN.md, "Batches".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeAlias

from veredus.kernel.errors import PeerFault
from veredus.kernel.lazily import Lazily, pa, pc
from veredus.kernel.octets import Octets, octets_of

from .batch import (
    BatchHeader,
    BatchLimits,
    Layout,
    codec_of,
    packed,
    signed_record,
    token_of,
)
from .payload import ROWS_COUNT_MAX, attribute_column, attribute_columns, read_columns, rows_of
from .publication import AttributeValue, Columns, Rows
from .record import ENVELOPE_SIZE
from .rows import decode_rows, encode_rows

if TYPE_CHECKING:
    from . import arrays
    from . import columns as columnar
else:
    arrays, columnar = Lazily("veredus.delivery.arrays"), Lazily("veredus.delivery.columns")

Record: TypeAlias = tuple[BatchHeader, bytearray]
"""A batch's header, and the record around it with a blank envelope."""


class Publications(Protocol):
    """Consecutive publications, not numbered yet."""

    def __len__(self) -> int:
        """How many they are."""
        ...

    def part(self, start: int, end: int) -> Publications:
        """Those from index `start` to before `end`."""
        ...

    def payload(self, now_us: int) -> Payload:
        """Their payload; those without an event time happen now.

        Raises `PeerFault` where attributes of one name have several types, or something is no publication at all.
        """
        ...


@dataclass(slots=True)
class Payload:
    """A payload as buffers to be joined, its layout, and its range of event times in microseconds."""

    layout: Layout
    buffers: list[Octets]
    event_time_min_us: int
    event_time_max_us: int
    attribute_count: int = 0
    growth: int = 0
    """What its dictionaries add once they are written out, in bytes."""


@dataclass(slots=True)
class Listed:
    """Publications as lists of one length. Text is written as UTF-8.

    Attributes come in one of two ways: `values` holds those of each publication one behind the other, as many as there
    are `names`; or `mappings` holds one mapping (or None) for each. Each is of a type of `AttributeValue` itself and in
    its range. `event_times_us` has None where the source gave no time.
    """

    keys: list[Octets | str] = field(default_factory=list)
    bodies: list[Octets | str] = field(default_factory=list)
    event_times_us: list[int | None] | None = None
    names: tuple[str, ...] = ()
    values: list[AttributeValue | None] | None = None
    mappings: list[dict[str, AttributeValue | None] | None] | None = None

    def __len__(self) -> int:
        return len(self.bodies)

    def part(self, start: int, end: int) -> Listed:
        """Those from index `start` to before `end`, in lists of their own."""
        width = len(self.names)
        return Listed(
            self.keys[start:end],
            self.bodies[start:end],
            None if self.event_times_us is None else self.event_times_us[start:end],
            self.names,
            None if self.values is None else self.values[start * width : end * width],
            None if self.mappings is None else self.mappings[start:end],
        )

    def drop(self, count: int) -> None:
        """Take the first `count` out; what is appended meanwhile by another thread stays."""
        del self.keys[:count]
        del self.bodies[:count]
        if self.event_times_us is not None:
            del self.event_times_us[:count]
        if self.values is not None:
            del self.values[: count * len(self.names)]
        if self.mappings is not None:
            del self.mappings[:count]

    def payload(self, now_us: int) -> Payload:
        """Rows for a few, columns for many."""
        times = self.event_times_us
        low = high = now_us
        filled: list[int] | None = None
        if times is not None:
            filled = [now_us if when is None else when for when in times]
            low, high = min(filled), max(filled)
            if low == high:
                filled = None
        try:
            if len(self) <= ROWS_COUNT_MAX:
                return Payload(Layout.ROWS, [self._rows_payload(filled)], low, high)
            columns = Columns(
                _key_column(self.keys),
                arrays.octets_array(self.bodies),
                None if filled is None else arrays.int64_array(filled),
                self._attribute_columns(),
            )
        except (TypeError, ValueError, OverflowError, pa.ArrowException) as error:
            raise PeerFault("bad-publication", f"cannot be written: {error}") from None
        growth = columnar.growth_of(columns)
        return Payload(Layout.COLUMNS, columnar.encode_columns(columns), low, high, len(columns.attributes), growth)

    def _rows_payload(self, times: list[int] | None) -> bytes:
        mappings = self.mappings
        if self.values is not None:
            rows = zip(*[iter(self.values)] * len(self.names), strict=True)
            mappings = [dict(zip(self.names, row, strict=True)) for row in rows]
        attributes: list[dict[str, AttributeValue] | None] | None = None
        if mappings is not None and any(mappings):
            attributes = [{k: v for k, v in row.items() if v is not None} if row else None for row in mappings]
        return encode_rows(Rows(list(map(octets_of, self.keys)), list(map(octets_of, self.bodies)), times, attributes))

    def _attribute_columns(self) -> dict[str, pa.Array]:
        if self.values is not None:
            width, values = len(self.names), self.values
            found = {name: attribute_column(name, values[index::width]) for index, name in enumerate(self.names)}
            return {name: column for name, column in found.items() if column.null_count < len(column)}
        if self.mappings is not None and any(self.mappings):
            return attribute_columns(self.mappings)
        return {}


def _key_column(keys: list[Octets | str]) -> pa.Array:
    """The keys as they are, or as a dictionary of one where all are equal: as many sources have them."""
    first = keys[0]
    if keys[-1] == first and keys.count(first) == len(keys):
        return arrays.repeated(arrays.octets_array((first,)), len(keys))
    return arrays.octets_array(keys)


@dataclass(slots=True)
class Tabled:
    """Publications as Arrow columns, of the types that `Columns` names; `event_times_us` has no nulls."""

    columns: Columns

    def __len__(self) -> int:
        return len(self.columns.bodies)

    def part(self, start: int, end: int) -> Tabled:
        """Those from index `start` to before `end`, on the same memory."""
        keys, bodies, times, attributes, _ = self.columns
        size = end - start
        return Tabled(
            Columns(
                keys.slice(start, size),
                bodies.slice(start, size),
                None if times is None else times.slice(start, size),
                {name: column.slice(start, size) for name, column in attributes.items()},
            )
        )

    def payload(self, now_us: int) -> Payload:
        """Columns, but for a few."""
        times = self.columns.event_times_us
        low = high = now_us
        if times is not None:
            span = pc.min_max(times).as_py()
            low, high = span["min"], span["max"]
        if len(self) <= ROWS_COUNT_MAX:
            return Payload(Layout.ROWS, [encode_rows(rows_of(self.columns))], low, high)
        growth = columnar.growth_of(self.columns)
        return Payload(Layout.COLUMNS, columnar.encode_columns(self.columns), low, high, growth=growth)


class Cutting:
    """Makes records out of publications, compressed by one codec or none."""

    __slots__ = ("_codec",)

    def __init__(self, codec: str | None) -> None:
        """`codec`: "zstd", "lz4" or None."""
        self._codec = codec

    def record_of(
        self, publications: Publications, header: BatchHeader, token: bytes, now_us: int, limits: BatchLimits
    ) -> Record | None:
        """One signed batch of all of these, or None when they cannot be one: too large together, or of mixed types.

        `header` brings ids, epoch and numbers. One publication alone always can.
        """
        count = len(publications)
        try:
            payload = publications.payload(now_us)
            if payload.layout is Layout.ROWS:
                decode_rows(payload.buffers[0], count, limits.attributes_max)
        except PeerFault:
            if count > 1:
                return None
            raise
        if count > 1 and payload.attribute_count > limits.attributes_max:
            return None
        size = sum(map(len, payload.buffers))
        if count > 1 and (size > limits.batch_size_max or payload.growth > limits.growth_max):
            return None
        buffers, flags = packed(payload.buffers, self._codec)
        header = header._replace(
            layout=int(payload.layout),
            flags=flags,
            payload_size=sum(map(len, buffers)),
            token_size=len(token),
            event_time_min_us=payload.event_time_min_us,
            event_time_max_us=payload.event_time_max_us,
        )
        return header, signed_record(header, buffers, token)


def halves_of(record: bytearray, header: BatchHeader, count: int) -> tuple[Record, Record]:
    """A batch cut in two behind its first `count` publications; the token goes with the second."""
    batch = memoryview(record)[ENVELOPE_SIZE : ENVELOPE_SIZE + header.size]
    whole = Tabled(read_columns(batch, header))
    if whole.columns.event_times_us is None:
        now_us = header.event_time_min_us
    else:
        now_us = 0
    cutting = Cutting(codec_of(header))
    limits = BatchLimits(batch_size_max=1 << 31)
    made: list[Record] = []
    for start, end, token in ((0, count, b""), (count, header.count, token_of(batch, header))):
        part_header = header._replace(span=end - start, count=end - start, first_number=header.first_number + start)
        part = cutting.record_of(whole.part(start, end), part_header, token, now_us, limits)
        assert part is not None
        made.append(part)
    return made[0], made[1]
