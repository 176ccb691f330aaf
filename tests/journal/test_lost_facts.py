"""Damage that took a fact: what hung on it is named, and the numbers that it gave are not given again."""

import msgspec
import pytest

from tests.journal.rig import JOURNAL_ID, MemoryDisk
from tests.streams.rig import Rig, incarnation
from veredus.delivery.batch import BatchHeader
from veredus.delivery.record import RecordKind, RecordView
from veredus.journal.layout import SEGMENT_HEADER_SIZE, batch_ids, index_name, salt_of, segment_name
from veredus.journal.scan import last_trace, walk
from veredus.journal.settings import LogSettings
from veredus.sim.content import Identity, batch_record
from veredus.sim.ports import batch_offered
from veredus.streams import exchange as x


def records(disk: MemoryDisk) -> list[RecordView]:
    """The sound records of the first segment, in order, without those that open groups."""
    data = memoryview(bytes(disk.files[segment_name(1)]))
    salt = salt_of(JOURNAL_ID, 1)
    found = walk(data, SEGMENT_HEADER_SIZE, last_trace(data, SEGMENT_HEADER_SIZE, salt), 1, salt)
    return [view for view in found if isinstance(view, RecordView) and view.envelope.kind != RecordKind.GROUP]


def spoil(disk: MemoryDisk, view: RecordView) -> None:
    """Flip a bit in this record."""
    disk.files[segment_name(1)][view.offset + len(view.memory) - 16] ^= 1


def spoil_fact(disk: MemoryDisk, tag: str, **fields: object) -> None:
    """Flip a bit in the first fact of this kind that says all of `fields`."""
    facts = [view for view in records(disk) if view.envelope.kind == RecordKind.FACT]
    said = [msgspec.msgpack.decode(view.payload) for view in facts]
    found = (view for view, fact in zip(facts, said, strict=True) if {"type": tag, **fields}.items() <= fact.items())
    spoil(disk, next(found))


def orphans(rig: Rig) -> list[dict[str, object]]:
    """What recovery said of streams that it does not know."""
    return [note.fields for note in rig.notes if note.event == "stream-orphaned"]


def test_a_stream_whose_making_was_damaged_is_named_with_what_it_held_and_its_id_is_not_given_again() -> None:
    rig = Rig()
    lost, kept = rig.attach(1, stream="s"), rig.attach(2, stream="t")
    for first in (1, 4, 7):
        rig.publish(lost, first, 3)
        rig.publish(kept, first, 3)
    spoil_fact(rig.disk, "stream", name="s")
    rig.restart()
    assert orphans(rig) == [
        {"stream_id": lost.stream_id, "records": 3, "publications": 9, "first_sequence": 1, "last_sequence": 9}
    ]
    assert list(rig.floor.tables.streams) == ["t"]
    assert rig.attach(3, stream="s").stream_id == kept.stream_id + 1
    assert rig.log.extent(lost.stream_id).count == 9, "what it held is still in the journal"


def test_rows_that_a_commit_showed_in_a_stream_whose_making_was_damaged_are_named_too() -> None:
    rig = Rig()
    lost = rig.attach(1, stream="s")
    rig.publish(lost, 1, 2)
    (run,) = rig.do(x.RunOpenRequested(2, "local", "sink", incarnation(2)))
    stages = [stage(rig, session, run.epoch, "s", rows) for session, rows in ((3, 4), (4, 5))]
    rig.do(x.CommitRequested(2, 1, "local", "sink", run.epoch, 1, tuple(stages)))
    spoil_fact(rig.disk, "stream", name="s")
    rig.restart()
    assert orphans(rig) == [
        {"stream_id": lost.stream_id, "records": 1, "publications": 11, "first_sequence": 1, "last_sequence": 11}
    ]


def stage(rig: Rig, session: int, run_epoch: int, stream: str, rows: int) -> int:
    """A stage of the sink with so many rows in it; its number."""
    rig.do(x.StageOpenRequested(session, "local", "sink", run_epoch, stream, incarnation(session)))
    (grant,) = rig.said_to(session, x.GrantStage)
    header = BatchHeader(0, 0, 0, 0, 0, grant.stream_id, 0, 0, 0, 1, 0, 0)
    identities = [Identity(f"stage-{grant.stage}", number) for number in range(1, rows + 1)]
    rig.do(batch_offered(session, batch_record(header, identities)))
    return int(grant.stage)


