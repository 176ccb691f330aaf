"""Clients of ZEPS 1, as the page of its specification has them: they publish without a name, and subscribe without a
cursor, from the last sequence that they know.

    ATTACH ──► ATTACH-OK ──► PUBLISH …, PING, DETACH ──► DETACH-OK: all of it was taken; another life, another name
                       └───► SUBSCRIBE from the last one, CREDIT ──► DELIVER … ──► more CREDIT
"""

from __future__ import annotations

from collections import deque

from . import page_codec as page
from .content import ANONYMOUS, Identity, body_of, identity_in, key_of
from .gates import FOR_EVER_NS, Gate
from .network import End, Network
from .oracles import Oracles
from .world import MICROSECOND, MILLISECOND, SECOND, Violation, World

PREFIXES = (b"", b"k1.", b"k", b"k5.")


class PlainClient:
    """Owns one client's lives: what it published in each, and up to where it knows its stream."""

    def __init__(
        self, world: World, network: Network, name: str, address: str, stream: str, oracles: Oracles, publishes: bool
    ) -> None:
        """Who publishes to `stream`, or else subscribes to it."""
        self.world = world
        self.name = name
        self.is_resting = False
        self._network = network
        self._address = address
        self.stream = stream
        self._oracles = oracles
        self._publishes = publishes
        self._die = world.dice.die(f"plain/{name}")
        self._prefix = PREFIXES[self._die.between(0, len(PREFIXES) - 1)]
        self._credit = self._die.spread(64, 32 << 10)
        self._total = self._die.spread(5, 100)
        self._joining = world.dice.die(f"union/{name}")
        self._pinging = world.dice.die(f"pinging/{name}")
        self._latest = 0
        self._term: object = None
        self._is_abandoned = False
        self.gate = Gate(world)
        """What it does not do while it is stopped."""
        self.life = 0
        self._subscribed: _Life | None = None
        """The last life that subscribed."""

    def start(self) -> None:
        """Open a link."""
        self.life += 1
        life = self.life
        self._network.connect(f"{self.name}#{life}", self._address, lambda end: self._connected(end, life))

    def kill(self, why: str) -> None:
        """The process dies; another follows."""
        self.world.tell(self.name, f"is killed, {why}")
        self._network.drop(f"{self.name}#{self.life}", "reset by peer")
        self.again()

    def stop(self, duration_ns: int, is_followed: bool) -> None:
        """Nothing that comes is taken for so long. Nobody follows: two lives of a client without a name are two."""
        self.world.tell(self.name, f"is stopped for {duration_ns / SECOND:.3f} s")
        self.gate.stop(duration_ns)

    def heal(self) -> None:
        """Go on, unless it was left stopped for good."""
        if not self._is_abandoned:
            self.gate.resume()

    def wake(self) -> None:
        """Go on."""
        self.gate.resume()

    def end(self) -> None:
        """It rests already."""

    def abandon(self, is_killed: bool) -> None:
        """Dead, or stopped with its link open."""
        self._is_abandoned = self.is_resting = True
        if is_killed:
            self.kill("for good")
        else:
            self.gate.stop(FOR_EVER_NS)

    def forget(self) -> None:
        """What it knows is gone from its stream: it begins with what is kept."""
        self._latest = 0

    def again(self) -> None:
        """Another life, after a while."""
        self.life += 1
        life = self.life
        delay_ns = self._die.spread(MILLISECOND, SECOND)
        self.world.after(delay_ns, lambda: self.start() if life == self.life and not self.is_resting else None)

    def _connected(self, end: End | None, life: int) -> None:
        if life != self.life:
            if end is not None:
                end.close("nobody there")
        elif end is None or not end.is_open:
            self.again()
        else:
            _Life(self, end, life)

    # ── what a life asks ─────────────────────────────────────────────────────────────────────────────────────────────

    def begin(self, life: _Life) -> None:
        """The client is attached: do what it came for."""
        if self._publishes:
            self._publish(life, 1)
        else:
            view = self._oracles.current.get(self.stream)
            if self.world.may_forget(self.stream) or self._term is not view:
                self._latest, self._term = 0, view
            self._subscribed = life
            life.last = life.latest = self._latest
            life.floor = 0 if view is None or self.world.may_forget(self.stream) else view.floor_told
            life.send(page.subscribe(self._prefix, self._latest))
            life.wanted = (self._prefix,)
            if self._die.chance(0.3):
                self._join(life, b"k2.")
            if self._joining.chance(0.5):
                also = PREFIXES[self._joining.between(0, len(PREFIXES) - 1)]
                delay_ns = self._joining.spread(MILLISECOND, SECOND)
                self.world.after(delay_ns, lambda: self._join(life, also))
            life.send(page.credit(self._credit))

    def _join(self, life: _Life, prefix: bytes) -> None:
        """Subscribe to something else as well, from where the first subscription began."""
        if life.is_current:
            life.is_union = True
            life.wanted = (*life.wanted, prefix)
            life.send(page.subscribe(prefix, life.latest))

    def _publish(self, life: _Life, number: int) -> None:
        if not life.is_current:
            return
        who = f"{ANONYMOUS}{self.name}.{life.number}"
        last = min(self._total, number + self._die.spread(1, 20) - 1)
        for identity in [Identity(who, n) for n in range(number, last + 1)]:
            life.send(page.publish(key_of(identity), body_of(identity)))
            if self._pinging.chance(0.1):
                life.pinged.append(identity.number)
                life.send(page.PING)
        if last < self._total and not self.is_resting:
            pause_ns = self._die.spread(MICROSECOND, 50 * MILLISECOND)
            self.world.after(pause_ns, lambda: self._publish(life, last + 1))
        else:
            self._oracles.anonymous[who] = (self.stream, last, False)
            life.send(page.DETACH)

    def confirmed(self, life: _Life) -> None:
        """PING-OK: what was published before the oldest PING that is not answered is taken, for good."""
        if not life.pinged:
            raise Violation("exchange", f"{self.name} was told PING-OK, and has sent no PING")
        who = f"{ANONYMOUS}{self.name}.{life.number}"
        last = life.pinged.popleft()
        taken = self._oracles.anonymous_taken.get(who, 0)
        if taken < last:
            raise Violation("taken", f"{who} was confirmed {last} publications to {self.stream}, {taken} are taken")
        self._oracles.anonymous_confirmed[who] = (self.stream, last)

    def detached(self, life: _Life) -> None:
        """All that was published on this attachment is taken."""
        who = f"{ANONYMOUS}{self.name}.{life.number}"
        if life.pinged:
            raise Violation("exchange", f"{who} was told DETACH-OK before PING-OK")
        if who in self._oracles.anonymous:
            taken = self._oracles.anonymous_taken.get(who, 0)
            stream, last, _ = self._oracles.anonymous[who]
            if taken < last:
                raise Violation(
                    "taken", f"{who} detached from {stream} with {last} publications, of which {taken} are taken"
                )
            self._oracles.anonymous[who] = (stream, last, True)

    def deliver(self, life: _Life, sequence: int, key: bytes, body: bytes) -> None:
        """Something came: it grows, and it is what was published."""
        self.world.counts["plain deliveries"] += 1
        identity = identity_in(body)
        if not life.confirmed_count:
            raise Violation("exchange", f"{self.name} was delivered {sequence} before any SUBSCRIBE-OK")
        if body != body_of(identity) or key != key_of(identity):
            raise Violation("once", f"{self.name} was delivered {sequence}: other bytes than were published")
        if not key.startswith(life.wanted):
            raise Violation("matching", f"{self.name} was delivered {identity}, and wants it not")
        if sequence in life.seen or sequence <= (life.latest if life.is_union else life.last):
            raise Violation("delivered", f"{self.name} was delivered {sequence} after {life.last}")
        if 0 < life.latest < life.floor - 1:
            raise Violation("delivered", f"{self.name} was never told that it cannot have {life.latest + 1}")
        view = self._oracles.current[self.stream]
        if not self.world.may_forget(self.stream):
            known = view.rows[sequence].identity
            if known != identity:
                raise Violation("once", f"{self.name} was delivered {identity} as {sequence}, it is {known}")
            for missed in () if life.is_union else range(max(life.last + 1, view.floor), sequence):
                if missed in view.rows and view.rows[missed].key.startswith(self._prefix):
                    raise Violation("delivered", f"{self.name} was never delivered {missed}")
        life.seen[sequence] = None
        life.last = sequence
        self._latest = max(self._latest, sequence)
        life.send(page.credit(page.size_of_deliver(key, body)))

    def missing(self) -> int:
        """The first sequence that its present life should have been delivered by now, 0 for none."""
        life = self._subscribed
        if life is None or not life.is_current or self._is_abandoned or self.world.may_forget(self.stream):
            return 0
        view = self._oracles.current[self.stream]
        for sequence in sorted(view.rows):
            is_wanted = sequence > life.latest and view.rows[sequence].key.startswith(life.wanted)
            if is_wanted and sequence not in life.seen and sequence >= view.floor:
                return 0 if view.holes else sequence
        return 0


