"""Says what was measured, as Markdown for people and as JSON for programs."""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections.abc import Iterable, Sequence

from benchmarks.figures import FIGURES, Figure
from benchmarks.results import Results, Summary
from benchmarks.scenarios import SCENARIOS, Scenario

_SCALES = ((1e9, " G"), (1e6, " M"), (1e3, " k"))


def markdown(results: Results) -> str:
    """The whole report; every number in it was measured in this run."""
    return "\n".join(
        [
            "# Benchmarks",
            "",
            *_method_section(results),
            *_machine_section(results),
            *_subject_section(results),
            *_figure_section(results),
            *(line for scenario in SCENARIOS.values() for line in _scenario_section(results, scenario)),
            *_trial_section(results),
            *_trouble_section(results),
        ]
    )


def to_json(results: Results) -> str:
    """Everything, sample by sample, and the figures."""
    document = dataclasses.asdict(results)
    document["figures"] = [
        {
            "what": figure.what,
            "bound": figure.bound,
            "is_upper": figure.is_upper,
            "unit": figure.unit,
            "value": figure.value(results),
            "is_reached": figure.is_reached(results),
        }
        for figure in FIGURES
    ]
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def scaled(value: float, unit: str) -> str:
    """A number that people can read, with its unit."""
    if unit == "×":
        return f"{value:.2f} ×"
    if unit == "s":
        return f"{value:.3g} s"
    for scale, letter in _SCALES:
        if value >= scale:
            return f"{value / scale:.3g}{letter}{unit}"
    return f"{value:.3g} {unit}"


def _method_section(results: Results) -> list[str]:
    count = results.effort.rounds_count
    minutes = max(round(results.elapsed_s / 60), 1)
    text = f"""\
Written by `make bench`; run it to have these tables for your machine. One publisher process, one broker and one
subscriber process on one machine over the loopback interface, all contenders in turn, {count} round(s) in one run of
{minutes} minute(s). Medians of the rounds, with the least and the most.

A rate counts from the first publish until the last body was received and, where there are receipts, until all of them
were in. Every body is checked for count and order. A latency goes from the moment at which the publisher handed one
publication to its client until the subscriber's code had it; the first tenth is not counted."""
    return [*text.splitlines(), ""]


def _machine_section(results: Results) -> list[str]:
    rows = [[name, value] for name, value in results.machine.items()]
    disk = [results.summary("raw-disk", "raw-disk", f"fdatasync_{name}_ns") for name in ("p50", "p99")]
    if disk[0] is not None and disk[1] is not None:
        sync = f"p50 {disk[0].median / 1e6:.2f} ms, p99 {disk[1].median / 1e6:.2f} ms (4 KiB appended)"
        rows.append(["fdatasync", sync])
    shares = [
        sample.metrics["foreign_cpu_share"] for sample in results.samples if "foreign_cpu_share" in sample.metrics
    ]
    if shares:
        rows.append(["CPU taken by others", f"median {statistics.median(shares):.0%}, most {max(shares):.0%} of a run"])
    return ["## Machine", "", *_table(["", ""], rows), ""]


def _subject_section(results: Results) -> list[str]:
    rows = [
        [name, mode, ", ".join(f"{library} {version}" for library, version in results.versions[name].items())]
        for name, mode in results.modes.items()
    ]
    lines = ["## Who was measured, and how", "", *_table(["name", "mode", "versions"], rows), ""]
    lines += [f"Missing: **{name}**, for want of {reason}." for name, reason in results.missing.items()]
    return [*lines, ""] if results.missing else lines


def _figure_section(results: Results) -> list[str]:
    rows = [[figure.what, _bound(figure), _value(figure, results), _verdict(figure, results)] for figure in FIGURES]
    return ["## Figures", "", *_table(["what", "target", "measured", "reached"], rows), ""]


def _bound(figure: Figure) -> str:
    return f"{'≤' if figure.is_upper else '≥'} {scaled(figure.bound, figure.unit)}"


def _value(figure: Figure, results: Results) -> str:
    value = figure.value(results)
    return "not measured" if value is None else scaled(value, figure.unit)


