"""Real runs with real processes, kept small."""

from __future__ import annotations

from pathlib import Path

from benchmarks import registry
from benchmarks.__main__ import main
from benchmarks.contender import Effort
from benchmarks.harness import Harness

PUSH_PULL = "benchmarks.peers.pyzmq_sockets:push_pull"
TINY = Effort(rounds_count=1, seconds=0.02, latency_count=100)


def test_a_contender_is_measured_with_two_processes_and_verified(tmp_path: Path) -> None:
    results = Harness(tmp_path, TINY, 30, 40).run([PUSH_PULL], [], ["latency-100"])
    (sample,) = results.samples
    assert sample.failure is None
    assert sample.is_verified
    assert sample.metrics["count"] == 100
    assert sample.metrics["lost_count"] == 0
    assert 0 < sample.metrics["p50_ns"] <= sample.metrics["p99_ns"] <= sample.metrics["max_ns"]
    assert sample.metrics["publisher_cpu_s"] > 0
    assert list(tmp_path.iterdir()) == []


def test_a_process_that_dies_is_a_failed_run_and_the_next_round_goes_on(tmp_path: Path) -> None:
    effort = Effort(rounds_count=2, seconds=0.02, latency_count=1)
    results = Harness(tmp_path, effort, 30, 40).run([], ["tests.benchmarks.crashing:Crashing"], [])
    assert [sample.failure for sample in results.samples] == ["measure: the process died"] * 2
    assert list(tmp_path.iterdir()) == []


def test_who_is_not_installed_is_named_and_not_run(tmp_path: Path) -> None:
    results = Harness(tmp_path, TINY, 30, 40).run([], ["tests.benchmarks.crashing:Absent"], [])
    assert results.missing == {"absent": "the program absent (make bench-peers)"}
    assert results.samples == []


def test_nothing_starts_once_the_budget_is_spent(tmp_path: Path) -> None:
    results = Harness(tmp_path, TINY, -1, 40).run([PUSH_PULL], [], ["latency-100"])
    assert results.samples == []
    assert results.skipped == ["latency-100 pyzmq-pushpull, calibrating: no time left"]


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    assert main(["--only", "no-such-thing"]) == 2


def test_every_entry_of_the_registry_keeps_the_contract() -> None:
    names = [registry.contender(entry).name for entry in registry.CONTENDERS]
    names += [registry.trial(entry).name for entry in registry.TRIALS]
    assert len(set(names)) == len(names)
    assert all(registry.contender(entry).scenarios for entry in registry.CONTENDERS)