def test_the_id_of_a_stream_of_which_hardly_anything_is_left_is_not_given_again() -> None:
    rig = Rig()
    lost = rig.attach(1, stream="s")
    spoil_fact(rig.disk, "stream", name="s")
    rig.restart()
    assert rig.attach(2, stream="t").stream_id == lost.stream_id + 1
    rig = Rig()
    rig.publish(rig.attach(1, stream="s"), 1)
    spoil_fact(rig.disk, "stream", name="s")
    spoil_fact(rig.disk, "source")
    rig.restart()
    assert rig.attach(2, stream="t").stream_id == lost.stream_id + 1
    rig = Rig()
    (run,) = rig.do(x.RunOpenRequested(2, "local", "sink", incarnation(2)))
    stage(rig, 3, run.epoch, "s", 1)
    spoil_fact(rig.disk, "stream", name="s")
    spoil_fact(rig.disk, "stage")
    rig.restart()
    assert rig.attach(4, stream="t").stream_id == 2
    assert orphans(rig) == [], "nothing that anybody could have read is lost"
    rig = Rig()
    (run,) = rig.do(x.RunOpenRequested(2, "local", "sink", incarnation(2)))
    number = stage(rig, 3, run.epoch, "s", 1)
    rig.do(x.CommitRequested(2, 1, "local", "sink", run.epoch, 1, (number,)))
    spoil_fact(rig.disk, "stream", name="s")
    spoil_fact(rig.disk, "stage")
    spoil(rig.disk, next(view for view in records(rig.disk) if view.envelope.kind == RecordKind.STAGED))
    rig.restart()
    assert rig.attach(4, stream="t").stream_id == 2


def test_the_number_of_a_stage_that_only_a_commit_or_a_drop_names_is_not_given_again() -> None:
    rig = Rig()
    rig.attach(1, stream="s")
    (run,) = rig.do(x.RunOpenRequested(2, "local", "sink", incarnation(2)))
    shown = stage(rig, 3, run.epoch, "s", 4)
    rig.do(x.CommitRequested(2, 1, "local", "sink", run.epoch, 1, (shown,)))
    dropped = stage(rig, 4, run.epoch, "s", 4)
    rig.do(x.StagesDropRequested(2, 2, "local", "sink", run.epoch, (dropped,)))
    for view in records(rig.disk):
        if view.envelope.kind == RecordKind.STAGED:
            spoil(rig.disk, view)
    for number in (shown, dropped):
        spoil_fact(rig.disk, "stage", stage=number)
    rig.restart()
    assert rig.floor.tables.next_stage == dropped + 1


@pytest.mark.parametrize("what", ["records", "segment"])
@pytest.mark.parametrize("end", ["dropped", "committed"])
def test_a_stage_whose_rows_in_one_segment_are_all_lost_lets_go_of_the_others_only(what: str, end: str) -> None:
    rig = Rig(settings=LogSettings(segment_size=16 << 10, checkpoint_interval_size=1 << 30))
    grant = rig.attach(1)
    (run,) = rig.do(x.RunOpenRequested(2, "local", "sink", incarnation(2)))
    number = stage(rig, 3, run.epoch, "s", 4)
    next_number = 1
    while segment_name(3) not in rig.disk.files:
        rig.publish(grant, next_number, 40)
        next_number += 40
    header = BatchHeader(0, 0, 0, 0, 0, grant.stream_id, 0, 0, 0, 5, 0, 0)
    rig.do(batch_offered(3, batch_record(header, [Identity(f"stage-{number}", row) for row in (5, 6)])))
    rig.checkpoint()
    if what == "records":
        for view in records(rig.disk):
            if view.envelope.kind == RecordKind.STAGED:
                spoil(rig.disk, view)
        del rig.disk.files[index_name(1)]
    else:
        del rig.disk.files[segment_name(1)]
    rig.restart()
    if end == "dropped":
        rig.do(x.RunOpenRequested(4, "local", "sink", incarnation(4)))
        rig.checkpoint()
        rig.subscribe(7)
        assert (rig.pushed(7)[0] == 1, rig.pushed(7)[-1]) == (what == "records", next_number - 1)
    else:
        rig.do(x.RunOpenRequested(2, "local", "sink", incarnation(2), run.epoch))
        rig.do(x.CommitRequested(2, 1, "local", "sink", run.epoch, 1, (number,)))
        rig.subscribe(7)
        assert rig.pushed(7)[-2:] == [next_number + 4, next_number + 5]
        rig.do(x.AdminRequested(9, 1, "local", "stream.delete", {"name": "s"}))


