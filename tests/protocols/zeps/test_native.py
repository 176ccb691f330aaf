"""The codec of the native protocol, by hand, in any cut, and against garbage."""

import struct
import tracemalloc
from contextlib import suppress
from itertools import chain, pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from veredus.delivery.batch import BatchLimits, check_header, sign_batch
from veredus.kernel.errors import PeerFault
from veredus.matching import Filter
from veredus.protocols.zeps import messages as m
from veredus.protocols.zeps import native
from veredus.protocols.zeps.native import Frame, Kind, Receipt
from veredus.protocols.zeps.parsing import GROWTH_SIZE_MAX, READ_SIZE, FrameParser
from veredus.streams.exchange import Durability, SettleMode, Start, StartKind

from .place import batch

SIZE_MAX = 1 << 24
ROWS = [(b"a.b", b"first"), (b"c", b""), (b"", b"third" * 30)]


def one(data: bytes) -> Frame:
    parser = FrameParser(SIZE_MAX)
    frames = parser.feed(data)
    assert parser.fault is None
    assert len(frames) == 1
    return frames[0]


def story() -> bytes:
    return b"".join(
        (
            native.encode_message(0, m.Hello(client="c", token="t")),
            native.encode_frame(Kind.PING, 0),
            *native.encode_offer(3, batch(1, ROWS, 4, 5)),
            native.encode_receipt(3, 3, 17, True, Durability.GROUP),
            native.encode_frame(200, 7, b"from a newer peer"),
            native.encode_settle(4, ((1, 2), (5, 9))),
            native.encode_credit(4, 1 << 40),
            native.encode_frame(Kind.CLOSE_CHANNEL, 4),
        )
    )


# ── by hand ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_receipt_is_what_the_page_says_byte_by_byte() -> None:
    dump = "18000000 13 00 0300  0900000000000000 0800000000000000 01 00 000000000000"
    assert native.encode_receipt(3, 9, 8, True, Durability.GROUP) == bytes.fromhex(dump)


def test_a_credit_is_what_the_page_says_byte_by_byte() -> None:
    assert native.encode_credit(2, 65536) == bytes.fromhex("08000000 22 00 0200  0000010000000000")


def test_a_hello_is_padded_with_zeros_to_eight() -> None:
    dump = "09000000 01 00 0000  81 a5746f6b656e a174  00000000000000"
    assert native.encode_message(0, m.Hello(token="t")) == bytes.fromhex(dump)


def test_a_deliver_is_a_head_a_number_and_the_records_as_they_are() -> None:
    record = batch(1, ROWS, 4, 5)
    frame = one(native.encode_deliver(9, 77, len(record)) + record)
    redelivered_to, records = native.decode_deliver(frame)
    assert (frame.channel, redelivered_to, bytes(records)) == (9, 77, bytes(record))


def test_several_receipts_share_one_frame() -> None:
    receipts = [Receipt(1, 2, False, 0), Receipt(3, 0, True, 2)]
    assert native.decode_receipts(one(native.encode_receipts(1, receipts))) == receipts


def test_ranges_and_a_floor_come_back_from_settled() -> None:
    (settled,) = native.encode_settled(1, 7, ((9, 9), (12, 20)))
    assert native.decode_settled(one(settled)) == (7, ((9, 9), (12, 20)))
    many = tuple((2 * n, 2 * n) for n in range(10, 10 + native.SETTLE_COUNT_MAX + 1))
    parts = [native.decode_settled(one(part)) for part in native.encode_settled(1, 7, many)]
    assert [floor for floor, _ in parts] == [7, 7]
    assert tuple(chain.from_iterable(ranges for _, ranges in parts)) == many
    assert native.decode_settle(one(native.encode_settle(1, ((9, 12),)))) == ((9, 12),)


