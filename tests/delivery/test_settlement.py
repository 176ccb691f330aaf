"""A cursor's ledger agrees with plain sets of sequences, whatever is pushed, passed over and settled."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veredus.delivery.settlement import Ledger, Range

STEPS = st.lists(
    st.tuples(st.just("push"), st.integers(0, 3), st.integers(1, 6))
    | st.tuples(st.just("pass"), st.integers(0, 5), st.just(0))
    | st.tuples(st.just("settle"), st.integers(0, 40), st.integers(0, 12))
    | st.tuples(st.just("reopen"), st.integers(1, 40), st.integers(0, 6)),
    max_size=40,
)


def members(ranges: tuple[Range, ...]) -> set[int]:
    return {sequence for first, last in ranges for sequence in range(first, last + 1)}


@dataclass
class Model:
    """What was pushed and is not settled, one sequence at a time."""

    floor: int
    position: int = field(init=False)
    unsettled: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.position = self.floor + 1

    def expected_floor(self) -> int:
        return min(self.unsettled) - 1 if self.unsettled else self.position - 1


def agree(ledger: Ledger, model: Model) -> None:
    ledger.check()
    assert ledger.position == model.position
    assert ledger.floor == model.expected_floor()
    assert members(ledger.unsettled) == model.unsettled
    assert ledger.unsettled_count == len(ledger.unsettled)
    assert members(ledger.settled) == set(range(ledger.floor + 1, model.position)) - model.unsettled


@given(st.integers(0, 5), STEPS)
def test_an_individual_ledger_agrees_with_a_set(floor: int, steps: list[tuple[str, int, int]]) -> None:
    ledger, model = Ledger(floor, is_ordered=False), Model(floor)
    for step, one, other in steps:
        meant = set(range(one, one + other + 1))
        if step == "push":
            first, last = model.position + one, model.position + one + other - 1
            ledger.push(first, last)
            model.unsettled |= set(range(first, last + 1))
            model.position = last + 1
        elif step == "pass":
            ledger.pass_to(model.position + one - 2)
            model.position = max(model.position, model.position + one - 2)
        elif step == "reopen" and one + other < model.position:
            ledger.reopen(one, one + other)
            model.unsettled |= meant
        elif step == "settle":
            assert ledger.settle(one, one + other)
            model.unsettled -= meant
        agree(ledger, model)


@given(st.integers(0, 5), STEPS)
def test_an_ordered_ledger_agrees_with_a_set(floor: int, steps: list[tuple[str, int, int]]) -> None:
    ledger, pushed, rejected, position = Ledger(floor), set[int](), set[int](), floor + 1
    for step, one, other in steps:
        if step == "push":
            first = position + one
            rejected |= set(range(position, first))
            pushed |= set(range(first, first + other))
            position = first + other
            ledger.push(first, position - 1)
        elif step == "pass":
            rejected |= set(range(position, position + one))
            position += one
            ledger.pass_to(position)
        elif step == "settle":
            assert ledger.settle(0, one)
            pushed = {sequence for sequence in pushed if sequence > one}
        ledger.check()
        assert ledger.position == position
        waiting = members(ledger.unsettled)
        # Between two pushes it may cover what was rejected; it covers all that was pushed, and is one range.
        assert pushed <= waiting <= pushed | rejected
        assert ledger.unsettled_count <= 1
        assert ledger.floor <= min(pushed, default=position) - 1
        if not pushed:
            ledger.settle(0, position - 1)
            assert ledger.floor == position - 1


def test_pushes_that_follow_one_another_are_one_range() -> None:
    ledger = Ledger(10, is_ordered=False)
    ledger.push(11, 12)
    ledger.push(13, 20)
    ledger.push(22, 22)
    assert ledger.unsettled == ((11, 20), (22, 22))
    assert (ledger.floor, ledger.position) == (10, 23)
    assert ledger.settled == ((21, 21),)


def test_a_settlement_in_the_middle_cuts_a_range_in_two() -> None:
    ledger = Ledger(0, is_ordered=False)
    ledger.push(1, 9)
    assert ledger.settle(4, 5)
    assert ledger.unsettled == ((1, 3), (6, 9))
    assert ledger.settle(4, 5)
    assert ledger.unsettled == ((1, 3), (6, 9))
    assert ledger.floor == 0
    assert ledger.settle(0, 3)
    assert (ledger.floor, ledger.settled) == (5, ())


def test_rejected_sequences_move_the_floor_by_themselves() -> None:
    ledger = Ledger(0)
    ledger.pass_to(50)
    assert (ledger.floor, ledger.unsettled) == (49, ())
    ledger.pass_to(20)
    assert ledger.position == 50


def test_settling_what_was_not_pushed_changes_nothing() -> None:
    ledger = Ledger(5, is_ordered=False)
    ledger.push(6, 7)
    for first, last in ((8, 100), (0, 5)):
        assert ledger.settle(first, last)
        assert (ledger.floor, ledger.position, ledger.unsettled) == (5, 8, ((6, 7),))


def test_what_an_ordered_ledger_covers_already_can_be_opened_again() -> None:
    ledger = Ledger(0)
    ledger.push(1, 3)
    ledger.push(6, 7)
    assert ledger.unsettled == ((1, 7),)
    ledger.reopen(4, 5)
    ledger.check()
    assert ledger.unsettled == ((1, 7),)
    ledger.settle(0, 6)
    ledger.reopen(4, 5)
    ledger.check()
    assert ledger.floor == 3


@pytest.mark.parametrize("count", [1, 3])
def test_a_full_ledger_cuts_no_range_in_two(count: int) -> None:
    ledger = Ledger(0, is_ordered=False, ranges_max=count)
    ledger.push(1, 100)
    for index in range(1, count):
        assert not ledger.is_full
        assert ledger.settle(index * 10, index * 10)
    assert ledger.is_full
    before = ledger.unsettled
    assert not ledger.settle(55, 56)
    assert ledger.unsettled == before
    # What makes no more ranges of them is settled all the same.
    assert ledger.settle(1, 2)
    assert ledger.settle(100, 100)
    assert ledger.settle(9, 99)
    assert not ledger.is_full or count == 1
    ledger.check()


def test_alternate_settlements_never_exceed_the_bound() -> None:
    ledger = Ledger(0, is_ordered=False, ranges_max=64)
    ledger.push(1, 10_000)
    for sequence in range(2, 10_000, 2):
        ledger.settle(sequence, sequence)
        assert ledger.unsettled_count <= 64
    assert ledger.settle(1, 10_000)
    assert ledger.floor == 10_000
