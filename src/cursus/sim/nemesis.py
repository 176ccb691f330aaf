"""The nemesis: draws which faults a world knows, and strikes with them at random moments until it is told to rest.

Each strike has a number, and dice of its own: one that is left out shifts none of the others, so that a failing world
can be cut down to the strikes that it needs (`strikes`).

kill         a node dies between two of its orders, or between two events; it may die again while it recovers
relapse      a node dies when a group is written and not synced, and loses its power soon after it is up again
rot          a bit on the disk flips, or a sector is lost, where nothing is being written
power        the same, and what was not synced goes in part
stop         a node ends on purpose
crash        a source, a subscriber or a sink dies; another process follows
zombie       another process follows though the first has not died
cut          a link goes, mid-frame where it may
block        what goes one way, or both, is held back for a while
full         nothing can be made on a disk for a while
clock        a node's wall clock is set forward or back by up to an hour
startle      a node dies a few orders after it confirmed something of a kind
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Protocol

from cursus.streams.exchange import ConfirmCommitted, ConfirmFilter, ConfirmSettled, GrantSource, GrantSubscription

from .machine import Machine
from .network import Network
from .rot import Rot
from .world import MICROSECOND, MILLISECOND, SECOND, World

FAULTS = ("kill", "power", "stop", "crash", "zombie", "cut", "block", "full", "clock", "relapse", "rot", "startle")
CONFIRMATIONS = (ConfirmFilter, ConfirmFilter, GrantSubscription, ConfirmSettled, ConfirmCommitted, GrantSource)
"""What a node may be startled by: the change of a table, which its journal must have by then. Filters change seldom."""
ROT_COUNT_MAX = 3
"""How often a disk rots in one world."""


class Player(Protocol):
    """Somebody with processes that can be killed, or followed while they live."""

    name: str

    def start(self) -> None:
        """Start a process, beside one that still lives if there is one."""
        ...

    def kill(self, why: str) -> None:
        """Kill the newest process; another follows."""
        ...


class Nemesis:
    """Owns the faults of one world."""

    def __init__(
        self,
        world: World,
        network: Network,
        machines: Sequence[Machine],
        players: Sequence[Player],
        rots: Sequence[Rot],
        faults: Sequence[str] = FAULTS,
        strikes: Collection[int] | None = None,
    ) -> None:
        """Strike these machines, their disks' `rots`, and players; `faults` are those that may be drawn.

        `strikes`: the numbers of those that are carried out, None for all.
        """
        self._world = world
        self._network = network
        self._machines = machines
        self._players = players
        self._rots = rots
        self._rot_count = 0
        self._only = strikes
        self._planning = self._die = world.dice.die("nemesis")
        self._restarting = world.dice.die("restarts")
        self.strikes: list[tuple[int, str]] = []
        """The number and the fault of each strike that was carried out."""
        self._number = 0
        self.faults = [fault for fault in faults if fault != "startle" and self._die.chance(0.5)]
        self._interval_ns = self._die.spread(5 * MILLISECOND, SECOND)
        if "startle" in faults and world.dice.die("startle").chance(0.3):
            self.faults.append("startle")
        self._is_resting = False
        for machine in machines:
            machine.on_down = partial(self._restart_later, machine)

    def begin(self) -> None:
        """Strike from now on."""
        self._world.tell("nemesis", f"may {', '.join(self.faults) or 'do nothing'}")
        if self.faults:
            self._plan()

    def rest(self) -> None:
        """Strike no more; heal what is not healed by itself."""
        self._world.tell("nemesis", "rests")
        self._is_resting = True
        self._network.heal()
        for machine in self._machines:
            machine.steps_to_live = machine.startled_by = None
            machine.disk.on_written = None
            machine.disk.is_full = False
            machine.disk.is_calm = True
            machine.start()

    def _plan(self) -> None:
        self._world.after(self._planning.spread(100 * MICROSECOND, 2 * self._interval_ns), self._strike)

    def _strike(self) -> None:
        if self._is_resting:
            return
        self._number += 1
        fault = self.faults[self._planning.between(0, len(self.faults) - 1)]
        if self._only is None or self._number in self._only:
            self._die = self._world.dice.die(f"strike/{self._number}")
            self.strikes.append((self._number, fault))
            _STRIKES[fault](self)
        self._plan()

    def _machine(self) -> Machine:
        return self._machines[self._die.between(0, len(self._machines) - 1)]

    def _player(self) -> Player | None:
        return self._players[self._die.between(0, len(self._players) - 1)] if self._players else None

    def _restart_later(self, machine: Machine) -> None:
        delay_ns = MILLISECOND if self._is_resting else self._restarting.spread(100 * MICROSECOND, SECOND)
        self._world.after(delay_ns, machine.start)

    def _count(self, fault: str) -> None:
        self._world.counts[f"fault.{fault}"] += 1

    # ── strikes ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def kill(self) -> None:
        """A node dies, now or at one of its next orders."""
        machine = self._machine()
        if self._die.chance(0.5):
            machine.steps_to_live = self._die.spread(1, 300)
        else:
            machine.kill("just so")

    def cut_power(self) -> None:
        """A node's machine loses its power."""
        self._machine().kill("just so", with_power=True)

    def relapse(self) -> None:
        """A node dies between a write and its sync; soon after it is up again, the power goes."""
        machine, die = self._machine(), self._die

        def fall() -> None:
            machine.on_up = relapse
            machine.kill("between a write and its sync")

        def relapse() -> None:
            self._world.after(die.spread(100 * MICROSECOND, 200 * MILLISECOND), cut)

        def cut() -> None:
            if not self._is_resting:
                machine.kill("once more", with_power=True)

        self._count("relapse")
        machine.disk.on_written = fall

    def rot(self) -> None:
        """Something on a disk is not what was written."""
        if self._rots and self._rot_count < ROT_COUNT_MAX:
            what = self._rots[self._die.between(0, len(self._rots) - 1)].strike(self._die)
            if what:
                self._rot_count += 1
                self._count("rot")
                self._world.tell("nemesis", f"spoils {what}")

    def startle(self) -> None:
        """A node dies soon after the next confirmation of some kind."""
        self._count("startle")
        self._machine().startled_by = CONFIRMATIONS[self._die.between(0, len(CONFIRMATIONS) - 1)]

    def stop(self) -> None:
        """A node is stopped on purpose."""
        self._machine().close()

    def crash(self) -> None:
        """A player's process dies."""
        player = self._player()
        if player is not None:
            self._count("crash")
            player.kill("just so")

    def raise_zombie(self) -> None:
        """A player's process is followed by another while it lives."""
        player = self._player()
        if player is not None:
            self._count("zombie")
            player.start()

    def cut_link(self) -> None:
        """A link goes."""
        links = self._network.links_of(self._machine().name)
        if links:
            self._count("cut")
            links[self._die.between(0, len(links) - 1)].cut("cut")

    def block(self) -> None:
        """A way between a node and a process is blocked."""
        links = self._network.links_of(self._machine().name)
        if links:
            self._count("block")
            near, far = links[self._die.between(0, len(links) - 1)].ends
            until_ns = self._world.now_ns + self._die.spread(MILLISECOND, 3 * SECOND)
            ways = [(near.owner, far.owner), (far.owner, near.owner)]
            for sender, receiver in ways if self._die.chance(0.5) else ways[: self._die.between(0, 1) + 1]:
                self._network.block(sender, receiver, until_ns)

    def fill(self) -> None:
        """A disk is full for a while."""
        disk = self._machine().disk
        if not disk.is_full:
            self._count("full")
            disk.is_full = True
            self._world.after(self._die.spread(MILLISECOND, 5 * SECOND), lambda: setattr(disk, "is_full", False))

    def step_clock(self) -> None:
        """A wall clock is set."""
        self._count("clock")
        step_ns = self._die.spread(MILLISECOND, 3600 * SECOND)
        self._machine().clock.step(step_ns if self._die.chance(0.5) else -step_ns)


_STRIKES: dict[str, Callable[[Nemesis], None]] = {
    "kill": Nemesis.kill,
    "power": Nemesis.cut_power,
    "stop": Nemesis.stop,
    "crash": Nemesis.crash,
    "zombie": Nemesis.raise_zombie,
    "cut": Nemesis.cut_link,
    "block": Nemesis.block,
    "full": Nemesis.fill,
    "clock": Nemesis.step_clock,
    "relapse": Nemesis.relapse,
    "rot": Nemesis.rot,
    "startle": Nemesis.startle,
}
