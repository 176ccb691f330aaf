"""Recovery after a stop at any instruction, on a disk that keeps any part of what was not synced."""

import random
import re
import struct

import pytest

from tests.journal.rig import JOURNAL_ID, MemoryDisk, Rig, batch_entry, batch_record, recover_from, staged_entry
from veredus.delivery.record import RecordKind, RecordView, read_envelope
from veredus.journal.exchange import (
    AppendFailed,
    CheckpointRequested,
    PlacedRecord,
    RangeMissing,
    RecordsRead,
    StagesPublished,
    StreamDropped,
    StreamTrimmed,
    SyncMode,
    WriteFile,
    WriteGroup,
    fact_entry,
)
from veredus.journal.layout import (
    GROUP_RECORD_SIZE,
    SEGMENT_HEADER_SIZE,
    Position,
    batch_ids,
    encode_group,
    salt_of,
    segment_name,
)
from veredus.journal.scan import group_at, groups_from, last_trace, walk
from veredus.journal.settings import LogSettings
from veredus.kernel.effects import Note
from veredus.kernel.errors import Refused
from veredus.kernel.gathered import PART_SIZE, Gathered
from veredus.kernel.octets import crc32c

SMALL = LogSettings(segment_size=16 << 10, checkpoint_interval_size=1 << 30)


def places(views: list[RecordView]) -> list[tuple[int, int]]:
    """The stream and first sequence of each batch."""
    return [
        (batch_ids(view.memory)[0], view.envelope.first_sequence)
        for view in views
        if view.envelope.kind == RecordKind.BATCH
    ]


def filled(settings: LogSettings = SMALL, count: int = 30, per_group: int = 3, size: int = 200) -> Rig:
    """A journal of one stream's batches, in groups of a few."""
    rig = Rig(settings)
    for sequence in range(1, count + 1):
        rig.append(batch_entry(1, sequence, size=size))
        if sequence % per_group == 0:
            rig.settle()
    rig.settle()
    return rig


def test_an_empty_directory_is_a_new_journal() -> None:
    found = recover_from(MemoryDisk(), SMALL)
    assert found.recovered.is_clean
    assert found.recovered.position == Position(0, 0)
    assert (found.views, found.notes) == ([], [])


def test_a_journal_without_a_checkpoint_is_replayed_whole_and_goes_on() -> None:
    rig = filled(count=200)
    assert rig.log.segment_count > 3
    again, found = rig.reopened()
    assert places(found.views) == [(1, sequence) for sequence in range(1, 201)]
    assert found.notes == []
    assert not found.recovered.is_clean
    assert segment_name(1) in found.synced
    again.append(batch_entry(1, 201, size=200))
    again.settle()
    assert [r.first_sequence for r in again.read_all(1)] == list(range(1, 202))
    third, found = again.reopened()
    assert len(found.views) == 201
    assert [r.first_sequence for r in third.read_all(1)] == list(range(1, 202))


def test_the_checkpoint_is_brought_to_the_platter_with_its_name_before_anything_rests_on_it() -> None:
    rig = filled()
    rig.checkpoint(b"tables")
    del rig.disk.files["checkpoint"]
    rig.append(batch_entry(1, 31, size=200))
    rig.settle()
    _, found = rig.reopened()
    assert found.synced == ["checkpoint.copy", segment_name(1)]


def test_after_a_final_checkpoint_no_segment_is_read() -> None:
    rig = filled(count=200)
    rig.checkpoint(b"tables", is_final=True)
    again, found = rig.reopened()
    assert found.states == [b"tables"]
    assert (found.views, found.notes, found.synced) == ([], [], ["checkpoint", "checkpoint.copy"])
    assert found.recovered.is_clean
    # But for the headers, and the places where a group would begin if there were more.
    assert all(
        size <= SEGMENT_HEADER_SIZE + 96 for name, size in again.disk.read_sizes.items() if name.endswith(".segment")
    )
    assert [r.first_sequence for r in again.read_all(1)] == list(range(1, 201))
    again.append(batch_entry(1, 201))
    again.settle()
    _, found = again.reopened()
    assert places(found.views) == [(1, 201)]
    assert not found.recovered.is_clean


def put_back(files: dict[str, bytearray], names: list[str], rig: Rig) -> None:
    """Let these files be as they are in a journal's own disk."""
    files |= {name: bytearray(rig.disk.files[name]) for name in names}


@pytest.mark.parametrize("count", [3, 200])
def test_a_final_checkpoint_that_was_put_back_hides_nothing_that_came_later(count: int) -> None:
    rig = filled(count=20)
    rig.checkpoint(b"tables", is_final=True)
    later, _ = rig.reopened()
    for sequence in range(21, 21 + count):
        later.append(batch_entry(1, sequence, size=200))
        later.settle()
    put_back(later.disk.files, ["checkpoint", "checkpoint.copy", "closed"], rig)
    _, found = later.reopened()
    assert not found.recovered.is_clean
    assert places(found.views) == [(1, sequence) for sequence in range(21, 21 + count)]
    assert [note.event for note in found.notes] == ["journal-checkpoint-outdated"]


