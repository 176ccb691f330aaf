"""Records that come by a pipe or in a file: lines, length-prefixed, and JSON lines; `written` has the way out.

    lines      one body a line; with a key separator, `key<separator>body`
    prefixed   the body's size in 4 bytes, big-endian, then the body; for bodies that hold line breaks
    json       one object a line: key, body, attributes, event_time; on the way out also where it stands and whose it is

What is no UTF-8 is in `key_base64` and `body_base64`. In attributes, {"$bytes": base64}, {"$timestamp": RFC 3339} and
{"$float": "NaN"}, "Infinity" or "-Infinity" stand for what JSON does not have.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from math import inf, nan
from struct import Struct
from typing import NamedTuple, Protocol

import msgspec

from veredus.delivery.publication import Attributes, AttributeValue
from veredus.kernel.errors import Misuse, field_fault

LINES, PREFIXED, JSON = "lines", "prefixed", "json"
FORMATS = (LINES, PREFIXED, JSON)
RECORD_SIZE_MAX = 32 << 20
"""A record may have as much, whatever the node takes."""
ESCAPED_SIZE_MAX = 6
"""So many bytes of a JSON line one byte has at most: \\u0001."""
_BESIDE_SIZE_MAX = 128 << 10
"""A key, attributes and what tells them apart; in a JSON line, its other fields too, once they are escaped."""
READ_SIZE = 256 << 10
CHUNK_COUNT_MAX = 4096
"""With `READ_SIZE`, what keeps a chunk within one batch, so that it is published whole or not at all."""
NUMBER_SIZE_MAX = 60
"""A longer number is cut short where it is shown."""
PREFIX = Struct(">I")
"""The size of a record that is length-prefixed."""
_Attribute = bool | int | float | str | dict[str, str] | None
_TYPES = re.compile(r"`((?:(?:str|int|float|bool|null|object|array)(?: \| )?)+)`")
_WORDS = {
    "str": "text", "int": "a whole number", "float": "a number", "bool": "true or false", "object": "an object",
    "array": "a list",
}  # fmt: skip


class Input(Protocol):
    """Where records come from."""

    def read1(self, size: int, /) -> bytes:
        """What is there, at most `size` bytes; waits for the first of them; b"" at the end."""
        ...


class Place(NamedTuple):
    """Where a record begins: at which byte of the input, and in which line, from 1; 0 where that is not known."""

    offset: int
    line: int

    def behind(self, records: Sequence[bytes], overhead_size: int = 1) -> Place:
        """The place behind these records."""
        offset = self.offset + sum(map(len, records)) + overhead_size * len(records)
        return Place(offset, self.line and self.line + len(records))

    def __str__(self) -> str:
        return f"byte {self.offset} (line {self.line})" if self.line else f"byte {self.offset}"


class Chunk(NamedTuple):
    """Records that were read together, as columns of one length. `end_offset` is the place in the input behind them."""

    bodies: Sequence[bytes]
    keys: Sequence[bytes] | None
    attributes: Sequence[Attributes | None] | None
    event_times: Sequence[datetime | None] | None
    end_offset: int
    place_of: Callable[[int], Place]
    """Where one of its records begins, by its index."""

    def part(self, start: int, end: int) -> Chunk:
        """Some of its records."""
        return Chunk(
            self.bodies[start:end],
            None if self.keys is None else self.keys[start:end],
            None if self.attributes is None else self.attributes[start:end],
            None if self.event_times is None else self.event_times[start:end],
            self.end_offset if end == len(self.bodies) else self.place_of(end).offset,
            lambda index: self.place_of(start + index),
        )


class JsonRecord(msgspec.Struct, kw_only=True):
    """A record of a JSON line as it may be given."""

    key: str | None = None
    key_base64: str | None = None
    body: str | None = None
    body_base64: str | None = None
    attributes: dict[str, _Attribute] | None = None
    event_time: datetime | None = None


class _JsonAttributes(msgspec.Struct):
    """The attributes of a JSON line, each as it is written."""

    attributes: dict[str, msgspec.Raw] | None = None


_NO_BODY = 'there is no "body" and no "body_base64": for an empty one write "body": ""; --format lines takes any lines'
_MEMBERS = 'an object has one member, "$bytes", "$timestamp" or "$float"'
_ATTRIBUTE_KINDS = (
    'give text, a number, true, false, null, or an object with one member, "$bytes", "$timestamp" or "$float"'
)
_ORDER_MARKS = ((b"\xef\xbb\xbf", ""), (b"\xff\xfe", " of UTF-16"), (b"\xfe\xff", " of UTF-16"))
"""What some editors begin a file with, and of which encoding that is."""
_STRING_OR_NUMBER = re.compile(rb'"(?:[^"\\]|\\.)*+"?|(-?\b(?:NaN|Infinity)\b)')
_ESCAPE = re.compile(rb"\\(?:u([0-9a-fA-F]{4})|.)", re.DOTALL)
FLOATS = {"NaN": nan, "Infinity": inf, "-Infinity": -inf}
"""The numbers that JSON does not have, as they are written there."""
_HIGH_HALVES, _LOW_HALVES = range(0xD800, 0xDC00), range(0xDC00, 0xE000)
"""Code units of UTF-16 of which two make one character."""
_BYTES_ADVICE = 'bytes that are no text go into body_base64 or key_base64, or in attributes into {"$bytes": base64}'
_TIME_KIND = 'a time as in RFC 3339, "2013-07-01T00:00:00Z"'
_INT64 = range(-(2**63), 2**63)

_UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError)
"""What decoding a record raises where it is not valid."""

_decode_json = msgspec.json.Decoder(JsonRecord).decode
_decode_attributes = msgspec.json.Decoder(_JsonAttributes).decode
_decode_attribute: Callable[[msgspec.Raw], _Attribute] = msgspec.json.Decoder(_Attribute).decode


def separator_of(text: str) -> bytes:
    r"""The octets of a separator as it is written on a command line, with `\t` and the like. Raises `Misuse`."""
    try:
        return text.encode("latin-1", "backslashreplace").decode("unicode_escape").encode()
    except UnicodeError as error:
        raise Misuse("bad-record", f"the key separator {text!r} is not valid: {error}") from None


def read_chunks(
    source: Input,
    form: str,
    key_separator: bytes = b"",
    offset: int = 0,
    count_max: int | None = None,
    needs_keys: bool = False,
    tell_rest: Callable[[int], None] | None = None,
    body_size_max: int = 0,
) -> Iterator[Chunk]:
    """The first `count_max` records of `source`, as they arrive; `offset` is where it stands at the beginning.

    `needs_keys`: a line without the separator is a fault; otherwise it has no key. `tell_rest`: what is left
    at the end, a line without its line break or a part of a prefixed record, may be the beginning of one: it is no
    record, and this is told its size. A record may be as large as a body of `body_size_max`
    makes it. Raises `Misuse("bad-record")` with the record's place, behind the last chunk
    that was right.
    """
    split, overhead_size = _SPLITTERS[form]
    size_max = record_size_max(form, body_size_max)
    waiting, is_end, count_left = b"", False, count_max
    line = 0 if offset or form == PREFIXED else 1
    while count_left != 0:
        bodies, taken = split(waiting, is_end and tell_rest is None, offset, size_max)
        fitting_count = _fitting_count(bodies, taken)
        if count_left is not None:
            fitting_count = min(fitting_count, count_left)
        if fitting_count < len(bodies):
            bodies = bodies[:fitting_count]
            taken = sum(map(len, bodies)) + overhead_size * len(bodies)
        if bodies:
            for chunk in _chunks_of(bodies, form, key_separator, Place(offset, line), offset + taken, needs_keys):
                count_left = None if count_left is None else count_left - len(chunk.bodies)
                yield chunk
            offset += taken
            line += len(bodies) if line else 0
            waiting = waiting[taken:]
        elif is_end:
            if waiting and tell_rest is not None:
                tell_rest(len(waiting))
            elif waiting:
                raise Misuse("bad-record", f"the input ends within the record at byte {offset}", offset=offset)
            return
        elif len(waiting) > size_max + PREFIX.size:
            raise Misuse("bad-record", f"the record at byte {offset} has more than {size_max} bytes", offset=offset)
        else:
            waiting, is_end = _read_on(source, waiting, b"" if form == PREFIXED else b"\n", size_max)


def record_size_max(form: str, body_size_max: int) -> int:
    """How large a record of this form is at most, with a body of this size."""
    factor = ESCAPED_SIZE_MAX if form == JSON else 1
    return max(RECORD_SIZE_MAX, factor * (body_size_max + _BESIDE_SIZE_MAX))


def _read_on(source: Input, waiting: bytes, mark: bytes, size_max: int) -> tuple[bytes, bool]:
    """What waits and what comes behind it, up to where `mark` came, and whether that is the end.

    A long line is not looked at anew with each of its parts.
    """
    parts, size = [waiting], len(waiting)
    while True:
        data = source.read1(READ_SIZE)
        parts.append(data)
        size += len(data)
        if not data or mark in data or size > size_max + PREFIX.size:
            return b"".join(parts), not data


def _fitting_count(bodies: list[bytes], size: int) -> int:
    """How many of the records make a chunk; at least one."""
    if size <= READ_SIZE:
        return min(len(bodies), CHUNK_COUNT_MAX)
    total = 0
    for count, body in enumerate(bodies):
        total += len(body)
        if count and total > READ_SIZE:
            return min(count, CHUNK_COUNT_MAX)
    return min(len(bodies), CHUNK_COUNT_MAX)


def _chunks_of(
    bodies: list[bytes], form: str, key_separator: bytes, place: Place, end: int, needs_keys: bool
) -> Iterator[Chunk]:
    if form == JSON:
        yield from _json_chunks(bodies, place, end)
    elif key_separator:
        yield from _keyed_chunks(bodies, key_separator, place, end, needs_keys)
    else:
        overhead_size = _SPLITTERS[form][1]
        yield Chunk(bodies, None, None, None, end, lambda index: place.behind(bodies[:index], overhead_size))


def _keyed_chunks(
    lines: list[bytes], key_separator: bytes, place: Place, end: int, needs_keys: bool
) -> Iterator[Chunk]:
    fault: Misuse | None = None
    without = next((index for index, line in enumerate(lines) if key_separator not in line), None)
    if needs_keys and without is not None:
        lines = lines[:without]
        fault_place = place.behind(lines)
        end = fault_place.offset
        advice = "--key gives a key to lines without one"
        said = f"the line at {fault_place} does not contain the key separator {key_separator.decode()!r}: {advice}"
        fault = Misuse("bad-record", said, offset=end)
    if lines:
        pairs = [line.partition(key_separator) for line in lines]
        keys = [key if found else b"" for key, found, _ in pairs]
        yield Chunk(
            [body if found else key for key, found, body in pairs],
            keys,
            None,
            None,
            end,
            lambda index: place.behind(lines[:index]),
        )
    if fault is not None:
        raise fault


def _json_chunks(lines: list[bytes], place: Place, end: int) -> Iterator[Chunk]:
    keys: list[bytes] = []
    bodies: list[bytes] = []
    places: list[Place] = []
    attributes: list[Attributes | None] = []
    event_times: list[datetime | None] = []
    fault: Misuse | None = None
    for line in lines:
        if line.strip():
            try:
                record = _decode_json(line)
                if record.body is None and record.body_base64 is None:
                    raise ValueError(_NO_BODY)
                key, body = (
                    _octets(record.key, record.key_base64, "key"),
                    _octets(record.body, record.body_base64, "body"),
                )
                given, when = _attributes_of(record.attributes), _aware("event_time", record.event_time)
            except _UNREADABLE as error:
                said = f"the record at {place} is not valid: {_fault_of(error, line)}"
                end = place.offset
                fault = Misuse("bad-record", said, offset=end)
                break
            keys.append(key)
            bodies.append(body)
            attributes.append(given)
            event_times.append(when)
            places.append(place)
        place = place.behind((line,))
    if bodies:
        yield Chunk(
            bodies,
            keys,
            attributes if any(attributes) else None,
            event_times if any(event_times) else None,
            end,
            places.__getitem__,
        )
    if fault is not None:
        raise fault


def _fault_of(error: Exception, line: bytes) -> str:
    """What is wrong with a line, in the words of people who write JSON, and know no Python."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, UnicodeDecodeError):
        return f"it has text that is not UTF-8 (byte {error.object[error.start]:#04x}): {_BYTES_ADVICE}"
    if isinstance(error, msgspec.DecodeError) and not isinstance(error, msgspec.ValidationError):
        hint = _hint_of(line)
        if hint:
            return hint
    fault = field_fault(error)
    if fault.startswith("attributes[") and (named := _attribute_fault_of(line)):
        return named
    if fault.startswith("event_time: "):
        return f"event_time must be {_TIME_KIND}"
    fault = _TYPES.sub(_words_of, fault)
    return fault.replace(" or null", "", 1) if fault.startswith("body") else fault


