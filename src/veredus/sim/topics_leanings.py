"""What a world of topics leans to, so that things meet in it that are rare by themselves; most lean to nothing.

busy     two servers' streams are published to by another listener all the time, and clients get without a pause: a
         merge meets both at each of its steps
hasty    clients are killed as they put and stay away for long: what is in doubt at one server is put again at another
fickle   clients subscribe and leave all the time: what they asked of a proxy that stood still comes behind the opposite
"""

from __future__ import annotations

from collections.abc import Sequence

from .dice import Die
from .disk import DiskTemper
from .topics_people import ClientTemper
from .world import MILLISECOND


class Leaning:
    """Nothing: everything is as it was drawn."""

    stalls_proxies = False
    """Whether proxies stand still now and then, beside all else that may go wrong."""
    keeps_apart = False
    """Whether each proxy hears some servers only for most of the time, where there are two."""

    def set_disk(self, die: Die, temper: DiskTemper) -> None:
        """How a server's disk is."""

    def set_client(self, die: Die, temper: ClientTemper) -> None:
        """How a client is."""

    def sensors_at(self, servers: Sequence[str]) -> Sequence[str]:
        """At which servers the first topic is published to all the time."""
        return ()


class Busy(Leaning):
    """Whatever a merge does, somebody comes in between."""

    def set_disk(self, die: Die, temper: DiskTemper) -> None:
        """A commit takes a while."""
        temper.sync_min_ns = die.spread(2 * MILLISECOND, 15 * MILLISECOND)
        temper.sync_max_ns = 2 * temper.sync_min_ns

    def set_client(self, die: Die, temper: ClientTemper) -> None:
        """It gets more than it puts."""
        temper.pause_max_ns, temper.puts = die.spread(MILLISECOND, 4 * MILLISECOND), die.uniform(0.0, 0.3)

    def sensors_at(self, servers: Sequence[str]) -> Sequence[str]:
        """At each."""
        return servers


class Hasty(Leaning):
    """What clients begin they do not end."""

    def set_client(self, die: Die, temper: ClientTemper) -> None:
        """It is killed as it puts."""
        temper.interrupts, temper.puts = die.uniform(0.3, 0.8), die.uniform(0.5, 0.9)


class Fickle(Leaning):
    """Nobody knows for long what they want."""

    stalls_proxies = keeps_apart = True

    def set_client(self, die: Die, temper: ClientTemper) -> None:
        """It subscribes and leaves, and gets what comes meanwhile."""
        temper.leaves, temper.returns = die.uniform(0.2, 0.5), die.uniform(0.3, 0.8)
        temper.repeats, temper.wanders = die.uniform(0.1, 0.3), die.uniform(0.3, 0.7)
        temper.puts, temper.pause_max_ns = die.uniform(0.1, 0.4), die.spread(2 * MILLISECOND, 20 * MILLISECOND)


LEANINGS = (Busy, Hasty, Fickle)


def drawn_leaning(die: Die) -> Leaning:
    """What a world leans to."""
    return LEANINGS[die.between(0, len(LEANINGS) - 1)]() if die.chance(0.25) else Leaning()
