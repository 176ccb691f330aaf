"""`python -m benchmarks.audit`: how long `veredus audit` takes, and how much memory, for so many publications.

Recordings of all sides are written first, as real sources, nodes and subscribers would order them: batches of many
sources in turn, one subscription that takes everything. A publication is lost, one doubled and two are swapped in what
was pushed, and one is lost, one doubled and two swapped in the journal; the audit runs in a process of its own and must
find and name each of them.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from veredus.recording import SCHEMAS, Kind, Manifest
from veredus.recording.conversion import write_manifest

_BATCH_COUNT: Final = 500
_PART_COUNT: Final = 4 << 20
_LIFE: Final = "00000000000000000001-bench"
_GIB: Final = 1 << 30

_GROUP_COUNT: Final = 1 << 18
_REFUTED: Final = 9
_PLANTED: Final = Counter(
    {
        "lost": 1,
        "doubled": 1,
        "overtaken-in-journal": 1,
        "other-sequence": 2,  # the two that have changed places in the journal
        "missing": 1,
        "pushed-twice": 2,  # the subscription's own, and what the journal has twice
        "overtaken": 2,  # as well
    }
)

type_of_numbers = npt.NDArray[np.int64]


class Rows(NamedTuple):
    sequences: type_of_numbers
    codes: type_of_numbers
    numbers: type_of_numbers
    digests: type_of_numbers


def main(argv: Sequence[str] | None = None) -> int:
    """Write, audit, compare; 0 if all that was planted, and nothing else, was found."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.audit", description=__doc__)
    parser.add_argument("--count", type=int, default=5_000_000, help="publications")
    parser.add_argument("--sources", type=int, default=100)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--memory", default="3g", help="of Spark's driver")
    parser.add_argument("--workdir", type=Path, help="some 60 bytes a publication")
    options = parser.parse_args(argv)
    directory = Path(tempfile.mkdtemp(prefix="veredus-audit-bench-", dir=options.workdir))
    try:
        begun_s = time.monotonic()
        World(options.count, options.sources).write(directory / "recordings")
        size = sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
        print(f"written: {options.count:,} publications, {size / _GIB:.2f} GiB in {time.monotonic() - begun_s:.0f} s")
        return _audit(directory, options.count, options.master, options.memory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


class World:
    """Batches of sources in turn, and what was done to some publications."""

    def __init__(self, count: int, source_count: int) -> None:
        """The places of what is planted are spread over the world."""
        self.count = count
        self.source_count = source_count
        self.names = pa.array([f"source-{index:04}" for index in range(source_count)])
        # In the middle of a batch, so that what changes places is of one source.
        places = [count * part // 7 // _BATCH_COUNT * _BATCH_COUNT + 77 for part in range(1, 7)]
        self.journal_lost, self.journal_doubled, self.journal_swapped = places[:3]
        self.push_lost, self.push_doubled, self.push_swapped = places[3:]

    def rows(self, first: int, end: int) -> Rows:
        """What was taken, by sequence."""
        sequences = np.arange(first, end, dtype=np.int64)
        batch, within = np.divmod(sequences - 1, _BATCH_COUNT)
        turn, codes = np.divmod(batch, self.source_count)
        digests = (sequences.view(np.uint64) * np.uint64(0x9E37_79B9_7F4A_7C15)).view(np.int64)
        return Rows(sequences, codes, turn * _BATCH_COUNT + within + 1, digests)

    def journaled(self, first: int, end: int) -> Rows:
        """What the journal has: one row is lost, two have changed places, and one is there again at the very end."""
        rows = self.rows(first, end)
        contents = np.arange(len(rows.sequences))
        if first <= self.journal_swapped < end - 1:
            at = self.journal_swapped - first
            contents[[at, at + 1]] = contents[[at + 1, at]]
        kept = rows.sequences != self.journal_lost
        rows = Rows(rows.sequences[kept], *(column[contents][kept] for column in rows[1:]))
        if end == self.count + 1:
            again = self.rows(self.journal_doubled, self.journal_doubled + 1)
            again = again._replace(sequences=np.array([end]))
            rows = Rows(*(np.concatenate(pair) for pair in zip(rows, again, strict=True)))
        return rows

    def pushed(self, first: int, end: int) -> Rows:
        """What the subscription got of the journal: one is lost, one comes twice, two have changed places."""
        rows = self.journaled(first, end)
        order = np.arange(len(rows.sequences))
        (at,) = np.flatnonzero(rows.sequences == self.push_swapped) if first <= self.push_swapped < end else (None,)
        if at is not None:
            order[[at, at + 1]] = order[[at + 1, at]]
        order = order[rows.sequences[order] != self.push_lost]
        order = np.repeat(order, np.where(rows.sequences[order] == self.push_doubled, 2, 1))
        return Rows(*(column[order] for column in rows))

    def write(self, directory: Path) -> None:
        """All sides but gaps."""
        for kind in (Kind.OFFERED, Kind.ACKNOWLEDGED, Kind.JOURNAL, Kind.PUSHED, Kind.SETTLED):
            (directory / kind).mkdir(parents=True)
            texts = [field.name for field in SCHEMAS[kind] if field.type == pa.string()]
            files: dict[str, int] = {}
            place = 1
            for part, first in enumerate(range(1, self.count + 1, _PART_COUNT)):
                end = min(first + _PART_COUNT, self.count + 1)
                name = f"part-{part:05}.parquet"
                path, files[name] = directory / kind / name, 0
                with pq.ParquetWriter(path, SCHEMAS[kind], use_dictionary=texts, write_page_checksum=True) as writer:
                    for begin in range(first, end, _GROUP_COUNT):
                        table = self._table(kind, begin, min(begin + _GROUP_COUNT, end), place)
                        writer.write_table(table, _GROUP_COUNT)
                        files[name] += len(table)
                        place += len(table)
            write_manifest(directory / kind, Manifest(kind, sum(files.values()), 1, files))

    def _table(self, kind: Kind, first: int, end: int, place: int) -> pa.Table:
        read = {Kind.JOURNAL: self.journaled, Kind.PUSHED: self.pushed}.get(kind, self.rows)
        sequences, codes, numbers, digests = read(first, end)
        columns = {"sequence": sequences, "number": numbers, "digest": digests}
        columns["place"] = np.arange(place, place + len(codes))
        if kind in (Kind.ACKNOWLEDGED, Kind.SETTLED):
            starts = np.flatnonzero((sequences == first) | ((sequences - 1) % _BATCH_COUNT == 0))
            ends = np.append(starts[1:], len(sequences)) - 1
            columns = {f"first_{name}": columns[name][starts] for name in ("number", "sequence")}
            columns |= {"last_number": numbers[ends], "last_sequence": sequences[ends], "place": sequences[ends]}
            codes = codes[starts]
        texts = {"stream": "bench", "subscription": "main", "life": _LIFE}
        arrays = {name: pa.repeat(pa.scalar(text), len(codes)) for name, text in texts.items()}
        arrays |= {name: pa.array(column) for name, column in columns.items()}
        arrays["source"] = self.names.take(pa.array(codes))
        arrays["redelivered"] = pa.repeat(pa.scalar(False), len(codes))
        return pa.table({name: arrays[name] for name in SCHEMAS[kind].names}, schema=SCHEMAS[kind])


def _audit(directory: Path, count: int, master: str, memory: str) -> int:
    """Run the audit; 0 if it found what was planted and nothing else."""
    command = [sys.executable, "-m", "veredus", "audit", str(directory / "recordings"), "-o", "json"]
    command += ["--master", master, "--memory", memory, "--into", str(directory / "report")]
    local = {"SPARK_LOCAL_DIRS": str(directory / "spark")}
    begun_s = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ | local, start_new_session=True) as process:
        memory_of = MemoryWatch(process.pid)
        memory_of.start()
        out, _ = process.communicate()
    seconds = time.monotonic() - begun_s
    peak = memory_of.stopped()
    said = json.loads(out)
    found = Counter(sample["violation"] for sample in said["samples"])
    print(f"audited: {count:,} publications in {seconds:.0f} s, {count / seconds:,.0f} a second")
    print(f"memory: {peak / _GIB:.2f} GiB at most, the JVM and Python together")
    print(f"found: {dict(found)}")
    if found == _PLANTED and process.returncode == _REFUTED:
        return 0
    print(f"should have found: {dict(_PLANTED)}; exit code {process.returncode}", file=sys.stderr)
    return 1


class MemoryWatch(threading.Thread):
    """The most memory that a process and all it started have had at one time, shared pages counted in shares."""

    def __init__(self, leader: int) -> None:
        super().__init__(daemon=True)
        self._leader = leader
        self._is_over = threading.Event()
        self._peak = 0

    def run(self) -> None:
        while not self._is_over.wait(0.5):
            self._peak = max(self._peak, sum(map(_proportional_size, _family(self._leader))))

    def stopped(self) -> int:
        self._is_over.set()
        self.join()
        return self._peak


def _family(leader: int) -> list[int]:
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    family = [leader]
    for member in family:
        family += [pid for pid, parent in parents.items() if parent == member]
    return family


def _proportional_size(pid: int) -> int:
    with suppress(OSError, StopIteration):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("Pss:")).split()[1]) * 1024
    return 0


if __name__ == "__main__":
    sys.exit(main())
