"""A reader of batches that was written from docs/reference/wire/native.md alone: it reads what the page says, and takes
offence at all else. What the node takes, it must read, and the same as the library does.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from itertools import pairwise
from typing import Any

ROLES = {1: "key", 2: "body", 3: "event time", 4: "attribute"}
TYPES = ("bytes", "text", "bool", "int64", "float64", "timestamp")
WIDTHS = {"int64": "q", "float64": "d", "timestamp": "q"}


def read_payload(payload: memoryview, layout: int, count: int) -> tuple[list[bytes], list[bytes], list[int] | None]:
    """Keys, bodies and event times; attributes are read too, and their names looked at. Raises `AssertionError`."""
    return read_rows(bytes(payload), count) if layout == 0 else read_columns(bytes(payload), count)


# ── rows ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def read_rows(payload: bytes, count: int) -> tuple[list[bytes], list[bytes], list[int] | None]:
    """The payload of small batches: one msgpack array of five."""
    value, end = unpack(payload, 0)
    assert end == len(payload), "bytes follow the array"
    keys, bodies, times, attributes, rows = value
    assert rows is None, "rows of an excerpt"
    for column in (keys, bodies, times, attributes):
        assert column is None or len(column) == count, "a column of another length"
    for row in attributes or ():
        names = [name for name, _ in row or ()]
        assert len(set(names)) == len(names), f"an attribute twice: {names}"
    return keys, bodies, times


def unpack(data: bytes, at: int) -> tuple[Any, int]:
    """A msgpack value and where it ends; a map as its pairs, an extension as nothing but its bytes."""
    head = data[at]
    at += 1
    if head < 0x80:
        return head, at
    if head < 0x90:
        return unpack_pairs(data, at, head & 15)
    if head < 0xA0:
        return unpack_list(data, at, head & 15)
    if head < 0xC0:
        return taken(data, at, head & 31).decode(), at + (head & 31)
    if head >= 0xE0:
        return head - 256, at
    if head in (0xC0, 0xC2, 0xC3):
        return {0xC0: None, 0xC2: False, 0xC3: True}[head], at
    if head in NUMBERS:
        size = struct.calcsize(NUMBERS[head])
        return struct.unpack(NUMBERS[head], taken(data, at, size))[0], at + size
    if head in SMALL_EXTENSIONS:
        size = SMALL_EXTENSIONS[head]
        return taken(data, at, 1 + size), at + 1 + size
    width, make = SIZED[head]
    size = int.from_bytes(taken(data, at, width), "big")
    return make(data, at + width, size)


def taken(data: bytes, at: int, size: int) -> bytes:
    """So many bytes, which are there."""
    assert at + size <= len(data), "bytes are missing"
    return data[at : at + size]


def unpack_list(data: bytes, at: int, count: int) -> tuple[list[Any], int]:
    """So many values."""
    values = []
    for _ in range(count):
        value, at = unpack(data, at)
        values.append(value)
    return values, at


def unpack_pairs(data: bytes, at: int, count: int) -> tuple[list[tuple[Any, Any]], int]:
    """So many pairs, none of them lost to another of the same name."""
    values, at = unpack_list(data, at, 2 * count)
    return list(zip(values[::2], values[1::2], strict=True)), at


NUMBERS = {
    0xCA: ">f", 0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q", 0xD0: ">b", 0xD1: ">h", 0xD2: ">i",
    0xD3: ">q",
}  # fmt: skip
SMALL_EXTENSIONS = {0xD4: 1, 0xD5: 2, 0xD6: 4, 0xD7: 8, 0xD8: 16}
_Make = Callable[[bytes, int, int], tuple[Any, int]]
_BYTES: _Make = lambda data, at, size: (taken(data, at, size), at + size)  # noqa: E731
_TEXT: _Make = lambda data, at, size: (taken(data, at, size).decode(), at + size)  # noqa: E731
_EXTENSION: _Make = lambda data, at, size: (taken(data, at, 1 + size), at + 1 + size)  # noqa: E731
SIZED: dict[int, tuple[int, _Make]] = {
    0xC4: (1, _BYTES), 0xC5: (2, _BYTES), 0xC6: (4, _BYTES), 0xC7: (1, _EXTENSION), 0xC8: (2, _EXTENSION),
    0xC9: (4, _EXTENSION), 0xD9: (1, _TEXT), 0xDA: (2, _TEXT), 0xDB: (4, _TEXT), 0xDC: (2, unpack_list),
    0xDD: (4, unpack_list), 0xDE: (2, unpack_pairs), 0xDF: (4, unpack_pairs),
}  # fmt: skip


# ── columns ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class Data:
    """The data of one column, taken part by part."""

    def __init__(self, data: bytes) -> None:
        """All of it."""
        self.data = data
        self.at = 0

    def part(self, size: int) -> bytes:
        """The next part; it is padded with zeros to a multiple of 8."""
        start, end = self.at, self.at + size
        self.at = (end + 7) // 8 * 8
        assert self.at <= len(self.data), "a part is missing"
        assert not any(self.data[end : self.at]), "a padding that is not zero"
        return self.data[start:end]

    def octets(self, count: int) -> list[bytes]:
        """Offsets from 0, then the bytes of all values."""
        offsets = struct.unpack(f"<{count + 1}i", self.part(4 * count + 4))
        assert offsets[0] == 0, "offsets that do not begin at 0"
        assert list(offsets) == sorted(offsets), "offsets that go back"
        joined = self.part(offsets[-1])
        return [joined[start:end] for start, end in pairwise(offsets)]


def read_columns(payload: bytes, count: int) -> tuple[list[bytes], list[bytes], list[int] | None]:
    """The payload of large batches: buffers of Arrow behind descriptors."""
    column_count, zero, names_size = struct.unpack_from("<HHI", payload)
    assert zero == 0, "reserved bytes of the head"
    at = 8 + 16 * column_count
    names = payload[at : at + names_size]
    data_at = (at + names_size + 7) // 8 * 8
    assert not any(payload[at + names_size : data_at]), "a padding that is not zero"
    found: dict[str, list[Any]] = {}
    seen: set[bytes] = set()
    for index in range(column_count):
        role, kind, encoding, has_nulls, name_size, zero, size, entries = struct.unpack_from(
            "<BBBBHHII", payload, 8 + 16 * index
        )
        name, names = names[:name_size], names[name_size:]
        name.decode()
        assert zero == 0, "reserved bytes of a descriptor"
        assert has_nulls in (0, 1), "neither 0 nor 1"
        assert encoding in (0, 1), "no encoding"
        assert encoding or entries == 0, "entries of a plain column"
        assert (role == 4) == (name_size > 0), "a name of no attribute, or none of one"
        assert name not in seen or not name, "an attribute twice"
        seen.add(name)
        values = read_column(Data(payload[data_at : data_at + size]), TYPES[kind], count, encoding, has_nulls, entries)
        data_at += size
        if role != 4:
            assert ROLES[role] not in found, "a column twice"
            assert not has_nulls, "nulls"
            found[ROLES[role]] = values
    assert data_at == len(payload), "bytes follow the last column"
    assert not names, "names follow the last one"
    return found["key"], found["body"], found.get("event time")


def read_column(data: Data, kind: str, count: int, encoding: int, has_nulls: int, entries: int) -> list[Any]:
    """The values of one column; what stands under a null is anything."""
    bits = data.part((count + 7) // 8) if has_nulls else b"\xff" * ((count + 7) // 8)
    is_there = [bits[row // 8] >> row % 8 & 1 == 1 for row in range(count)]
    if kind in ("bytes", "text"):
        if encoding:
            codes = struct.unpack(f"<{count}i", data.part(4 * count))
            words = data.octets(entries)
            values: list[Any] = [words[code] if there else None for code, there in zip(codes, is_there, strict=True)]
            assert all(code >= 0 for code, there in zip(codes, is_there, strict=True) if there), "a code below 0"
        else:
            values = data.octets(count)
        if kind == "text":
            for value, there in zip(values, is_there, strict=True):
                assert not there or value.decode() is not None
    else:
        assert encoding == 0, "a dictionary of numbers"
        size = (count + 7) // 8 if kind == "bool" else 8 * count
        octets = data.part(size)
        values = list(octets) if kind == "bool" else list(struct.unpack(f"<{count}{WIDTHS[kind]}", octets))
    assert data.at == len(data.data), "a column's data is longer than its parts"
    return values
