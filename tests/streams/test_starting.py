"""A start at a time that is still to come: what is appended before it is pushed to nobody who asked for that."""

from typing import Any

import pytest

from tests.streams.rig import Rig
from veredus.matching import Filter
from veredus.streams import exchange as x

SECOND_NS = 1_000_000_000
FILTERS = [None, Filter(keys=("prefix:",)), Filter(where="number >= 0 or number is null")]


def begun(**more: Any) -> tuple[Rig, x.GrantSource]:
    """A stream with three publications, appended a second after one another."""
    rig = Rig(**more)
    grant = rig.attach(1)
    for number in (1, 2, 3):
        rig.time_ns += SECOND_NS
        rig.publish(grant, number)
    return rig, grant


def in_seconds(rig: Rig, seconds: float) -> x.Start:
    return x.Start(x.StartKind.TIME, rig.now.wall_us + int(seconds * 1e6))


def go_on(rig: Rig, grant: x.GrantSource, *numbers: int) -> None:
    for number in numbers:
        rig.time_ns += SECOND_NS
        rig.publish(grant, number)


@pytest.mark.parametrize("filter_", FILTERS)
@pytest.mark.parametrize("name", ["", "bob"])
def test_what_is_appended_before_the_time_to_start_from_is_not_pushed(name: str, filter_: Filter | None) -> None:
    rig, grant = begun()
    assert rig.subscribe(5, name, start=in_seconds(rig, 2.5), filter=filter_).position == 4
    go_on(rig, grant, 4, 5, 6, 7)
    assert rig.pushed(5) == [6, 7]


def test_what_is_appended_at_the_very_time_is_pushed() -> None:
    rig, grant = begun()
    rig.subscribe(5, start=in_seconds(rig, 2))
    go_on(rig, grant, 4, 5, 6)
    assert rig.pushed(5) == [5, 6]


def test_what_is_on_its_way_to_the_journal_since_before_that_time_is_not_pushed() -> None:
    rig, grant = begun()
    rig.offer(grant, 4)
    rig.time_ns += SECOND_NS
    rig.subscribe(5, start=in_seconds(rig, 0))
    go_on(rig, grant, 5)
    assert rig.pushed(5) == [5]


def test_who_ends_before_that_time_gets_nothing_and_is_told_the_end() -> None:
    rig, grant = begun()
    rig.subscribe(5, start=in_seconds(rig, 100), until=6)
    go_on(rig, grant, 4, 5, 6)
    assert rig.pushed(5) == []
    assert [end.next_sequence for end in rig.said_to(5, x.EndSubscription)] == [6]


@pytest.mark.parametrize("mode", list(x.SettleMode))
@pytest.mark.parametrize("between", ["nothing", "another session", "a kill", "a checkpoint and a kill"])
def test_a_durable_subscription_keeps_the_time_to_start_from_whoever_owns_it_and_its_cursor_passes_what_is_before(
    mode: x.SettleMode, between: str
) -> None:
    rig, grant = begun()
    start = in_seconds(rig, 3.5)
    rig.subscribe(5, "bob", start=start, mode=mode)
    go_on(rig, grant, 4)
    session = 5
    if between == "another session":
        rig.do(x.SessionClosed(5))
    if "checkpoint" in between:
        rig.checkpoint()
    if "kill" in between:
        rig.restart()
        grant = rig.attach(2, epoch=grant.epoch)
    if between != "nothing":
        go_on(rig, grant, 5)
        session = 6
        rig.subscribe(6, "bob", who=1 if "kill" in between else 2, mode=mode)
        go_on(rig, grant, 6, 7, 8)
    else:
        go_on(rig, grant, 5, 6, 7, 8)
    assert rig.pushed(session) == [7, 8]
    subscription = rig.floor.tables.streams["s"].subscriptions["bob", "main"]
    assert subscription.floor == 6
    rig.settle(session, (7, 7))
    assert subscription.floor == 7


def test_a_filter_that_is_changed_before_that_time_counts_from_that_time_on() -> None:
    rig, grant = begun()
    rig.subscribe(5, "bob", start=in_seconds(rig, 3.5), filter=Filter(keys=("prefix:none",)))
    go_on(rig, grant, 4)
    rig.do(x.FilterChangeRequested(5, Filter()))
    go_on(rig, grant, 5, 6, 7, 8)
    assert rig.pushed(5) == [7, 8]


def test_a_subscription_that_exists_takes_no_other_start() -> None:
    rig, grant = begun()
    rig.subscribe(5, "bob")
    rig.do(x.SessionClosed(5))
    rig.subscribe(6, "bob", who=2, start=in_seconds(rig, 100))
    go_on(rig, grant, 4)
    assert rig.pushed(6) == [1, 2, 3, 4]
