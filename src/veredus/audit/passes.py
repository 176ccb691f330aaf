"""One pass over each side, wherever its rows are: what comes back is as small as the side was in order.

    what        group                                  holds
    numbers     stream, source                         offered, acknowledged, journal: sums by bucket of numbers
    sequences   stream, subscription ("" the journal)  journal, pushed: sums by bucket of sequences
    runs        stream, subscription, source, life     journal, pushed: runs that rise

`by_content` is the sum over (number, digest), or over the whole row where buckets are of sequences; `by_sequence` that
over (number, sequence), `by_number` that over numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StringType, StructField, StructType

from veredus.recording import Kind

from .evidence import SPLIT
from .summaries import (
    Table,
    expanded,
    hashed_texts,
    joined,
    merged_buckets,
    merged_runs,
    mixed,
    number_buckets,
    numbers_of,
    rising_runs,
    texts_of,
)

COVERED: Final = "covered"
"""The part of a journal that a subscription should have got: as the journal, but for what is asked of it."""
_TEXTS: Final = ("what", "stream", "subscription", "source", "life")
SUMS: Final = (
    "by_content_low",
    "by_content_high",
    "by_sequence_low",
    "by_sequence_high",
    "by_number_low",
    "by_number_high",
)
_NUMBERS: Final = (
    "split", "bucket", "count", "sequenced", "first_number", "last_number", "first_position", "last_position", *SUMS,
)  # fmt: skip
_SCHEMA: Final = StructType(
    [*(StructField(name, StringType()) for name in _TEXTS), *(StructField(name, LongType()) for name in _NUMBERS)]
)
_GATHERED_MAX: Final = 1 << 17
"""Rows of summaries that are kept to be merged with what comes."""

type_of_tables = Iterator[tuple[str, Table]]


def summary_of(side: str, rows: DataFrame) -> DataFrame:
    """The summary of a side: a kind, or `COVERED`."""
    return rows.mapInArrow(partial(summarised, side), _SCHEMA)


def summarised(side: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What one task does: rows of a side in, their summary out."""
    summarise = _SUMMARISE[side]
    gathered: dict[str, list[Table]] = {}
    schema = to_arrow_schema(_SCHEMA)
    for batch in batches:
        if not len(batch):
            continue
        for what, table in summarise(batch):
            tables = gathered.setdefault(what, [])
            tables.append(table)
            if sum(map(len, tables)) > _GATHERED_MAX:
                merged = _MERGE[what](joined(tables))
                gathered[what] = [merged]
                if len(merged) > _GATHERED_MAX // 2:
                    yield _batch_of(what, merged, schema)
                    gathered[what] = []
    for what, tables in gathered.items():
        if tables:
            yield _batch_of(what, _MERGE[what](joined(tables)), schema)


def _batch_of(what: str, table: Table, schema: pa.Schema) -> pa.RecordBatch:
    count = len(table)
    columns: list[pa.Array] = []
    for field in schema:
        if field.name == "what":
            columns.append(pa.repeat(pa.scalar(what, field.type), count))
        elif field.name in table.texts:
            columns.append(table.texts[field.name])
        elif field.name in table.numbers:
            columns.append(pa.array(table.numbers[field.name]))
        else:
            columns.append(pa.repeat(pa.scalar("" if field.name in _TEXTS else 0, field.type), count))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _offered(batch: pa.RecordBatch) -> type_of_tables:
    numbers = numbers_of(batch, "number")
    by_content = mixed(numbers, numbers_of(batch, "digest"))
    yield "numbers", number_buckets(texts_of(batch, "stream", "source"), numbers, by_content=by_content)


def _acknowledged(batch: pa.RecordBatch) -> type_of_tables:
    texts = texts_of(batch, "stream", "source")
    ranges = (numbers_of(batch, name) for name in ("first_number", "last_number", "first_sequence"))
    for of, numbers, sequences in expanded(*ranges):
        rows = pa.array(of)
        is_known = sequences > 0
        by_sequence = np.where(is_known, mixed(numbers, sequences), np.uint64(0))
        table = number_buckets(
            {name: column.take(rows) for name, column in texts.items()},
            numbers,
            by_sequence=by_sequence,
            by_number=mixed(numbers),
            sequenced=is_known.astype(np.uint64),
        )
        yield "numbers", _with_sequenced(table)


def _with_sequenced(table: Table) -> Table:
    numbers = dict(table.numbers)
    numbers["sequenced"] = numbers.pop("sequenced_low")
    del numbers["sequenced_high"]
    return Table(table.texts, numbers)


def _journal(batch: pa.RecordBatch) -> type_of_tables:
    texts = texts_of(batch, "stream", "source")
    numbers, sequences = numbers_of(batch, "number"), numbers_of(batch, "sequence")
    digests = numbers_of(batch, "digest")
    yield (
        "numbers",
        number_buckets(
            texts,
            numbers,
            by_content=mixed(numbers, digests),
            by_sequence=mixed(numbers, sequences),
            by_number=mixed(numbers),
        ),
    )
    yield from _covered(batch)
    yield "runs", rising_runs(texts, numbers, sequences, numbers_of(batch, SPLIT))


def _covered(batch: pa.RecordBatch) -> type_of_tables:
    sequences = numbers_of(batch, "sequence")
    yield "sequences", number_buckets(texts_of(batch, "stream"), sequences, by_content=_row_hashes(batch))


def _pushed(batch: pa.RecordBatch) -> type_of_tables:
    texts = texts_of(batch, "stream", "subscription", "source", "life")
    subscription = {name: texts[name] for name in ("stream", "subscription")}
    yield "sequences", number_buckets(subscription, numbers_of(batch, "sequence"), by_content=_row_hashes(batch))
    splits = numbers_of(batch, SPLIT)
    yield "runs", rising_runs(texts, numbers_of(batch, "number"), numbers_of(batch, "place"), splits)


def _row_hashes(batch: pa.RecordBatch) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    sources = hashed_texts(texts_of(batch, "source")["source"])
    return mixed(numbers_of(batch, "sequence"), sources, numbers_of(batch, "number"), numbers_of(batch, "digest"))


_SUMMARISE: Final[dict[str, Callable[[pa.RecordBatch], type_of_tables]]] = {
    Kind.OFFERED: _offered,
    Kind.ACKNOWLEDGED: _acknowledged,
    Kind.JOURNAL: _journal,
    Kind.PUSHED: _pushed,
    COVERED: _covered,
}
_MERGE: Final = {"numbers": merged_buckets, "sequences": merged_buckets, "runs": merged_runs}
