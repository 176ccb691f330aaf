"""Sinks: stages stay unseen, a commit shows them at once, and a newer run fences the older."""

import sys
from copy import deepcopy
from types import FrameType
from typing import Any

import pytest

from tests.streams.rig import Rig, incarnation
from tests.streams.sinking import RUN, commit, open_run, open_stage, staged, write
from veredus.streams import exchange as x
from veredus.streams.tables import StreamsLimits


def test_rows_of_an_open_stage_are_unseen_and_hold_up_nobody() -> None:
    rig = Rig()
    grant = rig.attach(1)
    rig.subscribe(5)
    staged(rig, open_run(rig).epoch, 4)
    rig.publish(grant, 1, 2)
    assert rig.pushed(5) == [1, 2]
    assert [identity.who for _, identity in rig.rows(5)] == ["alpha", "alpha"]


def test_a_commit_shows_its_stages_at_once_in_their_order_and_contiguous() -> None:
    rig = Rig()
    grant = rig.attach(1)
    rig.publish(grant, 1, 2)
    run = open_run(rig)
    first, second = staged(rig, run.epoch, 3, 2)
    rig.subscribe(5)
    rig.publish(grant, 3)
    (said,) = [one for one in commit(rig, run.epoch, 7, second, first) if isinstance(one, x.ConfirmCommitted)]
    assert said.streams == (("s", 4, 5),)
    rig.publish(grant, 4)
    names = [identity.who for _, identity in rig.rows(5)]
    assert names == ["alpha"] * 3 + [f"stage-{second.stage}"] * 2 + [f"stage-{first.stage}"] * 3 + ["alpha"]
    assert rig.pushed(5) == list(range(1, 10))


def test_a_commit_that_was_not_written_shows_nothing_and_can_be_asked_for_again() -> None:
    rig = Rig()
    run = open_run(rig)
    stages = staged(rig, run.epoch, 3, 2)
    numbers = tuple(stage.stage for stage in stages)
    rig.tell(x.CommitRequested(RUN, 1, "local", "sink", run.epoch, 7, numbers))
    rig.restart()
    assert rig.subscribe(5).head == 0
    again = open_run(rig, epoch=run.epoch)
    assert (again.commit_id, again.epoch) == (-1, run.epoch)
    commit(rig, run.epoch, 7, *stages)
    assert rig.pushed(5) == [1, 2, 3, 4, 5]


def test_a_commit_shows_and_confirms_nothing_before_it_is_durable() -> None:
    rig = Rig()
    rig.attach(1)
    run = open_run(rig)
    stages = staged(rig, run.epoch, 3, 2)
    rig.subscribe(5)
    rig.tell(x.CommitRequested(RUN, 1, "local", "sink", run.epoch, 7, tuple(stage.stage for stage in stages)))
    assert (rig.said_to(RUN, x.ConfirmCommitted), rig.pushes(5)) == ([], [])
    rig.carry_out()
    assert [confirmed.commit_id for confirmed in rig.said_to(RUN, x.ConfirmCommitted)] == [7]
    assert rig.pushed(5) == [1, 2, 3, 4, 5]


def test_a_commit_that_the_journal_refuses_leaves_its_stages_open_and_can_be_asked_for_again() -> None:
    rig = Rig()
    grant = rig.attach(1)
    run = open_run(rig)
    stages = staged(rig, run.epoch, 3, 2)
    rig.is_full = True
    (refusal,) = commit(rig, run.epoch, 7, *stages)
    assert (refusal.code, refusal.is_final) == ("disk-full", False)
    rig.is_full = False
    rig.publish(grant, 1)
    write(rig, stages[1], 3, 1)
    assert commit(rig, run.epoch, 7, *stages, request=2)[-1].streams == (("s", 2, 6),)


@pytest.mark.parametrize("is_full", [True, False])
def test_what_is_asked_of_a_run_before_it_is_granted_is_refused_and_harms_nobody(is_full: bool) -> None:
    rig = Rig()
    rig.is_full = is_full
    epoch = rig.now.number_after(0)
    commit_asked = x.CommitRequested(RUN, 1, "local", "sink", epoch, 7, (), (), ())
    drop_asked = x.StagesDropRequested(RUN, 2, "local", "sink", epoch, ())
    rig.tell(x.RunOpenRequested(RUN, "local", "sink", incarnation(1), 0), commit_asked, drop_asked)
    rig.carry_out()
    codes = [refusal.code for refusal in rig.said_to(RUN, x.Refuse)]
    assert codes == ["unknown-run", "unknown-run", *(["disk-full"] if is_full else [])]
    rig.is_full = False
    run = open_run(rig, 2, session=RUN + 1)
    assert isinstance(run, x.GrantRun)
    assert (run.epoch, run.commit_id) == (epoch if is_full else epoch + 1, -1)


