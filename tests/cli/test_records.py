"""What goes through a pipe comes out as it went in, whatever the cuts."""

import io
import json
import math
from base64 import b64encode
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veredus.cli.records import (
    JSON,
    LINES,
    PREFIXED,
    RECORD_SIZE_MAX,
    Chunk,
    read_chunks,
    record_size_max,
    separator_of,
)
from veredus.cli.written import time_text, write_json, write_lines, write_prefixed
from veredus.kernel.errors import Misuse


class Cut:
    """An input that gives its bytes in pieces of the given sizes, over and over."""

    def __init__(self, data: bytes, sizes: Sequence[int]) -> None:
        self._data, self._sizes, self._turn = data, sizes, 0

    def read1(self, size: int) -> bytes:
        wanted = min(size, self._sizes[self._turn % len(self._sizes)])
        self._turn += 1
        taken, self._data = self._data[:wanted], self._data[wanted:]
        return taken


def bodies_of(chunks: Sequence[Chunk]) -> list[bytes]:
    return [body for chunk in chunks for body in chunk.bodies]


cuts = st.lists(st.integers(1, 9), min_size=1, max_size=5)


@given(st.lists(st.binary(max_size=12)), cuts)
def test_prefixed_records_come_back_from_any_cuts(bodies: list[bytes], sizes: list[int]) -> None:
    data = write_prefixed(bodies)
    chunks = list(read_chunks(Cut(data, sizes), PREFIXED))
    assert bodies_of(chunks) == bodies
    assert not chunks or chunks[-1].end_offset == len(data)


@given(st.lists(st.binary(max_size=12).filter(lambda body: b"\n" not in body)), cuts)
def test_lines_come_back_from_any_cuts(bodies: list[bytes], sizes: list[int]) -> None:
    data = write_lines([], bodies)
    assert bodies_of(list(read_chunks(Cut(data, sizes), LINES))) == bodies


values = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats().map(lambda number: math.nan if math.isnan(number) else number),
    st.text(max_size=5),
    st.binary(max_size=5),
    st.datetimes(timezones=st.just(UTC)).map(lambda when: when.replace(fold=0)),
)


@given(st.binary(max_size=8), st.binary(max_size=8), st.dictionaries(st.text(max_size=4), values, max_size=4), cuts)
def test_a_json_record_comes_back_with_the_types_of_its_attributes(
    key: bytes, body: bytes, attributes: dict[str, object], sizes: list[int]
) -> None:
    line = write_json({}, key, body, attributes)
    (chunk,) = read_chunks(Cut(line, sizes), JSON)
    assert (chunk.keys, chunk.bodies) == ([key], [body])
    found = chunk.attributes[0] if chunk.attributes else {}
    assert repr(found) == repr(attributes)
    assert [type(value) for value in found.values()] == [type(value) for value in attributes.values()]


@given(st.datetimes(timezones=st.just(UTC)))
def test_an_event_time_comes_back(when: datetime) -> None:
    (chunk,) = read_chunks(io.BytesIO(write_json({"event_time": time_text(when)}, b"", b"", None)), JSON)
    assert chunk.event_times == [when]


def test_a_number_that_json_does_not_have_is_written_as_an_object() -> None:
    line = write_json({}, b"", b"", {"a": math.nan, "b": math.inf, "c": -math.inf})
    assert json.loads(line)["attributes"] == {
        "a": {"$float": "NaN"},
        "b": {"$float": "Infinity"},
        "c": {"$float": "-Infinity"},
    }


def test_an_event_time_is_read_with_its_zone() -> None:
    (chunk,) = read_chunks(io.BytesIO(b'{"body":"x","event_time":"2013-07-01T02:00:00+02:00"}\n'), JSON)
    assert chunk.event_times == [datetime(2013, 7, 1, tzinfo=UTC)]


def test_a_key_separator_parts_the_key_from_the_body() -> None:
    (chunk,) = read_chunks(io.BytesIO(b"EWR\tone\ttwo\nno key\n"), LINES, b"\t")
    assert (chunk.keys, chunk.bodies) == ([b"EWR", b""], [b"one\ttwo", b"no key"])
    assert write_lines([b"EWR", b""], [b"one\ttwo", b"no key"], b"\t") == b"EWR\tone\ttwo\n\tno key\n"


