"""One world, from its seed to its verdict."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from .topics import TopicsScene
from .topology import DRAWN, Topology
from .workloads import WHOLE, Part, Scene
from .world import Violation, World

KINDS = {
    "taken": "lost",
    "delivered": "lost",
    "recovered": "lost",
    "pinned": "lost",
    "once": "doubled",
    "settled": "doubled",
    "parked": "doubled",
    "order": "out of order",
    "progress": "stuck",
    "put": "lost",
    "subscribe": "lost",
    "get": "doubled",
    "left": "doubled",
}
"""What a broken guarantee comes to, by its oracle; every other one is `other`."""


class Outcome(NamedTuple):
    """How one world ended; `violation` is "" when every guarantee held."""

    seed: int
    violation: str
    digest: str
    simulated_ns: int
    counts: Counter[str]
    names: tuple[str, ...]
    """Of everybody who took part."""
    strikes: tuple[tuple[int, str], ...]
    """The number and the fault of each strike."""

    @property
    def oracle(self) -> str:
        """The name of the guarantee that was broken, "" for none."""
        return self.violation.partition(":")[0]

    @property
    def kind(self) -> str:
        """What it comes to: lost, doubled, out of order, stuck, other; "" when nothing was broken."""
        return KINDS.get(self.oracle, "other") if self.violation else ""


def scene_of(world: World, topology: Topology, part: Part) -> Scene | TopicsScene:
    """What takes place in a world: streams, or topics."""
    if topology.is_of_topics(world.dice.die("scene")):
        return TopicsScene(world, topology, part)
    return Scene(world, topology, part)


def run_seed(
    seed: int, topology: Topology = DRAWN, listen: Callable[[str], None] | None = None, part: Part = WHOLE
) -> Outcome:
    """One world, from its seed to its verdict; `part` is what of it takes place."""
    world = World(seed, listen)
    violation = ""
    scene = scene_of(world, topology, part)
    names = tuple(scene.names)
    try:
        scene.run()
    except Violation as broken:
        violation = str(broken)
        if listen is not None and broken.__cause__ is not None:
            listen("".join(traceback.format_exception(broken.__cause__)))
    except Exception as error:  # noqa: BLE001  # whatever breaks, a campaign goes on and tells its seed
        violation = f"no engine breaks: {error!r}"
        if listen is not None:
            listen("".join(traceback.format_exception(error)))
    strikes = tuple(scene.nemesis.strikes)
    return Outcome(seed, violation, world.digest, world.now_ns, world.counts, names, strikes)
