"""What a world is made of: a machine, some streams, and who publishes, subscribes and commits there; all drawn from
the seed.

safety     everybody works while the nemesis strikes
liveness   faults are over: what was begun must be done within a bound
audit      every stream is read from its floor to its head
verdict    every subscriber has caught up, and the oracles agree
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, Protocol

from veredus.journal.exchange import SyncMode
from veredus.journal.settings import LogSettings
from veredus.streams.exchange import (
    AdminRequested,
    AnswerAdmin,
    CreditGranted,
    GrantSubscription,
    Push,
    PushGap,
    Refuse,
    Start,
    SubscribeRequested,
)
from veredus.streams.facts import StreamConfig
from veredus.streams.tables import StreamsLimits

from . import disk as disks
from . import network as networks
from . import sources as source_kinds
from .alterers import Alterer
from .dice import Die
from .disk import SimDisk
from .forgers import Forger
from .hostiles import Hostile
from .late import LATE_MAX_NS
from .leanings import drawn_leaning
from .machine import Door, Machine, MachineSettings
from .native import CountedLink
from .nemesis import Nemesis, Victim
from .network import Network
from .oracles import Oracles
from .peers import Peer
from .plain_clients import PlainClient
from .ports import PlainDoor
from .ranges import time_ns
from .reapers import Reaper
from .redrivers import Redriver
from .rot import Rot
from .sinks import NamelessSink, drawn_sink
from .sources import Source
from .stormers import Stormer
from .subscribers import Subscriber, SubscriberTemper, drawn_temper
from .topology import DRAWN, Topology
from .trespassers import Trespasser
from .usurpers import Usurper
from .views import StreamView
from .wards import Lawgiver, WardSource, WardSubscriber
from .world import MICROSECOND, MILLISECOND, SECOND, Clock, Violation, World

NODE = "node-1"
LIVENESS_NS = 300 * SECOND
"""Within this time after the last fault everything that was begun must be done."""


WAKING_NS = 2 * SECOND
"""How long zombies may try what they were about, before the audit."""
LOOKING_NS = 6 * SECOND
"""Within this time retention looks at every stream."""
VANISHING = "stream-9"
"""The stream that is deleted now and then."""


class Other(Protocol):
    """Somebody whom the nemesis need not strike, and who ends when it does."""

    name: str
    is_resting: bool

    def start(self) -> None:
        """Begin."""
        ...


class Part(NamedTuple):
    """What of a world takes place: all of it, or what a failure needs."""

    without: frozenset[str] = frozenset()
    """Who is left out, by name."""
    strikes: frozenset[int] | None = None
    """The strikes that are carried out, by number; None for all."""
    publications: int = 1 << 30
    """How many a source publishes at most."""


LEASE_NS_MAX = 600 * SECOND
"""A lease that the end of a world is put off for."""

WHOLE = Part()


def drawn_settings(die: Die, keeping: Die, answering: Die) -> MachineSettings:
    """How a world's node is set: small, so that every bound and seam is met; `keeping`: of syncs and retention."""
    segment_size = die.spread(16 << 10, 256 << 10) // 4096 * 4096
    log = LogSettings(
        segment_size=segment_size,
        answer_count_max=answering.between(1, 8) if answering.chance(0.3) else 256,
        group_size_max=die.spread(1 << 10, 256 << 10),
        checkpoint_interval_size=die.spread(8 << 10, 512 << 10),
        free_count_max=die.between(0, 2),
        rows_cache_size_max=die.spread(64, 64 << 10),
        retry_ns=die.spread(MILLISECOND, SECOND),
        sync=(SyncMode.INTERVAL, SyncMode.NONE)[keeping.between(0, 1)] if keeping.chance(0.15) else SyncMode.GROUP,
        interval_ns=keeping.spread(MILLISECOND, 300 * MILLISECOND),
    )
    config = StreamConfig()
    if keeping.chance(0.2):
        kind = keeping.between(0, 2)
        config = StreamConfig(
            retention_age_s=keeping.spread(1, 2000) / 1000 if kind == 0 else 0.0,
            retention_size=keeping.spread(1 << 10, 64 << 10) if kind == 1 else 0,
            retention_count=keeping.spread(1, 300) if kind == 2 else 0,
            lag_size_max=keeping.spread(1 << 10, 64 << 10) if keeping.chance(0.3) else 0,
        )
    limits = StreamsLimits(
        tail_size_max=die.spread(1, 256 << 10), unsettled_max=die.spread(1, 1000), stages_max=64, config=config,
        push_size_max=keeping.spread(64, 1 << 20), stage_lease_ns=die.spread(10 * MILLISECOND, 3600 * SECOND),
        snapshot_rows_max=keeping.spread(1, 8),
    )  # fmt: skip
    return MachineSettings(log, limits, turn_max_ns=die.spread(MICROSECOND, MILLISECOND))


