"""Medians, figures and what the report says of them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from benchmarks import machine
from benchmarks.contender import Effort
from benchmarks.figures import FIGURES, Figure
from benchmarks.report import markdown, scaled, to_json
from benchmarks.results import Results, Sample

FAST = ("a", "throughput-100", "rate_hz")
SLOW = ("b", "throughput-100", "rate_hz")
SLOWER = ("c", "throughput-100", "rate_hz")


def flow(subject: str, rate_hz: float, round_index: int = 0, is_verified: bool = True) -> Sample:
    metrics = {"rate_hz": rate_hz, "bytes_per_s": 100 * rate_hz, "count": 10.0, "lost_count": 1.0, "breaks_count": 2.0}
    return Sample(subject, "throughput-100", round_index, metrics, is_verified)


def results_of(*samples: Sample) -> Results:
    return Results({"CPU": "some"}, Effort(3, 1.0, 10), samples=list(samples))


def test_a_median_leaves_out_runs_that_were_not_verified() -> None:
    results = results_of(flow("a", 10), flow("a", 30, 1), flow("a", 20, 2), flow("a", 1000, 3, is_verified=False))
    summary = results.summary(*FAST)
    assert summary is not None
    assert (summary.median, summary.least, summary.most, summary.count) == (20, 10, 30, 3)


def test_a_ratio_is_to_the_best_of_the_others() -> None:
    results = results_of(flow("a", 100), flow("b", 40), flow("c", 20))
    assert Figure("a beside the rest", 2, "×", FAST, (SLOWER, SLOW)).value(results) == 2.5


def test_a_figure_with_an_upper_bound_compares_with_the_least() -> None:
    results = results_of(flow("a", 100), flow("b", 40), flow("c", 20))
    figure = Figure("a beside the rest", 4, "×", FAST, (SLOW, SLOWER), is_upper=True)
    assert figure.value(results) == 5
    assert figure.is_reached(results) is False


@pytest.mark.parametrize(("bound", "is_reached"), [(99, True), (100, True), (101, False)])
def test_a_lower_bound_is_reached_from_the_bound_on(bound: float, is_reached: bool) -> None:
    assert Figure("a", bound, "/s", FAST).is_reached(results_of(flow("a", 100))) is is_reached


def test_a_figure_without_its_parts_has_no_value() -> None:
    assert Figure("a beside b", 2, "×", FAST, (SLOW,)).is_reached(results_of(flow("a", 100))) is None
    assert Figure("a beside b", 2, "×", FAST, (SLOW,)).is_reached(results_of(flow("b", 100))) is None


def test_a_report_invents_nothing() -> None:
    figures = markdown(results_of()).partition("## Figures")[2]
    assert figures.count("not measured") == len(FIGURES)
    assert not re.search(r"\| (yes|no) \|", figures)


def test_a_report_names_who_is_missing_and_what_went_wrong() -> None:
    results = results_of(
        flow("a", 12345), flow("b", 10, is_verified=False), Sample("c", "throughput-100", 1, {}, False, "it died")
    )
    results.missing["d"] = "the program d"
    results.skipped.append("throughput-100 e, round 2: no time left")
    text = markdown(results)
    assert "**d**, for want of the program d" in text
    assert "12,345" in text
    assert "throughput-100 b, round 1: lost 1, breaks of order 2" in text
    assert "throughput-100 c, round 2: it died" in text
    assert "e, round 2: no time left" in text


def test_json_carries_every_sample_and_every_figure() -> None:
    document = json.loads(to_json(results_of(flow("veredus", 4e6), flow("b", 10, is_verified=False))))
    assert [sample["is_verified"] for sample in document["samples"]] == [True, False]
    assert len(document["figures"]) == len(FIGURES)
    assert document["figures"][0]["is_reached"] is True


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (3.5e6, "/s", "3.5 M/s"),
        (700e6, "B/s", "700 MB/s"),
        (0.6, "×", "0.60 ×"),
        (0.1, "s", "0.1 s"),
        (12, "/s", "12 /s"),
    ],
)
def test_numbers_are_scaled_for_people(value: float, unit: str, text: str) -> None:
    assert scaled(value, unit) == text


def test_a_file_system_in_memory_is_not_a_disk() -> None:
    assert machine.filesystem_of(Path("/proc/self"))[0] == "proc"
    with pytest.raises(FileNotFoundError, match="--workdir"):
        machine.disk_directory([Path("/nowhere/at/all")])
