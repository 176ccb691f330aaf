"""Wards, whose rights a lawgiver takes and gives back while they work: a source and a subscriber, each by one name.

    allowed ──the rules change──► suspended: what was granted ends with `forbidden`, and so does what is asked for
       ▲                              └──the rules change back──┘

Nobody else notices. What was confirmed before stays so, as for everybody, and what was not is done later: that is for
the other oracles. `rights.Wards` judges the answers.
Source: docs/how-to/secure.md, "Change it while the node runs".
"""

from __future__ import annotations

from veredus.node.exchange import RightsChanged

from .machine import Machine
from .rights import WARD
from .sources import Source, SourceProcess
from .subscribers import Subscriber, SubscriberProcess
from .world import MILLISECOND, SECOND, World


class WardSource(Source):
    """A source whose right to publish comes and goes."""

    def process_of(self, name: str) -> SourceProcess:
        """A process of the ward's."""
        process = super().process_of(name)
        process.principal = WARD
        return process

    def disowned(self, process: SourceProcess) -> None:
        """It may not now: later it may."""
        self.world.counts["wards refused"] += 1
        process.leave()


class WardSubscriber(Subscriber):
    """A subscriber whose right to subscribe comes and goes."""

    def process_of(self, name: str) -> SubscriberProcess:
        """A process of the ward's."""
        process = super().process_of(name)
        process.principal = WARD
        return process

    def disowned(self, process: SubscriberProcess) -> None:
        """It may not now: later it may."""
        self.world.counts["wards refused"] += 1
        process.leave()


class Lawgiver:
    """Somebody who changes the rules of a node now and then, and has it read them."""

    def __init__(self, world: World, machine: Machine) -> None:
        """Of this machine's node."""
        self.name = "lawgiver"
        self.world = world
        self._machine = machine
        self._die = world.dice.die("lawgiver")
        self._is_resting = False

    @property
    def is_resting(self) -> bool:
        """Whether the rules change no more."""
        return self._is_resting

    @is_resting.setter
    def is_resting(self, is_resting: bool) -> None:
        self._is_resting = is_resting
        if is_resting and self.world.suspended:
            self._change()

    def start(self) -> None:
        """Begin to change the rules."""
        self._later()

    def _later(self) -> None:
        self.world.after(self._die.spread(10 * MILLISECOND, 2 * SECOND), self._change_again)

    def _change_again(self) -> None:
        if not self._is_resting:
            self._change()
            self._later()

    def _change(self) -> None:
        """The rules are others from now on; the node hears of it in its next turn, if it is up."""
        if self.world.suspended:
            self.world.suspended.clear()
        else:
            self.world.suspended[WARD] = None
        self.world.counts["laws"] += 1
        self.world.tell(self.name, f"suspends {', '.join(self.world.suspended) or 'nobody'}")
        if self._machine.engine is not None:
            self._machine.post(RightsChanged())
