"""The row payload: what it says byte by byte, and what it refuses to read."""

import tracemalloc
from datetime import UTC, datetime, timedelta, timezone

import msgspec
import pytest

from tests.delivery.making import accept, signed
from veredus.delivery.batch import Layout
from veredus.delivery.payload import read_columns, read_rows, rows_of
from veredus.delivery.publication import TIMESTAMP_MAX_US, TIMESTAMP_MIN_US, Rows, datetime_of, microseconds_of
from veredus.delivery.rows import decode_rows, encode_rows
from veredus.kernel.errors import PeerFault

PLAIN = b"\x95\x91\xc4\x01k\x91\xc4\x01b"
NIL = b"\xc0"


def one_attribute(value: bytes, name: bytes = b"\xa1a") -> bytes:
    """A row payload of one publication whose attribute `a` is this msgpack."""
    return PLAIN + NIL + b"\x91\x81" + name + value + NIL


def offer(payload: bytes, count: int = 1, **header: int) -> None:
    accept(signed(payload, Layout.ROWS, count, **header))


def packed(*values: object) -> bytes:
    return msgspec.msgpack.encode(values)


def test_a_row_payload_is_what_the_page_says_byte_by_byte() -> None:
    when = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    rows = Rows([b"k", b""], [b"b", b"\0"], [1, -1], [{"n": 7, "t": "é", "w": when}, None])
    dump = "95 92c4016bc400 92c40162c40100 9201ff 9283a16e07a174a2c3a9a177d6ff00000001c0 c0"
    assert encode_rows(rows) == bytes.fromhex(dump)
    assert decode_rows(bytes.fromhex(dump), 2, 3) == rows


def test_a_batch_of_one_takes_a_few_tens_of_bytes() -> None:
    assert len(signed(encode_rows(Rows([b"key"], [b"body"])), Layout.ROWS, 1)) < 100


@pytest.mark.parametrize("microseconds", [TIMESTAMP_MIN_US, -1, 0, TIMESTAMP_MAX_US])
def test_the_first_and_the_last_timestamp_come_back(microseconds: int) -> None:
    rows = Rows([b""], [b""], None, [{"a": datetime_of(microseconds)}])
    batch = signed(encode_rows(rows), Layout.ROWS, 1)
    assert read_rows(batch, accept(batch)) == rows
    assert rows_of(read_columns(batch, accept(batch))) == rows


def test_a_timestamp_of_another_zone_is_the_same_moment() -> None:
    when = datetime(2013, 1, 1, 5, 15, tzinfo=timezone(timedelta(hours=-5)))
    found = decode_rows(encode_rows(Rows([b""], [b""], None, [{"a": when}])), 1, 1)
    assert found.attributes == [{"a": when}]
    assert datetime_of(microseconds_of(when)) == when


def test_a_naive_datetime_is_no_moment() -> None:
    with pytest.raises(ValueError, match="no time zone"):
        microseconds_of(datetime(2013, 1, 1))  # noqa: DTZ001


