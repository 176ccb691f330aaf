"""What waits to be written is bounded over all links, and a peer that takes nothing of it is let go."""

from collections.abc import Mapping

from veredus.node.sending import CLOSE_NS, PRESSED_SIZE, Abandon, SendBudget, SendLimits, Waiting

MIB, SECOND = 1 << 20, 10**9
LIMITS = SendLimits(size_max=100 * MIB, link_size_max=4 * MIB, silence_max_ns=30 * SECOND)


def waits(
    link: int,
    size: int = MIB,
    written: int = 0,
    received: int = 0,
    is_unheard: bool = False,
    is_closing: bool = False,
    is_proven: bool = True,
    shared: Mapping[int, int] = {},
) -> Waiting:
    return Waiting(link, size, written, received, is_unheard, is_closing, is_proven, shared)


def abandoned(orders: list[Abandon]) -> list[int]:
    return [order.link for order in orders]


def test_a_peer_that_takes_nothing_is_let_go_and_a_slow_one_is_not() -> None:
    budget = SendBudget(LIMITS)
    assert budget.look([waits(1), waits(2)], 0) == []
    assert budget.look([waits(1), waits(2, written=1)], 29 * SECOND) == []
    assert abandoned(budget.look([waits(1), waits(2, written=1)], 30 * SECOND)) == [1]
    assert budget.abandoned_count == 1


def test_the_time_of_a_peer_begins_anew_once_it_has_taken_all() -> None:
    budget = SendBudget(LIMITS)
    budget.look([waits(1)], 0)
    budget.look([], 20 * SECOND)
    budget.look([waits(1)], 40 * SECOND)
    assert budget.look([waits(1)], 60 * SECOND) == []


def test_a_link_that_is_to_be_closed_has_less_time_for_its_last_words() -> None:
    budget = SendBudget(LIMITS)
    budget.look([waits(1, is_closing=True)], 0)
    assert abandoned(budget.look([waits(1, is_closing=True)], CLOSE_NS)) == [1]


def test_a_peer_that_takes_nothing_and_sends_is_let_go_when_it_sends_no_more() -> None:
    budget = SendBudget(LIMITS)
    for second in range(100):
        assert budget.look([waits(1, received=second)], second * SECOND) == []
    assert budget.look([waits(1, received=99)], 128 * SECOND) == []
    assert abandoned(budget.look([waits(1, received=99)], 129 * SECOND)) == [1]


def test_a_peer_that_is_not_read_from_for_the_nodes_own_reasons_is_not_silent() -> None:
    budget = SendBudget(LIMITS)
    for second in range(100):
        assert budget.look([waits(1, is_unheard=True)], second * SECOND) == []
    assert abandoned(budget.look([waits(1)], 129 * SECOND)) == [1]


def test_a_link_that_is_to_be_closed_gains_no_time_by_sending() -> None:
    budget = SendBudget(LIMITS)
    budget.look([waits(1, is_closing=True)], 0)
    assert abandoned(budget.look([waits(1, received=9, is_unheard=True, is_closing=True)], CLOSE_NS)) == [1]


def test_links_are_congested_early_while_much_waits_in_all() -> None:
    budget = SendBudget(LIMITS)
    budget.look([waits(link, 4 * MIB) for link in range(13)], 0)
    assert budget.link_size_max == PRESSED_SIZE
    budget.look([waits(1)], 0)
    assert budget.link_size_max == 4 * MIB


def test_above_the_bound_the_unproven_go_first_then_who_has_taken_nothing_for_longest() -> None:
    budget = SendBudget(LIMITS)
    links = [waits(link, 30 * MIB, is_proven=link != 3) for link in (1, 2, 3)]
    budget.look(links, 0)
    budget.look([waits(1, 30 * MIB, written=5), *links[1:]], SECOND)
    more = [waits(1, 30 * MIB, written=9), *links[1:], waits(4, 20 * MIB)]
    assert abandoned(budget.look(more, 2 * SECOND)) == [3]
    again = [waits(1, 60 * MIB, written=12), waits(2, 30 * MIB, received=9), waits(4, 20 * MIB)]
    assert abandoned(budget.look(again, 3 * SECOND)) == [2], "it does not help to send"
    assert budget.size == 80 * MIB


def test_twice_the_bound_is_never_exceeded_however_quick_the_peers_are() -> None:
    budget = SendBudget(LIMITS)
    budget.look([waits(link, 4 * MIB) for link in range(100)], 0)
    assert budget.size <= 2 * LIMITS.size_max


def test_what_waits_for_many_links_and_is_in_memory_once_is_counted_once() -> None:
    budget = SendBudget(LIMITS)
    slow = [waits(link, size=4 * MIB + 10, shared={7: 3 * MIB, 8: MIB}) for link in range(1_000)]
    assert budget.look(slow, 0) == budget.look(slow, 10 * SECOND) == []
    assert (budget.size, budget.is_pressed) == (4 * MIB + 10_000, False)


def test_a_buffer_is_counted_until_the_last_that_holds_it_is_let_go_and_as_much_as_waits_for_the_slowest() -> None:
    budget = SendBudget(LIMITS)
    first = [waits(1, size=60 * MIB), waits(2, size=90 * MIB, shared={7: 90 * MIB})]
    budget.look(first, 0)
    both = [*first, waits(3, size=50 * MIB, shared={7: 50 * MIB})]
    assert abandoned(budget.look(both, 10 * SECOND)) == [2, 1]
    assert budget.size == 90 * MIB
