"""The columnar payload: what it says byte by byte, what it refuses to write, and what it refuses to read."""

import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest

from tests.delivery.making import LIMITS, accept, plain_columns, signed
from veredus.delivery.arrays import TIMESTAMP
from veredus.delivery.batch import Layout, read_header
from veredus.delivery.columns import Encoding, Role, decode_columns, encode_columns, lengths_of
from veredus.delivery.payload import read_rows, rows_of
from veredus.delivery.publication import TIMESTAMP_MAX_US, TIMESTAMP_MIN_US, Columns
from veredus.kernel.errors import PeerFault

BYTES, TEXT, BOOL, INT64, FLOAT64, TIME, UINT32 = range(7)


@dataclass
class Column:
    """One column as a peer may write it, right or wrong."""

    role: int
    type_code: int
    data: bytes
    name: bytes = b""
    encoding: int = 0
    has_nulls: int = 0
    dictionary_count: int = 0
    reserved: int = 0
    size: int | None = None
    name_size: int | None = None


def pad(data: bytes) -> bytes:
    return data + bytes(-len(data) % 8)


def text(*values: bytes, offsets: tuple[int, ...] | None = None) -> bytes:
    """The offsets and bytes of a plain column; the offsets may be given to lie."""
    if offsets is None:
        offsets = (0, *np.cumsum([len(value) for value in values]).tolist())
    return pad(struct.pack(f"<{len(offsets)}i", *offsets)) + pad(b"".join(values))


def codes(*values: int) -> bytes:
    return pad(struct.pack(f"<{len(values)}i", *values))


def payload_of(*columns: Column, count: int | None = None, names_size: int | None = None) -> bytes:
    names = b"".join(column.name for column in columns)
    head = struct.pack(
        "<HHI", len(columns) if count is None else count, 0, len(names) if names_size is None else names_size
    )
    descriptors = b"".join(
        struct.pack(
            "<BBBBHHII",
            c.role,
            c.type_code,
            c.encoding,
            c.has_nulls,
            len(c.name) if c.name_size is None else c.name_size,
            c.reserved,
            len(c.data) if c.size is None else c.size,
            c.dictionary_count,
        )
        for c in columns
    )
    return head + descriptors + pad(names) + b"".join(c.data for c in columns)


KEY = Column(Role.KEY, BYTES, text(b"a", b"bc", b""))
BODY = Column(Role.BODY, BYTES, text(b"", b"x", b"yz"))


def offer(*columns: Column, count: int = 3, **header: int) -> None:
    accept(signed(payload_of(*columns), Layout.COLUMNS, count, **header))


def attribute(type_code: int, data: bytes, **changes: object) -> Column:
    return Column(Role.ATTRIBUTE, type_code, data, name=b"a", **changes)  # type: ignore[arg-type]


# ── what it says ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_columnar_payload_is_what_the_page_says_byte_by_byte() -> None:
    columns = Columns(
        pa.array([b"a", b"bc", b""], pa.binary()),
        pa.array([b"", b"x", b"yz"], pa.binary()),
        pa.array([1, -1, 2], pa.int64()),
        {
            "on": pa.array([True, None, True]),
            "é": pa.DictionaryArray.from_arrays(pa.array([1, 0, None], pa.int32()), pa.array(["u", "vw"])),
        },
        np.array([4, 5, 9], np.uint32),
    )
    expected = payload_of(
        KEY,
        BODY,
        Column(Role.EVENT_TIME, INT64, struct.pack("<3q", 1, -1, 2)),
        Column(Role.ATTRIBUTE, BOOL, pad(b"\x05") + pad(b"\x05"), name=b"on", has_nulls=1),
        Column(
            Role.ATTRIBUTE, TEXT, pad(b"\x03") + codes(1, 0, 0) + text(b"u", b"vw"), name="é".encode(),
            encoding=Encoding.DICTIONARY, has_nulls=1, dictionary_count=2,
        ),
        Column(Role.ROW, UINT32, pad(struct.pack("<3I", 4, 5, 9))),
    )  # fmt: skip
    assert b"".join(encode_columns(columns)) == expected
    found = decode_columns(expected, 3, 2)
    assert rows_of(found) == rows_of(columns)


