"""One life of one process writes down what it does; what a call has returned from outlives its death.

Each kind has a file of its own: an Arrow IPC stream, to which each call appends one record batch by one unbuffered
write. SIGKILL leaves at most a torn message at the end of a file, of a call that had not returned. Nothing is synced:
this is evidence against a node, and a power cut takes the witnesses along.

Invariants
    (1) The lives of one directory are ordered by name: each begins with a time in nanoseconds that is greater than
        those of all lives that were there when it began, wherever the clock has gone meanwhile.
    (2) `place` counts what was pushed to a life, from 1; a settlement's place is how many had been pushed before it.
Source: docs/reference/recordings.md.
"""

from __future__ import annotations

import os
import re
import secrets
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from veredus.delivery.arrays import constant_octets, numbers_array, text_array
from veredus.kernel.errors import Misuse, Refused
from veredus.kernel.octets import Octets

from .digests import digests_of
from .kinds import SCHEMAS, Kind

SUFFIX: Final = ".arrows"
_WHO: Final = re.compile(r"[A-Za-z0-9_.-]{1,100}")
_TIME_DIGITS: Final = 20

type_of_numbers = Sequence[int] | npt.NDArray[np.int64]


class Recording:
    """What one life of a source or subscriber wrote down, in `directory`. A context manager; any thread may call.

    A life begins when its recording is opened: open one before attaching, and another one after somebody else had the
    name in between.
    """

    def __init__(self, directory: str | os.PathLike[str], who: str) -> None:
        """Begin a life of `who` (A-Z, a-z, 0-9, `_`, `.`, `-`). Raises `Refused("bad-name")` and `OSError`."""
        if not isinstance(who, str) or not _WHO.fullmatch(who):
            raise Refused(
                "bad-name",
                f"{who!r:.60} cannot name a file: give 1 to 100 characters out of A-Z, a-z, 0-9, '_', '.' and '-'",
            )
        self._directory = Path(directory)
        self._directory.mkdir(parents=True, exist_ok=True)
        begun_ns = max(time.time_ns(), _latest_ns(self._directory) + 1)
        self.life: Final = f"{begun_ns:0{_TIME_DIGITS}}-{who}-{os.getpid()}-{secrets.token_hex(4)}"
        self._lock = threading.Lock()
        self._files: dict[Kind, int] = {}
        self._pushed_count = 0
        self._is_closed = False
        # The name that orders later lives must be there before anything is done under it.
        self._file(Kind.PUSHED)

    def offered(
        self,
        stream: str,
        source: str,
        first_number: int,
        keys: Sequence[Octets | str | None],
        bodies: Sequence[Octets | str | None],
    ) -> None:
        """Publications of consecutive numbers are about to be published."""
        count = _same_length(keys=keys, bodies=bodies)
        numbers = np.arange(first_number, first_number + count, dtype=np.int64)
        columns = [
            _constant(stream, count),
            _constant(source, count),
            _int64(numbers),
            _int64(digests_of(keys, bodies)),
        ]
        self._append(Kind.OFFERED, columns)

    def acknowledged(
        self, stream: str, source: str, first_number: int, last_number: int, first_sequence: int = 0
    ) -> None:
        """The node has taken these numbers, from `first_sequence` on without a hole; 0 where that is not known."""
        columns = [_constant(stream, 1), _constant(source, 1)]
        columns += [_int64([value]) for value in (first_number, last_number, first_sequence)]
        self._append(Kind.ACKNOWLEDGED, columns)

    def pushed(
        self,
        stream: str,
        subscription: str,
        sequences: type_of_numbers,
        sources: Sequence[str],
        numbers: type_of_numbers,
        *,
        redelivered: Sequence[bool] | bool,
        digests: type_of_numbers | None = None,
        keys: Sequence[Octets | str | None] = (),
        bodies: Sequence[Octets | str | None] = (),
    ) -> None:
        """Publications came, in this order, and none of them is settled yet: their digests, or keys and bodies.

        A source is "" where it is anonymous; `redelivered` may be one for all.
        """
        if digests is None:
            _same_length(keys=keys, bodies=bodies)
            digests = digests_of(keys, bodies)
        count = _same_length(sequences=sequences, sources=sources, numbers=numbers, digests=digests)
        flags = [redelivered] * count if isinstance(redelivered, bool | np.bool_) else redelivered
        _same_length(sequences=sequences, redelivered=flags)
        with self._lock:
            places = np.arange(self._pushed_count + 1, self._pushed_count + count + 1, dtype=np.int64)
            columns = [
                *self._subscription(stream, subscription, places),
                _int64(sequences),
                text_array(sources),
                _int64(numbers),
                _int64(digests),
                _bools(flags),
            ]
            self._write(Kind.PUSHED, columns)
            self._pushed_count += count

    def settled(self, stream: str, subscription: str, first_sequence: int, last_sequence: int) -> None:
        """The node has confirmed that these sequences are settled."""
        with self._lock:
            place = self._subscription(stream, subscription, [self._pushed_count])
            self._write(Kind.SETTLED, [*place, _int64([first_sequence]), _int64([last_sequence])])

    def gap(self, stream: str, subscription: str, first_sequence: int, last_sequence: int, code: str) -> None:
        """The node has said that these sequences cannot be had, and why: `damaged`, `trimmed`, `lost`."""
        with self._lock:
            place = self._subscription(stream, subscription, [self._pushed_count])
            columns = [*place, _int64([first_sequence]), _int64([last_sequence]), _constant(code, 1)]
            self._write(Kind.GAPS, columns)

    def close(self) -> None:
        """Nothing more will be written. Closing again does nothing."""
        with self._lock:
            self._is_closed = True
            while self._files:
                os.close(self._files.popitem()[1])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _subscription(self, stream: str, subscription: str, places: type_of_numbers) -> list[pa.Array]:
        count = len(places)
        texts = [_constant(text, count) for text in (stream, subscription, self.life)]
        return [*texts, _int64(places)]

    def _append(self, kind: Kind, columns: list[pa.Array]) -> None:
        with self._lock:
            self._write(kind, columns)

    def _write(self, kind: Kind, columns: list[pa.Array]) -> None:
        if self._is_closed:
            raise Misuse("closed", "this recording was closed: open another one for what comes now")
        batch = pa.RecordBatch.from_arrays(columns, schema=SCHEMAS[kind])
        _written(self._file(kind), batch.serialize(), self._path(kind))

    def _file(self, kind: Kind) -> int:
        if kind not in self._files:
            path = self._path(kind)
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o644)
            try:
                _written(file, SCHEMAS[kind].serialize(), path)
            except OSError:
                # What would be appended later could not be read without it.
                os.close(file)
                path.unlink()
                raise
            self._files[kind] = file
        return self._files[kind]

    def _path(self, kind: Kind) -> Path:
        return self._directory / f"{self.life}.{kind}{SUFFIX}"


