"""Runs every contender and every trial in turn, round by round, so that a machine that drifts drifts for all.

A run has a broker of its own, with an empty directory of its own, and two fresh processes. How much a contender
publishes in bulk is found out by short runs before the first round, so that each measured run takes about as long.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks import machine, worker
from benchmarks.broker import Broker
from benchmarks.contender import Contender, Effort, Trial
from benchmarks.registry import contender, trial
from benchmarks.results import Results, Sample
from benchmarks.scenarios import SCENARIOS, Scenario

_PROBE_COUNT: Final = 20_000
_PROBE_SECONDS: Final = 0.5
_PROBE_FACTOR: Final = 10
_COUNT_MAX: Final = 50_000_000
_OPEN_TIMEOUT_S: Final = 30.0
_PROCESSES: Final = multiprocessing.get_context("spawn")


_Outcome = tuple[dict[str, float], bool]
"""Metrics, and whether count and order were right."""


class RunFailed(Exception):
    """One run could not be brought to its end; the others go on."""


@dataclass(slots=True)
class _Job:
    """One subject in one scenario, with the count that its runs publish."""

    entry: str
    subject: str
    scenario: str
    run: Callable[[_Job], _Outcome]
    rounds_max: int
    count: int = 0
    is_given_up: bool = False


class Harness:
    """Owns the directory that everything is written to, the effort, the deadline and the results."""

    def __init__(self, workdir: Path, effort: Effort, budget_s: float, limit_s: float) -> None:
        """Measure in `workdir`, which must be on a disk; start no run after `budget_s`, and end all at `limit_s`."""
        self._workdir = workdir
        self._effort = effort
        self._start_s = time.monotonic()
        self._deadline_s = self._start_s + budget_s
        self._limit_s = self._start_s + limit_s
        self.results = Results(machine.describe(workdir), effort)

    def run(self, contenders: Sequence[str], trials: Sequence[str], only: Sequence[str]) -> Results:
        """Measure the registry's entries, or those whose subject or scenario is named in `only`."""
        jobs = [*self._contender_jobs(contenders, only), *self._trial_jobs(trials, only)]
        for job in jobs:
            if job.scenario in SCENARIOS:
                outcome = self._attempt(job, "calibrating", self._calibrate)
                job.is_given_up = not isinstance(outcome, tuple)
                if isinstance(outcome, str):
                    self.results.skipped.append(f"{_label(job)}, calibrating: {outcome}")
        for round_index in range(self._effort.rounds_count):
            for job in jobs:
                if not job.is_given_up and round_index < job.rounds_max:
                    self._measure(job, round_index)
        self.results.elapsed_s = time.monotonic() - self._start_s
        return self.results

    def _contender_jobs(self, entries: Sequence[str], only: Sequence[str]) -> Iterator[_Job]:
        subjects = [(entry, contender(entry)) for entry in entries]
        for scenario in SCENARIOS.values():
            for entry, subject in subjects:
                if scenario.name in subject.scenarios and _is_wanted(only, subject.name, scenario.name):
                    if self._is_present(subject):
                        yield _Job(entry, subject.name, scenario.name, self._run_flow, self._effort.rounds_count)

    def _trial_jobs(self, entries: Sequence[str], only: Sequence[str]) -> Iterator[_Job]:
        for entry in entries:
            subject = trial(entry)
            if _is_wanted(only, subject.name, subject.name) and self._is_present(subject):
                yield _Job(entry, subject.name, subject.name, self._run_trial, subject.rounds_max)

    def _is_present(self, subject: Contender | Trial) -> bool:
        if subject.name in self.results.modes:
            return True
        if subject.name in self.results.missing:
            return False
        missing = subject.missing()
        if missing is not None:
            self.results.missing[subject.name] = missing
            _say(f"{subject.name}: not installed: {missing}")
            return False
        self.results.modes[subject.name] = subject.mode
        self.results.versions[subject.name] = subject.versions()
        return True

    def _calibrate(self, job: _Job) -> _Outcome:
        scenario = SCENARIOS[job.scenario]
        if scenario.is_paced:
            job.count = self._effort.latency_count
            return {}, True
        job.count = _PROBE_COUNT
        metrics = self._run_flow(job)[0]
        # So short a run is mostly its beginning and its end.
        while metrics["seconds"] < _PROBE_SECONDS and job.count < _COUNT_MAX // _PROBE_FACTOR:
            job.count *= _PROBE_FACTOR
            metrics = self._run_flow(job)[0]
        rate_hz = metrics["rate_hz"]
        job.count = min(max(round(rate_hz * self._effort.seconds), 1_000), _COUNT_MAX)
        return {}, True

    def _measure(self, job: _Job, round_index: int) -> None:
        outcome = self._attempt(job, f"round {round_index + 1}", job.run)
        if isinstance(outcome, str):
            self.results.samples.append(Sample(job.subject, job.scenario, round_index, {}, False, outcome))
        elif outcome is not None:
            self.results.samples.append(Sample(job.subject, job.scenario, round_index, *outcome))

    def _attempt(self, job: _Job, what: str, run: Callable[[_Job], _Outcome]) -> _Outcome | str | None:
        """The outcome, why there is none, or None where no time was left to try."""
        if time.monotonic() > self._deadline_s:
            self.results.skipped.append(f"{_label(job)}, {what}: no time left")
            return None
        _say(f"[{time.monotonic() - self._start_s:5.0f} s] {_label(job)}: {what} ...", end=" ")
        try:
            metrics, is_verified = run(job)
        except RunFailed as failure:
            _say(f"FAILED: {failure}")
            return str(failure)
        _say(_brief(metrics) + ("" if is_verified else " NOT VERIFIED"))
        return metrics, is_verified

    def _run_flow(self, job: _Job) -> _Outcome:
        scenario = SCENARIOS[job.scenario]
        with self._directory() as workdir:
            try:
                broker = contender(job.entry).start(workdir, scenario)
            except Exception as error:
                raise RunFailed(f"broker: {type(error).__name__}: {error}") from error
            try:
                return self._run_ends(job, scenario, broker)
            finally:
                broker.stop()

    def _run_ends(self, job: _Job, scenario: Scenario, broker: Broker) -> _Outcome:
        arguments = (job.entry, broker.address, scenario, job.count)
        with _Worker(worker.subscribe, *arguments) as subscriber, _Worker(worker.publish, *arguments) as publisher:
            subscriber.wait("ready", _OPEN_TIMEOUT_S)
            publisher.wait("ready", _OPEN_TIMEOUT_S)
            start_s, broker_cpu_s, machine_cpu_s = time.monotonic(), broker.cpu_s(), machine.cpu_s()
            subscriber.go()
            publisher.go()
            timeout_s = self._timeout_s(scenario, job.count)
            published = publisher.wait("report", timeout_s)
            received = subscriber.wait("report", timeout_s)
            broker_cpu_s, machine_cpu_s = broker.cpu_s() - broker_cpu_s, machine.cpu_s() - machine_cpu_s
            available_s = (time.monotonic() - start_s) * machine.cores_count()
        metrics, is_verified = _flow_metrics(scenario, job.count, published, received)
        metrics["broker_cpu_s"] = broker_cpu_s
        foreign_cpu_s = machine_cpu_s - broker_cpu_s - published["cpu_s"] - received["cpu_s"]
        metrics["foreign_cpu_share"] = max(foreign_cpu_s, 0.0) / available_s
        return metrics, is_verified

    def _run_trial(self, job: _Job) -> _Outcome:
        with self._directory() as workdir, _Worker(worker.measure, job.entry, workdir, self._effort) as process:
            metrics: dict[str, float] = process.wait("report", self._within_limit_s(trial(job.entry).timeout_s))
        return metrics, True

    def _timeout_s(self, scenario: Scenario, count: int) -> float:
        paced_s = count / scenario.rate_hz if scenario.rate_hz else 0.0
        return self._within_limit_s(30.0 + 5 * max(self._effort.seconds, paced_s))

    def _within_limit_s(self, timeout_s: float) -> float:
        return max(min(timeout_s, self._limit_s - time.monotonic()), 1.0)

    @contextmanager
    def _directory(self) -> Iterator[Path]:
        directory = Path(tempfile.mkdtemp(prefix="run-", dir=self._workdir))
        try:
            yield directory
        finally:
            shutil.rmtree(directory, ignore_errors=True)
            # What this run leaves for the disk to do is not to be paid for by the next one.
            os.sync()


