"""What came of it, counted from what was stored, against the data set that everything came from."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from flights import delay_statistics, series_of

import veredus

STATISTICS = ("origin", "hour", "flights", "cancelled", "delay_sum", "delay_max")


@dataclass
class Tally:
    """One store's rows against those that it must hold."""

    rows: int = 0
    lost: int = 0
    doubled: int = 0
    out_of_order: int = 0
    wrong: int = 0

    @property
    def is_clean(self) -> bool:
        """Whether it holds exactly what it must."""
        return not (self.lost or self.doubled or self.out_of_order or self.wrong)

    def add(self, other: Tally) -> None:
        """Count another source's rows in."""
        self.rows += other.rows
        self.lost += other.lost
        self.doubled += other.doubled
        self.out_of_order += other.out_of_order
        self.wrong += other.wrong


def read_stream(node: veredus.Node, stream: str) -> pa.Table:
    """All that the node keeps of a stream."""
    head = node.streams.show(stream)["head"]
    with node.subscribe(stream, start=veredus.beginning(), until=head + 1) as subscription:
        tables = [plain(batch.to_arrow()) for batch in subscription.batches()]
    return pa.concat_tables(tables, promote_options="default")


def plain(rows: pa.RecordBatch) -> pa.Table:
    """The rows with every dictionary written out, so that batches fit together."""
    arrays = [array.dictionary_decode() if pa.types.is_dictionary(array.type) else array for array in rows.columns]
    return pa.table(arrays, names=rows.schema.names)


def tally_series(numbers: np.ndarray, bodies: pa.Array, expected: pa.Array) -> Tally:
    """A source's rows, in the order in which they are stored, against its series: row `i` has number `i + 1`."""
    tally = Tally(rows=len(numbers))
    present, counts = np.unique(numbers, return_counts=True)
    tally.doubled = int((counts - 1).sum())
    tally.lost = len(expected) - int(((present >= 1) & (present <= len(expected))).sum())
    tally.out_of_order = int((np.diff(numbers) < 0).sum())
    inside = (numbers >= 1) & (numbers <= len(expected))
    wanted = expected.take(pa.array(numbers[inside] - 1))
    found = bodies.filter(pa.array(inside))
    tally.wrong = int((~inside).sum()) + int(pc.sum(pc.not_equal(found, wanted)).as_py() or 0)
    return tally


def tally_flights(rows: pa.Table, flights: pa.Table, carriers: list[str]) -> Tally:
    """The journal's or the archive's rows (source, number, body; in order of sequence) against the data set."""
    tally = Tally()
    for carrier in carriers:
        own = rows.filter(pc.equal(rows["source"], carrier)).combine_chunks()
        bodies = own["body"].combine_chunks().cast(pa.binary())
        expected = series_of(flights, carrier)["body"].combine_chunks()
        tally.add(tally_series(own["number"].to_numpy(), bodies, expected))
    strangers = rows.num_rows - tally.rows
    tally.rows += strangers
    tally.wrong += strangers
    return tally


def read_archive(directory: Path) -> pa.Table:
    """The Parquet files that Spark's own manifest lists, in order of sequence."""
    paths = [path.removeprefix("file://") for path in json.loads((directory / "archive.json").read_text())]
    columns = ["source", "number", "sequence", "body"]
    tables = [pq.read_table(path, columns=columns, partitioning=None) for path in paths]
    return pa.concat_tables(tables).sort_by("sequence")


def tally_statistics(rows: pa.Table, flights: pa.Table) -> Tally:
    """The second stream's rows against the same statistics, computed from the data set directly."""
    expected = delay_statistics(flights)
    rows = rows.rename_columns({"event_time": "hour"}).select(STATISTICS)
    found = [tuple(row.values()) for row in rows.to_pylist()]
    wanted = [tuple(row.values()) for row in expected.select(STATISTICS).to_pylist()]
    by_place = {row[:2]: row for row in wanted}
    places = [row[:2] for row in found]
    tally = Tally(rows=len(found))
    tally.doubled = len(places) - len(set(places))
    tally.lost = len(by_place.keys() - set(places))
    tally.wrong = sum(by_place.get(row[:2]) != row for row in found)
    return tally


def audit_all(
    node: veredus.Node, stream: str, statistics: str, directory: Path, flights: pa.Table, carriers: list[str]
) -> dict[str, tuple[Tally, int]]:
    """Every store's tally, and how many rows it must hold."""
    journal = read_stream(node, stream)
    journal = journal.filter(pc.is_in(journal["source"], pa.array(carriers)))
    return {
        "in the journal": (tally_flights(journal, flights, carriers), flights.num_rows),
        "rows in Parquet": (tally_flights(read_archive(directory), flights, carriers), flights.num_rows),
        "rows in the second stream": (
            tally_statistics(read_stream(node, statistics), flights),
            delay_statistics(flights).num_rows,
        ),
    }
