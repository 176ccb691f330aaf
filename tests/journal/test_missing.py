"""Segments that are gone, or shorter than they were made: what a journal lacks at its end is named."""

import random
import re
from collections.abc import Callable

import pytest

from tests.journal.rig import MemoryDisk, Rig, batch_entry, recover_from
from tests.journal.test_recovery import again_records, damage_checkpoints, filled, group_headers
from tests.journal.test_verify import verified
from veredus.journal.exchange import (
    CheckpointBegun,
    CheckpointRequested,
    SyncMode,
    WriteFile,
    WriteGroup,
    fact_entry,
)
from veredus.journal.layout import (
    GROUP_RECORD_SIZE,
    NEWEST_NAME,
    SEGMENT_HEADER_SIZE,
    index_name,
    segment_name,
)
from veredus.journal.settings import LogSettings
from veredus.kernel.errors import Refused
from veredus.kernel.gathered import Gathered

SMALL = LogSettings(segment_size=16 << 10, checkpoint_interval_size=1 << 30)
MISSING = "journal-segment-missing"


def remove(disk: MemoryDisk, number: int) -> None:
    del disk.files[segment_name(number)]


def empty(disk: MemoryDisk, number: int) -> None:
    disk.files[segment_name(number)].clear()


def cut_to_header(disk: MemoryDisk, number: int) -> None:
    del disk.files[segment_name(number)][SEGMENT_HEADER_SIZE:]


def cut_between_groups(disk: MemoryDisk, number: int) -> None:
    file = disk.files[segment_name(number)]
    del file[group_headers(file, number)[1] :]


def blank(disk: MemoryDisk, number: int) -> None:
    file = disk.files[segment_name(number)]
    file[:] = bytes(len(file))


HARM = [remove, empty, cut_to_header, cut_between_groups]


def killed(is_next_made: bool, is_checkpointed: bool) -> Rig:
    """A journal as a kill leaves it: its last segment was begun behind the checkpoint, and is more than half full or
    less.
    """
    rig = filled(count=60)
    if is_checkpointed:
        rig.checkpoint()
    first = rig.log.position.segment
    sequence = rig.log.extent(1).last_sequence
    while (at := rig.log.position).segment < first + 2 or at.offset < (10 << 10 if is_next_made else 6 << 10):
        sequence += 1
        rig.append(batch_entry(1, sequence, size=200))
        rig.settle()
    assert (segment_name(at.segment + 1) in rig.disk.files) == is_next_made
    return rig


def missing(found: object) -> list[int]:
    return [note.fields["segment"] for note in found.notes if note.event == MISSING]


@pytest.mark.parametrize("harm", HARM)
@pytest.mark.parametrize("is_next_made", [False, True])
@pytest.mark.parametrize("is_checkpointed", [False, True])
def test_the_last_segment_that_was_written_is_missed_after_a_kill(
    harm: Callable[[MemoryDisk, int], None], is_next_made: bool, is_checkpointed: bool
) -> None:
    rig = killed(is_next_made, is_checkpointed)
    number = rig.log.position.segment
    harm(rig.disk, number)
    again, found = rig.reopened()
    assert missing(found) == [number]
    assert found.recovered.is_damaged
    held = [record.first_sequence for record in again.read_all(1)]
    assert held == list(range(1, len(held) + 1))
    for sequence in range(len(held) + 1, len(held) + 101):
        again.append(batch_entry(1, sequence, size=200, fill=1))
        again.settle()
    # What was named is over: the journal goes on without it.
    again, found = again.reopened()
    assert found.note_events() == []
    assert [record.first_sequence for record in again.read_all(1)] == list(range(1, len(held) + 101))


def test_a_segment_that_was_made_and_held_nothing_is_missed_as_well_for_nobody_knows() -> None:
    rig = killed(is_next_made=True, is_checkpointed=True)
    count = rig.log.extent(1).last_sequence
    remove(rig.disk, rig.log.position.segment + 1)
    again, found = rig.reopened()
    assert missing(found) == [rig.log.position.segment + 1]
    assert len(again.read_all(1)) == count


