"""Reading: by sequence and by time, across segments and stages, and what is said of what cannot be had."""

from bisect import bisect_left

import pytest

from tests.journal.rig import Rig, batch_entry, staged_entry
from veredus.delivery.record import RecordKind, is_body_sound, read_envelope
from veredus.journal.exchange import (
    READ_SIZE_MIN,
    BytesFailed,
    Located,
    LocateRequested,
    RangeMissing,
    ReadBytes,
    ReadRequested,
    RecordsRead,
    StagesPublished,
    StagesUnwanted,
    StreamDropped,
    StreamTrimmed,
)
from veredus.journal.layout import index_name, segment_name
from veredus.journal.settings import LogSettings
from veredus.kernel.effects import Note

SMALL = LogSettings(segment_size=16 << 10, checkpoint_interval_size=1 << 30, rows_cache_size_max=200)


def filled(streams: int = 1, count: int = 200, size: int = 200) -> Rig:
    rig = Rig(SMALL)
    for sequence in range(1, count + 1):
        for stream_id in range(1, streams + 1):
            rig.append(batch_entry(stream_id, sequence, size=size, time_us=sequence * 10))
        rig.settle()
    return rig


def test_records_are_read_whole_and_within_the_size_asked_for() -> None:
    rig = filled()
    answer = rig.ask(1, 50, size_max=3 * READ_SIZE_MIN)
    assert isinstance(answer, RecordsRead)
    assert [r.first_sequence for r in answer.records] == [50, 51, 52]
    assert answer.next_sequence == 53
    one = rig.ask(1, 50, size_max=1)
    assert isinstance(one, RecordsRead)
    assert len(one.records) == 1, "at least one"


def test_a_read_may_begin_inside_a_batch() -> None:
    rig = Rig()
    rig.append(batch_entry(1, 1, 10), batch_entry(1, 11, 10))
    rig.settle()
    answer = rig.ask(1, 14)
    assert isinstance(answer, RecordsRead)
    assert [(r.first_sequence, r.count) for r in answer.records] == [(11, 10)]


def test_streams_that_share_segments_are_read_apart() -> None:
    rig = filled(streams=7, count=60)
    for stream_id in range(1, 8):
        records = rig.read_all(stream_id)
        assert [r.first_sequence for r in records] == list(range(1, 61))
        assert all(b"%d:" % stream_id in bytes(r.memory) for r in records)


def test_neighbours_are_fetched_in_one_read_and_distant_records_each_by_its_own() -> None:
    rig = filled(count=20)
    rig.tell(ReadRequested(9000, 1, 1, 1 << 20))
    reads = [order for order in rig.pending if isinstance(order, ReadBytes)]
    assert len(reads) == 1
    rig.settle()
    rig = Rig(LogSettings(segment_size=1 << 20))
    for sequence in range(1, 5):
        rig.append(batch_entry(1, sequence), batch_entry(2, sequence, size=50_000))
    rig.settle()
    rig.tell(ReadRequested(9000, 1, 1, 1 << 20))
    reads = [order for order in rig.pending if isinstance(order, ReadBytes)]
    assert len(reads) == 4
    assert sum(order.size for order in reads) < 1000
    rig.settle()
    answer = rig.answer(9000)
    assert isinstance(answer, RecordsRead)
    assert len(answer.records) == 4


def test_past_the_head_there_is_nothing_and_below_the_floor_it_was_trimmed() -> None:
    rig = filled(count=30)
    assert rig.ask(1, 31) == RecordsRead(rig.last_token, (), 31)
    assert rig.ask(99, 1) == RecordsRead(rig.last_token, (), 1)
    rig.tell(StreamTrimmed(1, 12))
    assert rig.ask(1, 3) == RangeMissing(rig.last_token, "trimmed", 3, 12)
    assert [r.first_sequence for r in rig.read_all(1, 12)] == list(range(12, 31))


def test_rows_of_a_stage_are_unseen_until_published_and_then_have_their_place() -> None:
    rig = Rig(SMALL)
    rig.append(batch_entry(1, 1, 5, time_us=10))
    for number in range(1, 90, 3):
        rig.append(staged_entry(4, 1, number, 3, size=300))
        rig.append(batch_entry(2, number, 3, size=300))
        rig.settle()
    assert rig.log.extent(1).last_sequence == 5
    rig.append(batch_entry(1, 96, 2, time_us=90))
    rig.settle()
    rig.tell(StagesPublished([(4, 1, 6)], 80))
    assert rig.log.extent(1).last_sequence == 97
    records = rig.read_all(1, size_max=2500)
    assert [r.first_sequence for r in records] == [1, *range(6, 96, 3), 96]
    for record in records:
        envelope = read_envelope(record.memory)
        assert envelope is not None
        assert envelope.kind == RecordKind.BATCH
        assert envelope.first_sequence == record.first_sequence
        assert envelope.append_time_us == record.append_time_us
        assert is_body_sound(record.memory[32 : 32 + envelope.size])
    assert {r.append_time_us for r in records[1:-1]} == {80}
    again, _ = rig.reopened()
    again.tell(StagesPublished([(4, 1, 6)], 80))
    assert [bytes(r.memory)[16:] for r in again.read_all(1)] == [bytes(r.memory)[16:] for r in records]


