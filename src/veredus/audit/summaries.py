"""Rows become few numbers: sums of each bucket of 65,536, and runs that rise. Pure functions on numpy and Arrow.

A bucket's sums tell whether two sides hold the same publications, whatever their order. A run is a stretch of rows of
one group in which numbers and positions both rise: where a side was written in order, a file has about one a group.
Both are merged the same way again and again, for a row is a bucket of one and a run of one.

Invariants
    (1) What is merged in parts and then together is what is merged at once.
    (2) Two multisets of rows have the same count and sums only if they are the same, but for one chance in 2^64.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

BUCKET_BITS: Final = 16
_CHUNK_COUNT: Final = 1 << 20
_RANGE_MAX: Final = 1 << 32
_RADIX_MAX: Final = 1 << 15
_LOW: Final = np.uint64(0xFFFF_FFFF)
_HALF: Final = np.uint64(32)

type_of_numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Table:
    """Columns of one length: texts, which name a row's group, and numbers."""

    texts: Mapping[str, pa.Array]
    numbers: Mapping[str, type_of_numbers]

    def __len__(self) -> int:
        return len(next(iter(self.numbers.values())))


def joined(tables: Sequence[Table]) -> Table:
    """The rows of tables with the same columns, one after the other."""
    texts = {name: pa.concat_arrays([table.texts[name] for table in tables]) for name in tables[0].texts}
    numbers = {name: np.concatenate([table.numbers[name] for table in tables]) for name in tables[0].numbers}
    return Table(texts, numbers)


# ── hashes ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def mixed(*columns: npt.NDArray[np.int64] | npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """A hash of 64 bits for each row, which depends on every column and on their order (SplitMix64, chained)."""
    state: npt.NDArray[np.uint64] = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        state = state ^ column.view(np.uint64)
        state += np.uint64(0x9E37_79B9_7F4A_7C15)
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58_476D_1CE4_E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D0_49BB_1331_11EB)
        state ^= state >> np.uint64(31)
    return state


def hashed_texts(texts: pa.Array) -> npt.NDArray[np.uint64]:
    """A hash of 64 bits for each text, the same in every process."""
    encoded = texts.dictionary_encode()
    words = [xxhash.xxh64_intdigest(word.encode()) for word in encoded.dictionary.to_pylist()]
    hashes: npt.NDArray[np.uint64] = np.array(words, np.uint64)[encoded.indices.to_numpy(zero_copy_only=False)]
    return hashes


def halves(name: str, hashes: npt.NDArray[np.uint64]) -> dict[str, type_of_numbers]:
    """Two columns that can be summed without overflow, anywhere: the lower and the upper 32 bits."""
    return {
        f"{name}_low": (hashes & _LOW).view(np.int64),
        f"{name}_high": (hashes >> _HALF).view(np.int64),
    }


# ── merging ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def merged_buckets(table: Table) -> Table:
    """Neighbouring rows of one group and bucket as one: the least `first_number`, the greatest `last_number`, sums.

    A bucket that others interrupt stays in several rows, which are summed later.
    """
    order, changes = _by_group(table.texts)
    numbers = {name: column[order] for name, column in table.numbers.items()}
    starts = _starts(changes | (numbers["bucket"][1:] != numbers["bucket"][:-1]))
    merged: dict[str, type_of_numbers] = {}
    for name, column in numbers.items():
        match name:
            case "bucket":
                merged[name] = column[starts]
            case "first_number":
                merged[name] = np.minimum.reduceat(column, starts)
            case "last_number":
                merged[name] = np.maximum.reduceat(column, starts)
            case _:
                merged[name] = np.add.reduceat(column, starts)
    return Table(_taken(table.texts, order[starts]), merged)


def merged_runs(table: Table) -> Table:
    """Rows of one group and split as one run for as long as numbers and positions rise from each to the next."""
    order, changes = _by_group(table.texts)
    numbers = {name: column[order] for name, column in table.numbers.items()}
    falls = numbers["first_number"][1:] <= numbers["last_number"][:-1]
    falls |= numbers["split"][1:] != numbers["split"][:-1]
    falls |= numbers["first_position"][1:] <= numbers["last_position"][:-1]
    starts = _starts(changes | falls)
    ends = np.append(starts[1:], len(order)) - 1
    merged = {
        "split": numbers["split"][starts],
        "count": np.add.reduceat(numbers["count"], starts),
        "first_number": numbers["first_number"][starts],
        "last_number": numbers["last_number"][ends],
        "first_position": numbers["first_position"][starts],
        "last_position": numbers["last_position"][ends],
    }
    return Table(_taken(table.texts, order[starts]), merged)