MESSAGES = [
    m.Hello("c", "t"),
    m.Welcome("n", "p", 2, 1, 2, 3, 4, 5, 6, 7, 8),
    m.Goodbye("leaving"),
    m.AttachSource("s", "me", bytes(16), 3, True),
    m.SourceAttached(1, bytes(16), 2, 3, 4, b"token", 5, Durability.INTERVAL),
    m.Return(5, True, "bad"),
    m.Returned(5, True),
    m.BatchRefused(1, "gap", "no", 7),
    m.Subscribe("s", "me", "x", Filter(("a", "b"), "c > 1"), Start(StartKind.AFTER_MINE, 0, "me"), 9,
                SettleMode.INDIVIDUAL, bytes(16), 2, 100, bytes(16)),
    m.Subscribed(1, bytes(16), 2, 3, 4, 5, 6),
    m.Sources(((1, "one"), (2, "two"))),
    m.Progress(7),
    m.Gap(1, 2, "trimmed"),
    m.End(9),
    m.ChangeFilter(Filter((), "a = 1")),
    m.FilterChanged(3),
    m.OpenRun("sink", bytes(16)),
    m.RunOpened(1, -1, b"d"),
    m.OpenStage("sink", 1, "s", bytes(16)),
    m.StageOpened(1, 2),
    m.Commit(1, "sink", 2, 3, (4, 5)),
    m.Committed(1, 2, True, (("s", 3, 4),)),
    m.DropStages(1, "sink", 2, (3,)),
    m.StoreToken(1, 2, b"offset=2"),
    m.Request(1, "stream.show", {"name": "s"}),
    m.Reply(1, {"a": [1, None, b"x"]}),
    m.Refusal("code", "message", {"floor": 3}, 4, False),
    m.Fencing(4, "message"),
]  # fmt: skip


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_every_message_comes_back_as_it_was_said(message: m.Message) -> None:
    assert native.decode_message(one(native.encode_message(5, message))) == message


def test_every_kind_with_a_map_is_among_the_messages_above() -> None:
    assert {type(message) for message in MESSAGES} == set(native._KIND_OF)


# ── cuts ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@given(st.lists(st.integers(0, len(story()))))
def test_the_same_frames_come_out_however_the_bytes_are_cut(cuts: list[int]) -> None:
    data = story()
    whole = FrameParser(SIZE_MAX).feed(data)
    edges = [0, *sorted(cuts), len(data)]
    fed, read = FrameParser(SIZE_MAX), FrameParser(SIZE_MAX)
    fed_frames, read_frames = [], []
    for start, end in pairwise(edges):
        fed_frames += fed.feed(data[start:end])
        while start < end:
            room = read.get_buffer(-1)
            count = min(len(room), end - start)
            room[:count] = data[start : start + count]
            read_frames += read.buffer_updated(count)
            start += count
    assert fed_frames == whole
    assert read_frames == whole


def test_a_frame_within_one_buffer_is_not_copied() -> None:
    data = bytearray(native.encode_frame(Kind.PING, 0, b"echo"))
    frame = FrameParser(SIZE_MAX).feed(memoryview(data))[0]
    data[native.HEAD_SIZE] = ord("E")
    assert bytes(frame.body) == b"Echo"


def test_a_large_frame_is_read_into_memory_of_its_own_size() -> None:
    body = bytes(600_000)
    data = native.encode_frame(Kind.DELIVER, 1, body)
    parser = FrameParser(SIZE_MAX)
    parser.get_buffer()[:8] = data[:8]
    assert parser.buffer_updated(8) == []
    assert len(parser.get_buffer()) == len(body)


def test_a_large_frame_stays_in_its_memory_while_it_arrives() -> None:
    body = bytes(600_000)
    data = native.encode_frame(Kind.DELIVER, 1, body)
    parser = FrameParser(SIZE_MAX)
    parser.get_buffer()[:8] = data[:8]
    parser.buffer_updated(8)
    room = parser.get_buffer()
    parser.buffer_updated(1000)
    rest = parser.get_buffer()
    assert rest.obj is room.obj
    assert len(rest) == len(body) - 1000
    assert len(parser.buffer_updated(len(rest))) == 1


def test_frames_own_their_memory_for_ever() -> None:
    parser = FrameParser(SIZE_MAX)
    kept = []
    for number in range(40):
        data = native.encode_frame(Kind.DELIVER, number, bytes([number]) * 50_000)
        while data:
            room = parser.get_buffer()
            count = min(len(room), len(data))
            room[:count] = data[:count]
            kept += parser.buffer_updated(count)
            data = data[count:]
    assert [(frame.channel, set(frame.body)) for frame in kept] == [(n, {n}) for n in range(40)]


def test_what_changes_at_one_frame_counts_for_the_next() -> None:
    parser = FrameParser(8)
    data = native.encode_frame(Kind.PING, 0) + native.encode_frame(Kind.PING, 0, bytes(32))
    kinds = []
    for frame in parser.parse(data):
        kinds.append(frame.size)
        parser.size_max = 64
    assert kinds == [0, 32]


