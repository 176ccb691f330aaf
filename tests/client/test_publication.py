"""Batches as they come over the wire, unpacked as rows and as columns, whole and in excerpts."""

from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest

from veredus.client.publication import Batch, Interest, Publication, UnpackedPublication, batches_in
from veredus.client.settling import Settling
from veredus.delivery.arrays import TIMESTAMP
from veredus.delivery.batch import BatchHeader, Layout, read_header, signed_record
from veredus.delivery.columns import encode_columns
from veredus.delivery.joining import joined_columns
from veredus.delivery.payload import columns_of, excerpt_record
from veredus.delivery.publication import TIMESTAMP_MAX_US, UNIX_EPOCH, AttributeValue, Rows
from veredus.delivery.record import ENVELOPE_SIZE, Envelope, RecordKind, write_envelope
from veredus.delivery.rows import encode_rows
from veredus.kernel.errors import PeerFault

FIRST, NUMBER, APPENDED_US = 1_000, 77, 1_700_000_000_000_000


def rows_of(count: int) -> Rows:
    attributes: list[dict[str, AttributeValue] | None] = [
        {"n": index, "name": "even" if index % 2 == 0 else "odd"} if index % 5 else {"n": index}
        for index in range(count)
    ]
    return Rows(
        [b"k%d" % (index % 3) for index in range(count)],
        [b"%d" % index for index in range(count)],
        [1_000_000 * index for index in range(count)],
        attributes,
    )


def enveloped(record: bytearray) -> bytearray:
    size = 64 + int.from_bytes(record[ENVELOPE_SIZE + 12 : ENVELOPE_SIZE + 16], "little")
    write_envelope(record, Envelope(RecordKind.BATCH, 0, size, 0, FIRST, APPENDED_US))
    return record


def record_of(rows: Rows, layout: Layout) -> bytearray:
    count = len(rows.keys)
    times = rows.event_times_us or [0]
    header = BatchHeader(layout, 0, 0, 0, count, 1, 9, 1, count, NUMBER, min(times), max(times))
    payload = [encode_rows(rows)] if layout is Layout.ROWS else encode_columns(columns_of(rows))
    return enveloped(signed_record(header, payload))


def only_batch(record: bytearray, redelivered_to: int = 0, interest: Interest | None = None) -> Batch:
    (batch,) = batches_in(
        "s", memoryview(record), redelivered_to, {9: "desk"}, lambda batch: None, interest or Interest(), Settling()
    )
    return batch


@pytest.mark.parametrize("layout", list(Layout))
@pytest.mark.parametrize("count", [1, 40, 1300])
def test_every_publication_has_what_its_source_gave_it(layout: Layout, count: int) -> None:
    rows = rows_of(count)
    batch = only_batch(record_of(rows, layout), redelivered_to=FIRST)
    got = list(batch)
    assert [p.key for p in got] == rows.keys
    assert [p.body for p in got] == rows.bodies
    assert [p.sequence for p in got] == list(range(FIRST, FIRST + count))
    assert [p.number for p in got] == list(range(NUMBER, NUMBER + count))
    assert [p.attributes for p in got] == rows.attributes
    assert [p.event_time for p in got] == [datetime.fromtimestamp(index, UTC) for index in range(count)]
    assert {p.source for p in got} == {"desk"}
    assert {p.append_time for p in got} == {datetime.fromtimestamp(APPENDED_US / 1_000_000, UTC)}
    assert [p.is_redelivered for p in got] == [True] + [False] * (count - 1)


DATE_MIN, DATE_MAX = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
FAR_AWAY = {(1 << 63) - 1: DATE_MAX, TIMESTAMP_MAX_US + 1: DATE_MAX, -(1 << 63): DATE_MIN}


@pytest.mark.parametrize("layout", list(Layout))
@pytest.mark.parametrize("has_column", [False, True])
@pytest.mark.parametrize("time_us", FAR_AWAY)
def test_an_event_time_that_no_calendar_has_and_an_older_node_took_is_the_nearest_one(
    layout: Layout, has_column: bool, time_us: int
) -> None:
    rows = Rows([b"k"] * 2, [b"b"] * 2, [time_us, 0 if has_column else time_us])
    if has_column:
        record = record_of(rows, layout)
    else:
        plain = rows._replace(event_times_us=None)
        payload = [encode_rows(plain)] if layout is Layout.ROWS else encode_columns(columns_of(plain))
        header = BatchHeader(layout, 0, 0, 0, 2, 1, 9, 1, 2, NUMBER, time_us, time_us)
        record = enveloped(signed_record(header, payload))
    nearest = FAR_AWAY[time_us]
    expected = [nearest, UNIX_EPOCH if has_column else nearest]
    batch = only_batch(record)
    assert [p.event_time for p in batch] == expected
    assert batch.to_arrow().column("event_time").to_pylist() == expected
    joined = joined_columns([batch.signed, batch.signed]).event_times_us
    assert joined is not None
    assert joined.view(TIMESTAMP).to_pylist() == expected * 2