def test_columns_are_read_on_the_memory_of_their_payload() -> None:
    payload = b"".join(encode_columns(plain_columns(100)))
    buffer = pa.py_buffer(payload)
    found = decode_columns(payload, 100, 0)
    for array in (found.keys, found.bodies):
        for part in array.buffers()[1:]:
            assert buffer.address <= part.address < buffer.address + buffer.size


@pytest.mark.parametrize("misplaced_by", range(1, 8))
def test_memory_that_begins_anywhere_is_read_as_well(misplaced_by: int) -> None:
    rows = rows_of(plain_columns(70))
    columns = plain_columns(70)._replace(
        event_times_us=pa.array(range(70), pa.int64()),
        attributes={"f": pa.array([i / 7 for i in range(70)]), "b": pa.array([i % 3 == 0 for i in range(70)])},
    )
    payload = bytes(misplaced_by) + b"".join(encode_columns(columns))
    found = rows_of(decode_columns(memoryview(payload)[misplaced_by:], 70, 2))
    assert (found.keys, found.bodies) == (rows.keys, rows.bodies)
    assert found.event_times_us == list(range(70))
    assert found.attributes == [{"f": i / 7, "b": i % 3 == 0} for i in range(70)]


def test_sizes_of_values_are_counted_in_slices_and_dictionaries() -> None:
    array = pa.array([b"", b"ab", b"abc", b"a"], pa.binary())
    assert lengths_of(array).tolist() == [0, 2, 3, 1]
    assert lengths_of(array.slice(1, 2)).tolist() == [2, 3]
    assert lengths_of(pa.array([b"ab", b"ab"], pa.binary()).dictionary_encode()).tolist() == [2]
    assert lengths_of(pa.array([], pa.binary())).tolist() == []


@pytest.mark.parametrize(
    "array",
    [
        pa.array(["", "", ""]),
        pa.array([None, None, None], pa.string()),
        pa.array([None, None, None], pa.string()).dictionary_encode(),
        pa.array([None, None, None], pa.bool_()),
        pa.nulls(3, pa.int64()),
        pa.nulls(3, TIMESTAMP),
        pa.array([float("nan"), None, -0.0]),
        pa.array([b"", None, b"x"]),
        pa.array([True] * 5 + [False, True, None] + [True] * 4).slice(5, 3),
        pa.array([True] * 5 + [False, True, False]).slice(5, 3),
        pa.array(["a", "bc", None, "d", "e"]).slice(2, 3),
        pa.array(["a", "bc", None, "d", "e"]).dictionary_encode().slice(1, 3),
        pa.DictionaryArray.from_arrays(pa.array([0, 1, 0], pa.int32()), pa.array(["a", None])),
        pa.array([TIMESTAMP_MIN_US, None, TIMESTAMP_MAX_US], TIMESTAMP),
        pa.array([datetime(2013, 1, 1, tzinfo=UTC)] * 3, TIMESTAMP),
    ],
)
def test_an_awkward_column_comes_back_as_it_was(array: pa.Array) -> None:
    payload = b"".join(encode_columns(plain_columns(3)._replace(attributes={"a": array})))
    found = decode_columns(payload, 3, 1).attributes["a"]
    assert repr(found.to_pylist()) == repr(array.to_pylist())
    accept(signed(payload, Layout.COLUMNS, 3))


