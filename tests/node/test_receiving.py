"""Frames that are not whole share one budget: slow ones go where others wait, and nobody takes it all."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from veredus.node.receiving import (
    GRACE_NS,
    LOOK_NS,
    SMALL_SIZE_MAX,
    GiveUp,
    HoldBack,
    Order,
    ReadOn,
    ReceiveBudget,
    ReceiveLimits,
)
from veredus.protocols.links import NOTHING, Unfinished

MIB = 1 << 20
SECOND = 10**9
LIMITS = ReceiveLimits(size_max=100 * MIB, frame_timeout_ns=60 * SECOND)


def begun(
    budget: ReceiveBudget, link: int, size: int, principal: str = "p", held: int = 100, now_ns: int = 0
) -> list[Order]:
    return budget.note(link, principal, bool(principal), Unfinished(held, size), now_ns)


def test_a_small_frame_never_waits() -> None:
    budget = ReceiveBudget(LIMITS)
    for link in range(1, 1600):
        assert begun(budget, link, SMALL_SIZE_MAX) == []


def test_a_frame_without_room_waits_and_goes_on_when_another_is_whole() -> None:
    budget = ReceiveBudget(LIMITS)
    for link in (1, 2):
        assert begun(budget, link, 20 * MIB) == []
    assert begun(budget, 3, 20 * MIB) == [HoldBack(3)], "one principal has half of the budget"
    assert budget.note(1, "p", True, NOTHING, 0) == [ReadOn(3)]
    budget.check()


def test_what_one_principal_has_begun_keeps_no_other_waiting() -> None:
    budget = ReceiveBudget(LIMITS)
    for link in range(1, 147):
        begun(budget, link, 20 * MIB, "attacker", held=19 * MIB // 20)
    budget.check()
    assert begun(budget, 200, 20 * MIB, "victim") == []
    assert budget.size <= 2 * LIMITS.size_max


def test_whoever_has_least_is_served_first() -> None:
    budget = ReceiveBudget(LIMITS)
    for link, principal in ((1, "a"), (2, "a"), (3, "b"), (4, "b")):
        begun(budget, link, 25 * MIB, principal)
    assert begun(budget, 5, 20 * MIB, "a") == [HoldBack(5)]
    assert begun(budget, 6, 20 * MIB, "c") == [HoldBack(6)]
    assert budget.forget(1, 0) == [ReadOn(6)]
    assert budget.forget(2, 0) == [ReadOn(5)]


def test_a_slow_frame_is_given_up_once_another_waits_for_its_room_and_a_quick_one_is_not() -> None:
    budget = ReceiveBudget(LIMITS)
    begun(budget, 1, 25 * MIB, held=24 * MIB)
    begun(budget, 2, 25 * MIB, held=100)
    assert budget.look(GRACE_NS) == [], "nobody waits"
    assert begun(budget, 3, 25 * MIB, now_ns=GRACE_NS) == [HoldBack(3)]
    assert budget.deadline() == GRACE_NS + LOOK_NS
    given_up, read_on = budget.look(GRACE_NS + LOOK_NS)
    assert isinstance(given_up, GiveUp)
    assert (given_up.link, read_on) == (2, ReadOn(3))
    assert 1 in budget
    assert budget.refused_count == 1


def test_a_large_frame_that_is_not_whole_in_time_is_given_up_though_nobody_waits() -> None:
    budget = ReceiveBudget(LIMITS)
    begun(budget, 1, 20 * MIB, held=19 * MIB)
    begun(budget, 2, 1000)
    assert budget.deadline() == 60 * SECOND
    (given_up,) = budget.look(60 * SECOND)
    assert isinstance(given_up, GiveUp)
    assert given_up.link == 1
    assert budget.deadline() is None
    assert 2 in budget, "a small frame costs little, and the peer's silence ends it"


def test_the_next_frame_of_a_link_has_a_time_of_its_own() -> None:
    budget = ReceiveBudget(LIMITS)
    begun(budget, 1, 20 * MIB, held=19 * MIB)
    begun(budget, 1, 20 * MIB, held=1000, now_ns=50 * SECOND)
    assert budget.deadline() == 110 * SECOND


def test_the_time_of_a_frame_stands_still_while_its_link_is_not_read_from() -> None:
    budget = ReceiveBudget(LIMITS)
    begun(budget, 1, 50 * MIB, "a")
    budget.pace(1, is_read=False, now_ns=SECOND)
    begun(budget, 2, 50 * MIB, "b", held=40 * MIB, now_ns=SECOND)
    begun(budget, 3, 50 * MIB, "c", now_ns=SECOND)
    assert budget.look(300 * SECOND) == [GiveUp(2, "a frame was not complete after 60 s"), ReadOn(3)]
    budget.pace(1, is_read=True, now_ns=300 * SECOND)
    budget.check()
    assert budget.look(358 * SECOND) == []
    assert budget.look(359 * SECOND) == [GiveUp(1, "a frame was not complete after 60 s")]


def test_a_frame_that_begins_while_its_link_is_not_read_from_has_its_time_behind_that() -> None:
    budget = ReceiveBudget(LIMITS)
    budget.pace(1, is_read=False, now_ns=0)
    begun(budget, 1, 50 * MIB, now_ns=SECOND)
    budget.check()
    budget.pace(1, is_read=True, now_ns=100 * SECOND)
    assert budget.look(159 * SECOND) == []
    assert budget.note(1, "p", True, NOTHING, 159 * SECOND) == []
    assert budget.size == 0
    assert budget.deadline() is None


def test_many_small_frames_that_were_left_lying_make_room_the_oldest_first() -> None:
    budget = ReceiveBudget(LIMITS)
    for link in range(1, 1601):
        begun(budget, link, SMALL_SIZE_MAX, now_ns=link)
    (given_up,) = begun(budget, 2000, SMALL_SIZE_MAX, now_ns=10 * SECOND)
    assert isinstance(given_up, GiveUp)
    assert given_up.link == 1


def test_above_twice_the_budget_whoever_begins_is_given_up_at_once() -> None:
    budget = ReceiveBudget(LIMITS)
    for link in range(1, 3201):
        assert begun(budget, link, SMALL_SIZE_MAX) == []
    (given_up,) = begun(budget, 5000, SMALL_SIZE_MAX)
    assert isinstance(given_up, GiveUp)
    assert given_up.link == 5000


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(0, 40), st.integers(0, 30), st.sampled_from("abc")), max_size=120)
)
def test_whatever_is_begun_the_sums_are_right_and_the_waiting_are_served(
    steps: list[tuple[int, int, int, str]],
) -> None:
    budget = ReceiveBudget(LIMITS)
    held_back: set[int] = set()
    for number, (link, size, held, principal) in enumerate(steps):
        now_ns = number * SECOND // 3
        if link in held_back:
            orders = budget.forget(link, now_ns)
            held_back.discard(link)
        elif size:
            orders = begun(budget, link, size * MIB, principal, min(held, size) * MIB, now_ns)
        else:
            orders = budget.look(now_ns)
        for order in orders:
            if isinstance(order, HoldBack):
                held_back.add(order.link)
            elif isinstance(order, ReadOn):
                held_back.remove(order.link)
        if held % 7 == 0:
            budget.pace(link, is_read=size % 2 == 0, now_ns=now_ns)
        budget.check()
        assert budget.size <= 2 * LIMITS.size_max
    for link in range(1, 10):
        budget.forget(link, 10**12)
    assert budget.size == 0
