"""Who trims a topic's stream at one server, also while that gives the topic away or takes it over.

look ── there ──► read from the floor to the head ──► say what goes ──► trim up to a drawn place ──► a pause
  ▲ └── not there: later                                                                               │
  └────────────────────────────────────────────────────────────────────────────────────────────────────┘
"""

from __future__ import annotations

from typing import Any

from veredus.protocols.topics.ids import shown_of
from veredus.streams.exchange import (
    PUSH_OVERHEAD,
    AdminRequested,
    AnswerAdmin,
    CreditGranted,
    Fence,
    GrantSubscription,
    Push,
    PushGap,
    PushProgress,
    Refuse,
    SubscribeRequested,
)
from veredus.streams.lives import Lives

from .network import Network
from .peers import Peer
from .topics_missed import Missed
from .topics_natives import rows_in
from .world import MILLISECOND, SECOND, Violation, World

_SHOW, _TRIM = 1, 2
_SESSION = 1


class TopicTrimmer(Peer):
    """Somebody who trims one topic's stream at one server now and then."""

    def __init__(self, world: World, network: Network, name: str, address: str, topic: str, missed: Missed) -> None:
        """Who trims `topic` at the server `address`, and says so to `missed` before."""
        super().__init__(world, network, name, address)
        self._topic = topic
        self._missed = missed
        self._rows: list[tuple[str, int, bytes]] = []
        self._lives = Lives.of(b"")
        self._head = self._position = 0
        self.is_resting = False

    def attach(self) -> None:
        """Begin what it came for."""
        self._rows.clear()
        self._head = self._position = 0
        port = self.port
        self.later(self.die.spread(10 * MILLISECOND, SECOND), lambda: self._look(port))

    def _look(self, port: object) -> None:
        if self.port is port and not self.is_resting:
            self.ask(AdminRequested(_SESSION, _SHOW, "local", "stream.show", {"name": self._topic}))

    def hear(self, order: Any) -> None:
        """Read what there is, then trim some of it, and begin anew."""
        match order:
            case AnswerAdmin(request=request) if request == _SHOW:
                self.ask(SubscribeRequested(_SESSION, "local", self._topic, credit=1 << 20))
            case GrantSubscription():
                self._lives = Lives.of(order.stream_incarnation, order.terms)
                self._head, self._position = order.head, order.position
                self._go_on()
            case Push():
                found = ((sequence, body) for sequence, body in rows_in(order))
                self._rows += [(shown_of(self._lives.at(sequence)), sequence, body) for sequence, body in found]
                self._position = order.last_sequence + 1
                self.ask(CreditGranted(_SESSION, order.size + PUSH_OVERHEAD))
                self._go_on()
            case PushProgress(position=position) | PushGap(next_sequence=position):
                self._position = max(self._position, position)
                self._go_on()
            case AnswerAdmin() | Refuse() | Fence():
                self.leave()
            case _:
                raise Violation("exchange", f"{self.name} was told {order!r}")

    def _go_on(self) -> None:
        if not self._head or self._position <= self._head or self.is_resting or not self._rows:
            return
        self._head = 0
        count = self.die.between(1, len(self._rows))
        self._missed.trims(self._rows[:count])
        self.world.counts["topics.trims"] += 1
        floor = self._rows[count - 1][1] + 1
        self.world.tell(self.name, f"trims {self._topic} below {floor}")
        self.ask(AdminRequested(_SESSION, _TRIM, "local", "stream.trim", {"name": self._topic, "floor": floor}))

    def lose(self) -> None:
        """It begins again."""
