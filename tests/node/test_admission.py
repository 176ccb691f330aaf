"""Whoever proves who they are finds a place, however many come that prove nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veredus.node.admission import Admission, AdmissionLimits, limits_within, origin_of

SECOND = 10**9
LIMITS = AdmissionLimits(count_max=100, listener_max=80, unproven_max=20, address_max=10, greeting_timeout_ns=SECOND)


def admitted(admission: Admission, listener: str = "tcp", address: str = "10.0.0.1", now_ns: int = 0) -> int:
    key, _ = admission.enter(listener, address, now_ns)
    assert key
    return key


def test_the_oldest_silent_connection_of_a_full_address_makes_room_for_the_next_one() -> None:
    admission = Admission(LIMITS)
    first = admitted(admission)
    admission.hear(first)
    second = admitted(admission)
    for _ in range(8):
        admitted(admission)
    _, displaced = admission.enter("tcp", "10.0.0.1", 0)
    assert displaced == (second,), "the first was heard, the second said nothing"


def test_an_address_with_many_unproven_connections_costs_no_other_address_a_place() -> None:
    admission = Admission(LIMITS)
    victim = admitted(admission, address="10.0.0.2")
    for _ in range(10_000):
        _, displaced = admission.enter("tcp", "10.0.0.1", 0)
        assert victim not in displaced
    admission.prove(victim)
    assert len(admission) == 11


def test_where_many_addresses_come_the_one_with_the_most_connections_makes_room() -> None:
    admission = Admission(LIMITS)
    crowd = [admitted(admission, address="10.0.0.1") for _ in range(3)]
    for number in range(17):
        admitted(admission, address=f"10.0.1.{number}")
    assert admission.enter("tcp", "10.0.2.1", 0)[1] == (crowd[0],)
    assert admission.enter("unix", "user:1", 0)[1] == (crowd[1],)


def test_strangers_never_take_the_last_places() -> None:
    admission = Admission(limits_within(100, 100, 1000, 1000, SECOND))
    for number in range(1000):
        admission.enter("tcp", f"10.0.{number % 250}.1", 0)
    assert admission.unproven_count == 25
    for number in range(75):
        admission.prove(admitted(admission, "tls" if number % 2 else "tcp", "10.1.1.1"))
    assert len(admission) == 99


def test_a_listener_that_is_full_of_proven_peers_leaves_room_at_the_others() -> None:
    admission = Admission(LIMITS)
    for _ in range(80):
        admission.prove(admitted(admission))
    assert admission.enter("tcp", "10.0.0.2", 0) == (0, ())
    assert admission.refused_count == 1
    admission.prove(admitted(admission, "unix", "user:1"))


def test_a_thousand_connections_of_one_address_are_welcome_with_the_settings_as_they_are() -> None:
    admission = Admission(limits_within(10_000, 9_000, 2_000, 1_000, 5 * SECOND))
    keys = []
    for _ in range(1_000):
        key, displaced = admission.enter("tcp", "127.0.0.1", 0)
        assert displaced == ()
        keys.append(key)
    for key in keys:
        admission.prove(key)
    assert len(admission) == 1_000


def test_a_node_that_was_away_has_the_unproven_greet_anew_in_the_order_in_which_they_came() -> None:
    admission = Admission(LIMITS)
    first, second, proven = (admitted(admission, now_ns=number) for number in range(3))
    admission.prove(proven)
    admission.wait_anew(50 * SECOND)
    third = admitted(admission, now_ns=50 * SECOND)
    assert list(admission.take_late(51 * SECOND - 1)) == []
    assert list(admission.take_late(51 * SECOND)) == [first, second, third]


def test_handshake_and_greeting_share_one_time() -> None:
    admission = Admission(LIMITS)
    early, later = admitted(admission, now_ns=0), admitted(admission, now_ns=SECOND // 2)
    assert admission.left_ns(early, SECOND // 4) == SECOND * 3 // 4
    assert list(admission.take_late(SECOND - 1)) == []
    assert list(admission.take_late(SECOND)) == [early]
    admission.prove(later)
    assert list(admission.take_late(10 * SECOND)) == []
    assert (len(admission), admission.late_count) == (1, 1)


def test_room_is_made_by_the_unproven_alone_when_files_run_out() -> None:
    admission = Admission(LIMITS)
    assert admission.make_room() == 0
    proven, unproven = admitted(admission), admitted(admission)
    admission.prove(proven)
    assert admission.make_room() == unproven
    assert admission.make_room() == 0


@pytest.mark.parametrize(
    ("address", "origin"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("user:1000", "user:1000"),
    ],
)
def test_what_one_peer_has_by_nature_counts_as_one_address(address: str, origin: str) -> None:
    assert origin_of(address) == origin


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 30), st.sampled_from(["tcp", "tls"])), max_size=200))
def test_whatever_happens_the_bounds_hold_and_the_proven_stay(steps: list[tuple[int, int, str]]) -> None:
    admission = Admission(AdmissionLimits(12, 8, 5, 3, SECOND))
    alive: list[int] = []
    proven: set[int] = set()
    for number, (step, which, listener) in enumerate(steps):
        now_ns = number * SECOND // 8
        if step <= 2:
            key, displaced = admission.enter(listener, f"10.0.0.{which % 4}", now_ns)
            assert not proven & set(displaced)
            alive = [*(one for one in alive if one not in displaced), *([key] if key else [])]
        elif alive:
            key = alive[which % len(alive)]
            if step == 3:
                admission.hear(key)
            elif step == 4:
                admission.prove(key)
                proven.add(key)
            else:
                admission.leave(key)
                alive.remove(key)
                proven.discard(key)
        late = list(admission.take_late(now_ns))
        assert not proven & set(late)
        alive = [one for one in alive if one not in late]
        admission.check()
        assert len(admission) == len(alive)
