"""What the audit is given: recordings of each side, checked before anything rests on them.

A side is as good as what says that it is whole: a manifest that names its files and their rows, or Spark's `_SUCCESS`.
What is not there, or not known to be there, is said in `Side.doubts`, and no guarantee that rests on it is proved.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from os import PathLike
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from veredus.kernel.errors import Refused, field_fault
from veredus.recording import SCHEMAS, Kind, Manifest
from veredus.recording.conversion import MANIFEST

type_of_path = str | PathLike[str]
SPLIT: Final = "split"
"""Which stretch of a file a row is of: what a task reads of several has no order."""
_SUCCESS: Final = "_SUCCESS"
_PATTERN: Final = re.compile(r"[\\*?\[\]{}]")
_RANGE_MAX: Final = 1 << 40
_WIDENED: Final = {pa.large_string(): pa.string(), pa.string_view(): pa.string()}


@dataclass(frozen=True)
class NodeJournal:
    """Streams of a node, which is read as the side `journal`; `options` are those of the format `veredus`."""

    address: str
    streams: tuple[str, ...]
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Evidence:
    """Where each side is: a directory of Parquet (docs/reference/recordings.md), or None where there is none.

    `covers` says, by (stream, subscription), which of the journal's publications a subscription should have got: a
    condition of Spark SQL over stream, sequence, source, number and digest. It is all of them for one that is not
    named, and one that is named must have got them even where it wrote down nothing.
    """

    offered: type_of_path | None = None
    acknowledged: type_of_path | None = None
    journal: type_of_path | NodeJournal | None = None
    pushed: type_of_path | None = None
    settled: type_of_path | None = None
    gaps: type_of_path | None = None
    covers: Mapping[tuple[str, str], str] = field(default_factory=dict)
    origin: str = ""
    """Where it was gathered, where that is another place than the sides' own."""

    @classmethod
    def in_directory(cls, directory: type_of_path, covers: Mapping[tuple[str, str], str] | None = None) -> Evidence:
        """The sides that have a directory of their name in `directory`. Raises `Refused("bad-option")` for none."""
        found = {kind.value: Path(directory) / kind for kind in Kind if (Path(directory) / kind).is_dir()}
        if not found:
            message = (
                f"{directory}: there are no recordings (*.arrows) and none of the directories {', '.join(Kind)} in it"
            )
            raise Refused("bad-option", f"{message}; give the directory that Recording has written to")
        sides: dict[str, Any] = {**found, "covers": covers or {}}
        return cls(**sides)

    def paths(self) -> dict[Kind, type_of_path]:
        """The sides that are directories."""
        given = {Kind(side.name): getattr(self, side.name) for side in fields(self) if side.name in set(Kind)}
        return {kind: path for kind, path in given.items() if path is not None and not isinstance(path, NodeJournal)}

    def told(self) -> dict[str, str]:
        """What was judged, for people: by side its directory, or the node and its streams."""
        journal = self.journal
        told = {"evidence": str(Path(self.origin).absolute())} if self.origin else {}
        told |= {str(kind): str(Path(path).absolute()) for kind, path in self.paths().items() if not self.origin}
        if isinstance(journal, NodeJournal):
            told["journal"] = f"{journal.address}: {', '.join(journal.streams)}"
        return told


@dataclass(frozen=True)
class Side:
    """One side's rows, with the columns of its kind, and why it may not be all of them."""

    kind: Kind
    rows: DataFrame
    row_count: int
    doubts: tuple[str, ...] = ()


def side_of(spark: SparkSession, kind: Kind, path: type_of_path) -> Side:
    """The Parquet in a directory as a side.

    Raises `Refused("damaged")` with the file that is no sound Parquet, and `Refused("bad-schema")` with the file and
    the column that is missing or of another type.
    """
    directory, system, base = _place_of(path)
    names = _names_in(system, base, directory)
    manifest = _manifest(system, f"{base}/{MANIFEST}") if MANIFEST in names else None
    files = sorted(name for name in names if not name.startswith(("_", ".")))
    doubts: list[str] = []
    if manifest is not None:
        if manifest.kind != kind:
            raise Refused("bad-schema", f"{directory}/{MANIFEST}: the manifest is for {manifest.kind}, not for {kind}")
        missing = sorted(set(manifest.files) - set(files))
        if missing:
            doubts.append(
                f"{directory}: {len(missing)} of {len(manifest.files)} files are missing, such as {missing[0]}"
            )
        files = [name for name in files if name in manifest.files]
    elif _SUCCESS not in names:
        doubts.append(f"{directory}: there is no {MANIFEST} or {_SUCCESS}, so files may be missing")
    row_counts = {name: _checked(system, f"{base}/{name}", f"{directory}/{name}", kind) for name in files}
    if manifest is not None:
        doubts += [
            f"{directory}/{name}: the file has {row_counts[name]} rows, and the manifest says {manifest.files[name]}"
            for name in files
            if row_counts[name] != manifest.files[name]
        ]
    reader = spark.read.schema(_columns(kind)).option("parquet.page.verify-checksum.enabled", "true")
    # Spark reads a path as a pattern: what it stands for must be this file and no other.
    paths = [_PATTERN.sub(r"\\\g<0>", f"{directory}/{name}") for name in files]
    if files:
        rows = reader.parquet(*paths).withColumn(SPLIT, f.xxhash64("_metadata.file_path", "_metadata.file_block_start"))
    else:
        rows = spark.createDataFrame([], _columns(kind)).withColumn(SPLIT, f.lit(0).cast("bigint"))
    return Side(kind, _normal(kind, rows), sum(row_counts.values()), tuple(doubts))


