"""Small worlds for the audit: a sound one, and what spoils it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from veredus.recording import SCHEMAS, Kind, Manifest
from veredus.recording.conversion import write_manifest

Row = dict[str, Any]
LIFE = "00000000000000000001-main"
LATER_LIFE = "00000000000000000002-main"


def write_side(directory: Path, kind: Kind, rows: list[Row], parts: int = 1) -> None:
    """Rows as Parquet of `parts` files in `directory`, with a manifest."""
    target = directory / kind
    target.mkdir(parents=True)
    size = max(1, -(-len(rows) // parts))
    files = {}
    for index in range(parts):
        part = rows[index * size : (index + 1) * size]
        pq.write_table(
            pa.Table.from_pylist(part, SCHEMAS[kind]), target / f"part-{index}.parquet", write_page_checksum=True
        )
        files[f"part-{index}.parquet"] = len(part)
    write_manifest(target, Manifest(kind, len(rows), 1, files))


@dataclass
class World:
    """What everybody wrote down."""

    offered: list[Row] = field(default_factory=list)
    acknowledged: list[Row] = field(default_factory=list)
    journal: list[Row] = field(default_factory=list)
    pushed: list[Row] = field(default_factory=list)
    settled: list[Row] = field(default_factory=list)
    gaps: list[Row] = field(default_factory=list)

    def offer(self, source: str, number: int, stream: str = "s") -> None:
        self.offered.append({"stream": stream, "source": source, "number": number, "digest": digest(source, number)})

    def acknowledge(self, source: str, first: int, last: int, sequence: int = 0, stream: str = "s") -> None:
        self.acknowledged.append(
            {
                "stream": stream,
                "source": source,
                "first_number": first,
                "last_number": last,
                "first_sequence": sequence,
            }
        )

    def journal_row(self, sequence: int, source: str, number: int, stream: str = "s") -> None:
        self.journal.append(
            {
                "stream": stream,
                "sequence": sequence,
                "source": source,
                "number": number,
                "digest": digest(source, number),
            }
        )

    def push(self, sequence: int, subscription: str = "main", life: str = LIFE, redelivered: bool = False) -> None:
        """Push what the journal has at a sequence."""
        row = next(row for row in self.journal if row["sequence"] == sequence)
        self.pushed.append(
            row
            | {
                "subscription": subscription,
                "life": f"{life}-{subscription}",
                "place": self.place(subscription, life) + 1,
                "redelivered": redelivered,
            }
        )

    def place(self, subscription: str = "main", life: str = LIFE) -> int:
        return sum(row["life"] == f"{life}-{subscription}" for row in self.pushed)

    def settle(self, first: int, last: int, subscription: str = "main", life: str = LIFE) -> None:
        self.settled.append(self._told(first, last, subscription, life))

    def tell_gap(self, first: int, last: int, code: str, subscription: str = "main", life: str = LIFE) -> None:
        self.gaps.append(self._told(first, last, subscription, life) | {"code": code})

    def _told(self, first: int, last: int, subscription: str, life: str) -> Row:
        return {
            "stream": "s",
            "subscription": subscription,
            "life": f"{life}-{subscription}",
            "place": self.place(subscription, life),
            "first_sequence": first,
            "last_sequence": last,
        }

    def replace_places(self) -> None:
        """Count anew what was pushed to each life, after rows were taken out or put in."""
        counts: dict[str, int] = {}
        for row in self.pushed:
            row["place"] = counts[row["life"]] = counts.get(row["life"], 0) + 1

    def write(self, directory: Path, parts: int = 1) -> Path:
        for kind in Kind:
            write_side(directory, kind, getattr(self, kind.value), parts)
        return directory


def digest(source: str, number: int) -> int:
    return (hash_of(source) * 1_000_003 + number * 7_919) % (1 << 62)


def hash_of(source: str) -> int:
    return sum(ord(letter) * 31**index for index, letter in enumerate(source))


def sound_world(count: int = 60, subscriptions: tuple[str, ...] = ("main", "other")) -> World:
    """Two sources in turn, and one anonymous row; the last number of source `b` is in doubt and was not taken."""
    world = World()
    numbers = {"a": 0, "b": 0}
    for sequence in range(1, count + 1):
        source = "a" if sequence % 3 else "b"
        numbers[source] += 1
        world.offer(source, numbers[source])
        world.journal_row(sequence, source, numbers[source])
        world.acknowledge(source, numbers[source], numbers[source], sequence)
    world.journal.append({"stream": "s", "sequence": count + 1, "source": None, "number": None, "digest": 5})
    world.offer("b", numbers["b"] + 1)
    for subscription in subscriptions:
        for sequence in range(1, count + 2):
            world.push(sequence, subscription)
            world.settle(sequence, sequence, subscription)
    return world
