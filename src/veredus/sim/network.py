"""A network of streams: what is sent arrives in order, late, in pieces, or not at all when the link is cut.

    End ──send──► pipe ──(delay, tear, block)──► End.on_received
                   └── cut: what has not arrived is lost; each end hears of it in its own time

Items are bytes, which may be torn anywhere, or whole objects, which may not. What is blocked, one way or a partition,
holds what is on it back until it is healed. Nothing is lost, repeated or reordered within a link that lives, as TCP
promises; a careless network (`Carelessness`) does all three to the items that may bear it, until its links are cut.
Between two links there is no order: what was sent over one that its opener gave up may be late (`Lateness`), and come
behind what the opener, or who follows it, sends over the next one.
Source: docs/internals/DESIGN.md, "Proof".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from veredus.kernel.octets import Octets

from .dice import Die
from .late import Lateness, Manner
from .partitions import Parts, party_of
from .ranges import Span, time_ns
from .world import MICROSECOND, MILLISECOND, SECOND, World


@dataclass(slots=True)
class NetworkTemper:
    """How this network is: times in nanoseconds, the rest probabilities by item."""

    delay_min_ns: int = 20 * MICROSECOND
    delay_max_ns: int = MILLISECOND
    spike: float = 0.0
    spike_max_ns: int = SECOND
    congested_size: int = 64 << 10
    """A way is congested when more is on it, until it is down to a quarter."""
    tear: float = 0.3
    cut: float = 0.0
    half_open: float = 0.2
    """When a link is cut: how often an end hears of it only after a long time."""
    throttle: float = 0.0
    """How often a way of a link is a slow one."""
    rate_min: int = 4 << 10
    """Bytes in a second, of the slowest way."""


def drawn_temper(die: Die, delay_s: Span) -> NetworkTemper:
    """A network's temper, for one world; `delay_s`: by how much something may be late, now and then."""
    delay_min_ns = die.spread(10 * MICROSECOND, 5 * MILLISECOND)
    return NetworkTemper(
        delay_min_ns=delay_min_ns,
        delay_max_ns=delay_min_ns + die.spread(10 * MICROSECOND, 50 * MILLISECOND),
        spike=die.rate(0.05),
        spike_max_ns=time_ns(die, delay_s),
        tear=die.rate(1.0),
        cut=die.rate(0.02),
        half_open=die.rate(1.0),
        throttle=die.rate(1.0, never=0.8),
        congested_size=die.spread(512, 64 << 10),
    )


class Carelessness(NamedTuple):
    """What a network does to single items until its links are cut: probabilities by item."""

    loss: float
    repeat: float
    reorder: float
    bears: Callable[[object], bool]
    """Whether an item may be lost, repeated and overtaken."""


class End:
    """One end of a link; its owner sets the callbacks before anything can arrive."""

    __slots__ = ("_link", "_way", "is_open", "is_paused", "on_closed", "on_flow", "on_received", "owner", "peer")

    def __init__(self, owner: str, peer: str) -> None:
        """Of a link from `owner`, who holds this end, to `peer`."""
        self.owner = owner
        self.peer = peer
        self.is_open = True
        self.is_paused = False
        self.on_received: Callable[[object], None] = _ignore_item
        self.on_closed: Callable[[str], None] = _ignore_reason
        self.on_flow: Callable[[bool], None] = _ignore_flow
        self._way: Way | None = None
        self._link: Link | None = None

    def attach(self, link: Link, way: Way) -> None:
        """Know the link, and the way from this end to the other."""
        self._link = link
        self._way = way

    def send(self, items: Sequence[object]) -> None:
        """Send items, in order; nothing happens on a link that is gone."""
        if self.is_open and self._way is not None:
            for item in items:
                self._way.put(item)

    def close(self, reason: str) -> None:
        """Close this end at once; the other hears of it behind what was sent before."""
        if self.is_open and self._way is not None:
            self.is_open = False
            self._way.end(reason)

    def pause(self) -> None:
        """Take nothing more for now."""
        self.is_paused = True

    def resume(self) -> None:
        """Take again what comes."""
        self.is_paused = False
        if self._link is not None:
            self._link.way_to(self).pump()

    def lose(self, reason: str) -> None:
        """The link is gone: say so, once."""
        if self.is_open:
            self.is_open = False
            self.on_closed(reason)


