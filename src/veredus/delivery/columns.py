"""The columnar payload: Arrow's own buffers, each behind a descriptor, taken and given without copying.

    u16 column_count | u16 0 | u32 names_size
    column_count descriptors of 16 bytes:
        u8 role | u8 type | u8 encoding | u8 has_nulls | u16 name_size | u16 0 | u32 size | u32 dictionary_count
    names, UTF-8, joined, padded to 8
    the columns' data, in order; in it each buffer is padded to 8:
        [validity bitmap] values                        fixed width
        [validity bitmap] offsets (int32) bytes         text and bytes, plain
        [validity bitmap] codes (int32) offsets bytes   text and bytes, dictionary

Everything little-endian. Source: docs/internals/DESIGN.md, "Batches"; the Arrow columnar format.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from veredus.kernel.errors import PeerFault
from veredus.kernel.lazily import pc
from veredus.kernel.octets import ALIGNMENT, Octets, aligned, padding

from .arrays import TIMESTAMP, filled_numbers_of, numbers_array, numbers_of
from .publication import (
    ATTRIBUTE_NAME_SIZE_MAX,
    TIMESTAMP_MAX_US,
    TIMESTAMP_MIN_US,
    Columns,
)

_HEAD = struct.Struct("<HHI")
_DESCRIPTOR = struct.Struct("<BBBBHHII")


class Role(IntEnum):
    """What a column is to a publication."""

    KEY = 1
    BODY = 2
    EVENT_TIME = 3
    ATTRIBUTE = 4
    ROW = 5


class Encoding(IntEnum):
    """How a text or bytes column is written."""

    PLAIN = 0
    DICTIONARY = 1


_TYPES = (pa.binary(), pa.string(), pa.bool_(), pa.int64(), pa.float64(), TIMESTAMP, pa.uint32())
_TYPE_CODES = {kind: code for code, kind in enumerate(_TYPES)}
_BYTES, _TEXT, _BOOL, _INT64, _, _TIMESTAMP, _UINT32 = range(7)
_WIDTHS = {_INT64: 8, 4: 8, _TIMESTAMP: 8, _UINT32: 4}


class _Descriptor(NamedTuple):
    role: int
    type_code: int
    encoding: int
    has_nulls: int
    name_size: int
    reserved: int
    size: int
    dictionary_count: int


def encode_columns(columns: Columns) -> list[Octets]:
    """The payload of these columns, as buffers to be joined.

    Raises `PeerFault("bad-publication")`, which names the column, where an array has not the type that `Columns` names,
    a null where none may be, a timestamp that is no date, or a name that is too long.
    """
    described: list[tuple[Role, str, pa.Array]] = [(Role.KEY, "", columns.keys), (Role.BODY, "", columns.bodies)]
    if columns.event_times_us is not None:
        described.append((Role.EVENT_TIME, "", columns.event_times_us))
    described.extend((Role.ATTRIBUTE, name, array) for name, array in columns.attributes.items())
    if columns.rows is not None:
        described.append((Role.ROW, "", numbers_array(columns.rows, pa.uint32())))
    descriptors = bytearray()
    names = bytearray()
    data: list[Octets] = []
    for role, name, given in described:
        array = _writable(role, name, given)
        parts, encoding, has_nulls, dictionary_count = _encode_array(array)
        name_octets = name.encode()
        size = sum(map(len, parts))
        kind = array.type.value_type if encoding else array.type
        descriptors += _DESCRIPTOR.pack(
            role, _TYPE_CODES[kind], encoding, has_nulls, len(name_octets), 0, size, dictionary_count
        )
        names += name_octets
        data += parts
    head = _HEAD.pack(len(described), 0, len(names))
    return [head, descriptors, names, padding(len(names)), *data]


def _writable(role: Role, name: str, array: pa.Array) -> pa.Array:
    """The array, if a column of this role can hold it; decoded where its dictionary has nulls of its own."""
    is_dictionary = pa.types.is_dictionary(array.type)
    if is_dictionary and array.dictionary.null_count:
        array, is_dictionary = array.dictionary_decode(), False
    kind = array.type.value_type if is_dictionary else array.type
    code = _TYPE_CODES.get(kind)
    column = f"attribute {name!r}" if role == Role.ATTRIBUTE else f"the {role.name.lower()} column"
    if role == Role.ATTRIBUTE and not 1 <= len(name.encode()) <= ATTRIBUTE_NAME_SIZE_MAX:
        raise PeerFault("bad-publication", f"{column}: a name must have 1 to {ATTRIBUTE_NAME_SIZE_MAX} bytes of UTF-8")
    if code is None or (code == _UINT32 if role == Role.ATTRIBUTE else code != _ROLE_TYPES[role]):
        wanted = _ATTRIBUTE_TYPES if role == Role.ATTRIBUTE else str(_TYPES[_ROLE_TYPES[role]])
        raise PeerFault("bad-publication", f"{column} is {array.type}: cast it to {wanted}")
    if is_dictionary and (
        array.type.index_type != pa.int32() or code not in (_BYTES, _TEXT) or role not in (Role.KEY, Role.ATTRIBUTE)
    ):
        raise PeerFault(
            "bad-publication", f"{column} is {array.type}: a dictionary must have int32 codes of text or bytes"
        )
    if role != Role.ATTRIBUTE and array.null_count:
        raise PeerFault("bad-publication", f"{column} has nulls")
    if code == _TIMESTAMP and not _has_dates_only(array):
        raise PeerFault("bad-publication", f"{column} has a timestamp outside the years 1 to 9999")
    return array


_ATTRIBUTE_TYPES = "bool, int64, double, string, binary or timestamp[us, tz=UTC]"


def _has_dates_only(timestamps: pa.Array) -> bool:
    span = pc.min_max(timestamps.view(pa.int64())).as_py()
    return span["min"] is None or TIMESTAMP_MIN_US <= span["min"] <= span["max"] <= TIMESTAMP_MAX_US


def _encode_array(array: pa.Array) -> tuple[list[Octets], Encoding, bool, int]:
    if pa.types.is_dictionary(array.type):
        codes, _, _, _ = _encode_array(array.indices)
        values, _, _, _ = _encode_array(array.dictionary)
        return [*codes, *values], Encoding.DICTIONARY, array.indices.null_count > 0, len(array.dictionary)
    has_nulls = array.null_count > 0
    if array.offset and (has_nulls or array.type == _TYPES[_BOOL]):
        array = pa.concat_arrays([array, array.slice(0, 0)])
    buffers = array.buffers()
    count = len(array)
    parts: list[Octets] = []
    if has_nulls:
        _append_padded(parts, memoryview(buffers[0])[: (count + 7) // 8])
    if array.type in (_TYPES[_BYTES], _TYPES[_TEXT]):
        _append_text(parts, buffers, array.offset, count)
    elif array.type == _TYPES[_BOOL]:
        _append_padded(parts, memoryview(buffers[1])[: (count + 7) // 8])
    else:
        width = array.type.bit_width // 8
        _append_padded(parts, memoryview(buffers[1])[array.offset * width : (array.offset + count) * width])
    return parts, Encoding.PLAIN, has_nulls, 0


def _append_text(parts: list[Octets], buffers: list[pa.Buffer], offset: int, count: int) -> None:
    if buffers[1] is None or buffers[1].size == 0:
        _append_padded(parts, bytes(4))
        return
    offsets = np.frombuffer(buffers[1], np.int32, count + 1, offset * 4)
    start, end = int(offsets[0]), int(offsets[-1])
    if start:
        offsets = offsets - np.int32(start)
    _append_padded(parts, offsets.data.cast("B"))
    if end > start:
        _append_padded(parts, memoryview(buffers[2])[start:end])


def _append_padded(parts: list[Octets], data: Octets) -> None:
    parts.append(data)
    if len(data) % 8:
        parts.append(padding(len(data)))


class _Taker:
    """Takes padded buffers off one column's data; raises `PeerFault` past its end, and for a padding that is not zero
    where the column is offered.
    """

    __slots__ = ("_data", "_end", "_memory", "_offset", "is_offered")

    def __init__(self, memory: memoryview, data: pa.Buffer, offset: int, size: int, is_offered: bool) -> None:
        self._memory = memory
        self._data = data
        self._offset = offset
        self._end = offset + size
        self.is_offered = is_offered

    def take(self, size: int) -> pa.Buffer:
        if self._offset + size > self._end:
            raise PeerFault("bad-batch", f"a column's data ends {self._offset + size - self._end} bytes early")
        taken = self._data.slice(self._offset, size)
        if self.is_offered and size % ALIGNMENT:
            _check_padding(self._memory, self._offset + size)
        self._offset += aligned(size)
        return taken

    def check_end(self) -> None:
        if self._offset != self._end:
            raise PeerFault("bad-batch", f"a column's data is {self._end - self._offset} bytes longer than its buffers")


def _check_padding(memory: memoryview, end: int) -> None:
    if any(memory[end : aligned(end)]):
        raise PeerFault("bad-batch", f"what ends at byte {end} of the payload is not padded with zeros")


def decode_columns(payload: Octets, count: int, attributes_max: int, *, is_offered: bool = False) -> Columns:
    """The columns of a payload of `count` rows, on the payload's own memory, fully validated.

    Raises `PeerFault` when a size, an offset, a code or a text is wrong, or a column is missing or there twice. Where
    `is_offered`, also when it is not what the page says in a place that this reader needs not look at: another reader
    may, and what a journal has taken before this was checked is still to be read.
    """
    buffer = pa.py_buffer(payload)
    found: dict[Role, pa.Array] = {}
    attributes: dict[str, pa.Array] = {}
    for descriptor, name, taker in _described(memoryview(payload), buffer, attributes_max, is_offered):
        array = _decode_array(descriptor, taker, count)
        taker.check_end()
        if descriptor.role == Role.ATTRIBUTE:
            if name in attributes:
                raise PeerFault("bad-batch", f"attribute {name!r} occurs twice")
            attributes[name] = array
            if len(attributes) > attributes_max:
                raise PeerFault(
                    "bad-batch", f"a publication may have at most {attributes_max} attributes, this one has more"
                )
        elif descriptor.role in found:
            raise PeerFault("bad-batch", f"column {descriptor.role} occurs twice")
        else:
            found[Role(descriptor.role)] = array
    _check_roles(found)
    rows = found.get(Role.ROW)
    return Columns(
        found[Role.KEY],
        found[Role.BODY],
        found.get(Role.EVENT_TIME),
        attributes,
        None if rows is None else numbers_of(rows),
    )


def _described(
    memory: memoryview, buffer: pa.Buffer, attributes_max: int, is_offered: bool
) -> Iterator[tuple[_Descriptor, str, _Taker]]:
    if len(memory) < _HEAD.size:
        raise PeerFault("bad-batch", "a columnar payload must have at least 8 bytes")
    column_count, reserved, names_size = _HEAD.unpack_from(memory, 0)
    names_start = _HEAD.size + column_count * _DESCRIPTOR.size
    data_start = names_start + aligned(names_size)
    if column_count > attributes_max + len(Role) or data_start > len(memory):
        raise PeerFault(
            "bad-batch", f"{column_count} columns with {names_size} bytes of names do not fit the payload or the limits"
        )
    if is_offered:
        if reserved:
            raise PeerFault("bad-batch", "the reserved bytes behind the count of columns must be zero")
        _check_padding(memory, names_start + names_size)
    name_offset, data_offset = names_start, data_start
    for index in range(column_count):
        descriptor = _Descriptor(*_DESCRIPTOR.unpack_from(memory, _HEAD.size + index * _DESCRIPTOR.size))
        name_end = name_offset + descriptor.name_size
        if name_end > names_start + names_size or data_offset + descriptor.size > len(memory):
            raise PeerFault("bad-batch", f"column {index} does not fit the payload")
        try:
            name = str(memory[name_offset:name_end], "utf-8")
        except UnicodeDecodeError as error:
            raise PeerFault("bad-batch", f"the name of column {index} is not UTF-8: {error}") from None
        if (descriptor.role == Role.ATTRIBUTE) != bool(name):
            raise PeerFault("bad-batch", f"column {index}: an attribute must have a name, and other columns must not")
        if descriptor.name_size > ATTRIBUTE_NAME_SIZE_MAX:
            raise PeerFault("bad-batch", f"column {index}: a name may have at most {ATTRIBUTE_NAME_SIZE_MAX} bytes")
        if is_offered:
            _check_offered(index, descriptor)
        yield descriptor, name, _Taker(memory, buffer, data_offset, descriptor.size, is_offered)
        name_offset, data_offset = name_end, data_offset + descriptor.size
    if data_offset != len(memory) or name_offset != names_start + names_size:
        raise PeerFault(
            "bad-batch", f"{len(memory) - data_offset} bytes follow the last column, or a name follows the last name"
        )


def _check_offered(index: int, descriptor: _Descriptor) -> None:
    if descriptor.reserved:
        raise PeerFault("bad-batch", f"column {index}: the reserved bytes of its descriptor must be zero")
    if descriptor.has_nulls > 1:
        raise PeerFault("bad-batch", f"column {index}: {descriptor.has_nulls} is neither 0 (no nulls) nor 1 (nulls)")
    if descriptor.dictionary_count and descriptor.encoding == Encoding.PLAIN:
        raise PeerFault(
            "bad-batch",
            f"column {index}: a plain column has 0 entries of a dictionary, this one has {descriptor.dictionary_count}",
        )


_ROLE_TYPES = {Role.KEY: _BYTES, Role.BODY: _BYTES, Role.EVENT_TIME: _INT64, Role.ROW: _UINT32}


def _decode_array(descriptor: _Descriptor, taker: _Taker, count: int) -> pa.Array:
    role, type_code, encoding = descriptor.role, descriptor.type_code, descriptor.encoding
    if role not in Role._value2member_map_ or type_code >= len(_TYPES) or encoding > Encoding.DICTIONARY:
        raise PeerFault("bad-batch", f"column role {role}, type {type_code}, encoding {encoding} are unknown")
    if role != Role.ATTRIBUTE and (type_code != _ROLE_TYPES[Role(role)] or descriptor.has_nulls):
        raise PeerFault("bad-batch", f"a column of role {role} must have type {_ROLE_TYPES[Role(role)]} and no nulls")
    validity = taker.take((count + 7) // 8) if descriptor.has_nulls else None
    kind = _TYPES[type_code]
    if type_code in (_BYTES, _TEXT):
        if encoding == Encoding.DICTIONARY:
            codes = pa.Array.from_buffers(pa.int32(), count, [validity, taker.take(count * 4)])
            values = _take_text(kind, None, taker, descriptor.dictionary_count)
            return _checked(pa.DictionaryArray.from_arrays, codes, values)
        return _take_text(kind, validity, taker, count)
    if encoding != Encoding.PLAIN or (type_code == _UINT32 and role != Role.ROW):
        raise PeerFault(
            "bad-batch", f"type {type_code} is not allowed in a column of role {role} with encoding {encoding}"
        )
    size = (count + 7) // 8 if type_code == _BOOL else count * _WIDTHS[type_code]
    array = pa.Array.from_buffers(kind, count, [validity, taker.take(size)])
    if type_code == _TIMESTAMP and not _has_dates_only(array):
        raise PeerFault("bad-batch", "a timestamp is outside the years 1 to 9999")
    return array


def _take_text(kind: pa.DataType, validity: pa.Buffer | None, taker: _Taker, count: int) -> pa.Array:
    offsets = taker.take((count + 1) * 4)
    ends = memoryview(offsets)
    if taker.is_offered and any(ends[:4]):
        raise PeerFault("bad-batch", "the offsets of text or bytes must begin at 0")
    size = int.from_bytes(ends[-4:], "little")
    data = taker.take(size)
    return _checked(pa.Array.from_buffers, kind, count, [validity, offsets, data])


def _checked(make: object, *arguments: object) -> pa.Array:
    try:
        array = make(*arguments)  # type: ignore[operator]
        array.validate(full=True)
    except (pa.ArrowException, ValueError, IndexError) as error:
        raise PeerFault("bad-batch", f"a column is not valid: {error}") from None
    return array


def _check_roles(found: dict[Role, pa.Array]) -> None:
    for role in (Role.KEY, Role.BODY):
        if role not in found:
            raise PeerFault("bad-batch", f"a columnar payload must have a {role.name.lower()} column")
    if pa.types.is_dictionary(found[Role.BODY].type):
        raise PeerFault("bad-batch", "bodies must have the plain encoding")


def lengths_of(array: pa.Array) -> npt.NDArray[np.int32]:
    """The sizes in bytes of a plain binary array's values, or of its dictionary's values."""
    values = array.dictionary if pa.types.is_dictionary(array.type) else array
    if not len(values):
        return np.zeros(0, np.int32)
    offsets = np.frombuffer(values.buffers()[1], np.int32, len(values) + 1, values.offset * 4)
    return offsets[1:] - offsets[:-1]  # np.diff costs three microseconds more a call


def growth_of(columns: Columns) -> int:
    """How many bytes keys and attributes get more once their dictionaries are written out; 0 or less for none."""
    growth = 0
    for array in _dictionaries_in(columns):
        lengths = np.append(lengths_of(array), 0)
        growth += int(lengths[filled_numbers_of(array.indices, len(lengths) - 1)].sum(dtype=np.int64))
        growth -= int(lengths.sum(dtype=np.int64))
    return growth


def grows_beyond(columns: Columns, size_max: int) -> bool:
    """Whether `growth_of` is more than `size_max` bytes; rows are looked at only where the longest words allow that."""
    words = (lengths_of(array) for array in _dictionaries_in(columns))
    longest = sum(int(lengths.max(initial=0)) for lengths in words)
    return len(columns.bodies) * longest > size_max and growth_of(columns) > size_max


def _dictionaries_in(columns: Columns) -> Iterator[pa.Array]:
    return (array for array in (columns.keys, *columns.attributes.values()) if pa.types.is_dictionary(array.type))