def test_a_commit_is_there_whole_after_a_kill_and_asked_again_answers_the_same() -> None:
    rig = Rig()
    run = open_run(rig)
    first = commit(rig, run.epoch, 7, *staged(rig, run.epoch, 3))
    rig.restart()
    assert open_run(rig, epoch=run.epoch).commit_id == 7
    again = staged(rig, run.epoch, 3, session=70)
    (said,) = commit(rig, run.epoch, 7, *again, request=2)[-1:]
    assert (said.is_duplicate, said.streams) == (True, first[-1].streams)
    rig.subscribe(5)
    assert rig.pushed(5) == [1, 2, 3]
    assert rig.floor.tables.stages == {}
    rig.restart()
    assert rig.floor.tables.stages == {}, "what was staged anew is garbage after a kill, too"


def test_a_commit_asked_again_leaves_other_sinks_stages_alone() -> None:
    rig = Rig()
    run = open_run(rig)
    commit(rig, run.epoch, 7, *staged(rig, run.epoch, 1))
    rig.do(x.RunOpenRequested(80, "local", "other", incarnation(9)))
    rig.do(x.StageOpenRequested(81, "local", "other", 1, "s", incarnation(10)))
    (foreign,) = rig.said_to(81, x.GrantStage)
    commit(rig, run.epoch, 7, foreign, request=2)
    assert foreign.stage in rig.floor.tables.stages


@pytest.mark.parametrize("is_full", [False, True])
def test_a_commit_that_is_asked_for_again_on_its_way_to_the_journal_is_done_once_and_answered_twice(
    is_full: bool,
) -> None:
    rig = Rig()
    run = open_run(rig)
    assert isinstance(run, x.GrantRun)
    (stage,) = staged(rig, run.epoch, 3)
    rig.is_full = is_full
    for request in (1, 2):
        rig.tell(x.CommitRequested(RUN, request, "local", "sink", run.epoch, 0, (stage.stage,)))
    rig.carry_out()
    answers = [said.is_duplicate for said in rig.said_to(RUN, x.ConfirmCommitted)]
    refused = [(said.code, said.request) for said in rig.said_to(RUN, x.Refuse)]
    if is_full:
        assert (answers, refused) == ([], [("disk-full", 1), ("disk-full", 2)])
        rig.is_full = False
        assert [type(said) for said in commit(rig, run.epoch, 0, stage, request=3)] == [x.ConfirmCommitted]
    else:
        assert (answers, refused) == ([False, True], [])
    assert rig.floor.tables.streams["s"].head_durable == 3


def test_a_commit_id_that_lies_before_the_last_one_is_refused() -> None:
    rig = Rig()
    run = open_run(rig)
    commit(rig, run.epoch, 7, *staged(rig, run.epoch, 1))
    (refusal,) = commit(rig, run.epoch, 6, request=2)
    assert (refusal.code, refusal.details["commit_id"], refusal.is_final) == ("commit-id-behind", 7, False)


def test_who_commits_behind_another_driver_is_told_to_stop_that_one_and_to_start_again() -> None:
    rig = Rig()
    run = open_run(rig)
    commit(rig, run.epoch, 7, *staged(rig, run.epoch, 1))
    (refusal,) = commit(rig, run.epoch, 6, request=2)
    assert "another driver of the same query" in refusal.message
    assert "Stop it, and start this one again" in refusal.message


def test_a_newer_run_fences_the_older_and_drops_its_open_stages() -> None:
    rig = Rig()
    old = open_run(rig)
    (stage,) = staged(rig, old.epoch, 3)
    new = open_run(rig, who=2, session=51)
    assert new.epoch == old.epoch + 1
    assert [type(said) for said in commit(rig, old.epoch, 7, stage)] == [x.Fence]
    write(rig, stage, 4, 1)
    assert rig.said_to(stage.session, x.Refuse) == []
    (fence,) = rig.said_to(stage.session, x.Fence)
    assert (fence.epoch, "a newer run" in fence.message) == (new.epoch, True)
    rig.restart()
    assert rig.floor.tables.stages == {}
    again = x.StageOpenRequested(61, "local", "sink", old.epoch, "s", incarnation(60), stage=stage.stage)
    assert [(type(said), said.epoch) for said in rig.do(again)] == [(x.Fence, new.epoch)]
    assert isinstance(open_run(rig, epoch=old.epoch), x.Fence)


