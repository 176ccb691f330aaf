"""Worlds of topics: servers, proxies that disagree on who has what, and clients who must not notice.

safety     proxies hear some of the servers only, for a drawn time, so that several get one topic; the nemesis strikes
liveness   faults are over: puts in doubt are finished, and each topic is merged into one server's, within a bound
audit      every client gets what there is, and every topic is read from its floor to its head
verdict    what everybody was told holds: see `topics_told`

Left out of what may go wrong elsewhere: rot and weak syncs, under which a node may forget; and in most of these worlds
clocks are not stepped, since a merge compares them (docs/decisions/0012). Where they are, the oracles take that for an
excuse, and the story says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from msgspec import structs

from veredus.journal.exchange import SyncMode
from veredus.kernel.engine import Now
from veredus.protocols.topics.proxy import ProxySettings
from veredus.protocols.topics.server import ServerSettings
from veredus.streams.engine import StreamsEngine
from veredus.streams.exchange import (
    AnswerAdmin,
    ConfirmCommitted,
    GrantRun,
    GrantStage,
    GrantSubscription,
)
from veredus.streams.facts import StreamConfig
from veredus.streams.stream import Stream

from . import disk as disks
from . import network as networks
from .dice import Die
from .disk import SimDisk
from .machine import MachineSettings
from .nemesis import Nemesis, Victim
from .network import Network
from .partitions import Parts
from .ranges import Ranges, time_ns
from .topics_heralds import drawn_temper as drawn_heralds
from .topics_hosts import ProxyPlayer, TopicsMachine
from .topics_leanings import drawn_leaning
from .topics_natives import Reader, Sensor
from .topics_page_people import PageClient
from .topics_people import Client, drawn_temper
from .topics_removers import TopicRemover
from .topics_told import DRIFT_MAX, Told, judge
from .topics_trimmers import TopicTrimmer
from .topology import Topology
from .workloads import Part, drawn_settings
from .world import MILLISECOND, SECOND, Clock, Violation, World

LIVENESS_NS = 180 * SECOND
"""Within this time after the last fault everything that was begun must be done, and every topic merged."""
DELAY_MAX_NS, SYNC_MAX_NS = 2 * MILLISECOND, 5 * MILLISECOND
"""How slow network and disks are when faults are over, at most."""
WAKING_NS = 2 * SECOND
PAGE_SHARE = 0.15
"""So many proxies are written from the page."""
STEPS = ("clock", "strobe")
FORGETTING = ("rot",)
PARTS = ("begin", "sources", "rows", "end", "end", "end")
CONFIRMED = (ConfirmCommitted, ConfirmCommitted, ConfirmCommitted, GrantRun, GrantStage, GrantSubscription, AnswerAdmin)
"""What a server may be killed at in a merge: a part that it asks for or answers, and what its floor confirms."""


class Quiet:
    """A witness that judges nothing: what is said is judged by who hears it."""

    def boot(self) -> None:
        """A new process."""

    def hear(self, fact: object, now: Now) -> None:
        """The floor was told something."""

    def see(self, effect: object, now: Now) -> None:
        """The floor said something."""

    def note(self, event: str, fields: dict[str, object]) -> None:
        """The node noted something."""

    def recovered(self, floor: StreamsEngine, may_forget: bool, is_shaken: bool, durable_ns: int) -> None:
        """A process knows what the journal holds."""

    def renewed(self) -> None:
        """The rules do not change here."""

    def trims(self, stream: Stream, floor: int) -> None:
        """Retention is off."""


def _eased(ranges: Ranges) -> Ranges:
    """Nothing takes longer than a merge has time for while faults are struck."""
    spans = (ranges.pause_s, ranges.partition_s, ranges.block_s, ranges.late_s, ranges.delay_s, ranges.sync_s)
    pause, partition, block, late, delay, sync = (
        (least, max(least, min(most, longest_s)))
        for (least, most), longest_s in zip(spans, (1.0, 1.0, 0.5, 1.0, 0.2, 0.2), strict=True)
    )
    return ranges._replace(pause_s=pause, partition_s=partition, block_s=block, late_s=late, delay_s=delay, sync_s=sync)


class Slower(Nemesis):
    """A nemesis that lets something come about between two strikes: what is killed all the time is never merged."""

    def __init__(self, *arguments: Any) -> None:
        """As every nemesis."""
        super().__init__(*arguments)
        self._interval_ns = 100 * MILLISECOND + 2 * self._interval_ns


class Trapper:
    """Lays traps: a server that says or asks something of a kind in a merge is killed at one of its next steps."""

    name = "trapper"

    def __init__(self, world: World, machines: Sequence[TopicsMachine]) -> None:
        """Who lays traps for these."""
        self._world = world
        self._machines = machines
        self._die = world.dice.die(self.name)
        self.is_resting = False

    def start(self) -> None:
        """Begin."""
        self._world.after(self._die.spread(MILLISECOND, 2 * SECOND), self._lay)

    def rest(self) -> None:
        """Take every trap away."""
        self.is_resting = True
        for machine in self._machines:
            machine.trap = ""
            machine.startled_by = None

    def _lay(self) -> None:
        if self.is_resting:
            return
        die = self._die
        for machine in self._machines:
            if die.chance(0.3):
                self._world.counts["fault.startle"] += 1
                machine.startled_by = CONFIRMED[die.between(0, len(CONFIRMED) - 1)]
            elif not machine.trap:
                # Topics go to the lower id: the first server asks for nothing, the last one is asked for nothing.
                asks = machine is self._machines[-1] or (machine is not self._machines[0] and die.chance(0.5))
                machine.trap = f"{'asks' if asks else 'answers'} {PARTS[die.between(0, len(PARTS) - 1)]}"
        self.start()


class Staller:
    """Stops one proxy after the other: what waits there goes on when its clients have asked elsewhere."""

    name = "staller"

    def __init__(self, world: World, proxies: Sequence[ProxyPlayer]) -> None:
        """Who stalls these."""
        self._world = world
        self._proxies = proxies
        self._die = world.dice.die(self.name)
        self.is_resting = False

    def start(self) -> None:
        """Begin."""
        self._world.after(self._die.spread(50 * MILLISECOND, SECOND), self._stall)

    def _stall(self) -> None:
        if not self.is_resting:
            proxy = self._proxies[self._die.between(0, len(self._proxies) - 1)]
            self._world.counts["fault.stall"] += 1
            duration_ns = self._die.spread(500 * MILLISECOND, 2 * SECOND)
            proxy.stop(duration_ns, is_followed=False)
            # One at a time: through another one all goes on.
            self._world.after(duration_ns, self.start)


class TopicsScene:
    """Owns everybody in one world of topics."""

    def __init__(self, world: World, topology: Topology, part: Part) -> None:
        """Draw who is there and what may go wrong; `part` is what of the world takes place."""
        self.world = world
        self._part = part
        die = world.dice.die("topics")
        if die.chance(0.75):
            topology = replace(topology, ranges=_eased(topology.ranges))
        self._topology = topology
        self.network = Network(world, self._drawn_network(die))
        self.network.is_plain = {"native": False, "plain": True}.get(topology.door, die.chance(0.5))
        self._leaning_die = world.dice.die("leaning/topics")
        self._leaning = drawn_leaning(self._leaning_die)
        self.topics = tuple(f"topic-{n}" for n in range(1, self._count("streams", die, 1, 2) + 1))
        self.told = Told(world, self.topics)
        self._period_ns = die.spread(200 * MILLISECOND, 5 * SECOND if die.chance(0.1) else SECOND)
        self._bulk = topology.bulk or (die.spread(100, 3000) if die.chance(0.1) else 0)
        small = world.dice.die("small-parts")
        self._part_count_max = small.spread(1, 16) if small.chance(0.3) and not self._bulk else 0
        """So many rows a TRANSFER has, 0 for what is usual: what comes between two of them is rare elsewhere."""
        proxies = [f"proxy-{n}" for n in range(1, self._count("proxies", die, 1, 2) + 1)]
        most = 3 if world.dice.die("third-server").chance(0.2) else 2
        servers = [f"server-{n}:1" for n in range(1, self._count("servers", die, most, most) + 1)]
        self._apart = self._drawn_parts(die, proxies, servers)
        self.safety_ns = time_ns(die, topology.seconds or (2.0, 8.0))
        faults = [fault for fault in topology.faults if fault not in FORGETTING]
        if not world.dice.die("steps").chance(0.15):
            faults = [fault for fault in faults if fault not in STEPS]
        self.sensors = self._drawn_sensors(world.dice.die("sensors"), servers)
        self.trimmers = self._drawn_trimmers(world.dice.die("trimmers"), servers)
        self._removed = self._drawn_removed(world.dice.die("removers"), servers)
        natives = frozenset(self._natives)
        self.machines = [self._machine(name, proxies, natives) for name in servers]
        self._draw_heralds(world.dice.die("heralds"))
        self.proxies = self._drawn_proxies(proxies, servers)
        clients = [f"client-{n}" for n in range(1, self._count("clients", die, 2, 5) + 1)]
        self.clients = self._drawn_clients(world.dice.die("paged"), clients, proxies)
        self.removers = self._removers()
        self.trapper = Trapper(world, self.machines)
        self._has_trapper = world.dice.die("has/trapper").chance(0.6) and bool({"kill", "startle"} & set(faults))
        self._has_trapper &= self.trapper.name not in part.without
        self.staller = Staller(world, self.proxies)
        self._has_staller = self._leaning.stalls_proxies and "pause" in faults and self.staller.name not in part.without
        self.clients = [client for client in self.clients if client.name not in part.without]
        self.sensors = [sensor for sensor in self.sensors if sensor.name not in part.without]
        self.trimmers = [trimmer for trimmer in self.trimmers if trimmer.name not in part.without]
        self.players: list[Victim] = [*self.proxies, *self.clients, *self.sensors]
        self.nemesis = Slower(
            world, self.network, self.machines, self.players, [], faults, (), topology.ranges, part.strikes
        )
        self.told.may_step = any(fault in STEPS for fault in self.nemesis.faults)
        world.counts["topics.worlds"] += 1
        excuse = "; clocks are stepped, so that a merge may give too much or lose one" if self.told.may_step else ""
        leans = f"leans to {type(self._leaning).__name__.lower()}"
        told_ns = f"told every {self._period_ns} ns" + (
            f", parts of {self._part_count_max}" * (self._part_count_max > 0)
        )
        world.tell("scene", f"is one of topics, and {leans}: {len(servers)} servers, {told_ns}{excuse}")

    @property
    def names(self) -> list[str]:
        """Of everybody who may be left out."""
        others = [self.trapper.name] if self._has_trapper else []
        others += [self.staller.name] if self._has_staller else []
        own = [client.name for client in self.clients]
        return own + [name for name in self._natives if not name.startswith("reader-")] + others

    @property
    def _natives(self) -> list[str]:
        """Of those who use the other listener."""
        own = [sensor.name for sensor in self.sensors] + [trimmer.name for trimmer in self.trimmers]
        own += [name for name, _, _ in self._removed if name not in self._part.without]
        return own + [f"reader-{topic}" for topic in self.topics]

    def _drawn_network(self, die: Die) -> networks.NetworkTemper:
        """A question and its answer go four ways in 100 ms: mostly they come in time."""
        temper = networks.drawn_temper(self.world.dice.die("network-temper"), self._topology.ranges.delay_s)
        if die.chance(0.8):
            temper.delay_min_ns //= 10
            temper.delay_max_ns = temper.delay_min_ns + (temper.delay_max_ns - temper.delay_min_ns) // 10
        return temper

    def _count(self, kind: str, die: Die, low: int, high: int) -> int:
        return self._topology.count(kind, die, low, high)

    def _drawn_parts(self, die: Die, proxies: Sequence[str], servers: Sequence[str]) -> Parts | None:
        """Each proxy hears some servers only, at first."""
        if die.chance(0.2) and not self._leaning.keeps_apart:
            return None
        homes = {proxy: servers[(place + die.between(0, 1)) % len(servers)] for place, proxy in enumerate(proxies)}
        more = {(proxy, server) for proxy in proxies for server in servers if die.chance(0.15)}

        def parts(sender: str, receiver: str) -> bool:
            pair = (sender, receiver) if sender in homes else (receiver, sender)
            return pair[0] in homes and pair[1] in servers and homes[pair[0]] != pair[1] and pair not in more

        return parts

    def _machine(self, name: str, proxies: Sequence[str], natives: frozenset[str]) -> TopicsMachine:
        world, dice = self.world, self.world.dice
        drawn = drawn_settings(*(dice.die(f"{what}/{name}") for what in ("settings", "keeping", "answering")))
        log = replace(drawn.log, sync=SyncMode.GROUP)
        limits = structs.replace(drawn.limits, config=StreamConfig(), unsettled_max=1000)
        if self._bulk > 10_000:
            log = replace(log, segment_size=4 << 20, group_size_max=256 << 10, checkpoint_interval_size=16 << 20)
            limits = structs.replace(limits, push_size_max=256 << 10, tail_size_max=16 << 20)
        settings = MachineSettings(log, limits, drawn.turn_max_ns)
        temper = disks.drawn_temper(dice.die(f"disk-temper/{name}"), self._topology.ranges.sync_s)
        # What cannot be read for a while is given to nobody, which would excuse what is lost.
        temper.read_fault = temper.stale_read = 0.0
        self._leaning.set_disk(self._leaning_die, temper)
        die = dice.die(f"clock/{name}")
        offset_ns = die.between(-SECOND, SECOND) * (60 if die.chance(0.2) else 1)
        clock = self.told.servers[name] = Clock(world, die.uniform(-DRIFT_MAX, DRIFT_MAX), offset_ns)
        serving = ServerSettings(name, tuple(proxies), period_ns=self._period_ns)
        disk = SimDisk(world, name, temper)
        serving = replace(serving, part_count_max=self._part_count_max or serving.part_count_max)
        machine = TopicsMachine(world, self.network, disk, clock, settings, serving, Quiet(), self.told, natives)
        machine.keeps_digests = not dice.die(f"digests/{name}").chance(0.3)
        return machine

    def _drawn_clients(self, die: Die, names: Sequence[str], proxies: Sequence[str]) -> list[Client | PageClient]:
        """In four of ten worlds some know the page alone, beside others that are ours."""
        share = die.uniform(0.2, 0.8) if die.chance(0.4) else 0.0
        clients = [self._client(name, proxies, die.chance(share)) for name in names]
        self.world.counts["topics.page-clients"] += sum(isinstance(client, PageClient) for client in clients)
        return clients

    def _client(self, name: str, proxies: Sequence[str], is_paged: bool) -> Client | PageClient:
        die = self.world.dice.die(f"client/{name}")
        order = [*proxies] if die.chance(0.5) else [*reversed(proxies)]
        temper = drawn_temper(die)
        self._leaning.set_client(self._leaning_die, temper)
        many = self.world.dice.die(f"many/{name}")
        temper.many = many.uniform(0.1, 0.9) if many.chance(0.25) else 0.0
        kind = PageClient if is_paged else Client
        return kind(self.world, self.network, name, self.topics, order, self.told, temper, self._part.publications)

    def _drawn_sensors(self, die: Die, servers: Sequence[str]) -> list[Sensor]:
        world, network = self.world, self.network
        count = len(servers) if self._bulk else die.between(0, 2) if die.chance(0.5) else 0
        sensors: list[Sensor] = []
        for number in range(1, count + 1):
            topic, pause_max_ns = self.topics[die.between(0, len(self.topics) - 1)], die.spread(MILLISECOND, SECOND)
            total, batch_max = min(die.spread(10, 300), self._part.publications), die.spread(1, 20)
            server = servers[die.between(0, len(servers) - 1)]
            if self._bulk:
                topic, total, batch_max, pause_max_ns = self.topics[0], self._bulk, 2000, MILLISECOND
                server = servers[number - 1]
            name = f"sensor-{number}"
            sensors.append(Sensor(world, network, name, topic, server, self.told, total, batch_max, pause_max_ns))
        own = self._leaning_die
        for server in self._leaning.sensors_at(servers):
            total, pause_max_ns = own.spread(50, 300), own.spread(5 * MILLISECOND, 50 * MILLISECOND)
            total, name = min(total, self._part.publications), f"sensor-{len(sensors) + 1}"
            sensors.append(Sensor(world, network, name, self.topics[0], server, self.told, total, 3, pause_max_ns))
        return sensors

    def _drawn_trimmers(self, die: Die, servers: Sequence[str]) -> list[TopicTrimmer]:
        """In some worlds, more often where three servers are, somebody trims each topic at some of the servers."""
        if self._bulk or not die.chance(0.33 if len(servers) < 3 else 0.5):
            return []
        places = [(topic, server) for topic in self.topics for server in servers if die.chance(0.7)]
        world, network, missed = self.world, self.network, self.told.missed
        return [
            TopicTrimmer(world, network, f"trimmer-{number}", server, topic, missed)
            for number, (topic, server) in enumerate(places, 1)
        ]

    def _drawn_removed(self, die: Die, servers: Sequence[str]) -> list[tuple[str, str, str]]:
        """In one world of four where nobody trims, somebody removes each topic at some servers: who, which, where."""
        if self._bulk or self.trimmers or not die.chance(0.25):
            return []
        places = [(topic, server) for topic in self.topics for server in servers if die.chance(0.7)]
        return [(f"remover-{number}", topic, server) for number, (topic, server) in enumerate(places, 1)]

    def _drawn_proxies(self, names: Sequence[str], servers: Sequence[str]) -> list[ProxyPlayer]:
        """In half of all worlds they list the servers; some are written from the page."""
        dice = self.world.dice
        listed = tuple(servers) if dice.die("proxies-list").chance(0.5) else ()
        settings = [ProxySettings(name, learning_ns=self._period_ns * 6 // 5, servers=listed) for name in names]
        strange = dice.die("page-proxies")
        proxies = [
            ProxyPlayer(
                self.world, self.network, proxy, self.told, proxy is settings[-1], strange.chance(PAGE_SHARE)
            )
            for proxy in settings
        ]  # fmt: skip
        self.told.may_forget = not listed or bool(self.told.of_page)
        return proxies

    def _removers(self) -> list[TopicRemover]:
        machines = {machine.name: machine for machine in self.machines}
        return [
            TopicRemover(self.world, self.network, name, machines[server], topic, self.told)
            for name, topic, server in self._removed
            if name not in self._part.without
        ]

    def _draw_heralds(self, die: Die) -> None:
        """How what servers announce fares."""
        heralds = drawn_heralds(die, self._period_ns)
        self.told.may_hear_late = heralds.delays > 0
        for machine in self.machines:
            machine.heralds = heralds

    # ── phases ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def run(self) -> None:
        """All phases; raises `Violation` where a guarantee does not hold."""
        world, die = self.world, self.world.dice.die("arrivals")
        if self._apart is not None:
            whole_ns = self.safety_ns + SECOND
            apart_ns = (
                whole_ns
                if self._leaning.keeps_apart or die.chance(0.2)
                else die.spread(300 * MILLISECOND, max(SECOND, self.safety_ns // 2))
            )
            self.network.part(self._apart, apart_ns)
        for begin in [machine.start for machine in self.machines] + [proxy.start for proxy in self.proxies]:
            begin()
        late = [sensor.start for sensor in self.sensors]
        if self._bulk:
            for begin in late:
                begin()
            self._wait("what is published at first", lambda: [s.name for s in self.sensors if not s.is_over])
            late = []
        for begin in [client.start for client in self.clients] + late:
            world.after(die.spread(MILLISECOND, SECOND), begin)
        for party in (*self.trimmers, *self.removers):
            party.start()
        self.nemesis.begin()
        if self._has_trapper:
            self.trapper.start()
        if self._has_staller:
            self.staller.start()
        world.run(world.now_ns + self.safety_ns + SECOND)
        self.trapper.rest()
        self.staller.is_resting = True
        for machine in self.machines:
            machine.let_announce()
        for trimmer in self.trimmers:
            trimmer.is_resting = True
        for remover in self.removers:
            remover.is_resting = True
        for sensor in self.sensors:
            sensor.rest()
        for client in self.clients:
            client.is_resting = True
        self.nemesis.rest()
        self._hurry()
        self._wait("what was begun", self._unsettled)
        self.nemesis.wake()
        world.run(world.now_ns + WAKING_NS)
        self.nemesis.end()
        self._wait("what was begun by who woke up late", self._unsettled)
        for client in self.clients:
            client.is_draining = True
        # A message takes 0.4 s where a client's first proxy is dead: they come in time as long as they come.
        self._wait("delivery", self._undrained, lambda: self.world.counts["topics.gets"])
        self._wait("what was late", self._unsettled)
        readers = self._readers()
        self._wait("the audit", lambda: [reader.name for reader in readers if not reader.is_done])
        self._wait("rest", lambda: [machine.name for machine in self.machines if not machine.is_idle])
        for machine in self.machines:
            machine.check_at_rest()
        abandoned = [client.name for client in self.clients if client.is_abandoned]
        judge(self.told, {reader.topic: reader.bodies for reader in readers}, abandoned)

    def _hurry(self) -> None:
        """An answer that takes longer than its asker waits never comes: let each be possible in time from now on."""
        temper = self.network.temper
        temper.delay_min_ns, temper.delay_max_ns = min(temper.delay_min_ns, DELAY_MAX_NS), DELAY_MAX_NS
        for machine in self.machines:
            slow = machine.disk.temper
            slow.sync_min_ns, slow.sync_max_ns = min(slow.sync_min_ns, SYNC_MAX_NS), SYNC_MAX_NS

    @property
    def _present(self) -> list[Client | PageClient]:
        return [client for client in self.clients if not client.is_abandoned]

    def _unsettled(self) -> list[str]:
        """Clients whose puts are in doubt, and topics that several servers have."""
        waiting = [client.name for client in self._present if not client.is_settled]
        several = [topic for topic, places in self.told.places.items() if len(places) > 1]
        return waiting + several + [machine.name for machine in self.machines if machine.engine is None]

    def _undrained(self) -> list[str]:
        return [client.name for client in self._present if not client.is_drained]

    def _readers(self) -> list[Reader]:
        places = [
            (topic, machine.name) for topic in self.topics for machine in self.machines if topic in machine.topics
        ]
        readers = [Reader(self.world, self.network, server, topic) for topic, server in places]
        for reader in readers:
            reader.start()
        return readers

    def _wait(self, what: str, waiting: Callable[[], list[str]], done: Callable[[], int] = lambda: 0) -> None:
        """Let the world go on until nobody is waited for; a violation when `done` has not grown for too long."""
        done_count, end_ns, slice_ns = -1, 0, 10 * MILLISECOND
        while names := waiting():
            if done_count != (done_count := done()):
                end_ns = self.world.now_ns + LIVENESS_NS
            if self.world.now_ns > end_ns:
                said = f"{what} is not done {LIVENESS_NS // SECOND} s after the last fault: {names}"
                raise Violation("progress", said)
            self.world.run(self.world.now_ns + slice_ns)
            slice_ns = min(2 * slice_ns, 500 * MILLISECOND)
        self.world.tell("scene", f"{what}: done")
