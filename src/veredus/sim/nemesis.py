"""What goes wrong in a world, drawn from its seed: who is struck, when, and by what. Every fault ends by itself or when
the nemesis rests.

Each strike has a number and dice of its own, so that one that is left out shifts none of the others.

kill         a node dies, between two orders or at once; it starts again after a while
relapse      a node dies between a write and its sync, and the power goes soon after it is up again
rot          something on the disk is not what was written, where nothing is being written
power        a node dies, and what was not synced goes in part
stop         a node ends on purpose
crash        a source, a subscriber or a sink dies; another process follows
zombie       another process follows though the first has not died
cut          a link goes, mid-frame where it may
block        what goes one way, or both, is held back for a while
full         nothing can be made on a disk for a while
clock        a node's wall clock is set forward or back by up to an hour
startle      a node dies a few orders after it confirmed something of a kind
sever        the power goes in the middle of an append of several records: the first ones are there, the rest is not
pause        a node or a process is stopped for up to two minutes, and goes on as if nothing had been
partition    who hears whom no longer: see `partitions`; it may come and go (flapping)
clog         links are held back one by one, and let on again in another order
strobe       a node's wall clock jumps to and fro
restart      everybody is killed, one after the other
all          everybody is killed at once, the node with its power
careless     offers are lost, repeated and reordered for a while, then all links go
late         who has opened a link gives it up; what was sent over it comes behind what goes over the next one
abandon      when the nemesis rests, some are left dead, or stopped for good with their links open
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Protocol

from veredus.streams.exchange import (
    ConfirmCommitted,
    ConfirmFilter,
    ConfirmReturned,
    ConfirmSettled,
    GrantSource,
    GrantSubscription,
)

from .late import Manner
from .machine import Machine
from .network import Carelessness, Network
from .partitions import SHAPES, Parts, party_of
from .ports import is_offer
from .ranges import Ranges, time_ns
from .rot import Rot
from .world import MICROSECOND, MILLISECOND, SECOND, World

FAULTS = (
    "kill", "power", "stop", "crash", "zombie", "cut", "block", "full", "clock", "relapse", "rot", "startle", "sever",
    "pause", "partition", "clog", "strobe", "restart", "all", "careless", "late",
    "abandon",
)  # fmt: skip
RARE = ("restart", "all", "abandon", "startle", "sever")
"""Faults that are drawn by dice of their own, and seldom."""
CONFIRMATIONS = (
    ConfirmFilter, ConfirmFilter, GrantSubscription, ConfirmSettled, ConfirmCommitted, GrantSource, ConfirmReturned,
)  # fmt: skip
"""What a node may be startled by: the change of a table, which its journal must have by then. Filters change seldom."""
COUNTS_MAX = {"rot": 3, "all": 3, "restart": 3}
"""How often in one world; others as often as it comes."""


class Victim(Protocol):
    """Somebody with processes that can be killed, stopped, or followed while they live."""

    name: str

    def start(self) -> None:
        """Start a process, beside one that still lives if there is one."""
        ...

    def kill(self, why: str) -> None:
        """Kill the newest process; another follows."""
        ...

    def stop(self, duration_ns: int, is_followed: bool) -> None:
        """Stop the newest process for so long; another may follow meanwhile."""
        ...

    def heal(self) -> None:
        """Let the newest process go on."""
        ...

    def wake(self) -> None:
        """Let every process go on."""
        ...

    def end(self) -> None:
        """Kill whoever was given up and works all the same."""
        ...

    def abandon(self, is_killed: bool) -> None:
        """Let nobody do its work any more."""
        ...


class Nemesis:
    """Owns the faults of one world."""

    def __init__(
        self,
        world: World,
        network: Network,
        machines: Sequence[Machine],
        players: Sequence[Victim],
        rots: Sequence[Rot],
        faults: Sequence[str],
        likely: Sequence[str],
        ranges: Ranges,
        strikes: Collection[int] | None = None,
    ) -> None:
        """Strike these machines, their disks' `rots`, and players; `faults` are those that may be drawn, and of these
        `likely` those that are drawn for sure, as often as they stand there.

        `strikes`: the numbers of those that are carried out, None for all.
        """
        self._world = world
        self._network = network
        self._machines = machines
        self._players = players
        self._parties = [machine.name for machine in machines] + [player.name for player in players]
        self._rots = rots
        self._ranges = ranges
        self._only = strikes
        self._planning = self._die = world.dice.die("nemesis")
        self._restarting = world.dice.die("restarts")
        self.strikes: list[tuple[int, str]] = []
        """The number and the fault of each strike that was carried out."""
        self._number = 0
        self._abandoned_share = 0.0
        self.faults = [fault for fault in faults if fault not in RARE and world.dice.die(f"has/{fault}").chance(0.4)]
        self.faults += [fault for fault in RARE if fault in faults and world.dice.die(f"has/{fault}").chance(0.25)]
        self.faults += [fault for fault in likely if fault in faults]
        self._interval_ns = self._die.spread(20 * MILLISECOND if likely else 5 * MILLISECOND, SECOND)
        if "abandon" in self.faults:
            self.faults.remove("abandon")
            self._abandoned_share = self._die.uniform(0.1, 0.6)
        self._is_resting = False
        for machine in machines:
            machine.on_down = partial(self._restart_later, machine)

    def begin(self) -> None:
        """Strike from now on."""
        self._world.tell("nemesis", f"may {', '.join(self.faults) or 'do nothing'}")
        if self.faults:
            self._plan()

    def rest(self) -> None:
        """Strike no more; heal what is not healed by itself. Some are not healed, and nobody may be held up by that."""
        self._world.tell("nemesis", "rests")
        self._is_resting = True
        if self._network.carelessness is not None:
            self._be_careful()
        self._network.heal()
        for machine in self._machines:
            machine.steps_to_live = machine.startled_by = None
            machine.disk.on_written = None
            machine.is_severed = False
            machine.disk.is_full = False
            machine.disk.is_calm = True
            machine.gate.resume()
            machine.start()
        die = self._world.dice.die("abandon")
        for player in self._players:
            if die.chance(self._abandoned_share):
                self._count("abandon")
                player.abandon(die.chance(0.5))
            player.heal()

    def wake(self) -> None:
        """Whoever still sleeps goes on, long after it was given up."""
        for player in self._players:
            player.wake()

    def end(self) -> None:
        """Whoever was given up works no more."""
        for player in self._players:
            player.end()

    def _plan(self) -> None:
        self._later(self._planning.spread(100 * MICROSECOND, 2 * self._interval_ns), self._strike)

    def _later(self, delay_ns: int, strike: Callable[[], None]) -> None:
        """What is planned is not done any more once the nemesis rests."""
        self._world.after(delay_ns, lambda: None if self._is_resting else strike())

    def _strike(self) -> None:
        self._number += 1
        fault = self.faults[self._planning.between(0, len(self.faults) - 1)]
        is_left = self._world.counts[f"fault.{fault}"] < COUNTS_MAX.get(fault, 1 << 30)
        if is_left and (self._only is None or self._number in self._only):
            self._die = self._world.dice.die(f"strike/{self._number}")
            self.strikes.append((self._number, fault))
            _STRIKES[fault](self)
        self._plan()

    def _machine(self) -> Machine:
        return self._machines[self._die.between(0, len(self._machines) - 1)]

    def _player(self) -> Victim | None:
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
        """A node's machine loses its power, now or when the next group is written and not yet synced."""
        machine = self._machine()
        if self._die.chance(0.5):
            machine.disk.on_written = partial(machine.kill, "between a write and its sync", with_power=True)
        else:
            machine.kill("just so", with_power=True)

    def relapse(self) -> None:
        """A node dies between a write and its sync; soon after it is up again, the power goes."""
        machine, die = self._machine(), self._die

        def fall() -> None:
            machine.on_up = relapse
            machine.kill("between a write and its sync")

        def relapse() -> None:
            cut = partial(machine.kill, "once more", with_power=True)
            self._later(die.spread(100 * MICROSECOND, 200 * MILLISECOND), cut)

        self._count("relapse")
        machine.disk.on_written = fall

    def rot(self) -> None:
        """Something on a disk is not what was written."""
        if self._rots:
            what = self._rots[self._die.between(0, len(self._rots) - 1)].strike(self._die)
            if what:
                self._count("rot")
                self._world.tell("nemesis", f"spoils {what}")
                if self._die.chance(0.5):
                    self._machine().kill("before anybody has read it")

    def startle(self) -> None:
        """A node dies soon after the next confirmation of some kind."""
        self._count("startle")
        self._machine().startled_by = CONFIRMATIONS[self._die.between(0, len(CONFIRMATIONS) - 1)]

    def sever(self) -> None:
        """A node's power goes in the middle of an append."""
        self._count("sever")
        self._machine().is_severed = True

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
            until_ns = self._world.now_ns + time_ns(self._die, self._ranges.block_s)
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
        step_ns = time_ns(self._die, self._ranges.clock_step_s)
        self._machine().clock.step(step_ns if self._die.chance(0.5) else -step_ns)

    def strobe(self) -> None:
        """A wall clock jumps to and fro for a while."""
        self._count("strobe")
        clock, die = self._machine().clock, self._die
        step_ns = time_ns(die, self._ranges.clock_step_s)
        pause_ns = die.spread(100 * MICROSECOND, 50 * MILLISECOND)
        for jump in range(die.between(2, 20)):
            self._later(jump * pause_ns, partial(clock.step, step_ns if jump % 2 else -step_ns))

    def pause(self) -> None:
        """A node or a process is stopped, and knows nothing of it when it goes on."""
        self._count("pause")
        die, player = self._die, self._player()
        duration_ns = time_ns(die, self._ranges.pause_s)
        if player is None or die.chance(0.3):
            machine = self._machine()
            self._world.tell(machine.name, f"is stopped for {duration_ns / SECOND:.3f} s")
            machine.gate.stop(duration_ns)
        else:
            player.stop(duration_ns, is_followed=die.chance(0.5))

    def partition(self) -> None:
        """Some do not hear some others for a while."""
        die = self._die
        shape = list(SHAPES)[die.between(0, len(SHAPES) - 1)]
        self._count(f"partition.{shape}")
        parts = SHAPES[shape](self._parties, die)
        duration_ns = time_ns(die, self._ranges.partition_s)
        if not die.chance(0.2):
            self._network.part(parts, self._world.now_ns + duration_ns)
            return
        self._count("partition.flapping")
        period_ns = die.spread(5 * MILLISECOND, SECOND)
        for at_ns in range(0, min(duration_ns, 20 * period_ns), 2 * period_ns):
            self._later(at_ns, partial(self._part, parts, period_ns))

    def _part(self, parts: Parts, duration_ns: int) -> None:
        self._network.part(parts, self._world.now_ns + duration_ns)

    def clog(self) -> None:
        """Links are held back one by one, and let on again in another order."""
        self._count("clog")
        die, now_ns = self._die, self._world.now_ns
        for link in self._network.links_of(self._machine().name):
            if die.chance(0.6):
                near, far = link.ends
                until_ns = now_ns + time_ns(die, self._ranges.block_s)
                self._network.block(near.owner, far.owner, until_ns)
                self._network.block(far.owner, near.owner, until_ns)

    def restart_all(self) -> None:
        """Everybody is killed, one after the other."""
        self._count("restart")
        die, at_ns = self._die, 0
        victims: list[Callable[[], None]] = [partial(machine.kill, "in its turn") for machine in self._machines]
        victims += [partial(player.kill, "in its turn") for player in self._players]
        for kill in sorted(victims, key=lambda _: die.random()):
            self._later(at_ns, kill)
            at_ns += die.spread(MILLISECOND, 500 * MILLISECOND)

    def kill_all(self) -> None:
        """Everybody is killed at once, the nodes with their power."""
        self._count("all")
        for machine in self._machines:
            machine.kill("with all others", with_power=True)
        for player in self._players:
            player.kill("with all others")

    def be_careless(self) -> None:
        """What goes over links that know whole items is lost, repeated and reordered, if the dialect may bear it."""
        network = self._network
        if not network.is_plain or network.carelessness is not None:
            return
        self._count("careless")
        die = self._die
        ranges = self._ranges
        loss, repeat, reorder = (die.uniform(*span) for span in (ranges.loss, ranges.repeat, ranges.reorder))
        network.carelessness = Carelessness(loss, repeat, reorder, is_offer)
        self._later(die.spread(10 * MILLISECOND, 3 * SECOND), self._be_careful)

    def be_late(self) -> None:
        """A link is given up, and what was sent over it comes late: a link that is there, or the next one instead."""
        links = [link for link in self._network.links if link.ends[0].is_open]
        if not links:
            return
        self._count("late")
        die = self._die
        link = links[die.between(0, len(links) - 1)]
        party = party_of(link.ends[0].owner)
        player = next((player for player in self._players if player.name == party), None)
        is_first = die.chance(0.6)
        asks_late = is_first and die.chance(0.7)
        manner = Manner(
            # Where whole objects go over links, nobody greets.
            passes=0 if asks_late and self._network.is_plain else die.spread(8 if asks_late else 1, 20),
            is_greeted=asks_late,
            given_up_ns=die.spread(MILLISECOND, SECOND),
            behind=die.spread(1, 40),
            is_followed=player is not None and die.chance(0.5),
            longest_ns=time_ns(die, self._ranges.late_s),
            lag_ns=0 if die.chance(0.5) else die.spread(MICROSECOND, SECOND),
        )
        if not is_first:
            self._network.be_late(link, manner)
        else:
            self._network.be_late_next(party, manner)
            if player is not None and die.chance(0.5):
                player.kill("before it connects, and is late")
            else:
                link.cut("cut, before another one that is late")
        if manner.is_followed and player is not None:
            follow = player.start if die.chance(0.5) else partial(player.kill, "and what it has sent is late")
            self._later(manner.given_up_ns + die.spread(MILLISECOND, 3 * SECOND), follow)

    def _be_careful(self) -> None:
        """What was lost is nowhere on its way, so everybody must begin anew."""
        self._network.carelessness = None
        for machine in self._machines:
            for link in self._network.links_of(machine.name):
                link.cut("by the careless")


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
    "sever": Nemesis.sever,
    "pause": Nemesis.pause,
    "partition": Nemesis.partition,
    "clog": Nemesis.clog,
    "strobe": Nemesis.strobe,
    "restart": Nemesis.restart_all,
    "all": Nemesis.kill_all,
    "careless": Nemesis.be_careless,
    "late": Nemesis.be_late,
}
