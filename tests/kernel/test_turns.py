"""Whoever asks for much waits for its turn, whoever asks for little goes on at once, and everybody gets done."""

from hypothesis import given
from hypothesis import strategies as st

from veredus.kernel.engine import Now
from veredus.kernel.turns import Turns


def at(turn: int) -> Now:
    return Now(turn, 0)


def test_a_payer_that_owes_nothing_goes_on_at_once() -> None:
    turns: Turns[str, int] = Turns(quantum_ns=100)
    turns.charge("glutton", 1000, at(1))
    assert not turns.may_go("glutton", at(1))
    assert turns.may_go("modest", at(1))


def test_a_debt_is_paid_off_by_the_turns_that_follow() -> None:
    turns: Turns[str, int] = Turns(quantum_ns=100)
    turns.charge("glutton", 250, at(1))
    assert not turns.may_go("glutton", at(2))
    assert turns.may_go("glutton", at(3))
    assert turns.may_go("glutton", at(4))


def test_nothing_is_kept_of_payers_that_have_paid_and_do_not_come_again() -> None:
    turns: Turns[int, int] = Turns(quantum_ns=100)
    counts = []
    for passer_by in range(20_000):
        turns.charge(passer_by, 1000, at(1 + passer_by))
        counts.append(turns.owing_count)
    assert max(counts) < 2_000
    assert not turns.may_go(19_999, at(20_000))


def test_what_comes_behind_something_that_waits_waits_too() -> None:
    turns: Turns[str, int] = Turns(quantum_ns=100)
    turns.may_go("a", at(1))
    turns.wait("a", 1)
    assert not turns.may_go("a", at(2))
    assert turns.due(at(3)) == [1]
    assert turns.may_go("a", at(3))


def test_a_crowd_has_one_share_for_all_of_it() -> None:
    turns: Turns[str, int] = Turns(quantum_ns=100, is_of_crowd=lambda payer: payer.startswith("stranger"))
    assert turns.may_go("stranger-1", at(1))
    turns.charge("stranger-1", 60, at(1))
    assert turns.may_go("stranger-2", at(1))
    turns.charge("stranger-2", 190, at(1))
    assert not turns.may_go("stranger-3", at(1))
    assert turns.has_share("stranger-3", at(1)), "who has got its turn keeps it, whatever others took before it"
    assert turns.may_go("known", at(1))
    assert not turns.may_go("stranger-3", at(2))
    assert turns.may_go("stranger-3", at(3))


def test_of_a_crowd_that_waits_a_few_get_their_turn_at_once_and_all_get_one() -> None:
    turns: Turns[str, int] = Turns(is_of_crowd=lambda payer: payer.startswith("stranger"))
    for item in range(1_000):
        turns.wait(f"stranger-{item}", item)
    turns.wait("known", 1_000)
    taken: list[int] = []
    turn = 0
    while turns.deadline() is not None:
        turn += 1
        due = turns.due(at(turn))
        assert len(due) <= 17
        assert (1_000 in due) == (turn == 1)
        for item in due:
            if item < 1_000:
                turns.charge(f"stranger-{item}", 10_000, at(turn))
        taken += [item for item in due if item < 1_000]
    assert taken == list(range(1_000))
    assert turn < 130


def test_each_payer_gets_one_item_done_in_a_turn_and_payers_go_round() -> None:
    turns: Turns[str, int] = Turns(quantum_ns=100)
    turns.may_go("a", at(1))
    for item in (1, 2, 3):
        turns.wait("a", item)
    turns.wait("b", 10)
    assert turns.due(at(2)) == [1, 10]
    assert turns.due(at(3)) == [2]
    turns.wait("b", 11)
    assert turns.due(at(4)) == [3, 11]
    assert turns.deadline() is None


def test_once_enough_was_spent_for_all_the_others_come_first_in_the_next_turn() -> None:
    turns: Turns[int, int] = Turns(quantum_ns=100)
    for payer in range(10):
        turns.wait(payer, payer)
    done: list[int] = []
    for turn in (1, 2, 3, 4):
        for item in turns.each(at(turn)):
            turns.charge(item, 150, at(turn))
            done.append(item)
        assert done == list(range(min(10, 3 * turn)))


def test_round_after_round_each_payer_gets_its_share_of_a_turn() -> None:
    turns: Turns[str, tuple[str, int]] = Turns(quantum_ns=100)
    for number in range(5):
        turns.wait("a", ("a", number))
        turns.wait("b", ("b", number))
    done: list[tuple[str, int]] = []
    for payer, number in turns.rounds(at(1)):
        turns.charge(payer, 60 if payer == "a" else 30, at(1))
        done.append((payer, number))
    assert done == [("a", 0), ("b", 0), ("a", 1), ("b", 1), ("b", 2), ("b", 3)]


def test_an_item_waits_once_and_is_forgotten_when_it_is_gone() -> None:
    turns: Turns[str, int] = Turns()
    turns.may_go("a", at(1))
    turns.wait("a", 1)
    turns.wait("a", 1)
    turns.forget(1)
    turns.forget(1)
    assert turns.deadline() is None
    assert turns.due(at(2)) == []


STEPS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 9), st.integers(0, 500)), max_size=40)


@given(STEPS)
def test_everything_that_waits_gets_its_turn_in_the_order_of_its_payer(steps: list[tuple[str, int, int]]) -> None:
    turns: Turns[str, tuple[str, int]] = Turns(quantum_ns=100)
    asked: dict[tuple[str, int], None] = {}
    for turn, (payer, number, cost) in enumerate(steps):
        turns.charge(payer, cost, at(turn))
        turns.wait(payer, (payer, number))
        asked[payer, number] = None
    done: list[tuple[str, int]] = []
    turn = len(steps)
    while (due := turns.deadline()) is not None:
        turn += 1
        assert due <= turn
        assert turn < 10_000
        done += turns.due(at(turn))
    assert sorted(done) == sorted(asked)
    for payer in "abc":
        assert [item for item in done if item[0] == payer] == [item for item in asked if item[0] == payer]