def _by_group(texts: Mapping[str, pa.Array]) -> tuple[type_of_numbers, npt.NDArray[np.bool_]]:
    """The rows' order by group, kept within each, and where the group changes from one row to the next."""
    codes, radix = np.zeros(len(next(iter(texts.values()))), np.int64), 1
    for column in texts.values():
        encoded = column.dictionary_encode()
        radix *= max(1, len(encoded.dictionary))
        codes = codes * len(encoded.dictionary) + encoded.indices.to_numpy(zero_copy_only=False)
        if radix > _RADIX_MAX:
            distinct, codes = np.unique(codes, return_inverse=True)
            radix = len(distinct)
    # numpy sorts integers of 16 bits by radix, ten times as fast.
    order = np.argsort(codes.astype(np.int16) if radix <= _RADIX_MAX else codes, kind="stable")
    sorted_codes = codes[order]
    return order, sorted_codes[1:] != sorted_codes[:-1]


def _starts(changes: npt.NDArray[np.bool_]) -> type_of_numbers:
    return np.flatnonzero(np.concatenate([[True], changes]))


def _taken(texts: Mapping[str, pa.Array], rows: type_of_numbers) -> dict[str, pa.Array]:
    indices = pa.array(rows)
    return {name: column.take(indices) for name, column in texts.items()}


# ── rows of each side ────────────────────────────────────────────────────────────────────────────────────────────────


def numbers_of(batch: pa.RecordBatch, name: str) -> type_of_numbers:
    """A column of integers. Raises `ValueError` for a null, which no side may have."""
    column = batch.column(name)
    if column.null_count:
        raise ValueError(f"column {name} has a null where a number is wanted")
    return np.ascontiguousarray(column.to_numpy(zero_copy_only=False), np.int64)


def texts_of(batch: pa.RecordBatch, *names: str) -> dict[str, pa.Array]:
    """Columns of text. Raises `ValueError` for a null, which no side may have."""
    for name in names:
        if batch.column(name).null_count:
            raise ValueError(f"column {name} has a null where a text is wanted")
    return {name: batch.column(name) for name in names}


def number_buckets(texts: Mapping[str, pa.Array], numbers: type_of_numbers, **hashes: npt.NDArray[np.uint64]) -> Table:
    """Rows by source and number, as buckets."""
    columns = {
        "bucket": numbers >> BUCKET_BITS,
        "count": np.ones(len(numbers), np.int64),
        "first_number": numbers,
        "last_number": numbers,
    }
    for name, column in hashes.items():
        columns |= halves(name, column)
    return merged_buckets(Table(texts, columns))


def rising_runs(
    texts: Mapping[str, pa.Array], numbers: type_of_numbers, positions: type_of_numbers, splits: type_of_numbers
) -> Table:
    """Rows in the order in which they were written, as runs. `splits` says what was written in one piece."""
    columns = {
        "split": splits,
        "count": np.ones(len(numbers), np.int64),
        "first_number": numbers,
        "last_number": numbers,
        "first_position": positions,
        "last_position": positions,
    }
    return merged_runs(Table(texts, columns))


def expanded(
    first: type_of_numbers, last: type_of_numbers, sequence: type_of_numbers
) -> Iterator[tuple[type_of_numbers, type_of_numbers, type_of_numbers]]:
    """Ranges of numbers, one row each: which range a row is of, its number, and its sequence, 0 where not known.

    In chunks, however long a range is. Raises `ValueError` for one that ends before it begins, or that no node has
    ever acknowledged at once.
    """
    if (last < first).any():
        raise ValueError("a range of acknowledged numbers ends before it begins")
    if (last - first >= _RANGE_MAX).any():
        raise ValueError(f"a range of acknowledged numbers has more than {_RANGE_MAX:,} of them")
    piece_counts = (last >> BUCKET_BITS) - (first >> BUCKET_BITS) + 1
    ranges = np.repeat(np.arange(len(first)), piece_counts)
    piece_index = np.arange(len(ranges)) - np.repeat(np.cumsum(piece_counts) - piece_counts, piece_counts)
    begins = ((first[ranges] >> BUCKET_BITS) + piece_index) << BUCKET_BITS
    lows = np.maximum(first[ranges], begins)
    counts = np.minimum(last[ranges], begins + (1 << BUCKET_BITS) - 1) - lows + 1
    chunks = (np.cumsum(counts) - counts) // _CHUNK_COUNT
    for chunk in np.split(np.arange(len(ranges)), np.flatnonzero(chunks[1:] != chunks[:-1]) + 1):
        of, steps = np.repeat(ranges[chunk], counts[chunk]), np.arange(counts[chunk].sum())
        numbers = np.repeat(lows[chunk], counts[chunk]) + steps
        numbers -= np.repeat(np.cumsum(counts[chunk]) - counts[chunk], counts[chunk])
        yield of, numbers, np.where(sequence[of] > 0, sequence[of] + numbers - first[of], 0)
