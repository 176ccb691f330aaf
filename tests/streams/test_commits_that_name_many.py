"""How many streams the last commits of one principal's sinks name together, whether or not those are there."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.streams.rig import Rig, incarnation
from veredus.delivery.content import Content
from veredus.streams import exchange as x
from veredus.streams.listing import PART_SIZE, PARTS_MAX
from veredus.streams.tables import StreamsLimits

FEW = StreamsLimits(committed_streams_per_principal_max=5)


def commit(rig: Rig, sink: str, *streams: str, commit_id: int = 1, principal: str = "eve", session: int = 50) -> str:
    """The code with which a commit of no rows is refused, "" for none."""
    (run,) = rig.do(x.RunOpenRequested(session, principal, sink, incarnation(1), 0))
    contents = tuple(Content(name, 0) for name in streams)
    epoch = run.epoch
    said = rig.do(x.CommitRequested(session, 1, principal, sink, epoch, commit_id, (), (), contents))
    return next((one.code for one in said if isinstance(one, x.Refuse)), "")


@pytest.mark.parametrize("after", ["", "kill", "checkpoint"])
def test_the_commits_of_one_principal_name_so_many_streams_together(after: str) -> None:
    rig = Rig(FEW)
    assert commit(rig, "one", "a", "b", "c") == ""
    if after == "checkpoint":
        rig.checkpoint()
    if after:
        rig.restart()
    assert commit(rig, "two", "a", "b", "c", session=51) == "commits-too-large"
    assert commit(rig, "two", "a", "b", session=52) == ""
    assert commit(rig, "three", "a", "b", "c", principal="bob", session=53) == ""


def test_a_commit_takes_the_room_of_the_one_before_it_and_leaves_what_it_does_not_need() -> None:
    rig = Rig(FEW)
    assert commit(rig, "one", *"abcde") == ""
    assert commit(rig, "one", *"vwxyz", commit_id=2, session=51) == ""
    assert commit(rig, "two", "a", session=52) == "commits-too-large"
    assert commit(rig, "one", "a", commit_id=3, session=53) == ""
    rig.time_ns += 200_000_000
    assert commit(rig, "two", *"abcd", session=54) == ""


def test_a_sink_that_is_removed_leaves_its_room_and_the_same_commit_again_needs_none() -> None:
    rig = Rig(FEW)
    assert commit(rig, "one", *"abcde") == ""
    assert commit(rig, "one", *"abcde", session=51) == ""
    rig.do(x.AdminRequested(9, 1, "eve", "sink.remove", {"sink": "one"}))
    assert commit(rig, "two", *"abcde", session=52) == ""


def test_commits_on_their_way_to_the_journal_count() -> None:
    rig = Rig(FEW)
    runs: list[Any] = [
        rig.do(x.RunOpenRequested(session, "eve", f"sink-{session}", incarnation(1), 0))[0] for session in (50, 51)
    ]
    for run in runs:
        contents = tuple(Content(name, 0) for name in "abc")
        rig.tell(x.CommitRequested(run.session, 1, "eve", f"sink-{run.session}", run.epoch, 1, (), (), contents))
    rig.carry_out()
    codes = [one.code for one in rig.said if isinstance(one, x.Refuse)]
    assert codes == ["commits-too-large"]


def test_a_commit_that_the_journal_did_not_take_needs_no_room() -> None:
    rig = Rig(FEW)
    (run,) = rig.do(x.RunOpenRequested(50, "eve", "one", incarnation(1), 0))
    rig.is_full = True
    contents = tuple(Content(name, 0) for name in "abcde")
    said = rig.do(x.CommitRequested(50, 1, "eve", "one", run.epoch, 1, (), (), contents))
    assert [one.code for one in said] == ["disk-full"]
    rig.is_full = False
    rig.time_ns += 200_000_000
    assert commit(rig, "two", *"abcde", session=51) == ""


def test_a_list_of_sinks_names_the_first_streams_of_commits_that_have_many_and_says_so() -> None:
    rig = Rig(StreamsLimits())
    names = [f"{at:04d}".ljust(255, "x") for at in range(1_000)]
    for number in range(20):
        assert commit(rig, f"many-{number:02d}", *names, session=50 + number) == ""
    assert commit(rig, "one", "a", session=90) == ""
    found: dict[str, list[dict[str, Any]]] = {}
    after: object = None
    for _ in range(25):
        (answer,) = rig.do(x.AdminRequested(1, 1, "eve", "sink.list", {"limit": 200, "after": after}))
        assert len(msgspec.msgpack.encode(answer.result)) <= 2 * PARTS_MAX * PART_SIZE
        for row in answer.result["rows"]:
            found.setdefault(row["sink"], []).append(row)
        after = answer.result["next"]
        if after is None:
            break
    assert sorted(found) == [*(f"many-{number:02d}" for number in range(20)), "one"]
    ((one,), (many,)) = found["one"], found["many-00"]
    assert (list(one["incarnations"]), one["is_whole"]) == (["a"], True)
    shown = list(many["incarnations"])
    assert (shown, many["is_whole"]) == (names[: len(shown)], False)
    assert 100 < len(shown) <= 200
