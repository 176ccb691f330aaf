"""Players: whoever has one durable name and several processes, one after the other, or at once where one is a zombie.

start ──► process ──killed──► (a while) ──► the next one
└────stopped──► it may be taken for dead and followed; when it wakes up it is a zombie
abandoned: whatever it was doing stays undone, for ever; nobody may be held up by that
"""

from __future__ import annotations

from typing import Generic, TypeVar

from .dice import Die
from .gates import FOR_EVER_NS
from .network import Network
from .owners import HEIR
from .peers import Peer
from .world import MILLISECOND, SECOND, Violation, World

P = TypeVar("P", bound=Peer)


class Player(Generic[P]):
    """Owns the processes of one name."""

    def __init__(self, world: World, network: Network, name: str, address: str) -> None:
        """Nobody lives yet; processes will speak to the node at `address`."""
        self.world = world
        self.network = network
        self.name = name
        self.address = address
        self.die: Die = world.dice.die(f"player/{name}")
        self.process: P | None = None
        """The newest one."""
        self.is_done = False
        """Whether its newest process has done all that it came for."""
        self.is_abandoned = False
        self._process_count = 0
        die = world.dice.die(f"heir/{name}")
        self._heir_ns = (
            die.spread(200 * MILLISECOND, 5 * SECOND) if world.has_owners and die.chance(0.3) else FOR_EVER_NS
        )
        """When somebody who may take its name over begins to start its processes."""
        self._stopped: list[P] = []

    def process_of(self, name: str) -> P:
        """A process that is not started, called `name`."""
        raise NotImplementedError

    def start(self) -> None:
        """Start a process, beside one that still lives if there is one."""
        if self.is_abandoned:
            return
        self._process_count += 1
        self.is_done = False
        self.process = self.process_of(f"{self.name}#{self._process_count}")
        if self.world.has_owners:
            self.process.principal = self.name if self.world.now_ns < self._heir_ns else HEIR
        self.process.start()

    def kill(self, why: str) -> None:
        """Kill the newest process; another follows after a while."""
        if self.process is not None and self.process.is_alive:
            self.process.kill(why)
            self.follow_later()

    def stop(self, duration_ns: int, is_followed: bool) -> None:
        """Stop the newest process for so long; another follows meanwhile if somebody takes it for dead."""
        process = self.process
        if process is None or not process.is_alive or process.gate.is_stopped:
            return
        self.world.tell(process.name, f"is stopped for {duration_ns / SECOND:.3f} s")
        process.gate.stop(duration_ns)
        self._stopped.append(process)
        if is_followed:
            self.world.after(self.die.spread(MILLISECOND, SECOND), self.start)

    def heal(self) -> None:
        """The newest process goes on, unless it is abandoned; zombies sleep on."""
        if self.process is not None and not self.is_abandoned:
            self.process.gate.resume()

    def wake(self) -> None:
        """Whoever still sleeps goes on."""
        for process in self._stopped:
            process.gate.resume()

    def end(self) -> None:
        """Whoever still works though it was given up is killed."""
        if self.is_abandoned:
            for process in self._stopped:
                process.kill("at last")

    def ask_again(self) -> None:
        """Another process asks where it stands, after all is done."""
        if self.process is not None and not self.is_abandoned:
            self.process.kill("to ask once more")
            self.start()

    def abandon(self, is_killed: bool) -> None:
        """Nobody does its work any more: it is dead, or stopped for good with its links open."""
        self.is_abandoned = True
        self.world.tell(self.name, f"is {'dead' if is_killed else 'stopped'} for good")
        if self.process is not None and self.process.is_alive:
            if is_killed:
                self.process.kill("for good")
            else:
                self.stop(FOR_EVER_NS, is_followed=False)

    def fenced(self, process: P) -> None:
        """A process was fenced; if it is the newest, by an older one that asked at the same time, another follows."""
        if process is self.process:
            if self._process_count == 1 and self.is_sure:
                raise Violation("fenced", f"the only process of {self.name} was fenced")
            self.follow_later()

    def disowned(self, process: P) -> None:
        """Somebody has taken its name over, and started a process: this one is of who may have the name no more."""
        process.stop("disowned")
        if process is self.process:
            raise Violation("rights", f"{process.name} may not have its own name")

    @property
    def is_sure(self) -> bool:
        """Whether the node may have forgotten nothing of what this player relies on."""
        raise NotImplementedError

    def follow_later(self) -> None:
        """Start another process after a while, if none is alive by then."""
        self.world.after(self.die.spread(MILLISECOND, SECOND), self._follow)

    def _follow(self) -> None:
        if self.process is None or not self.process.is_alive:
            self.start()
