"""A batch is taken as its source signed it, within the limits, or refused as a fault of the peer."""

import random
import struct
import tracemalloc
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.delivery.making import HEADER, LIMITS, accept, batch_in, batch_of, read_header_of, same, signed
from veredus.delivery.batch import (
    HEADER_SIZE,
    BatchFlags,
    BatchHeader,
    BatchLimits,
    Layout,
    check_header,
    compressed,
    payload_of,
    read_header,
    sign_batch,
    signed_record,
    token_of,
    verify_signature,
)
from veredus.delivery.columns import encode_columns
from veredus.delivery.lz4_blocks import lz4_raw_size
from veredus.delivery.payload import columns_of, excerpt_record, read_columns, read_rows
from veredus.delivery.publication import TIMESTAMP_MAX_US, TIMESTAMP_MIN_US, Rows
from veredus.delivery.record import ENVELOPE_SIZE
from veredus.delivery.rows import encode_rows
from veredus.delivery.zstd_frames import ZSTD_BLOCKS_MAX
from veredus.kernel.errors import PeerFault
from veredus.kernel.names import U63_MAX
from veredus.kernel.octets import aligned, crc32c

ATTRIBUTES = [{"text": "ä", "int": 1, "float": 1.5, "bool": True, "octets": b"\x00"}, {}, {"text": "b"}]
SMALL = Rows([b"key", b"", b"key"], [b"body", b"", b"x"], [5, 7, 6], ATTRIBUTES)  # type: ignore[list-item]


def signed_again(batch: bytes | bytearray) -> bytes:
    """The batch under a right signature, whatever it says."""
    return struct.pack("<I", crc32c(memoryview(batch)[4:])) + bytes(batch[4:])


def judge(batch: bytes) -> bool:
    """Whether the batch is taken; what is taken must be readable both ways and be cut, all else raises `PeerFault`."""
    try:
        header = accept(batch)
    except PeerFault:
        return False
    assert len(read_rows(batch, header).keys) == header.count
    columns = read_columns(batch, header)
    excerpt_record(header, columns, np.arange(header.count) == header.count - 1)
    return True