# ── hostile ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_claimed_size_over_the_limit_is_a_fault_at_the_head() -> None:
    parser = FrameParser(1000)
    good = native.encode_frame(Kind.PING, 0)
    assert len(parser.feed(good + struct.pack("<IBBH", 1001, Kind.OFFER, 0, 1))) == 1
    assert parser.fault is not None
    assert parser.fault.code == "too-large"
    assert parser.feed(good) == []


@pytest.mark.parametrize("way", ["feed", "read"])
def test_a_claimed_size_alone_buys_no_memory(way: str) -> None:
    parser = FrameParser(1 << 30)
    head = struct.pack("<IBBH", 1 << 30, Kind.OFFER, 0, 1)
    tracemalloc.start()
    if way == "feed":
        parser.feed(head)
    else:
        parser.get_buffer()[: len(head)] = head
        parser.buffer_updated(len(head))
        parser.get_buffer()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2 * GROWTH_SIZE_MAX


def test_a_large_frame_is_given_memory_only_as_it_arrives() -> None:
    parser = FrameParser(1 << 30)
    arrived = 0
    size = 40 << 20
    parser.get_buffer()[:8] = struct.pack("<IBBH", size, Kind.DELIVER, 0, 1)
    parser.buffer_updated(8)
    while arrived < size:
        room = len(parser.get_buffer())
        assert room <= arrived + GROWTH_SIZE_MAX + READ_SIZE
        arrived += room
        frames = parser.buffer_updated(room)
    assert [frame.size for frame in frames] == [size]


@pytest.mark.parametrize(
    ("kind", "flags"), [(0x7F, 0), (0, 0), (Kind.PING, 1), (Kind.PING, 8)], ids=["0x7f", "zero", "flag 0", "flag 3"]
)
def test_an_unknown_required_kind_or_flag_is_refused(kind: int, flags: int) -> None:
    parser = FrameParser(SIZE_MAX)
    parser.feed(struct.pack("<IBBH", 0, kind, flags, 0))
    assert parser.fault is not None


def test_an_unknown_optional_flag_is_skipped() -> None:
    assert one(struct.pack("<IBBH", 0, Kind.PING, 0x90, 0)).kind == Kind.PING


def test_a_node_that_takes_no_publication_in_a_batch_is_refused() -> None:
    welcome = m.Welcome("n", "p", 2, 1, 2, 3, 4, 5, 0, 7, 8)
    with pytest.raises(PeerFault, match="count_max"):
        native.decode_message(one(native.encode_message(0, welcome)))


def test_an_unknown_field_is_skipped_unless_it_must_be_understood() -> None:
    body = msgspec.msgpack.encode({"token": "t", "colour": "blue!"})
    assert native.decode_message(one(native.encode_frame(Kind.HELLO, 0, body))) == m.Hello(token="t")
    body = msgspec.msgpack.encode({"token": "t", "colour!": "blue"})
    with pytest.raises(PeerFault, match="colour!"):
        native.decode_message(one(native.encode_frame(Kind.HELLO, 0, body)))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x91" * 100_000,
        b"\xdf\xff\xff\xff\xff",
        msgspec.msgpack.encode({"first_sequence": -1, "next_sequence": 2, "code": "x"}),
        msgspec.msgpack.encode({"first_sequence": 1 << 63, "next_sequence": 2, "code": "x"}),
        msgspec.msgpack.encode({"next_sequence": 2, "code": "x"}),
        msgspec.msgpack.encode([1, 2, "x"]),
    ],
    ids=["empty", "deep", "claims entries", "negative", "large", "missing", "array"],
)
def test_a_map_that_is_none_of_ours_is_the_peers_fault(body: bytes) -> None:
    with pytest.raises(PeerFault, match="GAP"):
        native.decode_message(one(native.encode_frame(Kind.GAP, 0, body)))


def test_an_offer_is_taken_only_as_it_was_signed() -> None:
    record = batch(1, ROWS, 4, 5)
    frame = one(b"".join(native.encode_offer(3, record)))
    taken, header = native.decode_offer(frame, BatchLimits())
    assert (bytes(taken), header.count, header.source_id) == (bytes(record), 3, 5)
    assert not taken.readonly
    for offset in range(32, len(record)):
        bent = bytearray(record)
        bent[offset] ^= 4
        with pytest.raises(PeerFault):
            native.decode_offer(one(b"".join(native.encode_offer(3, bent))), BatchLimits())


@pytest.mark.parametrize("size", [0, 8, 44, 48, 96])
def test_an_offer_too_short_for_a_batch_is_the_peers_fault(size: int) -> None:
    with pytest.raises(PeerFault):
        native.decode_offer(one(native.encode_frame(Kind.OFFER, 3, bytes(size))), BatchLimits())


