"""Lateness: what was sent over a link that its opener gave up arrives behind what goes over the next one.

    up ──(so many items, or a greeting)──► held ──given up──► late ──(items of later links, or time)──► all of it comes

A client that hears nothing gives its link up and connects anew; what it had sent is still somewhere, and so is its end.
Streams keep an order each, and there is none between two. What comes the other way reaches nobody once the link is
given up, as with a closed socket.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from .partitions import party_of
from .world import SECOND

if TYPE_CHECKING:
    from .network import End, Link, Network, Way

LATE_MAX_NS = SECOND
"""After faults are over nothing is late for longer."""


class Manner(NamedTuple):
    """How a link is late."""

    passes: int
    """So many items still arrive, then none."""
    is_greeted: bool
    """Whether none arrives any more once the other end has said something: what the opener asks for first is late."""
    given_up_ns: int
    """After this time its opener gives it up."""
    behind: int
    """What is late comes when so many items have arrived that were sent over later links."""
    is_followed: bool
    """Whether only those count that another process of the same party sent, which has followed."""
    longest_ns: int
    """Nothing is late for longer, whatever arrives."""
    lag_ns: int
    """By how much the end of the link comes behind all that is late."""


class Lateness:
    """Owns what its opener has sent over one link, from when the first of it is held until all of it comes."""

    def __init__(self, network: Network, link: Link, manner: Manner) -> None:
        """Of a link that is up."""
        self.link = link
        self._network = network
        self._manner = manner
        self._near, far = link.ends
        self._way, self._back = link.way_to(far), link.way_to(self._near)
        self._way.is_held = not manner.passes
        self._passes, self._behind = manner.passes, manner.behind
        network.world.after(manner.given_up_ns, self._give_up)
        network.world.after(manner.given_up_ns + manner.longest_ns, self.end)

    def see(self, way: Way) -> None:
        """An item has arrived."""
        if way is self._way:
            self._passes -= 1
            self._way.is_held = self._way.is_held or self._passes <= 0
        elif way is self._back:
            self._way.is_held = self._way.is_held or self._manner.is_greeted
        elif not self._near.is_open and way.number > self.link.number and self._counts(way.sender):
            self._behind -= 1
            if self._behind <= 0:
                self.end()

    def _counts(self, sender: End) -> bool:
        near = self._near
        is_of_party = sender.peer == near.peer and party_of(sender.owner) == party_of(near.owner)
        return is_of_party and not (self._manner.is_followed and sender.owner == near.owner)

    def _give_up(self) -> None:
        if self in self._network.late:
            self._way.is_held = True
            self._near.lose("given up")

    def leave_behind(self) -> None:
        """The opener is gone; what it has sent is still on its way, and what is sent to it reaches nobody."""
        self._way.is_held = True

    def hurry(self) -> None:
        """Faults are over: nothing is late for long."""
        self._network.world.after(LATE_MAX_NS, self.end)

    def end(self) -> None:
        """What is late comes, and behind it the end of the link."""
        if self in self._network.late:
            self._network.late.remove(self)
            self._way.let_go()
            if not self._near.is_open:
                self._network.world.after(self._manner.lag_ns, lambda: self._way.end("given up"))
