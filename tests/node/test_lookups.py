"""Checks of tokens go round by address: whoever asks for much waits behind his own."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from veredus.node.lookups import Lookups

FLOOD, VICTIM = "192.0.2.1", "192.0.2.2"


def test_another_address_waits_for_one_check_of_a_flooding_one() -> None:
    lookups = Lookups(1, 100)
    for key in range(90):
        assert lookups.ask(key, FLOOD) is None
    assert lookups.next() == 0
    lookups.ask(1000, VICTIM)
    order = []
    while (running := lookups.next()) is not None or not order:
        if running is None:
            lookups.finish(0)
            continue
        order.append(running)
        lookups.finish(running)
    assert order.index(1000) <= 1
    assert [key for key in order if key != 1000] == list(range(1, 90)), "who came first is checked first"


def test_where_too_many_wait_the_newest_of_the_address_with_the_most_makes_room() -> None:
    lookups = Lookups(1, 3)
    for key in (1, 2, 3):
        lookups.ask(key, FLOOD)
    assert lookups.ask(4, FLOOD) == 4
    assert lookups.ask(10, VICTIM) == 3
    assert lookups.ask(11, VICTIM) == 11, "who was there before stays"


def test_hosts_of_one_ipv6_network_share_one_turn() -> None:
    lookups = Lookups(2, 10)
    lookups.ask(1, "2001:db8::1")
    lookups.ask(2, "2001:db8::2")
    lookups.ask(3, VICTIM)
    assert (lookups.next(), lookups.next(), lookups.next()) == (1, 3, None)


STEPS = st.lists(st.tuples(st.sampled_from(["ask", "next", "finish", "forget"]), st.integers(0, 5)), max_size=60)


@given(STEPS)
def test_no_more_wait_or_are_checked_than_may_and_each_is_checked_once(steps: list[tuple[str, int]]) -> None:
    lookups, running, asked, checked = Lookups(2, 4), list[int](), 0, list[int]()
    for step, which in steps:
        match step:
            case "ask":
                asked += 1
                lookups.ask(asked, f"192.0.2.{which}")
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