# ── the signature ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("layout", Layout)
@pytest.mark.parametrize("codec", [None, "zstd", "lz4"])
def test_every_flipped_bit_is_refused(layout: Layout, codec: str | None) -> None:
    batch = bytearray(batch_of(SMALL, layout, codec, b"token"))
    accept(batch)
    for bit in range(len(batch) * 8):
        batch[bit // 8] ^= 1 << bit % 8
        with pytest.raises(PeerFault):
            accept(batch)
        batch[bit // 8] ^= 1 << bit % 8


@pytest.mark.parametrize("layout", Layout)
def test_every_truncation_is_refused(layout: Layout) -> None:
    batch = bytes(batch_of(SMALL, layout, token=b"token"))
    for size in range(len(batch)):
        with pytest.raises(PeerFault):
            accept(batch[:size])
        if size >= HEADER_SIZE:
            with pytest.raises(PeerFault):
                accept(signed_again(batch[:size]))
    with pytest.raises(PeerFault):
        accept(batch + b"\0")


@pytest.mark.parametrize("layout", Layout)
@pytest.mark.parametrize("codec", [None, "zstd", "lz4"])
def test_a_flipped_bit_under_a_right_signature_is_refused_or_harmless(layout: Layout, codec: str | None) -> None:
    batch = bytearray(batch_of(SMALL, layout, codec, b"token"))
    taken_count = 0
    for bit in range(32, len(batch) * 8):
        batch[bit // 8] ^= 1 << bit % 8
        taken_count += judge(signed_again(batch))
        batch[bit // 8] ^= 1 << bit % 8
    assert 0 < taken_count < len(batch) * 8


@pytest.mark.parametrize("layout", Layout)
@given(data=st.data())
def test_any_bytes_under_a_right_signature_are_refused_or_harmless(layout: Layout, data: st.DataObject) -> None:
    batch = bytearray(batch_of(SMALL, layout))
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(HEADER_SIZE, len(batch)))
        size = data.draw(st.integers(0, 16))
        batch[start : start + size] = data.draw(st.binary(max_size=16))
    struct.pack_into("<I", batch, 12, len(batch) - HEADER_SIZE)
    judge(signed_again(batch))


def test_a_batch_that_is_signed_again_for_a_new_epoch_is_sound() -> None:
    record = bytearray(ENVELOPE_SIZE) + batch_of(SMALL, Layout.ROWS, token=b"t")
    header = read_header_of(record)
    sign_batch(record, header._replace(epoch=4))
    again = batch_in(record)
    assert accept(again) == header._replace(epoch=4)
    assert same(read_rows(again, header), SMALL)
    assert token_of(again, header) == b"t"


# ── the header ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_header_is_what_the_page_says_byte_by_byte() -> None:
    header = BatchHeader(1, 4, 0, 0, 6, 7, 8, 9, 5, 11, -2, 3)
    record = signed_record(header, [b"\xaa" * 2], b"\xbb")
    dump = (
        "7cb4 01 01 0400 0000 02000000 01000000 06000000 07000000 08000000"
        "09000000 05000000 0b00000000000000 feffffffffffffff 0300000000000000 aaaa bb"
    )
    batch = bytes.fromhex(dump)
    assert record[:ENVELOPE_SIZE] == bytes(ENVELOPE_SIZE)
    assert record[ENVELOPE_SIZE + 4 :] == batch + bytes(5)
    assert record[ENVELOPE_SIZE : ENVELOPE_SIZE + 4] == struct.pack("<I", crc32c(batch))
    assert read_header(batch_in(record)) == header._replace(payload_size=2, token_size=1)


@given(st.binary(max_size=40), st.binary(max_size=9))
def test_a_record_is_padded_with_zeros_to_a_multiple_of_eight(payload: bytes, token: bytes) -> None:
    record = signed_record(HEADER, [payload[:7], payload[7:]], token)
    end = ENVELOPE_SIZE + HEADER_SIZE + len(payload) + len(token)
    assert len(record) == aligned(end)
    assert record[end - len(token) - len(payload) :] == payload + token + bytes(len(record) - end)
    verify_signature(batch_in(record))


WRONG_HEADERS: dict[str, dict[str, int]] = {
    "an unknown layout": {"layout": 2},
    "two codecs": {"flags": int(BatchFlags.ZSTD | BatchFlags.LZ4)},
    "an unknown required flag": {"flags": 8},
    "an excerpt": {"flags": int(BatchFlags.EXCERPT)},
    "no rows": {"count": 0, "span": 0},
    "a span above the count": {"span": 4},
    "a span below the count": {"span": 2},
    "a count that lies": {"count": 2, "span": 2},
    "too many rows": {"count": 65_537, "span": 65_537},
    "four billion rows": {"count": (1 << 32) - 1, "span": (1 << 32) - 1},
    "numbers beyond 63 bits": {"first_number": U63_MAX - 1},
    "numbers from 0": {"first_number": 0},
    "numbers of 64 bits": {"first_number": (1 << 64) - 1},
    "a range of event times upside down": {"event_time_min_us": 8, "event_time_max_us": 7},
    "a least event time too low": {"event_time_min_us": 4},
    "a least event time too high": {"event_time_min_us": 6},
    "a greatest event time too low": {"event_time_max_us": 6},
    "a greatest event time too high": {"event_time_max_us": U63_MAX},
}


@pytest.mark.parametrize("layout", Layout)
@pytest.mark.parametrize("changes", WRONG_HEADERS.values(), ids=WRONG_HEADERS)
def test_a_signed_header_that_lies_is_refused(layout: Layout, changes: dict[str, int]) -> None:
    record = bytearray(ENVELOPE_SIZE) + batch_of(SMALL, layout)
    header = read_header_of(record)
    sign_batch(record, header._replace(**changes))
    with pytest.raises(PeerFault):
        accept(record[ENVELOPE_SIZE : ENVELOPE_SIZE + header.size])


def test_the_largest_numbers_and_an_optional_flag_are_taken() -> None:
    record = bytearray(ENVELOPE_SIZE) + batch_of(SMALL, Layout.ROWS)
    header = read_header_of(record)._replace(first_number=U63_MAX - 2, flags=0x8000)
    sign_batch(record, header)
    assert accept(batch_in(record)).last_number == U63_MAX


@pytest.mark.parametrize("layout", Layout)
def test_event_times_that_are_all_one_need_no_column_but_a_true_header(layout: Layout) -> None:
    rows = SMALL._replace(event_times_us=None)
    record = bytearray(ENVELOPE_SIZE) + batch_of(rows, layout)
    accept(batch_in(record))
    sign_batch(record, read_header_of(record)._replace(event_time_max_us=6))
    with pytest.raises(PeerFault, match="range of event times"):
        accept(batch_in(record))


@pytest.mark.parametrize("layout", Layout)
@pytest.mark.parametrize("time_us", [TIMESTAMP_MIN_US - 1, TIMESTAMP_MAX_US + 1, U63_MAX, -U63_MAX - 1])
@pytest.mark.parametrize("has_column", [False, True])
def test_an_event_time_that_no_calendar_has_is_refused(layout: Layout, time_us: int, has_column: bool) -> None:
    accept(batch_of(SMALL._replace(event_times_us=[TIMESTAMP_MIN_US, 0, TIMESTAMP_MAX_US]), layout))
    if has_column:
        batch = batch_of(SMALL._replace(event_times_us=[5, time_us, 5]), layout)
    else:
        record = bytearray(ENVELOPE_SIZE) + batch_of(SMALL._replace(event_times_us=None), layout)
        header = read_header_of(record)
        sign_batch(record, header._replace(event_time_min_us=time_us, event_time_max_us=time_us))
        batch = batch_in(record)
    with pytest.raises(PeerFault, match="outside the years 1 to 9999"):
        accept(batch)


@pytest.mark.parametrize("changes", [(4, 0xB47D), (4, 0), (6, 0), (6, 2)])
def test_another_magic_or_version_is_no_batch(changes: tuple[int, int]) -> None:
    batch = bytearray(batch_of(SMALL, Layout.ROWS))
    offset, value = changes
    struct.pack_into("<H" if offset == 4 else "<B", batch, offset, value)
    with pytest.raises(PeerFault, match="bad-batch"):
        read_header(batch)


# ── limits ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def sized(key_size: int, body_size: int, count: int) -> Rows:
    return Rows([b"k" * key_size] * count, [b"b" * body_size] * count)


@pytest.mark.parametrize("layout", Layout)
@pytest.mark.parametrize(
    ("rows", "limits", "is_taken"),
    [
        (sized(255, 1, 1), LIMITS, True),
        (sized(256, 1, 1), LIMITS, False),
        (sized(256, 1, 2), LIMITS, False),
        (sized(1, 5000, 1), BatchLimits(body_size_max=5000), True),
        (sized(1, 5001, 1), BatchLimits(body_size_max=5000), False),
        (sized(1, 5001, 2), BatchLimits(body_size_max=5000), False),
        (sized(1, 3000, 2), BatchLimits(batch_size_max=5000), False),
        (sized(1, 6000, 1), BatchLimits(batch_size_max=5000), True),
        (sized(1, 1, 9), BatchLimits(count_max=9), True),
        (sized(1, 1, 10), BatchLimits(count_max=9), False),
    ],
)
@pytest.mark.parametrize("codec", [None, "zstd", "lz4"])
def test_limits_hold_to_the_byte(
    layout: Layout, rows: Rows, limits: BatchLimits, is_taken: bool, codec: str | None
) -> None:
    batch = batch_of(rows, layout, codec)
    if is_taken:
        accept(batch, limits)
    else:
        with pytest.raises(PeerFault):
            accept(batch, limits)


def test_a_resume_token_over_the_limit_is_refused() -> None:
    accept(batch_of(SMALL, Layout.ROWS, token=b"t" * 4096))
    with pytest.raises(PeerFault, match="too-large"):
        accept(batch_of(SMALL, Layout.ROWS, token=b"t" * 4097))


@pytest.mark.parametrize("layout", Layout)
@pytest.mark.parametrize(("count", "is_taken"), [(64, True), (65, False)])
def test_attributes_over_the_limit_are_refused(layout: Layout, count: int, is_taken: bool) -> None:
    rows = Rows([b""], [b""], None, [{f"a{index}": index for index in range(count)}])
    if is_taken:
        accept(batch_of(rows, layout))
    else:
        with pytest.raises(PeerFault, match="64 attributes"):
            accept(batch_of(rows, layout))


# ── compression ──────────────────────────────────────────────────────────────────────────────────────────────────────

COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    "zstd": lambda raw: pa.compress(raw, codec="zstd", asbytes=True),
    "lz4": lambda raw: pa.compress(raw, codec="lz4_raw", asbytes=True),
}
FLAGS = {"zstd": int(BatchFlags.ZSTD), "lz4": int(BatchFlags.LZ4)}


def claiming(raw_size: int, codec: str, stored: bytes, count: int = 3) -> memoryview:
    """A signed batch whose compressed payload claims to have `raw_size` bytes."""
    return signed(struct.pack("<Q", raw_size) + stored, Layout.ROWS, count, flags=FLAGS[codec])


@pytest.mark.parametrize("codec", COMPRESSORS)
def test_a_raw_size_that_lies_is_refused_both_ways(codec: str) -> None:
    raw = encode_rows(Rows([b"k" * 9] * 3, [b"b" * 90] * 3))
    stored = COMPRESSORS[codec](raw)
    accept(claiming(len(raw), codec, stored))
    for raw_size in (0, 1, len(raw) - 1, len(raw) + 1, len(raw) + 5000, 1 << 20, 1 << 32, (1 << 64) - 1):
        with pytest.raises(PeerFault):
            accept(claiming(raw_size, codec, stored))


@pytest.mark.parametrize("codec", COMPRESSORS)
def test_memory_that_nobody_wrote_never_passes_for_a_body(codec: str) -> None:
    # The last bytes of a columnar payload are the last body's: a decoder that believed the claim would take them from
    # whatever the heap held before.
    raw = b"".join(encode_columns(columns_of(Rows([b"k"], [b"b" * 1000]))))
    for missing_size in (1, 500):
        stored = struct.pack("<Q", len(raw)) + COMPRESSORS[codec](raw[:-missing_size])
        batch = signed(stored, Layout.COLUMNS, 1, flags=FLAGS[codec])
        with pytest.raises(PeerFault, match="decompress"):
            accept(batch)
        with pytest.raises(PeerFault, match="decompress"):
            read_rows(batch, read_header(batch))


@pytest.mark.parametrize("codec", COMPRESSORS)
@pytest.mark.parametrize("stored", [b"", b"\0", b"\xff" * 20])
def test_what_does_not_decompress_is_refused(codec: str, stored: bytes) -> None:
    for raw_size in (0, 1, 20, 1000):
        with pytest.raises(PeerFault):
            accept(claiming(raw_size, codec, stored))


def test_a_payload_is_one_frame_of_zstd_and_nothing_behind_it() -> None:
    raw = encode_rows(Rows([b"k" * 9] * 3, [b"b" * 90] * 3))
    whole, compress = COMPRESSORS["zstd"](raw), COMPRESSORS["zstd"]
    skipped = struct.pack("<II", 0x184D2A50, 4) + bytes(4)
    for stored in (compress(raw[:5]) + compress(raw[5:]), whole + compress(b""), skipped + whole, whole + skipped):
        batch = claiming(len(raw), "zstd", stored)
        assert payload_of(batch, read_header(batch), LIMITS) == raw
        with pytest.raises(PeerFault, match="must be one zstd frame"):
            accept(batch)


def test_a_zstd_frame_of_many_blocks_with_a_checksum_and_no_size_is_taken() -> None:
    raw = encode_rows(Rows([b"k"] * 3, [random.Random(1).randbytes(200_000), bytes(300_000), b"b"]))
    blocks = b"".join(
        struct.pack("<I", size << 3 | (start + size == len(raw)))[:3] + raw[start : start + size]
        for start in range(0, len(raw), 1000)
        for size in [min(1000, len(raw) - start)]
    )
    frame = struct.pack("<IBB", 0xFD2FB528, 0, 0x38) + blocks
    accept(claiming(len(raw), "zstd", frame))
    too_large_a_window = frame[:5] + b"\x90" + frame[6:]
    with pytest.raises(PeerFault, match="bad-batch"):
        accept(claiming(len(raw), "zstd", too_large_a_window))


def test_a_zstd_frame_of_no_end_of_empty_blocks_is_refused() -> None:
    raw = encode_rows(Rows([b"k"] * 3, [b"b"] * 3))
    last = struct.pack("<I", len(raw) << 3 | 1)[:3] + raw
    head = struct.pack("<IBB", 0xFD2FB528, 0, 0x38)
    accept(claiming(len(raw), "zstd", head + bytes(3) * (ZSTD_BLOCKS_MAX - 1) + last))
    with pytest.raises(PeerFault, match="bad-batch"):
        accept(claiming(len(raw), "zstd", head + bytes(3) * ZSTD_BLOCKS_MAX + last))


def lz4_sequence(literals: bytes, match: tuple[int, int] | None = None) -> bytes:
    """Some literals, and the match behind them by offset and length, 4 to 18 bytes; without one it is the last."""
    more = len(literals) - 15
    token = min(len(literals), 15) << 4 | (match[1] - 4 if match else 0)
    length = b"\xff" * (more // 255) + bytes([more % 255]) if more >= 0 else b""
    return bytes([token]) + length + literals + (struct.pack("<H", match[0]) if match else b"")


def test_a_block_of_lz4_that_stands_for_less_than_it_claims_is_refused_however_it_ends() -> None:
    # Its last match is nearer to the end than the library likes: with less room than it claims it fails, and with as
    # much the last three bytes, which are the body's, are what memory held before.
    raw = b"".join(encode_columns(columns_of(Rows([b"k"], [b"b" * 1000]))))
    block = lz4_sequence(raw[:-12], (1, 4)) + lz4_sequence(b"bbbbb")
    stored = struct.pack("<Q", len(raw)) + block
    batch = signed(stored, Layout.COLUMNS, 1, flags=FLAGS["lz4"])
    assert len(payload_of(batch, read_header(batch), LIMITS)) == lz4_raw_size(block) + 3
    with pytest.raises(PeerFault, match="the payload claims"):
        accept(batch)


def test_a_block_of_lz4_by_another_encoder_is_taken() -> None:
    raw = encode_rows(Rows([b"k"], [b"b" * 40 + bytes(range(14))]))
    block = lz4_sequence(raw[:26], (1, 18)) + lz4_sequence(raw[44:])
    assert block != COMPRESSORS["lz4"](raw)
    accept(claiming(len(raw), "lz4", block, count=1))
    for broken in (block.replace(b"\1\0", b"\0\0", 1), block + b"x", block[:-1], b"\xf0" + b"\xff" * 9):
        with pytest.raises(PeerFault):
            accept(claiming(len(raw), "lz4", broken, count=1))
        assert lz4_raw_size(broken) != len(raw)


@pytest.mark.parametrize("layout", Layout)
def test_a_header_has_zeros_in_its_reserved_bytes(layout: Layout) -> None:
    batch = bytearray(batch_of(SMALL, layout))
    batch[10] = 1
    with pytest.raises(PeerFault, match="the reserved bytes of the header"):
        accept(signed_again(batch))


@pytest.mark.parametrize("codec", COMPRESSORS)
@pytest.mark.parametrize("size", range(8))
def test_a_compressed_payload_without_its_raw_size_is_refused(codec: str, size: int) -> None:
    with pytest.raises(PeerFault, match="raw size"):
        accept(signed(bytes(size), Layout.ROWS, 1, flags=FLAGS[codec]))


@pytest.mark.parametrize("codec", COMPRESSORS)
def test_a_bomb_is_refused_before_memory_is_allocated_for_it(codec: str) -> None:
    batch = claiming((1 << 20) + 1, codec, COMPRESSORS[codec](bytes(32 << 20)))
    allocated = pa.total_allocated_bytes()
    tracemalloc.start()
    with pytest.raises(PeerFault, match="too-large"):
        accept(batch)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 17
    assert pa.total_allocated_bytes() - allocated < 1 << 17


@pytest.mark.parametrize("codec", COMPRESSORS)
def test_a_bomb_that_hides_its_size_is_refused(codec: str) -> None:
    stored = COMPRESSORS[codec](bytes(32 << 20))
    for raw_size in (1000, 1 << 20):
        with pytest.raises(PeerFault):
            accept(claiming(raw_size, codec, stored))


@given(st.binary(min_size=1, max_size=200), st.integers(1, 50), st.sampled_from(["zstd", "lz4"]))
def test_a_payload_comes_back_as_it_was_compressed(unit: bytes, times: int, codec: str) -> None:
    raw = unit * times
    batch = signed(compressed(raw, codec), Layout.ROWS, 1, flags=FLAGS[codec])
    header = read_header(batch)
    check_header(header, LIMITS)
    assert payload_of(batch, header, LIMITS) == raw


def test_an_incompressible_payload_comes_back_too() -> None:
    raw = random.Random(1).randbytes(100_000)
    for codec, flags in FLAGS.items():
        batch = signed(compressed(raw, codec), Layout.ROWS, 1, flags=flags)
        assert payload_of(batch, read_header(batch), LIMITS) == raw