def test_a_separator_may_be_any_text_and_be_escaped() -> None:
    assert [separator_of(text) for text in ("\\t", ",", "→", "\\x1f", "")] == [b"\t", b",", "→".encode(), b"\x1f", b""]
    with pytest.raises(Misuse, match="separator"):
        separator_of("\\x")


def test_a_last_line_without_its_end_counts() -> None:
    assert bodies_of(list(read_chunks(io.BytesIO(b"one\ntwo"), LINES))) == [b"one", b"two"]


@given(st.integers(1, 6), cuts)
def test_no_more_records_are_taken_than_are_wanted_and_the_place_is_behind_the_last(
    count: int, sizes: list[int]
) -> None:
    data = b"a\nbb\nccc\n\nd\neeee"
    chunks = list(read_chunks(Cut(data, sizes), LINES, count_max=count))
    assert bodies_of(chunks) == data.split(b"\n")[:count]
    assert chunks[-1].end_offset == min(len(data), len(b"\n".join(data.split(b"\n")[:count])) + 1)


@given(st.integers(0, 3), cuts)
def test_what_is_right_comes_before_the_fault_is_told(count: int, sizes: list[int]) -> None:
    data = b'{"body":"x"}\n\n' * count + b"{]\n"
    seen: list[bytes] = []

    def read() -> None:
        for chunk in read_chunks(Cut(data, sizes), JSON):
            seen.extend(chunk.bodies)

    with pytest.raises(
        Misuse, match=rf"the record at byte {14 * count} \(line {2 * count + 1}\) is not valid"
    ) as caught:
        read()
    assert seen == [b"x"] * count
    assert caught.value.code == "bad-record"