def test_an_older_copy_that_was_put_back_over_a_journal_hides_no_later_segment() -> None:
    rig = filled(count=20)
    rig.checkpoint(b"tables", is_final=True)
    later, _ = rig.reopened()
    for sequence in range(21, 221):
        later.append(batch_entry(1, sequence, size=200))
        later.settle()
    put_back(later.disk.files, list(rig.disk.files), rig)
    again, found = later.reopened()
    assert "journal-damaged" in [note.event for note in found.notes]
    assert again.log.extent(1).last_sequence == 220


def test_the_segment_that_was_written_last_is_missed_after_a_clean_stop_too() -> None:
    rig = filled(count=20)
    rig.checkpoint(b"tables", is_final=True)
    del rig.disk.files[segment_name(1)]
    again, found = rig.reopened()
    assert [(note.event, note.fields) for note in found.notes] == [("journal-segment-missing", {"segment": 1})]
    assert not found.recovered.is_clean
    assert again.ask(1, 1) == RangeMissing(again.last_token, "damaged", 1, 21)
    assert not [said for said in again.said if isinstance(said, Note)], "it was named when the journal was opened"
    again.append(batch_entry(1, 21))
    again.settle()
    assert again.is_appended(again.last_token)


def test_the_state_of_a_checkpoint_is_written_in_the_parts_in_which_it_was_gathered() -> None:
    rig = filled(count=20)
    states, state = [random.Random(part).randbytes(PART_SIZE // 2 + 7) for part in range(9)], Gathered()
    for part in states:
        state.add(part)
    rig.tell(CheckpointRequested(state))
    (order,) = (order for order in rig.pending if isinstance(order, WriteFile))
    assert max(map(len, order.data)) <= PART_SIZE + len(states[0])
    rig.settle()
    _, found = rig.reopened()
    assert (found.states, found.note_events()) == ([b"".join(states)], [])


def test_a_final_checkpoint_with_a_group_on_its_way_does_not_hide_the_group() -> None:
    rig = filled(count=20)
    late = rig.append(batch_entry(1, 21))
    rig.wake()
    (group,) = rig.pending
    rig.pending.clear()
    rig.tell(CheckpointRequested(Gathered(b"tables"), is_final=True))
    rig.settle()
    rig.pending.append(group)
    rig.settle()
    assert rig.is_appended(late)
    _, found = rig.reopened()
    assert places(found.views) == [(1, 21)]


def test_nothing_is_appended_behind_a_final_checkpoint() -> None:
    rig = filled(count=20)
    rig.checkpoint(is_final=True)
    answer = rig.answer(rig.append(batch_entry(1, 21)))
    assert isinstance(answer, AppendFailed)
    assert answer.code == "journal-closed"
    assert rig.is_appended(rig.append()), "a barrier says nothing of its own"
    assert len(rig.read_all(1)) == 20


def test_only_what_lies_behind_the_checkpoint_is_replayed() -> None:
    rig = filled(count=100)
    rig.checkpoint(b"tables")
    for sequence in range(101, 161):
        rig.append(batch_entry(1, sequence, size=200), fact_entry(b"f%d" % sequence, 1))
        rig.settle()
    again, found = rig.reopened()
    assert found.states == [b"tables"]
    assert places(found.views) == [(1, sequence) for sequence in range(101, 161)]
    facts = [bytes(view.payload) for view in found.views if view.envelope.kind == RecordKind.FACT]
    assert facts == [b"f%d" % sequence for sequence in range(101, 161)]
    assert [r.first_sequence for r in again.read_all(1)] == list(range(1, 161))


def in_flight(rig: Rig) -> WriteGroup:
    """The group that was ordered and not yet written."""
    rig.wake()
    (order,) = [order for order in rig.pending if isinstance(order, WriteGroup)]
    return order


def test_a_kill_at_any_byte_of_a_write_loses_nothing_answered_and_keeps_a_beginning() -> None:
    rig = filled(count=9)
    for sequence in (10, 11, 12):
        rig.append(batch_entry(1, sequence, size=60))
    order = in_flight(rig)
    data = b"".join(order.buffers)
    before = bytes(rig.disk.files[segment_name(order.segment)])
    for size in range(len(data) + 1):
        disk = MemoryDisk()
        disk.files = {name: bytearray(file) for name, file in rig.disk.files.items()}
        disk.files[segment_name(order.segment)][order.offset : order.offset + size] = data[:size]
        again, found = rig.reopened(disk)
        sequences = [sequence for _, sequence in places(found.views)]
        assert sequences[:9] == list(range(1, 10))
        assert sequences[9:] == list(range(10, 10 + len(sequences) - 9)), "a beginning of the group"
        assert (len(sequences) == 12) == (size >= len(data.rstrip(b"\0"))), "padding says nothing"
        last = sequences[-1]
        again.append(batch_entry(1, last + 1, size=60, fill=9))
        again.settle()
        assert [r.first_sequence for r in again.read_all(1)] == list(range(1, last + 2))
        _, found = again.reopened()
        assert [sequence for _, sequence in places(found.views)] == list(range(1, last + 2)), size
        assert "journal-damaged" not in found.note_events()
    assert before == bytes(rig.disk.files[segment_name(order.segment)])


@pytest.mark.parametrize("seed", range(40))
def test_unsynced_sectors_may_reach_the_disk_in_any_order(seed: int) -> None:
    dice = random.Random(seed)
    rig = filled(count=9)
    for sequence in range(10, 10 + dice.randint(1, 12)):
        rig.append(batch_entry(1, sequence, size=dice.choice((60, 300, 900))))
    order = in_flight(rig)
    data = b"".join(order.buffers)
    file = rig.disk.files[segment_name(order.segment)]
    for start in range(order.offset // 512 * 512, order.offset + len(data), 512):
        if dice.random() < 0.6:
            low, high = max(start, order.offset), min(start + 512, order.offset + len(data))
            file[low:high] = data[low - order.offset : high - order.offset]
    again, found = rig.reopened()
    sequences = [sequence for _, sequence in places(found.views)]
    assert sequences == list(range(1, len(sequences) + 1))
    assert len(sequences) >= 9
    for sequence in range(len(sequences) + 1, len(sequences) + 30):
        again.append(batch_entry(1, sequence, size=300, fill=seed))
        again.settle()
    assert [r.first_sequence for r in again.read_all(1)] == list(range(1, len(sequences) + 30))
    _, found = again.reopened()
    assert [sequence for _, sequence in places(found.views)] == list(range(1, len(sequences) + 30))


def test_an_append_of_several_records_is_there_whole_or_not_at_all() -> None:
    rig = filled(count=3)
    rig.append(batch_entry(1, 4), batch_entry(1, 5), batch_entry(1, 6))
    order = in_flight(rig)
    data = b"".join(order.buffers)
    counts = set()
    for size in range(0, len(data) + 1, 8):
        disk = MemoryDisk()
        disk.files = {name: bytearray(file) for name, file in rig.disk.files.items()}
        disk.files[segment_name(order.segment)][order.offset : order.offset + size] = data[:size]
        _, found = rig.reopened(disk)
        counts.add(len(found.views))
    assert counts == {3, 6}


def test_what_is_cut_off_is_set_aside_first() -> None:
    rig = filled(count=3)
    rig.append(batch_entry(1, 4, size=900))
    order = in_flight(rig)
    data = b"".join(order.buffers)
    rig.disk.files[segment_name(order.segment)][order.offset : order.offset + 600] = data[:600]
    again, found = rig.reopened()
    assert found.note_events() == ["journal-torn-tail"]
    ((name, offset, kept),) = found.asides
    assert (name, offset) == (segment_name(order.segment), order.offset)
    assert kept.startswith(data[:600])
    assert not any(again.disk.files[name][order.offset :])


@pytest.mark.parametrize("mode", [SyncMode.GROUP, SyncMode.NONE])
def test_a_flipped_bit_anywhere_is_named_or_harmless(mode: SyncMode) -> None:
    settings = LogSettings(segment_size=16 << 10, checkpoint_interval_size=1 << 30, sync=mode)
    rig = filled(settings, count=60, per_group=2, size=150)
    written = [(name, bytes(data)) for name, data in rig.disk.files.items() if name.endswith(".segment")]
    last = rig.log.position
    dice = random.Random(4)
    for name, data in written:
        end = last.offset if name == segment_name(last.segment) else len(data)
        if name > segment_name(last.segment):
            continue
        for _ in range(120):
            bit = dice.randrange(SEGMENT_HEADER_SIZE * 8, end * 8)
            disk = MemoryDisk()
            disk.files = {other: bytearray(file) for other, file in written}
            disk.files[name][bit // 8] ^= 1 << bit % 8
            again, found = rig.reopened(disk)
            sequences = [sequence for _, sequence in places(found.views)]
            assert sequences == sorted(set(sequences))
            bodies = {first: bytes(r.memory) for r in again_records(again) for first in [r.first_sequence]}
            assert all(b"1:%d:0" % first in body for first, body in bodies.items())
            assert sorted(bodies) == sequences
            if sequences != list(range(1, 61)):
                assert {"journal-damaged", "journal-torn-tail"} & set(found.note_events()), (name, bit)
                assert found.asides
            if mode is SyncMode.GROUP and "journal-torn-tail" in found.note_events():
                assert sequences == list(range(1, len(sequences) + 1)), "only a beginning is left"
                assert len(sequences) >= 58, "only the very last group can be mistaken for a torn one"


def again_records(rig: Rig) -> list[PlacedRecord]:
    """Every record of stream 1 that can be had, passing over what cannot."""
    records: list[PlacedRecord] = []
    first = 1
    while True:
        answer = rig.ask(1, first)
        if isinstance(answer, RangeMissing):
            first = answer.next_sequence
            continue
        assert isinstance(answer, RecordsRead)
        if not answer.records:
            return records
        records += answer.records
        first = answer.next_sequence


def test_old_records_of_a_recycled_segment_never_show_up() -> None:
    rig = Rig(SMALL)
    sequence = 0
    for lap in range(12):
        for _ in range(40):
            sequence += 1
            rig.append(batch_entry(1, sequence, size=200))
            rig.settle()
        rig.tell(StreamTrimmed(1, max(1, sequence - 20)))
        rig.checkpoint(b"%d" % lap)
    assert sequence // 40 > rig.log.segment_count
    assert len(rig.disk.files) < 12, "segments were used again"
    for kept in range(5):
        rig.append(batch_entry(1, sequence + 1 + kept, size=40))
        rig.settle()
    again, found = rig.reopened()
    assert [first for _, first in places(found.views)] == [sequence + 1 + kept for kept in range(5)]
    assert [r.first_sequence for r in again.read_all(1, sequence - 20)] == list(range(sequence - 20, sequence + 6))


@pytest.mark.parametrize("size", [0, 100, SEGMENT_HEADER_SIZE, 16 << 10])
def test_a_kill_while_the_first_segment_is_made_leaves_a_new_journal(size: int) -> None:
    disk = MemoryDisk()
    disk.files[segment_name(1)] = bytearray(size)
    found = recover_from(disk, SMALL)
    rig = Rig(SMALL, found.recovered, disk)
    rig.append(batch_entry(1, 1))
    rig.settle()
    _, found = rig.reopened()
    assert places(found.views) == [(1, 1)]


def reformatted(data: bytearray, version: int) -> None:
    """Have a segment's header say another version, and mean it."""
    data[8:16] = struct.pack("<II", version, 0)
    data[12:16] = crc32c(data[:60]).to_bytes(4, "little")
    data[2048:2108] = data[:60]


@pytest.mark.parametrize(("version", "code"), [(9, "newer-format"), (1, "older-format")])
def test_a_journal_of_another_format_is_refused_and_left_alone(version: int, code: str) -> None:
    rig = filled()
    for name in list(rig.disk.files):
        reformatted(rig.disk.files[name], version)
    before = {name: bytes(data) for name, data in rig.disk.files.items()}
    with pytest.raises(Refused) as caught:
        recover_from(rig.disk, SMALL)
    assert caught.value.code == code
    assert str(version) in caught.value.message
    assert rig.disk.files == before
    rig = filled()
    rig.checkpoint()
    for name in ("checkpoint", "checkpoint.copy"):
        rig.disk.files[name][8:12] = version.to_bytes(4, "little")
    with pytest.raises(Refused) as caught:
        recover_from(rig.disk, SMALL)
    assert caught.value.code == code


def test_a_flipped_bit_in_a_version_is_damage_and_no_other_format() -> None:
    rig = filled()
    rig.checkpoint()
    for name in rig.disk.files:
        if name.endswith(".segment") or name == "checkpoint":
            rig.disk.files[name][9] ^= 1
    again, _ = rig.reopened()
    assert [record.first_sequence for record in again.read_all(1)] == [r.first_sequence for r in rig.read_all(1)]


@pytest.mark.parametrize("places", [(0,), (2048,), (0, 2048)])
def test_a_header_with_several_flipped_bits_is_damage_and_no_other_format(places: tuple[int, ...]) -> None:
    rig = filled()
    rig.checkpoint()
    data = rig.disk.files[segment_name(1)]
    for bit, place in enumerate(places):
        data[place + 10] ^= 1 << bit
        data[place + 41] ^= 1
    again, _ = rig.reopened()
    assert [record.first_sequence for record in again.read_all(1)] == [r.first_sequence for r in rig.read_all(1)]


@pytest.mark.parametrize("place", [0, 2048])
def test_a_segment_whose_header_is_damaged_once_is_read(place: int) -> None:
    rig = filled()
    assert "checkpoint" not in rig.disk.files
    for name in rig.disk.files:
        rig.disk.files[name][place : place + 512] = bytes(512)
    again, _ = rig.reopened()
    assert [record.first_sequence for record in again.read_all(1)] == [r.first_sequence for r in rig.read_all(1)]


def test_a_record_that_was_written_to_another_place_does_not_pass_for_what_should_be_there() -> None:
    rig = Rig(SMALL)
    rig.append(*(batch_entry(1, sequence, size=64) for sequence in range(1, 21)))
    rig.settle()
    data, salt = rig.disk.files[segment_name(1)], salt_of(JOURNAL_ID, 1)
    view = memoryview(bytes(data))
    views = list(walk(view, SEGMENT_HEADER_SIZE, last_trace(view, SEGMENT_HEADER_SIZE, salt), 1, salt))
    records = [view for view in views if isinstance(view, RecordView) and view.envelope.kind == RecordKind.BATCH]
    first, third = records[0], records[2]
    size = len(first.memory)
    assert size == len(third.memory)
    data[third.offset : third.offset + size] = bytes(data[first.offset : first.offset + size])
    rig.append(batch_entry(1, 21))
    rig.settle()
    _, found = rig.reopened()
    assert [sequence for _, sequence in places(found.views)] == [1, 2, *range(4, 22)]
    assert "journal-damaged" in {note.event for note in found.notes}


@pytest.mark.parametrize("name", ["checkpoint", "checkpoint.copy"])
def test_one_unsound_copy_of_the_checkpoint_is_named_and_harmless(name: str) -> None:
    rig = filled(count=100)
    rig.tell(StreamTrimmed(1, 80))
    rig.checkpoint(b"tables")
    rig.disk.files[name][len(rig.disk.files[name]) // 2] ^= 4
    again, found = rig.reopened()
    assert found.states == [b"tables"]
    assert [(note.event, note.fields) for note in found.notes] == [("journal-checkpoint-damaged", {"file": name})]
    assert [r.first_sequence for r in again.read_all(1, 80)] == list(range(80, 101))


def damage_checkpoints(rig: Rig) -> dict[str, bytes]:
    """Flip a bit in both copies of the checkpoint; what is in them now."""
    damaged = {}
    for name in ("checkpoint", "checkpoint.copy"):
        rig.disk.files[name][40] ^= 4
        damaged[name] = bytes(rig.disk.files[name])
    return damaged


def test_two_unsound_checkpoints_are_named_kept_aside_and_made_again_while_every_segment_is_there() -> None:
    rig = filled(count=100)
    rig.checkpoint(b"tables")
    rig.append(batch_entry(1, 101, size=200))
    rig.settle()
    damaged = damage_checkpoints(rig)
    again, found = rig.reopened()
    assert found.note_events() == [
        "journal-checkpoint-damaged",
        "journal-checkpoint-damaged",
        "journal-recovered-from-segments",
    ]
    assert found.states == []
    assert [sequence for _, sequence in places(found.views)] == list(range(1, 102))
    assert [record.first_sequence for record in again.read_all(1)] == list(range(1, 102))
    assert {name: data for name, _, data in found.asides} == damaged
    assert not set(damaged) & set(again.disk.files)
    again.checkpoint(b"tables")
    _, found = again.reopened()
    assert (found.states, found.notes) == ([b"tables"], [])


def test_two_checkpoints_that_are_missing_after_a_clean_stop_are_made_again_and_that_is_said() -> None:
    rig = filled(count=100)
    rig.checkpoint(b"tables", is_final=True)
    for name in ("checkpoint", "checkpoint.copy"):
        del rig.disk.files[name]
    again, found = rig.reopened()
    assert found.note_events() == ["journal-recovered-from-segments"]
    assert [record.first_sequence for record in again.read_all(1)] == list(range(1, 101))


def test_a_journal_that_was_killed_before_its_first_checkpoint_misses_none() -> None:
    _, found = filled(count=100).reopened()
    assert found.notes == []


@pytest.mark.parametrize("is_final", [False, True])
@pytest.mark.parametrize("is_open", [False, True])
def test_a_segment_with_bytes_behind_its_end_is_named_once_at_each_start(is_open: bool, is_final: bool) -> None:
    rig = filled(count=100)
    rig.checkpoint(b"tables", is_final)
    number = rig.log.position.segment if is_open else 1
    file = rig.disk.files[segment_name(number)]
    size = len(file)
    file.extend(b"q" * 1000)
    again, found = rig.reopened()
    fields = {"file": segment_name(number), "size": size + 1000, "expected": size}
    assert [(note.event, note.fields) for note in found.notes] == [("journal-file-too-long", fields)]
    assert [record.first_sequence for record in again.read_all(1)] == list(range(1, 101))


@pytest.mark.parametrize("gone", [1, 2])
def test_without_a_sound_checkpoint_and_a_segment_the_journal_is_refused_and_left_as_it_is(gone: int) -> None:
    rig = filled(count=200)
    rig.checkpoint()
    damage_checkpoints(rig)
    del rig.disk.files[segment_name(gone)]
    before = {name: bytes(data) for name, data in rig.disk.files.items()}
    with pytest.raises(Refused) as caught:
        recover_from(rig.disk, SMALL)
    assert caught.value.code == "journal-damaged"
    assert rig.disk.files == before
    # Whoever does as it says loses nothing that this directory holds.
    assert "keep it as it is" in caught.value.message
    assert not re.search("move|delete|remove|restore", caught.value.message)


def test_a_segment_that_has_vanished_is_named_and_what_it_held_is_damaged() -> None:
    rig = filled(count=200)
    rig.checkpoint()
    del rig.disk.files[segment_name(2)]
    again, found = rig.reopened()
    assert [(note.event, note.fields) for note in found.notes] == [("journal-segment-missing", {"segment": 2})]
    held = [record.first_sequence for record in again_records(again)]
    assert held[0] == 1
    assert held[-1] == 200
    assert 20 < len(held) < 200


def test_damage_behind_the_checkpoint_is_named_with_what_was_lost_and_kept_aside() -> None:
    rig = filled(count=90, per_group=3)
    rig.checkpoint()
    at = rig.log.position
    for sequence in range(91, 111):
        rig.append(batch_entry(1, sequence, size=60))
        rig.settle()
    assert rig.log.position.segment == at.segment
    file = rig.disk.files[segment_name(at.segment)]
    place = bytes(file).index(b"1:95:0")
    file[place] ^= 1
    again, found = rig.reopened()
    (damaged,) = found.notes
    assert damaged.event == "journal-damaged"
    assert (damaged.fields["segment"], damaged.fields["first_sequence"]) == (at.segment, 95)
    assert damaged.fields["stream_as_read"] == 1
    again.settle()
    assert missing_sequences(again) == [(1, 95, 95)]
    assert found.asides[0][0] == segment_name(at.segment)
    assert b"0:95:0" in found.asides[0][2]
    assert [s for _, s in places(found.views)] == [*range(91, 95), *range(96, 111)]
    again.append(batch_entry(1, 111))
    again.settle()
    assert again.ask(1, 95) == RangeMissing(again.last_token, "damaged", 95, 96)


@pytest.mark.parametrize("kept_size", [36, 40, 65, 79, 80])
def test_a_file_that_ends_within_a_damaged_batchs_header_is_named_all_the_same(kept_size: int) -> None:
    rig = filled(count=90, per_group=3)
    at = rig.log.position.segment
    file, salt = rig.disk.files[segment_name(1)], salt_of(JOURNAL_ID, 1)
    places = [place for place in range(0, len(file), 8) if group_at(memoryview(bytes(file)), place, 1, salt)]
    assert at > 1
    del file[places[-1] + GROUP_RECORD_SIZE + kept_size :]
    _, found = rig.reopened()
    damaged = [note.fields for note in found.notes if note.event == "journal-damaged"]
    assert damaged
    assert ("stream_as_read" in damaged[0]) == (kept_size >= 80)


def missing_sequences(rig: Rig) -> list[tuple[int, int, int]]:
    """What the log said to be missing, once it was told what the floor knows."""
    notes = [said for said in rig.said if isinstance(said, Note) and said.event == "journal-sequences-missing"]
    return [place for note in notes for place in note.fields["stream_first_last"]]


def damaged_in_the_middle(first: int, last: int) -> Rig:
    """A journal behind whose checkpoint the batches from `first` to `last` of stream 1 are damaged, opened again."""
    rig = filled(count=12)
    rig.checkpoint()
    for sequence in range(13, 31):
        rig.append(batch_entry(1, sequence, size=60), batch_entry(2, sequence - 12, size=60))
        rig.settle()
    file = rig.disk.files[segment_name(1)]
    for sequence in range(first, last + 1):
        file[bytes(file).index(b"1:%d:0" % sequence)] ^= 1
    return rig.reopened()[0]


@pytest.mark.parametrize(
    ("floor", "missing"),
    [(1, [(1, 15, 20)]), (15, [(1, 15, 20)]), (18, [(1, 18, 20)]), (20, [(1, 20, 20)]), (21, []), (31, [])],
)
def test_what_was_trimmed_later_is_not_called_missing(floor: int, missing: list[tuple[int, int, int]]) -> None:
    rig = damaged_in_the_middle(15, 20)
    rig.tell(StreamTrimmed(1, floor))
    rig.settle()
    assert missing_sequences(rig) == missing


def test_what_a_commit_made_visible_and_what_was_deleted_is_not_called_missing() -> None:
    rig = filled(count=3)
    rig.append(staged_entry(9, 1, 1, count=4), staged_entry(8, 2, 1, count=2))
    rig.checkpoint()
    rig.append(batch_entry(3, 1, size=60))
    rig.settle()
    # Sequences 6 to 9 of stream 1 are the stage's, by a fact that the floor knows.
    for sequence in (4, 5, 10, 11):
        rig.append(batch_entry(1, sequence, size=60), batch_entry(2, sequence, size=60))
        rig.settle()
    file = rig.disk.files[segment_name(1)]
    file[bytes(file).index(b"3:1:0")] ^= 1
    file[bytes(file).index(b"1:5:0")] ^= 1
    rig, _ = rig.reopened()
    rig.tell(StagesPublished([(9, 1, 6)], 0))
    rig.tell(StreamDropped(2))
    rig.settle()
    assert missing_sequences(rig) == [(1, 5, 5)]


def test_the_beginning_of_a_stream_that_damage_took_is_called_missing() -> None:
    rig = filled(count=12)
    rig.checkpoint()
    for sequence in range(1, 6):
        rig.append(batch_entry(2, sequence, size=60))
        rig.settle()
    file = rig.disk.files[segment_name(1)]
    for sequence in (1, 2):
        file[bytes(file).index(b"2:%d:0" % sequence)] ^= 1
    rig, _ = rig.reopened()
    rig.settle()
    assert missing_sequences(rig) == [(2, 1, 2)]


def test_a_copy_of_a_group_inside_a_body_never_passes_for_a_group() -> None:
    rig = filled(count=3, per_group=1)
    first = bytes(rig.disk.files[segment_name(1)][SEGMENT_HEADER_SIZE : rig.log.position.offset])
    entry = batch_entry(1, 4)
    body = first.ljust(len(first) + 8, b"!")
    entry.record = batch_record(1, 4, [body])
    rig.append(entry)
    rig.settle()
    rig.append(batch_entry(1, 5))
    rig.settle()
    file = rig.disk.files[segment_name(1)]
    place = bytes(file).index(first[:200], SEGMENT_HEADER_SIZE + 1)
    file[place - 60] ^= 1
    _, found = rig.reopened()
    assert [s for _, s in places(found.views)] == [1, 2, 3, 5]
    assert found.note_events()[0] == "journal-damaged"


def test_a_torn_group_never_ends_in_records_of_an_earlier_life_of_its_segment() -> None:
    rig = Rig(SMALL)
    sequence = 0

    def write_three() -> None:
        for i in range(1, 4):
            rig.append(batch_entry(1, sequence + i, size=300))

    while rig.log.segment_count < 3:
        write_three()
        sequence += 3
        rig.settle()
    rig.tell(StreamTrimmed(1, sequence + 1))
    rig.checkpoint()
    while rig.log.position.segment < 5:
        write_three()
        sequence += 3
        rig.settle()
    write_three()
    order = in_flight(rig)
    data = b"".join(order.buffers)
    written = len(order.buffers[0]) + len(order.buffers[1])
    file = rig.disk.files[segment_name(order.segment)]
    old = read_envelope(file, order.offset + written)
    assert old is not None, "where the next record would begin, an old one lies, whole"
    file[order.offset : order.offset + written] = data[:written]
    _, found = rig.reopened()
    assert [first for _, first in places(found.views)][-2:] == [sequence, sequence + 1]


def test_nothing_is_written_where_a_torn_group_would_take_it_for_a_part_of_itself() -> None:
    rig = filled(count=6)
    rig.checkpoint()
    rig.append(batch_entry(1, 7, size=300))
    rig.append(batch_entry(1, 8, size=300))
    order = in_flight(rig)
    data = b"".join(order.buffers)
    written = len(order.buffers[0]) + len(order.buffers[1])
    rig.disk.files[segment_name(1)][order.offset : order.offset + written + 40] = data[: written + 40]
    # The cut is there, and the next segment is not: the process ended before it was made.
    rig, found = rig.reopened()
    assert found.note_events() == ["journal-torn-tail"]
    for sequence in (8, 9, 10, 11):
        rig, found = rig.reopened()
        assert [first for _, first in places(found.views)] == list(range(7, sequence))
        assert found.note_events() == []
        rig.append(batch_entry(1, sequence, size=20))
        rig.settle()


def test_a_stage_whose_first_record_is_damaged_keeps_the_places_of_the_others() -> None:
    rig = filled(count=3)
    for first in (1, 2, 3):
        rig.append(staged_entry(9, 2, first, size=100))
        rig.settle()
    file = rig.disk.files[segment_name(1)]
    start = bytes(file).index(bytes(staged_entry(9, 2, 1, size=100).record)[36:100])
    file[start + 20] ^= 1
    rig.append(batch_entry(1, 4))
    rig.settle()
    rig, found = rig.reopened()
    assert found.note_events()[0] == "journal-damaged"
    rig.tell(StagesPublished([(9, 2, 1)], 0))
    rig.settle()
    answer = rig.ask(2, 1)
    assert isinstance(answer, RangeMissing)
    assert (answer.code, answer.next_sequence) == ("damaged", 2)
    assert [record.first_sequence for record in rig.read_all(2, 2)] == [2, 3]


def test_a_journal_whose_very_first_group_was_torn_goes_on_behind_it() -> None:
    rig = Rig(SMALL)
    rig.append(batch_entry(1, 1, size=300))
    while not any(isinstance(order, WriteGroup) for order in rig.pending):
        rig.step()
    (order,) = (order for order in rig.pending if isinstance(order, WriteGroup))
    rig.disk.files[segment_name(1)][order.offset : order.offset + 100] = b"".join(order.buffers)[:100]
    for last in range(3):
        rig, found = rig.reopened()
        assert [first for _, first in places(found.views)] == list(range(1, last + 1))
        rig.append(batch_entry(1, last + 1, size=300))
        rig.settle()


def test_a_segment_whose_first_group_was_torn_is_passed_over_by_later_recoveries() -> None:
    rig = filled(count=20)
    while rig.log.position.segment < 2:
        rig.append(batch_entry(1, rig.log.extent(1).last_sequence + 1, size=200))
        if rig.log.position.offset > 15 << 10:
            order = in_flight(rig)
            if order.segment == 2:
                break
        rig.settle()
    last = rig.log.extent(1).last_sequence
    data = b"".join(order.buffers)
    rig.disk.files[segment_name(2)][order.offset : order.offset + 100] = data[:100]
    for _ in range(3):
        rig, found = rig.reopened()
        assert [first for _, first in places(found.views)] == list(range(1, last + 1))
        last += 1
        rig.append(batch_entry(1, last, size=200))
        rig.settle()
        assert rig.log.position.segment == 3


def test_without_syncs_what_lies_behind_a_lost_place_never_comes_back() -> None:
    settings = LogSettings(segment_size=16 << 10, checkpoint_interval_size=1 << 30, sync=SyncMode.NONE)
    rig = filled(settings, count=38, per_group=1)
    lost = rig.log.position
    rig.append(batch_entry(1, 39, size=200))
    rig.settle()
    for sequence in range(40, 60):
        rig.append(batch_entry(1, sequence, size=200))
        rig.settle()
    assert rig.log.position.segment == lost.segment
    rig.disk.files[segment_name(lost.segment)][lost.offset : lost.offset + 512] = bytes(512)
    again, found = rig.reopened()
    assert [first for _, first in places(found.views)] == list(range(1, 39))
    again.append(batch_entry(1, 39, size=200, fill=1))
    again.settle()
    _, found = again.reopened()
    assert [first for _, first in places(found.views)] == list(range(1, 40))
    assert b"1:39:1" in bytes(found.views[-1].memory)


def test_without_syncs_later_segments_go_with_a_lost_place_in_an_earlier_one() -> None:
    settings = LogSettings(segment_size=16 << 10, checkpoint_interval_size=1 << 30, sync=SyncMode.NONE)
    rig = Rig(settings)
    sequence = 0
    while rig.log.position.segment < 2 or rig.log.position.offset < 10 << 10:
        sequence += 1
        rig.append(batch_entry(1, sequence, size=200))
        rig.settle()
    file = rig.disk.files[segment_name(2)]
    # As if nothing of the first sync had come through either: the place of a group in the middle of the first segment.
    place = bytes(rig.disk.files[segment_name(1)]).index(b"1:20:0")
    rig.disk.files[segment_name(1)][place - 300 : place + 200] = bytes(500)
    for header in group_headers(file, 2):
        file[header : header + 96] = with_durable(file, header, Position(1, SEGMENT_HEADER_SIZE))
    again, found = rig.reopened()
    kept = len(places(found.views))
    assert 10 < kept < 20
    assert not any(again.disk.files[segment_name(2)][SEGMENT_HEADER_SIZE:])
    assert {name for name, _, _ in found.asides} == {segment_name(1), segment_name(2)}
    last = kept
    for _ in range(3):
        last += 1
        again.append(batch_entry(1, last, size=200, fill=1))
        again.settle()
    assert again.log.position.segment == 2
    _, found = again.reopened()
    assert [first for _, first in places(found.views)] == list(range(1, last + 1))


def group_headers(file: bytearray, number: int) -> list[int]:
    """The offsets of a segment's groups."""
    return [group.at.offset for group in groups_from(memoryview(file), 0, number, salt_of(JOURNAL_ID, number))]


def with_durable(file: bytearray, offset: int, durable: Position) -> bytes:
    """The GROUP record at `offset` as it would say that less was durable."""
    salt = salt_of(JOURNAL_ID, 2)
    found = group_at(memoryview(file), offset, 2, salt)
    assert found is not None
    view, header = found
    return bytes(
        encode_group(header._replace(durable=durable), salt, view.envelope.first_sequence, view.envelope.append_time_us)
    )