def test_a_dropped_stage_leaves_nothing_also_when_a_record_of_it_comes_late() -> None:
    rig = Rig(SMALL)
    rig.append(staged_entry(4, 1, 1))
    rig.settle()
    rig.append(staged_entry(4, 1, 2))
    rig.wake()
    rig.append(staged_entry(4, 1, 3))
    rig.tell(StagesUnwanted([4]))
    rig.settle()
    assert rig.log._catalogue.stages == {}
    rig.append(batch_entry(1, 1))
    rig.settle()
    assert [r.first_sequence for r in rig.read_all(1)] == [1]


def test_a_dropped_stream_is_gone_with_its_stages() -> None:
    rig = filled(streams=2, count=40)
    rig.append(staged_entry(4, 1, 1), batch_entry(1, 41))
    rig.wake()
    rig.tell(StreamDropped(1))
    rig.settle()
    assert rig.log.extent(1).count == 0
    assert rig.log._catalogue.stages == {}
    assert len(rig.read_all(2)) == 40


@pytest.mark.parametrize("is_reopened", [False, True])
def test_a_place_is_found_by_append_time_to_the_record(is_reopened: bool) -> None:
    rig = Rig(SMALL)
    times: list[int] = []
    for sequence in range(1, 150):
        times.append(100 + sequence // 3 * 100)
        rig.append(batch_entry(1, sequence, time_us=times[-1], size=200))
        rig.settle()
    if is_reopened:
        rig.checkpoint()
        rig, _ = rig.reopened()
    for time_us in (*range(0, 5_200, 50), 99_999):
        token = rig.token()
        rig.tell(LocateRequested(token, 1, time_us))
        rig.settle()
        assert rig.answer(token) == Located(token, bisect_left(times, time_us) + 1)


def flip(rig: Rig, name: str, offset: int) -> None:
    rig.disk.files[name][offset] ^= 0x10


def sealed_place(rig: Rig, sequence: int) -> tuple[int, int]:
    """Segment and offset of a record of stream 1 that lies in a sealed segment."""
    token = rig.token()
    rig.tell(ReadRequested(token, 1, sequence, 1))
    while not any(isinstance(order, ReadBytes) and not order.is_index for order in rig.pending):
        rig.step()
    (order,) = [order for order in rig.pending if isinstance(order, ReadBytes)]
    rig.settle()
    return order.segment, order.offset


@pytest.mark.parametrize("at", [0, 9, 17, 40, 90])
def test_a_damaged_record_is_named_never_served_and_passed_over(at: int) -> None:
    rig = filled()
    segment, offset = sealed_place(rig, 10)
    flip(rig, segment_name(segment), offset + at)
    before = rig.ask(1, 8)
    assert isinstance(before, RecordsRead)
    assert [r.first_sequence for r in before.records] == [8, 9]
    assert rig.ask(1, 10) == RangeMissing(rig.last_token, "damaged", 10, 11)
    (note,) = [effect for effect in rig.said if isinstance(effect, Note)]
    assert note.event == "journal-damaged"
    assert (note.fields["segment"], note.fields["offset"], note.fields["stream"]) == (segment, offset, 1)
    assert (note.fields["first_sequence"], note.fields["last_sequence"]) == (10, 10)
    assert [r.first_sequence for r in rig.read_all(1, 11)] == list(range(11, 201))


def read_once(rig: Rig, request: ReadRequested) -> None:
    """Have the segment read for this request, once."""
    rig.tell(request)
    while any(isinstance(order, ReadBytes) for order in rig.pending):
        is_of_segment = not rig.pending[0].is_index  # type: ignore[union-attr]
        rig.step()
        if is_of_segment:
            break


def test_a_record_that_reads_right_the_second_time_is_served() -> None:
    rig = filled()
    segment, offset = sealed_place(rig, 10)
    flip(rig, segment_name(segment), offset + 50)
    token = rig.token()
    read_once(rig, ReadRequested(token, 1, 10, 1))
    flip(rig, segment_name(segment), offset + 50)
    rig.settle()
    assert isinstance(rig.answer(token), RecordsRead)


def test_what_was_read_right_before_a_damaged_record_is_served_though_the_next_reading_is_wrong() -> None:
    rig = filled()
    segment, offset = sealed_place(rig, 10)
    flip(rig, segment_name(segment), offset + 50)
    token = rig.token()
    read_once(rig, ReadRequested(token, 1, 8, 3 * READ_SIZE_MIN))
    flip(rig, segment_name(segment), sealed_place(rig, 8)[1] + 50)
    rig.settle()
    read = rig.answer(token)
    assert isinstance(read, RecordsRead)
    assert [record.first_sequence for record in read.records] == [8, 9]


@pytest.mark.parametrize("place", ["rows", "missing"])
def test_an_unsound_index_is_made_again_from_its_segment(place: str) -> None:
    rig = filled()
    rig.checkpoint()
    rig, _ = rig.reopened()
    if place == "rows":
        for number in (1, 2, 3):
            rig.disk.files[index_name(number)][-20] ^= 1
    else:
        del rig.disk.files[index_name(2)]
    assert [r.first_sequence for r in rig.read_all(1)] == list(range(1, 201))
    notes = [effect for effect in rig.said if isinstance(effect, Note)]
    assert {note.event for note in notes} == {"journal-index-rebuilt"}
    rig.checkpoint()
    again, found = rig.reopened()
    assert found.notes == []
    assert [r.first_sequence for r in again.read_all(1)] == list(range(1, 201))
    assert not [effect for effect in again.said if isinstance(effect, Note)]


def test_with_index_and_record_both_damaged_the_record_alone_is_lost() -> None:
    rig = filled()
    segment, offset = sealed_place(rig, 10)
    rig.checkpoint()
    rig, _ = rig.reopened()
    flip(rig, segment_name(segment), offset + 60)
    rig.disk.files[index_name(segment)][-20] ^= 1
    assert rig.ask(1, 10) == RangeMissing(rig.last_token, "damaged", 10, 11)
    assert [r.first_sequence for r in rig.read_all(1, 11)] == list(range(11, 201))


def test_no_index_is_made_of_what_was_read_wrong_once() -> None:
    rig = filled()
    segment, offset = sealed_place(rig, 10)
    rig.checkpoint()
    rig, _ = rig.reopened()
    rig.disk.files[index_name(segment)][-20] ^= 1
    flip(rig, segment_name(segment), offset + 4)
    token = rig.token()
    rig.tell(ReadRequested(token, 1, 10, 1))
    while not any(isinstance(order, ReadBytes) and order.offset == 0 and not order.is_index for order in rig.pending):
        rig.step()
    rig.step()
    flip(rig, segment_name(segment), offset + 4)
    rig.settle()
    assert isinstance(rig.answer(token), RecordsRead)
    assert [r.first_sequence for r in rig.read_all(1)] == list(range(1, 201))


def test_what_lies_before_a_lost_end_of_a_segment_is_served() -> None:
    rig = filled()
    segment, _ = sealed_place(rig, 10)
    last = next(sequence for sequence in range(10, 200) if sealed_place(rig, sequence + 1)[0] != segment)
    _, offset = sealed_place(rig, last)
    rig.checkpoint()
    rig, _ = rig.reopened()
    flip(rig, segment_name(segment), offset + 60)
    rig.disk.files[index_name(segment)][-20] ^= 1
    served = rig.ask(1, last - 3)
    assert isinstance(served, RecordsRead)
    assert [r.first_sequence for r in served.records] == [last - 3, last - 2, last - 1]
    assert rig.ask(1, last) == RangeMissing(rig.last_token, "damaged", last, last + 1)


def test_a_segment_let_go_under_a_reader_is_trimmed_to_it_not_damaged() -> None:
    rig = filled()
    rig.tell(ReadRequested(9000, 1, 1, 1 << 20))
    rig.tell(StreamTrimmed(1, 150))
    reads = [order for order in rig.pending if isinstance(order, ReadBytes)]
    for order in reads:
        rig.pending.remove(order)
    rig.checkpoint()
    rig.pending.extend(reads)
    rig.settle()
    assert rig.answer(9000) == RangeMissing(9000, "trimmed", 1, 150)


@pytest.mark.parametrize("code", ["too-many-files", "out-of-memory"])
def test_a_read_that_found_no_file_descriptor_or_memory_is_tried_again_and_is_no_damage(code: str) -> None:
    rig = filled()
    rig.tell(ReadRequested(9000, 1, 10, 1))
    for _ in range(3):
        reads = [order for order in rig.pending if isinstance(order, ReadBytes)]
        assert len(reads) == 1
        rig.pending.remove(reads[0])
        rig.tell(BytesFailed(reads[0].token, "what the system said", code))
        assert not [order for order in rig.pending if isinstance(order, ReadBytes)]
        rig.time_ns += SMALL.retry_ns
        rig.wake()
    rig.settle()
    answer = rig.answer(9000)
    assert isinstance(answer, RecordsRead)
    assert [r.first_sequence for r in answer.records] == [10]


def fail_reads(rig: Rig, is_index: bool | None = None) -> int:
    """Answer the reads that wait with a failure; how many there were."""
    reads = [order for order in rig.pending if isinstance(order, ReadBytes) and is_index in (None, order.is_index)]
    for order in reads:
        rig.pending.remove(order)
        rig.tell(BytesFailed(order.token, "Input/output error"))
    return len(reads)


def test_a_passing_failure_to_read_loses_nothing_and_makes_no_index() -> None:
    rig = filled()
    rig.checkpoint()
    rig, _ = rig.reopened()
    before = {name: bytes(data) for name, data in rig.disk.files.items() if name.endswith(".index")}
    rig.tell(ReadRequested(9000, 1, 10, 1))
    token = rig.token()
    rig.tell(LocateRequested(token, 1, 100))
    for _ in range(3):
        while fail_reads(rig):
            pass
        rig.time_ns += SMALL.retry_ns
        rig.wake()
    rig.settle()
    answer = rig.answer(9000)
    assert isinstance(answer, RecordsRead)
    assert [r.first_sequence for r in answer.records] == [10]
    assert rig.answer(token) == Located(token, 10)
    assert {name: bytes(data) for name, data in rig.disk.files.items() if name in before} == before


def fail_segments(rig: Rig) -> None:
    """Carry out what waits, but for reads of segments: those fail."""
    while rig.pending:
        if not fail_reads(rig, is_index=False):
            rig.step()


def test_a_segment_that_was_given_up_costs_the_next_reader_no_patience_until_it_can_be_read_again() -> None:
    rig = filled()
    rig.tell(ReadRequested(9000, 1, 10, 1))
    for _ in range(4):
        fail_segments(rig)
        rig.time_ns += SMALL.retry_ns
        rig.wake()
    assert isinstance(rig.answer(9000), RangeMissing)
    rig.tell(ReadRequested(9001, 1, 10, 1))
    fail_segments(rig)
    assert isinstance(rig.answer(9001), RangeMissing), "at once"
    rig.tell(ReadRequested(9002, 1, 10, 1))
    rig.settle()
    assert isinstance(rig.answer(9002), RecordsRead)
    rig.tell(ReadRequested(9003, 1, 10, 1))
    fail_segments(rig)
    rig.time_ns += SMALL.retry_ns
    rig.wake()
    rig.settle()
    assert isinstance(rig.answer(9003), RecordsRead), "it was tried again"


def test_what_can_not_be_read_again_and_again_is_given_up_for_that_request_alone() -> None:
    rig = filled()
    rig.checkpoint()
    rig, _ = rig.reopened()
    rig.tell(ReadRequested(9000, 1, 10, 1))
    token = rig.token()
    rig.tell(LocateRequested(token, 1, 100))
    for _ in range(6):
        while fail_reads(rig):
            pass
        rig.time_ns += SMALL.retry_ns
        rig.wake()
    rig.settle()
    answer = rig.answer(9000)
    assert isinstance(answer, RangeMissing)
    assert (answer.code, answer.first_sequence) == ("damaged", 10)
    assert answer.next_sequence > 11
    located = rig.answer(token)
    assert isinstance(located, Located)
    assert located.sequence <= 10
    assert [r.first_sequence for r in rig.read_all(1)] == list(range(1, 201))


def test_an_extent_says_what_is_kept() -> None:
    rig = filled(count=100)
    extent = rig.log.extent(1)
    assert (extent.first_sequence, extent.last_sequence, extent.count) == (1, 100, 100)
    assert (extent.first_append_time_us, extent.last_append_time_us) == (10, 1000)
    assert extent.size == sum(len(r.memory) for r in rig.read_all(1))
    rig.tell(StreamTrimmed(1, 61))
    extent = rig.log.extent(1)
    assert (extent.first_sequence, extent.count) == (61, 40)
    parts = rig.log.parts(1)
    assert parts[0].first_sequence <= 61 <= parts[0].last_sequence
    assert [p.first_sequence for p in parts[1:]] == [p.last_sequence + 1 for p in parts[:-1]]
    assert sum(p.size for p in parts) == extent.size