def _hint_of(line: bytes) -> str:
    """What others write and JSON does not have, where a line that cannot be decoded has it; "" where it has not."""
    for mark, encoding in _ORDER_MARKS:
        if line.startswith(mark):
            return f"it begins with a byte order mark{encoding}: save the input as UTF-8 without one"
    for found in _STRING_OR_NUMBER.finditer(line):
        if found[1]:
            number = found[1].decode()
            return f'{number} is no JSON: in attributes write {{"$float": "{number}"}}, elsewhere null or text'
    half = _half_pair_in(line)
    return half and f"{half} is half of a surrogate pair, and no character: {_BYTES_ADVICE}"


def _half_pair_in(line: bytes) -> str:
    """The first escape of half a character of two escapes whose other half is not beside it; "" where there is none."""
    high: re.Match[bytes] | None = None
    for escape in _ESCAPE.finditer(line):
        code = int(escape[1] or b"0", 16)
        if high is not None:
            if escape.start() != high.end() or code not in _LOW_HALVES:
                break
            high = None
        elif code in _LOW_HALVES:
            return escape[0].decode()
        elif code in _HIGH_HALVES:
            high = escape
    return high[0].decode() if high is not None else ""


def _attribute_fault_of(line: bytes) -> str:
    """Which attribute the decoder does not take, and why: it says neither; "" where that is not found."""
    try:
        given = _decode_attributes(line).attributes or {}
    except _UNREADABLE:
        return ""
    for name, written in given.items():
        try:
            _decode_attribute(written)
        except _UNREADABLE:
            begin = bytes(written)[:1]
            if begin == b"[":
                return f"attribute {name} is a list: {_ATTRIBUTE_KINDS}"
            if begin == b"{":
                return f"attribute {name}: {_MEMBERS}, which is text"
            return f"attribute {name}: {_brief(bytes(written).decode())} does not fit 64 bits"
    return ""


