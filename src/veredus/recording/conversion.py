"""The recordings of any number of lives become Parquet: one directory a kind, each with a manifest of what is in it.

    into/offered/part-00000.parquet …  into/offered/_manifest.json

Lives follow one another in their order and each keeps its own, so that the audit meets what it has to compare in order.
All of it appears at once, under its final name. Memory holds one part's last row group, however much there is.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from veredus.kernel.errors import Refused, field_fault

from .kinds import SCHEMAS, Kind
from .writing import SUFFIX, kind_and_life

MANIFEST: Final = "_manifest.json"
"""In each directory; Spark reads no file that begins so."""
_ROWS_PER_GROUP: Final = 262_144
_ROWS_PER_PART: Final = 16 * _ROWS_PER_GROUP
_TEXTS: Final = [pa.string()]
_MARK: Final = b"\xff\xff\xff\xff"
_BEGINNING_SIZE: Final = len(_MARK) + 4
_METADATA_SIZE_MAX: Final = 1 << 16


class Manifest(msgspec.Struct, frozen=True):
    """What a directory of one kind holds: by it the audit sees that something is missing."""

    kind: Kind
    rows: int
    lives: int
    files: dict[str, int]
    """The rows of each file."""
    torn: int = 0
    """Lives that ended in the middle of a call."""
    version: int = 1


def to_parquet(directory: str | os.PathLike[str], into: str | os.PathLike[str]) -> dict[Kind, Manifest]:
    """Bring the recordings in `directory` together as Parquet in `into`, which must not be there yet.

    What is no journal: that is read from the node. Raises `Refused("damaged")` with the file and the place where one
    cannot be read, `Refused("bad-schema")` for one of other columns, and `OSError`.
    """
    source, target = Path(directory), Path(into)
    lives: dict[Kind, list[Path]] = {kind: [] for kind in Kind if kind is not Kind.JOURNAL}
    for path in sorted(source.glob(f"*{SUFFIX}")):
        found = kind_and_life(path)
        if found is None or found[0] not in lives:
            raise Refused("bad-schema", f"{path}: its name is not that of a recording of any kind")
        lives[found[0]].append(path)
    if not any(lives.values()):
        raise Refused("bad-schema", f"{source}: there are no recordings (*{SUFFIX}) in it")
    if target.exists():
        raise FileExistsError(17, "exists already", str(target))
    target.parent.mkdir(parents=True, exist_ok=True)
    half_done = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        manifests = {kind: _convert(kind, paths, half_done / kind) for kind, paths in lives.items()}
        half_done.rename(target)
    finally:
        shutil.rmtree(half_done, ignore_errors=True)
    return manifests


def manifest_of(directory: str | os.PathLike[str]) -> Manifest | None:
    """What should be in a directory of Parquet, or None where nobody has said. Raises `Refused("damaged")`."""
    path = Path(directory) / MANIFEST
    try:
        return msgspec.json.decode(path.read_bytes(), type=Manifest)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise Refused("damaged", f"{path}: not a valid manifest: {field_fault(error)}") from None


def write_manifest(directory: Path, manifest: Manifest) -> None:
    """Say what is in a directory of Parquet that was written otherwise."""
    (directory / MANIFEST).write_bytes(msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n")


def _convert(kind: Kind, paths: list[Path], directory: Path) -> Manifest:
    directory.mkdir(parents=True)
    parts = _Parts(kind, directory)
    torn = 0
    for path in paths:
        reading = _Reading(path, kind)
        for batch in reading.batches():
            parts.add(batch)
        torn += reading.is_torn
    manifest = Manifest(kind, *parts.closed(len(paths)), torn=torn)
    write_manifest(directory, manifest)
    return manifest


class _Reading:
    """One life's file. A message that ends with the file before it is whole is of a call that never returned.

    Nothing follows such a one: where whole messages do, a damaged size has swallowed them.
    """

    def __init__(self, path: Path, kind: Kind) -> None:
        self._path = path
        self._kind = kind
        self.is_torn = False

    def batches(self) -> Iterator[pa.RecordBatch]:
        with pa.OSFile(str(self._path)) as file:
            size, offset = file.size(), 0
            try:
                if not _is_beginning(file.read(_BEGINNING_SIZE)):
                    raise self._damaged(offset, "no message begins there")
                file.seek(0)
                reader = pa.ipc.open_stream(file)
                if reader.schema != SCHEMAS[self._kind]:
                    raise Refused(
                        "bad-schema", f"{self._path}: its columns are not those of {self._kind}: {reader.schema}"
                    )
                while True:
                    offset = file.tell()
                    if offset == size:
                        return
                    if not _is_beginning(file.read(_BEGINNING_SIZE)):
                        raise self._damaged(offset, "no message begins there")
                    file.seek(offset)
                    batch = reader.read_next_batch()
                    batch.validate(full=True)
                    yield batch
            except StopIteration:
                raise self._damaged(offset, "the end mark is followed by more bytes") from None
            except (pa.ArrowException, OSError) as error:
                # What promises more bytes than there are was torn off; all else is wrong in itself.
                if file.tell() < size or self._goes_on_behind(file, offset):
                    raise self._damaged(offset, str(error)) from None
                self.is_torn = True

    def _goes_on_behind(self, file: pa.NativeFile, offset: int) -> bool:
        file.seek(offset)
        rest = file.read()
        begins = rest.find(_MARK, 1)
        while begins >= 0:
            with suppress(pa.ArrowException, OSError):
                pa.ipc.read_record_batch(pa.py_buffer(rest[begins:]), SCHEMAS[self._kind]).validate(full=True)
                return True
            begins = rest.find(_MARK, begins + 1)
        return False

    def _damaged(self, offset: int, reason: str) -> Refused:
        return Refused("damaged", f"{self._path}: cannot be read from offset {offset} on: {reason}")


def _is_beginning(octets: bytes) -> bool:
    """Whether a message of ours, or what a torn write left of it, may begin so: the mark, then a size."""
    mark, size = octets[: len(_MARK)], octets[len(_MARK) :]
    return _MARK.startswith(mark) and (len(size) < 4 or int.from_bytes(size, "little") <= _METADATA_SIZE_MAX)


class _Parts:
    """Parquet files of one kind, one after the other."""

    def __init__(self, kind: Kind, directory: Path) -> None:
        self._schema = SCHEMAS[kind]
        self._directory = directory
        self._files: dict[str, int] = {}
        self._writer: pq.ParquetWriter | None = None
        self._gathered: list[pa.RecordBatch] = []
        self._gathered_count = 0

    def add(self, batch: pa.RecordBatch) -> None:
        self._gathered.append(batch)
        self._gathered_count += len(batch)
        if self._gathered_count >= _ROWS_PER_GROUP:
            self._write()

    def closed(self, life_count: int) -> tuple[int, int, dict[str, int]]:
        """How many rows there are, of how many lives, in which files."""
        if self._gathered or not self._files:
            self._write()
        self._close()
        return sum(self._files.values()), life_count, self._files

    def _write(self) -> None:
        name = f"part-{len(self._files) - (self._writer is not None):05}.parquet"
        if self._writer is None:
            self._writer = pq.ParquetWriter(
                self._directory / name,
                self._schema,
                use_dictionary=[field.name for field in self._schema if field.type in _TEXTS],
                write_page_checksum=True,
            )
            self._files[name] = 0
        self._writer.write_table(pa.Table.from_batches(self._gathered, self._schema), _ROWS_PER_GROUP)
        self._files[name] += self._gathered_count
        self._gathered, self._gathered_count = [], 0
        if self._files[name] >= _ROWS_PER_PART:
            self._close()

    def _close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
