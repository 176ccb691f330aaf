"""Commits that are over: none of their stages is open any more, whoever is late; no other commit is touched by that."""

from typing import Any

import pytest

from tests.streams.rig import Rig, incarnation
from tests.streams.sinking import RUN, commit, open_run, write
from veredus.streams import exchange as x


def opened(rig: Rig, session: int, epoch: int, commit_id: int = -1, key: int = 0) -> Any:
    """What is said to who opens a stage for a commit."""
    said = rig.do(x.StageOpenRequested(session, "local", "sink", epoch, "s", incarnation(key or session), commit_id))
    (answer,) = [one for one in said if isinstance(one, x.GrantStage | x.Refuse | x.Fence)]
    return answer


def give_up(rig: Rig, epoch: int, commit_id: int, *stages: int) -> Any:
    (answer,) = rig.do(x.StagesDropRequested(RUN, 9, "local", "sink", epoch, stages, commit_id))[-1:]
    return answer


def open_stages(rig: Rig) -> list[int]:
    return sorted(stage.stage for stage in rig.floor.tables.stages.values())


def check_closed(refused: Any, why: str) -> None:
    assert (type(refused), refused.code, refused.is_final) == (x.Refuse, "stage-closed", True)
    assert f"is {why}: nothing is staged for it" in refused.message


def test_a_commit_that_is_given_up_goes_with_all_that_is_staged_for_it_and_those_before_it() -> None:
    rig = Rig()
    run = open_run(rig)
    other = opened(rig, 60, run.epoch)
    known, unknown, before, after = (
        opened(rig, 61 + at, run.epoch, commit_id) for at, commit_id in enumerate((7, 7, 6, 8))
    )
    said = give_up(rig, run.epoch, 7, known.stage)
    assert sorted(said.result["dropped"]) == sorted([known.stage, unknown.stage, before.stage])
    assert open_stages(rig) == [other.stage, after.stage]
    for commit_id in (6, 7):
        check_closed(opened(rig, 70, run.epoch, commit_id), "given up")
    again = opened(rig, 71, run.epoch, 7, key=62)
    check_closed(again, "given up")
    assert open_stages(rig) == [other.stage, after.stage]


def test_a_later_commit_of_the_run_and_the_same_one_of_the_next_run_are_not_given_up() -> None:
    rig = Rig()
    run = open_run(rig)
    give_up(rig, run.epoch, 7)
    later = opened(rig, 60, run.epoch, 8)
    write(rig, later, 1, 2)
    assert commit(rig, run.epoch, 8, later)[-1].streams == (("s", 1, 2),)
    give_up(rig, run.epoch, 9)
    rerun = open_run(rig, who=2)
    stage = opened(rig, 61, rerun.epoch, 9)
    write(rig, stage, 1, 3)
    assert commit(rig, rerun.epoch, 9, stage)[-1].streams == (("s", 3, 3),)


def test_a_commit_that_is_done_or_on_its_way_is_answered_again_though_it_is_given_up() -> None:
    rig = Rig()
    run = open_run(rig)
    stage = opened(rig, 60, run.epoch, 7)
    write(rig, stage, 1, 2)
    rig.tell(x.CommitRequested(RUN, 1, "local", "sink", run.epoch, 7, (stage.stage,)))
    rig.tell(x.StagesDropRequested(RUN, 2, "local", "sink", run.epoch, (stage.stage,), 7))
    rig.carry_out()
    assert [confirmed.streams for confirmed in rig.said_to(RUN, x.ConfirmCommitted)] == [(("s", 1, 2),)]
    assert give_up(rig, run.epoch, 7, stage.stage).result == {"dropped": []}
    (said,) = commit(rig, run.epoch, 7, stage, request=3)[-1:]
    assert (said.is_duplicate, said.streams) == (True, (("s", 1, 2),))