# ── what it refuses to write ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (pa.array(["a"], pa.large_string()), "attribute 'a' is large_string: cast it to"),
        (pa.array([b"a"], pa.large_binary()), "large_binary"),
        (pa.array(["a"], pa.string_view()), "string_view"),
        (pa.array([1], pa.int32()), "int32"),
        (pa.array([1], pa.uint32()), "uint32"),
        (pa.array([1], pa.uint64()), "uint64"),
        (pa.array([1], pa.float32()), "float"),
        (pa.array([1], pa.timestamp("us")), r"timestamp\[us\]: cast"),
        (pa.array([1], pa.timestamp("ns", "UTC")), r"timestamp\[ns, tz=UTC\]"),
        (pa.array([1], pa.timestamp("us", "Europe/Rome")), "Europe/Rome"),
        (pa.nulls(1), "null"),
        (pa.array([["a"]]), "list"),
        (pa.array([{"x": 1}]), "struct"),
        (pa.array(["a"], pa.dictionary(pa.int8(), pa.string())), "dictionary<values=string, indices=int8"),
        (pa.array(["a"], pa.dictionary(pa.int32(), pa.large_string())), "large_string"),
        (pa.array([1], pa.int64()).dictionary_encode(), "dictionary must have int32 codes of text or bytes"),
        (pa.array([TIMESTAMP_MAX_US + 1], TIMESTAMP), "years 1 to 9999"),
        (pa.array([TIMESTAMP_MIN_US - 1], TIMESTAMP), "years 1 to 9999"),
    ],
)
def test_a_type_that_cannot_be_written_is_refused_with_words(array: pa.Array, words: str) -> None:
    with pytest.raises(PeerFault, match=words) as caught:
        encode_columns(plain_columns(1)._replace(attributes={"a": array}))
    assert caught.value.code == "bad-publication"


KEYS = pa.array([b"k"], pa.binary())


@pytest.mark.parametrize(
    "changes",
    [
        {"keys": pa.array(["k"])},
        {"keys": pa.array([b"k"], pa.large_binary())},
        {"keys": pa.array([None], pa.binary())},
        {"keys": pa.array([None], pa.binary()).dictionary_encode()},
        {"keys": pa.DictionaryArray.from_arrays(pa.array([0], pa.int32()), pa.array([None], pa.binary()))},
        {"bodies": pa.array(["b"])},
        {"bodies": pa.array([None], pa.binary())},
        {"bodies": KEYS.dictionary_encode()},
        {"event_times_us": pa.array([1], TIMESTAMP)},
        {"event_times_us": pa.array([None], pa.int64())},
        {"attributes": {"": pa.array([1])}},
        {"attributes": {"x" * 256: pa.array([1])}},
        {"attributes": {"é" * 128: pa.array([1])}},
    ],
)
def test_columns_that_would_be_refused_are_not_written(changes: dict[str, object]) -> None:
    with pytest.raises(PeerFault, match="bad-publication"):
        encode_columns(plain_columns(1)._replace(**changes))  # type: ignore[arg-type]


# ── what it refuses to read ──────────────────────────────────────────────────────────────────────────────────────────


def test_a_payload_made_by_hand_is_taken() -> None:
    offer(KEY, BODY)
    offer(BODY, KEY)
    offer(KEY, BODY, attribute(INT64, struct.pack("<3q", 1, 2, 3)))
    offer(KEY, BODY, attribute(FLOAT64, struct.pack("<3d", float("nan"), float("inf"), -0.0)))
    offer(KEY, BODY, attribute(TEXT, codes(0, 1, 0) + text(b"", "é".encode()), encoding=1, dictionary_count=2))
    offer(KEY, BODY, attribute(TEXT, pad(b"\0") + codes(9, -9, 5) + text(), encoding=1, has_nulls=1))
    offer(
        Column(Role.KEY, BYTES, codes(1, 1, 0) + text(b"a", b"b"), encoding=1, dictionary_count=2),
        BODY,
        Column(Role.EVENT_TIME, INT64, struct.pack("<3q", 5, -5, 0)),
        event_time_min_us=-5,
        event_time_max_us=5,
    )


def keys(data: bytes, **changes: object) -> tuple[Column, ...]:
    return Column(Role.KEY, BYTES, data, **changes), BODY  # type: ignore[arg-type]