def gone_on(rig: Rig, sequences: range) -> Rig:
    """The journal opened again, and appended to."""
    later, _ = rig.reopened()
    for sequence in sequences:
        later.append(batch_entry(1, sequence, size=200))
        later.settle()
    return later


def test_a_segment_of_which_only_its_length_is_left_is_missed() -> None:
    rig = killed(is_next_made=False, is_checkpointed=True)
    number = rig.log.position.segment
    blank(rig.disk, number)
    _, found = rig.reopened()
    assert [note.fields for note in found.notes] == [{"segment": number, "offset": 0, "size": SMALL.segment_size}]


def test_all_segments_behind_the_checkpoint_are_missed() -> None:
    rig = killed(is_next_made=False, is_checkpointed=True)
    last = rig.log.position.segment
    for number in range(last - 2, last + 1):
        remove(rig.disk, number)
    _, found = rig.reopened()
    assert missing(found) == [last - 2, last - 1, last]


@pytest.mark.parametrize("harm", [empty, blank, cut_to_header, cut_between_groups])
@pytest.mark.parametrize("is_next_made", [False, True])
@pytest.mark.parametrize("is_checkpointed", [False, True])
def test_a_segment_in_the_middle_of_which_nothing_is_left_is_named(
    harm: Callable[[MemoryDisk, int], None], is_next_made: bool, is_checkpointed: bool
) -> None:
    rig = killed(is_next_made, is_checkpointed)
    number = rig.log.position.segment - 1
    harm(rig.disk, number)
    _, found = rig.reopened()
    assert found.recovered.is_damaged
    named = [note for note in found.notes if note.level == "error"]
    assert {note.fields["segment"] for note in named} == {number}


def test_a_segment_in_the_middle_that_held_facts_alone_is_missed() -> None:
    rig = Rig(SMALL)
    while rig.log.position.segment < 3:
        rig.append(fact_entry(b"fact".ljust(500), 1))
        rig.settle()
    remove(rig.disk, 2)
    _, found = rig.reopened()
    assert missing(found) == [2]
    assert found.recovered.is_damaged


@pytest.mark.parametrize("kept_size", [0, 8 << 10, 15 << 10])
def test_the_open_segment_that_was_cut_after_a_clean_stop_is_missed(kept_size: int) -> None:
    rig = filled(count=60)
    rig.checkpoint(is_final=True)
    number = rig.log.position.segment
    assert rig.log.position.offset > 8 << 10
    del rig.disk.files[segment_name(number)][kept_size:]
    again, found = rig.reopened()
    lost = {"segment": number, "offset": kept_size, "size": SMALL.segment_size - kept_size}
    assert [note.fields for note in found.notes] == [lost]
    count = again.log.extent(1).last_sequence
    for sequence in range(count + 1, count + 31):
        again.append(batch_entry(1, sequence, size=200))
        again.settle()
    assert len(again.disk.files[segment_name(number)]) == kept_size, "what was cut off is not written to"
    again.checkpoint(is_final=True)
    _, found = again.reopened()
    assert found.notes == []


def test_an_older_final_checkpoint_from_before_segments_that_are_gone_is_refuted() -> None:
    rig = filled(count=20)
    rig.checkpoint(is_final=True)
    later = gone_on(rig, range(21, 121))
    newest = max(int(name[:16], 16) for name in later.disk.files if name.endswith(".segment"))
    files = {**rig.disk.files, NEWEST_NAME: later.disk.files[NEWEST_NAME]}
    later.disk.files = {name: bytearray(data) for name, data in files.items()}
    _, found = later.reopened()
    gone = [number for number in range(1, newest + 1) if segment_name(number) not in rig.disk.files]
    assert missing(found) == gone != []


