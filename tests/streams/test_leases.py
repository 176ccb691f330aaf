"""Stages and nameless sinks go when nobody has been there for them for a while, or when somebody says so."""

from typing import Any

import pytest

from tests.streams.rig import Rig, incarnation
from tests.streams.sinking import RUN, commit, open_run, staged
from veredus.kernel.events import DeadlineReached
from veredus.streams import exchange as x
from veredus.streams.leases import LOOKED_AT_MAX
from veredus.streams.runs import ENDED_MAX
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


@pytest.mark.parametrize("is_there_already", [False, True])
def test_a_stage_whose_session_ends_before_it_is_granted_is_nobodys_and_goes(rig: Rig, is_there_already: bool) -> None:
    run = open_run(rig)
    asked = x.StageOpenRequested(60, "local", "sink", run.epoch, "s", incarnation(60))
    if is_there_already:
        rig.do(asked)
        leave(rig, 60)
    rig.tell(x.StageOpenRequested(61, "local", "sink", run.epoch, "s", incarnation(61)))
    rig.tell(asked)
    rig.tell(x.SessionClosed(60))
    rig.carry_out()
    leave(rig, 61, RUN)
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
    page = ask(rig, "stage.list", limit=1).result
    assert [s["stage"] for s in page["rows"]] == [first.stage]
    page = ask(rig, "stage.list", limit=1, after=page["next"]).result
    assert ([s["stage"] for s in page["rows"]], page["next"]) == ([second.stage], None)
    assert ask(rig, "stage.drop", sink="sink").result == {"dropped": [first.stage, second.stage]}
    assert ask(rig, "stage.drop", sink="sink").result == {"dropped": []}
    rig.restart()
    assert ask(rig, "stage.list").result == []


def nameless(rig: Rig, number: int, who: str = "local") -> int:
    """A killed write: a run of a nameless sink with one stage, whose channels are gone; the stage's number."""
    name = f"nameless-{number}"
    (run,) = rig.do(x.RunOpenRequested(RUN, who, name, incarnation(number + 1), is_ephemeral=True))
    said = rig.do(x.StageOpenRequested(RUN + 1, who, name, run.epoch, "s", incarnation(number + 1)))
    (grant,) = [one for one in said if isinstance(one, x.GrantStage | x.Refuse)]
    leave(rig, RUN, RUN + 1)
    return grant.stage if isinstance(grant, x.GrantStage) else 0


def there(rig: Rig) -> list[str]:
    return [name.removeprefix("nameless-") for name in rig.floor.tables.runs]


def test_where_stages_have_no_room_the_nameless_sink_that_was_left_first_goes() -> None:
    rig = Rig(limits=StreamsLimits(stage_lease_ns=LEASE_NS, stages_max=3))
    assert all(nameless(rig, number) for number in range(5))
    assert there(rig) == ["2", "3", "4"]
    rig.restart()
    wait(rig, 1)
    assert nameless(rig, 5)
    assert there(rig) == ["3", "4", "5"]
    wait(rig, 2 * LEASE_NS)
    assert (rig.floor.tables.runs, rig.floor.tables.stages) == ({}, {})


def test_where_sinks_have_no_room_the_nameless_sink_that_was_left_first_goes() -> None:
    rig = Rig(limits=StreamsLimits(stage_lease_ns=LEASE_NS, sinks_max=3))
    assert all(nameless(rig, number) for number in range(5))
    assert there(rig) == ["2", "3", "4"]


def test_what_has_a_name_or_somebody_there_makes_room_for_nobody() -> None:
    rig = Rig(limits=StreamsLimits(stage_lease_ns=LEASE_NS, stages_max=3))
    staged(rig, open_run(rig).epoch, 1)
    leave(rig, RUN, 60)
    assert nameless(rig, 0)
    assert nameless(rig, 1)
    (joined,) = rig.do(x.RunOpenRequested(70, "local", "nameless-0", incarnation(1)))
    assert isinstance(joined, x.GrantRun)
    written = x.StageOpenRequested(71, "local", "nameless-1", 1, "s", incarnation(2))
    assert isinstance(rig.do(written)[-1], x.GrantStage)
    assert not nameless(rig, 2), "one has a name, one is joined, one is written"
    leave(rig, 71)
    assert nameless(rig, 3)
    assert there(rig) == ["sink", "0", "2", "3"]


def test_one_principal_has_its_share_of_stages_and_makes_room_among_its_own() -> None:
    rig = Rig(limits=StreamsLimits(stage_lease_ns=LEASE_NS, stages_per_principal_max=2))
    assert all(nameless(rig, number, "ann") for number in range(2))
    assert all(nameless(rig, number, "bob") for number in range(2, 5))
    assert there(rig) == ["0", "1", "3", "4"]
    (run,) = rig.do(x.RunOpenRequested(70, "eve", "named", incarnation(9)))
    said = [
        rig.do(x.StageOpenRequested(71 + at, "eve", "named", run.epoch, "s", incarnation(20 + at)))[-1]
        for at in range(3)
    ]
    assert [type(one) for one in said] == [x.GrantStage, x.GrantStage, x.Refuse]
    assert (said[-1].code, said[-1].details) == ("too-many-stages", {"stages_max": 2})


