"""A stream that is deleted is gone at once; what it had goes in turns, so that nobody waits for all of it."""

from collections import deque
from itertools import pairwise
from typing import Any

import pytest

from tests.streams.rig import Rig
from tests.streams.sinking import commit, open_run, open_stage, staged
from veredus.journal.exchange import AppendRequested
from veredus.kernel.events import DeadlineReached
from veredus.matching import Filter
from veredus.streams import exchange as x
from veredus.streams import remains
from veredus.streams.cursors import CURSOR_INTERVAL_NS

TURN_COUNT = 10
STAGED = range(60, 72)
NOTHING = Filter(keys=("nothing",))


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Rig:
    """25 sources, and 14 subscriptions that have settled every other publication of the first."""
    monkeypatch.setattr(remains, "TURN_COUNT", TURN_COUNT)
    rig = Rig()
    rig.publish(rig.attach(1, "source-1"), 1, 9)
    for number in range(2, 26):
        rig.attach(number, f"source-{number}")
    for number in range(14):
        rig.subscribe(100 + number, f"bob-{number}", mode=x.SettleMode.INDIVIDUAL)
        rig.settle(100 + number, *((place, place) for place in (2, 4, 6)))
    return rig


def delete(rig: Rig) -> None:
    """Ask for it, and let the disk answer; no time passes."""
    rig.tell(x.AdminRequested(9, 1, "local", "stream.delete", {"name": "s"}))
    rig.carry_out()
    assert rig.said_to(9, x.AnswerAdmin)[-1].result == {"name": "s"}


def told(rig: Rig) -> list[int]:
    """The sessions that heard that the stream was deleted, in that order."""
    return [said.session for said in rig.said if isinstance(said, x.Refuse) and said.code == "stream-deleted"]


def test_what_a_deleted_stream_had_goes_some_at_a_time_and_who_hung_on_it_is_told_in_turn(rig: Rig) -> None:
    staged(rig, open_run(rig).epoch, *[1] * len(STAGED))
    delete(rig)
    assert "s" not in rig.floor.tables.streams
    counts, tolds = [rig.floor.remains.count], [len(told(rig))]
    while rig.floor.remains.count:
        due = rig.floor.deadline()
        assert due == rig.time_ns + 1, "at once, and behind what came meanwhile"
        rig.time_ns = due
        rig.tell(DeadlineReached())
        counts.append(rig.floor.remains.count)
        tolds.append(len(told(rig)))
    assert max(before - after for before, after in pairwise(counts)) == TURN_COUNT
    assert tolds[0] == max(after - before for before, after in pairwise(tolds)) == TURN_COUNT // remains.TOLD_COUNT
    assert sorted(told(rig)) == sorted([*range(1, 26), *range(100, 114), *STAGED])
    assert rig.floor.attached_count == len(rig.floor.flows) == len(rig.floor.tables.stages) == 0


def test_what_is_little_goes_with_the_stream_and_a_turn_has_one_share_for_all_streams_that_go_in_it(rig: Rig) -> None:
    for number in range(5):
        rig.attach(200 + number, "one", stream=f"t-{number}")
    rig.tell(*(x.AdminRequested(9, 1 + n, "local", "stream.delete", {"name": f"t-{n}"}) for n in range(5)))
    rig.carry_out()
    assert len(rig.said_to(9, x.AnswerAdmin)) == 5
    assert len(told(rig)) == TURN_COUNT // remains.TOLD_COUNT
    rig.give_turns()
    assert sorted(told(rig)) == [*range(200, 205)]


