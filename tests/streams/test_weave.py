"""A commit says in which order sequences go to who asks for that; nobody else is concerned."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.streams.rig import Rig
from tests.streams.sinking import RUN, open_run, staged
from veredus.streams import exchange as x
from veredus.streams.ranges import joined
from veredus.streams.weave import completed, cut_from, next_of, way_of

from .test_moving import INDIVIDUAL, shown

WOVEN: dict[str, Any] = {**INDIVIDUAL, "is_woven": True}
LEGS = ((x.Place(row=0), 2), (x.Place(3), 2), (x.Place(row=2), 1))


def woven(count: int = 4, staged_count: int = 3, legs: Any = LEGS, **more: Any) -> Rig:
    """Publications 1 to `count`, bob's subscription from the first one on, and a commit of some rows behind them."""
    rig = Rig()
    grant = rig.attach(1)
    rig.subscribe(5, "bob", **WOVEN)
    rig.tell(x.SessionClosed(5))
    rig.carry_out()
    for number in range(1, count + 1):
        rig.publish(grant, number, 1)
    run = open_run(rig)
    (stage,) = staged(rig, run.epoch, staged_count)
    weaves = ((stage.stage, legs),)
    rig.do(x.CommitRequested(RUN, 1, "local", "sink", run.epoch, 7, (stage.stage,), weaves=weaves))
    rig.check()
    return rig


@pytest.mark.parametrize("is_checkpointed", [False, True])
def test_who_asks_for_it_is_pushed_in_that_order_also_after_a_kill(is_checkpointed: bool) -> None:
    rig = woven()
    if is_checkpointed:
        rig.checkpoint()
    rig.restart()
    rig.subscribe(6, "bob", who=2, **WOVEN)
    rig.publish(rig.attach(2, "beta", 2), 1, 2, who="beta")
    assert rig.pushed(6) == [1, 2, 5, 6, 3, 4, 7, 8, 9]


def test_nobody_else_is_concerned() -> None:
    rig = woven()
    rig.subscribe(6, "bob", who=2, **INDIVIDUAL)
    rig.subscribe(7)
    rig.subscribe(8, "carol", who=3, is_woven=True)
    assert rig.pushed(6) == rig.pushed(7) == rig.pushed(8) == [1, 2, 3, 4, 5, 6, 7]


def test_what_is_settled_does_not_come_again_and_the_rest_comes_in_its_order() -> None:
    rig = woven()
    rig.subscribe(6, "bob", who=2, **WOVEN)
    for done in ((1, 1), (2, 2), (5, 5)):
        rig.settle(6, done)
    said = shown(rig)
    assert (said["floor"], said["settled"], said["next"]) == (2, ((5, 5),), (6, 6))
    rig.restart()
    rig.subscribe(7, "bob", who=3, **WOVEN)
    rig.settle(7, (4, 4))
    assert rig.pushed(7) == [6, 3, 4, 7]
    assert shown(rig)["settled"] == ((4, 5),)


def test_credit_is_kept_to_and_a_settlement_of_what_comes_later_counts() -> None:
    rig = woven()
    rig.subscribe(6, "bob", who=2, credit=1, **WOVEN)
    assert rig.pushed(6) == [1]
    rig.settle(6, (3, 3))
    rig.do(x.CreditGranted(6, 1 << 20))
    assert rig.pushed(6) == [1, 2, 5, 6, 4, 7]


def test_what_is_trimmed_is_passed_in_each_leg() -> None:
    rig = woven()
    rig.do(x.AdminRequested(9, 1, "local", "stream.trim", {"name": "s", "floor": 4}))
    rig.subscribe(6, "bob", who=2, **WOVEN)
    assert rig.pushed(6) == [5, 6, 4, 7]
    rig.settle(6, (4, 7))
    assert shown(rig)["floor"] == 0, "nobody has said yet that the gap is known"
    rig.settle(6, (1, 3))
    assert shown(rig)["floor"] == 7


def test_what_was_published_meanwhile_comes_behind() -> None:
    rig = woven(legs=((x.Place(row=1), 1), (x.Place(2), 1)))
    rig.subscribe(6, "bob", who=2, **WOVEN)
    assert rig.pushed(6) == [1, 6, 2, 3, 4, 5, 7]


RANGES = st.sets(st.integers(1, 12)).map(lambda found: joined((one, one) for one in found))


@settings(deadline=None)
@given(st.permutations(range(4, 11)), st.integers(0, 12), RANGES)
def test_the_way_of_a_cursor_is_what_it_has_not_done_with_in_the_order_of_the_legs(
    places: list[int], floor: int, settled: tuple[tuple[int, int], ...]
) -> None:
    weave = tuple((place, place) for place in places)
    order = [1, 2, 3, *places, 11, 12]
    way = [sequence for first, last in way_of(weave, floor) for sequence in range(first, last + 1)]
    assert [*way, *range(max((floor, *way)) + 1, 13)] == [one for one in order if one > floor]
    done = {one for a, b in settled for one in range(a, b + 1)}
    waiting = [one for one in order if one > floor and one not in done]
    first, last = next_of(weave, floor, settled, 12)
    assert first == (waiting[0] if waiting else 13)
    # What may be given together: what waits, one behind the other.
    together = [one for index, one in enumerate(waiting) if waiting[: index + 1] == [*range(first, one + 1)]]
    if waiting:
        assert last >= together[-1]
        assert {*range(first, last + 1)} - done <= {*waiting[: last + 1 - first]}


def test_what_comes_next_goes_on_over_legs_that_follow_one_another() -> None:
    assert next_of(((2, 3), (4, 4), (5, 5), (9, 9), (6, 8)), 1, (), 12) == (2, 5)
    assert next_of(((2, 3), (9, 9), (4, 4), (5, 8)), 1, ((9, 9),), 12) == (2, 12)
    assert next_of(((4, 5), (2, 3)), 1, (), 12) == (4, 5)
    assert next_of(((8, 9), (4, 5)), 3, ((10, 11),), 14) == (8, 9)


def test_a_weave_is_completed_and_cut() -> None:
    assert completed(((7, 8), (3, 4)), 10) == ((7, 8), (3, 4), (5, 6), (9, 10))
    assert completed((), 10) == ()
    assert cut_from(((7, 8), (3, 6), (9, 9)), 8) == ((7, 7), (3, 6))
