"""Checks of tokens go round by address: whoever asks for much waits behind his own."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from veredus.node.lookups import Lookups

FLOOD, VICTIM = "192.0.2.1", "192.0.2.2"


def drained(lookups: Lookups) -> list[int]:
    """The keys in the order in which they are checked, one at a time."""
    order = []
    while (key := lookups.next()) is not None:
        order.append(key)
        lookups.finish(key)
    return order


def test_another_address_waits_for_one_check_of_a_flooding_one() -> None:
    lookups = Lookups(1, 100)
    for key in range(90):
        assert lookups.ask(key, FLOOD) is None
    assert lookups.next() == 0
    lookups.ask(1000, VICTIM)
    lookups.finish(0)
    order = drained(lookups)
    assert order.index(1000) <= 1
    assert [key for key in order if key != 1000] == list(range(1, 90)), "who came first is checked first"


def test_where_too_many_wait_the_newest_of_the_address_with_the_most_makes_room() -> None:
    lookups = Lookups(1, 3)
    for key in (1, 2, 3):
        lookups.ask(key, FLOOD)
    assert lookups.ask(4, FLOOD) == 4
    assert lookups.ask(10, VICTIM) == 3
    assert lookups.ask(11, VICTIM) == 2, "of equals, the one whose turn is the last"


def test_an_address_that_comes_anew_has_the_next_turn_though_more_come_than_can_be_checked() -> None:
    lookups = Lookups(1, 50)
    checked = 0
    for come in range(500):
        lookups.ask(come, f"192.0.{2 + come // 250}.{come % 250}")
        if come % 3 == 0:
            assert lookups.next() == come
            checked += 1
            lookups.finish(come)
    assert checked == 167


def test_addresses_that_come_again_and_again_do_not_pass_for_new() -> None:
    lookups = Lookups(1, 50)
    lookups.ask(0, FLOOD)
    lookups.ask(1, "192.0.2.3")
    drained(lookups)
    lookups.ask(10, VICTIM)
    lookups.ask(11, FLOOD)
    order = []
    for key in range(12, 20):
        order.append(running := lookups.next())
        assert running is not None
        lookups.finish(running)
        lookups.ask(key, FLOOD if key % 2 else "192.0.2.3")
    assert 10 in order[:2]


def test_an_address_where_somebody_has_proved_who_he_is_waits_for_no_crowd() -> None:
    lookups = Lookups(1, 5_000)
    crowd = [f"198.51.{100 + number // 250}.{number % 250}" for number in range(1_900)]
    for key, address in enumerate(crowd):
        lookups.ask(key, address)
    drained(lookups)
    lookups.prove(VICTIM)
    for key, address in enumerate(crowd):
        lookups.ask(key, address)
        lookups.ask(10_000 + key, f"203.0.{key // 250}.{key % 250}")
    lookups.ask(5_000, VICTIM)
    lookups.ask(5_001, VICTIM)
    assert {5_000, 5_001} <= set(drained(lookups)[:6])


def test_addresses_that_were_seen_have_their_turns_beside_new_ones_without_end() -> None:
    lookups = Lookups(1, 50)
    lookups.ask(0, VICTIM)
    drained(lookups)
    lookups.ask(1, VICTIM)
    order = []
    for key in range(10, 14):
        lookups.ask(key, f"198.51.100.{key}")
        order.append(running := lookups.next())
        assert running is not None
        lookups.finish(running)
    assert 1 in order[:2]


def test_what_continues_a_check_has_every_second_turn() -> None:
    lookups = Lookups(1, 50)
    for key in range(4):
        lookups.ask(key, f"192.0.2.{key}")
    for key in range(100, 104):
        lookups.ask(key, f"198.51.100.{key}", is_begun=True)
    assert drained(lookups) == [103, 3, 102, 2, 101, 1, 100, 0]


def test_what_was_saved_up_to_be_continued_at_once_waits_for_its_address_to_have_turns() -> None:
    lookups = Lookups(1, 2000)
    for key in range(950):
        lookups.ask(key, FLOOD, is_begun=True)
    lookups.ask(1000, VICTIM)
    lookups.ask(1001, "192.0.2.3", is_begun=True)
    assert {1000, 1001} <= set(drained(lookups)[:4])


def test_hosts_of_one_ipv6_network_share_one_turn() -> None:
    lookups = Lookups(1, 10)
    lookups.ask(1, "2001:db8::1")
    lookups.ask(2, "2001:db8::2")
    lookups.ask(3, VICTIM)
    assert drained(lookups) == [3, 1, 2]


STEPS = st.lists(
    st.tuples(st.sampled_from(["ask", "go on", "next", "finish", "forget"]), st.integers(0, 5)), max_size=60
)


@given(STEPS)
def test_no_more_wait_or_are_checked_than_may_and_each_is_checked_once(steps: list[tuple[str, int]]) -> None:
    lookups, running, asked, checked = Lookups(2, 4), list[int](), 0, list[int]()
    for step, which in steps:
        match step:
            case "ask":
                asked += 1
                lookups.ask(asked, f"192.0.2.{which}")
            case "go on":
                asked += 1
                lookups.ask(asked, f"192.0.2.{which}", is_begun=True)
            case "next":
                key = lookups.next()
                if key is not None:
                    running.append(key)
                    checked.append(key)
            case "finish" if running:
                lookups.finish(running.pop(which % len(running)))
            case "forget":
                lookups.forget(which)
        lookups.check()
    assert len(set(checked)) == len(checked)
