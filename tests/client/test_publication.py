"""Batches as they come over the wire, unpacked as rows and as columns, whole and in excerpts."""

from datetime import UTC, datetime

import numpy as np
import pytest

from cursus.client.publication import Batch, batches_in
from cursus.delivery.batch import BatchHeader, Layout, read_header, signed_record
from cursus.delivery.columns import encode_columns
from cursus.delivery.payload import columns_of, excerpt_record
from cursus.delivery.publication import AttributeValue, Rows
from cursus.delivery.record import ENVELOPE_SIZE, Envelope, RecordKind, write_envelope
from cursus.delivery.rows import encode_rows
from cursus.kernel.errors import PeerFault

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


def only_batch(record: bytearray, redelivered_to: int = 0) -> Batch:
    (batch,) = batches_in("s", memoryview(record), redelivered_to, {9: "desk"}, lambda batch: None)
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
