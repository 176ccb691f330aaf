"""When is killed what: drawn from a seed, so that a run's kills can be had again."""

from __future__ import annotations

import random
from dataclasses import dataclass

VICTIMS = ("node", "publisher", "driver", "node", "publisher")
"""Who is killed in a run, in any order: restarting Spark takes longest, so it dies once."""
FIRST_SECONDS = 10.0
LAST_SECONDS = 50.0
APART_SECONDS = 3.0


@dataclass(frozen=True)
class Kill:
    """At `at_seconds` after the first publication, SIGKILL to `victim`; `choice` says to which of several."""

    at_seconds: float
    victim: str
    choice: int

    def __str__(self) -> str:
        return f"{self.victim} at {self.at_seconds:.1f} s"


def plan_kills(seed: int) -> list[Kill]:
    """The kills of a run, in order of time, some seconds apart."""
    dice = random.Random(seed)
    victims = dice.sample(VICTIMS, len(VICTIMS))
    spare = LAST_SECONDS - FIRST_SECONDS - APART_SECONDS * (len(victims) - 1)
    starts = sorted(dice.uniform(0, spare) for _ in victims)
    return [
        Kill(FIRST_SECONDS + start + index * APART_SECONDS, victim, dice.randrange(1 << 16))
        for index, (start, victim) in enumerate(zip(starts, victims, strict=True))
    ]
