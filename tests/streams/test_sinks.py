"""Who counts his own sinks, or asks who is there for one, looks at no other sink and at no stage."""

from __future__ import annotations

from collections.abc import ValuesView
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.streams.rig import Rig, incarnation
from veredus.streams import exchange as x
from veredus.streams.sinks import Sinks
from veredus.streams.tables import Run, StreamsLimits

OWNERS = ("ada", "bob", "")


@given(st.lists(st.tuples(st.sampled_from(["put", "own", "take"]), st.integers(0, 4), st.sampled_from(OWNERS))))
def test_the_sinks_of_an_owner_are_those_of_the_table_that_are_its_own(steps: list[tuple[str, int, str]]) -> None:
    sinks = Sinks()
    for what, number, owner in steps:
        sink = f"sink-{number}"
        match what:
            case "put":
                sinks[sink] = Run(sink, owner=owner)
            case "own":
                run = sinks.get(sink) or Run(sink)
                run.owner = owner
                sinks.note_owner(run)
            case _:
                sinks.take(sink)
        sinks.check()
        for one in OWNERS:
            assert {run.sink for run in sinks.of(one)} == {run.sink for run in sinks.values() if run.owner == one}


def open_runs(rig: Rig, owner: str, count: int, first: int) -> None:
    for number in range(first, first + count):
        rig.do(x.RunOpenRequested(number, owner, f"{owner}-{number}", incarnation(number)))


def test_who_commits_again_once_something_was_removed_is_counted_without_a_look_at_the_sinks_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig(StreamsLimits())
    open_runs(rig, "bob", 50, 1)
    open_runs(rig, "ada", 2, 100)
    named_count, looked_at = Run.named_count, list[str]()

    def counted(run: Run) -> int:
        looked_at.append(run.sink)
        return named_count.fget(run)  # type: ignore[attr-defined, no-any-return]

    monkeypatch.setattr(Run, "named_count", property(counted))
    for commit_id in (1, 2):
        looked_at.clear()
        rig.floor.tables.removed_count += 1
        run = rig.floor.tables.runs["ada-100"]
        rig.do(x.CommitRequested(100, commit_id, "ada", run.sink, run.epoch, commit_id, ()))
        assert {sink for sink in looked_at if sink.startswith("bob")} == set()


class Counted(dict[int, Any]):
    """The stages of a run; how often all of them were looked at."""

    count = 0

    def values(self) -> ValuesView[Any]:  # type: ignore[override]
        self.count += 1
        return super().values()


def test_a_list_of_stages_says_who_is_there_without_a_look_at_all_stages_of_the_sink() -> None:
    rig = Rig(StreamsLimits())
    rig.do(x.RunOpenRequested(1, "local", "sink", incarnation(1)))
    run = rig.floor.tables.runs["sink"]
    for number in range(20):
        rig.do(x.StageOpenRequested(10 + number, "local", "sink", run.epoch, f"s{number}", incarnation(2)))
    assert run.written == set(run.stages)
    rig.do(x.SessionClosed(1))
    stages = run.stages = Counted(run.stages)

    def is_attached() -> set[bool]:
        (answer,) = rig.do(x.AdminRequested(0, 1, "local", "stage.list", {}))
        assert isinstance(answer, x.AnswerAdmin)
        rows: Any = answer.result
        assert len(rows) == 20
        return {row["is_attached"] for row in rows}

    assert is_attached() == {True}
    for number in range(19):
        rig.do(x.SessionClosed(10 + number))
    assert is_attached() == {True}
    rig.do(x.SessionClosed(29))
    assert is_attached() == {False}
    assert stages.count == 0
