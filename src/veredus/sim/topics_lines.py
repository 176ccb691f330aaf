"""The lines between those who ask and those who are asked in a world of topics.

    Ask ──► Lines ──(token, data)──► Front of a machine, or of a proxy ──► Asked(peer)
    Answered ◄──────(token, data)── the same line ◄──────────────────── Answer(peer)

A line is what a DEALER or a REQ has: it is dialled when it is first needed, and again whenever it is gone; what was on
it then is lost. An asker that insists (a REQ) keeps what it would say until it is connected; another one drops it.

Invariants
    (1) A peer is answered once, by the process that was asked, or that process died.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from veredus.protocols.topics.exchange import Answer, Asked, LateAnswer

from .gates import Gate
from .network import End, Network
from .topics_told import Told
from .world import MILLISECOND, Violation, World

DIAL_MAX_NS = 200 * MILLISECOND
"""How long after a line was lost it is dialled again, at most."""


class Item(NamedTuple):
    """What goes over a line: a question, or with the same token its answer."""

    token: int
    data: bytes


class Lines:
    """Owns one process's lines to those whom it asks."""

    def __init__(
        self, world: World, network: Network, owner: str, gate: Gate, on_answered: Callable[[int, bytes, str], None]
    ) -> None:
        """Nobody was asked yet; `on_answered` is told the token, the answer, and at which address it was asked."""
        self._world = world
        self._network = network
        self._owner = owner
        self._gate = gate
        self._on_answered = on_answered
        self._die = world.dice.die(f"lines/{owner}")
        self._ends: dict[str, End | None] = {}
        """By address; None while it is being dialled."""
        self._is_open = True

    def close(self) -> None:
        """The process is gone."""
        self._is_open = False

    def leave(self) -> None:
        """Let go of every line; what is still answered on them reaches nobody."""
        for end in self._ends.values():
            if end is not None:
                end.on_received = _ignore
                end.close("left")
        self._ends.clear()

    def ask(self, address: str, token: int, data: bytes, insists: bool = False) -> None:
        """Ask whoever listens at an address, once there is a line if one insists."""
        if address not in self._ends:
            self.meet(address, (Item(token, data),) if insists else ())
            return
        end = self._ends[address]
        if end is not None:
            self._send(end, Item(token, data))

    def meet(self, address: str, first: Sequence[Item] = ()) -> None:
        """Have a line to an address; `first` goes over it as soon as it is there."""
        if address not in self._ends and self._is_open:
            self._ends[address] = None
            self._dial(address, first)

    def _dial(self, address: str, first: Sequence[Item]) -> None:
        def connected(end: End | None) -> None:
            if not self._is_open or self._ends.get(address, end) is not None:
                if end is not None:
                    end.close("nobody there")
            elif end is None or not end.is_open:
                self._dial_later(address, first)
            else:
                self._ends[address] = end
                end.on_received = lambda item: self._gate.through(lambda: self._received(address, item))
                end.on_closed = lambda _: self._gate.through(lambda: self._lost(address, end))
                for item in first:
                    self._send(end, item)

        self._network.connect(self._owner, address, lambda end: self._gate.through(lambda: connected(end)))

    def _dial_later(self, address: str, first: Sequence[Item]) -> None:
        def dial() -> None:
            if self._is_open and self._ends.get(address, self) is None:
                self._dial(address, first)

        delay_ns = self._die.spread(MILLISECOND, DIAL_MAX_NS)
        self._world.after(delay_ns, lambda: self._gate.through(dial))

    def _lost(self, address: str, end: End) -> None:
        if self._is_open and self._ends.get(address) is end:
            self._ends[address] = None
            self._dial_later(address, ())

    def _send(self, end: End, item: Item) -> None:
        send(self._network, end, item)

    def _received(self, address: str, item: object) -> None:
        if self._is_open and isinstance(item, Item):
            self._on_answered(item.token, item.data, address)


def send(network: Network, end: End, item: Item) -> None:
    """Send over a line; a careless network loses it, or brings it twice."""
    careless = network.carelessness
    end.send((item,) if careless is None else network.copies(item, careless))


class Front(End):
    """The end of whoever is asked, for all who ask: to a machine it is one link, which is paused as one.

    Who was asked something is counted down when it is answered: what is answered twice, or to nobody, is a violation.
    """

    __slots__ = (
        "_accepted_count",
        "_asked",
        "_askers",
        "_gate",
        "_last_peer",
        "_network",
        "_number",
        "_on_asked",
        "told",
    )

    def __init__(
        self, owner: str, network: Network, gate: Gate, told: Told, link: int, on_asked: Callable[[Asked], None]
    ) -> None:
        """Nobody has asked; `on_asked` is told what comes."""
        super().__init__(owner, "")
        self.told = told
        self._network = network
        self._gate = gate
        self._number = link
        self._on_asked = on_asked
        self._accepted_count = 0
        self._askers: list[End] = []
        self._asked: dict[int, tuple[End, Item]] = {}
        """Who waits for an answer, by peer."""
        self._last_peer = 0

    def accept(self, end: End) -> None:
        """Somebody has a line to us from now on."""
        self._askers = [known for known in self._askers if known.is_open]
        self._askers.append(end)
        end.is_paused = self.is_paused
        self._accepted_count += 1
        origin = self._accepted_count.to_bytes(8)
        end.on_received = lambda item: self._gate.through(lambda: self._received(end, origin, item))

    def _received(self, end: End, origin: bytes, item: object) -> None:
        if self.is_open and isinstance(item, Item):
            self._last_peer += 1
            self._asked[self._last_peer] = (end, item)
            self.told.asked(self.owner, self._last_peer, item.data)
            envelope = (item.token.to_bytes(8), b"")
            self._on_asked(Asked(self._last_peer, item.data, self._number, origin, envelope=envelope))

    def answer(self, order: Answer | LateAnswer) -> bytes:
        """Answer whoever waits, once; what it had asked."""
        asked = self._asked.pop(order.peer, None)
        if asked is None:
            raise Violation("answered", f"{self.owner} answers peer {order.peer}, who does not wait: {order.data!r}")
        end, item = asked
        self.told.answered(self.owner, order.peer, item.data, order.data)
        send(self._network, end, Item(item.token, order.data))
        return item.data

    @property
    def waiting(self) -> list[bytes]:
        """What was asked and not answered."""
        return [item.data for _, item in self._asked.values()]

    def end(self) -> None:
        """The process is gone, with all that it had in hand."""
        self.is_open = False
        self.told.gone(self.owner)

    def close(self, reason: str) -> None:
        """Take no question any more."""
        self.end()

    def pause(self) -> None:
        """Take no question for now."""
        super().pause()
        for end in self._askers:
            end.pause()

    def resume(self) -> None:
        """Take questions again."""
        self.is_paused = False
        for end in self._askers:
            end.resume()


def _ignore(_: object) -> None:
    return None