def kind_and_life(path: Path) -> tuple[Kind, str] | None:
    """What the name of a file says that it holds, or None where it is no recording."""
    life, _, kind = path.name.removesuffix(SUFFIX).rpartition(".")
    if path.suffix != SUFFIX or kind not in set(Kind) or not life:
        return None
    return Kind(kind), life


def _latest_ns(directory: Path) -> int:
    begun = (path.name[:_TIME_DIGITS] for path in directory.glob(f"*{SUFFIX}"))
    return max((int(digits) for digits in begun if digits.isdecimal()), default=0)


def _written(file: int, message: pa.Buffer, path: Path) -> None:
    """Append a whole message, or nothing: what comes behind half a message could not be read."""
    before = os.fstat(file).st_size
    rest = memoryview(message)
    try:
        while rest:
            rest = rest[os.write(file, rest) :]
    except OSError as error:
        os.ftruncate(file, before)
        raise OSError(error.errno, error.strerror, str(path)) from error


def _same_length(**columns: Any) -> int:
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) != 1:
        raise Misuse("bad-lengths", f"the columns differ in length: {lengths}")
    return next(iter(lengths.values()))


def _constant(text: str, count: int) -> pa.Array:
    return constant_octets(text.encode(), count, pa.string())


def _int64(values: type_of_numbers) -> pa.Array:
    return numbers_array(np.ascontiguousarray(values, dtype=np.int64), pa.int64())


def _bools(flags: Sequence[bool]) -> pa.Array:
    bits = np.packbits(np.asarray(flags, np.bool_), bitorder="little")
    return pa.Array.from_buffers(pa.bool_(), len(flags), [None, pa.py_buffer(bits)])
