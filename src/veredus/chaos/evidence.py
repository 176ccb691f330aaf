"""What everybody saw, for the one judge: what members wrote down, and what the journal holds in the end."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

import veredus
from veredus.client.blocking import Node
from veredus.recording import SCHEMAS, Kind, Manifest, Recording, digests_of, to_parquet
from veredus.recording.conversion import write_manifest

from .content import identity_in
from .layout import Layout
from .plan import Plan

READER = "journal"
"""The name under which gaps are written down that the journal has for its last reader."""
_ROWS_MAX = 65_536


class Range(NamedTuple):
    """Sequences of a stream."""

    stream: str
    first_sequence: int
    last_sequence: int


def gather(plan: Plan, layout: Layout, node: Node) -> int:
    """Write all evidence as Parquet; how many publications the journal holds."""
    rows: list[pa.RecordBatch] = []
    with Recording(layout.recordings, READER) as recording:
        for stream in plan.streams:
            rows += _journal_of(stream, node, recording)
    to_parquet(layout.recordings, layout.evidence)
    directory = layout.evidence / Kind.JOURNAL
    directory.mkdir()
    table = pa.Table.from_batches(rows, SCHEMAS[Kind.JOURNAL])
    file = directory / "part-00000.parquet"
    pq.write_table(table, file, row_group_size=_ROWS_MAX)
    write_manifest(directory, Manifest(Kind.JOURNAL, len(table), 1, {file.name: len(table)}))
    return len(table)


def _journal_of(stream: str, node: Node, recording: Recording) -> list[pa.RecordBatch]:
    """What the journal holds of a stream, in order; what it says it has lost is written down."""
    head = node.streams.show(stream)["head"]

    def take_gap(gap: veredus.Gap) -> None:
        recording.gap(stream, READER, gap.first_sequence, gap.next_sequence - 1, gap.code)

    batches = []
    with node.subscribe(stream, start=veredus.beginning(), until=head + 1, on_gap=take_gap) as subscription:
        for batch in subscription.batches():
            publications = list(batch)
            identities = [(p.source, p.number) if p.source else identity_in(p.body) for p in publications]
            columns = [
                [stream] * len(publications),
                [publication.sequence for publication in publications],
                [source for source, _ in identities],
                [number for _, number in identities],
                digests_of([p.key for p in publications], [p.body for p in publications]),
            ]
            batches.append(pa.RecordBatch.from_arrays(list(map(pa.array, columns)), schema=SCHEMAS[Kind.JOURNAL]))
    return batches


def unexplained_gaps(layout: Layout, struck: Sequence[Range]) -> list[str]:
    """What the node reported as gone though no flip took it: a report excuses a loss, so there must be a reason."""
    told: dict[tuple[str, int, int, str], str] = {}
    for file in sorted((layout.evidence / Kind.GAPS).glob("*.parquet")):
        for gap in pq.read_table(file).to_pylist():
            told[gap["stream"], gap["first_sequence"], gap["last_sequence"], gap["code"]] = gap["subscription"]
    return [
        f"{subscription} was told that {first} to {last} of {stream} are {code}, and nothing was done to them"
        for (stream, first, last, code), subscription in told.items()
        if not any(s.stream == stream and s.first_sequence <= first and last <= s.last_sequence for s in struck)
    ]


def sizes_of(directory: Path) -> dict[str, int]:
    """The rows of each kind of evidence."""
    found = {}
    for kind in Kind:
        files = sorted((directory / kind).glob("*.parquet"))
        found[str(kind)] = sum(pq.read_metadata(file).num_rows for file in files)
    return found