def test_facts_that_came_in_one_group_with_a_damaged_batch_are_known() -> None:
    rig = Rig()
    alpha = rig.attach(1)
    rig.offer(alpha, 1, 3)
    rig.tell(x.SourceAttachRequested(2, "local", "s", "beta", incarnation(2)))
    rig.carry_out()
    (beta,) = rig.said_to(2, x.GrantSource)
    rig.publish(beta, 1, 2, who="beta")
    spoil(rig.disk, next(view for view in records(rig.disk) if view.envelope.kind == RecordKind.BATCH))
    rig.restart()
    again = rig.attach(3, "beta", who=2, epoch=beta.epoch)
    assert isinstance(again, x.GrantSource), again
    assert (again.source_id, again.epoch, again.last_number) == (beta.source_id, beta.epoch, 2)


def test_what_was_on_its_way_to_a_stream_that_was_deleted_is_no_orphan() -> None:
    rig = Rig()
    gone = rig.attach(1, stream="s")
    rig.publish(gone, 1, 2)
    rig.tell(x.AdminRequested(2, 1, "local", "stream.delete", {"name": "s"}))
    rig.offer(gone, 3, 2)
    rig.carry_out()
    last = records(rig.disk)[-1]
    assert (last.envelope.kind, batch_ids(last.memory)[0]) == (RecordKind.BATCH, gone.stream_id)
    rig.restart()
    assert orphans(rig) == []


def test_a_stream_that_was_made_out_of_sight_and_deleted_is_no_orphan_and_takes_no_space() -> None:
    rig = Rig()
    lost = rig.attach(1, stream="s")
    rig.publish(lost, 1, 2)
    rig.do(x.AdminRequested(2, 1, "local", "stream.delete", {"name": "s"}))
    spoil_fact(rig.disk, "stream", name="s")
    rig.restart()
    assert orphans(rig) == []
    assert rig.log.extent(lost.stream_id).count == 0


def test_what_is_published_after_damage_took_a_trimmed_end_lies_above_the_floor() -> None:
    rig = Rig()
    source = rig.attach(1, stream="s")
    rig.publish(source, 1, 4)
    rig.do(x.AdminRequested(2, 1, "local", "stream.trim", {"name": "s", "floor": 5}))
    batch = next(view for view in records(rig.disk) if view.envelope.kind == RecordKind.BATCH)
    spoil(rig.disk, batch)
    rig.restart()
    stream = rig.floor.tables.streams["s"]
    stream.check()
    assert (stream.floor, stream.head_durable) == (5, 4)


def nameless(rig: Rig) -> list[dict[str, object]]:
    """What recovery said of sources whose name it does not know."""
    return [note.fields for note in rig.notes if note.event == "source-orphaned"]


def test_a_source_whose_naming_was_damaged_is_named_by_its_id_with_what_it_published() -> None:
    rig = Rig()
    lost, kept = rig.attach(1, "alpha"), rig.attach(2, "beta")
    rig.publish(kept, 1, 2, who="beta")
    for first in (1, 4):
        rig.publish(lost, first, 3)
    spoil_fact(rig.disk, "source", name="alpha")
    rig.restart()
    assert nameless(rig) == [
        {"stream": "s", "source_id": lost.source_id, "last_number": 6, "records": 2, "publications": 6,
         "first_sequence": 3, "last_sequence": 8}
    ]  # fmt: skip
    again = rig.attach(3, "alpha")
    assert (again.last_number, again.source_id > kept.source_id) == (0, True)


def test_a_source_that_a_later_fact_names_again_goes_on_behind_what_it_has_published() -> None:
    rig = Rig()
    grant = rig.attach(1, "alpha")
    rig.publish(grant, 1, 3)
    rig.attach(2, "alpha", who=2)
    spoil_fact(rig.disk, "source", name="alpha", epoch=1)
    rig.restart()
    assert nameless(rig) == []
    again = rig.attach(3, "alpha", who=3)
    assert (again.source_id, again.last_number) == (grant.source_id, 3)