def test_a_newer_run_fences_who_is_opening_a_stage_of_the_older() -> None:
    rig = Rig()
    old = open_run(rig)
    open_stage(rig, 59, old.epoch)
    rig.tell(x.StageOpenRequested(60, "local", "sink", old.epoch, "s", incarnation(60)))
    rig.tell(x.RunOpenRequested(51, "local", "sink", incarnation(2), 0))
    rig.carry_out()
    assert rig.said_to(60, x.GrantStage) == rig.said_to(60, x.Refuse) == []
    assert [fence.epoch for fence in rig.said_to(60, x.Fence)] == [old.epoch + 1]


def test_a_stage_that_is_asked_for_again_when_the_journal_refuses_everything_keeps_its_rows() -> None:
    rig = Rig()
    rig.attach(1)
    run = open_run(rig)
    (stage,) = staged(rig, run.epoch, 3)
    again = x.StageOpenRequested(70, "local", "sink", run.epoch, "s", incarnation(stage.session))
    rig.is_full = True
    rig.do(again)
    assert [refusal.code for refusal in rig.said_to(70, x.Refuse)] == ["disk-full"]
    rig.is_full = False
    (grant,) = rig.do(again)
    assert (grant.stage, grant.last_number) == (stage.stage, 3)


def test_the_stages_of_a_commit_that_the_journal_refuses_go_with_its_run() -> None:
    rig = Rig()
    rig.attach(1)
    run = open_run(rig)
    (stage,) = staged(rig, run.epoch, 3)
    rig.is_full = True
    rig.tell(x.CommitRequested(RUN, 1, "local", "sink", run.epoch, 7, (stage.stage,)))
    rig.is_full = False
    rig.do(x.RunOpenRequested(51, "local", "sink", incarnation(2), 0))
    assert [grant.epoch for grant in rig.said_to(51, x.GrantRun)] == [run.epoch + 1]
    assert rig.floor.tables.stages == {}


def test_who_opens_a_stage_again_by_another_session_is_told_so_by_the_first() -> None:
    rig = Rig()
    epoch = open_run(rig).epoch
    (stage,) = staged(rig, epoch, 2)
    write(rig, stage, 3, 2, is_carried_out=False)
    rig.do(x.StageOpenRequested(70, "local", "sink", epoch, "s", incarnation(60)))
    assert [(said.code, said.is_final) for said in rig.said_to(60, x.Refuse)] == [("attached-again", True)]
    assert [grant.last_number for grant in rig.said_to(70, x.GrantStage)] == [4]
    assert [taken.last_number for taken in rig.said_to(60, x.ConfirmTaken)] == [2]


def test_a_run_that_is_joined_again_when_the_journal_refuses_everything_stays_the_same_run() -> None:
    rig = Rig()
    run = open_run(rig)
    rig.is_full = True
    (refusal,) = rig.do(x.RunOpenRequested(51, "local", "sink", incarnation(1), 0))
    assert refusal.code == "disk-full"
    rig.is_full = False
    assert open_run(rig, session=52).epoch == run.epoch
    assert open_run(rig, who=2, session=53).epoch == run.epoch + 1
    assert isinstance(open_run(rig, session=54), x.Fence), "a retry that came late"


@pytest.mark.parametrize("kill", ["none", "replay", "checkpoint"])
def test_the_incarnation_of_a_fenced_run_never_takes_its_sink_over_again(kill: str) -> None:
    rig = Rig()
    open_run(rig)
    new = open_run(rig, who=2, session=51)
    if kill == "checkpoint":
        rig.checkpoint()
    if kill != "none":
        rig.restart()
    assert isinstance(open_run(rig, session=52), x.Fence), "a retry that came late"
    assert open_run(rig, who=2, session=53).epoch == new.epoch


def test_rows_that_are_still_on_their_way_keep_a_stage_from_being_committed() -> None:
    rig = Rig()
    run = open_run(rig)
    (stage,) = staged(rig, run.epoch, 1)
    write(rig, stage, 2, 1, is_carried_out=False)
    rig.tell(x.CommitRequested(RUN, 1, "local", "sink", run.epoch, 7, (stage.stage,)))
    assert [refusal.code for refusal in rig.said_to(RUN, x.Refuse)] == ["stage-not-durable"]
    rig.carry_out()
    assert commit(rig, run.epoch, 7, stage)[-1].streams == (("s", 1, 2),)


def test_a_commit_spans_streams_and_an_empty_stage_takes_no_place() -> None:
    rig = Rig()
    run = open_run(rig)
    one, two = open_stage(rig, 60, run.epoch, "one"), open_stage(rig, 61, run.epoch, "two")
    empty = open_stage(rig, 62, run.epoch, "one")
    write(rig, one, 1, 2)
    write(rig, two, 1, 3)
    assert commit(rig, run.epoch, 1, empty, one, two)[-1].streams == (("one", 1, 2), ("two", 1, 3))


