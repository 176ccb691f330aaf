"""Segments in which little is wanted are rewritten into one; nothing else changes, whenever the process ends."""

import pytest

from tests.journal.rig import Rig, batch_entry, recover_from, staged_entry
from veredus.journal.exchange import (
    CheckpointRequested,
    FileFailed,
    Located,
    LocateRequested,
    RecordsRead,
    StagesPublished,
    StreamTrimmed,
    WriteFile,
)
from veredus.journal.layout import ordinal_of
from veredus.journal.settings import LogSettings
from veredus.kernel.effects import Note
from veredus.kernel.gathered import Gathered

SMALL = LogSettings(segment_size=32 << 10, checkpoint_interval_size=1 << 30, free_count_max=1)
QUIET = range(100, 110)


def mixed(count: int = 600) -> Rig:
    """A busy stream, quiet ones and stages beside it; the busy one is trimmed away."""
    rig = Rig(SMALL)
    numbers = dict.fromkeys(QUIET, 0)
    for sequence in range(1, count + 1):
        rig.append(batch_entry(1, sequence, size=400, time_us=sequence))
        if sequence % 20 == 0:
            quiet = QUIET[sequence // 20 % len(QUIET)]
            numbers[quiet] += 1
            rig.append(batch_entry(quiet, numbers[quiet], size=60, time_us=sequence))
        if sequence % 50 == 0:
            rig.append(staged_entry(9 if sequence % 100 else 10, 50, (sequence + 50) // 100))
        rig.settle()
    rig.tell(StagesPublished([(9, 50, 1)], count))
    rig.tell(StreamTrimmed(1, count - 10))
    return rig


def contents(rig: Rig) -> dict[int, list[tuple[int, int, bytes]]]:
    """All that can be read, without the envelopes' salt and CRC."""
    held = {}
    for stream_id in (*QUIET, 50, 1):
        first = rig.log.extent(stream_id).first_sequence
        held[stream_id] = [
            (r.first_sequence, r.append_time_us, bytes(r.memory)[16:]) for r in rig.read_all(stream_id, first)
        ]
    return held


def cleaned(rig: Rig) -> bool:
    return any(isinstance(effect, Note) and effect.event == "journal-cleaned" for effect in rig.said)


def test_survivors_of_mostly_dead_segments_move_together_and_the_rest_goes() -> None:
    rig = mixed()
    before, size, count = contents(rig), rig.log.size, rig.log.segment_count
    rig.checkpoint()
    assert cleaned(rig)
    rig.checkpoint()
    assert rig.log.size < size / 3
    assert rig.log.segment_count < count / 2
    assert contents(rig) == before
    again, found = rig.reopened()
    assert found.notes == []
    again.tell(StagesPublished([(10, 50, 7)], 601))
    rig.tell(StagesPublished([(10, 50, 7)], 601))
    assert contents(again) == contents(rig)
    again.append(batch_entry(100, again.log.extent(100).last_sequence + 1))
    again.settle()
    again.log.check()


def test_a_batch_that_begins_below_the_floor_and_ends_above_it_survives() -> None:
    rig = Rig(SMALL)
    for sequence in range(1, 301):
        rig.append(batch_entry(1, sequence, size=400))
        if sequence % 20 == 0:
            rig.append(batch_entry(2, rig.log.extent(2).last_sequence + 1, 3))
        rig.settle()
    rig.tell(StreamTrimmed(1, 291))
    rig.tell(StreamTrimmed(2, 5))
    rig.checkpoint()
    assert cleaned(rig)
    assert [(r.first_sequence, r.count) for r in rig.read_all(2, 5)] == [(first, 3) for first in range(4, 46, 3)]


def test_of_a_stream_that_is_trimmed_a_segment_stays_until_the_floor_is_above_its_last_row() -> None:
    rig = Rig(SMALL)
    for sequence in range(1, 201):
        rig.append(batch_entry(1, sequence, size=400))
        rig.settle()
    for floor in range(1, 201):
        rig.tell(StreamTrimmed(1, floor))
        answer = rig.ask(1, floor, size_max=1)
        assert isinstance(answer, RecordsRead), answer
        assert [r.first_sequence for r in answer.records] == [floor]


def test_places_by_time_are_found_in_a_cleaned_segment() -> None:
    rig = mixed()
    rig.checkpoint()
    rig.checkpoint()
    for time_us in (0, 41, 240, 241, 599, 10_000):
        token = rig.token()
        rig.tell(LocateRequested(token, 102, time_us))
        rig.settle()
        answer = rig.answer(token)
        assert isinstance(answer, Located)
        later = [r.first_sequence for r in rig.read_all(102) if r.append_time_us >= time_us]
        assert answer.sequence == min(later, default=rig.log.extent(102).last_sequence + 1)


@pytest.mark.parametrize("step_count", range(0, 60, 3))
def test_a_crash_at_any_step_of_cleaning_loses_nothing(step_count: int) -> None:
    rig = mixed(300)
    before = contents(rig)
    rig.checkpoint()
    rig = rig.reopened()[0]
    rig.settle()
    rig.append(batch_entry(1, 301, size=400))
    rig.settle()
    before[1] = contents(rig)[1]
    rig.tell(CheckpointRequested(Gathered(b"state")))
    for _ in range(step_count):
        rig.step()
    rig.tell(CheckpointRequested(Gathered(b"state")))
    for _ in range(step_count // 2):
        rig.step()
    again, found = rig.reopened()
    assert found.notes == []
    assert contents(again) == before
    again.checkpoint()
    again.checkpoint()
    assert contents(again) == before


def test_a_cleaned_segment_is_cleaned_again_with_its_new_neighbours() -> None:
    rig = mixed()
    head = 600
    for _ in range(6):
        rig.checkpoint()
        rig.checkpoint()
        for sequence in range(head + 1, head + 201):
            rig.append(batch_entry(1, sequence, size=400, time_us=sequence))
            if sequence % 20 == 0:
                rig.append(batch_entry(100, rig.log.extent(100).last_sequence + 1, size=60, time_us=sequence))
            rig.settle()
        head += 200
        rig.tell(StreamTrimmed(1, head - 10))
    before = contents(rig)
    rig.checkpoint()
    rig.checkpoint()
    assert contents(rig) == before
    assert rig.log.segment_count <= 8
    generations = [number - ordinal_of(number) for number in rig.log._catalogue.segments]
    assert max(generations) > 1 << 40, "more than once"
    listing = recover_from(rig.reopened()[0].disk, SMALL)
    assert listing.notes == []


def test_a_segment_with_an_unsound_survivor_is_left_alone() -> None:
    rig = mixed()
    segments = sorted(name for name in rig.disk.files if name.endswith(".segment"))
    for name in segments:
        data = rig.disk.files[name]
        place = bytes(data).find(b"101:1:0")
        if place > 0:
            data[place] ^= 1
    rig.checkpoint()
    rig.checkpoint()
    rig.checkpoint()
    held = {stream_id: rig.log.extent(stream_id) for stream_id in QUIET}
    assert all(extent.count for extent in held.values())
    rig.log.check()


def test_a_cleaning_that_cannot_be_written_changes_nothing() -> None:
    rig = mixed()
    before = contents(rig)
    rig.settle()
    rig.tell(CheckpointRequested(Gathered(b"state")))
    while True:
        writes = [o for o in rig.pending if isinstance(o, WriteFile) and o.name.endswith(".segment")]
        if writes:
            break
        assert rig.step()
    rig.pending.remove(writes[0])
    rig.tell(FileFailed(writes[0].token, "No space left on device"))
    rig.settle()
    assert not cleaned(rig)
    assert contents(rig) == before
    rig.checkpoint()
    rig.checkpoint()
    assert cleaned(rig)
    assert contents(rig) == before
