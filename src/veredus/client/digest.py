"""A digest of rows that does not depend on their order, so that parts may be digested apart and added up.

Each row is hashed with its columns' names and types, where a null counts as no column at all; the digest is two sums of
these hashes, 16 bytes. It tells rows that differ by accident, not by intent.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from xxhash import xxh3_64_intdigest

from veredus.delivery.arrays import numbers_of, plain_array

_U64 = npt.NDArray[np.uint64]
_STEP: Final = np.uint64(0x9E37_79B9_7F4A_7C15)
_FACTORS: Final = (np.uint64(0xBF58_476D_1CE4_E5B9), np.uint64(0x94D0_49BB_1331_11EB))
_MASK: Final = (1 << 64) - 1


class RowsDigest:
    """Owns the count and the digest of rows that come in any order."""

    __slots__ = ("_sums", "count")

    def __init__(self, count: int = 0, digest: bytes = bytes(16)) -> None:
        """Of `count` rows that had this digest."""
        self.count = count
        self._sums = [int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little")]

    @property
    def digest(self) -> bytes:
        """16 bytes; zeros for no rows."""
        return b"".join(part.to_bytes(8, "little") for part in self._sums)

    def add(self, count: int, digest: bytes) -> None:
        """Take in rows that were digested elsewhere."""
        self._add(RowsDigest(count, digest))

    def take(self, rows: pa.RecordBatch) -> None:
        """Take in rows. Columns: bool, int64, float64, text, bytes or timestamp, nulls allowed."""
        hashes = _row_hashes(rows)
        taken = RowsDigest(rows.num_rows)
        taken._sums = [int(hashes.sum(dtype=np.uint64)), int(_mixed(hashes).sum(dtype=np.uint64))]
        self._add(taken)

    def _add(self, other: RowsDigest) -> None:
        self.count += other.count
        self._sums = [(one + another) & _MASK for one, another in zip(self._sums, other._sums, strict=True)]


def _row_hashes(rows: pa.RecordBatch) -> _U64:
    """One number for each row. What two columns hold, changed about, gives another: each has its own seed."""
    hashes = np.zeros(rows.num_rows, np.uint64)
    for name, array in zip(rows.schema.names, rows.columns, strict=True):
        plain = plain_array(array)
        seed = np.uint64(xxh3_64_intdigest(f"{plain.type}\n{name}".encode()))
        column = _mixed(_value_hashes(plain) + seed)
        if plain.null_count:
            column[plain.is_null().to_numpy(zero_copy_only=False)] = 0
        hashes += column
    return _mixed(hashes)


def _value_hashes(array: pa.Array) -> _U64:
    """One number for each value, anything for a null."""
    kind = array.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        values = array.cast(pa.binary()).fill_null(b"").to_pylist()
        return np.fromiter(map(xxh3_64_intdigest, values), np.uint64, len(values))
    if pa.types.is_timestamp(kind):
        array = array.cast(pa.int64())
    filled = array.fill_null(False if pa.types.is_boolean(kind) else 0)
    if pa.types.is_floating(kind):
        numbers = numbers_of(filled)
        hashes: _U64 = np.where(np.isnan(numbers), np.nan, numbers).view(np.uint64)
        return hashes
    whole: _U64 = numbers_of(filled.cast(pa.int64())).view(np.uint64)
    return whole


def _mixed(values: _U64) -> _U64:
    """Each number spread over all its bits (the finaliser of SplitMix64)."""
    mixed = values + _STEP
    for shift, factor in zip((30, 27), _FACTORS, strict=True):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * factor
    return mixed ^ (mixed >> np.uint64(31))