def with_attribute(type_code: int, data: bytes, **changes: object) -> tuple[Column, ...]:
    return KEY, BODY, attribute(type_code, data, **changes)


LONGS = struct.pack("<3q", 1, 2, 3)
HOSTILE: dict[str, tuple[Column, ...]] = {
    "no columns": (),
    "no bodies": (KEY,),
    "no keys": (BODY,),
    "keys twice": (KEY, KEY, BODY),
    "bodies twice": (KEY, BODY, BODY),
    "event times twice": (KEY, BODY, *[Column(Role.EVENT_TIME, INT64, bytes(24))] * 2),
    "an attribute twice": (KEY, BODY, *[attribute(INT64, LONGS)] * 2),
    "an unknown role": (KEY, BODY, Column(6, INT64, LONGS)),
    "role zero": (KEY, BODY, Column(0, INT64, LONGS)),
    "an excerpt's column of rows": (KEY, BODY, Column(Role.ROW, UINT32, pad(struct.pack("<3I", 0, 1, 2)))),
    "an unknown type": with_attribute(7, LONGS),
    "an attribute of an excerpt's type": with_attribute(UINT32, pad(struct.pack("<3I", 0, 1, 2))),
    "an unknown encoding": with_attribute(TEXT, text(b"", b"", b""), encoding=2),
    "a dictionary of integers": with_attribute(INT64, codes(0, 0, 0) + LONGS, encoding=1, dictionary_count=3),
    "text for keys": (Column(Role.KEY, TEXT, text(b"a", b"b", b"c")), BODY),
    "text for bodies": (KEY, Column(Role.BODY, TEXT, text(b"a", b"b", b"c"))),
    "a dictionary of bodies": (
        KEY,
        Column(Role.BODY, BYTES, codes(0, 0, 0) + text(b"a"), encoding=1, dictionary_count=1),
    ),
    "floats for event times": (KEY, BODY, Column(Role.EVENT_TIME, FLOAT64, bytes(24))),
    "nulls in keys": keys(pad(b"\x05") + text(b"a", b"", b"b"), has_nulls=1),
    "nulls in bodies": (KEY, Column(Role.BODY, BYTES, pad(b"\x05") + text(b"a", b"", b"b"), has_nulls=1)),
    "nulls in event times": (KEY, BODY, Column(Role.EVENT_TIME, INT64, pad(b"\x05") + bytes(24), has_nulls=1)),
    "nulls in a dictionary of keys": keys(
        pad(b"\x05") + codes(0, 0, 0) + text(b"a"), encoding=1, dictionary_count=1, has_nulls=1
    ),
    "nulls said and not there": with_attribute(INT64, LONGS, has_nulls=1),
    "nulls there and not said": with_attribute(INT64, pad(b"\x05") + LONGS),
    "offsets that fall": keys(text(b"abc", offsets=(0, 2, 1, 3))),
    "offsets below zero": keys(text(b"abc", offsets=(0, -1, 1, 3))),
    "first offset below zero": keys(text(b"abc", offsets=(-8, 0, 1, 3))),
    "first offset far below zero": keys(text(b"abc", offsets=(-(1 << 31), 0, 1, 3))),
    "last offset below zero": keys(text(b"abc", offsets=(0, 1, 2, -3))),
    "offsets beyond the bytes": keys(text(b"abc", offsets=(0, 1, 2, 9))),
    "middle offset beyond the bytes": keys(text(b"abc", offsets=(0, 1, 900, 3))),
    "offsets far beyond the bytes": keys(text(b"abc", offsets=(0, 1, 2, (1 << 31) - 1))),
    "all offsets far away": keys(text(b"abc", offsets=((1 << 31) - 1,) * 4)),
    "too few offsets": keys(text(b"abc", offsets=(0, 3))),
    "too many offsets": keys(text(b"abc", offsets=(0, 1, 2, 3, 3, 3))),
    "bytes behind the last offset": keys(text(b"abc", offsets=(0, 1, 2, 3)) + bytes(8)),
    "text that is not UTF-8": with_attribute(TEXT, text(b"a", b"\xff", b"b")),
    "text that is cut": with_attribute(TEXT, text(b"\xc3", b"\xa9", b"")),
    "text with a surrogate": with_attribute(TEXT, text(b"\xed\xa0\x80", b"", b"")),
    "a dictionary that is not UTF-8": with_attribute(
        TEXT, codes(0, 0, 0) + text(b"a", b"\xff"), encoding=1, dictionary_count=2
    ),
    "a code beyond the dictionary": keys(codes(0, 2, 1) + text(b"a", b"b"), encoding=1, dictionary_count=2),
    "a code below zero": keys(codes(0, -1, 1) + text(b"a", b"b"), encoding=1, dictionary_count=2),
    "a code far away": keys(codes(0, (1 << 31) - 1, 1) + text(b"a", b"b"), encoding=1, dictionary_count=2),
    "codes without a dictionary": keys(codes(0, 0, 0) + text(), encoding=1, dictionary_count=0),
    "a dictionary that lies": keys(codes(0, 1, 1) + text(b"a", b"b"), encoding=1, dictionary_count=1),
    "a dictionary of billions": keys(codes(0, 1, 1) + text(b"a", b"b"), encoding=1, dictionary_count=(1 << 32) - 1),
    "too few codes": keys(codes(0) + text(b"a"), encoding=1, dictionary_count=1),
    "too few integers": with_attribute(INT64, LONGS[:16]),
    "too many integers": with_attribute(INT64, LONGS + bytes(8)),
    "no flags": with_attribute(BOOL, b""),
    "too many flags": with_attribute(BOOL, bytes(16)),
    "a timestamp after the year 9999": with_attribute(TIME, struct.pack("<3q", 0, TIMESTAMP_MAX_US + 1, 0)),
    "a timestamp before the year 1": with_attribute(TIME, struct.pack("<3q", 0, TIMESTAMP_MIN_US - 1, 0)),
    "data that is not padded": with_attribute(INT64, LONGS[:-1]),
    "a size that is too small": (KEY, BODY, attribute(INT64, LONGS, size=16)),
    "a size that is too large": (KEY, BODY, attribute(INT64, LONGS, size=32)),
    "a size of billions": (KEY, BODY, attribute(INT64, LONGS, size=(1 << 32) - 1)),
    "bytes behind the last column": (KEY, BODY, attribute(INT64, LONGS + bytes(8), size=24)),
    "an attribute without a name": (KEY, BODY, Column(Role.ATTRIBUTE, INT64, LONGS)),
    "a key with a name": (Column(Role.KEY, BYTES, KEY.data, name=b"key"), BODY),
    "a name that is not UTF-8": (KEY, BODY, Column(Role.ATTRIBUTE, INT64, LONGS, name=b"\xff")),
    "a name beyond the names": (KEY, BODY, attribute(INT64, LONGS, name_size=2)),
    "names that nobody has": (KEY, BODY, Column(Role.ATTRIBUTE, INT64, LONGS, name=b"abc", name_size=1)),
    "a name that is too long": (KEY, BODY, Column(Role.ATTRIBUTE, INT64, LONGS, name=b"x" * 256)),
    "a key of 256 bytes": keys(text(b"", b"k" * 256, b"")),
    "a key of 256 bytes that no row has": keys(codes(0, 0, 0) + text(b"", b"k" * 256), encoding=1, dictionary_count=2),
}


