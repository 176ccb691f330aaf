"""Octets a second of each principal: who has used up his quota waits until that is paid off, and nobody else does."""

from __future__ import annotations

import random

from veredus.kernel.engine import Now
from veredus.node.quotas import BURST_NS, SECOND_NS, Quota

RATE = 1000


def at(seconds: float) -> Now:
    return Now(int(seconds * SECOND_NS) + SECOND_NS, 0)


def test_a_burst_passes_and_what_is_beyond_it_waits_until_it_is_paid_off() -> None:
    quota = Quota(RATE)
    assert not quota.spend("p", 1, RATE * BURST_NS // SECOND_NS, at(0))
    assert quota.spend("p", 1, 500, at(0))
    assert quota.slowed_count == 1
    assert quota.deadline() == at(0.5).monotonic_ns
    assert quota.due(at(0.4)) == []
    assert quota.due(at(0.5)) == [1]
    assert quota.slowed_count == 0


def test_one_that_waits_costs_no_other_anything() -> None:
    quota = Quota(RATE)
    assert quota.spend("greedy", 1, 1_000_000, at(0))
    assert not quota.spend("modest", 2, 100, at(0))
    assert quota.due(at(1)) == []


def test_each_link_of_a_principal_waits_once_and_all_go_on_together() -> None:
    quota = Quota(RATE)
    assert quota.spend("p", 1, 3000, at(0))
    assert not quota.spend("p", 1, 1, at(0))
    assert quota.spend("p", 2, 1, at(0))
    quota.forget("p", 2)
    assert quota.due(at(3)) == [1]


def test_whoever_proves_nothing_and_a_rate_of_zero_know_no_bound() -> None:
    assert not Quota(0).spend("p", 1, 1 << 40, at(0))
    assert not Quota(RATE).spend("", 1, 1 << 40, at(0))


def test_what_is_paid_for_is_forgotten() -> None:
    quota = Quota(RATE)
    for number in range(100):
        quota.spend(f"p{number}", number, 10, at(0))
    assert quota.due(at(10)) == []
    assert quota.deadline() is None
    assert not quota._ahead_to_ns


def test_over_any_time_no_more_passes_than_the_rate_and_a_burst() -> None:
    dice = random.Random(7)
    quota = Quota(RATE)
    seconds, total, is_waiting, biggest = 0.0, 0, False, 200
    while seconds < 60:
        seconds += dice.random() / 50
        is_waiting = is_waiting and not quota.due(at(seconds))
        if not is_waiting:
            size = dice.randrange(1, biggest)
            total += size
            is_waiting = quota.spend("p", 1, size, at(seconds))
        assert total <= RATE * (seconds + BURST_NS / SECOND_NS) + biggest
    assert total >= RATE * 60 * 0.9