@pytest.mark.parametrize("layout", list(Layout))
@pytest.mark.parametrize("is_excerpt", [False, True])
def test_once_asked_for_attributes_are_unpacked_with_what_follows_and_are_the_same(
    layout: Layout, is_excerpt: bool
) -> None:
    record = record_of(rows_of(1300), layout)
    if is_excerpt:
        header = read_header(memoryview(record)[ENVELOPE_SIZE : ENVELOPE_SIZE + read_size(record)])
        selection = np.arange(1300) % 3 > 0
        record = enveloped(excerpt_record(header, columns_of(rows_of(1300)), selection))
    interest = Interest()
    before = [(p.sequence, p.attributes) for p in list(only_batch(record, interest=interest))]
    assert interest.has_attributes
    batch = only_batch(record, interest=interest)
    batch.skip_to(before[100][0])
    unpacked = list(batch)
    assert {type(p) for p in unpacked} == {UnpackedPublication}
    assert [(p.sequence, p.attributes) for p in unpacked] == before[100:]
    assert repr(unpacked[0]).startswith(f"Publication(sequence={before[100][0]}, ")


@pytest.mark.parametrize("layout", list(Layout))
def test_attributes_that_nobody_asks_for_are_not_unpacked(layout: Layout) -> None:
    interest = Interest()
    for publication in only_batch(record_of(rows_of(1300), layout), interest=interest):
        assert publication.body is not None
        assert type(publication) is Publication
    assert not interest.has_attributes


@pytest.mark.parametrize("layout", list(Layout))
def test_publications_without_attributes_have_none_also_where_others_had_some(layout: Layout) -> None:
    interest = Interest()
    interest.has_attributes = True
    rows = Rows([b"k"] * 300, [b"b"] * 300)
    assert [p.attributes for p in only_batch(record_of(rows, layout), interest=interest)] == [{}] * 300


@pytest.mark.parametrize("layout", list(Layout))
@pytest.mark.parametrize("words_count", [1, 3, 200])
def test_arrow_columns_are_plain_whatever_the_batch_is_made_of(layout: Layout, words_count: int) -> None:
    count = 200
    when = datetime(2026, 1, 2, 3, 4, 5, 6, UTC)
    attributes: list[dict[str, AttributeValue] | None] = [
        {
            "text": f"word {index % words_count}",
            "octets": b"o",
            "int": index,
            "float": index / 2,
            "bool": index % 2 == 0,
            "time": when,
            "key": "k",
            **({"rare": "now and then"} if index % 7 == 0 else {}),
        }
        for index in range(count)
    ]
    keys = [b"k%d" % (index % words_count) for index in range(count)]
    batch = only_batch(record_of(Rows(keys, [b"b"] * count, None, attributes), layout))
    batch.skip_to(FIRST + 3)
    table = batch.to_arrow()
    micros = pa.timestamp("us", tz="UTC")
    assert dict(zip(table.schema.names, table.schema.types, strict=True)) == {
        "sequence": pa.int64(),
        "source": pa.string(),
        "number": pa.int64(),
        "key": pa.binary(),
        "body": pa.binary(),
        "event_time": micros,
        "append_time": micros,
        "text": pa.string(),
        "octets": pa.binary(),
        "int": pa.int64(),
        "float": pa.float64(),
        "bool": pa.bool_(),
        "time": micros,
        "attribute.key": pa.string(),
        "rare": pa.string(),
    }
    table.validate(full=True)
    assert table["sequence"].to_pylist() == list(range(FIRST + 3, FIRST + count))
    assert table["number"].to_pylist() == list(range(NUMBER + 3, NUMBER + count))
    assert set(table["source"].to_pylist()) == {"desk"}
    assert table["key"].to_pylist() == keys[3:]
    assert table["text"].to_pylist() == [f"word {index % words_count}" for index in range(3, count)]
    assert table["time"].to_pylist() == [when] * (count - 3)
    assert table["rare"].to_pylist() == ["now and then" if index % 7 == 0 else None for index in range(3, count)]
    assert set(table["append_time"].cast(pa.int64()).to_pylist()) == {APPENDED_US}
    assert set(table["event_time"].cast(pa.int64()).to_pylist()) == {0}


