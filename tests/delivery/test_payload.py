"""What was put into a batch comes out of it, in either layout, under any codec, and cut to any excerpt."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.delivery.making import accept, batch_in, batch_of, plain_columns, publications, read_header_of, same, signed
from veredus.delivery.arrays import octets_array
from veredus.delivery.batch import BatchFlags, BatchHeader, BatchLimits, Layout, read_header, token_of, verify_signature
from veredus.delivery.columns import encode_columns
from veredus.delivery.cutting import Cutting, Tabled
from veredus.delivery.payload import (
    ROWS_COUNT_MAX,
    Unpacked,
    attribute_columns,
    columns_of,
    excerpt_record,
    list_of,
    read_columns,
    read_rows,
    rows_of,
    verify_payload,
)
from veredus.delivery.publication import Columns, Rows
from veredus.kernel.errors import PeerFault

LAYOUTS = st.sampled_from(Layout)
CODECS = st.sampled_from([None, "zstd", "lz4"])


@given(publications(), LAYOUTS, CODECS, st.binary(max_size=9))
def test_what_is_put_into_a_batch_comes_out_of_it(rows: Rows, layout: Layout, codec: str | None, token: bytes) -> None:
    batch = batch_of(rows, layout, codec, token)
    header = accept(batch)
    assert same(read_rows(batch, header), rows)
    assert same(rows_of(read_columns(batch, header)), rows)
    assert token_of(batch, header) == token


@given(publications(), LAYOUTS, CODECS, st.data())
def test_an_excerpt_keeps_the_chosen_rows_and_can_be_cut_again(
    rows: Rows, layout: Layout, codec: str | None, data: st.DataObject
) -> None:
    batch = batch_of(rows, layout, codec, b"token")
    header = accept(batch)
    columns = read_columns(batch, header)
    chosen = list(range(len(rows.keys)))
    for _ in range(2):
        picks = data.draw(st.lists(st.booleans(), min_size=len(chosen), max_size=len(chosen)).filter(any))
        chosen = [index for index, is_picked in zip(chosen, picks, strict=True) if is_picked]
        cut = batch_in(excerpt_record(header, columns, np.array(picks)))
        header = read_header_of(bytearray(32) + cut)
        verify_signature(cut)
        found, columns = read_rows(cut, header), read_columns(cut, header)
        expected = Rows(
            [rows.keys[i] for i in chosen],
            [rows.bodies[i] for i in chosen],
            None if rows.event_times_us is None else [rows.event_times_us[i] for i in chosen],
            None if rows.attributes is None else [rows.attributes[i] for i in chosen],
            chosen,
        )
        assert same(found, expected)
        assert same(rows_of(columns), expected)
        assert header.is_excerpt
        assert (header.span, header.count, header.first_number) == (len(rows.keys), len(chosen), 11)
        assert (header.stream_id, header.source_id, header.epoch, header.token_size) == (7, 9, 3, 0)
        times = expected.event_times_us or [5]
        assert (header.event_time_min_us, header.event_time_max_us) == (min(times), max(times))


@given(publications(), LAYOUTS, CODECS)
def test_a_column_by_itself_is_the_one_that_all_of_them_have(rows: Rows, layout: Layout, codec: str | None) -> None:
    batch = batch_of(rows, layout, codec)
    header = accept(batch)
    columns = read_columns(batch, header)
    names = {name for row in rows.attributes or () for name in row or {}}
    unpacked = Unpacked(batch, header)
    assert list(unpacked.keys if isinstance(unpacked.keys, list) else list_of(unpacked.keys)) == rows.keys
    alone = {name: unpacked.attribute(name) for name in sorted(names)}
    assert {name: column for name, column in alone.items() if column is not None} == columns.attributes
    assert unpacked.attribute("never there") is None
    assert unpacked.columns.bodies == columns.bodies
    assert {name: unpacked.attribute(name) for name in columns.attributes} == columns.attributes


@given(publications(), st.data())
def test_rows_can_be_taken_from_columns_run_by_run(rows: Rows, data: st.DataObject) -> None:
    columns = columns_of(rows)
    start = data.draw(st.integers(0, len(rows.keys) - 1))
    end = data.draw(st.integers(start + 1, len(rows.keys)))
    expected = Rows(
        rows.keys[start:end],
        rows.bodies[start:end],
        None if rows.event_times_us is None else rows.event_times_us[start:end],
        None if rows.attributes is None else rows.attributes[start:end],
    )
    assert same(rows_of(columns, start, end - start), expected)


@given(publications(), st.data())
def test_sliced_columns_are_written_as_the_slice_alone(rows: Rows, data: st.DataObject) -> None:
    columns = columns_of(rows)
    start = data.draw(st.integers(0, len(rows.keys) - 1))
    size = data.draw(st.integers(1, len(rows.keys) - start))
    cut = Columns(
        columns.keys.slice(start, size),
        columns.bodies.slice(start, size),
        None if columns.event_times_us is None else columns.event_times_us.slice(start, size),
        {name: array.slice(start, size) for name, array in columns.attributes.items()},
    )
    payload = b"".join(encode_columns(cut))
    batch = signed(payload, Layout.COLUMNS, size)
    assert same(read_rows(batch, read_header_of(bytearray(32) + batch)), rows_of(columns, start, size))


# ── excerpts ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_excerpt_has_the_layout_that_its_own_count_asks_for() -> None:
    columns = plain_columns(ROWS_COUNT_MAX * 2)
    batch = signed(b"".join(encode_columns(columns)), Layout.COLUMNS, len(columns.keys))
    header = accept(batch)
    for count, layout in ((ROWS_COUNT_MAX, Layout.ROWS), (ROWS_COUNT_MAX + 1, Layout.COLUMNS)):
        record = excerpt_record(header, columns, np.arange(len(columns.keys)) < count)
        assert read_header_of(record).layout == layout


@pytest.mark.parametrize("count", [100, 399])
def test_a_long_word_that_stands_in_every_row_is_in_an_excerpt_once(count: int) -> None:
    words = octets_array([b"w" * (100 << 10), *(b"%d" % number for number in range(400))])
    codes = pa.array([0] * 399 + [None], pa.int32())
    columns = Columns(
        octets_array([b"k"] * 400), octets_array([b""] * 400), None, {"a": pa.DictionaryArray.from_arrays(codes, words)}
    )
    payload = encode_columns(columns)
    size = sum(map(len, payload))
    header = BatchHeader(int(Layout.COLUMNS), 0, size, 0, 400, 1, 1, 1, 400, 1, 0, 0)
    cut = batch_in(excerpt_record(header, columns, np.arange(400) >= 400 - count))
    assert len(cut) < size + 1000
    read = read_rows(cut, read_header(cut))
    assert read.attributes is not None
    assert [row and row["a"] for row in read.attributes][-3:] == [b"w" * (100 << 10)] * 2 + [{}]


def long_word_in_every_row(word_size: int, count: int) -> Columns:
    """Columns with an attribute that has one word of this size in all of the rows."""
    codes, words = pa.array([0] * count, pa.int32()), octets_array([b"w" * word_size])
    attribute = pa.DictionaryArray.from_arrays(codes, words)
    return Columns(octets_array([b"k"] * count), octets_array([b""] * count), None, {"a": attribute})


@pytest.mark.parametrize(("count", "is_taken"), [(641, True), (642, False)])
def test_a_batch_whose_dictionaries_are_large_once_they_are_written_out_is_refused(count: int, is_taken: bool) -> None:
    limits = BatchLimits(batch_size_max=100_000)
    batch = signed(b"".join(encode_columns(long_word_in_every_row(10_000, count))), Layout.COLUMNS, count)
    if is_taken:
        verify_payload(batch, read_header(batch), limits)
    else:
        with pytest.raises(PeerFault, match="once they are written out, these add 6410000: send fewer"):
            verify_payload(batch, read_header(batch), limits)


def test_publications_whose_dictionaries_would_be_too_large_written_out_make_several_batches() -> None:
    header = BatchHeader(0, 0, 0, 0, 642, 1, 1, 1, 642, 1, 0, 0)
    limits = BatchLimits(batch_size_max=100_000)
    table = Tabled(long_word_in_every_row(10_000, 642))
    assert Cutting("zstd").record_of(table, header, b"", 0, limits) is None
    made = Cutting("zstd").record_of(table.part(0, 321), header._replace(span=321, count=321), b"", 0, limits)
    assert made is not None


def test_an_excerpt_leaves_a_dictionary_behind_that_outweighs_its_rows() -> None:
    count = 4000
    keys = pa.array([b"a-rather-long-key-%d" % (i % 1000) for i in range(count)]).dictionary_encode()
    columns = plain_columns(count)._replace(keys=keys, attributes={"a": keys.cast(pa.string()).dictionary_encode()})
    batch = signed(b"".join(encode_columns(columns)), Layout.COLUMNS, count)
    selection = np.arange(count) % 40 == 0
    record = excerpt_record(accept(batch), columns, selection)
    assert len(record) < 100 * 100
    found = read_rows(batch_in(record), read_header_of(record))
    assert found.keys == [b"a-rather-long-key-%d" % (i % 1000) for i in range(0, count, 40)]
    assert found.rows == list(range(0, count, 40))


def test_an_excerpt_of_a_compressed_batch_is_not_said_to_be_compressed() -> None:
    rows = Rows([b"k"] * 100, [b"b" * 50] * 100)
    for codec in ("zstd", "lz4"):
        batch = batch_of(rows, Layout.COLUMNS, codec)
        header = accept(batch)
        cut = read_header_of(excerpt_record(header, read_columns(batch, header), np.arange(100) < 60))
        assert BatchFlags(cut.flags) == BatchFlags.EXCERPT


# ── columns out of rows ──────────────────────────────────────────────────────────────────────────────────────────────


def test_integers_beside_floats_become_floats_where_that_is_exact() -> None:
    columns = attribute_columns([{"a": 1}, {"a": 2.5}, {"a": 1 << 53}])
    assert columns["a"].type == pa.float64()
    assert columns["a"].to_pylist() == [1.0, 2.5, float(1 << 53)]
    with pytest.raises(PeerFault, match="mixed-types"):
        attribute_columns([{"a": (1 << 53) + 1}, {"a": 2.5}])


@pytest.mark.parametrize("values", [(1, "a"), (True, 1), (True, 1.5), (b"a", "a"), (1, 1 << 64)])
def test_values_that_make_no_column_are_refused_with_the_name(values: tuple[object, object]) -> None:
    with pytest.raises(PeerFault, match=r"'depth'.*mixed-types"):
        attribute_columns([{"depth": values[0]}, {"depth": values[1]}])  # type: ignore[dict-item]


def test_an_attribute_that_is_null_everywhere_is_no_column() -> None:
    assert list(attribute_columns([{"a": None, "b": 1}, {"a": None, "b": 2}])) == ["b"]
    assert list(attribute_columns([{"a": None}, None, {"b": 2}])) == ["b"]
    assert attribute_columns([None, {}]) == {}


def test_text_of_few_distinct_values_becomes_a_dictionary() -> None:
    column = attribute_columns([{"origin": ("EWR", "JFK", "LGA")[i % 3]} for i in range(300)])["origin"]
    assert pa.types.is_dictionary(column.type)
    assert list_of(column)[:4] == ["EWR", "JFK", "LGA", "EWR"]
    assert pa.types.is_string(attribute_columns([{"id": str(i)} for i in range(300)])["id"].type)


def test_a_dictionary_with_nulls_is_listed_with_nulls() -> None:
    column = pa.array(["a", None, "b", "a"]).dictionary_encode()
    assert list_of(column) == ["a", None, "b", "a"]
    assert list_of(column.slice(1, 2)) == [None, "b"]
    assert list_of(pa.array([None, None], pa.string()).dictionary_encode()) == [None, None]