@dataclass(frozen=True, slots=True)
class _Goodbye:
    reason: str


class Way:
    """One direction of a link: a queue of items with the times at which they can arrive."""

    __slots__ = (
        "_is_congested", "_is_pumping", "_items", "_last_ns", "_network", "_ns_per_byte", "_size", "is_cut", "is_held",
        "number", "receiver", "sender",
    )  # fmt: skip

    def __init__(self, network: Network, number: int, sender: End, receiver: End) -> None:
        self._network = network
        self.number = number
        self.sender = sender
        self.receiver = receiver
        self._items: deque[tuple[int, object]] = deque()
        self._size = 0
        self._is_congested = False
        self._is_pumping = False
        self._last_ns = 0
        self._ns_per_byte = network.ns_per_byte()
        self.is_cut = False
        self.is_held = False
        """Whether nothing arrives for now, as it is late."""

    def put(self, item: object) -> None:
        """An item goes on its way; bytes may be torn into pieces that arrive by themselves."""
        careless = self._network.carelessness
        if careless is None or not careless.bears(item):
            self._append(item)
        else:
            for copy in self._network.copies(item, careless):
                self._append(copy)
            if len(self._items) > 1 and careless.bears(self._items[-2][1]) and self._network.chance(careless.reorder):
                (first_ns, first), (second_ns, second) = self._items[-2], self._items[-1]
                self._items[-2], self._items[-1] = (first_ns, second), (second_ns, first)
        self._let_on()

    def _append(self, item: object) -> None:
        for piece in self._network.pieces(item):
            size = _size_of(piece)
            slowness_ns = 0 if self._network.is_calm else size * self._ns_per_byte
            self._last_ns = max(self._last_ns, self._network.arrival_ns()) + slowness_ns
            self._items.append((self._last_ns, piece))
            self._size += size

    def _let_on(self) -> None:
        if self._size > self._network.temper.congested_size and not self._is_congested:
            self._is_congested = True
            self._network.world.after(0, lambda: self._tell_flow(True))
        self.pump()

    def _tell_flow(self, is_congested: bool) -> None:
        if self.sender.is_open and self._is_congested is is_congested:
            self.sender.on_flow(is_congested)

    def pump(self) -> None:
        """Have the next item arrive in its time, unless the receiver is paused."""
        if self._items and not (self._is_pumping or self.receiver.is_paused or self.is_cut or self.is_held):
            self._is_pumping = True
            self._network.world.at(self._items[0][0], self._arrive)

    def _arrive(self) -> None:
        self._is_pumping = False
        if self.is_cut or self.is_held or self.receiver.is_paused:
            return
        healed_ns = self._network.healed_ns(self.sender.owner, self.receiver.owner)
        if healed_ns > self._network.world.now_ns:
            self._is_pumping = True
            self._network.world.at(healed_ns, self._arrive)
            return
        _, item = self._items.popleft()
        self._size -= _size_of(item)
        if self._is_congested and self._size * 4 < self._network.temper.congested_size:
            self._is_congested = False
            self._network.world.after(0, lambda: self._tell_flow(False))
        if self._network.late:
            self._network.note_arrival(self)
        if isinstance(item, _Goodbye):
            self.receiver.lose(item.reason)
        elif self.receiver.is_open:
            self.receiver.on_received(item)
        self.pump()

    def end(self, reason: str) -> None:
        """Nothing comes behind what is on its way."""
        self.put(_Goodbye(reason))

    def let_go(self) -> None:
        """What was held comes now, each in its time."""
        self.is_held = False
        self._last_ns = 0
        held, self._items = self._items, deque()
        for _, item in held:
            self._last_ns = max(self._last_ns, self._network.arrival_ns())
            self._items.append((self._last_ns, item))
        self.pump()


