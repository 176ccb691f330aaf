"""A trial whose process dies in the middle."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.contender import Effort


@dataclass(frozen=True)
class Crashing:
    """Leaves without a word."""

    name: str = "crashing"
    mode: str = "dies"
    rounds_max: int = 9
    timeout_s: float = 20.0

    def missing(self) -> str | None:
        return None

    def versions(self) -> Mapping[str, str]:
        return {}

    def measure(self, workdir: Path, effort: Effort) -> Mapping[str, float]:
        os._exit(3)


@dataclass(frozen=True)
class Absent(Crashing):
    """Is not installed."""

    name: str = "absent"

    def missing(self) -> str | None:
        return "the program absent (make bench-peers)"