def _brief(text: str) -> str:
    return text if len(text) <= NUMBER_SIZE_MAX else f"{text[:NUMBER_SIZE_MAX]}…"


def _words_of(found: re.Match[str]) -> str:
    names = found[1].split(" | ")
    return " or ".join(_WORDS.get(name, name) for name in names if name != "int" or "float" not in names)


def _split_lines(data: bytes, is_end: bool, _offset: int, _size_max: int) -> tuple[list[bytes], int]:
    lines = data.split(b"\n")
    rest = lines.pop()
    if is_end and rest:
        return [*lines, rest], len(data)
    return lines, len(data) - len(rest)


def _split_prefixed(data: bytes, _is_end: bool, offset: int, size_max: int) -> tuple[list[bytes], int]:
    bodies: list[bytes] = []
    place = 0
    while len(data) - place >= PREFIX.size:
        (size,) = PREFIX.unpack_from(data, place)
        end = place + PREFIX.size + size
        if size > size_max and not bodies:
            advice = f"and the limit is {size_max}: is the input length-prefixed?"
            raise Misuse(
                "bad-record", f"the record at byte {offset} has a size of {size} bytes, {advice}", offset=offset
            )
        if size > size_max or end > len(data):
            break
        bodies.append(data[place + PREFIX.size : end])
        place = end
    return bodies, place


