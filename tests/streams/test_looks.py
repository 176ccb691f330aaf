"""What is asked again and again looks at what it is about, however much else there is."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from tests.streams.rig import Rig, incarnation
from tests.streams.sinking import RUN, commit, open_run, staged
from veredus.journal.exchange import StreamDropped
from veredus.streams import exchange as x
from veredus.streams.tables import StreamsLimits

FEW, MANY = 5, 205
MOST = 20
"""Steps that more of the rest may take: the tables hold it somewhere."""


def steps_of(act: Callable[[], object]) -> int:
    count = 0

    def look(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        count += "/veredus/" in frame.f_code.co_filename
        return look

    sys.settrace(look)
    try:
        act()
    finally:
        sys.settrace(None)
    return count


def opened(rig: Rig, session: int, epoch: int, commit_id: int = -1, sink: str = "sink") -> Any:
    said = rig.do(x.StageOpenRequested(session, "local", sink, epoch, "s", incarnation(session), commit_id))
    return next(one for one in said if isinstance(one, x.GrantStage | x.Refuse))


def dropped(rig: Rig, epoch: int, commit_id: int, *stages: int) -> Any:
    return rig.do(x.StagesDropRequested(RUN, 9, "local", "sink", epoch, stages, commit_id))[-1]


def left_sinks(rig: Rig, count: int) -> None:
    """Nameless sinks without stages that nobody is there for."""
    for session in range(1000, 1000 + count):
        rig.do(x.RunOpenRequested(session, "local", f"nameless-{session}", incarnation(session), is_ephemeral=True))
        rig.do(x.SessionClosed(session))


@pytest.mark.parametrize("limit", ["stages_max", "stages_per_principal_max"])
def test_a_stage_without_room_is_refused_without_a_look_at_sinks_that_have_none(limit: str) -> None:
    def refused(count: int) -> int:
        rig = Rig(limits=StreamsLimits(**{limit: 3}))
        left_sinks(rig, count)
        epoch = open_run(rig).epoch
        assert [type(opened(rig, 60 + at, epoch)) for at in range(4)] == [x.GrantStage] * 3 + [x.Refuse]
        return steps_of(lambda: opened(rig, 70, epoch))

    assert refused(MANY) < refused(FEW) + MOST


def test_a_stage_in_place_of_one_that_was_dropped_is_opened_without_a_look_at_the_other_sinks() -> None:
    def replaced(count: int) -> int:
        rig = Rig(limits=StreamsLimits(stages_per_principal_max=3))
        left_sinks(rig, count)
        epoch = open_run(rig).epoch
        stages = [opened(rig, 60 + at, epoch) for at in range(3)]
        assert isinstance(opened(rig, 70, epoch), x.Refuse)

        def replace() -> None:
            dropped(rig, epoch, -1, stages[0].stage)
            assert isinstance(opened(rig, 71, epoch), x.GrantStage)

        steps = steps_of(replace)
        assert isinstance(opened(rig, 72, epoch), x.Refuse)
        return steps

    assert replaced(MANY) < replaced(FEW) + MOST


def test_sinks_that_are_in_use_again_are_passed_over_once() -> None:
    rig = Rig(limits=StreamsLimits(stages_per_principal_max=MANY + 1))
    runs = []
    for session in range(1000, 1000 + MANY):
        name = f"nameless-{session}"
        (run,) = rig.do(x.RunOpenRequested(RUN, "local", name, incarnation(session), is_ephemeral=True))
        opened(rig, 60, run.epoch, sink=name)
        rig.do(x.SessionClosed(RUN))
        rig.do(x.SessionClosed(60))
        runs.append((session, name, run.epoch))
    for session, name, epoch in runs:
        rig.do(x.RunOpenRequested(session, "local", name, incarnation(session), epoch))
    epoch = open_run(rig).epoch
    opened(rig, 60, epoch)
    first, second = (steps_of(lambda: opened(rig, 61, epoch)) for _ in range(2))
    assert second < first - MANY
    rig.do(x.SessionClosed(runs[3][0]))
    assert isinstance(opened(rig, 62, epoch), x.GrantStage), "the one that was left again makes room"
    assert runs[3][1] not in rig.floor.tables.runs


def test_a_sink_makes_room_again_once_the_last_of_its_stages_is_left() -> None:
    rig = Rig(limits=StreamsLimits(stages_per_principal_max=2))
    (run,) = rig.do(x.RunOpenRequested(RUN, "local", "nameless", incarnation(1), is_ephemeral=True))
    opened(rig, 60, run.epoch, sink="nameless")
    rig.do(x.SessionClosed(RUN))
    epoch = open_run(rig).epoch
    assert [type(opened(rig, 61 + at, epoch)) for at in range(2)] == [x.GrantStage, x.Refuse]
    rig.do(x.SessionClosed(60))
    assert isinstance(opened(rig, 62, epoch), x.GrantStage)
    assert list(rig.floor.tables.runs) == ["sink"]


@pytest.mark.parametrize("given_up", [-1, 0, 1], ids=["none", "the same", "a later one each time"])
def test_stages_are_dropped_without_a_look_at_the_others(given_up: int) -> None:
    def steps(count: int) -> int:
        rig = Rig()
        epoch = open_run(rig).epoch
        for at in range(count):
            opened(rig, 100 + at, epoch, -1 if at % 2 else 10 + at)
        dropped(rig, epoch, min(given_up, 0))
        found = steps_of(lambda: dropped(rig, epoch, given_up))
        assert len(rig.floor.tables.stages) == count
        return found

    assert steps(MANY) < steps(FEW) + MOST


def test_a_commit_shows_its_stages_without_a_look_at_the_others() -> None:
    def steps(count: int) -> int:
        rig = Rig()
        epoch = open_run(rig).epoch
        for at in range(count):
            opened(rig, 100 + at, epoch, -1 if at % 2 else 10 + at)
        stage = opened(rig, 60, epoch, 1)
        found = steps_of(lambda: commit(rig, epoch, 1, stage))
        assert len(rig.floor.tables.stages) == count
        return found

    assert steps(MANY) < steps(FEW) + MOST


def test_the_journal_lets_go_of_a_stream_without_a_look_at_what_commits_have_put_into_others() -> None:
    def deleted(count: int) -> int:
        rig = Rig()
        epoch = open_run(rig).epoch
        commit(rig, epoch, 1, *staged(rig, epoch, *[1] * count))
        rig.checkpoint()
        rig.restart()
        other = rig.do(x.AdminRequested(4, 1, "local", "stream.create", {"name": "other"}))[-1].result["stream_id"]
        return steps_of(lambda: rig.log.handle(StreamDropped(other), rig.now))

    assert deleted(MANY) < deleted(FEW) + MOST