@pytest.mark.parametrize("is_damaged", [False, True])
def test_a_journal_of_which_no_segment_and_no_checkpoint_is_left_is_refused_and_left_as_it_is(is_damaged: bool) -> None:
    rig = filled(count=100)
    if is_damaged:
        rig.checkpoint()
        damage_checkpoints(rig)
    rig.disk.files = {name: data for name, data in rig.disk.files.items() if not name.endswith(".segment")}
    before = {name: bytes(data) for name, data in rig.disk.files.items()}
    with pytest.raises(Refused) as caught:
        recover_from(rig.disk, SMALL)
    assert caught.value.code == "journal-damaged"
    assert rig.disk.files == before
    assert not re.search("move|delete|remove|restore", caught.value.message)


@pytest.mark.parametrize("name", [NEWEST_NAME, index_name(1), "closed"])
def test_whatever_is_left_of_a_journal_is_no_empty_directory(name: str) -> None:
    disk = MemoryDisk()
    disk.files[name] = bytearray()
    with pytest.raises(Refused) as caught:
        recover_from(disk, SMALL)
    assert caught.value.code == "journal-damaged"
    disk.files = {"ballast": bytearray(), "lock": bytearray(b"1"), "notes.txt": bytearray()}
    assert recover_from(disk, SMALL).recovered.is_clean


def test_two_unsound_checkpoints_are_not_made_again_without_the_last_segment() -> None:
    rig = filled(count=100)
    rig.checkpoint()
    damage_checkpoints(rig)
    remove(rig.disk, max(int(name[:16], 16) for name in rig.disk.files if name.endswith(".segment")))
    with pytest.raises(Refused) as caught:
        recover_from(rig.disk, SMALL)
    assert caught.value.code == "journal-damaged"


def test_a_segment_whose_headers_are_all_damaged_is_read_with_the_id_that_the_newest_has() -> None:
    rig = filled(count=9)
    rig.disk.files[segment_name(1)][:SEGMENT_HEADER_SIZE] = bytes(SEGMENT_HEADER_SIZE)
    again, found = rig.reopened()
    assert found.notes == []
    assert [record.first_sequence for record in again.read_all(1)] == list(range(1, 10))


def test_a_last_segment_that_is_shorter_than_its_header_says_is_missed_without_the_newest_too() -> None:
    for is_next_made in (False, True):
        rig = killed(is_next_made, is_checkpointed=True)
        number = rig.log.position.segment
        cut_to_header(rig.disk, number)
        del rig.disk.files[NEWEST_NAME]
        again, found = rig.reopened()
        lost = {"segment": number, "offset": SEGMENT_HEADER_SIZE, "size": SMALL.segment_size - SEGMENT_HEADER_SIZE}
        assert [note.fields for note in found.notes if note.event == MISSING] == [lost]
        assert found.recovered.is_damaged
        assert not verified(rig).is_sound
        for sequence in range(again.log.extent(1).last_sequence + 1, 301):
            again.append(batch_entry(1, sequence, size=200, fill=1))
            again.settle()
        _, found = again.reopened()
        assert found.notes == [], "what was named is over"


def test_a_last_segment_that_was_cut_behind_an_older_final_checkpoint_is_missed_without_the_newest_too() -> None:
    rig = filled(count=20)
    rig.checkpoint(is_final=True)
    later = gone_on(rig, range(21, 51))
    assert later.log.position.segment == rig.log.position.segment + 1
    harmed = segment_name(rig.log.position.segment)
    later.disk.files |= {name: rig.disk.files[name] for name in ("checkpoint", "checkpoint.copy", "closed", harmed)}
    cut_to_header(later.disk, later.log.position.segment)
    del later.disk.files[NEWEST_NAME]
    _, found = later.reopened()
    assert missing(found) == [later.log.position.segment]
    assert not found.recovered.is_clean


