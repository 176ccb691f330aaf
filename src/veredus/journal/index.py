"""Where the records of one key lie in one segment, in memory and in the index file beside a sealed segment.

A key is a stream's id, or a stage's number with `STAGE_KEY` added. A **row** tells of one record and takes four
64-bit words:

    | first | append time | offset in the segment | size << 32 | count |

`first` is the sequence of the record's first publication, or, under a stage's key, how many publications of the stage
lie before it. A **summary** tells of all keys of a sealed segment by column; it stays in memory, the rows are loaded
when wanted.

    index file:   | header, 64 | columns of the summary, keys ascending | rows, by key, then by first |

The header's CRC covers the summary; the summary has a CRC for each key's rows.
Source: docs/internals/DESIGN.md, "Journal"; docs/reference/journal-format.md.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Mapping
from typing import NamedTuple

from veredus.kernel.octets import Octets, crc32c

from .layout import FORMAT_VERSION

STAGE_KEY = 1 << 63
ROW_WORDS = 4
ROW_SIZE = 8 * ROW_WORDS
INDEX_HEADER_SIZE = 64
INDEX_MAGIC = b"VEREDIDX"
_HEADER = struct.Struct("<8sII16sQQII")
_COUNT_MASK = (1 << 32) - 1
_WIDE = ("keys", "firsts", "lasts", "first_times", "last_times")
_NARROW = ("sizes", "starts", "counts", "crcs")
_KEY_SIZE = 8 * len(_WIDE) + 4 * len(_NARROW)

Rows = array
"""Rows of one key, ascending by `first`, as unsigned 64-bit words."""


def no_rows() -> array[int]:
    """Rows of a key, none yet."""
    return array("Q")


def add_row(rows: array[int], first: int, append_time_us: int, offset: int, size: int, count: int) -> None:
    """Put a record's row behind the others."""
    rows.extend((first, append_time_us, offset, size << 32 | count))


class Row(NamedTuple):
    """One record's place; `offset` and `size` in bytes, `size` with padding."""

    first: int
    append_time_us: int
    offset: int
    size: int
    count: int  # type: ignore[assignment]  # tuple.count is not missed

    @property
    def last(self) -> int:
        """The sequence of the record's last publication."""
        return self.first + self.count - 1


def row_count(rows: array[int]) -> int:
    """How many rows there are."""
    return len(rows) // ROW_WORDS


def row_at(rows: array[int], index: int) -> Row:
    """The row at `index`; -1 is the last."""
    at = index * ROW_WORDS if index >= 0 else len(rows) + index * ROW_WORDS
    first, append_time_us, offset, packed = rows[at : at + ROW_WORDS]
    return Row(first, append_time_us, offset, packed >> 32, packed & _COUNT_MASK)


def find_row(rows: array[int], first: int) -> int:
    """The index of the last row that starts at or before `first`; -1 when there is none."""
    return bisect_right(range(row_count(rows)), first, key=lambda index: rows[index * ROW_WORDS]) - 1


def find_time(rows: array[int], append_time_us: int) -> int:
    """The index of the first row of this append time or later; the count of rows when there is none."""
    return bisect_left(range(row_count(rows)), append_time_us, key=lambda index: rows[index * ROW_WORDS + 1])


def size_of_rows(rows: array[int]) -> int:
    """The size of all records together, in bytes."""
    return sum(packed >> 32 for packed in rows[3::ROW_WORDS])


class Summary:
    """Tells for each key of a sealed segment what lies there; columns of equal length, keys ascending.

    `firsts` and `lasts` are inclusive; `starts` and `counts` say which rows of the file are the key's.
    """

    __slots__ = (
        "counts", "crcs", "data", "end", "first_times", "firsts", "keys", "last_times", "lasts", "sizes", "starts",
    )  # fmt: skip

    def __init__(self, data: bytes, key_count: int, end: int) -> None:
        """Columns over `data`, of a segment whose records end at offset `end`."""
        self.data = data
        self.end = end
        view = memoryview(data)
        wide = [view[8 * key_count * i : 8 * key_count * (i + 1)].cast("Q") for i in range(len(_WIDE))]
        narrow_at = 8 * key_count * len(_WIDE)
        narrow = [
            view[narrow_at + 4 * key_count * i : narrow_at + 4 * key_count * (i + 1)].cast("I")
            for i in range(len(_NARROW))
        ]
        self.keys, self.firsts, self.lasts, self.first_times, self.last_times = wide
        self.sizes, self.starts, self.counts, self.crcs = narrow

    def find(self, key: int) -> int:
        """The place of `key` in the columns, -1 when nothing of it lies here."""
        place = bisect_left(self.keys, key)
        return place if place < len(self.keys) and self.keys[place] == key else -1

    def rows_place(self, place: int) -> tuple[int, int]:
        """Offset and size, in the index file, of the rows of the key at `place`."""
        rows_at = INDEX_HEADER_SIZE + len(self.data)
        return rows_at + self.starts[place] * ROW_SIZE, self.counts[place] * ROW_SIZE

    def checked_rows(self, place: int, data: Octets) -> array[int] | None:
        """The rows of the key at `place` out of the file's bytes, None when they are unsound."""
        if len(data) != self.counts[place] * ROW_SIZE or crc32c(data) != self.crcs[place]:
            return None
        rows = no_rows()
        rows.frombytes(data)
        return rows


