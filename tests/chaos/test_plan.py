"""A plan follows from its seed alone, and what cannot be run is refused with the place where it says so."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from veredus.chaos.content import body_of, identity_in, key_of
from veredus.chaos.plan import FAULTS, NODE, SUNK, TOPIC, Plan, decoded, draw, encoded, faults_of
from veredus.kernel.errors import Misuse


def plans() -> list[Plan]:
    return [draw(seed, 60, FAULTS) for seed in range(30)]


def test_the_same_seed_gives_the_same_plan_in_every_process() -> None:
    asked = "from veredus.chaos.plan import *; print(encoded(draw(7, 20, FAULTS)).decode(), end='')"
    elsewhere = subprocess.run(
        [sys.executable, "-c", asked], env={**os.environ, "PYTHONHASHSEED": "5"}, capture_output=True, check=True
    )
    assert elsewhere.stdout == encoded(draw(7, 20, FAULTS))


def test_each_seed_gives_a_plan_of_its_own() -> None:
    assert len({encoded(plan) for plan in plans()}) == 30


def test_a_plan_that_was_written_down_is_the_one_that_is_read() -> None:
    plan = draw(3, 20, FAULTS)
    assert decoded(encoded(plan)) == plan
    with pytest.raises(Misuse, match="not a valid plan"):
        decoded(b'{"seed": "three"}')


def test_strikes_come_in_order_within_the_run_and_leave_it_calm_at_both_ends() -> None:
    for plan in plans():
        times = [strike.at_ms for strike in plan.strikes]
        assert times == sorted(times)
        assert times[0] >= 1_000
        assert times[-1] < 59_000


def test_every_fault_comes_before_any_comes_again() -> None:
    for plan in plans():
        first_deck = [strike.fault for strike in plan.strikes[: len(FAULTS)]]
        assert sorted(first_deck) == sorted(FAULTS)


def test_only_those_who_take_part_are_struck_and_only_as_can_be() -> None:
    for plan in plans():
        members = {member.name: member for member in plan.members}
        for strike in plan.strikes:
            assert strike.on == NODE or strike.on in members
            if strike.fault == "proxy":
                assert members[strike.on].door == "proxy"
            if strike.fault == "zombie":
                assert strike.on in members
            if strike.fault in ("netem", "full", "unsynced", "flip", "clock"):
                assert strike.on == NODE


def test_one_fault_less_changes_nobodys_nature() -> None:
    assert draw(5, 60, FAULTS).members == draw(5, 60, ("kill",)).members


def test_every_stream_that_is_written_to_is_subscribed_to() -> None:
    for plan in plans():
        assert set(plan.streams) == {member.stream for member in plan.members if member.role == "subscriber"}
        assert SUNK in plan.streams


def test_a_run_without_faults_has_no_strikes() -> None:
    assert draw(1, 10, ()).strikes == ()


def test_clients_of_the_page_change_nobody_else_and_are_never_zombies() -> None:
    plain, paged = draw(5, 60, FAULTS), draw(5, 60, FAULTS, page_count=4)
    pages = paged.members[len(plain.members) :]
    assert paged.members[: len(plain.members)] == plain.members
    assert [member.role for member in pages] == ["page-source", "page-subscriber"] * 2
    for seed in range(20):
        struck = [s.on for s in draw(seed, 60, ("zombie",), page_count=8).strikes]
        assert not [name for name in struck if name.startswith("page-")]


def test_clients_of_the_topics_page_come_with_a_proxy_change_nobody_else_and_are_never_zombies() -> None:
    plain, topical = draw(5, 60, FAULTS), draw(5, 60, FAULTS, topic_count=3)
    added = topical.members[len(plain.members) :]
    assert topical.members[: len(plain.members)] == plain.members
    assert [member.role for member in added] == ["topic-proxy", "topic-subscriber", "topic-source", "topic-subscriber"]
    assert set(topical.streams) - set(plain.streams) == {TOPIC}
    for seed in range(20):
        struck = [s.on for s in draw(seed, 60, ("zombie",), topic_count=8).strikes]
        assert not [name for name in struck if name.startswith("topics-")]


@pytest.mark.parametrize(
    ("what", "changed"),
    [
        ("seconds is 2: it may be 3 to 3600", {"seconds": 2}),
        ("seconds is 3601", {"seconds": 3601}),
        ("sources is 0: it may be 1 to 16", {"source_count": 0}),
        ("subscribers is 17", {"subscriber_count": 17}),
        ("sinks is -1", {"sink_count": -1}),
        ("topics is 17", {"topic_count": 17}),
    ],
)
def test_what_cannot_be_run_is_refused_by_the_name_of_the_number(what: str, changed: dict[str, int]) -> None:
    with pytest.raises(Misuse, match=what):
        draw(**{"seed": 1, "seconds": 10, "faults": FAULTS} | changed)


def test_an_unknown_fault_is_refused_with_its_place_in_the_list() -> None:
    assert faults_of("kill, flip,kill") == ("kill", "flip")
    with pytest.raises(Misuse, match="fault 2 of 'kill,flop' is 'flop': there are kill, pause") as refused:
        faults_of("kill,flop")
    assert refused.value.details == {"index": 1}


def test_a_body_says_whose_it_is_and_two_are_never_alike() -> None:
    bodies = {body_of(source, number) for source in ("a", "b") for number in range(1, 2_000)}
    assert len(bodies) == 2 * 1_999
    assert identity_in(body_of("source-1", 42)) == ("source-1", 42)
    assert identity_in(b"something else") == ("", 0)
    assert key_of("a", 4).startswith(b"even.")
    assert key_of("a", 5).startswith(b"odd.")
