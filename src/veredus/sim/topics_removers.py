"""Who removes a topic at one server, also in the middle of a merge, and what may be gone by that.

look ── there ──► after a while, or when its server asks or answers something of a merge ──► remove ──► a pause
  ▲ └── not there: later                                                                               │
  └─────────────────────────────────────────────────────────────────────────────────────────────────────┘

The messages that the topic had there are gone, with the subscriptions, with who left, and with the counters of those
who put. So from then on a client is owed what is put after it has subscribed once more; what was put before may be
nowhere; and a copy of a PUT or a SUBSCRIBE that comes after that, and was sent before, is a new one.
"""

from __future__ import annotations

from typing import Any

from veredus.streams.exchange import AdminRequested, AnswerAdmin, Refuse

from .network import Network
from .peers import Peer
from .topics_hosts import TopicsMachine
from .topics_told import Told
from .world import MILLISECOND, SECOND, Violation, World

_SHOW, _REMOVE, _SESSION = 1, 2, 1
PARTS = ("begin", "sources", "rows", "end")
"""At which of a TRANSFER a topic may be removed."""


class TopicRemover(Peer):
    """Somebody who removes one topic at one server, a few times."""

    def __init__(
        self, world: World, network: Network, name: str, machine: TopicsMachine, topic: str, told: Told
    ) -> None:
        """Who removes `topic` at the server of `machine`, and says so to `told` before."""
        super().__init__(world, network, name, machine.name)
        self._machine = machine
        self._topic = topic
        self._told = told
        self._left_count = self.die.between(1, 3)
        self._moment = ""
        """At which step of a merge it removes what it waits to remove; "" for none."""
        self.is_resting = False
        machine.on_steps.append(self._see)

    def attach(self) -> None:
        """Begin what it came for."""
        self._moment = ""
        port = self.port
        self.later(self.die.spread(50 * MILLISECOND, 2 * SECOND), lambda: self._look(port))

    def _look(self, port: object) -> None:
        if self.port is port and not self.is_resting:
            self.ask(AdminRequested(_SESSION, _SHOW, "local", "stream.show", {"name": self._topic}))

    def hear(self, order: Any) -> None:
        """Remove what is there, and begin anew."""
        match order:
            case AnswerAdmin(request=request) if request == _SHOW:
                port = self.port
                if self.die.chance(0.6):
                    verb = "asks" if self.die.chance(0.5) else "answers"
                    self._moment = f"{verb} {PARTS[self.die.between(0, len(PARTS) - 1)]}"
                    self.later(self.die.spread(SECOND, 4 * SECOND), lambda: self._remove(port))
                else:
                    self.later(self.die.spread(MILLISECOND, SECOND), lambda: self._remove(port))
            case AnswerAdmin(request=request) | Refuse(request=request) if request == _REMOVE:
                if not self.network.is_plain:
                    # Elsewhere a copy of it may come later.
                    self._told.removals.end(self.address, self._topic)
                self.leave()
            case Refuse():
                self.leave()
            case _:
                raise Violation("exchange", f"{self.name} was told {order!r}")

    def _see(self, step: str) -> None:
        """Its server has asked or answered something of a merge."""
        if step == self._moment:
            self._moment, port = "", self.port
            self.later(self.die.spread(MILLISECOND // 10, 20 * MILLISECOND), lambda: self._remove(port))

    def _remove(self, port: object) -> None:
        if port is None or self.port is not port or self.is_resting or not self._left_count:
            return
        self._left_count -= 1
        self._moment = ""
        self.world.counts["topics.removals"] += 1
        self.world.tell(self.name, f"removes {self._topic}")
        self._told.removals.ask(self.address, self._topic)
        self.ask(AdminRequested(_SESSION, _REMOVE, "local", "stream.delete", {"name": self._topic}))

    def lose(self) -> None:
        """It begins again; what it asked for may still come about."""