_Splitter = Callable[[bytes, bool, int, int], tuple[list[bytes], int]]
_SPLITTERS: dict[str, tuple[_Splitter, int]] = {
    LINES: (_split_lines, 1),
    PREFIXED: (_split_prefixed, PREFIX.size),
    JSON: (_split_lines, 1),
}
"""How the records of a format are told apart, and how many bytes each has beside itself."""


def _octets(text: str | None, base64: str | None, name: str) -> bytes:
    if text is not None and base64 is not None:
        raise ValueError(f"{name} and {name}_base64 exclude each other")
    if base64 is not None:
        return _decoded(f"{name}_base64", base64)
    return b"" if text is None else text.encode()


def _attributes_of(given: Mapping[str, _Attribute] | None) -> Attributes | None:
    if not given:
        return None
    return {name: _attribute_of(name, value) for name, value in given.items()}


def _attribute_of(name: str, value: _Attribute) -> AttributeValue | None:
    if isinstance(value, int) and value not in _INT64:
        raise ValueError(f"attribute {name}: {_brief(str(value))} does not fit 64 bits")
    if not isinstance(value, dict):
        return value
    match value:
        case {"$bytes": text, **rest} if not rest:
            return _decoded(f"attribute {name}: $bytes", text)
        case {"$timestamp": text, **rest} if not rest:
            try:
                when = datetime.fromisoformat(text)
            except ValueError:
                raise ValueError(f"attribute {name}: $timestamp must be {_TIME_KIND}") from None
            return _aware(f"attribute {name}:", when)
        case {"$float": text, **rest} if not rest:
            if text not in FLOATS:
                raise ValueError(
                    f"attribute {name}: $float must be {', '.join(FLOATS)}; write other numbers as they are"
                )
            return FLOATS[text]
    raise ValueError(f"attribute {name}: {_MEMBERS}")


def _decoded(what: str, text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except ValueError:
        raise ValueError(f"{what} is not base64") from None


def _aware(what: str, when: datetime | None) -> datetime | None:
    if when is not None and when.tzinfo is None:
        raise ValueError(f"{what} {when.isoformat()} has no time zone: write {when.isoformat()}Z for UTC")
    return when