def check_ranges(side: Side, path: type_of_path) -> None:
    """Raise `Refused("bad-schema")` where a side of ranges, or places, has one that makes no sense, which is shown."""
    if side.kind not in (Kind.SETTLED, Kind.GAPS):
        return
    names = SCHEMAS[side.kind].names
    size = f.col("last_sequence") - f.col("first_sequence")
    is_sound = (size >= 0) & (size < _RANGE_MAX) & (f.col("first_sequence") >= 0)
    for name in names:
        is_sound &= f.col(name).isNotNull()
    found = side.rows.where(~f.coalesce(is_sound, f.lit(False))).select(*names).limit(1).collect()
    if found:
        row = ", ".join(f"{name} {value}" for name, value in found[0].asDict().items())
        raise Refused("bad-schema", f"{path}: a row of {side.kind} is not valid: {row}")


def fetched_journal(spark: SparkSession, journal: NodeJournal, into: Path) -> Side:
    """The streams of a node, read once and kept as Parquet in `into`: evidence does not change while it is judged."""
    from veredus.spark import register

    register(spark)
    for stream in dict.fromkeys(journal.streams):
        options = {"address": journal.address, "stream": stream, **journal.options}
        read = spark.read.format("veredus").schema(
            "sequence bigint, source string, number bigint, key binary, body binary"
        )
        rows = read.options(**options).load()
        rows = rows.withColumns({"stream": f.lit(stream), "digest": f.xxhash64("key", "body")})
        rows.select(*SCHEMAS[Kind.JOURNAL].names).write.mode("append").parquet(str(into))
    return side_of(spark, Kind.JOURNAL, into)


def _columns(kind: Kind) -> str:
    types = {pa.string(): "string", pa.int64(): "bigint", pa.bool_(): "boolean"}
    return ", ".join(f"{column.name} {types[column.type]}" for column in SCHEMAS[kind])


def _normal(kind: Kind, rows: DataFrame) -> DataFrame:
    """The columns of a kind, and SPLIT. What has no source has the source "", and its sequence as its number."""
    columns = {name: f.col(name) for name in (*SCHEMAS[kind].names, SPLIT)}
    if kind in (Kind.JOURNAL, Kind.PUSHED):
        is_anonymous = f.coalesce(f.col("source"), f.lit("")) == ""
        columns["number"] = f.when(is_anonymous, f.col("sequence")).otherwise(f.col("number"))
        columns["source"] = f.coalesce(f.col("source"), f.lit(""))
    return rows.select(*(column.alias(name) for name, column in columns.items()))


def _place_of(path: type_of_path) -> tuple[str, pafs.FileSystem, str]:
    text = str(path).rstrip("/")
    if "://" not in text and not text.startswith("file:/"):
        absolute = str(Path(text).absolute())
        return absolute, pafs.LocalFileSystem(), absolute
    try:
        system, base = pafs.FileSystem.from_uri(text.replace("s3a://", "s3://", 1))
    except pa.ArrowInvalid as error:
        message = f"{text}: cannot be read ({error}): give a directory, or hdfs://…, s3a://…, file:///…"
        raise Refused("bad-option", message) from None
    except OSError as error:
        raise _unreadable(error, text) from error
    return text, system, base


def _unreadable(error: OSError, shown: str) -> OSError:
    """The error with what could not be read, in one line."""
    return OSError(error.errno or 0, f"cannot be read: {_line_of(error)}", shown)


def _line_of(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__).rstrip()


def _names_in(system: pafs.FileSystem, base: str, directory: str) -> set[str]:
    try:
        if system.get_file_info(base).type is not pafs.FileType.Directory:
            raise Refused("bad-option", f"{directory}: this is not a directory of recordings")
        listed = system.get_file_info(pafs.FileSelector(base))
    except OSError as error:
        raise _unreadable(error, directory) from error
    return {info.base_name for info in listed if info.type is pafs.FileType.File}


def _manifest(system: pafs.FileSystem, path: str) -> Manifest:
    with system.open_input_stream(path) as stream:
        try:
            return msgspec.json.decode(stream.read(), type=Manifest)
        except msgspec.DecodeError as error:
            raise Refused("damaged", f"{path}: not a valid manifest: {field_fault(error)}") from None


def _checked(system: pafs.FileSystem, path: str, shown: str, kind: Kind) -> int:
    """The rows of a file that has the columns of its kind."""
    try:
        metadata = pq.read_metadata(path, filesystem=system)
        found = metadata.schema.to_arrow_schema()
    except PermissionError as error:
        raise _unreadable(error, shown) from error
    except (pa.ArrowException, OSError) as error:
        raise Refused("damaged", f"{shown}: the Parquet file is damaged: {_line_of(error)}") from None
    for wanted in SCHEMAS[kind]:
        index = found.get_field_index(wanted.name)
        if index < 0:
            raise Refused("bad-schema", f"{shown}: the column {wanted.name} of {kind} is missing")
        type_ = found.field(index).type
        if _WIDENED.get(type_, type_) != wanted.type:
            raise Refused("bad-schema", f"{shown}: column {wanted.name} is {type_}, not {wanted.type}")
    return int(metadata.num_rows)
