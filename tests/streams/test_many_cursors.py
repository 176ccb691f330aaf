"""Very many cursors of one owner are journaled in turns, so that everybody else has theirs between."""

import pytest

from tests.streams.rig import Rig
from veredus.journal.exchange import AppendRequested
from veredus.kernel.events import DeadlineReached
from veredus.kernel.turns import QUANTUM_NS
from veredus.matching import Filter
from veredus.streams import exchange as x
from veredus.streams.cursors import CURSOR_INTERVAL_NS, FACT_NS

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
    for incarnation in (1, 2):
        for number in range(COUNT):
            rig.subscribe(FIRST + number, f"flood-{number}", incarnation, principal="flood")
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