@pytest.mark.parametrize("columns", HOSTILE.values(), ids=HOSTILE)
def test_hostile_columns_under_a_right_signature_are_refused(columns: tuple[Column, ...]) -> None:
    with pytest.raises(PeerFault):
        offer(*columns)


@pytest.mark.parametrize("count", [1, 4, 5, 8, 9, 65_536])
def test_a_count_that_lies_is_refused_whatever_it_says(count: int) -> None:
    for more in ((), (attribute(BOOL, pad(b"\x07")),), (attribute(INT64, LONGS),)):
        with pytest.raises(PeerFault):
            offer(KEY, BODY, *more, count=count)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda: payload_of(KEY, BODY, count=3),
        lambda: payload_of(KEY, BODY, count=1),
        lambda: payload_of(KEY, BODY, count=0xFFFF),
        lambda: payload_of(KEY, BODY, names_size=8),
        lambda: payload_of(KEY, BODY, names_size=(1 << 32) - 1),
        lambda: payload_of(KEY, BODY) + b"\0",
        lambda: b"",
        lambda: bytes(7),
        lambda: bytes(8),
    ],
)
def test_a_head_that_lies_is_refused(spoil: Callable[[], bytes]) -> None:
    with pytest.raises(PeerFault):
        accept(signed(spoil(), Layout.COLUMNS, 3))