@pytest.mark.parametrize(
    ("line", "named"),
    [
        (b'{"body":"x","body_base64":"eA=="}', "exclude each other"),
        (b'{"body_base64":"?"}', "valid: body_base64 is not base64"),
        (b'{"body":"x","attributes":{"a":{"$bytes":"?"}}}', r"attribute a: \$bytes is not base64"),
        (b'{"body":"x","event_time":"2013-07-01T00:00:00"}', "event_time 2013-07-01T00:00:00 has no time zone"),
        (b'{"body":"x","event_time":"2013"}', 'event_time must be a time as in RFC 3339, "2013-07-01T'),
        (b'{"body":"x","event_time":5}', 'event_time must be a time as in RFC 3339, "2013-07-01T'),
        (
            b'{"body":"x","attributes":{"a":{"$timestamp":"2013"}}}',
            r"attribute a: \$timestamp must be a time as in RFC",
        ),
        (
            b'{"body":"x","attributes":{"a":{"$timestamp":"2013-07-01"}}}',
            "attribute a: 2013-07-01T00:00:00 has no time",
        ),
        (
            b'{"body":"x","attributes":{"a":{"$timestamp":5}}}',
            r'attribute a: .* "\$bytes", "\$timestamp" or "\$float", which is text',
        ),
        (b'{"body":"x","attributes":{"a":{"$float":"1.5"}}}', r"attribute a: \$float must be NaN, Infinity, -Infinity"),
        (b'{"body":"x","attributes":{"a":{"$float":1.5}}}', r"attribute a: .* which is text"),
        (b'{"body":"x","attributes":{"b":1,"a":[1]}}', "attribute a is a list: give text, a number, true"),
        (b'{"body":"x","attributes":{"a":{"$date":"1"}}}', "attribute a"),
        (b'{"body":"x","attributes":{"a":1,"q":1e400}}', "attribute q: 1e400 does not fit 64 bits"),
        (b'{"body":"x","attributes":{"q":' + b"9" * 5000 + b"}}", "attribute q: 9{60}… does not fit 64 bits"),
        (b'{"body":"x","attributes":{"q":' + b"9" * 500 + b"}}", "attribute q: 9{60}… does not fit 64 bits"),
        (b'{"body":"x","attributes":{"a":[1],"b":1e400}}', "attribute a is a list"),
        (b'{"body":"x","attributes":{"a":[1]},"attributes":null}', "attributes"),
        (b'{"body":"x","attributes":{"a":[1]},"attributes":5}', "attributes"),
        (b'{"body":"x","more":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "it is nested too deeply"),
        (b'{"body":"x","attributes":{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}}", "attribute"),
        (b'{"body":5}', "body: Expected text, got a whole number"),
        (b"[]", "Expected an object, got a list"),
        (rb'{"body":"\\\ud800"}', r"\\ud800 is half of a surrogate pair, and no character"),
        (rb'{"body":"\ud83d\ude00\ud800x"}', r"\\ud800 is half of a surrogate pair, and no character"),
        (rb'{"body":"x","attributes":{"a":"\ud83d\uD83E"}}', r"\\ud83d is half of a surrogate pair"),
        (rb'{"body":"\uDC00"}', r"\\uDC00 is half of a surrogate pair, .*: bytes that are no text go into body_base64"),
        (b'{"body":"\xed\xa0\x80"}', r"it has text that is not UTF-8 \(byte 0xed\): .* go into body_base64"),
        (b'{"body":"x","attributes":{"a":NaN}}', r'NaN is no JSON: in attributes write \{"\$float": "NaN"\}'),
        (b'{"body":"x","attributes":{"a":-Infinity}}', r'-Infinity is no JSON: in attributes write \{"\$float": "-Inf'),
        (b'{"body":"NaN","attributes":{"a":Infinity}}', "Infinity is no JSON"),
        (b"NaN", "NaN is no JSON"),
        (b'\xef\xbb\xbf{"body":"x"}', r"it begins with a byte order mark: save the input as UTF-8 without one"),
        (b'\xff\xfe{\0"\0', "it begins with a byte order mark of UTF-16: save the input as UTF-8 without one"),
        (b'{"body":"NaN', "Input data was truncated"),
        (rb'{"body":"\\ud800', "Input data was truncated"),
    ],
)
def test_a_json_record_that_is_not_right_says_why(line: bytes, named: str) -> None:
    with pytest.raises(Misuse, match=named):
        list(read_chunks(io.BytesIO(line + b"\n"), JSON))


texts = st.sampled_from(
    ["", "x", "$bytes", "$float", "NaN", "$timestamp", "2013-07-01T00:00:00Z", "0001-01-01T00:00:00+14:00", "="]
)
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-(10**25), 10**25), st.floats(), st.sampled_from([b"1e400"]), texts
)
values_of_any_kind = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2), max_leaves=4
)
fields = st.sampled_from(["key", "key_base64", "body", "body_base64", "attributes", "event_time", "more"])
members = st.lists(st.tuples(fields, values_of_any_kind | st.dictionaries(texts, values_of_any_kind)), max_size=5)


def as_json(value: object) -> str:
    """As JSON, bytes as they are."""
    match value:
        case bytes():
            return value.decode()
        case dict():
            return "{" + ",".join(f"{json.dumps(name)}:{as_json(part)}" for name, part in value.items()) + "}"
        case list():
            return "[" + ",".join(map(as_json, value)) + "]"
        case _:
            return json.dumps(value)


def fault_of(chunks: Iterator[Chunk]) -> Misuse | None:
    """What is told behind the chunks that are right."""
    try:
        list(chunks)
    except Misuse as refused:
        return refused
    return None


@given(members | st.binary(max_size=30).map(lambda octets: octets.replace(b"\n", b"")))
def test_whatever_a_json_record_is_it_is_taken_or_refused_in_its_place(given: list[tuple[str, object]] | bytes) -> None:
    if isinstance(given, bytes):
        line = given
    else:
        line = ("{" + ",".join(f"{json.dumps(name)}:{as_json(value)}" for name, value in given) + "}").encode()
    chunks = read_chunks(io.BytesIO(b'{"body":"before"}\n' + line + b"\n"), JSON)
    assert next(chunks).bodies[0] == b"before"
    refused = fault_of(chunks)
    assert refused is None or (refused.code, refused.details) == ("bad-record", {"offset": 18})


