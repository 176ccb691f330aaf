"""The nets in which planted bugs shall be caught: simulated worlds, laws and properties, and each floor's own tests."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from mutants.patches import ROOT

_LEDGER = "tests/delivery/test_settlement.py"
_OUTBOX = "tests/delivery/test_outbox.py"
_RECORDS = ("tests/delivery/test_record.py", "tests/delivery/test_batch.py")
_JOURNAL = "tests/journal/test_journal_model.py"
_STREAMS = "tests/streams/test_replay.py"
_LINKS = ("tests/laws", "tests/protocols/zeps/test_frames.py", "tests/protocols/zeps/test_native.py")
PROPERTIES = {
    "kernel": (_LEDGER, _OUTBOX, *_RECORDS, _JOURNAL, _STREAMS, *_LINKS, "tests/kernel"),
    "delivery": (_LEDGER, _OUTBOX, *_RECORDS, _STREAMS),
    "matching": ("tests/matching",),
    "journal": (_JOURNAL, _STREAMS),
    "streams": (_STREAMS,),
    "protocols": _LINKS,
    "protocols/topics": ("tests/protocols/topics/test_placing.py",),
    "node": (),
}
"""Laws, state machines beside a model, and properties over drawn inputs, by the floor that they reach."""
UNITS = {floor: (f"tests/{floor}",) for floor in PROPERTIES}
"""The tests of each floor by itself, stories told by hand; what is also among the properties is left to them."""
TESTS_S = 600.0
"""Any of these take less than half a minute of the processor's time: whoever takes this long hangs."""
_FAILED = re.compile(r"^(?:FAILED|ERROR) (?P<test>\S+)(?: - (?P<message>.*))?$", re.MULTILINE)


class Catch(NamedTuple):
    """How a net caught a bug: at which `seed` (0 for none), or in which `test`; both are empty where it did not."""

    seed: int
    oracle: str
    test: str
    message: str
    seconds: float

    @property
    def is_caught(self) -> bool:
        """Whether the net caught it."""
        return bool(self.seed or self.test)


class NetTorn(Exception):
    """A net catches what has no bug planted in it, or cannot be cast: what it says of mutants means nothing."""


def _environment(sources: Path, storage: str = "") -> dict[str, str]:
    """As here, but that Python finds these sources first, and leaves nothing behind."""
    return {
        **os.environ,
        "PYTHONPATH": str(sources),
        "PYTHONDONTWRITEBYTECODE": "1",
        "HYPOTHESIS_STORAGE_DIRECTORY": storage,
    }


def simulated(sources: Path, scene: str, seeds: int, first: int = 1) -> Catch:
    """Worlds of these sources with this scene, from seed `first` to `seeds`, until one breaks a guarantee."""
    begun = time.monotonic()
    arguments = [sys.executable, "-m", "mutants.worlds", scene, str(first), str(seeds)]
    ended = subprocess.run(arguments, cwd=ROOT, env=_environment(sources), capture_output=True, text=True, check=False)
    lines = ended.stdout.splitlines()
    seconds = round(time.monotonic() - begun, 1)
    if ended.returncode or not lines:
        return Catch(first, "process", "", _last_line(ended.stderr), seconds)
    said = json.loads(lines[-1])
    oracle, _, message = said["violation"].partition(": ")
    return Catch(said["seed"], oracle, "", message, seconds)


def tried(sources: Path, tests: Sequence[str], but: Sequence[str] = ()) -> Catch:
    """These tests of these sources, without those in `but`, until one fails."""
    begun = time.monotonic()
    if not tests:
        return Catch(0, "", "", "", 0.0)
    with TemporaryDirectory(prefix="veredus-mutant-") as storage:
        arguments = [sys.executable, "-m", "pytest", "-q", "-x", "-rfE", "--tb=no", "-p", "no:cacheprovider", *tests]
        arguments += [f"--ignore={test}" for test in but]
        try:
            ended = subprocess.run(
                arguments, cwd=ROOT, env=_environment(sources, storage), capture_output=True, text=True, check=False,
                timeout=TESTS_S,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return Catch(0, "", "(all)", f"they hang: not done after {TESTS_S:g} s", TESTS_S)
    seconds = round(time.monotonic() - begun, 1)
    if not ended.returncode:
        return Catch(0, "", "", "", seconds)
    failed = _FAILED.search(ended.stdout)
    if failed is None:
        return Catch(0, "", "(all)", _last_line(ended.stdout + ended.stderr), seconds)
    return Catch(0, "", failed["test"], failed["message"] or "", seconds)


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["it ended without a word"])[-1]