def test_a_batch_over_the_limits_says_its_first_number_all_the_same() -> None:
    record = batch(41, ROWS, 4, 5)
    frame = one(b"".join(native.encode_offer(3, record)))
    with pytest.raises(PeerFault) as caught:
        native.decode_offer(frame, BatchLimits(token_size_max=10, body_size_max=20))
    assert (caught.value.code, native.first_number_of(frame)) == ("too-large", 41)


DECODERS = [
    native.decode_message,
    native.decode_deliver,
    native.decode_receipts,
    native.decode_credit,
    native.decode_settle,
    native.decode_settled,
    native.check_ping,
    lambda frame: native.decode_offer(frame, BatchLimits()),
]


@given(st.binary(max_size=300), st.sampled_from(list(Kind)))
def test_a_decoder_accepts_or_raises_a_peer_fault_and_nothing_else(body: bytes, kind: Kind) -> None:
    frame = one(native.encode_frame(kind, 1, body))
    for decode in DECODERS:
        with suppress(PeerFault):
            decode(frame)


@given(st.binary(max_size=400), st.integers(1, 60))
def test_garbage_gives_the_same_frames_and_fault_in_any_cut(data: bytes, cut: int) -> None:
    whole, cut_up = FrameParser(200), FrameParser(200)
    expected = whole.feed(data)
    got = []
    for start in range(0, len(data), cut):
        got += cut_up.feed(data[start : start + cut])
    assert got == expected
    assert str(whole.fault) == str(cut_up.fault)


def test_a_header_that_is_signed_anew_is_still_an_offer() -> None:
    record = batch(1, ROWS, 4, 5)
    _, header = native.decode_offer(one(b"".join(native.encode_offer(3, record))), BatchLimits())
    sign_batch(record, header._replace(epoch=9))
    _, again = native.decode_offer(one(b"".join(native.encode_offer(3, record))), BatchLimits())
    check_header(again, BatchLimits())
    assert again.epoch == 9


@pytest.mark.parametrize(
    "kind",
    [
        Kind.HELLO, Kind.ATTACH_SOURCE, Kind.SUBSCRIBE, Kind.SETTLE, Kind.CHANGE_FILTER, Kind.RETURN, Kind.OPEN_RUN,
        Kind.OPEN_STAGE, Kind.COMMIT, Kind.DROP_STAGES, Kind.REQUEST, Kind.STORE_TOKEN,
    ],
)  # fmt: skip
def test_what_a_client_says_beside_its_offers_is_too_large_from_its_head_on(kind: Kind) -> None:
    size_max = native.SIZES_MAX[kind]
    assert size_max <= 2 << 20
    for size, is_taken in ((size_max, True), (size_max + 1, False)):
        parser = FrameParser(20 << 20)
        assert parser.feed(native.HEAD.pack(size, kind, 0, 0)) == []
        assert (parser.fault is None) == is_taken
    assert f"a {kind.name} frame may have at most {size_max} bytes" in str(parser.fault)


def test_an_offer_may_be_as_large_as_any_frame() -> None:
    parser = FrameParser(20 << 20)
    assert parser.feed(native.HEAD.pack(20 << 20, Kind.OFFER, 0, 1)) == []
    assert parser.fault is None


@pytest.mark.parametrize("count", [native.FIELD_COUNT_MAX, native.FIELD_COUNT_MAX + 1, 1 << 16])
def test_a_map_of_very_many_fields_is_refused_before_they_are_read(count: int) -> None:
    fields = {"stream": "s", **{f"new-{number}": number for number in range(count - 1)}}
    frame = one(native.encode_frame(Kind.SUBSCRIBE, 1, msgspec.msgpack.encode(fields)))
    if count <= native.FIELD_COUNT_MAX:
        assert native.decode_message(frame) == m.Subscribe("s")
        return
    with pytest.raises(PeerFault, match=f"at most 255 fields, this one has {count}"):
        native.decode_message(frame)


def test_any_number_of_ranges_is_settled_in_frames_that_are_not_too_large() -> None:
    ranges = tuple((number, number) for number in range(1, 2 * native.SETTLE_COUNT_MAX + 2))
    parser = FrameParser(20 << 20)
    frames = parser.feed(b"".join(native.encode_settles(1, ranges)))
    assert parser.fault is None
    assert [pair for frame in frames for pair in native.decode_settle(frame)] == list(ranges)