@pytest.mark.parametrize("is_final", [False, True])
@pytest.mark.parametrize("data", [b"", bytes(SEGMENT_HEADER_SIZE), b"x" * SEGMENT_HEADER_SIZE])
def test_a_damaged_newest_is_named_for_without_it_the_loss_of_the_last_segment_is_not(
    data: bytes, is_final: bool
) -> None:
    rig = filled(count=60)
    rig.checkpoint(is_final=is_final)
    rig.disk.files[NEWEST_NAME] = bytearray(data)
    again, found = rig.reopened()
    named = ("error", "journal-newest-damaged", {"file": NEWEST_NAME})
    assert [(note.level, note.event, note.fields) for note in found.notes] == [named]
    assert not verified(rig).is_sound
    for sequence in range(61, 161):
        again.append(batch_entry(1, sequence, size=200))
        again.settle()
    _, found = again.reopened()
    assert found.notes == []


def test_a_later_checkpoint_that_only_the_file_closed_still_knows_of_is_missed() -> None:
    rig = filled(count=20)
    rig.checkpoint(is_final=True)
    later = gone_on(rig, range(21, 121))
    later.checkpoint(is_final=True)
    # All as it was before, but for what says that there was a later one.
    rig.disk.files["closed"] = later.disk.files["closed"]
    assert not verified(rig).is_sound
    again, found = rig.reopened()
    named = ("error", "journal-checkpoint-missing", {"file": "closed"})
    assert [(note.level, note.event, note.fields) for note in found.notes] == [named]
    assert found.recovered.is_damaged
    _, found = again.reopened()
    assert found.notes == [], "what was named is over"


@pytest.mark.parametrize("older", ["checkpoint", "checkpoint.copy"])
def test_of_two_checkpoints_the_later_one_is_used(older: str) -> None:
    rig = filled(count=20)
    rig.checkpoint(b"older")
    data = rig.disk.files[older]
    later = gone_on(rig, range(21, 121))
    later.checkpoint(b"later", is_final=True)
    later.disk.files[older] = data
    _, found = later.reopened()
    assert (found.states, found.notes) == ([b"later"], [])
    assert found.recovered.is_clean


def all_random(disk: MemoryDisk, number: int) -> None:
    file = disk.files[segment_name(number)]
    file[:] = random.Random(1).randbytes(len(file))


def as_the_one_before(disk: MemoryDisk, number: int) -> None:
    disk.files[segment_name(number)] = bytearray(disk.files[segment_name(number - 1)])


def exchanged_with_the_one_before(disk: MemoryDisk, number: int) -> None:
    last, before = segment_name(number), segment_name(number - 1)
    disk.files[last], disk.files[before] = disk.files[before], disk.files[last]


def zeros_behind_its_header(disk: MemoryDisk, number: int) -> None:
    file = disk.files[segment_name(number)]
    file[SEGMENT_HEADER_SIZE:] = bytes(len(file) - SEGMENT_HEADER_SIZE)


REPLACED = [
    blank,
    all_random,
    as_the_one_before,
    exchanged_with_the_one_before,
    zeros_behind_its_header,
]


def checkpointed_within_the_last_segment() -> Rig:
    """A killed journal: 103 batches, the last 3 of them in the last segment behind the checkpoint."""
    rig = filled(count=100)
    rig.checkpoint()
    at = rig.log.position
    for sequence in range(101, 104):
        rig.append(batch_entry(1, sequence, size=200))
        rig.settle()
    assert at.offset > SEGMENT_HEADER_SIZE
    assert at.segment == rig.log.position.segment > 1
    return rig