@pytest.mark.parametrize("end", ["live", "replayed", "from a checkpoint"])
def test_a_commit_that_is_done_leaves_no_stage_that_was_for_it(end: str) -> None:
    rig = Rig()
    run = open_run(rig)
    other = opened(rig, 59, run.epoch)
    stage, twin, before, after = (
        opened(rig, 60 + at, run.epoch, commit_id) for at, commit_id in enumerate((7, 7, 3, 8))
    )
    write(rig, stage, 1, 2)
    write(rig, twin, 1, 2)
    if end == "from a checkpoint":
        rig.checkpoint()
        rig.restart()
        open_run(rig, epoch=run.epoch)
    commit(rig, run.epoch, 7, stage)
    assert open_stages(rig) == [other.stage, after.stage]
    if end == "replayed":
        rig.restart()
        assert open_stages(rig) == [other.stage, after.stage]
        open_run(rig, epoch=run.epoch)
    for commit_id in (3, 7):
        check_closed(opened(rig, 70, run.epoch, commit_id), "done")
    write_to = opened(rig, 71, run.epoch, 8)
    write(rig, write_to, 1, 1)
    assert commit(rig, run.epoch, 8, write_to, request=2)[-1].streams == (("s", 3, 1),)
    assert open_stages(rig) == [other.stage]
    assert before.stage not in open_stages(rig)


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_stage_that_is_opened_while_its_commit_is_on_its_way_goes_with_it(is_killed: bool) -> None:
    rig = Rig()
    run = open_run(rig)
    stage = opened(rig, 60, run.epoch, 7)
    write(rig, stage, 1, 2)
    rig.tell(
        x.CommitRequested(RUN, 1, "local", "sink", run.epoch, 7, (stage.stage,)),
        x.StageOpenRequested(61, "local", "sink", run.epoch, "s", incarnation(61), 7),
    )
    rig.carry_out()
    (refused,) = rig.said_to(61, x.Refuse)
    assert refused.code == "stage-closed"
    if is_killed:
        rig.restart()
    assert open_stages(rig) == []


@pytest.mark.parametrize(("was", "now"), [(-1, 4), (5, -1), (5, 4), (5, 6)])
def test_a_stage_is_not_opened_again_by_its_key_for_another_commit(was: int, now: int) -> None:
    rig = Rig()
    run = open_run(rig)
    stage = opened(rig, 60, run.epoch, was)
    said = opened(rig, 61, run.epoch, now, key=60)
    assert (said.code, said.is_final, said.details) == ("stage-key-used", True, {"commit_id": was})
    assert f"stage {stage.stage} has this key and is for " in said.message
    write(rig, stage, 1, 2)
    assert commit(rig, run.epoch, 5, stage)[-1].streams == (("s", 1, 2),), "who had the stage has it still"


def test_a_stage_for_a_later_commit_is_not_opened_for_one_that_is_done() -> None:
    rig = Rig()
    run = open_run(rig)
    done, later = opened(rig, 60, run.epoch, 3), opened(rig, 61, run.epoch, 4)
    commit(rig, run.epoch, 3, done)
    check_closed(opened(rig, 62, run.epoch, 3, key=61), "done")
    assert open_stages(rig) == [later.stage]


def test_a_commit_that_was_given_up_on_its_way_leaves_no_stage_if_the_journal_refuses_it() -> None:
    rig = Rig()
    run = open_run(rig)
    given_up, later = opened(rig, 60, run.epoch, 7), opened(rig, 61, run.epoch, 8)
    rig.is_full = True
    rig.tell(
        x.CommitRequested(RUN, 1, "local", "sink", run.epoch, 7, (given_up.stage, later.stage)),
        x.StagesDropRequested(RUN, 2, "local", "sink", run.epoch, (), 7),
    )
    rig.carry_out()
    assert open_stages(rig) == [later.stage]


def test_a_commit_is_taken_under_an_id_that_was_given_up_of_what_was_not() -> None:
    rig = Rig()
    run = open_run(rig)
    give_up(rig, run.epoch, 7)
    stage = opened(rig, 60, run.epoch)
    write(rig, stage, 1, 2)
    assert commit(rig, run.epoch, 7, stage)[-1].streams == (("s", 1, 2),)
