"""Very many cursors of one owner are journaled in turns, so that everybody else has theirs between."""

import pytest

from tests.streams.rig import Rig, incarnation
from veredus.journal.exchange import AppendRequested
from veredus.kernel.events import DeadlineReached
from veredus.kernel.turns import QUANTUM_NS
from veredus.matching import Filter
from veredus.streams import exchange as x
from veredus.streams.cursors import CURSOR_INTERVAL_NS, FACT_NS, RANGE_NS

COUNT = 500
FIRST = 100
A_TURN = QUANTUM_NS // FACT_NS
NOTHING = Filter(keys=("nothing",))


@pytest.fixture
def rig() -> Rig:
    """A stream, and a neighbour who subscribes to it."""
    rig = Rig()
    rig.publish(rig.attach(1), 1, 9)
    rig.subscribe(2, "neighbour", principal="neighbour")
    return rig


def appended(orders: object) -> int:
    assert isinstance(orders, list)
    return sum(isinstance(order, AppendRequested) for order in orders)


def test_what_a_flood_hands_out_is_journaled_some_at_a_time_and_a_neighbour_waits_for_none_of_it(rig: Rig) -> None:
    for who in (1, 2):
        for number in range(COUNT):
            rig.subscribe(FIRST + number, f"flood-{number}", who, principal="flood")
        rig.give_turns()
    sent = rig.time_ns
    orders = [order for number in range(COUNT) for order in rig.floor.handle(x.HandedOut(FIRST + number, 9), rig.now)]
    now_count = appended(orders)
    assert A_TURN // 2 < now_count <= A_TURN
    orders += rig.floor.handle(x.SettleRequested(2, ((9, 9),)), rig.now)
    assert appended(orders) == now_count + 1
    rig.follow(orders)
    assert rig.said_to(2, x.ConfirmSettled) == [x.ConfirmSettled(2, 9)]
    assert rig.time_ns == sent
    assert rig.give_turns() >= COUNT // A_TURN - 1
    handed = [said.session for said in rig.said if isinstance(said, x.ConfirmHanded)]
    assert sorted(handed) == list(range(FIRST, FIRST + COUNT))


def test_cursors_that_passed_what_they_did_not_want_are_journaled_some_at_a_time(rig: Rig) -> None:
    for number in range(COUNT):
        rig.subscribe(FIRST + number, f"flood-{number}", principal="flood", filter=NOTHING)
    rig.give_turns()
    rig.time_ns += CURSOR_INTERVAL_NS
    assert appended(rig.floor.handle(DeadlineReached(), rig.now)) == A_TURN


# ── cursors of many ranges: each fact of one names them all ───────────────────────────────────────────────────────────

WIDE_COUNT = 30
RANGE_COUNT = QUANTUM_NS // RANGE_NS
"""So many take a turn."""


def widened(rig: Rig, count: int = WIDE_COUNT) -> Rig:
    """`count` cursors of `RANGE_COUNT` ranges each, all of one owner."""
    rig.publish(rig.attach(1), 10, 2 * RANGE_COUNT)
    for number in range(FIRST, FIRST + count):
        rig.subscribe(number, f"wide-{number}", mode=x.SettleMode.INDIVIDUAL, principal="flood")
        rig.settle(number, *((2 * place, 2 * place) for place in range(1, RANGE_COUNT + 1)))
        rig.give_turns()
    rig.time_ns += CURSOR_INTERVAL_NS
    rig.give_turns()
    return rig


def asked_at_once(rig: Rig, *asked: object) -> int:
    """How many facts are journaled at once when all of this is asked in one turn; the rest comes in its turns."""
    orders = [order for one in asked for order in rig.floor.handle(one, rig.now)]
    at_once = appended(orders)
    rig.follow(orders)
    rig.give_turns()
    return at_once


def test_filters_of_wide_cursors_are_changed_one_in_a_turn_and_a_neighbours_at_once(rig: Rig) -> None:
    widened(rig)
    changes = [x.FilterChangeRequested(number, NOTHING, 0) for number in range(FIRST, FIRST + WIDE_COUNT)]
    assert asked_at_once(rig, *changes, x.FilterChangeRequested(2, NOTHING, 0)) <= 2 + 1
    assert all(rig.said_to(session, x.ConfirmFilter) for session in (2, *range(FIRST, FIRST + WIDE_COUNT)))