def test_dropped_stages_are_gone_and_unknown_ones_are_left_alone() -> None:
    rig = Rig()
    run = open_run(rig)
    (stage,) = staged(rig, run.epoch, 2)
    (said,) = rig.do(x.StagesDropRequested(RUN, 3, "local", "sink", run.epoch, (stage.stage, 999)))
    assert said.result == {"dropped": [stage.stage]}
    rig.restart()
    assert rig.floor.tables.stages == {}


def test_historical_flow_reads_committed_rows_from_the_journal_under_a_tiny_tail() -> None:
    rig = Rig(StreamsLimits(tail_size_max=1))
    grant = rig.attach(1)
    run = open_run(rig)
    number = 0
    for commit_id in range(8):
        rig.publish(grant, commit_id + 1)
        number += 1 + 2 * commit_id
        commit(rig, run.epoch, commit_id, *staged(rig, run.epoch, commit_id, commit_id, session=60 + 10 * commit_id))
    rig.subscribe(5)
    assert rig.pushed(5) == list(range(1, number + 1))


def committed_by_a_damaged_run() -> tuple[Rig, x.GrantRun]:
    """Commit 7 of a run whose opening was damaged since."""
    rig = Rig()
    rig.attach(1)
    (name,) = [name for name in rig.disk.files if name.endswith(".segment")]
    before = bytes(rig.disk.files[name])
    run = open_run(rig)
    written = [at for at, byte in enumerate(rig.disk.files[name]) if byte != before[at]]
    assert isinstance(run, x.GrantRun)
    assert isinstance(commit(rig, run.epoch, 7, *staged(rig, run.epoch, 3))[-1], x.ConfirmCommitted)
    rig.disk.files[name][written[len(written) // 2]] ^= 1
    rig.restart()
    return rig, run


def test_a_commit_whose_run_was_damaged_is_known_and_its_run_goes_on_also_behind_a_full_disk() -> None:
    rig, run = committed_by_a_damaged_run()
    known = rig.floor.tables.runs["sink"]
    assert (known.epoch, known.commit_id, known.incarnation) == (run.epoch, 7, b"")
    rig.is_full = True
    assert rig.do(x.RunOpenRequested(RUN, "local", "sink", incarnation(2)))[-1].code == "disk-full"
    rig.is_full = False
    again = open_run(rig, 2)
    assert (again.epoch > run.epoch, again.commit_id) == (True, 7)


def test_a_run_that_was_damaged_is_joined_by_whoever_has_its_epoch() -> None:
    rig, run = committed_by_a_damaged_run()
    again = open_run(rig, 1, run.epoch)
    assert (again.epoch, again.commit_id) == (run.epoch, 7)


def test_a_stage_is_opened_without_a_look_at_those_that_are_open() -> None:
    rig = Rig()
    epoch, line_counts = open_run(rig).epoch, []

    def count(frame: FrameType, event: str, _: object) -> Any:
        line_counts[-1] += event == "line" and "/veredus/streams/" in frame.f_code.co_filename
        return count

    for session in range(100, 400):
        line_counts.append(0)
        sys.settrace(count)
        try:
            open_stage(rig, session, epoch)
        finally:
            sys.settrace(None)
    assert line_counts[-1] < line_counts[10] + 50


def test_a_run_that_was_opened_after_the_copy_joins_no_run_of_a_journal_that_was_put_back() -> None:
    rig = Rig()
    rig.attach(1)
    older = open_run(rig)
    rig.checkpoint()
    copy = deepcopy(rig.disk)
    lost = open_run(rig, who=2, session=51)
    assert lost.epoch == older.epoch + 1
    rig.disk = copy
    rig.time_ns += 3_000_000_000
    rig.restart()
    (refused,) = rig.do(x.RunOpenRequested(RUN, "local", "sink", incarnation(2), lost.epoch))
    assert (refused.code, "put back" in refused.message) == ("unknown-run", True)
    newer = open_run(rig, who=3, session=52)
    (fenced,) = rig.do(x.RunOpenRequested(RUN, "local", "sink", incarnation(2), lost.epoch))
    assert isinstance(fenced, x.Fence)
    assert newer.epoch > lost.epoch


def test_who_joins_a_run_while_its_sink_is_removed_is_answered() -> None:
    rig = Rig()
    run = open_run(rig)
    rig.tell(x.SourceAttachRequested(60, "local", "other", "me", incarnation(3)))
    rig.tell(x.RunOpenRequested(51, "local", "sink", incarnation(1), run.epoch))
    rig.tell(x.AdminRequested(9, 1, "local", "sink.remove", {"sink": "sink"}))
    rig.carry_out()
    (refused,) = rig.said_to(51, x.Refuse)
    assert (refused.code, refused.is_final) == ("unknown-run", True)
    assert not rig.said_to(51, x.GrantRun)


def test_a_run_of_a_sink_that_was_removed_joins_no_run_of_the_sink_that_was_made_again() -> None:
    rig = Rig()
    rig.attach(1)
    older = open_run(rig)
    rig.do(x.AdminRequested(9, 1, "local", "sink.remove", {"sink": "sink"}))
    rig.time_ns += 1_000_000_000
    newer = open_run(rig, who=2, session=51)
    assert newer.epoch > older.epoch
    assert isinstance(open_run(rig, epoch=older.epoch), x.Fence)


def test_a_stage_that_was_opened_after_the_copy_is_not_another_one_of_a_journal_that_was_put_back() -> None:
    rig = Rig()
    rig.attach(1)
    run = open_run(rig)
    rig.checkpoint()
    copy = deepcopy(rig.disk)
    (lost,) = staged(rig, run.epoch, 1)
    rig.disk = copy
    rig.time_ns += 3_000_000_000
    rig.restart()
    rig.follow(rig.floor.raise_terms(rig.now))
    rig.restart()
    open_run(rig, epoch=run.epoch)
    (other,) = staged(rig, run.epoch, 2)
    assert other.stage > lost.stage
    (refused,) = commit(rig, run.epoch, 1, lost)
    assert refused.code == "unknown-stage"


def test_a_stage_with_fewer_rows_than_its_sink_has_receipts_for_is_not_committed() -> None:
    rig = Rig()
    run = open_run(rig)
    first, second = staged(rig, run.epoch, 3, 2)

    def asked(*counts: int) -> object:
        stages = (first.stage, second.stage)
        return rig.do(x.CommitRequested(RUN, 1, "local", "sink", run.epoch, 7, stages, counts=counts))[-1]

    for counts in ((3, 3), (4, 0), (1 << 62, 2)):
        refused = asked(*counts)
        assert isinstance(refused, x.Refuse)
        assert (refused.code, refused.is_final) == ("lost", False)
    refused = asked(3)
    assert isinstance(refused, x.Refuse)
    assert refused.code == "bad-contents"
    done = asked(0, 2)
    assert isinstance(done, x.ConfirmCommitted)
    assert done.streams == (("s", 1, 5),)


def test_a_stage_of_a_run_that_is_newer_than_the_copy_is_refused_as_unknown_and_not_fenced() -> None:
    rig = Rig()
    run = open_run(rig)
    fact = x.StageOpenRequested(RUN + 1, "local", "sink", run.epoch + 1, "s", incarnation(9))
    (refused,) = rig.do(fact)
    assert isinstance(refused, x.Refuse)
    assert refused.code == "unknown-run"


def test_no_commit_goes_on_behind_one_that_its_sink_knows_and_the_node_has_not() -> None:
    rig = Rig()
    run = open_run(rig)

    def asked(commit_id: int, after: int, *stages: x.GrantStage) -> object:
        numbers = tuple(stage.stage for stage in stages)
        return rig.do(x.CommitRequested(RUN, 1, "local", "sink", run.epoch, commit_id, numbers, after=after))[-1]

    assert isinstance(asked(3, -1), x.ConfirmCommitted)
    for commit_id, after in ((6, 5), (5, 5), (3, 5), (2, 5)):
        refused = asked(commit_id, after)
        assert isinstance(refused, x.Refuse)
        assert (refused.code, refused.is_final) == ("lost", False)
        assert (refused.details["acknowledged"], refused.details["commit_id"]) == (5, 3)
    assert isinstance(asked(3, 3), x.ConfirmCommitted)
    assert isinstance(asked(6, 3, *staged(rig, run.epoch, 1)), x.ConfirmCommitted)


def test_numbers_of_stages_are_given_once_though_copies_are_put_back() -> None:
    rig = Rig(wall_ns=1_700_000_000_000_000_000)
    run = open_run(rig)
    rig.checkpoint()
    copy, numbers = deepcopy(rig.disk), set()
    for _ in range(3):
        rig.time_ns += 1_000_000
        rig.disk = deepcopy(copy)
        rig.restart()
        open_run(rig, epoch=run.epoch)
        numbers |= {stage.stage for stage in staged(rig, run.epoch, 1, 1)}
    assert len(numbers) == 6