class Link:
    """Two ends and the two ways between them; `near` is that of who has opened it."""

    def __init__(self, network: Network, number: int, near: End, far: End) -> None:
        """A link that is up; a later one has a greater number."""
        self._network = network
        self.number = number
        self.ends = (near, far)
        self._ways = (Way(network, number, near, far), Way(network, number, far, near))
        near.attach(self, self._ways[0])
        far.attach(self, self._ways[1])

    def way_to(self, end: End) -> Way:
        """The way on which `end` receives."""
        return self._ways[0] if end is self._ways[0].receiver else self._ways[1]

    @property
    def is_open(self) -> bool:
        """Whether any end still takes it for open."""
        return self.ends[0].is_open or self.ends[1].is_open

    def cut(self, reason: str) -> None:
        """Lose what has not arrived; each end hears of it soon, or after a long time."""
        for way in self._ways:
            way.is_cut = True
        for end in self.ends:
            self._network.lose_later(end, reason)


class Network:
    """Owns the links, who listens, and which ways are blocked."""

    def __init__(self, world: World, temper: NetworkTemper) -> None:
        """A network without links."""
        self.world = world
        self.temper = temper
        self.is_calm = False
        self.is_plain = False
        """Whether whole objects go over its links, and not bytes."""
        self._die = world.dice.die("network")
        self._slow_die = world.dice.die("throttle")
        self._listeners: dict[str, Callable[[End], bool]] = {}
        self._links: list[Link] = []
        self._blocked_until_ns: dict[tuple[str, str], int] = {}
        self._partitions: list[tuple[int, Parts]] = []
        self.carelessness: Carelessness | None = None
        """What is done to single items just now; whoever begins with it cuts all links when it ends."""
        self.late: list[Lateness] = []
        """Of links that are late just now."""
        self._late_next: dict[str, Manner] = {}
        """By party: how the next link is late that it opens."""
        self._link_count = 0

    def listen(self, address: str, accept: Callable[[End], bool]) -> None:
        """Offer links to `address` to `accept`, which takes or refuses them."""
        self._listeners[address] = accept

    def connect(self, owner: str, address: str, on_answer: Callable[[End | None], None]) -> None:
        """Ask for a link; `on_answer` gets this side's end of it, or None when nobody took it."""
        self.world.at(self.arrival_ns(), lambda: self._reach(owner, address, on_answer))

    def _reach(self, owner: str, address: str, on_answer: Callable[[End | None], None]) -> None:
        healed_ns = max(self.healed_ns(owner, address), self.healed_ns(address, owner))
        if healed_ns > self.world.now_ns:
            self.world.at(healed_ns, lambda: self._reach(owner, address, on_answer))
            return
        near, far = End(owner, address), End(address, owner)
        self._link_count += 1
        link = Link(self, self._link_count, near, far)
        accept = self._listeners.get(address)
        if accept is None or not accept(far):
            self.world.at(self.arrival_ns(), lambda: on_answer(None))
            return
        self._links = [known for known in self._links if known.is_open]
        self._links.append(link)
        if self._late_next and (manner := self._late_next.pop(party_of(owner), None)) is not None:
            self.be_late(link, manner)
        self.world.at(self.arrival_ns(), lambda: on_answer(near))

    def links_of(self, party: str) -> list[Link]:
        """The links that are up with an end at `party`."""
        return [link for link in self._links if link.is_open and party in (link.ends[0].owner, link.ends[1].owner)]

    def drop(self, party: str, reason: str) -> None:
        """`party` is gone: its ends are closed, the others hear of it."""
        for link in self.links_of(party):
            for end in link.ends:
                if end.owner == party:
                    end.is_open = False
            late = next((late for late in self.late if late.link is link), None)
            if late is not None and link.ends[1].owner != party:
                late.leave_behind()
            else:
                link.cut(reason)

    @property
    def links(self) -> list[Link]:
        """The links that are up."""
        return [link for link in self._links if link.is_open]

    def be_late(self, link: Link, manner: Manner) -> None:
        """What the opener of a link has sent is late, and so is its end."""
        if link.ends[0].is_open and all(late.link is not link for late in self.late):
            self.late.append(Lateness(self, link, manner))

    def be_late_next(self, party: str, manner: Manner) -> None:
        """What is sent over the next link that a party opens is late."""
        self._late_next[party] = manner

    def note_arrival(self, way: Way) -> None:
        """An item has arrived: something late may have waited for that."""
        for late in self.late[:]:
            late.see(way)

    def lose_later(self, end: End, reason: str) -> None:
        """Let an end hear that its link is gone, soon or, half-open, after a long time."""
        delay_ns = self._die.spread(MICROSECOND, 20 * MILLISECOND)
        if not self.is_calm and self._die.chance(self.temper.half_open):
            delay_ns = self._die.spread(100 * MILLISECOND, 3 * SECOND)
        self.world.after(delay_ns, lambda: end.lose(reason))

    def block(self, sender: str, receiver: str, until_ns: int) -> None:
        """Hold back what goes from `sender` to `receiver` until then."""
        self._blocked_until_ns[sender, receiver] = max(until_ns, self._blocked_until_ns.get((sender, receiver), 0))

    def part(self, parts: Parts, until_ns: int) -> None:
        """Hold back until then what goes between parties that `parts` tells apart."""
        self._partitions = [known for known in self._partitions if known[0] > self.world.now_ns]
        self._partitions.append((until_ns, parts))

    def heal(self) -> None:
        """Block nothing any more, and be calm from now on; what is late comes soon."""
        self._late_next.clear()
        for late in self.late:
            late.hurry()
        self._blocked_until_ns.clear()
        self._partitions.clear()
        self.carelessness = None
        self.is_calm = True

    def healed_ns(self, sender: str, receiver: str) -> int:
        """When the way is open again; a time that is past when it is."""
        until_ns = self._blocked_until_ns.get((sender, receiver), 0)
        for parted_ns, parts in self._partitions:
            if parted_ns > until_ns and parts(party_of(sender), party_of(receiver)):
                until_ns = parted_ns
        return until_ns

    def chance(self, probability: float) -> bool:
        """True with this probability, by the network's die."""
        return self._die.chance(probability)

    def ns_per_byte(self) -> int:
        """How slow a new way is; 0 for most."""
        if self.is_calm or not self._slow_die.chance(self.temper.throttle):
            return 0
        self.world.counts["fault.throttle"] += 1
        return SECOND // self._slow_die.spread(self.temper.rate_min, 10 << 20)

    def copies(self, item: object, careless: Carelessness) -> Sequence[object]:
        """What of an item goes on a careless way: nothing, itself, or itself twice."""
        if self._die.chance(careless.loss):
            self.world.counts["fault.loss"] += 1
            return ()
        if self._die.chance(careless.repeat):
            self.world.counts["fault.repeat"] += 1
            return (item, item)
        return (item,)

    def arrival_ns(self) -> int:
        """When something that is sent now arrives."""
        temper = self.temper
        delay_ns = self._die.between(temper.delay_min_ns, temper.delay_max_ns)
        if not self.is_calm and self._die.chance(temper.spike):
            self.world.counts["fault.delay"] += 1
            delay_ns += self._die.spread(MICROSECOND, temper.spike_max_ns)
        return self.world.now_ns + delay_ns

    def pieces(self, item: object) -> Sequence[object]:
        """The pieces in which an item arrives."""
        if not isinstance(item, bytes) or len(item) < 2 or self.is_calm or not self._die.chance(self.temper.tear):
            return (item,)
        self.world.counts["fault.tear"] += 1
        cuts = sorted({self._die.between(1, len(item) - 1) for _ in range(self._die.between(1, 3))})
        return [item[a:b] for a, b in zip([0, *cuts], [*cuts, len(item)], strict=True)]


def _size_of(item: object) -> int:
    return len(item) if isinstance(item, bytes) else 256


def _ignore_item(_: object) -> None:
    return None


def _ignore_reason(_: str) -> None:
    return None


def _ignore_flow(_: bool) -> None:
    return None


def octets_of(buffers: Sequence[Octets]) -> bytes:
    """Buffers as one run of bytes, as they are at this moment: who sent them may write to them again."""
    return b"".join(buffers)
