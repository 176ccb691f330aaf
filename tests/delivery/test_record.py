"""A record is found whole, with every bit as it was written, or not at all."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veredus.delivery.record import (
    ENVELOPE_SIZE,
    RECORD_MAGIC,
    Envelope,
    RecordKind,
    is_body_sound,
    read_envelope,
    records_in,
    renumbered,
    sealed_record,
    write_envelope,
)
from veredus.kernel.octets import aligned, crc32c

U64 = st.integers(0, (1 << 64) - 1)
SALT = 0xFEEDBEEF


def record_of(payload: bytes = b"fact", salt: int = SALT, sequence: int = 17) -> bytearray:
    return sealed_record(RecordKind.FACT, payload, salt, sequence, 1_700_000_000_000_000)


@given(st.binary(max_size=50), st.integers(0, (1 << 32) - 1), U64, U64, st.sampled_from(RecordKind))
def test_what_is_sealed_into_a_record_is_read_from_it(
    payload: bytes, salt: int, sequence: int, time_us: int, kind: RecordKind
) -> None:
    record = sealed_record(kind, payload, salt, sequence, time_us)
    assert len(record) == aligned(ENVELOPE_SIZE + 4 + len(payload))
    (view,) = records_in(b"before!!" + record, 8)
    assert view.offset == 8
    assert view.envelope == Envelope(kind, 0, len(payload) + 4, salt, sequence, time_us)
    assert view.memory == record
    assert view.payload == payload
    assert view.body == crc32c(payload).to_bytes(4, "little") + payload
    assert view.envelope.record_size == len(record)


def test_an_envelope_is_what_the_page_says_byte_by_byte() -> None:
    record = sealed_record(RecordKind.FACT, b"\xaa", 0x01020304, 5, 6)
    body = crc32c(b"\xaa").to_bytes(4, "little") + b"\xaa"
    rest = bytes.fromhex("dac0 04 00 05000000 04030201 0500000000000000 0600000000000000") + body
    assert record == crc32c(rest[:-1]).to_bytes(4, "little") + rest + bytes(3)
    assert RECORD_MAGIC == 0xC0DA


def test_every_flipped_bit_outside_the_padding_hides_the_record() -> None:
    record = record_of(b"four+")
    size = ENVELOPE_SIZE + 4 + 5
    assert len(record) > size
    for bit in range(size * 8):
        record[bit // 8] ^= 1 << bit % 8
        assert list(records_in(record)) == []
        record[bit // 8] ^= 1 << bit % 8
    assert len(list(records_in(record))) == 1


def test_every_truncation_hides_the_record() -> None:
    record = record_of()
    for size in range(len(record)):
        assert list(records_in(record[:size])) == []


@given(st.lists(st.binary(max_size=20), min_size=1, max_size=5), st.data())
def test_records_are_found_up_to_the_first_that_is_torn(payloads: list[bytes], data: st.DataObject) -> None:
    records = [record_of(payload, sequence=index) for index, payload in enumerate(payloads)]
    run = b"".join(records)
    end = data.draw(st.integers(0, len(run)))
    whole_count, size = 0, 0
    for record in records:
        size += len(record)
        whole_count += size <= end
    found = list(records_in(run[:end]))
    assert [view.envelope.first_sequence for view in found] == list(range(whole_count))
    assert [bytes(view.payload) for view in found] == payloads[:whole_count]


@pytest.mark.parametrize("blank", [bytes(4096), b"\xff" * 4096, b""])
def test_blank_memory_holds_no_record(blank: bytes) -> None:
    assert read_envelope(blank) is None
    assert list(records_in(blank)) == []


@given(st.binary(max_size=80), st.integers(0, 90))
def test_garbage_holds_no_record_and_harms_nobody(garbage: bytes, offset: int) -> None:
    assert list(records_in(garbage, offset)) == []
    assert is_body_sound(garbage) == (
        len(garbage) >= 4 and crc32c(garbage[4:]) == int.from_bytes(garbage[:4], "little")
    )


def test_a_record_that_claims_gigabytes_is_not_followed() -> None:
    record = record_of()
    write_envelope(record, Envelope(RecordKind.BATCH, 0, (1 << 32) - 1, SALT, 1, 1))
    assert read_envelope(record) is not None
    assert list(records_in(record)) == []


@pytest.mark.parametrize("size", range(4))
def test_a_body_too_small_for_its_checksum_is_no_record(size: int) -> None:
    record = record_of()
    write_envelope(record, Envelope(RecordKind.BATCH, 0, size, SALT, 1, 1))
    assert read_envelope(record) is None


def test_an_envelope_is_written_in_place_and_the_body_stays() -> None:
    record = record_of(b"payload of a source")
    body = bytes(record[ENVELOPE_SIZE:])
    write_envelope(memoryview(record), Envelope(RecordKind.BATCH, 3, 23, 9, 99, 100))
    assert record[ENVELOPE_SIZE:] == body
    assert read_envelope(record) == Envelope(RecordKind.BATCH, 3, 23, 9, 99, 100)


def test_a_renumbered_record_is_a_batch_of_the_same_body() -> None:
    staged = sealed_record(RecordKind.STAGED, b"rows of a stage", SALT, 4, 5)
    again = bytes(renumbered(staged, 71, 72)) + staged[ENVELOPE_SIZE:]
    (view,) = records_in(again)
    assert view.envelope == Envelope(RecordKind.BATCH, 0, 19, SALT, 71, 72)
    assert view.payload == b"rows of a stage"
