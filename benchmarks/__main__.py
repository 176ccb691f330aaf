"""`python -m benchmarks`: progress on standard error, the report on standard output and in `docs/benchmarks.md`."""

from __future__ import annotations

import argparse
import fnmatch
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks import machine, registry, report
from benchmarks.contender import Effort
from benchmarks.harness import Harness
from benchmarks.scenarios import SCENARIOS

_ROOT: Final = Path(__file__).resolve().parent.parent
_REPORT: Final = _ROOT / "docs" / "benchmarks.md"
_FULL: Final = Effort(rounds_count=3, seconds=4.0, latency_count=5_000)
_QUICK: Final = Effort(rounds_count=1, seconds=1.0, latency_count=1_500)
_FULL_LIMIT_S: Final = 25 * 60
_QUICK_LIMIT_S: Final = 4 * 60
_LAST_START_SHARE: Final = 0.85
"""Of the time limit: what starts before may take the rest."""


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, report, and return 0; 1 when a run failed or its count or order was wrong, 2 for a wrong name."""
    options = _parser().parse_args(argv)
    unknown = [pattern for pattern in options.only if not fnmatch.filter(_names(), pattern)]
    if unknown:
        print(f"unknown: {', '.join(unknown)}; known: {', '.join(_names())}", file=sys.stderr)
        return 2
    # The default action would leave servers behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    candidates = [options.workdir] if options.workdir else [Path(tempfile.gettempdir()), Path("/var/tmp"), _ROOT]
    workdir = Path(tempfile.mkdtemp(prefix="veredus-bench-", dir=machine.disk_directory(candidates)))
    try:
        effort, limit_s = (_QUICK, _QUICK_LIMIT_S) if options.quick else (_FULL, _FULL_LIMIT_S)
        harness = Harness(workdir, effort, limit_s * _LAST_START_SHARE, limit_s)
        only = [name for pattern in options.only for name in fnmatch.filter(_names(), pattern)]
        results = harness.run(registry.CONTENDERS, registry.TRIALS, only)
    finally:
        shutil.rmtree(workdir, ignore_errors=True)
    text = report.markdown(results)
    print(text)
    if options.json:
        options.json.write_text(report.to_json(results))
    if not options.quick and not options.only:
        _REPORT.parent.mkdir(exist_ok=True)
        _REPORT.write_text(text)
        print(f"written: {os.path.relpath(_REPORT)}", file=sys.stderr)
    is_good = not results.skipped and all(sample.is_verified for sample in results.samples)
    return 0 if is_good else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short run each; docs/benchmarks.md is left alone")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="NAME",
        help="a contender, a trial or a scenario, or a pattern ('topics-*'); may be given again; docs/benchmarks.md is "
        "left alone",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every sample there")
    parser.add_argument("--workdir", type=Path, metavar="DIRECTORY", help="where servers keep their data: a disk")
    return parser


def _names() -> list[str]:
    names = [registry.contender(entry).name for entry in registry.CONTENDERS]
    names += [registry.trial(entry).name for entry in registry.TRIALS]
    return names + list(SCENARIOS)


if __name__ == "__main__":
    sys.exit(main())