@given(st.lists(st.sampled_from(["", "a", "bb", "key:ccc"]), min_size=1, max_size=9), st.data())
def test_a_record_of_a_chunk_is_found_again_in_the_input(texts: list[str], draw: st.DataObject) -> None:
    lines = [text.encode() for text in texts]
    objects = [b'{"body":"%s"}' % line if line else b"" for line in lines]
    for form, separator, data, per_record in (
        (LINES, b"", write_lines([], lines), lines),
        (LINES, b":", write_lines([], lines), lines),
        (JSON, b"", write_lines([], objects), objects),
        (PREFIXED, b"", write_prefixed(lines), [write_prefixed([line]) for line in lines]),
    ):
        for chunk in read_chunks(io.BytesIO(data), form, separator):
            count = len(chunk.bodies)
            start = draw.draw(st.integers(0, count - 1))
            part = chunk.part(start, draw.draw(st.integers(start + 1, count)))
            records = [record for record in per_record if record or form != JSON]
            for index in range(len(part.bodies)):
                place = part.place_of(index)
                assert data[place.offset :].startswith(records[start + index])
                assert form == PREFIXED or data.count(b"\n", 0, place.offset) == place.line - 1
            ends = [chunk.place_of(index).offset for index in range(count)] + [chunk.end_offset]
            assert part.end_offset == ends[start + len(part.bodies)]


def test_a_prefix_that_claims_too_much_is_refused_before_anything_is_kept() -> None:
    data = write_prefixed([b"one"]) + (RECORD_SIZE_MAX + 1).to_bytes(4, "big")
    chunks = read_chunks(io.BytesIO(data), PREFIXED)
    assert next(chunks).bodies == [b"one"]
    with pytest.raises(Misuse, match=r"byte 7 has a size of 33554433 bytes"):
        next(chunks)


@pytest.mark.parametrize("octet", [b"\x01", b"\x7f", b"\xff", b'"', b"\n"])
@pytest.mark.parametrize("size", [16 << 20, 20 << 20])
def test_the_largest_body_can_be_read_however_it_is_escaped(size: int, octet: bytes) -> None:
    key, fields = octet * 2048, {"stream": "s" * 255, "sequence": 1 << 62}
    attributes: dict[str, Any] = {"raw": octet * 30_000}
    if octet.isascii():
        attributes["text"] = octet.decode() * 60_000
    line = write_json(fields, key, octet * size, attributes)
    assert len(line) <= record_size_max(JSON, size)
    (chunk,) = read_chunks(io.BytesIO(line), JSON, body_size_max=size)
    assert chunk.bodies == [octet * size]
    assert chunk.keys == [key]
    prefixed = write_prefixed([octet * size])
    assert [chunk.bodies for chunk in read_chunks(io.BytesIO(prefixed), PREFIXED, body_size_max=size)] == [chunk.bodies]


def test_a_line_that_is_longer_than_any_body_makes_it_is_refused_before_all_of_it_is_read() -> None:
    source = io.BytesIO(b"x" * (record_size_max(LINES, 0) + (4 << 20)))
    with pytest.raises(Misuse, match="the record at byte 0 has more than 33554432 bytes"):
        list(read_chunks(source, LINES))
    assert source.tell() <= record_size_max(LINES, 0) + (1 << 20)


def test_an_input_that_ends_within_a_record_is_named() -> None:
    with pytest.raises(Misuse, match="ends within the record at byte 7"):
        list(read_chunks(io.BytesIO(write_prefixed([b"one", b"two"])[:-1]), PREFIXED))


def test_what_is_no_text_is_written_in_base64() -> None:
    line = write_json({"sequence": 7}, b"key", b"\xff", {"raw": b"\xfe", "none": None})
    assert line == (
        b'{"sequence":7,"key":"key","attributes":{"raw":{"$bytes":"'
        + b64encode(b"\xfe")
        + b'"}},"body_base64":"/w=="}\n'
    )
