"""Who serves topics in a world: machines whose nodes listen for them, and proxies."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from veredus.kernel.effects import Note
from veredus.kernel.engine import Now
from veredus.kernel.events import DeadlineReached, LinkOpened
from veredus.node.dialects import LinkEngine
from veredus.node.engine import DrainRequested
from veredus.protocols.topics.exchange import Answer, Answered, Ask, Asked, LateAnswer, Meet
from veredus.protocols.topics.proxy import Proxy, ProxySettings
from veredus.protocols.topics.server import Server, ServerSettings

from .disk import SimDisk
from .machine import Machine, MachineSettings
from .native import CountedLink
from .network import End, Network
from .partitions import party_of
from .peers import Peer
from .players import P, Player
from .ports import PlainDoor
from .topics_heralds import Herald, HeraldTemper
from .topics_lines import Front, Lines
from .topics_page_proxy import PageProxy
from .topics_told import Told
from .topics_unknowing import without_digests
from .witnesses import EVENTS, Witness
from .world import MICROSECOND, MILLISECOND, SECOND, Clock, Violation, World

# ── servers ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class CountedServer(Server):
    """The server, unchanged; its events are counted."""

    def __init__(self, world: World, link: int, settings: ServerSettings, new_incarnation: Callable[[], bytes]) -> None:
        """The server on a link of its node."""
        super().__init__(link, settings, new_incarnation)
        self._counts = world.counts

    def handle(self, event: object, now: Now) -> Sequence[object]:
        """As the server does."""
        self._counts[EVENTS] += 1
        return super().handle(event, now)


class TopicsMachine(Machine):
    """A machine whose node serves topics: each process listens for them when it is up."""

    def __init__(
        self,
        world: World,
        network: Network,
        disk: SimDisk,
        clock: Clock,
        settings: MachineSettings,
        server: ServerSettings,
        witness: Witness,
        told: Told,
        natives: frozenset[str],
    ) -> None:
        """A machine that is down, called as its server; `natives` use the other listener."""
        super().__init__(world, network, server.server_id, disk, clock, settings, self._open_door, witness)
        self.server: Server | None = None
        self.front: Front | None = None
        self.trap: str = ""
        """When it asks or answers something of this kind, it is killed a few orders later."""
        self.heralds = HeraldTemper()
        """How its announcements fare."""
        self.keeps_digests = True
        """Whether it gives topics with the digests of what was put last."""
        self.on_steps: list[Callable[[str], None]] = []
        """Told of each part of a TRANSFER that it asks or answers, like `trap`."""
        self._settings_of_server = server
        self._told = told
        self._natives = natives
        self._lines: Lines | None = None
        self._herald: Herald | None = None
        self._front_link = 0
        self._ids = world.dice.die(f"incarnations/{self.name}")
        self._trap_die = world.dice.die(f"trap/{self.name}")
        self._herald_die = world.dice.die(f"herald/{self.name}")

    def _open_door(self, event: LinkOpened) -> LinkEngine:
        if event.door != "topics":
            return PlainDoor(event) if self._network.is_plain else CountedLink(self.world, event)
        self.server = CountedServer(self.world, event.link, self._settings_of_server, lambda: self._ids.octets(16))
        return self.server

    def begin_serving(self) -> None:
        """The process is up: listen for topics."""
        self._link_count += 1
        link = self._front_link = self._link_count
        life = self._life
        self.front = Front(self.name, self._network, self.gate, self._told, link, self.post)
        self._ends[link] = self.front

        def answered(token: int, data: bytes, server: str) -> None:
            if life == self._life:
                herald.answered(token)
                self.post(Answered(token, data, link, server))

        lines = self._lines = Lines(self.world, self._network, self.name, self.gate, answered)
        herald = self._herald = Herald(self.world, self._herald_die, self.heralds, lines.ask)
        self.post(LinkOpened(link, "topics", self.name))

    @property
    def topics(self) -> list[str]:
        """The streams that its process knows, none while it is not up."""
        return [] if self.engine is None else list(self.engine.floor.tables.streams)

    def _accept(self, end: End) -> bool:
        if party_of(end.peer) in self._natives:
            return super()._accept(end)
        if self.engine is None or self._is_closing or self.front is None:
            return False
        self.front.accept(end)
        return True

    def _handle(self, event: object, now: Now) -> bool:
        lives = super()._handle(event, now)
        if lives and self.engine is not None:
            self._told.has(self.name, self.engine.floor.tables.streams)
        return lives

    def _check(self, engine: object) -> None:
        super()._check(engine)  # type: ignore[arg-type]
        if self.server is not None:
            try:
                self.server.check()
            except AssertionError as error:
                raise Violation("invariants hold", f"{self.name}: {error}") from error

    def _carry_out(self, effect: object) -> None:
        match effect:
            case Answer() | LateAnswer():
                if self.front is not None and self.front.is_open:
                    asked = self.front.answer(effect)
                    self._spring("answers", asked)
            case Ask(address, token, data):
                if self._herald is not None and data.startswith(b"PERIODIC "):
                    self._herald.announce(address, token, data)
                elif self._lines is not None:
                    data = data if self.keeps_digests else without_digests(data)
                    self._told.asks(self.name, address, data, self.clock)
                    self._lines.ask(address, token, data)
                    self._spring("asks", data)
            case Meet(address):
                if self._lines is not None:
                    self._lines.meet(address)
            case _:
                super()._carry_out(effect)

    def _note(self, level: str, event: str, fields: dict[str, object]) -> None:
        super()._note(level, event, fields)
        self._told.noted(self.name, event, fields)

    def let_announce(self) -> None:
        """What it announces is told at once from now on."""
        self.heralds = HeraldTemper()
        if self._herald is not None:
            self._herald.rest()

    def _spring(self, verb: str, data: bytes) -> None:
        if not data.startswith(b"TRANSFER "):
            return
        step = f"{verb} {kind_of(data)}"
        for see in self.on_steps:
            see(step)
        if self.trap == step:
            self.world.counts["fault.trap"] += 1
            self.trap = ""
            die, life = self._trap_die, self._life
            if verb == "asks" and die.chance(0.6):
                self._deafen()
                if die.chance(0.4):
                    return
            if die.chance(0.2):
                self.kill("in a merge", with_power=die.chance(0.5))
            elif die.chance(0.5):
                self.steps_to_live = die.spread(1, 30)
            else:
                delay_ns = die.spread(100 * MICROSECOND, 50 * MILLISECOND)
                self.world.after(delay_ns, lambda: self.kill("in a merge") if life == self._life else None)

    def _deafen(self) -> None:
        """What other servers say does not come for a while: an answer is lost, and its asker cannot ask again."""
        others, name = self._told.servers, self.name
        until_ns = self.world.now_ns + self._trap_die.spread(500 * MILLISECOND, 3 * SECOND)
        self._network.part(lambda sender, receiver: receiver == name and sender in others, until_ns)

    # ── ends ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def close(self) -> None:
        """End the process as a stop on purpose does: what is in hand is answered first."""
        if self.engine is None or self._is_closing:
            return
        self.world.tell(self.name, "is asked to stop")
        self._is_closing = True
        for link in [link for link in self._ends if link != self._front_link]:
            self._close(link, "draining")
        self.post(DrainRequested())
        self._close_when_idle(self._life)

    def _close_when_idle(self, life: int) -> None:
        if life == self._life and self._front_link in self._ends:
            self.world.after(MILLISECOND, lambda: self.gate.through(lambda: self._close_when_idle(life)))
        else:
            super()._close_when_idle(life)

    def _end(self, what: str, end_disk: Callable[[], None]) -> None:
        if self.front is not None:
            self.front.end()
        if self._lines is not None:
            self._lines.close()
        if self._herald is not None:
            self._herald.is_open = False
        self.server = self.front = self._lines = self._herald = None
        super()._end(what, end_disk)

    @property
    def is_idle(self) -> bool:
        """Whether it has done all that it was told, and owes nobody an answer."""
        return super().is_idle and self.front is not None and not self.front.waiting


def kind_of(data: bytes) -> str:
    """Which part a TRANSFER is, as its last words say."""
    kinds = ((b"begin", "begin"), (b"sources", "sources"), (b"rows", "rows"), (b"end", "end"))
    mark = data.rfind(b"type")
    return next((kind for word, kind in kinds if data[mark + 5 : mark + 5 + len(word)] == word), "")


# ── proxies ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class Solo(Player[P]):
    """A player whose processes share what only one may have: a port, a directory. No process lives beside another."""

    def start(self) -> None:
        """Start a process, unless one lives."""
        if self.process is None or not self.process.is_alive:
            super().start()

    def stop(self, duration_ns: int, is_followed: bool) -> None:
        """Stop the process for so long; nobody can follow it."""
        super().stop(duration_ns, is_followed=False)

    @property
    def is_sure(self) -> bool:
        """Nobody fences it."""
        return True


class ProxyProcess(Peer):
    """One process of a proxy: it begins with an empty map."""

    def __init__(
        self, world: World, network: Network, name: str, settings: ProxySettings, told: Told, is_of_page: bool
    ) -> None:
        """A process that listens at the address that is its id."""
        address = settings.proxy_id
        super().__init__(world, network, name, address)
        self.engine = PageProxy(address) if is_of_page else Proxy(settings)
        self.front = Front(address, network, self.gate, told, 0, self._tell)
        self._told = told
        self._lines = Lines(
            world, network, name, self.gate, lambda token, data, server: self._tell(Answered(token, data, 0, server))
        )
        self._wake_ns: int | None = None

    def start(self) -> None:
        """Begin to listen."""
        self.is_alive = True
        self.world.tell(self.name, "starts")
        self._told.begins(self.address)
        self.network.listen(self.address, self._accept)

    def kill(self, why: str) -> None:
        """End at once, with the map and all that is in hand."""
        if self.is_alive:
            super().kill(why)
            self.front.end()
            self._lines.close()
            self.network.drop(self.address, "reset by peer")

    def _accept(self, end: End) -> bool:
        if self.is_alive:
            self.front.accept(end)
        return self.is_alive

    def _tell(self, event: Asked | Answered | DeadlineReached) -> None:
        if not self.is_alive:
            return
        self.world.counts[EVENTS] += 1
        for effect in self.engine.handle(event, self.now):
            match effect:
                case Answer():
                    self.front.answer(effect)
                case Ask(address, token, data):
                    self._lines.ask(address, token, data)
                case Meet(address):
                    self._lines.meet(address)
                case Note(level, name, fields):
                    self.world.tell(self.name, f"notes {level} {name} {fields}")
                    self._told.noted(self.address, name, fields)
        try:
            self.engine.check()
        except AssertionError as error:
            raise Violation("invariants hold", f"{self.name}: {error}") from error
        at = self.engine.deadline()
        if at is not None and (self._wake_ns is None or at < self._wake_ns):
            self._wake_ns = at
            self.world.at(self.clock.true_ns(at), lambda: self.gate.through(lambda: self._wake(at)))

    def _wake(self, at: int) -> None:
        if self._wake_ns == at:
            self._wake_ns = None
            self._tell(DeadlineReached())


class ProxyPlayer(Solo[ProxyProcess]):
    """A proxy, and its processes one after the other."""

    def __init__(
        self,
        world: World,
        network: Network,
        settings: ProxySettings,
        told: Told,
        is_last: bool,
        is_of_page: bool = False,
    ) -> None:
        """One that is named as its id; `is_last`: nobody else is left if it is given up, so it is not.

        `is_of_page`: it is one that was written from the page.
        """
        super().__init__(world, network, settings.proxy_id, settings.proxy_id)
        self._settings = settings
        self._is_of_page = is_of_page
        if is_of_page:
            told.of_page.add(settings.proxy_id)
            world.counts["topics.page-proxies"] += 1
        self._told = told
        self._is_last = is_last

    def process_of(self, name: str) -> ProxyProcess:
        """A process that is not started."""
        return ProxyProcess(self.world, self.network, name, self._settings, self._told, self._is_of_page)

    def abandon(self, is_killed: bool) -> None:
        """Let it be dead for good, or stopped, where another one is left."""
        if not self._is_last:
            super().abandon(is_killed)