def test_what_was_received_can_be_joined_without_being_unpacked_before() -> None:
    batches = [
        only_batch(record_of(rows_of(count), layout)) for count, layout in ((3, Layout.ROWS), (9, Layout.COLUMNS))
    ]
    columns = joined_columns([batch.signed for batch in batches])
    assert columns.bodies.to_pylist() == [p.body for batch in batches for p in batch]


@pytest.mark.parametrize("layout", list(Layout))
def test_timestamps_are_of_the_standard_librarys_utc(layout: Layout) -> None:
    times = [datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC)] * 100
    attributes: list[dict[str, AttributeValue] | None] = [{"at": when} for when in times]
    batch = only_batch(record_of(Rows([b"k"] * 200, [b"b"] * 200, None, attributes), layout))
    got = [p.attributes["at"] for p in batch]
    assert got == times
    assert {when.tzinfo for when in got if isinstance(when, datetime)} == {UTC}


@pytest.mark.parametrize("kept_count", [1, 30, 500])
def test_an_excerpt_keeps_the_sequences_and_numbers_of_what_it_holds(kept_count: int) -> None:
    rows = rows_of(1300)
    record = record_of(rows, Layout.COLUMNS)
    header = read_header(memoryview(record)[ENVELOPE_SIZE : -(-len(record) % 8) or None][: read_size(record)])
    selection = np.zeros(1300, np.bool_)
    chosen = sorted(
        {(index * 1299) // max(1, kept_count - 1) if kept_count > 1 else 700 for index in range(kept_count)}
    )
    selection[chosen] = True
    batch = only_batch(enveloped(excerpt_record(header, columns_of(rows), selection)))
    assert [p.sequence for p in batch] == [FIRST + index for index in chosen]
    assert [p.number for p in batch] == [NUMBER + index for index in chosen]
    assert [p.body for p in batch] == [b"%d" % index for index in chosen]
    assert [p.attributes["n"] for p in batch] == chosen
    assert [p.event_time.timestamp() for p in batch] == chosen
    assert (batch.first_sequence, batch.last_sequence) == (FIRST + chosen[0], FIRST + chosen[-1])
    position = FIRST + chosen[len(chosen) // 2]
    batch.skip_to(position)
    assert [p.sequence for p in batch] == [FIRST + index for index in chosen if FIRST + index >= position]
    assert batch.to_arrow()["sequence"].to_pylist() == [p.sequence for p in batch]
    assert batch.to_arrow()["number"].to_pylist() == [p.number for p in batch]


def read_size(record: bytearray) -> int:
    return 64 + int.from_bytes(record[ENVELOPE_SIZE + 12 : ENVELOPE_SIZE + 16], "little")


@pytest.mark.parametrize("layout", list(Layout))
def test_what_was_handed_out_before_is_left_out(layout: Layout) -> None:
    batch = only_batch(record_of(rows_of(100), layout))
    batch.skip_to(FIRST + 60)
    assert len(batch) == 40
    assert [p.sequence for p in batch] == list(range(FIRST + 60, FIRST + 100))
    assert next(iter(batch)).attributes == {"n": 60}
    assert batch.to_arrow().num_rows == 40
    batch.skip_to(FIRST + 500)
    assert len(batch) == 0
    assert list(batch) == []


@pytest.mark.parametrize("place", [4, ENVELOPE_SIZE + 2, ENVELOPE_SIZE + 50, -9])
def test_a_flipped_bit_anywhere_is_seen(place: int) -> None:
    record = record_of(rows_of(100), Layout.COLUMNS)
    record[place] ^= 1
    with pytest.raises(PeerFault):
        only_batch(record)


def test_a_batch_says_what_it_is_in_a_line() -> None:
    batch = only_batch(record_of(rows_of(3), Layout.ROWS))
    assert repr(batch) == "Batch(stream='s', source='desk', sequences=1000..1002)"
    publication = next(iter(batch))
    assert repr(publication) == "Publication(sequence=1000, key=b'k0', body=b'0', source='desk')"
