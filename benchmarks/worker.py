"""The processes that are measured: each opens its end, waits for go, runs, and reports."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.contender import Effort
from benchmarks.load import Load
from benchmarks.registry import contender, trial
from benchmarks.scenarios import Scenario
from benchmarks.witness import Witness

_WARM_UP_SHARE = 0.1
"""Latencies of the first publications are not counted: connections and caches are still cold."""


def publish(channel: Connection, entry: str, address: str, scenario: Scenario, count: int) -> None:
    """Be the publisher of one run."""

    def run() -> dict[str, Any]:
        end = contender(entry).publisher(address, scenario)
        load = Load(scenario, count)
        end.open()
        _wait_go(channel)
        cpu_s, start_ns = _cpu_s(), time.perf_counter_ns()
        receipts_count = end.run(load)
        report = {"start_ns": start_ns, "end_ns": time.perf_counter_ns(), "cpu_s": _cpu_s() - cpu_s}
        end.close()
        late_p99_ns = float(np.percentile(load.late_ns, 99)) if load.late_ns else 0.0
        return report | {"receipts_count": receipts_count, "late_p99_ns": late_p99_ns}

    _report(channel, run)


def subscribe(channel: Connection, entry: str, address: str, scenario: Scenario, count: int) -> None:
    """Be the subscriber of one run."""

    def run() -> dict[str, Any]:
        end = contender(entry).subscriber(address, scenario)
        witness = Witness(scenario, count)
        end.open()
        _wait_go(channel)
        cpu_s = _cpu_s()
        end.run(witness)
        report: dict[str, Any] = {"cpu_s": _cpu_s() - cpu_s}
        end.close()
        report |= {
            "end_ns": witness.last_ns,
            "received_count": witness.received_count,
            "breaks_count": witness.breaks_count,
        }
        counted_ns = witness.latencies_ns[int(len(witness.latencies_ns) * _WARM_UP_SHARE) :]
        if counted_ns:
            p50, p90, p99 = np.percentile(counted_ns, (50, 90, 99))
            report |= {"p50_ns": float(p50), "p90_ns": float(p90), "p99_ns": float(p99)}
            report["max_ns"] = float(max(counted_ns))
        return report

    _report(channel, run)


def measure(channel: Connection, entry: str, workdir: Path, effort: Effort) -> None:
    """Be the process of one trial."""
    _report(channel, lambda: dict(trial(entry).measure(workdir, effort)))


def _report(channel: Connection, run: Callable[[], dict[str, Any]]) -> None:
    # Whatever this process starts ends with it: the harness kills the whole group.
    os.setsid()
    try:
        channel.send({"report": run()})
    except BaseException as error:
        channel.send({"failure": f"{type(error).__name__}: {error}"})
        raise


def _wait_go(channel: Connection) -> None:
    channel.send({"ready": True})
    channel.recv()


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
