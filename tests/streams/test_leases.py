"""Stages and nameless sinks go when nobody has been there for them for a while, or when somebody says so."""

from typing import Any

import pytest

from tests.streams.rig import Rig, incarnation
from tests.streams.sinking import RUN, commit, open_run, staged
from veredus.kernel.events import DeadlineReached
from veredus.streams import exchange as x
from veredus.streams.tables import StreamsLimits

LEASE_NS = 10_000_000_000


@pytest.fixture
def rig() -> Rig:
    return Rig(limits=StreamsLimits(stage_lease_ns=LEASE_NS))


def wait(rig: Rig, duration_ns: int = LEASE_NS) -> None:
    """Let time pass, and the floor look whenever it wants to."""
    until = rig.time_ns + duration_ns
    while (at := rig.floor.deadline()) is not None and at <= until:
        rig.time_ns = max(rig.time_ns, at)
        rig.tell(DeadlineReached())
        rig.carry_out()
        after = rig.floor.deadline()
        assert after is None or after > rig.time_ns
    rig.time_ns = until


def leave(rig: Rig, *sessions: int) -> None:
    for session in sessions:
        rig.do(x.SessionClosed(session))


def ask(rig: Rig, verb: str, **arguments: object) -> Any:
    (answer,) = rig.do(x.AdminRequested(90, 1, "local", verb, arguments))
    return answer


def test_stages_stay_while_a_channel_of_their_run_is_open_and_go_a_lease_after_the_last(rig: Rig) -> None:
    run = open_run(rig)
    staged(rig, run.epoch, 3, 2)
    leave(rig, 60, 61)
    wait(rig, 5 * LEASE_NS)
    assert len(rig.floor.tables.stages) == 2
    open_run(rig, epoch=run.epoch, session=RUN + 1)
    leave(rig, RUN)
    wait(rig, 5 * LEASE_NS)
    assert len(rig.floor.tables.stages) == 2
    leave(rig, RUN + 1)
    wait(rig, LEASE_NS - 1)
    assert len(rig.floor.tables.stages) == 2
    wait(rig, 1)
    assert rig.floor.tables.stages == {}
    assert rig.floor.tables.runs["sink"].epoch == run.epoch, "a sink that has a name stays"
    rig.restart()
    assert rig.floor.tables.stages == {}, "what has gone does not come back"


def test_a_run_that_is_joined_in_time_keeps_its_stages_and_commits_them(rig: Rig) -> None:
    run = open_run(rig)
    stages = staged(rig, run.epoch, 3)
    leave(rig, RUN, 60)
    wait(rig, LEASE_NS - 1)
    open_run(rig, epoch=run.epoch)
    wait(rig, 5 * LEASE_NS)
    assert commit(rig, run.epoch, 7, *stages)[-1].streams == (("s", 1, 3),)


def test_a_stage_that_is_still_written_stays_though_its_run_was_left(rig: Rig) -> None:
    run = open_run(rig)
    staged(rig, run.epoch, 3)
    leave(rig, RUN)
    wait(rig, 5 * LEASE_NS)
    assert len(rig.floor.tables.stages) == 1
    leave(rig, 60)
    wait(rig, 2 * LEASE_NS)
    assert rig.floor.tables.stages == {}


@pytest.mark.parametrize("is_checkpointed", [False, True])
def test_a_lease_begins_anew_with_the_process_that_finds_the_stages(rig: Rig, is_checkpointed: bool) -> None:
    run = open_run(rig)
    staged(rig, run.epoch, 3)
    if is_checkpointed:
        rig.checkpoint()
        rig.carry_out()
    rig.time_ns += 5 * LEASE_NS
    rig.restart()
    wait(rig, LEASE_NS - 1)
    assert len(rig.floor.tables.stages) == 1
    wait(rig, 1)
    assert rig.floor.tables.stages == {}


def ephemeral(rig: Rig, name: str = "nameless") -> x.GrantRun:
    (granted,) = rig.do(x.RunOpenRequested(RUN, "local", name, incarnation(1), is_ephemeral=True))
    assert isinstance(granted, x.GrantRun)
    return granted


@pytest.mark.parametrize("kill", ["no", "kill", "checkpoint"])
def test_a_nameless_sink_is_forgotten_a_lease_after_its_last_channel(rig: Rig, kill: str) -> None:
    ephemeral(rig)
    leave(rig, RUN)
    if kill == "checkpoint":
        rig.checkpoint()
        rig.carry_out()
    if kill != "no":
        rig.restart()
    wait(rig, LEASE_NS - 1)
    assert "nameless" in rig.floor.tables.runs
    wait(rig, 1)
    assert rig.floor.tables.runs == {}
    rig.restart()
    assert rig.floor.tables.runs == {}


def test_killed_writes_exhaust_the_stages_for_a_lease_and_no_longer() -> None:
    rig = Rig(limits=StreamsLimits(stage_lease_ns=LEASE_NS, stages_max=4))
    staged(rig, open_run(rig).epoch, 1, 1, 1, 1)
    leave(rig, RUN, 60, 61, 62, 63)
    (run,) = rig.do(x.RunOpenRequested(70, "local", "other", incarnation(2)))
    opening = x.StageOpenRequested(71, "local", "other", run.epoch, "s", incarnation(3))
    assert rig.do(opening)[-1].code == "too-many-stages"
    wait(rig)
    assert isinstance(rig.do(opening)[-1], x.GrantStage)


def test_open_stages_are_listed_and_dropped_by_their_sink(rig: Rig) -> None:
    run = open_run(rig)
    first, second = staged(rig, run.epoch, 3, 2)
    leave(rig, 60)
    shown = ask(rig, "stage.list").result
    assert [(s["stage"], s["sink"], s["stream"], s["count"]) for s in shown] == [
        (first.stage, "sink", "s", 3),
        (second.stage, "sink", "s", 2),
    ]
    assert [s["stage"] for s in ask(rig, "stage.list", after=first.stage).result] == [second.stage]
    assert ask(rig, "stage.drop", sink="sink").result == {"dropped": [first.stage, second.stage]}
    assert ask(rig, "stage.drop", sink="sink").result == {"dropped": []}
    rig.restart()
    assert ask(rig, "stage.list").result == []
