"""Files of another journal in the directory are named, and never read, written over or removed; or nothing starts."""

import random
from collections.abc import Callable

import pytest

from tests.journal.rig import MemoryDisk, Rig, batch_entry, recover_from
from tests.journal.test_verify import verified
from veredus.journal.layout import NEWEST_NAME, encode_segment_header, index_name, segment_name
from veredus.journal.settings import LogSettings, empty_journal
from veredus.kernel.errors import Refused

SMALL = LogSettings(segment_size=16 << 10, checkpoint_interval_size=1 << 30)
OTHER_ID = b"another journal!"


def journal(count: int, rig: Rig | None = None) -> Rig:
    """A journal of this many batches of stream 1."""
    rig = rig or Rig(SMALL)
    for sequence in range(1, count + 1):
        rig.append(batch_entry(1, sequence, size=200))
        rig.settle()
    return rig


def other_journal(count: int = 60) -> Rig:
    rig = journal(count, Rig(SMALL, empty_journal(OTHER_ID)))
    rig.checkpoint(b"other", is_final=True)
    return rig


def put(disk: MemoryDisk, other: Rig, name: str, to: str = "") -> bytes:
    """A file of another journal's directory in this one; what it holds."""
    disk.files[to or name] = bytearray(other.disk.files[name])
    return bytes(other.disk.files[name])


def foreign(found: object) -> list[str]:
    return [str(note.fields["file"]) for note in found.notes if note.event == "journal-file-foreign"]


def assert_kept_and_gone_on(rig: Rig, strays: dict[str, bytes], count: int) -> None:
    """The strays are named and kept, and the journal has all that it had, also after it went on for long."""
    report = verified(rig)
    assert not report.is_sound
    assert set(foreign(report)) == set(strays)
    again, found = rig.reopened()
    assert set(foreign(found)) == set(strays)
    asides = {name: data for name, _, data in found.asides}
    assert {name: asides[name] for name in strays} == strays
    assert [record.first_sequence for record in again.read_all(1)] == list(range(1, count + 1))
    for sequence in range(count + 1, count + 301):
        again.append(batch_entry(1, sequence, size=200))
        again.settle()
    again, found = again.reopened()
    assert found.notes == []
    assert [record.first_sequence for record in again.read_all(1)] == list(range(1, count + 301))


@pytest.mark.parametrize("count", [20, 200])
@pytest.mark.parametrize("number", [0x55, 7])
@pytest.mark.parametrize("is_checkpointed", [False, True])
def test_a_segment_of_another_journal_takes_nothing_from_this_one(
    count: int, number: int, is_checkpointed: bool
) -> None:
    rig = journal(count)
    if is_checkpointed:
        rig.checkpoint()
    if segment_name(number) in rig.disk.files:
        number = rig.log.position.segment + 3
    other = other_journal()
    stray = put(rig.disk, other, segment_name(1), segment_name(number))
    put(rig.disk, other, index_name(1), index_name(number))
    assert_kept_and_gone_on(rig, {segment_name(number): stray}, count)


@pytest.mark.parametrize("is_checkpointed", [False, True])
def test_a_segment_of_another_journal_in_the_place_of_the_next_one_takes_nothing(is_checkpointed: bool) -> None:
    rig = journal(20)
    if is_checkpointed:
        rig.checkpoint()
    number = rig.log.position.segment + 1
    assert segment_name(number) in rig.disk.files
    stray = put(rig.disk, other_journal(), segment_name(1), segment_name(number))
    assert_kept_and_gone_on(rig, {segment_name(number): stray}, 20)