def _keeps_all(config: StreamConfig) -> bool:
    return not (config.retention_age_s or config.retention_size or config.retention_count)


class Trimmer(Peer):
    """Somebody who trims a stream now and then."""

    def __init__(self, world: World, network: Network, address: str, oracles: Oracles, streams: Sequence[str]) -> None:
        """Who trims these streams, and says so to the oracles before."""
        super().__init__(world, network, "trimmer", address)
        self._oracles = oracles
        self._streams = streams
        self._request = 0
        self._asked: dict[int, tuple[StreamView | None, int]] = {}
        self.is_resting = False

    def attach(self) -> None:
        """Begin what it came for."""
        self._trim()

    def hear(self, order: Any) -> None:
        """Check that the answer is one."""
        if not isinstance(order, AnswerAdmin | Refuse):
            raise Violation("exchange", f"{self.name} was told {order!r}")
        view, floor = self._asked.pop(order.request, (None, 0))
        if view is not None and isinstance(order, AnswerAdmin):
            view.floor_told = max(view.floor_told, floor)

    def lose(self) -> None:
        """Nothing that is not answered matters."""
        self._asked.clear()

    def _trim(self) -> None:
        if self.is_resting or self.port is None:
            return
        # One stream above all: what is left of the others in its segments is moved together.
        name = self._streams[0 if self.die.chance(0.6) else self.die.between(0, len(self._streams) - 1)]
        view = self._oracles.current.get(name)
        floor = self._oracles.asks_to_trim(name, self._place_in(view) if view else 1)
        self._request += 1
        self._asked[self._request] = view, floor
        self.world.counts["trims"] += 1
        self.ask(AdminRequested(1, self._request, "local", "stream.trim", {"name": name, "floor": floor}))
        self.later(self.die.spread(10 * MILLISECOND, SECOND), self._trim)

    def _place_in(self, view: StreamView) -> int:
        """Anywhere, or at the last publication of a batch: segments end with one."""
        oldest = len(view.heads) - 5 if self.die.chance(0.5) else 0
        _, first = view.heads[self.die.between(max(0, oldest), len(view.heads) - 1)] if view.heads else (0, 1)
        return max(1, first - 1) if self.die.chance(0.5) else self.die.between(1, view.head + 1)


class Auditor(Peer):
    """Who reads every stream from its floor to its head, once."""

    def __init__(self, world: World, network: Network, address: str, streams: Sequence[str]) -> None:
        """Who reads these streams."""
        super().__init__(world, network, "auditor", address)
        self._streams = streams
        self._heads: dict[int, int] = {}
        self._positions: dict[int, int] = {}

    def attach(self) -> None:
        """Begin what it came for."""
        self._heads.clear()
        for channel, stream in enumerate(self._streams, 1):
            self.ask(SubscribeRequested(channel, "local", stream, credit=64 << 10))

    def hear(self, order: Any) -> None:
        """Check that the answer is one."""
        match order:
            case GrantSubscription(channel):
                self._heads[channel] = order.head
                self._positions[channel] = order.position
            case Push(channel):
                self._positions[channel] = order.last_sequence + 1
                self.ask(CreditGranted(channel, order.size + 16))
            case PushGap(channel, _, next_sequence):
                self._positions[channel] = next_sequence
            case Refuse(channel, "stream-deleted") if self._streams[channel - 1] in self.world.vanishing:
                # The reaper's last wish took until now.
                self.leave()
            case _:
                raise Violation("exchange", f"{self.name} was told {order!r}")

    def lose(self) -> None:
        """It begins again."""

    @property
    def is_done(self) -> bool:
        """Whether every stream was read to its head."""
        return len(self._heads) == len(self._streams) and all(
            self._positions[channel] > head for channel, head in self._heads.items()
        )