def test_wide_cursors_are_taken_over_one_in_a_turn(rig: Rig) -> None:
    widened(rig)
    asked = [
        x.SubscribeRequested(
            number + 500,
            "flood",
            "s",
            f"wide-{number}",
            "main",
            mode=x.SettleMode.INDIVIDUAL,
            incarnation=incarnation(1),
        )
        for number in range(FIRST, FIRST + WIDE_COUNT)
    ]
    assert asked_at_once(rig, *asked) <= 2
    assert all(rig.said_to(event.session, x.GrantSubscription) for event in asked)


def test_who_waits_to_take_over_a_wide_cursor_and_leaves_gets_nothing(rig: Rig) -> None:
    widened(rig, 3)
    for number in range(FIRST, FIRST + 3):
        rig.tell(x.SubscribeRequested(number + 500, "flood", "s", f"wide-{number}", "main", incarnation=incarnation(1)))
    for number in range(FIRST, FIRST + 3):
        rig.tell(x.SessionClosed(number + 500))
    rig.carry_out()
    rig.give_turns()
    assert not rig.said_to(FIRST + 502, x.GrantSubscription)
    rig.time_ns += CURSOR_INTERVAL_NS
    rig.subscribe(900, f"wide-{FIRST + 2}", principal="flood")


@pytest.mark.parametrize("verb", ["stream.delete", "subscription.remove"])
def test_who_waits_for_a_wide_cursor_that_goes_meanwhile_is_told_so(rig: Rig, verb: str) -> None:
    widened(rig, 3)
    sessions = range(FIRST + 500, FIRST + 503)
    orders: list[object] = []
    for session in sessions:
        name = f"wide-{session - 500}"
        asked = x.SubscribeRequested(session, "flood", "s", name, "main", incarnation=incarnation(1))
        orders += rig.floor.handle(asked, rig.now)
    arguments = [{"name": "s"}]
    if verb == "subscription.remove":
        arguments = [{"stream": "s", "subscriber": f"wide-{session - 500}", "name": "main"} for session in sessions]
    for number, one in enumerate(arguments, 1):
        orders += rig.floor.handle(x.AdminRequested(7, number, "flood", verb, one), rig.now)
    rig.follow(orders)
    rig.give_turns()
    for session in sessions:
        assert rig.said_to(session, x.GrantSubscription) or rig.said_to(session, x.Refuse), session
    assert len(rig.said_to(7, x.AnswerAdmin)) == len(arguments)


def test_the_answer_to_a_settlement_names_nothing_else_of_a_wide_cursor(rig: Rig) -> None:
    widened(rig, 1)
    rig.said.clear()
    rig.settle(FIRST, (5, 5), (9, 9))
    rig.give_turns()
    assert rig.said_to(FIRST, x.ConfirmSettled) == [x.ConfirmSettled(FIRST, 0, ((4, 6), (8, 10)))]


def test_settlements_that_are_answered_together_are_all_named(rig: Rig) -> None:
    rig.subscribe(5, "bob", mode=x.SettleMode.INDIVIDUAL)
    for sequence in (2, 6, 4, 8):
        rig.tell(x.SettleRequested(5, ((sequence, sequence),)))
    rig.carry_out()
    named = {bounds for said in rig.said_to(5, x.ConfirmSettled) for bounds in said.ranges}
    assert named == {(2, 2), (4, 4), (6, 6), (8, 8)}


def test_who_takes_over_a_cursor_with_many_settled_ranges_is_fed_in_turns(rig: Rig) -> None:
    grant = rig.attach(1)
    for number in range(6):
        rig.publish(grant, 10 + 2000 * number, 2000)
    rig.subscribe(5, "wide", mode=x.SettleMode.INDIVIDUAL)
    rig.settle(5, *((2 * place, 2 * place) for place in range(1, 6001)))
    rig.give_turns()
    again = x.SubscribeRequested(
        6, "local", "s", "wide", "main", mode=x.SettleMode.INDIVIDUAL, incarnation=incarnation(2), credit=1 << 40
    )
    rig.do(again)
    while not rig.said_to(6, x.GrantSubscription):
        rig.time_ns += 1
        rig.carry_out()
    assert sum(len(push.buffers) for push in rig.pushes(6)) <= 2
    rig.give_turns()
    assert sum(len(push.buffers) for push in rig.pushes(6)) == 7
    assert rig.pushed(6) == [*range(1, 12001, 2), *range(12001, 12010)]
