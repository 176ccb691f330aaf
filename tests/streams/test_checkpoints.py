"""What a checkpoint keeps of the tables, and what records behind it add: nothing that was given is given again."""

import pytest

from tests.streams.rig import Rig, incarnation
from tests.streams.sinking import RUN, commit, open_run, open_stage, staged, write
from veredus.journal.exchange import StagesUnwanted
from veredus.streams import exchange as x
from veredus.streams.engine import StreamsEngine


def test_a_checkpoint_knows_no_numbers_that_the_journal_then_refuses() -> None:
    rig = Rig()
    grant = rig.attach(1)
    rig.publish(grant, 1, 2)
    rig.is_full = True
    rig.offer(grant, 3, 2)
    rig.checkpoint()
    rig.restart()
    again = rig.attach(1, epoch=grant.epoch)
    assert again.last_number == 2
    taken = rig.publish(again, 3, 2)
    assert (taken.first_sequence, taken.is_duplicate) == (3, False)


def test_a_stream_never_gets_the_id_of_one_that_was_deleted_before_a_checkpoint() -> None:
    rig = Rig()
    gone = rig.attach(1)
    rig.publish(gone, 1, 3)
    rig.do(x.AdminRequested(9, 1, "local", "stream.delete", {"name": "s"}))
    rig.checkpoint()
    rig.restart()
    assert rig.attach(1).stream_id > gone.stream_id


def test_whoever_was_attached_at_a_checkpoint_may_have_been_pushed_all_that_was_durable_at_a_kill() -> None:
    rig = Rig()
    grant = rig.attach(1)
    rig.publish(grant, 1, 3)
    rig.subscribe(5, "bob")
    rig.checkpoint()
    rig.publish(grant, 4)
    rig.restart()
    rig.subscribe(6, "bob", who=2)
    assert {push.redelivered_to for push in rig.pushes(6)} == {4}


def test_a_commit_that_a_checkpoint_keeps_is_recognised_when_it_is_asked_for_again() -> None:
    rig = Rig()
    run = open_run(rig)
    first = commit(rig, run.epoch, 7, *staged(rig, run.epoch, 3))[-1]
    rig.checkpoint()
    rig.restart()
    assert open_run(rig, epoch=run.epoch).commit_id == 7
    again = commit(rig, run.epoch, 7, *staged(rig, run.epoch, 3, session=70), request=2)[-1]
    assert (again.is_duplicate, again.streams) == (True, first.streams)
    assert rig.subscribe(5).head == 3


def test_a_stage_never_gets_the_number_of_one_that_was_gone_at_a_checkpoint() -> None:
    rig = Rig()
    run = open_run(rig)
    dropped, shown = staged(rig, run.epoch, 3, 2)
    commit(rig, run.epoch, 1, shown)
    rig.do(x.StagesDropRequested(RUN, 2, "local", "sink", run.epoch, (dropped.stage,)))
    rig.checkpoint()
    rig.restart()
    assert open_stage(rig, 70, run.epoch).stage > max(dropped.stage, shown.stage)


def test_a_stage_has_the_rows_of_all_its_batches_after_a_kill_and_goes_on_behind_them() -> None:
    rig = Rig()
    run = open_run(rig)
    (stage,) = staged(rig, run.epoch, 2)
    rig.checkpoint()
    write(rig, stage, 3, 1)
    write(rig, stage, 4, 2)
    rig.restart()
    again = open_stage(rig, stage.session, run.epoch)
    assert (again.stage, again.last_number) == (stage.stage, 5)
    open_run(rig, epoch=run.epoch)
    assert commit(rig, run.epoch, 1, again)[-1].streams == (("s", 1, 5),)
    rig.subscribe(5)
    assert [row.number for _, row in rig.rows(5)] == [1, 2, 3, 4, 5]


def test_a_stage_that_was_being_committed_at_a_checkpoint_goes_with_its_run_where_the_commit_was_lost() -> None:
    rig = Rig()
    rig.attach(1)
    run = open_run(rig)
    (stage,) = staged(rig, run.epoch, 3)
    rig.tell(x.CommitRequested(RUN, 1, "local", "sink", run.epoch, 7, (stage.stage,)))
    rig.tell(x.RunOpenRequested(51, "local", "sink", incarnation(2), 0))
    again = StreamsEngine(rig.limits, x.Durability.GROUP, lambda: b"", lambda *_: True, lambda _: 0)
    again.load(b"".join(rig.floor.snapshot().buffers()))
    assert StagesUnwanted((stage.stage,)) in again.finish_recovery(is_clean=False)
    assert again.tables.stages == {}


def test_a_checkpoint_counts_no_rows_of_a_stage_that_the_journal_has_not() -> None:
    rig = Rig()
    run = open_run(rig)
    (stage,) = staged(rig, run.epoch, 2)
    write(rig, stage, 3, 4, is_carried_out=False)
    rig.kill_behind_the_checkpoint()
    again = open_stage(rig, stage.session, run.epoch)
    assert (again.stage, again.last_number) == (stage.stage, 2)
    write(rig, again, 3, 4)
    open_run(rig, epoch=run.epoch)
    assert commit(rig, run.epoch, 1, again)[-1].streams == (("s", 1, 6),)


def test_a_checkpoint_keeps_no_source_whose_owner_the_journal_does_not_know() -> None:
    rig = Rig()
    rig.publish(rig.attach(1, "known"), 1)
    rig.tell(x.SourceAttachRequested(2, "local", "s", "unknown", incarnation(2), 0))
    rig.kill_behind_the_checkpoint()
    assert list(rig.floor.tables.streams["s"].sources) == ["known"]
    assert rig.attach(3, "unknown").epoch == 1


@pytest.mark.parametrize("count", [15, 16])
def test_a_checkpoint_has_lists_of_any_length(count: int) -> None:
    rig = Rig()
    for number in range(count):
        rig.publish(rig.attach(1 + number, f"source-{number}"), 1)
        rig.subscribe(100 + number, f"subscriber-{number}")
        rig.attach(200 + number, stream=f"stream-{number}" if number else "s")
    rig.checkpoint()
    rig.restart()
    tables = rig.floor.tables
    assert len(tables.streams) == count
    assert len(tables.streams["s"].subscriptions) == count
    assert [rig.attach(1, f"source-{number}", who=2).last_number for number in range(count)] == [1] * count
