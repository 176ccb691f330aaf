"""Whom a publication reaches: those that could be pushed it, and nobody that lacks something else."""

from __future__ import annotations

from tests.streams.rig import Rig, incarnation
from veredus.matching import Filter
from veredus.streams import exchange as x
from veredus.streams.examine import wanted_by
from veredus.streams.facts import StreamConfig, StreamCreated
from veredus.streams.fanout import Fanout
from veredus.streams.flow import Flow
from veredus.streams.shares import Shares
from veredus.streams.stream import Stream
from veredus.streams.tables import StreamsLimits
from veredus.streams.tail import TailBudget

HEAD = x.Start(x.StartKind.HEAD)


def reached(rig: Rig) -> list[int]:
    """The sessions that the next publication of stream `s` reaches."""
    waiting = rig.floor.tables.streams["s"].waiting
    return sorted(flow.session for among in waiting.values() for flow in among)


def test_a_publication_reaches_nobody_without_credit_and_credit_wakes_them() -> None:
    rig = Rig()
    grant = rig.attach(1)
    for session in range(5, 500):
        rig.subscribe(session, start=HEAD, credit=0)
    rig.subscribe(500, start=HEAD)
    assert reached(rig) == [500]
    rig.publish(grant, 1)
    assert rig.pushed(500) == [1]
    rig.do(x.CreditGranted(7, 1))
    assert (rig.pushed(7), rig.pushed(8)) == ([1], [])
    assert reached(rig) == [500], "its credit is used up"
    rig.do(x.CreditGranted(7, 1 << 30))
    rig.publish(grant, 2)
    assert rig.pushed(7) == [1, 2]


def test_a_publication_reaches_nobody_behind_a_congested_link_until_that_has_drained() -> None:
    rig = Rig()
    grant = rig.attach(1)
    rig.subscribe(5)
    rig.follow(rig.floor.set_congested(5, True, rig.now))
    assert reached(rig) == []
    rig.publish(grant, 1)
    assert rig.pushed(5) == []
    rig.follow(rig.floor.set_congested(5, False, rig.now))
    assert (rig.pushed(5), reached(rig)) == ([1], [5])


def test_a_publication_reaches_nobody_that_has_left_or_has_all_it_asked_for() -> None:
    rig = Rig()
    grant = rig.attach(1)
    rig.subscribe(5)
    rig.subscribe(6, "bob", until=2)
    rig.publish(grant, 1)
    assert rig.said_to(6, x.EndSubscription)
    assert reached(rig) == [5]
    rig.do(x.SessionClosed(5))
    assert rig.floor.tables.streams["s"].waiting == {}


def test_a_publication_reaches_who_waits_for_settlements_since_another_cursor_may_have_made_room() -> None:
    rig = Rig(StreamsLimits(unsettled_max=1))
    grant = rig.attach(1)
    rig.subscribe(5, "bob", mode=x.SettleMode.INDIVIDUAL)
    rig.publish(grant, 1)
    rig.publish(grant, 2)
    assert (rig.pushed(5), rig.floor.flows[5].waits_for, reached(rig)) == ([1], "settlement", [5])


def fanout_of(*payers: str) -> tuple[Fanout, Stream, list[Flow]]:
    """A flow of each payer, numbered from 1 on, and all of them wait at one stream."""
    stream = Stream(StreamCreated(1, "s", incarnation(1), StreamConfig(), 0, "local"), TailBudget(1 << 20), Shares())
    fanout, flows = Fanout(), []
    for session, payer in enumerate(payers, 1):
        flows.append(Flow(session, stream, wanted_by(x.EVERYTHING), 1, 0, 1 << 40, payer))
        fanout.wait(flows[-1])
    return fanout, stream, flows


def taken(fanout: Fanout, payer: str) -> list[int]:
    """The sessions of a payer that are due, taken out in their order."""
    sessions = []
    while (flow := fanout.next_of(payer)) is not None:
        sessions.append(flow.session)
    return sessions


def test_those_of_each_payer_are_due_in_the_order_in_which_they_came() -> None:
    fanout, stream, _ = fanout_of("eve", "ann", "eve", "eve")
    assert fanout.next_of("eve") is None
    assert fanout.reach(stream) == ["eve", "ann"]
    assert (taken(fanout, "eve"), taken(fanout, "ann"), stream.waiting) == ([1, 3, 4], [2], {})


def test_who_was_not_yet_taken_is_due_once_before_those_of_later_publications() -> None:
    fanout, stream, flows = fanout_of("eve", "eve", "eve")
    fanout.reach(stream)
    assert fanout.next_of("eve") is flows[0]
    fanout.wait(flows[0])
    fanout.reach(stream)
    assert taken(fanout, "eve") == [2, 3, 1]


def test_who_leaves_while_it_is_due_is_not_taken() -> None:
    fanout, stream, flows = fanout_of("eve", "eve")
    fanout.reach(stream)
    for flow in (flows[0], flows[0]):
        fanout.leave(flow)
    assert taken(fanout, "eve") == [2]


def test_a_publication_is_pushed_to_very_many_of_one_principal_in_turns_and_to_others_at_once() -> None:
    rig = Rig()
    grant = rig.attach(1)
    many = range(100, 400)
    for session in many:
        rig.subscribe(session, principal="eve", start=HEAD)
    rig.subscribe(5, principal="ann", start=HEAD)
    rig.publish(grant, 1)
    assert rig.pushed(5) == [1]
    assert 0 < sum(bool(rig.pushed(session)) for session in many) <= 30
    rig.do(x.SessionClosed(399))
    rig.publish(grant, 2)
    assert rig.pushed(5) == [1, 2], "whoever waits for nothing is not behind those that wait"
    assert rig.give_turns() > 3
    assert all(rig.pushed(session) == [1, 2] for session in many[:-1])
    assert not rig.pushed(399)


def test_many_of_one_principal_with_filters_are_all_reached_by_what_they_want() -> None:
    rig = Rig()
    grant = rig.attach(1)
    many = range(100, 300)
    for session in many:
        rig.subscribe(session, principal="eve", start=HEAD, filter=Filter(where=f"n > {session % 7}"))
    for first in (1, 5, 9):
        rig.publish(grant, first, 4)
    rig.give_turns()
    for session in many:
        assert rig.pushed(session) == list(range(session % 7 + 1, 13))