def test_many_sinks_go_some_at_a_time_and_no_time_passes_between() -> None:
    rig = Rig(limits=StreamsLimits(stage_lease_ns=LEASE_NS))
    for number in range(LOOKED_AT_MAX + 10):
        nameless(rig, number)
    due_ns = rig.time_ns + LEASE_NS
    rig.time_ns += LEASE_NS
    rig.tell(DeadlineReached())
    assert (len(there(rig)), rig.floor.deadline()) == (10, due_ns)
    rig.tell(DeadlineReached())
    assert there(rig) == []


def test_a_nameless_sink_is_removed_with_what_it_has_open_by_who_may_write_to_it() -> None:
    permitted = {("publish", "nameless"), ("publish", "s"), ("create", "s"), ("publish", "sink")}
    rig = Rig(may=lambda principal, verb, resource: (verb, resource.name) in permitted)
    ephemeral(rig)
    said = rig.do(x.StageOpenRequested(60, "local", "nameless", 1, "s", incarnation(1)))
    assert isinstance(said[-1], x.GrantStage)
    open_run(rig, session=RUN + 1)
    assert ask(rig, "sink.remove", sink="sink").code == "forbidden"
    assert ask(rig, "sink.remove", sink="other").code == "forbidden"
    assert ask(rig, "sink.remove", sink="nameless").result == {"removed": True}
    assert (there(rig), rig.floor.tables.stages) == (["sink"], {})
    assert ask(rig, "sink.remove", sink="nameless").code == "forbidden", "who may not remove sinks learns of none"
    rig.restart()
    assert (there(rig), rig.floor.tables.stages) == (["sink"], {})


def test_a_sink_that_is_removed_and_made_again_at_once_is_there() -> None:
    rig = Rig()
    open_run(rig)
    rig.tell(x.AdminRequested(90, 1, "local", "sink.remove", {"sink": "sink"}))
    said = rig.do(x.RunOpenRequested(RUN + 1, "local", "sink", incarnation(2)))
    assert any(isinstance(one, x.GrantRun) and one.epoch == 1 for one in said)
    assert there(rig) == ["sink"]
    rig.restart()
    assert there(rig) == ["sink"]


def test_a_run_whose_sink_was_removed_is_not_begun_again_by_who_comes_late() -> None:
    rig = Rig()
    ephemeral(rig)
    leave(rig, RUN)
    assert ask(rig, "sink.remove", sink="nameless").result == {"removed": True}
    late = x.RunOpenRequested(RUN, "local", "nameless", incarnation(1), is_ephemeral=True)
    (said,) = rig.do(late)
    assert (type(said), said.code, said.is_final) == (x.Refuse, "unknown-run", True)
    assert rig.floor.tables.runs == {}
    for number in range(1, ENDED_MAX + 10):
        nameless(rig, number)
        ask(rig, "sink.remove", sink=f"nameless-{number}")
    assert isinstance(rig.do(late)[-1], x.GrantRun), "so many are remembered, and no more"


def test_a_run_whose_removal_the_journal_refuses_goes_on_also_for_who_comes_late() -> None:
    rig = Rig()
    ephemeral(rig)
    rig.is_full = True
    assert ask(rig, "sink.remove", sink="nameless").code == "disk-full"
    rig.is_full = False
    leave(rig, RUN)
    assert ephemeral(rig)


def test_whoever_joins_a_sink_that_has_gone_is_not_told_of_a_newer_run(rig: Rig) -> None:
    epoch = ephemeral(rig).epoch
    leave(rig, RUN)
    wait(rig)
    (said,) = rig.do(x.RunOpenRequested(RUN, "local", "nameless", incarnation(1), epoch))
    assert (type(said), said.code, said.is_final) == (x.Refuse, "unknown-run", True)
    assert rig.floor.tables.runs == {}


def test_a_sink_that_was_removed_leaves_no_stage_though_the_record_of_its_commit_was_damaged(rig: Rig) -> None:
    run = open_run(rig)
    stages = staged(rig, run.epoch, 3)
    (name,) = [name for name in rig.disk.files if name.endswith(".segment")]
    before = bytes(rig.disk.files[name])
    assert isinstance(commit(rig, run.epoch, 0, *stages)[-1], x.ConfirmCommitted)
    written = [at for at, byte in enumerate(rig.disk.files[name]) if byte != before[at]]
    assert ask(rig, "sink.remove", sink="sink").result == {"removed": True}
    rig.disk.files[name][written[len(written) // 2]] ^= 1
    rig.restart()
    assert (rig.floor.tables.runs, rig.floor.tables.stages) == ({}, {})
    assert ask(rig, "stage.list").result == []
    rig.checkpoint()
    rig.restart()
    assert rig.floor.tables.stages == {}


def test_a_sink_whose_removal_the_journal_refuses_is_as_it_was_for_those_that_are_there() -> None:
    rig = Rig()
    run = open_run(rig)
    open_run(rig, epoch=run.epoch, session=RUN + 1)
    rig.is_full = True
    rig.tell(x.AdminRequested(90, 1, "local", "sink.remove", {"sink": "sink"}))
    rig.tell(x.SessionClosed(RUN + 1))
    rig.carry_out()
    assert rig.said[-1].code == "disk-full"
    rig.is_full = False
    wait(rig)
    (stage,) = staged(rig, run.epoch, 3)
    assert commit(rig, run.epoch, 0, stage)[-1].streams == (("s", 1, 3),)
    leave(rig, RUN)
    assert not rig.floor.tables.runs["sink"].stages