class Scene:
    """Owns everybody in one world."""

    def __init__(self, world: World, topology: Topology = DRAWN, part: Part = WHOLE) -> None:
        """Draw who is there and what may go wrong; `part` is what of the world takes place."""
        self.world = world
        self._part = part
        self._topology = topology
        faults: Sequence[str] = topology.faults
        die = world.dice.die("workload")
        self.network = Network(world, networks.drawn_temper(world.dice.die("network-temper"), topology.ranges.delay_s))
        self.oracles = Oracles(world)
        self._leaning_die = world.dice.die("leaning")
        self.leaning = drawn_leaning(self._leaning_die)
        settings = self._settings()
        self._config = settings.limits.config
        self._lease_ns = settings.limits.stage_lease_ns
        clock_die = world.dice.die("clock")
        clock = Clock(world, clock_die.uniform(-0.05, 0.05), clock_die.between(-SECOND, SECOND))
        temper = disks.drawn_temper(world.dice.die("disk-temper"), topology.ranges.sync_s)
        self.leaning.set_disk(self._leaning_die, temper)
        self.oracles.may_damage = temper.read_fault > 0 or temper.stale_read > 0
        disk = SimDisk(world, NODE, temper)
        self.network.is_plain = {"native": False, "plain": True}.get(topology.door, die.chance(0.4))
        door: Door = PlainDoor if self.network.is_plain else partial(CountedLink, world)
        self.machine = Machine(world, self.network, NODE, disk, clock, settings, door, self.oracles)
        world.has_owners = world.dice.die("owners").chance(0.35)
        self.streams = tuple(f"stream-{n}" for n in range(1, self._count("streams", die, 1, 2) + 1))
        self.sources = [self._source(n, die) for n in range(1, self._count("sources", die, 1, 3) + 1)]
        subscriber_count = self._count("subscribers", die, 0, 4)
        self.subscribers = [self._subscriber(n, die) for n in range(1, subscriber_count + 1)]
        self._others: list[Other] = []
        sink_count = self._count("sinks", die, 0, 2)
        has_trimmer = die.chance(0.15) or "trimmers" in self.leaning.least
        self.safety_ns = time_ns(die, topology.seconds or (max(0.1, self.leaning.seconds_min), 10.0))
        self._draw_more(world.dice.die("more"))
        self.sinks = [
            drawn_sink(world, self.network, f"sink-{n}", self.streams, NODE, self.oracles.commits)
            for n in range(1, sink_count + 1)
        ]
        if settings.log.sync is not SyncMode.GROUP:
            world.is_forgetful = True
            faults = [fault for fault in faults if fault != "rot"]
        if _keeps_all(self._config):
            trimmer = Trimmer(world, self.network, NODE, self.oracles, self.streams)
            self._others += [trimmer] if has_trimmer else []
        else:
            self._draw_laggard(world.dice.die("laggard"))
            self.oracles.lag_size_max = self._config.lag_size_max
            for subscriber in self.subscribers:
                subscriber.keep_nothing_aside()
        self.redrivers = self._redrivers(world.dice.die("redriver"))
        self._leave_out(part.without)
        self.players: list[Victim] = [
            *self.sources, *self.subscribers, *self.sinks, *self._clients(), *self.redrivers
        ]  # fmt: skip
        self.nemesis = Nemesis(
            world, self.network, [self.machine], self.players, [Rot(disk, self.oracles)], faults,
            self.leaning.faults, topology.ranges, part.strikes,
        )  # fmt: skip
        self._tell(settings)

    def _tell(self, settings: MachineSettings) -> None:
        owners = ", and names have owners" if self.world.has_owners else ""
        self.world.tell("scene", f"leans to {type(self.leaning).__name__.lower()}{owners}")
        self.world.tell("scene", f"{settings.log}")
        self.world.tell("scene", f"{settings.limits}")

    def _leave_out(self, names: frozenset[str]) -> None:
        self.sources = [source for source in self.sources if source.name not in names]
        self.subscribers = [subscriber for subscriber in self.subscribers if subscriber.name not in names]
        self.sinks = [sink for sink in self.sinks if sink.name not in names]
        self.redrivers = [redriver for redriver in self.redrivers if redriver.name not in names]
        self._others = [other for other in self._others if other.name not in names]

    def _count(self, kind: str, die: Die, low: int, high: int) -> int:
        return self._topology.count(kind, die, max(low, self.leaning.least.get(kind, 0)), high)

    def _settings(self) -> MachineSettings:
        dice = self.world.dice
        settings = self.leaning.set_node(
            self._leaning_die, drawn_settings(*map(dice.die, ("settings", "keeping", "answering")))
        )
        if self._topology.sync == "any":
            return settings
        return replace(settings, log=replace(settings.log, sync=SyncMode[self._topology.sync.upper()]))

    def _draw_more(self, die: Die) -> None:
        """Who is there beside the usual: somebody who deletes, clients of ZEPS 1, hostile peers."""
        world, network = self.world, self.network
        if die.chance(0.2) or "reapers" in self.leaning.least:
            world.vanishing = (VANISHING,)
            self._others.append(Reaper(world, network, NODE, VANISHING))
            self.sources.append(self._source_of("source-9", VANISHING))
            for number in (8, 9):
                temper = self._temper(die)
                name, is_durable = f"subscriber-{number}", die.chance(0.8)
                self.subscribers.append(Subscriber(world, network, name, VANISHING, NODE, temper, is_durable))
        if world.dice.die("forger").chance(0.4):
            self._others.append(Forger(world, network, NODE, self.streams[0]))
        if world.dice.die("trespasser").chance(0.25):
            self._others.append(Trespasser(world, network, NODE, self.streams, lambda: self.names))
        if not world.has_owners and world.dice.die("lawgiver").chance(0.25):
            self._draw_wards(world.dice.die("wards"))
        if world.dice.die("alterer").chance(0.25):
            self._others.append(Alterer(world, network, NODE, self.streams, self._config))
        if world.has_owners:
            self._others.append(Usurper(world, network, NODE, self.streams, lambda: self.names))
        if world.dice.die("stormer").chance(0.15):
            self._others.append(Stormer(world, network, NODE, (*self.streams, *world.vanishing)))
        if network.is_plain:
            return
        names = (*self.streams, *world.vanishing)
        if die.chance(0.4) or "clients" in self._topology or "clients" in self.leaning.least:
            for number in range(1, self._count("clients", die, 1, 3) + 1):
                stream, publishes = names[die.between(0, len(names) - 1)], die.chance(0.5)
                name = f"client-{number}"
                self._others.append(PlainClient(world, network, name, NODE, stream, self.oracles, publishes))
        if die.chance(0.15) or "hostiles" in self._topology:
            count = self._topology.count("hostiles", die, 2, 2)
            self._others += [Hostile(world, network, f"hostile-{n}", NODE, names) for n in range(1, count + 1)]

    def _draw_wards(self, die: Die) -> None:
        """A source and a subscriber whose rights come and go."""
        publishing, taking = source_kinds.drawn_temper(die), drawn_temper(die)
        publishing.total = min(publishing.total, self._part.publications)
        world, network, stream = self.world, self.network, self._any_stream(die)
        self.sources.append(WardSource(world, network, "source-ward", stream, NODE, publishing))
        self.subscribers.append(WardSubscriber(world, network, "subscriber-ward", stream, NODE, taking, True))
        self._others.append(Lawgiver(world, self.machine))

    def _draw_laggard(self, die: Die) -> None:
        """Who settles nothing until all is over: what it needs, retention may not take."""
        if die.chance(0.8):
            temper = drawn_temper(die)
            temper.taste, temper.changes_taste, temper.start, temper.settles_late = 0, 0.0, Start(), True
            stream = self._any_stream(die)
            self.subscribers.append(Subscriber(self.world, self.network, "laggard", stream, NODE, temper, True))

    def _redrivers(self, die: Die) -> list[Redriver]:
        """Who moves the dead letters of each subscription back; the first one that has a cursor has some then."""
        durable = [s for s in self.subscribers if s.is_durable and s.stream not in self.world.vanishing]
        if self.world.is_forgetful or not _keeps_all(self._config) or not durable or not die.chance(0.35):
            return []
        self.world.has_redrivers = True
        if not durable[0].parked_to:
            durable[0].set_aside(die.between(1, 3))
        parking = [subscriber for subscriber in durable if subscriber.parked_to]
        return [
            Redriver(self.world, self.network, f"redriver-{n}", one.parked_to, one.stream, NODE, self.oracles)
            for n, one in enumerate(parking, 1)
        ]

    def _clients(self) -> list[PlainClient]:
        return [other for other in self._others if isinstance(other, PlainClient)]

    @property
    def names(self) -> list[str]:
        """Of everybody who may be left out."""
        return list(dict.fromkeys([player.name for player in self.players] + [other.name for other in self._others]))

    def _source(self, number: int, die: Die) -> Source:
        drawn = self._any_stream(die)
        # Each stream has somebody who publishes to it, where there are as many.
        return self._source_of(f"source-{number}", self.streams[number - 1] if number <= len(self.streams) else drawn)

    def _source_of(self, name: str, stream: str) -> Source:
        temper = source_kinds.drawn_temper(self.world.dice.die(f"source/{name}"))
        self.leaning.set_source(self._leaning_die, temper)
        temper.total = min(temper.total, self._part.publications)
        return Source(self.world, self.network, name, stream, NODE, temper)

    def _temper(self, die: Die) -> SubscriberTemper:
        temper = drawn_temper(die)
        self.leaning.set_subscriber(self._leaning_die, temper)
        return temper

    def _subscriber(self, number: int, die: Die) -> Subscriber:
        name, is_durable = f"subscriber-{number}", die.chance(0.8)
        stream = self._any_stream(die)
        return Subscriber(self.world, self.network, name, stream, NODE, self._temper(die), is_durable)

    def _any_stream(self, die: Die) -> str:
        return self.streams[die.between(0, len(self.streams) - 1)]

    # ── phases ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def run(self) -> None:
        """All phases; raises `Violation` where a guarantee does not hold."""
        die = self.world.dice.die("arrivals")
        self.machine.start()
        beginnings = [player.start for player in self.players]
        beginnings += [other.start for other in self._others if not isinstance(other, PlainClient)]
        for begin in beginnings:
            self.world.after(die.spread(MILLISECOND, SECOND), begin)
        self.nemesis.begin()
        self.world.run(self.safety_ns + SECOND)
        self.nemesis.rest()
        for other in self._others:
            other.is_resting = True
        for redriver in self.redrivers:
            redriver.is_resting = True
        self._wait("what was begun", self._working)
        # A disk that reads again has everything that was ever acknowledged.
        self.oracles.may_damage = False
        self.nemesis.wake()
        self.world.run(self.world.now_ns + WAKING_NS)
        self.nemesis.end()
        if not _keeps_all(self._config):
            self.world.run(self.world.now_ns + LOOKING_NS)
        for source in self.sources:
            source.ask_again()
        self._wait("what sources are told once more", self._working)
        parked = tuple(subscriber.parked_to for subscriber in self.subscribers if subscriber.parked_to)
        names = (*self.streams, *self.world.vanishing, *parked)
        auditor = Auditor(self.world, self.network, NODE, names)
        auditor.start()
        self._wait("the audit", lambda: [] if auditor.is_done else ["auditor"])
        for subscriber in self.subscribers:
            if subscriber.is_durable:
                subscriber.finish()
        self._wait("delivery", self._waiting_subscriptions)
        self._outlast_leases()  # Whoever asks anew meanwhile has something on its way: only then is there rest.
        self._wait("rest", lambda: [] if self.machine.is_idle else [NODE])
        self.machine.check_at_rest()
        self.oracles.judge()

    def _outlast_leases(self) -> None:
        """Nothing is left of writes without a name once their lease is over, where that is to be waited for."""
        if self._lease_ns <= LEASE_NS_MAX and any(isinstance(sink, NamelessSink) for sink in self.sinks):
            # A lease begins with the end of the last link, which may be late itself, and behind what is late.
            self.world.run(self.world.now_ns + 2 * LATE_MAX_NS + self._lease_ns * 11 // 10 + SECOND)
            self.machine.check_leases()

    def _wait(self, what: str, waiting: Any) -> None:
        """Let the world go on until nobody is waited for; a violation when it takes too long."""
        end_ns = self.world.now_ns + LIVENESS_NS
        slice_ns = 10 * MILLISECOND
        while names := waiting():
            if self.world.now_ns > end_ns:
                raise Violation(
                    "progress", f"{what} is not done {LIVENESS_NS // SECOND} s after the last fault: {names}"
                )
            self.world.run(self.world.now_ns + slice_ns)
            slice_ns = min(2 * slice_ns, SECOND)
        self.world.tell("scene", f"{what}: done")

    def _working(self) -> list[str]:
        sources = [source.name for source in self.sources if not (source.is_done or source.is_abandoned)]
        sources += [redriver.name for redriver in self.redrivers if not (redriver.is_done or redriver.is_abandoned)]
        return sources + [sink.name for sink in self.sinks if not (sink.is_done or sink.is_abandoned)]

    def _waiting_subscriptions(self) -> list[str]:
        waiting: list[str] = []
        # A hostile peer may have subscribed under any name: that of its own, with a bit turned.
        awaited = {f"{subscriber.name}/main" for subscriber in self.subscribers if not subscriber.is_abandoned}
        for view in self.oracles.subscriptions.values():
            if not view.is_durable or view.stream.is_gone or view.name not in awaited:
                continue
            missing = self.oracles.missing_of(view)
            if missing:
                waiting.append(f"{view.name} was not pushed {view.stream.name}/{missing}")
            elif self.oracles.has_unsettled(view):
                waiting.append(f"{view.name} has not settled all that it was pushed")
        clients = ((client.name, client.missing()) for client in self._clients())
        return waiting + [f"{name} was not delivered {missing}" for name, missing in clients if missing]