DEEP = 100_000
HOSTILE: dict[str, bytes] = {
    "nothing": b"",
    "no array": b"\x85" + PLAIN[1:] + NIL * 3,
    "nil": NIL,
    "four elements": b"\x94" + PLAIN[1:] + NIL * 2,
    "six elements": b"\x96" + PLAIN[1:] + NIL * 4,
    "nesting behind the elements": b"\x96" + PLAIN[1:] + NIL * 3 + b"\x91" * DEEP + NIL,
    "trailing bytes": PLAIN + NIL * 3 + b"\0",
    "text for a key": b"\x95\x91\xa1k" + PLAIN[5:] + NIL * 3,
    "nil for a key": b"\x95\x91\xc0" + PLAIN[5:] + NIL * 3,
    "nil for keys": b"\x95\xc0" + PLAIN[5:] + NIL * 3,
    "nil for a body": b"\x95\x91\xc4\x01k\x91\xc0" + NIL * 3,
    "a number for a body": b"\x95\x91\xc4\x01k\x91\x01" + NIL * 3,
    "more keys than bodies": packed([b"k", b"k"], [b"b"], None, None, None),
    "no rows at all": packed([], [], None, None, None),
    "too many event times": packed([b"k"], [b"b"], [0, 0], None, None),
    "no event times": packed([b"k"], [b"b"], [], None, None),
    "no attributes": packed([b"k"], [b"b"], None, [], None),
    "an event time of 65 bits": PLAIN + b"\x91\xcf" + b"\xff" * 8 + NIL * 2,
    "an event time that is a float": PLAIN + b"\x91\xcb" + bytes(8) + NIL * 2,
    "an event time that is nil": PLAIN + b"\x91\xc0" + NIL * 2,
    "an excerpt's rows": packed([b"k"], [b"b"], None, None, [0]),
    "attributes that are a list": PLAIN + NIL + b"\x91\x91\x01" + NIL,
    "an attribute's name that is a number": one_attribute(b"\x01", name=b"\x01"),
    "an attribute's name that is empty": one_attribute(b"\x01", name=b"\xa0"),
    "an attribute's name that is not UTF-8": one_attribute(b"\x01", name=b"\xa1\xff"),
    "an attribute's name that is too long": one_attribute(b"\x01", name=b"\xda\x01\x00" + b"x" * 256),
    "an attribute's name that is too long in UTF-8": one_attribute(b"\x01", name=b"\xda\x01\x00" + "é".encode() * 128),
    "an attribute's name of 70,000 bytes": one_attribute(b"\x01", name=b"\xdb\x00\x01\x11\x70" + b"x" * 70_000),
    "an attribute that is nil": one_attribute(NIL),
    "an attribute that is a list": one_attribute(b"\x91\x01"),
    "an attribute that is a map": one_attribute(b"\x81\xa1a\x01"),
    "nested lists": one_attribute(b"\x91" * DEEP + NIL),
    "nested maps": one_attribute(b"\x81\xa1a" * DEEP + NIL),
    "an integer of 64 bits without a sign": one_attribute(b"\xcf" + b"\xff" * 8),
    "an integer just beyond": one_attribute(b"\xcf\x80" + bytes(7)),
    "text that is not UTF-8": one_attribute(b"\xa1\xff"),
    "text with a surrogate": one_attribute(b"\xa3\xed\xa0\x80"),
    "an extension": one_attribute(b"\xd4\x05\x00"),
    "a timestamp of a wrong size": one_attribute(b"\xd4\xff\x00"),
    "a timestamp of too many nanoseconds": one_attribute(b"\xd7\xff" + b"\xff" * 8),
    "a timestamp far away": one_attribute(b"\xc7\x0c\xff" + bytes(4) + b"\x7f" + b"\xff" * 7),
    "a timestamp that rounds to the year 10000": one_attribute(
        b"\xc7\x0c\xff" + (999_999_999).to_bytes(4, "big") + (253_402_300_799).to_bytes(8, "big")
    ),
    "an attribute twice": PLAIN + NIL + b"\x91\x82\xa1a\x01\xa1a\x02" + NIL,
    "an attribute twice among many": PLAIN
    + NIL
    + b"\x91\xde\x00\x11"
    + b"".join(b"\xa1%c\x01" % name for name in b"abcdefghijklmnopa")
    + NIL,
    "a reserved byte": PLAIN + b"\xc1" + NIL * 2,
    "a key of 256 bytes": packed([b"k" * 256], [b"b"], None, None, None),
}


@pytest.mark.parametrize("payload", HOSTILE.values(), ids=HOSTILE)
def test_hostile_rows_under_a_right_signature_are_refused(payload: bytes) -> None:
    with pytest.raises(PeerFault):
        offer(payload)


CLAIMS = {
    "billions of keys": b"\x95\xdd\xff\xff\xff\xff",
    "a key of billions": b"\x95\x91\xc6\xff\xff\xff\xff",
    "billions of attributes": PLAIN + NIL + b"\x91\xdf\xff\xff\xff\xff",
    "billions of values": one_attribute(b"\xdd\xff\xff\xff\xff"),
    "text of billions": one_attribute(b"\xdb\xff\xff\xff\xff"),
    "an extension of billions": one_attribute(b"\xc9\xff\xff\xff\xff\x05"),
}


@pytest.mark.parametrize("payload", CLAIMS.values(), ids=CLAIMS)
def test_a_claimed_size_of_billions_allocates_nothing(payload: bytes) -> None:
    tracemalloc.start()
    with pytest.raises(PeerFault):
        offer(payload)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 18


