"""Hostile peers: they send random bytes, sound frames in wrong states, and sound frames with a few bytes changed.

What they ask for in sound frames they ask for under names of their own, so that nobody else is hindered by rights:
whatever they say, the node lives, and everybody else is served.
"""

from __future__ import annotations

from collections.abc import Callable

from veredus.delivery.batch import BatchHeader
from veredus.matching import Filter
from veredus.protocols.zeps import frames, native
from veredus.protocols.zeps import messages as m

from .content import Identity, batch_record
from .dice import Die
from .network import End, Network
from .world import MICROSECOND, MILLISECOND, SECOND, World


class Hostile:
    """Owns one hostile peer: a link, what is said on it, then another link."""

    def __init__(self, world: World, network: Network, name: str, address: str, streams: tuple[str, ...]) -> None:
        """Who knows the names of some streams."""
        self.world = world
        self.name = name
        self.is_resting = False
        self._network = network
        self._address = address
        self._streams = streams
        self._die: Die = world.dice.die(f"hostile/{name}")

    def start(self) -> None:
        """Open a link."""
        if not self.is_resting:
            self._network.connect(self.name, self._address, self._connected)

    def _again(self) -> None:
        self.world.after(self._die.spread(10 * MILLISECOND, SECOND), self.start)

    def _connected(self, end: End | None) -> None:
        if end is None or not end.is_open:
            self._again()
            return
        end.on_closed = lambda _: self._again()
        die = self._die
        if die.chance(0.8):
            version = 1 if die.chance(0.4) else native.VERSION
            end.send((frames.encode_attach(self._stream() if version == 1 else "", version),))
            if version != 1 and die.chance(0.8):
                end.send((native.encode_message(0, m.Hello(client=self.name)),))
        self._say(end, die.between(1, 12))

    def _stream(self) -> str:
        return self._streams[self._die.between(0, len(self._streams) - 1)]

    def _say(self, end: End, rest: int) -> None:
        if not end.is_open:
            return
        if not rest or self.is_resting:
            end.close("bored")
            self._again()
            return
        die = self._die
        self.world.counts["hostile octets"] += 1
        octets = die.octets(die.spread(1, 200)) if die.chance(0.1) else self._frame()
        if die.chance(0.2):
            spoiled = bytearray(octets)
            for _ in range(die.between(1, 4)):
                spoiled[die.between(0, len(spoiled) - 1)] ^= 1 << die.between(0, 7)
            octets = bytes(spoiled)
        if die.chance(0.05):
            octets = octets[: die.between(0, len(octets))]
        end.send((octets,))
        self.world.after(die.spread(MICROSECOND, 20 * MILLISECOND), lambda: self._say(end, rest - 1))

    def _frame(self) -> bytes:
        makers = _MAKERS
        return makers[self._die.between(0, len(makers) - 1)](self)

    @property
    def channel(self) -> int:
        """A channel that may or may not be open."""
        return (0, 1, 2, 3, 4, 65_535)[self._die.between(0, 5)]

    # ── sound frames, in whatever state ──────────────────────────────────────────────────────────────────────────────

    def _message(self, message: m.Message) -> bytes:
        return native.encode_message(self.channel, message)

    def attach_source(self) -> bytes:
        """Attach, by a name of its own or none."""
        die = self._die
        who = (self.name, "", "a" * 300)[die.between(0, 2)]
        size = 16 if die.chance(0.9) else 3
        return self._message(m.AttachSource(self._stream(), who, die.octets(size), die.between(0, 2), False))

    def offer(self) -> bytes:
        """A batch, under ids that were perhaps granted."""
        die = self._die
        first = die.between(1, 3)
        header = BatchHeader(0, 0, 0, 0, 0, die.between(1, 3), die.between(0, 3), die.between(0, 2), 0, first, 0, 0)
        record = batch_record(header, [Identity(f"{self.name}-{die.octets(4).hex()}", 1)])
        return b"".join(native.encode_offer(self.channel, record))

    def subscribe(self) -> bytes:
        """Subscribe, by a cursor of its own or none."""
        die = self._die
        name = "main" if die.chance(0.5) else ""
        who = self.name if name or die.chance(0.1) else ""
        wanted = Filter(keys=("prefix:k",)) if die.chance(0.5) else Filter(keys=())
        return self._message(
            m.Subscribe(
                stream=self._stream(),
                subscriber=who,
                name=name,
                filter=wanted,
                incarnation=die.octets(16),
                epoch=die.between(0, 2),
                credit=die.between(-1, 1 << 20),
            )
        )

    def settle(self) -> bytes:
        """Settle what was perhaps never pushed."""
        first = self._die.between(0, 50)
        last = max(0, first + self._die.between(-2, 50))
        return native.encode_settle(self.channel, ((first, last),))

    def credit(self) -> bytes:
        """Credit for a channel."""
        return native.encode_credit(self.channel, self._die.spread(1, 1 << 60))

    def sink(self) -> bytes:
        """Something about a sink of its own."""
        die = self._die
        epoch, stages = die.between(0, 2), (die.between(0, 5), die.between(0, 5))
        messages = (
            m.OpenRun(self.name, die.octets(16), epoch),
            m.OpenStage(self.name, epoch, self._stream(), die.octets(16)),
            m.Commit(1, self.name, epoch, die.between(-1, 3), stages),
            m.DropStages(1, self.name, epoch, stages),
        )
        return self._message(messages[die.between(0, 3)])

    def request(self) -> bytes:
        """A request, known or not."""
        die = self._die
        verb = ("stream.list", "stream.show", "sink.list", "subscription.list", "make.tea")[die.between(0, 4)]
        arguments: dict[str, object] = {"name": self._stream()} if die.chance(0.7) else {"name": 7}
        return native.encode_message(0, m.Request(die.between(0, 3), verb, arguments))

    def node_frame(self) -> bytes:
        """What only a node says."""
        die = self._die
        return (
            *native.encode_settled(self.channel, 3, ()),
            native.encode_receipt(self.channel, 1, 1, False, 0),
            native.encode_message(0, m.Hello(client=self.name)),
        )[die.between(0, 2)]

    def plain(self) -> bytes:
        """A command of version 1."""
        die = self._die
        return (
            frames.encode_subscribe(b"k1.", die.spread(1, 1 << 62)),
            frames.encode_credit(die.spread(1, 1 << 63)),
            frames.PING_OK,
            frames.DETACH_OK,
            frames.encode_deliver(1, b"k", b"b"),
        )[die.between(0, 4)]


_MAKERS: tuple[Callable[[Hostile], bytes], ...] = (
    Hostile.attach_source,
    Hostile.offer,
    Hostile.subscribe,
    Hostile.settle,
    Hostile.credit,
    Hostile.sink,
    Hostile.request,
    Hostile.node_frame,
    Hostile.plain,
)