@pytest.mark.parametrize("harm", REPLACED)
def test_an_open_segment_that_was_replaced_behind_a_checkpoint_is_missed_as_if_it_were_gone(
    harm: Callable[[MemoryDisk, int], None],
) -> None:
    rig = checkpointed_within_the_last_segment()
    number = rig.log.position.segment
    harm(rig.disk, number)
    again, found = rig.reopened()
    assert missing(found) == [number]
    (told,) = (note.fields for note in found.notes if note.event == MISSING)
    assert told == {"segment": number, "offset": 0, "size": SMALL.segment_size}
    assert found.recovered.is_damaged
    assert again.log.extent(1).last_sequence == 100
    for sequence in range(101, 141):
        again.append(batch_entry(1, sequence, size=200, fill=1))
        again.settle()
    # What was named is over: the journal goes on without it, in another segment.
    third, found = again.reopened()
    assert found.note_events() == []
    assert [record.first_sequence for record in third.read_all(1, 101)] == list(range(101, 141))


@pytest.mark.parametrize("harm", REPLACED)
def test_what_lies_behind_a_segment_that_was_replaced_is_not_thrown_away(
    harm: Callable[[MemoryDisk, int], None],
) -> None:
    rig = checkpointed_within_the_last_segment()
    number = rig.log.position.segment
    sequence = rig.log.extent(1).last_sequence
    while rig.log.position.segment == number:
        sequence += 1
        rig.append(batch_entry(1, sequence, size=200))
        rig.settle()
    harm(rig.disk, number)
    again, found = rig.reopened()
    assert number in {note.fields["segment"] for note in found.notes if note.level == "error"}
    assert found.recovered.is_damaged
    assert again.log.extent(1).last_sequence == sequence
    assert [record.first_sequence for record in again.read_all(1, sequence)] == [sequence]


@pytest.mark.parametrize("sequence", [98, 100])
def test_one_damaged_record_before_the_checkpoint_takes_nothing_from_what_lies_behind_it(sequence: int) -> None:
    rig = checkpointed_within_the_last_segment()
    file = rig.disk.files[segment_name(rig.log.position.segment)]
    file[bytes(file).index(b"1:%d:0" % sequence)] ^= 1
    again, found = rig.reopened()
    assert found.notes == []
    assert not found.recovered.is_damaged
    assert [record.first_sequence for record in again_records(again)] == [n for n in range(1, 104) if n != sequence]


@pytest.mark.parametrize("harmed", [99, 100])
def test_where_nothing_follows_a_damaged_end_of_what_the_checkpoint_knows_more_may_have_gone(harmed: int) -> None:
    rig = filled(count=100)
    rig.checkpoint()
    number = rig.log.position.segment
    file = rig.disk.files[segment_name(number)]
    place = bytes(file).index(b"1:%d:0" % harmed)
    # From this record on nothing is left, and the checkpoint's end lies in between.
    file[place:] = bytes(len(file) - place)
    again, found = rig.reopened()
    assert missing(found) == [number]
    assert found.recovered.is_damaged
    assert [record.first_sequence for record in again_records(again)] == list(range(1, harmed))


def test_a_checkpoint_behind_which_nothing_was_appended_misses_nothing() -> None:
    rig = filled(count=100)
    rig.checkpoint()
    _, found = rig.reopened()
    assert found.notes == []
    assert not found.recovered.is_damaged
    assert found.recovered.open_segment is not None


@pytest.mark.parametrize("is_final", [False, True])
@pytest.mark.parametrize("kept_size", [0, SEGMENT_HEADER_SIZE, 8 << 10])
def test_a_sealed_segment_that_was_cut_is_named_at_the_start_and_the_rest_of_it_is_served(
    kept_size: int, is_final: bool
) -> None:
    rig = filled(count=200)
    rig.checkpoint(is_final=is_final)
    assert rig.log.position.segment > 2
    del rig.disk.files[segment_name(2)][kept_size:]
    again, found = rig.reopened()
    lost = {"segment": 2, "offset": kept_size, "size": SMALL.segment_size - kept_size}
    assert [(note.level, note.event, note.fields) for note in found.notes] == [("error", MISSING, lost)]
    # The end of the journal is there, so its streams go on in the same term.
    assert not found.recovered.is_damaged
    held = [record.first_sequence for record in again_records(again)]
    assert held == sorted(set(held))
    assert (held[0], held[-1]) == (1, 200)
    assert (len(held) > 170) == (kept_size == 8 << 10), len(held)
    again.checkpoint(is_final=is_final)
    _, found = again.reopened()
    assert found.notes == [], "what was named is over"


