"""The row payload, for small batches: one msgpack array `[keys, bodies, event_times | nil, attributes | nil, rows |
nil]`.

`keys` and `bodies` are arrays of bin, `event_times` of integers (microseconds), `attributes` of maps or nil: text to
bool, int, float64, str, bin or msgpack timestamp. A batch of one costs a tenth of a microsecond to encode, where
columns cost ten. At most `ROWS_COUNT_TAKEN_MAX` rows are laid out like this: an octet of msgpack can become an object
of a hundred octets, so nothing is built before it is known to be wanted.
Source: docs/internals/DESIGN.md, "Batches"; docs/decisions/0007.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, TypeAlias

import msgspec

from veredus.kernel.errors import PeerFault
from veredus.kernel.octets import Octets, field_count_of

from .publication import ATTRIBUTE_NAME_SIZE_MAX, FLOAT_INTEGER_MAX, AttributeValue, Rows

_KINDS = frozenset((bool, int, float, str, bytes, datetime))
_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1

ROWS_COUNT_TAKEN_MAX = 4096
"""The most rows of a row payload that is decoded; more are laid out as columns."""
_LOOKED_THROUGH_SIZE = 64 << 10
"""Attributes of a larger payload are looked through before they are built: few octets cannot become much."""
_ATTRIBUTES_MAX = 1 << 15
_NESTED = frozenset((*range(0x80, 0xA0), *range(0xDC, 0xE0)))
"""How an array or a map begins in msgpack."""
# What is longer is refused by its length, which stands before what it holds.
_SHORT = msgspec.Meta(max_length=ROWS_COUNT_TAKEN_MAX)
_FEW = msgspec.Meta(max_length=_ATTRIBUTES_MAX)


RawAttributes: TypeAlias = Annotated[list[Annotated[dict[str, msgspec.Raw], _FEW] | None], _SHORT]
"""The attributes of rows, no value of which is built yet."""


class _RowsPayload(msgspec.Struct, array_like=True, forbid_unknown_fields=True, gc=False):
    keys: Annotated[list[bytes], _SHORT]
    bodies: Annotated[list[bytes], _SHORT]
    event_times_us: Annotated[list[int], _SHORT] | None
    attributes: Annotated[list[Annotated[dict[str, Any], _FEW] | None], _SHORT] | None
    rows: Annotated[list[int], _SHORT] | None


class Messages(msgspec.Struct, array_like=True, forbid_unknown_fields=True, gc=False):
    """What readers get of rows who are told keys and bodies alone: bodies lie in the payload."""

    keys: Annotated[list[bytes], _SHORT]
    bodies: Annotated[list[memoryview], _SHORT]
    event_times_us: msgspec.Raw
    attributes: msgspec.Raw
    rows: Annotated[list[int], _SHORT] | None


class _Outline(msgspec.Struct, array_like=True, forbid_unknown_fields=True, gc=False):
    keys: msgspec.Raw
    bodies: msgspec.Raw
    event_times_us: msgspec.Raw
    attributes: RawAttributes | None
    rows: msgspec.Raw


class _Maps(msgspec.Struct, array_like=True, gc=False):
    keys: msgspec.Raw
    bodies: msgspec.Raw
    event_times_us: msgspec.Raw
    attributes: list[msgspec.Raw]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_RowsPayload).decode
_outlined = msgspec.msgpack.Decoder(_Outline).decode
_messages_in = msgspec.msgpack.Decoder(Messages).decode
_NIL, _SMALL_MAP = 0xC0, 0x80
_maps_in = msgspec.msgpack.Decoder(_Maps).decode


def encode_rows(rows: Rows) -> bytes:
    """The payload of these rows."""
    return _encode(rows)


def decode_rows(payload: Octets, count: int, attributes_max: int, *, is_offered: bool = False) -> Rows:
    """The rows of a payload of `count` rows, validated. Raises `PeerFault`.

    Where `is_offered`, also for an attribute that a row has twice: readers differ in which of the two they take.
    """
    try:
        if len(payload) > _LOOKED_THROUGH_SIZE:
            check_flat(_outlined(payload).attributes)
        taken = _decode(payload)
    except (ValueError, RecursionError) as error:  # msgspec.DecodeError is one; bad text, dates, nesting raise others
        raise PeerFault("bad-batch", f"the row payload does not decode: {error}") from None
    keys, bodies, times, attributes, rows = taken.keys, taken.bodies, taken.event_times_us, taken.attributes, taken.rows
    for column in (keys, bodies, times, attributes, rows):
        if column is not None and len(column) != count:
            raise PeerFault(
                "bad-batch", f"the header announces {count} publications, and the row payload has another count"
            )
    if times and not _INT64_MIN <= min(times) <= max(times) <= _INT64_MAX:
        raise PeerFault("bad-batch", "an event time does not fit 64 bits")
    if attributes:
        _check_attributes(attributes, attributes_max)
        if is_offered:
            _check_once(payload, attributes)
    return Rows(keys, bodies, times, attributes, rows)


def decode_messages(payload: Octets) -> Messages:
    """The keys and bodies of a payload that was taken. Raises `PeerFault`."""
    try:
        return _messages_in(payload)
    except (ValueError, RecursionError) as error:
        raise PeerFault("bad-batch", f"the row payload does not decode: {error}") from None


def check_flat(rows: RawAttributes | None) -> None:
    """Raise `PeerFault("bad-batch")` for an attribute that is an array or a map, whatever that holds."""
    for attributes in rows or ():
        for name, value in (attributes or {}).items():
            if bytes(memoryview(value)[:1])[0] in _NESTED:
                raise _no_attribute(name)


def _check_attributes(rows: list[dict[str, AttributeValue] | None], attributes_max: int) -> None:
    kinds: dict[str, type] = {}
    mixed: dict[str, None] = {}
    for attributes in rows:
        if not attributes:
            continue
        for name, value in attributes.items():
            kind = type(value)
            known = kinds.get(name)
            if known is None:
                _check_name(name)
                if kind not in _KINDS:
                    raise _no_attribute(name)
                kinds[name] = kind
                # Of all rows together: as columns, each name costs a place in every row.
                if len(kinds) > attributes_max:
                    raise PeerFault(
                        "bad-batch", f"a batch may have at most {attributes_max} attributes, this one has more"
                    )
            elif known is not kind:
                if (known, kind) not in ((int, float), (float, int)):
                    raise PeerFault("mixed-types", f"attribute {name!r} has values of two types in one batch")
                mixed[name] = None
            if kind is int and not _INT64_MIN <= value <= _INT64_MAX:  # type: ignore[operator]
                raise PeerFault("bad-batch", f"attribute {name!r}: {value!r} does not fit 64 bits")
            if kind is datetime and value.tzinfo is None:  # type: ignore[union-attr]
                raise PeerFault("bad-batch", f"attribute {name!r}: a timestamp has no time zone")
    for name in mixed:
        _check_exact(name, rows)


def _check_once(payload: Octets, rows: list[dict[str, AttributeValue] | None]) -> None:
    maps = _maps_in(payload).attributes
    heads = bytes([memoryview(octets)[0] for octets in maps])
    if heads == bytes([_NIL if row is None else _SMALL_MAP | len(row) & 0x7F for row in rows]):
        return
    for row, octets in zip(rows, maps, strict=True):
        if row and field_count_of(memoryview(octets)) != len(row):
            raise PeerFault("bad-batch", f"a publication has an attribute twice: it has {', '.join(map(repr, row))}")


def _no_attribute(name: str) -> PeerFault:
    what = "neither bool, integer, float, text, bytes nor timestamp"
    return PeerFault("bad-batch", f"attribute {name!r} is {what}")


def _check_name(name: str) -> None:
    if not name:
        raise PeerFault("bad-batch", "an attribute needs a name")
    if len(name) > ATTRIBUTE_NAME_SIZE_MAX // 4 and len(name.encode()) > ATTRIBUTE_NAME_SIZE_MAX:
        raise PeerFault(
            "bad-batch", f"the name of an attribute may have at most {ATTRIBUTE_NAME_SIZE_MAX} bytes: {name[:64]!r}…"
        )


def _check_exact(name: str, rows: list[dict[str, AttributeValue] | None]) -> None:
    for attributes in rows:
        value = attributes.get(name) if attributes else None
        if type(value) is int and not -FLOAT_INTEGER_MAX <= value <= FLOAT_INTEGER_MAX:
            raise PeerFault(
                "mixed-types", f"attribute {name!r}: {value} is mixed with floats and is not exactly a float"
            )