def _verdict(figure: Figure, results: Results) -> str:
    return {True: "yes", False: "no", None: "–"}[figure.is_reached(results)]


def _scenario_section(results: Results, scenario: Scenario) -> list[str]:
    subjects = results.subjects(scenario.name)
    if not subjects:
        return []
    rows = _latency_rows if scenario.is_paced else _throughput_rows
    return [f"## {scenario.title}", "", *rows(results, scenario, subjects), ""]


def _throughput_rows(results: Results, scenario: Scenario, subjects: Sequence[str]) -> list[str]:
    medians = {
        name: summary.median for name in subjects if (summary := results.summary(name, scenario.name, "rate_hz"))
    }
    slowest = min(medians.values(), default=1.0)
    rows = []
    for name in sorted(subjects, key=lambda name: -medians.get(name, 0.0)):
        rate = results.summary(name, scenario.name, "rate_hz")
        bandwidth = results.summary(name, scenario.name, "bytes_per_s")
        if rate is None or bandwidth is None:
            rows.append([name, "no good run", "", "", "", ""])
            continue
        rows.append(
            [
                name,
                f"{rate.median:,.0f}",
                f"{rate.least:,.0f} to {rate.most:,.0f}",
                f"{bandwidth.median / 1e6:,.1f}",
                f"{rate.median / slowest:.1f} ×",
                _cpu(results, name, scenario.name),
            ]
        )
    head = ["name", "publications/s", "spread", "MB/s", "to the slowest", "CPU µs per publication: pub / broker / sub"]
    return _table(head, rows)


def _latency_rows(results: Results, scenario: Scenario, subjects: Sequence[str]) -> list[str]:
    rows = []
    for name in subjects:
        parts = {metric: results.summary(name, scenario.name, metric) for metric in ("p50_ns", "p99_ns", "late_p99_ns")}
        rate = results.summary(name, scenario.name, "rate_hz")
        cells = [_microseconds(parts[metric]) for metric in ("p50_ns", "p99_ns", "late_p99_ns")]
        rows.append([name, *cells, f"{rate.median:,.0f}" if rate else "no good run"])
    head = ["name", "p50 µs (spread)", "p99 µs (spread)", "publisher behind its schedule, p99 µs", "publications/s"]
    return _table(head, rows)


def _microseconds(summary: Summary | None) -> str:
    if summary is None:
        return ""
    return f"{summary.median / 1e3:,.0f} ({summary.least / 1e3:,.0f} to {summary.most / 1e3:,.0f})"


def _cpu(results: Results, subject: str, scenario: str) -> str:
    cells = []
    count = results.summary(subject, scenario, "count")
    for part in ("publisher", "broker", "subscriber"):
        cpu = results.summary(subject, scenario, f"{part}_cpu_s")
        cells.append(f"{cpu.median * 1e6 / count.median:.2f}" if cpu and count else "–")
    return " / ".join(cells)


def _trial_section(results: Results) -> list[str]:
    names = dict.fromkeys(sample.subject for sample in results.samples if sample.scenario == sample.subject)
    rows = []
    for name in names:
        samples = [sample for sample in results.samples if sample.subject == name]
        for metric in dict.fromkeys(metric for sample in samples for metric in sample.metrics):
            summary = results.summary(name, name, metric)
            if summary is not None:
                rows.append([name, metric, f"{summary.median:,.6g}", f"{summary.least:,.6g} to {summary.most:,.6g}"])
    return ["## Other measurements", "", *_table(["name", "metric", "median", "spread"], rows), ""] if rows else []


def _trouble_section(results: Results) -> list[str]:
    lines = [f"- {reason}" for reason in results.skipped]
    for sample in results.samples:
        if sample.is_verified:
            continue
        what = sample.failure or (
            f"lost {sample.metrics['lost_count']:,.0f}, breaks of order {sample.metrics['breaks_count']:,.0f}"
        )
        lines.append(f"- {sample.scenario} {sample.subject}, round {sample.round_index + 1}: {what}")
    return ["## What went wrong", "", "No table above counts these runs.", "", *lines, ""] if lines else []


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return lines + [f"| {' | '.join(row)} |" for row in rows]
