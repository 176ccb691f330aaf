"""A stream that is deleted is gone at once; what it had goes in turns, so that nobody waits for all of it."""

import pytest

from tests.streams.rig import Rig
from tests.streams.sinking import open_run, open_stage, staged
from veredus.journal.exchange import AppendRequested
from veredus.kernel.events import DeadlineReached
from veredus.matching import Filter
from veredus.streams import exchange as x
from veredus.streams import remains
from veredus.streams.cursors import CURSOR_INTERVAL_NS

TURN_COUNT = 10
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


def test_what_a_deleted_stream_had_goes_some_at_a_time(rig: Rig) -> None:
    delete(rig)
    assert "s" not in rig.floor.tables.streams
    counts = [rig.floor.remains.count]
    while rig.floor.remains.count:
        due = rig.floor.deadline()
        assert due == rig.time_ns + 1, "at once, and behind what came meanwhile"
        rig.time_ns = due
        rig.tell(DeadlineReached())
        counts.append(rig.floor.remains.count)
    assert counts == [39, 29, 19, 9, 0]
    assert rig.floor.deadline() is None


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
    told = [said.session for said in rig.said if isinstance(said, x.Refuse) and said.code == "stream-deleted"]
    assert sorted(told)[:25] == [*range(1, 26)]
    assert 40 not in told
    assert list(rig.floor.tables.stages.values()) == [rig.floor.tables.stages[stage.stage]]
    assert rig.publish(rig.attach(41, "again"), 1).session == 41, "the name is free, and so are its sessions"
    rig.check()
