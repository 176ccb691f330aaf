"""Rows as boolean masks: what every test of this floor gives back, and how Arrow's bitmaps become one.

A mask is a numpy array of bool, one element a row, true where the row is wanted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from veredus.delivery.arrays import filled_numbers_of
from veredus.kernel.errors import Misuse
from veredus.kernel.lazily import pc

T = TypeVar("T", bound=np.generic)
Mask: TypeAlias = npt.NDArray[np.bool_]


def mask_of(flags: pa.BooleanArray) -> Mask:
    """The values of an Arrow boolean array as a mask; what stands at a null is arbitrary."""
    count = len(flags)
    if count == 0:
        return np.zeros(0, np.bool_)
    start = flags.offset
    octets = np.frombuffer(flags.buffers()[1], np.uint8)
    bits = np.unpackbits(octets, count=start + count, bitorder="little")
    return bits[start:].view(np.bool_)


def validity_of(array: pa.Array) -> Mask | None:
    """Where `array` is not null, or None if it nowhere is."""
    return None if array.null_count == 0 else mask_of(array.is_valid())


def true_where_valid(flags: pa.BooleanArray) -> Mask:
    """The values of an Arrow boolean array as a mask, with nulls as false."""
    mask = mask_of(flags)
    valid = validity_of(flags)
    return mask if valid is None else mask & valid


def fixed_width(array: pa.Array, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """The values of a fixed-width array without nulls' meaning: `len(array)` elements of `dtype`, not copied."""
    width = np.dtype(dtype).itemsize
    if len(array) == 0:
        return np.zeros(0, dtype)
    return np.frombuffer(array.buffers()[1], dtype, count=len(array), offset=array.offset * width)


def binary_of(array: pa.Array) -> pa.BinaryArray:
    """Text or bytes of any Arrow layout as a plain binary array; `string` and `binary` are not copied."""
    kind = array.type
    if pa.types.is_binary(kind):
        return array
    if _is_textual(kind):
        return array.cast(pa.binary())
    raise Misuse("bad-column", f"keys must be binary or text, not {kind}")


def as_text(array: pa.BinaryArray) -> pa.StringArray:
    """The same memory under the type `string`, so that Arrow's RE2 reads it as UTF-8; nothing is validated."""
    return array.cast(pa.string(), safe=False)


def is_worth_spreading(array: pa.Array) -> bool:
    """Whether testing the dictionary of `array` and spreading the answers is less work than testing the rows."""
    return pa.types.is_dictionary(array.type) and len(array.dictionary) < len(array)


def spread(array: pa.DictionaryArray, test: Callable[[pa.Array], npt.NDArray[T]]) -> npt.NDArray[T]:
    """Try `test` once for each distinct value of `array` (and once for null) and give each row its value's answer."""
    indices = array.indices
    values = array.dictionary
    if indices.null_count:
        values = pa.concat_arrays([values, pa.nulls(1, values.type)])
        codes = filled_numbers_of(indices.cast(pa.int64()), len(array.dictionary))
    else:
        codes = fixed_width(indices, indices.type.to_pandas_dtype())
    spread_answers: npt.NDArray[T] = test(values).take(codes)
    return spread_answers


def has_octets(kind: pa.DataType) -> bool:
    """Whether values of this type are text or bytes, also those of a dictionary."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_binary(kind)) or _is_textual(kind)


def sizes_of(array: pa.Array) -> npt.NDArray[np.int64]:
    """How many octets each row of text or bytes has; any number where it is null."""
    if pa.types.is_dictionary(array.type):
        return spread(array, sizes_of)
    return fixed_width(pc.binary_length(binary_of(array)), np.int32).astype(np.int64)


def _is_textual(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_string_view(kind)
        or pa.types.is_binary_view(kind)
        or pa.types.is_fixed_size_binary(kind)
    )
