"""Looking through a journal changes nothing, counts what is there and names what is not sound."""

from collections.abc import Generator
from typing import Any

from tests.journal.rig import MemoryDisk, Rig, batch_entry, staged_entry
from veredus.journal.exchange import fact_entry
from veredus.journal.layout import index_name, segment_name
from veredus.journal.settings import LogSettings
from veredus.journal.steps import CheckpointLoaded, ReadFile, Replayed
from veredus.journal.verify import DumpedRecord, Report, dump, verify
from veredus.kernel.effects import Note

SMALL = LogSettings(segment_size=16 << 10, checkpoint_interval_size=1 << 30)


def drive(disk: MemoryDisk, steps: Generator[Any, Any, Any]) -> tuple[Any, list[Any]]:
    """What the generator returns, and what it said beside what it wanted to read."""
    said: list[Any] = []
    answer = None
    while True:
        try:
            order = steps.send(answer)
        except StopIteration as end:
            return end.value, said
        answer = None
        if isinstance(order, ReadFile):
            answer = bytearray(disk.read(order.name, order.offset, order.size))
        else:
            said.append(order)


def verified(rig: Rig) -> Report:
    before = {name: bytes(data) for name, data in rig.disk.files.items()}
    report, said = drive(rig.disk, verify({name: len(data) for name, data in before.items()}, SMALL))
    assert {type(found) for found in said} <= {CheckpointLoaded, Replayed}
    assert {name: bytes(data) for name, data in rig.disk.files.items()} == before
    assert isinstance(report, Report)
    return report


def filled() -> Rig:
    rig = Rig(SMALL)
    for sequence in range(1, 151):
        rig.append(batch_entry(1 + sequence % 2, (sequence + 1) // 2, size=200), fact_entry(b"fact", 1))
        if sequence % 3 == 0:
            rig.append(staged_entry(1, 1, sequence // 3))
        if sequence == 100:
            rig.checkpoint()
        rig.settle()
    return rig


def test_a_sound_journal_is_counted_and_found_sound() -> None:
    rig = filled()
    report = verified(rig)
    assert report.is_sound
    assert not report.is_clean
    assert report.position == rig.log.position
    totals: dict[str, int] = {}
    for segment in report.segments:
        for kind, count in segment.record_counts.items():
            totals[kind] = totals.get(kind, 0) + count
    assert totals == {"batch": 150, "fact": 150, "staged": 50}
    assert sum(segment.row_count for segment in report.segments) == 200
    assert [segment.is_open for segment in report.segments] == [False] * (len(report.segments) - 1) + [True]
    assert report.segments[0].stream_ids == [1, 2]


def test_damage_before_and_behind_the_checkpoint_is_named_once_each() -> None:
    rig = filled()
    places = []
    for text in (b"1:10:0", b"2:65:0"):
        for name, data in rig.disk.files.items():
            if name.endswith(".segment") and (at := bytes(data).find(text)) > 0:
                data[at] ^= 1
                places.append((int(name.split(".")[0], 16), at))
    report = verified(rig)
    assert not report.is_sound
    damage = [damaged for segment in report.segments for damaged in segment.damage]
    assert len(damage) == len(places) == 2
    for damaged, (number, at) in zip(damage, places, strict=True):
        offset, size = damaged["offset"], damaged["size"]
        assert damaged["segment"] == number
        assert isinstance(offset, int)
        assert isinstance(size, int)
        assert offset < at < offset + size
    assert [damaged["first_sequence"] for damaged in damage] == [10, 65]


def test_a_torn_tail_is_named_and_is_no_damage() -> None:
    rig = filled()
    end = rig.log.position
    rig.disk.files[segment_name(end.segment)][end.offset - 30 : end.offset] = bytes(30)
    report = verified(rig)
    assert [note.event for note in report.notes] == ["journal-torn-tail"]
    assert report.is_sound


def test_an_unsound_index_or_copy_of_the_checkpoint_or_header_is_named() -> None:
    rig = filled()
    rig.disk.files[index_name(1)][-3] ^= 1
    rig.disk.files["checkpoint.copy"][60] ^= 1
    rig.disk.files[segment_name(2)][10] ^= 1
    report = verified(rig)
    assert [(note.event, note.fields) for note in report.notes] == [
        ("journal-checkpoint-damaged", {"file": "checkpoint.copy"}),
        ("journal-index-damaged", {"segment": 1}),
    ]
    assert [damaged["what"] for segment in report.segments for damaged in segment.damage] == ["header"]


def test_a_dump_gives_every_record_in_order_and_notes_what_is_unsound() -> None:
    rig = filled()
    listing = {name: len(data) for name, data in rig.disk.files.items()}
    _, said = drive(rig.disk, dump(listing))
    records = [record for record in said if isinstance(record, DumpedRecord) and record.kind != "group"]
    assert len(records) == 350
    assert [(r.segment, r.offset) for r in records] == sorted((r.segment, r.offset) for r in records)
    batches = [(r.stream_id, r.first_sequence) for r in records if r.kind == "batch"]
    assert batches == [(1 + sequence % 2, (sequence + 1) // 2) for sequence in range(1, 151)]
    assert {r.payload for r in records if r.kind == "fact"} == {b"fact"}
    rig.disk.files[segment_name(2)][6000] ^= 1
    _, said = drive(rig.disk, dump(listing, [2]))
    assert {r.segment for r in said if isinstance(r, DumpedRecord)} == {2}
    assert [note.event for note in said if isinstance(note, Note)] == ["journal-unsound"]