def with_attributes(*rows: dict[str, object] | None) -> bytes:
    return packed([b""] * len(rows), [b""] * len(rows), None, rows, None)


@pytest.mark.parametrize(
    ("one", "other"), [(1, "a"), (True, 1), (True, 1.5), (b"a", "a"), (1, datetime(2013, 1, 1, tzinfo=UTC))]
)
def test_values_of_two_types_under_one_name_are_refused(one: object, other: object) -> None:
    for rows in (({"a": one}, {"a": other}), ({"a": other}, None, {"b": 1}, {"a": one})):
        with pytest.raises(PeerFault, match="mixed-types"):
            offer(with_attributes(*rows), len(rows))


def test_integers_stand_beside_floats_where_a_column_could_hold_both() -> None:
    rows = ({"a": 1 << 53}, {"a": 0.5}, {"a": -(1 << 53)})
    batch = signed(with_attributes(*rows), Layout.ROWS, 3)
    header = accept(batch)
    assert read_columns(batch, header).attributes["a"].to_pylist() == [float(1 << 53), 0.5, -float(1 << 53)]
    for large in ((1 << 53) + 1, -(1 << 53) - 1, (1 << 63) - 1):
        for hostile in (({"a": large}, {"a": 0.5}), ({"a": 0.5}, {"a": large}), ({"a": 0.5}, {"a": 1}, {"a": large})):
            with pytest.raises(PeerFault, match="mixed-types"):
                offer(with_attributes(*hostile), len(hostile))


def test_a_batch_of_many_names_is_refused_however_few_each_row_has() -> None:
    # As columns, each name would cost a place in every row: a megabyte of names, gigabytes of nulls.
    offer(with_attributes(*({f"a{index % 64}": 1} for index in range(1000))), 1000)
    with pytest.raises(PeerFault, match="at most 64 attributes"):
        offer(with_attributes(*({f"a{index % 65}": 1} for index in range(1000))), 1000)


def test_every_truncation_of_the_payload_is_refused() -> None:
    when = datetime(2013, 1, 1, tzinfo=UTC)
    payload = with_attributes({"a": "text", "b": 1.5, "c": True, "d": b"x", "e": when, "f": -5}, None)
    offer(payload, 2)
    for size in range(len(payload)):
        with pytest.raises(PeerFault):
            offer(payload[:size], 2)


def test_an_event_time_of_64_bits_without_a_sign_is_refused_by_itself() -> None:
    for time_us, is_taken in (((1 << 63) - 1, True), (1 << 63, False)):
        payload = packed([b"k"], [b"b"], [time_us], None, None)
        if is_taken:
            assert decode_rows(payload, 1, 1).event_times_us == [time_us]
        else:
            with pytest.raises(PeerFault, match="64 bits"):
                decode_rows(payload, 1, 1)


BOMBS = {
    "attributes of no row": [[b"k"], [b""], None, [{}] * 1_000_000, None],
    "a list as an attribute": [[b"k"], [b""], None, [{"a": [[]] * 1_000_000}], None],
    "a map as an attribute": [[b"k"], [b""], None, [{"a": {"b": [{}] * 1_000_000}}], None],
    "keys of no row": [[b""] * 1_000_000, [b""], None, None, None],
    "event times of no row": [[b"k"], [b""], [1 << 40] * 1_000_000, None, None],
}


@pytest.mark.parametrize("name", BOMBS)
def test_octets_that_would_become_a_hundredfold_are_refused_before_anything_is_built(name: str) -> None:
    payload = msgspec.msgpack.encode(BOMBS[name])
    tracemalloc.start()
    with pytest.raises(PeerFault):
        decode_rows(payload, 1, 64)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2 * len(payload) + (1 << 16)


def test_large_rows_with_attributes_of_each_kind_are_taken_as_small_ones_are() -> None:
    attributes = {"a": True, "b": 1, "c": 1.5, "d": "x" * 300, "e": bytes(300), "f": datetime(2020, 1, 1, tzinfo=UTC)}
    rows = Rows([b"k"] * 2, [bytes(100_000)] * 2, None, [attributes, None])
    assert decode_rows(encode_rows(rows), 2, 64) == rows