SPOILT: dict[str, Callable[[], bytes]] = {
    "reserved bytes behind the count": lambda: payload_of(KEY, BODY).replace(b"\x02\0\0\0", b"\x02\0\1\0", 1),
    "reserved bytes of a descriptor": lambda: payload_of(KEY, replace(BODY, reserved=256)),
    "a bitmap that is there or is not": lambda: payload_of(
        KEY, BODY, attribute(INT64, pad(b"\x07") + LONGS, has_nulls=2)
    ),
    "entries of a column without a dictionary": lambda: payload_of(replace(KEY, dictionary_count=3), BODY),
    "offsets of keys that begin at 1": lambda: payload_of(
        replace(KEY, data=text(b"-a", b"bc", b"", offsets=(1, 2, 4, 4))), BODY
    ),
    "offsets of a dictionary that begin at 1": lambda: payload_of(
        replace(KEY, data=codes(0, 0, 0) + text(b"-a", offsets=(1, 2)), encoding=1, dictionary_count=1), BODY
    ),
    "names that are not padded with zeros": lambda: payload_of(KEY, BODY, attribute(INT64, LONGS)).replace(
        b"a" + bytes(7), b"a" + bytes(6) + b"\1", 1
    ),
    "values that are not padded with zeros": lambda: payload_of(replace(KEY, data=KEY.data[:-1] + b"\1"), BODY),
}


@pytest.mark.parametrize("spoil", SPOILT.values(), ids=SPOILT)
def test_what_only_some_readers_could_do_without_is_refused_and_still_read_where_a_journal_has_it(
    spoil: Callable[[], bytes],
) -> None:
    batch = signed(spoil(), Layout.COLUMNS, 3)
    with pytest.raises(PeerFault, match="bad-batch"):
        accept(batch)
    assert read_rows(batch, read_header(batch)).keys[0] == b"a"


def test_every_truncation_of_the_payload_is_refused() -> None:
    payload = payload_of(KEY, BODY, attribute(TEXT, pad(b"\x07") + text(b"a", b"b", b"c"), has_nulls=1))
    accept(signed(payload, Layout.COLUMNS, 3))
    for size in range(len(payload)):
        with pytest.raises(PeerFault):
            accept(signed(payload[:size], Layout.COLUMNS, 3))


def test_codes_under_nulls_are_never_followed() -> None:
    flags = pad(b"\x02")
    column = attribute(TEXT, flags + codes(1 << 30, 0, -1) + text(b"v"), encoding=1, has_nulls=1, dictionary_count=1)
    batch = signed(payload_of(KEY, BODY, column), Layout.COLUMNS, 3)
    header = accept(batch)
    assert read_rows(batch, header).attributes == [{}, {"a": "v"}, {}]


def test_more_attributes_than_the_limit_are_refused() -> None:
    columns = [Column(Role.ATTRIBUTE, INT64, LONGS, name=b"%03d" % index) for index in range(65)]
    offer(KEY, BODY, *columns[:64])
    with pytest.raises(PeerFault, match=f"at most {LIMITS.attributes_max} attributes"):
        offer(KEY, BODY, *columns)
