"""Who is killed or stopped when: drawn from a seed, so that a run's strikes can be had again.

Each strike has one victim, or in a *split* two: a server that is away while a proxy begins anew. That proxy gives the
server's topics to others, and when the server is back two have them.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import NamedTuple

SERVER, PROXY, WORKER = "server", "proxy", "clients"
KILL, STOP, SPLIT = "kill", "stop", "split"
STRIKES = {
    (KILL, SERVER): 5,
    (KILL, PROXY): 4,
    (KILL, WORKER): 8,
    (STOP, SERVER): 3,
    (STOP, PROXY): 2,
    (STOP, WORKER): 3,
    (SPLIT, SERVER): 2,
}
"""How often in a minute."""
LASTS_SECONDS = {KILL: (0.1, 1.5), STOP: (0.3, 2.5), SPLIT: (3.0, 4.0)}
SETTLE_SECONDS = 1.5
"""So long a victim is left alone behind a strike."""
FIRST_SHARE, LAST_SHARE = 0.05, 0.92
"""Of the run: no strike before, or behind it."""
MENDED_SHARES = ((0.10, 0.15), (0.18, 0.25))
"""Of the run: when the servers are started again that one of the proxies has not heard of until then."""
START, CONT, MEND = "start", "cont", "mend"


@dataclass(frozen=True)
class Strike:
    """At `at_seconds` after the first put, for `lasts_seconds`."""

    at_seconds: float
    fault: str
    victim: str
    lasts_seconds: float
    proxy: str = ""
    """Which one begins anew, of a split."""

    def __str__(self) -> str:
        beside = f", and {self.proxy} anew" if self.proxy else ""
        return f"{self.at_seconds:.1f} s {self.fault} {self.victim}{beside}"


class Act(NamedTuple):
    """One thing to do: KILL, START, STOP, CONT or MEND (kill, and start with all proxies) `victim`."""

    at_seconds: float
    what: str
    victim: str


def plan_strikes(seed: int, seconds: float, cast: dict[str, list[str]]) -> list[Strike]:
    """The strikes of a run of so many seconds, in order of time; `cast` by kind of victim."""
    dice = Random(f"{seed} strikes")
    wanted = [kind for kind, count in STRIKES.items() for _ in range(max(1, round(count * seconds / 60)))]
    dice.shuffle(wanted)
    slot = seconds * (LAST_SHARE - FIRST_SHARE) / len(wanted)
    free_at: dict[str, float] = {}
    strikes: list[Strike] = []
    for place, (fault, kind) in enumerate(wanted):
        at = seconds * FIRST_SHARE + slot * (place + dice.random())
        lasts = dice.uniform(*LASTS_SECONDS[fault])
        victims = [victim for victim in cast[kind] if free_at.get(victim, 0.0) <= at]
        proxies = [proxy for proxy in cast[PROXY] if free_at.get(proxy, 0.0) <= at] if fault == SPLIT else [""]
        if victims and proxies:
            strike = Strike(at, fault, dice.choice(victims), lasts, dice.choice(proxies))
            strikes.append(strike)
            free_at[strike.victim] = free_at[strike.proxy] = at + lasts + SETTLE_SECONDS
    return sorted(strikes, key=lambda strike: strike.at_seconds)


def plan_mending(seed: int, seconds: float, servers: list[str]) -> list[Act]:
    """When each of these servers is started again, to be heard by every proxy from then on."""
    dice = Random(f"{seed} mending")
    pairs = zip(servers, MENDED_SHARES, strict=True)
    return [Act(seconds * dice.uniform(*shares), MEND, server) for server, shares in pairs]


def acts_of(strikes: list[Strike]) -> list[Act]:
    """What is to be done for these strikes, in order of time."""
    acts: list[Act] = []
    for strike in strikes:
        at, end = strike.at_seconds, strike.at_seconds + strike.lasts_seconds
        if strike.fault == STOP:
            acts += [Act(at, STOP, strike.victim), Act(end, CONT, strike.victim)]
        else:
            acts += [Act(at, KILL, strike.victim), Act(end, START, strike.victim)]
        if strike.proxy:
            acts += [Act(at + 0.1, KILL, strike.proxy), Act(at + 0.2, START, strike.proxy)]
    return sorted(acts)
