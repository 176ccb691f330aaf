"""Arrow arrays out of Python lists and numpy, and back: of one type, and checked.

`pyarrow.array`, `pyarrow.scalar` and `Array.to_numpy` import pandas, where that is installed, when one of them is first
called: up to half a second in the middle of a source's first publications. Beside them numbers and repeated words are
made here in about half the time; text and bytes of many sizes take some 10 ns a value longer, and values among nulls
twice as long.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from veredus.kernel.octets import Octets, octets_of

from .publication import FLOAT_INTEGER_MAX, UNIX_EPOCH, AttributeValue, in_dates, microseconds_of

TIMESTAMP = pa.timestamp("us", tz="UTC")
_BINARY = pa.binary()
_TEXT = pa.string()
_INT64 = pa.int64()
_FLOAT64 = pa.float64()
_BOOL = pa.bool_()
_SIZE_MAX = (1 << 31) - 1
_SAMPLE_COUNT = 64
_WORDS_SHARE = 4
"""Text that has at most a word for each so many rows is written as a dictionary."""


def int64_array(values: Sequence[int]) -> pa.Array:
    """These integers; raises `ValueError` where one does not fit."""
    try:
        octets = struct.pack(f"<{len(values)}q", *values)
    except struct.error as error:
        raise ValueError(f"integers must fit 64 bits: {error}") from None
    return pa.Array.from_buffers(_INT64, len(values), [None, pa.py_buffer(octets)])


def octets_array(values: Sequence[Octets | str]) -> pa.Array:
    """These bytes, and text as UTF-8. Raises `TypeError` for what is neither, `ValueError` where they are too many."""
    try:
        return _joined(_BINARY, b"".join(values), values)  # type: ignore[arg-type]
    except (TypeError, _OtherSize):
        octets = [octets_of(value) for value in values]
        return _joined(_BINARY, b"".join(octets), octets)


def octets_scalar(value: bytes) -> pa.Scalar:
    """These bytes, to be compared with a column."""
    return octets_array((value,))[0]


def text_array(values: Sequence[str]) -> pa.Array:
    """These texts. Raises `ValueError` for what is no Unicode, as a lone surrogate."""
    joined = "".join(values)
    if joined.isascii():
        return _joined(_TEXT, joined.encode(), values)
    octets = list(map(str.encode, values))
    return _joined(_TEXT, b"".join(octets), octets)


class _OtherSize(ValueError):
    """The elements of a buffer are no bytes."""


def _joined(kind: pa.DataType, octets: bytes, values: Sequence[Octets | str]) -> pa.Array:
    count = len(values)
    if len(octets) > _SIZE_MAX:
        raise ValueError(f"a column may have at most {_SIZE_MAX} bytes, these are {len(octets)}")
    sizes = list(map(len, values))
    if count and sizes.count(sizes[0]) == count:
        offsets = _even_offsets(sizes[0], count)
    else:
        # numpy takes twice as long for a list of integers.
        offsets = np.frombuffer(struct.pack(f"<{count + 1}i", 0, *sizes), np.int32).cumsum(dtype=np.int32)
    if offsets[-1] != len(octets):
        raise _OtherSize
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(offsets), pa.py_buffer(octets)])


def _even_offsets(size: int, count: int) -> npt.NDArray[np.int32]:
    return np.arange(count + 1, dtype=np.int32) * np.int32(size)


def worded_array(values: Sequence[str]) -> pa.Array:
    """These texts; as a dictionary, in the order of its words, where they are a few over and over."""
    first = values[0]
    if values[-1] == first and values.count(first) == len(values):
        return repeated(text_array((first,)), len(values))
    if len(set(values[:_SAMPLE_COUNT])) > _SAMPLE_COUNT // _WORDS_SHARE:
        return text_array(values)
    words = set(values)
    if len(words) > len(values) // _WORDS_SHARE:
        return text_array(values)
    ordered = sorted(words)
    code_of = dict(zip(ordered, range(len(ordered)), strict=True))
    codes = struct.pack(f"<{len(values)}i", *map(code_of.__getitem__, values))
    indices = pa.Array.from_buffers(pa.int32(), len(values), [None, pa.py_buffer(codes)])
    return pa.DictionaryArray.from_arrays(indices, text_array(ordered), safe=False)


def repeated(value: pa.Array, count: int) -> pa.Array:
    """The only value of this array `count` times over, as a dictionary of one."""
    codes = pa.Array.from_buffers(pa.int32(), count, [None, pa.py_buffer(np.zeros(count, np.int32))])
    return pa.DictionaryArray.from_arrays(codes, value, safe=False)


def _float64_array(values: Sequence[float]) -> pa.Array:
    octets = struct.pack(f"<{len(values)}d", *values)
    return pa.Array.from_buffers(_FLOAT64, len(values), [None, pa.py_buffer(octets)])


def _bool_array(values: Sequence[bool]) -> pa.Array:
    return pa.Array.from_buffers(_BOOL, len(values), [None, _bits(values)])


def _timestamp_array(values: Sequence[datetime]) -> pa.Array:
    return int64_array(list(map(microseconds_of, values))).view(TIMESTAMP)


def _bits(values: Sequence[bool]) -> pa.Buffer:
    flags: npt.NDArray[np.bool_] = np.fromiter(values, np.bool_, len(values))
    return pa.py_buffer(np.packbits(flags, bitorder="little"))


_MAKERS: dict[type, tuple[pa.DataType, Callable[[Sequence[Any]], pa.Array], Any]] = {
    bool: (_BOOL, _bool_array, False),
    int: (_INT64, int64_array, 0),
    float: (_FLOAT64, _float64_array, 0.0),
    str: (_TEXT, worded_array, ""),
    bytes: (_BINARY, octets_array, b""),
    datetime: (TIMESTAMP, _timestamp_array, UNIX_EPOCH),
}
"""By the type of a value: that of its array, what makes one, and what stands where there is no value."""
KINDS = ", ".join(kind.__name__ for kind in _MAKERS)


def typed_array(values: Sequence[AttributeValue | None]) -> pa.Array:
    """These values, None as null: integers beside floats as floats where that is exact, else all of one type.

    Only nulls make an array of null texts. Raises `ValueError` for other mixtures, for what no attribute may hold, for
    an integer beyond 64 bits, and for a time without a zone.
    """
    kind = type(values[0])
    # Counting is much faster than making a set of them.
    if kind in _MAKERS and list(map(type, values)).count(kind) == len(values):
        return _MAKERS[kind][1](values)
    kinds = dict.fromkeys(map(type, values))
    kinds.pop(type(None), None)
    if not kinds:
        return pa.nulls(len(values), _TEXT)
    if len(kinds) == 2 and int in kinds and float in kinds:
        values, kinds = _floats(values), {float: None}
    (kind, *others) = kinds
    if others or kind not in _MAKERS:
        found = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise ValueError(f"values of types {found}: a batch has one type for each attribute, out of {KINDS}")
    return _with_nulls(kind, values)


def _floats(values: Sequence[Any]) -> list[float | None]:
    for value in values:
        if type(value) is int and not -FLOAT_INTEGER_MAX <= value <= FLOAT_INTEGER_MAX:
            raise ValueError(f"{value} is mixed with floats and is not exactly a float")
    return [None if value is None else float(value) for value in values]


def _with_nulls(kind: type, values: Sequence[Any]) -> pa.Array:
    valid = [value is not None for value in values]
    arrow_type, make, blank = _MAKERS[kind]
    array = make([blank if value is None else value for value in values])
    if all(valid):
        return array
    null_count = len(valid) - sum(valid)
    if pa.types.is_dictionary(array.type):
        indices = _under_bits(array.indices, pa.int32(), valid, null_count)
        return pa.DictionaryArray.from_arrays(indices, array.dictionary, safe=False)
    return _under_bits(array, arrow_type, valid, null_count)


def _under_bits(array: pa.Array, kind: pa.DataType, valid: list[bool], null_count: int) -> pa.Array:
    _, *buffers = array.buffers()
    return pa.Array.from_buffers(kind, len(valid), [_bits(valid), *buffers], null_count)


# ── numpy and constants ──────────────────────────────────────────────────────────────────────────────────────────────

_DTYPES: dict[pa.DataType, str] = {
    pa.int32(): "<i4",
    pa.uint32(): "<u4",
    _INT64: "<i8",
    _FLOAT64: "<f8",
    TIMESTAMP: "<i8",
}


def numbers_of(array: pa.Array) -> npt.NDArray[Any]:
    """The numbers of an array on its own memory, timestamps as microseconds; what stands under a null is any number."""
    buffer = array.buffers()[1]
    if buffer is None or not len(array):
        return np.zeros(0, _DTYPES[array.type])
    dtype = np.dtype(_DTYPES[array.type])
    return np.frombuffer(buffer, dtype, len(array), array.offset * dtype.itemsize)


def validity_of(array: pa.Array) -> npt.NDArray[np.bool_]:
    """True for each row that is not null."""
    bits = array.buffers()[0]
    if bits is None:
        return np.ones(len(array), np.bool_)
    end = array.offset + len(array)
    flags = np.unpackbits(np.frombuffer(bits, np.uint8), count=end, bitorder="little")
    return flags[array.offset :].view(np.bool_)


def filled_numbers_of(array: pa.Array, number: int) -> npt.NDArray[Any]:
    """As `numbers_of`, with `number` under each null."""
    numbers = numbers_of(array)
    return np.where(validity_of(array), numbers, numbers.dtype.type(number)) if array.null_count else numbers


def numbers_array(numbers: npt.NDArray[Any], kind: pa.DataType) -> pa.Array:
    """An array of `kind` on the memory of contiguous `numbers`, which are as wide."""
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(numbers)])


def constant_octets(value: bytes, count: int, kind: pa.DataType = _BINARY) -> pa.Array:
    """`value` in each of `count` rows, as bytes or, where `kind` is string, as text."""
    size = len(value)
    if size * count > _SIZE_MAX:
        raise ValueError(f"a column may have at most {_SIZE_MAX} bytes, these are {size * count}")
    offsets = _even_offsets(size, count)
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(offsets), pa.py_buffer(value * count)])


def constant_time(microseconds: int, count: int) -> pa.Array:
    """One timestamp in each of `count` rows; the nearest that is one in the years 1 to 9999."""
    return numbers_array(np.full(count, in_dates(microseconds), np.int64), TIMESTAMP)


def plain_array(array: pa.Array) -> pa.Array:
    """The array without its dictionary, if it has one."""
    if not pa.types.is_dictionary(array.type):
        return array
    words = array.dictionary
    if len(words) == 1 and not array.indices.null_count and not words.null_count:
        return constant_octets(_first_octets(words), len(array), words.type)
    return array.dictionary_decode()


def _first_octets(words: pa.Array) -> bytes:
    value = words[0].as_py()
    return value.encode() if isinstance(value, str) else value
