"""Simulated worlds until the first that breaks a guarantee: `python -m mutants.worlds SCENE FIRST LAST`, for the
sources that `PYTHONPATH` names. Says which one on standard output, as JSON.

Its time is the processor's, so that a busy machine makes no world seem to hang.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
from dataclasses import replace

from veredus.sim.running import run_seed
from veredus.sim.topology import DRAWN

WORLD_S = 60.0
"""Half of all worlds take a quarter of a second of the processor's time, and a long one takes nine: this one hangs."""
MEMORY_SIZE = 8 << 30


class WorldHangs(BaseException):
    """A world has gone on for too long; no `except Exception` of an engine's shall stop it."""


def _hang(*_: object) -> None:
    raise WorldHangs


def first_violation(scene: str, first: int, last: int) -> tuple[int, str]:
    """The first seed that breaks a guarantee and how; 0 and "" when none does."""
    signal.signal(signal.SIGVTALRM, _hang)
    topology = replace(DRAWN, scene=scene)
    for seed in range(first, last + 1):
        signal.setitimer(signal.ITIMER_VIRTUAL, WORLD_S)
        try:
            violation = run_seed(seed, topology).violation
        except WorldHangs:
            violation = f"hangs: the world has not ended after {WORLD_S:g} s of processor time"
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        if violation:
            return seed, violation
    return 0, ""


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_SIZE, MEMORY_SIZE))
    seed, violation = first_violation(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
    sys.stdout.write(json.dumps({"seed": seed, "violation": violation}) + "\n")