@pytest.mark.parametrize(
    "asked",
    [
        x.BatchUnfit(25, "too-large", "", 1),
        x.TokenStoreRequested(25, 1, 0, b"token"),
        x.CreditGranted(113, 10),
        x.HandedOut(113, 9),
        x.SettleRequested(113, ((9, 9),)),
        x.ReturnRequested(113, 9, True, ""),
        x.FilterChangeRequested(113, NOTHING, 1),
    ],
    ids=lambda asked: type(asked).__name__,
)
def test_who_asks_for_something_before_its_turn_is_told_at_once_and_only_once(rig: Rig, asked: Any) -> None:
    grant = rig.said_to(25, x.GrantSource)[-1]
    delete(rig)
    assert asked.session not in told(rig)
    before = len(rig.said)
    rig.tell(asked)
    first = rig.said[before]
    assert (first.session, first.code, first.is_final) == (asked.session, "stream-deleted", True)
    rig.offer(grant, 1)
    rig.order(rig.floor.set_congested(112, True, rig.now))
    assert {25, 112} <= set(told(rig))
    assert rig.pending == deque(), "nothing of it is journaled"
    rig.give_turns()
    assert sorted(told(rig)) == [*range(1, 26), *range(100, 114)]
    assert not [said for said in rig.said[before:] if isinstance(said, x.Push | x.PushGap)]


def test_a_stream_of_the_name_may_come_and_be_used_while_the_former_one_goes(rig: Rig) -> None:
    delete(rig)
    assert rig.floor.remains.count
    rig.do(x.SessionClosed(100), x.SessionClosed(25))
    rig.subscribe(100, "bob-0", who=2)
    assert rig.publish(rig.attach(25, "source-25", who=2), 1, 3, who="source-25").session == 25
    rig.give_turns()
    assert rig.pushed(100)[-3:] == [1, 2, 3]
    assert sorted(told(rig)) == [*range(1, 25), *range(101, 114)]


def test_stages_of_a_deleted_stream_are_closed_before_they_have_gone(rig: Rig) -> None:
    run = open_run(rig)
    stages = staged(rig, run.epoch, *[1] * len(STAGED))
    delete(rig)
    assert len(rig.floor.tables.stages) == len(STAGED)
    (listed,) = rig.do(x.AdminRequested(9, 2, "local", "stage.list", {}))
    assert listed.result == []
    (refused,) = commit(rig, run.epoch, 1, stages[-1])
    assert refused.code == "unknown-stage"
    (removed,) = rig.do(x.AdminRequested(9, 3, "local", "sink.remove", {"sink": "sink"}))
    assert removed.result == {"removed": True}
    rig.checkpoint()
    rig.restart()
    assert rig.floor.tables.stages == {}


def test_a_process_that_reads_of_a_deletion_in_the_journal_has_none_of_its_stages(rig: Rig) -> None:
    staged(rig, open_run(rig).epoch, 1, 1, 1)
    rig.checkpoint()
    delete(rig)
    rig.restart()
    assert rig.floor.tables.stages == {}


def test_the_room_that_cursors_of_a_deleted_stream_took_is_there_again_when_they_have_gone(rig: Rig) -> None:
    spread = rig.floor._cursors.spread
    assert sum(spread._counts.values()) > 0
    delete(rig)
    rig.give_turns()
    assert spread._counts == {}


def test_no_cursor_of_a_deleted_stream_is_journaled_that_has_not_gone_yet(rig: Rig) -> None:
    for number in range(20):
        rig.subscribe(200 + number, f"eve-{number}", filter=NOTHING)
    rig.publish(rig.attach(30, "source-30"), 1, 3)
    delete(rig)
    rig.time_ns += CURSOR_INTERVAL_NS
    orders = rig.floor.handle(DeadlineReached(), rig.now)
    assert rig.floor.remains.count > 0
    assert [order for order in orders if isinstance(order, AppendRequested)] == []


def test_who_publishes_to_other_streams_is_not_looked_at_when_one_is_deleted(rig: Rig) -> None:
    rig.attach(40, "other", stream="t")
    run = open_run(rig)
    staged(rig, run.epoch, 1)
    stage = open_stage(rig, 70, run.epoch, "t")
    delete(rig)
    rig.give_turns()
    assert sorted(told(rig))[:25] == [*range(1, 26)]
    assert 40 not in told(rig)
    assert list(rig.floor.tables.stages.values()) == [rig.floor.tables.stages[stage.stage]]
    assert rig.publish(rig.attach(41, "again"), 1).session == 41, "the name is free, and so are its sessions"
    rig.check()
