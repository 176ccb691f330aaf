"""Attempts are counted by ranges: what is tried alike is one range, and what is done with is not counted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.streams.rig import Rig
from veredus.streams import exchange as x
from veredus.streams.ranges import joined
from veredus.streams.tables import StreamsLimits
from veredus.streams.tries import Tries

SEQUENCES = st.integers(1, 40)
OWN = {"mode": x.SettleMode.INDIVIDUAL, "parked_to": "dead", "attempts_max": 5}


@given(st.lists(st.tuples(st.sampled_from(["add", "add", "drop", "set"]), SEQUENCES, SEQUENCES)), SEQUENCES, SEQUENCES)
def test_each_sequence_counts_as_often_as_it_was_tried(steps: list[tuple[str, int, int]], low: int, high: int) -> None:
    tries = Tries()
    counts = [0] * 42
    for what, first, last in steps:
        if what == "add":
            tries.end(first)
            tries.begin(first)
            counts[first] += 1
        elif what == "set":
            tries.set(first, max(first, last), 2)
            counts[first : max(first, last) + 1] = [2] * (max(first, last) + 1 - first)
        else:
            tries.drop(first, last)
            counts[first : last + 1] = [0] * len(counts[first : last + 1])
        tries.check()
    assert [tries.at(sequence) for sequence in range(42)] == counts
    assert list(Tries(tries)) == list(tries)
    within = {place: count for a, b, count in tries.within(low, high) for place in range(a, b + 1)}
    assert within == {place: counts[place] for place in range(low, high + 1) if counts[place]}
    once_more = {place: count for a, b, count in tries.and_one_more(low, high) for place in range(a, b + 1)}
    assert once_more == {place: counts[place] + 1 for place in range(low, high + 1)}


@given(
    st.lists(st.tuples(SEQUENCES, st.booleans()), max_size=40),
    st.lists(st.tuples(SEQUENCES, st.integers(0, 3)), max_size=24),
)
def test_ranges_that_are_dropped_at_once_are_dropped_as_each_by_itself(
    tried: list[tuple[int, bool]], ranges: list[tuple[int, int]]
) -> None:
    one_by_one, at_once = Tries(), Tries()
    for tries in (one_by_one, at_once):
        for sequence, is_taken_again in tried:
            tries.end(sequence)
            if is_taken_again:
                tries.begin(sequence)
    dropped = joined((first, first + more) for first, more in ranges)
    for bounds in dropped:
        one_by_one.drop(*bounds)
    at_once.drop_all(dropped)
    at_once.check()
    assert (list(at_once), at_once.returned) == (list(one_by_one), one_by_one.returned)


def test_what_one_request_settles_over_and_over_is_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = rig_of(40)
    for sequence in range(1, 31):
        retry(rig, sequence)
    looks: list[tuple[int, int]] = []
    drop = Tries.drop
    monkeypatch.setattr(Tries, "drop", lambda tries, *bounds: (looks.append(bounds), drop(tries, *bounds)))
    rig.settle(5, *[(1, 40)] * 500, *[(2, 30)] * 500)
    assert looks[:1] == [(1, 40)]
    assert len(looks) <= 2, "its own, and what the journal has then"
    assert tries_of(rig) == []


def rig_of(count: int, unsettled_max: int = 16_384) -> Rig:
    rig = Rig(limits=StreamsLimits(unsettled_max=unsettled_max))
    grant = rig.attach(1)
    rig.attach(2, stream="dead")
    rig.publish(grant, 1, count)
    rig.subscribe(5, "bob", **OWN)
    return rig


def tries_of(rig: Rig) -> list[tuple[int, int, int]]:
    return list(rig.floor.tables.streams["s"].subscriptions["bob", "main"].tries)


def retry(rig: Rig, sequence: int) -> x.ConfirmReturned | x.Refuse:
    answer = rig.do(x.ReturnRequested(5, sequence, is_retry=True))[-1]
    assert isinstance(answer, x.ConfirmReturned | x.Refuse)
    return answer


def test_what_is_settled_after_it_was_tried_is_not_counted_any_more() -> None:
    rig = rig_of(100)
    for sequence in range(2, 101, 2):
        retry(rig, sequence)
        rig.settle(5, (sequence, sequence))
        rig.time_ns += 1
    assert tries_of(rig) == [], "though the first one holds the floor"


def test_what_becomes_a_dead_letter_is_not_counted_any_more() -> None:
    rig = rig_of(4)
    for _ in range(5):
        rig.do(x.ReturnRequested(5, 2, is_retry=True))
        rig.do(x.ReturnRequested(5, 2, is_retry=True, is_taken=True))
    assert (tries_of(rig), rig.said_to(5, x.ConfirmReturned)[-2].is_parked) == ([], True)


def test_no_more_attempts_are_counted_than_a_cursor_may_have_ranges() -> None:
    rig = rig_of(20, unsettled_max=4)
    answers = [retry(rig, sequence) for sequence in range(1, 20, 2)]
    refused = [answer for answer in answers if isinstance(answer, x.Refuse)]
    assert len(tries_of(rig)) <= 4
    assert {(answer.code, answer.is_final) for answer in refused} == {("too-many-ranges", False)}
    rig.settle(5, (1, 3))
    assert isinstance(retry(rig, 15), x.ConfirmReturned)