def build_index(rows_by_key: Mapping[int, array[int]], end: int) -> tuple[Summary, bytes]:
    """The summary of a segment that is sealed at offset `end`, and all its rows as they go to the file."""
    import numpy as np  # a lot to import for a client of topics, which seals hardly ever

    keys = sorted(rows_by_key)
    chunks = [rows_by_key[key].tobytes() for key in keys]
    rows = b"".join(chunks)
    words = np.frombuffer(rows, "<u8").reshape(-1, ROW_WORDS)
    counts = np.array([len(chunk) // ROW_SIZE for chunk in chunks], "<u4")
    ends = np.cumsum(counts, dtype=np.int64)
    starts = ends - counts
    first = words[starts] if keys else words
    last = words[ends - 1] if keys else words
    sizes = np.add.reduceat(words[:, 3] >> np.uint64(32), starts) if keys else counts
    columns = [
        np.array(keys, "<u8"),
        first[:, 0],
        last[:, 0] + (last[:, 3] & np.uint64(_COUNT_MASK)) - np.uint64(1),
        first[:, 1],
        last[:, 1],
        sizes.astype("<u4"),
        starts.astype("<u4"),
        counts,
        np.array([crc32c(chunk) for chunk in chunks], "<u4"),
    ]
    data = b"".join(column.tobytes() for column in columns)
    return Summary(data, len(keys), end), rows


def encode_index(summary: Summary, rows: bytes, journal_id: bytes, number: int) -> list[bytes]:
    """The index file, as buffers to be joined."""
    key_count, count = len(summary.keys), len(rows) // ROW_SIZE
    blank = _HEADER.pack(INDEX_MAGIC, 0, FORMAT_VERSION, journal_id, number, summary.end, key_count, count)
    crc = crc32c(blank + summary.data)
    head = _HEADER.pack(INDEX_MAGIC, crc, FORMAT_VERSION, journal_id, number, summary.end, key_count, count)
    return [head.ljust(INDEX_HEADER_SIZE, b"\0"), summary.data, rows]


def summary_size(header: Octets) -> int | None:
    """The size of the summary behind an index file's header, in bytes; None when this is no such header."""
    if len(header) < INDEX_HEADER_SIZE:
        return None
    magic, _, version, _, _, _, key_count, _ = _HEADER.unpack_from(header, 0)
    return key_count * _KEY_SIZE if magic == INDEX_MAGIC and version == FORMAT_VERSION else None


def decode_summary(data: Octets, journal_id: bytes, number: int) -> Summary | None:
    """The summary in the first bytes of an index file, None when it is unsound or another segment's."""
    size = summary_size(data)
    if size is None or len(data) < INDEX_HEADER_SIZE + size:
        return None
    magic, crc, version, found_id, found_number, end, key_count, count = _HEADER.unpack_from(data, 0)
    columns = bytes(memoryview(data)[INDEX_HEADER_SIZE : INDEX_HEADER_SIZE + size])
    blank = _HEADER.pack(magic, 0, version, found_id, found_number, end, key_count, count)
    if crc32c(blank + columns) != crc or found_id != journal_id or found_number != number:
        return None
    return Summary(columns, key_count, end)


class RowsCache:
    """Keeps the rows that were loaded last, by segment and key, within a bound in bytes."""

    __slots__ = ("_rows", "size", "size_max")

    def __init__(self, size_max: int) -> None:
        """Keep at most `size_max` bytes, and always the last that was put in."""
        self._rows: OrderedDict[tuple[int, int], array[int]] = OrderedDict()
        self.size = 0
        self.size_max = size_max

    def get(self, number: int, key: int) -> array[int] | None:
        """The rows, if they are here; they become the youngest."""
        rows = self._rows.get((number, key))
        if rows is not None:
            self._rows.move_to_end((number, key))
        return rows

    def put(self, number: int, key: int, rows: array[int]) -> None:
        """Keep the rows, let the oldest go."""
        self.drop(number, key)
        self._rows[number, key] = rows
        self.size += len(rows) * 8
        while self.size > self.size_max and len(self._rows) > 1:
            _, old = self._rows.popitem(last=False)
            self.size -= len(old) * 8

    def drop(self, number: int, key: int) -> None:
        """Forget the rows."""
        old = self._rows.pop((number, key), None)
        if old is not None:
            self.size -= len(old) * 8