class _Life:
    """One attachment."""

    def __init__(self, client: PlainClient, end: End, number: int) -> None:
        self._client = client
        self._end = end
        self._ear = page.Ear()
        self.number = number
        self.latest = 0
        """What its client knew when it subscribed."""
        self.last = 0
        """What was delivered last."""
        self.floor = 0
        """From where on the stream was known to be there when it subscribed."""
        self.seen: dict[int, None] = {}
        self.confirmed_count = 0
        """How many SUBSCRIBE-OK were heard."""
        self.pinged: deque[int] = deque()
        """Up to where publications lie before each PING that is not answered yet."""
        self.is_union = False
        """Whether it subscribed more than once: then sequences may fall."""
        self.wanted: tuple[bytes, ...] = ()
        """The prefixes that it subscribed to."""
        gate = client.gate
        end.on_received = lambda octets: gate.through(lambda: self._receive(octets))  # type: ignore[arg-type]
        end.on_closed = lambda _: gate.through(self._lose)
        self.send(page.attach(client.stream))

    @property
    def is_current(self) -> bool:
        """Whether it is the one that its client lives now."""
        return self.number == self._client.life and self._end.is_open

    def send(self, octets: bytes) -> None:
        """Say a command."""
        self._end.send((octets,))

    def _lose(self) -> None:
        if self.number == self._client.life:
            self._client.again()

    def _receive(self, octets: bytes) -> None:
        if not self.is_current:
            return
        try:
            words = self._ear.hear(octets)
        except ValueError as error:
            raise Violation("exchange", f"{self._client.name} was sent no command: {error}") from None
        for word in words:
            if self.is_current:
                self._take(word)

    def _take(self, word: page.Word) -> None:
        client = self._client
        match word.name, word.fields:
            case "attach_ok", ():
                client.begin(self)
            case "subscribe_ok", ():
                self.confirmed_count += 1
            case "deliver", (int(sequence), bytes(key), bytes(body)):
                client.deliver(self, sequence, key, body)
            case "ping", ():
                self.send(page.PING_OK)
            case "ping_ok", ():
                client.confirmed(self)
            case "detach_ok", ():
                client.detached(self)
                self._end.close("detached")
                self._lose()
            case "detach", ():
                self._end.close("detached")
                self._lose()
            case "invalid", (bytes(octets),):
                reason = page.reason_of(octets)
                client.world.tell(client.name, f"is told {reason}")
                if "cannot be had" in reason or "not there yet" in reason or "is gone" in reason:
                    client.forget()
                self._end.close("invalid")
                self._lose()
            case _:
                raise Violation("exchange", f"{client.name} was told {word}, which nobody asked for")