@pytest.mark.parametrize("is_final", [False, True])
def test_a_segment_of_another_journal_in_the_place_of_one_with_publications_is_kept_and_that_is_missed(
    is_final: bool,
) -> None:
    rig = journal(100)
    rig.checkpoint(is_final=is_final)
    number = rig.log.position.segment
    stray = put(rig.disk, other_journal(), segment_name(1), segment_name(number))
    again, found = rig.reopened()
    assert foreign(found) == [segment_name(number)]
    assert [note.fields["segment"] for note in found.notes if note.event == "journal-segment-missing"] == [number]
    assert [(name, data) for name, _, data in found.asides] == [(segment_name(number), stray)]
    assert found.recovered.is_damaged
    for sequence in range(101, 301):
        again.append(batch_entry(1, sequence, size=200))
        again.settle()
    again.checkpoint()
    again, found = again.reopened()
    assert found.notes == []
    assert [record.first_sequence for record in again.read_all(1, 101)] == list(range(101, 301))


@pytest.mark.parametrize("is_final", [False, True])
@pytest.mark.parametrize("names", [["checkpoint"], ["checkpoint.copy"], ["checkpoint", "checkpoint.copy"]])
def test_a_checkpoint_of_another_journal_is_not_taken_for_this_ones(names: list[str], is_final: bool) -> None:
    rig = journal(200)
    rig.checkpoint(b"mine", is_final=is_final)
    other = other_journal()
    strays = {name: put(rig.disk, other, name) for name in names}
    _, found = rig.reopened()
    assert found.states == ([] if len(names) == 2 else [b"mine"])
    assert found.recovered.is_clean == (is_final and len(names) == 1)
    assert_kept_and_gone_on(rig, strays, 200)


def test_a_newest_of_another_journal_is_named() -> None:
    rig = journal(30)
    rig.checkpoint()
    rig.disk.files[NEWEST_NAME] = bytearray(encode_segment_header(9, 16 << 10, OTHER_ID, 0))
    assert_kept_and_gone_on(rig, {NEWEST_NAME: bytes(rig.disk.files[NEWEST_NAME])}, 30)


def all_small_files(disk: MemoryDisk, other: Rig) -> None:
    for name in ("checkpoint", "checkpoint.copy", NEWEST_NAME, "closed"):
        put(disk, other, name)


def the_only_segment(disk: MemoryDisk, other: Rig) -> None:
    put(disk, other, segment_name(1))


def many_segments(disk: MemoryDisk, other: Rig) -> None:
    for number in range(0x50, 0x60):
        put(disk, other, segment_name(1), segment_name(number))


def a_newest(disk: MemoryDisk, other: Rig) -> None:
    put(disk, other, NEWEST_NAME)


@pytest.mark.parametrize("mix", [all_small_files, the_only_segment, many_segments, a_newest])
def test_where_it_cannot_be_known_which_journal_it_is_the_start_is_refused_and_nothing_changed(
    mix: Callable[[MemoryDisk, Rig], None],
) -> None:
    rig = journal(10)
    assert segment_name(2) not in rig.disk.files
    mix(rig.disk, other_journal())
    before = {name: bytes(data) for name, data in rig.disk.files.items()}
    with pytest.raises(Refused) as caught:
        recover_from(rig.disk, SMALL)
    assert caught.value.code == "journal-damaged"
    for journal_id in (OTHER_ID, rig.recovered.journal_id):
        assert f"of journal {journal_id.hex()}: " in caught.value.message
    assert rig.disk.files == before


@pytest.mark.parametrize("seed", range(40))
def test_whatever_files_of_another_journal_come_in_nothing_of_either_is_lost(seed: int) -> None:
    die = random.Random(seed)
    rig = journal(die.choice([10, 33, 120]))
    if die.random() < 0.6:
        rig.checkpoint(is_final=die.random() < 0.5)
    other = other_journal(die.choice([10, 100]))
    names = sorted(name for name in other.disk.files if not name.endswith(".index"))
    for name in die.sample(names, die.randint(1, len(names))):
        put(rig.disk, other, name)
    own = {name: bytes(data) for name, data in rig.disk.files.items() if name.endswith(".segment")}
    try:
        again, found = rig.reopened()
    except Refused:
        # On a copy of the disk: what is refused changes nothing, see above.
        return
    asides = {name: data for name, _, data in found.asides}
    kept_id = again.recovered.journal_id
    for name, data in own.items():
        if kept_id not in data[:64]:
            assert asides[name] == data
            assert name in foreign(found)