def begun_and_taken(sync: SyncMode = SyncMode.GROUP) -> Rig:
    """A journal whose last checkpoint was begun behind 30 records, and its state was there six records later."""
    rig = filled(LogSettings(segment_size=16 << 10, checkpoint_interval_size=1 << 30, sync=sync))
    rig.tell(CheckpointBegun())
    for sequence in range(31, 37):
        rig.append(batch_entry(1, sequence, size=200))
        rig.settle()
    rig.tell(CheckpointRequested(Gathered(b"state")))
    rig.settle()
    return rig


def test_recovery_starts_where_the_checkpoint_was_begun() -> None:
    rig = begun_and_taken()
    rig.append(batch_entry(1, 37, size=200))
    rig.settle()
    again, found = rig.reopened()
    assert (found.states, found.notes) == ([b"state"], [])
    assert [view.envelope.first_sequence for view in found.views] == list(range(31, 38))
    assert len(again.read_all(1)) == 37


def test_a_last_checkpoint_is_of_its_own_moment_whatever_was_begun() -> None:
    rig = filled(count=30)
    rig.tell(CheckpointBegun())
    rig.append(batch_entry(1, 31, size=200))
    rig.checkpoint(is_final=True)
    _, found = rig.reopened()
    assert (found.recovered.is_clean, found.views) == (True, [])


def test_a_checkpoint_waits_until_all_is_synced_that_its_state_may_reflect() -> None:
    rig = Rig(LogSettings(segment_size=64 << 10, checkpoint_interval_size=1 << 30, sync=SyncMode.NONE))
    rig.append(batch_entry(1, 1, size=200))
    rig.settle()
    rig.tell(CheckpointBegun())
    rig.append(batch_entry(1, 2, size=200))
    rig.settle()
    rig.tell(CheckpointRequested(Gathered(b"state")))
    (order,) = [order for order in rig.pending if isinstance(order, WriteGroup)]
    assert order.is_synced
    assert not any(isinstance(order, WriteFile) for order in rig.pending)
    rig.settle()
    _, found = rig.reopened()
    assert (found.states, len(found.views)) == ([b"state"], 1)


@pytest.mark.parametrize("kept", [0, 2])
def test_what_the_state_may_reflect_and_is_gone_from_the_end_is_missed_once(kept: int) -> None:
    rig = begun_and_taken()
    at = rig.log.position
    file = rig.disk.files[segment_name(at.segment)]
    start = group_headers(file, at.segment)[-6 + kept]
    file[start:] = bytes(len(file) - start)
    again, found = rig.reopened()
    lost = {"segment": at.segment, "offset": start, "size": at.offset - start}
    assert [note.fields for note in found.notes if note.event == MISSING] == [lost]
    assert found.recovered.is_damaged
    again.append(batch_entry(1, 31 + kept, size=200))
    again.settle()
    again, found = again.reopened()
    assert missing(found) == []
    assert len(again.read_all(1)) == 31 + kept


def test_what_the_state_may_reflect_is_damaged_and_not_torn() -> None:
    # No group says that one before it was durable.
    rig = begun_and_taken(SyncMode.NONE)
    at = rig.log.position
    file = rig.disk.files[segment_name(at.segment)]
    file[group_headers(file, at.segment)[-2] + GROUP_RECORD_SIZE + 100] ^= 4
    _, found = rig.reopened()
    assert "journal-damaged" in found.note_events()
    assert found.recovered.is_damaged
    assert [view.envelope.first_sequence for view in found.views] == [31, 32, 33, 34, 36]