class _Worker:
    """Owns one process and its channel; the process and all that it started end with the block."""

    def __init__(self, target: Callable[..., None], *arguments: object) -> None:
        self._channel, theirs = _PROCESSES.Pipe()
        self._name = target.__name__
        self._process = _PROCESSES.Process(target=target, args=(theirs, *arguments))
        self._process.start()
        theirs.close()

    def __enter__(self) -> _Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.join(1)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid or 0, signal.SIGKILL)
        self._process.kill()
        self._process.join()
        self._channel.close()

    def go(self) -> None:
        """Start the clock."""
        self._channel.send("go")

    def wait(self, kind: str, timeout_s: float) -> Any:
        """The next message, which must be of `kind`; raises RunFailed for anything else, death or silence."""
        if not self._channel.poll(timeout_s):
            raise RunFailed(f"{self._name}: no {kind} after {timeout_s:.0f} s")
        try:
            message = self._channel.recv()
        except EOFError as error:
            raise RunFailed(f"{self._name}: the process died") from error
        if kind not in message:
            raise RunFailed(f"{self._name}: {message.get('failure', message)}")
        return message[kind]


def _flow_metrics(scenario: Scenario, count: int, published: dict[str, Any], received: dict[str, Any]) -> _Outcome:
    receipts_count = published["receipts_count"]
    is_verified = received["received_count"] == count and not received["breaks_count"]
    is_verified &= receipts_count in (None, count)
    start_ns = published["start_ns"]
    ends_ns = [received["end_ns"]] + ([] if receipts_count is None else [published["end_ns"]])
    seconds = max(max(ends_ns) - start_ns, 1) / 1e9
    metrics = {
        "count": float(count),
        "lost_count": float(count - received["received_count"]),
        "breaks_count": float(received["breaks_count"]),
        "seconds": seconds,
        "rate_hz": received["received_count"] / seconds,
        "bytes_per_s": received["received_count"] * scenario.body_size / seconds,
        "publisher_cpu_s": published["cpu_s"],
        "subscriber_cpu_s": received["cpu_s"],
    }
    if scenario.is_paced:
        metrics["late_p99_ns"] = published["late_p99_ns"]
        metrics |= {name: received[name] for name in ("p50_ns", "p90_ns", "p99_ns", "max_ns") if name in received}
    return metrics, is_verified


def _is_wanted(only: Sequence[str], *names: str) -> bool:
    return not only or any(name in only for name in names)


def _label(job: _Job) -> str:
    return job.subject if job.subject == job.scenario else f"{job.scenario} {job.subject}"


def _brief(metrics: dict[str, float]) -> str:
    if "p50_ns" in metrics:
        return f"p50 {metrics['p50_ns'] / 1e3:,.0f} µs, p99 {metrics['p99_ns'] / 1e3:,.0f} µs"
    if "bytes_per_s" in metrics:
        return f"{metrics['rate_hz']:,.0f}/s, {metrics['bytes_per_s'] / 1e6:,.1f} MB/s"
    return ", ".join(f"{name} {value:,.4g}" for name, value in metrics.items()) or "done"


def _say(text: str, end: str = "\n") -> None:
    print(text, end=end, file=sys.stderr, flush=True)
