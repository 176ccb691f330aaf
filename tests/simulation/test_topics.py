"""Worlds of topics: they hold what section 2 of seed 000 promises, repeat themselves, and say where it is broken."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from cursus.protocols.topics import keeping, placing
from cursus.protocols.topics.transfer import Row
from cursus.sim import campaign
from cursus.sim.running import run_seed
from cursus.sim.topology import DRAWN, topology_of
from cursus.sim.workloads import Part

TOPICS = replace(DRAWN, scene="topics")
WITHIN = range(1, 61)


def test_a_dozen_worlds_of_topics_hold_every_guarantee_and_merge() -> None:
    outcomes = [run_seed(seed, TOPICS) for seed in range(1, 13)]
    assert [outcome.violation for outcome in outcomes if outcome.violation] == []
    for what in ("conflicts", "topic-merged", "puts", "gets", "subscribed", "unsubscribed"):
        assert sum(outcome.counts[f"topics.{what}"] for outcome in outcomes), what


def test_a_world_of_topics_repeats_itself_whoever_listens() -> None:
    lines: list[str] = []
    assert run_seed(3, TOPICS, lines.append) == run_seed(3, TOPICS)
    assert any("has topic-1" in line for line in lines)


def test_a_hundred_thousand_messages_of_two_servers_are_merged_without_loss_or_double() -> None:
    large = topology_of({"scene": "topics", "streams": 1, "servers": 2, "clients": 2, "bulk": 50_000})
    outcome = run_seed(1, large)
    assert outcome.violation == ""
    assert outcome.counts["topics.puts"] >= 100_000
    assert outcome.counts["topics.topic-merged"] >= 1


def test_a_part_of_a_world_of_topics_takes_place_alone() -> None:
    whole = run_seed(2, TOPICS)
    outcome = run_seed(2, TOPICS, part=Part(frozenset(whole.names) - {"client-1"}, frozenset(), 3))
    assert (outcome.violation, outcome.names, outcome.strikes) == ("", ("client-1",), ())
    assert 0 < outcome.counts["topics.puts"] <= 3


def test_worlds_of_topics_are_asked_for_on_the_command_line_and_reported() -> None:
    said: list[str] = []
    assert campaign.main(["--seeds", "2", "--workers", "1", "--scene", "topics"], said.append) == 0
    assert any(line.split()[:2] == ["topics", "2"] for line in "".join(said).splitlines())


# ── planted bugs ─────────────────────────────────────────────────────────────────────────────────────────────────────


def look_for_no_twins(plant: pytest.MonkeyPatch) -> None:
    def never(_: keeping.Keeping, row: Row) -> bool:
        return row.sequence < 0

    plant.setattr(keeping.Keeping, "_is_twin", never)


def place_everybody_at_the_end(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(placing.Merged, "first_since", lambda merged, _: merged.head + 1)


@pytest.mark.parametrize("plant_bug", [look_for_no_twins, place_everybody_at_the_end])
def test_a_bug_that_is_planted_in_a_merge_is_found(
    plant_bug: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant_bug(monkeypatch)
    assert any(run_seed(seed, TOPICS).violation for seed in WITHIN)
